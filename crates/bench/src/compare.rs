//! The same work on several sides, by turns: Thermocline, what is below it, and the floor.

use crate::Target;
use crate::figure::{Spread, spread};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Least share of the floor's speed where the target against the native file system cannot be reached.
pub const FLOOR_SHARE: f64 = 0.8;

/// Where the bytes end up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// The directory in which everything is measured.
    Directory,
    /// A new ext4 in an image file in that directory.
    Ext4,
    /// A new XFS in an image file in that directory.
    Xfs,
}

/// What is worked with there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The file system itself.
    Native,
    /// An empty file system behind the same mount gateway: what FUSE costs when nothing is behind it.
    Floor,
    /// The mount of a node whose state and disk objects are there.
    Thermocline,
}

/// One of the sides that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Side {
    /// Where.
    pub base: Base,
    /// What.
    pub kind: Kind,
}

impl Side {
    /// The floor; nothing is below it.
    pub const FLOOR: Self = Self { base: Base::Directory, kind: Kind::Floor };
}

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Rates.
    More,
    /// Times.
    Less,
}

/// Values of one side, one per round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Whose.
    pub side: Side,
    /// One value per round.
    pub values: Vec<f64>,
}

/// Some work, measured on every side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The work.
    pub name: String,
    /// Unit of the values.
    pub unit: Cow<'static, str>,
    /// Which values are better.
    pub better: Better,
    /// What Thermocline's value divided by that of the file system below it is to reach.
    pub target: Target,
    /// A value that will do whatever the file system below reaches.
    pub or_value: Option<f64>,
    /// Values.
    pub series: Vec<Series>,
    /// How it was measured where that matters.
    pub note: String,
}

/// What became of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached, but this share of the floor's speed is, and it is enough.
    AtFloor(f64),
    /// Not reached; share of the floor's speed, if it was measured.
    Missed(Option<f64>),
    /// No target, or no values.
    None,
}

impl Comparison {
    /// A rate to be compared, without values yet.
    pub fn rate(name: impl Into<String>, unit: &'static str, target: Target) -> Self {
        let (unit, better) = (Cow::Borrowed(unit), Better::More);
        Self {
            name: name.into(),
            unit,
            better,
            target,
            or_value: None,
            series: Vec::new(),
            note: String::new(),
        }
    }

    /// A time in seconds to be compared.
    pub fn seconds(name: impl Into<String>, target: Target) -> Self {
        Self { better: Better::Less, ..Self::rate(name, "s", target) }
    }

    /// The same with a remark.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Adds the value of a round.
    pub fn push(&mut self, side: Side, value: f64) {
        match self.series.iter_mut().find(|s| s.side == side) {
            Some(series) => series.values.push(value),
            None => self.series.push(Series { side, values: vec![value] }),
        }
    }

    /// Values of a side, in the order of the rounds.
    pub fn values(&self, side: Side) -> &[f64] {
        self.series.iter().find(|s| s.side == side).map_or(&[], |s| &s.values)
    }

    /// Minimum, median and maximum of a side.
    pub fn spread(&self, side: Side) -> Option<Spread> {
        spread(self.values(side))
    }

    /// Values of Thermocline divided by those of the file system below it in the same round.
    pub fn ratios(&self, base: Base) -> Vec<f64> {
        let [ours, native] = [Kind::Thermocline, Kind::Native].map(|kind| self.values(Side { base, kind }));
        ours.iter().zip(native).map(|(ours, native)| ours / native).collect()
    }

    /// Thermocline's speed as a share of the floor's (medians).
    pub fn of_floor(&self, base: Base) -> Option<f64> {
        let [_, ours, _] = self.spread(Side { base, kind: Kind::Thermocline })?;
        let [_, floor, _] = self.spread(Side::FLOOR)?;
        Some(if self.better == Better::More { ours / floor } else { floor / ours })
    }

    /// Whether the target is reached there.
    pub fn verdict(&self, base: Base) -> Verdict {
        let ours = self.spread(Side { base, kind: Kind::Thermocline });
        let (Some([_, ours, _]), Some([_, ratio, _])) = (ours, spread(&self.ratios(base))) else {
            return Verdict::None;
        };
        let enough = self.or_value.is_some_and(|wanted| match self.better {
            Better::More => ours >= wanted,
            Better::Less => ours <= wanted,
        });
        match (self.target.met(ratio), self.of_floor(base)) {
            (None, _) => Verdict::None,
            (Some(met), _) if met || enough => Verdict::Met,
            (_, Some(share)) if share >= FLOOR_SHARE => Verdict::AtFloor(share),
            (_, share) => Verdict::Missed(share),
        }
    }

    /// Where it was measured.
    pub fn bases(&self) -> Vec<Base> {
        let mut bases: Vec<Base> = self.series.iter().map(|s| s.side.base).collect();
        bases.sort_unstable();
        bases.dedup();
        bases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(native: &[f64], ours: &[f64], floor: &[f64]) -> Comparison {
        let mut c = Comparison::rate("x", "/s", Target::AtLeast(0.5));
        for (kind, values) in [(Kind::Native, native), (Kind::Thermocline, ours), (Kind::Floor, floor)] {
            values.iter().for_each(|&v| c.push(Side { base: Base::Directory, kind }, v));
        }
        c
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let c = comparison(&[100.0, 10.0, 50.0], &[50.0, 10.0, 10.0], &[]);
        assert_eq!(c.ratios(Base::Directory), [0.5, 1.0, 0.2]);
        assert_eq!(c.verdict(Base::Directory), Verdict::Met);
        assert_eq!(c.verdict(Base::Xfs), Verdict::None);
    }

    #[test]
    fn the_floor_counts_only_where_the_target_is_missed() {
        let far = [100.0];
        assert_eq!(comparison(&far, &[40.0], &[50.0]).verdict(Base::Directory), Verdict::AtFloor(0.8));
        assert_eq!(comparison(&far, &[30.0], &[60.0]).verdict(Base::Directory), Verdict::Missed(Some(0.5)));
        assert_eq!(comparison(&far, &[30.0], &[]).verdict(Base::Directory), Verdict::Missed(None));
        let mut enough = comparison(&far, &[30.0], &[]);
        enough.or_value = Some(25.0);
        assert_eq!(enough.verdict(Base::Directory), Verdict::Met);
    }

    #[test]
    fn less_time_is_better() {
        let mut c = comparison(&[1.0], &[2.0], &[1.8]);
        (c.better, c.target) = (Better::Less, Target::AtMost(1.5));
        assert_eq!(c.verdict(Base::Directory), Verdict::AtFloor(0.9));
    }
}
