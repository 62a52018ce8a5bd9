//! What calls of different lengths reach, by several ways.

use crate::figure::{number, spread};
use serde::{Deserialize, Serialize};

/// Lengths and what was reached with each, by several ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// What was done.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Lengths (bytes), growing.
    pub lengths: Vec<u64>,
    /// Ways.
    pub ways: Vec<Way>,
}

/// One way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// Its name.
    pub name: String,
    /// A value for each length, round after round.
    pub values: Vec<f64>,
}

impl Curve {
    /// Median of a way at each length.
    pub fn medians(&self, way: &Way) -> Vec<f64> {
        let of =
            |n: usize| way.values.iter().skip(n).step_by(self.lengths.len()).copied().collect::<Vec<_>>();
        (0..self.lengths.len()).map(|n| spread(&of(n)).map_or(0.0, |[_, median, _]| median)).collect()
    }

    /// What it is called, with its unit.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.unit)
    }
}

/// A length in words.
pub fn length(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Rows of a table of medians, the first is the head.
pub fn rows(curve: &Curve) -> Vec<Vec<String>> {
    let head = std::iter::once(curve.title()).chain(curve.ways.iter().map(|way| way.name.clone()));
    let medians: Vec<Vec<f64>> = curve.ways.iter().map(|way| curve.medians(way)).collect();
    let row = |(n, &bytes): (usize, &u64)| {
        std::iter::once(length(bytes)).chain(medians.iter().map(|values| number(values[n]))).collect()
    };
    std::iter::once(head.collect()).chain(curve.lengths.iter().enumerate().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_put_together_by_length() {
        let way = Way { name: "plain".into(), values: vec![1.0, 10.0, 3.0, 30.0, 2.0, 20.0] };
        let curve =
            Curve { name: "reads".into(), unit: "MB/s".into(), lengths: vec![1, 4096], ways: vec![way] };
        assert_eq!(curve.medians(&curve.ways[0]), [2.0, 20.0]);
        assert_eq!(rows(&curve), [["reads (MB/s)", "plain"], ["1 B", "2"], ["4 KiB", "20"]]);
        assert_eq!(length(64 << 20), "64 MiB");
    }
}
