//! Marks of an axis: round values, far enough apart, and written so that no two read the same.

use super::report::time;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;
/// Most parts into which marks divide an axis.
const PARTS: f64 = 6.0;

/// A mark: where it is, and what is written there.
pub type Mark = (f64, String);

/// What an axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Seconds, which differ by orders of magnitude.
    Waits,
    /// Bytes.
    Bytes,
    /// Parts of 1, in per cent.
    Share,
    /// How many.
    Count,
}

impl Scale {
    /// Marks from the least value up to about `most`.
    pub fn marks(self, most: f64) -> Vec<Mark> {
        match self {
            Self::Waits => waits(most),
            Self::Bytes => {
                let units = [(" PB", 1e15), (" TB", 1e12), (" GB", 1e9), (" MB", 1e6), (" kB", 1e3)];
                // The unit of the longest mark that is not below 1 in it.
                let (name, unit) = units.into_iter().find(|(_, unit)| most >= *unit).unwrap_or((" B", 1.0));
                even(most, unit, name)
            }
            Self::Share => even(most, 0.01, " %"),
            Self::Count => even(most.max(1.0), 1.0, ""),
        }
    }
}

/// Marks of an axis of time that begins at 0 (days).
pub fn days(most: f64) -> Vec<Mark> {
    let whole = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0].map(|n| n * MINUTE).into_iter();
    let hours = [2.0, 3.0, 6.0, 12.0].map(|n| n * HOUR).into_iter();
    let longer = (0..6).flat_map(|tens| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(tens) * DAY));
    let fits = |step: &f64| most * DAY / step <= PARTS;
    let step = whole.chain(hours).chain(longer).find(fits).unwrap_or(most.max(1e-6) * DAY);
    let text = |s: f64| match step {
        step if step < HOUR => format!("{:.0} min", s / MINUTE),
        step if step < DAY => format!("{:.0} h", s / HOUR),
        _ => format!("day {:.0}", s / DAY),
    };
    each(most * DAY, step).map(|s| (s / DAY, text(s))).collect()
}

/// Multiples of a step of 1, 2 or 5 and zeros.
fn even(most: f64, unit: f64, name: &str) -> Vec<Mark> {
    let least = most / unit / PARTS;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= least * 0.999);
    let mut step = step.unwrap_or(power);
    if name.is_empty() {
        step = step.max(1.0);
    }
    let digits = (-step.log10().floor()).max(0.0) as usize;
    each(most / unit, step).map(|n| (n * unit, format!("{n:.digits$}{name}"))).collect()
}

fn each(most: f64, step: f64) -> impl Iterator<Item = f64> {
    let last = (most / step * 1.000_001).floor() as u32;
    (0..=last).map(move |n| f64::from(n) * step)
}

fn waits(most: f64) -> Vec<Mark> {
    let steps = [1.0, 10.0, MINUTE, 10.0 * MINUTE, HOUR, 6.0 * HOUR, DAY, 10.0 * DAY, 100.0 * DAY];
    let below = steps.into_iter().filter(|mark| *mark <= most.max(10.0));
    below.map(|mark| (mark, time(mark))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(marks: Vec<Mark>) -> Vec<String> {
        marks.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn marks_are_round_and_say_what_fits_the_length() {
        assert_eq!(texts(days(0.02)), ["0 min", "5 min", "10 min", "15 min", "20 min", "25 min"]);
        assert_eq!(texts(days(1.0)), ["0 h", "6 h", "12 h", "18 h", "24 h"]);
        assert_eq!(texts(days(3.0)), ["0 h", "12 h", "24 h", "36 h", "48 h", "60 h", "72 h"]);
        assert_eq!(texts(days(30.0)), ["day 0", "day 5", "day 10", "day 15", "day 20", "day 25", "day 30"]);
        assert_eq!(texts(Scale::Share.marks(0.02)), ["0.0 %", "0.5 %", "1.0 %", "1.5 %", "2.0 %"]);
        assert_eq!(texts(Scale::Share.marks(0.95)), ["0 %", "20 %", "40 %", "60 %", "80 %"]);
        assert_eq!(texts(Scale::Count.marks(2.0)), ["0", "1", "2"]);
        assert_eq!(texts(Scale::Bytes.marks(3.2e12)), ["0 TB", "1 TB", "2 TB", "3 TB"]);
        assert_eq!(texts(Scale::Waits.marks(4000.0)), ["1 s", "10 s", "60 s", "10 min", "60 min"]);
    }

    #[test]
    fn no_two_marks_read_the_same_whatever_the_length() {
        let mut most = 1e-9;
        while most < 1e17 {
            for marks in [Scale::Waits, Scale::Bytes, Scale::Share, Scale::Count]
                .map(|scale| scale.marks(most))
                .into_iter()
                .chain([days(most.min(1e6))])
            {
                let mut texts = texts(marks.clone());
                texts.sort();
                texts.dedup();
                assert_eq!(texts.len(), marks.len(), "{most}: {marks:?}");
                assert!((1..=9).contains(&marks.len()), "{most}: {marks:?}");
            }
            most *= 1.37;
        }
    }
}
