//! A measured figure and its target.

use serde::Serialize;

/// What a figure is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// For comparison only.
    None,
}

/// A figure with one value per round.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Target; compared with the median.
    pub target: Target,
    /// One value per round.
    pub values: Vec<f64>,
    /// How it was measured where that matters.
    pub note: String,
}

impl Figure {
    /// A figure without values yet.
    pub fn new(name: impl Into<String>, unit: &'static str, target: Target) -> Self {
        Self { name: name.into(), unit, target, values: Vec::new(), note: String::new() }
    }

    /// The same with a remark.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Minimum, median and maximum.
    pub fn spread(&self) -> Option<[f64; 3]> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        Some([*sorted.first()?, sorted[sorted.len() / 2], *sorted.last()?])
    }

    /// Whether the median meets the target; None without a target or a value.
    pub fn met(&self) -> Option<bool> {
        let [_, median, _] = self.spread()?;
        match self.target {
            Target::AtLeast(least) => Some(median >= least),
            Target::AtMost(most) => Some(median <= most),
            Target::None => None,
        }
    }

    /// One row of a table: name, target, minimum, median, maximum, met.
    pub fn row(&self) -> [String; 6] {
        let target = match self.target {
            Target::AtLeast(n) => format!(">= {} {}", number(n), self.unit),
            Target::AtMost(n) => format!("<= {} {}", number(n), self.unit),
            Target::None => self.unit.to_owned(),
        };
        let [min, median, max] =
            self.spread().map_or_else(|| ["-"; 3].map(String::from), |spread| spread.map(number));
        let met = match self.met() {
            Some(true) => "met",
            Some(false) => "not met",
            None => "",
        };
        [self.name.clone(), target.trim_end().to_owned(), min, median, max, met.to_owned()]
    }
}

/// Three significant digits for small numbers, thousands apart for large ones.
fn number(n: f64) -> String {
    if n.abs() < 100.0 {
        return format!("{n:.3}").trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{:.0}", n.abs());
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if n < 0.0 { format!("-{out}") } else { out }
}

/// Rows of all figures as text, columns aligned.
pub fn table(figures: &[Figure]) -> String {
    let head = ["figure", "target", "min", "median", "max", ""].map(String::from);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(figures.iter().map(Figure::row)).collect();
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut out = String::new();
    for row in &rows {
        let [name, target, min, median, max, met] = row;
        let [a, b, c, d, e, _] = widths;
        let line = format!("{name:<a$}  {target:<b$}  {min:>c$}  {median:>d$}  {max:>e$}  {met}");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    for figure in figures.iter().filter(|f| !f.note.is_empty()) {
        out.push_str(&format!("{}: {}\n", figure.name, figure.note));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides() {
        let mut figure = Figure::new("x", "/s", Target::AtLeast(10.0));
        assert_eq!(figure.met(), None);
        figure.values = vec![9.0, 30.0, 10.0];
        assert_eq!(figure.spread(), Some([9.0, 10.0, 30.0]));
        assert_eq!(figure.met(), Some(true));
        figure.target = Target::AtMost(9.5);
        assert_eq!(figure.met(), Some(false));
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            ["0.95", "12,000", "1,000,000", "7"],
            [0.95, 12_000.0, 1e6, 7.0].map(number).each_ref().map(String::as_str)
        );
    }
}
