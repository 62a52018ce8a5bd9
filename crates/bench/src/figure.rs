//! A measured figure and its target.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a figure is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// For comparison only.
    None,
}

impl Target {
    /// Whether a value reaches it; None without a target.
    pub fn met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
            Self::None => None,
        }
    }

    /// The bound itself.
    pub fn bound(self) -> Option<f64> {
        match self {
            Self::AtLeast(n) | Self::AtMost(n) => Some(n),
            Self::None => None,
        }
    }

    /// In words, followed by `unit`; empty without a target.
    pub fn text(self, unit: &str) -> String {
        let bound = match self {
            Self::AtLeast(n) => format!("≥ {} {unit}", number(n)),
            Self::AtMost(n) => format!("≤ {} {unit}", number(n)),
            Self::None => String::new(),
        };
        bound.trim_end().to_owned()
    }
}

/// Minimum, median and maximum.
pub type Spread = [f64; 3];

/// Minimum, median (of an even number: the mean of the two in the middle) and maximum; None of nothing.
pub fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    let median = if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + upper) / 2.0 } else { upper };
    Some([*sorted.first()?, median, *sorted.last()?])
}

/// A figure with one value per round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// Unit of the values.
    pub unit: Cow<'static, str>,
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
        let unit = Cow::Borrowed(unit);
        Self { name: name.into(), unit, target, values: Vec::new(), note: String::new() }
    }

    /// The same with a remark.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Minimum, median and maximum.
    pub fn spread(&self) -> Option<Spread> {
        spread(&self.values)
    }

    /// Whether the median meets the target; None without a target or a value.
    pub fn met(&self) -> Option<bool> {
        let [_, median, _] = self.spread()?;
        self.target.met(median)
    }
}

/// Three decimals for small numbers, thousands apart for large ones.
pub fn number(n: f64) -> String {
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
        figure.values.push(11.0);
        assert_eq!(figure.spread(), Some([9.0, 10.5, 30.0]));
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
