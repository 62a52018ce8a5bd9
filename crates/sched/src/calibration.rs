//! How long things really take: learnt from each drive, as factors of what the model says.

use crate::Mechanics;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::DriveNo;

/// Weight of a new observation, once there are many: the last twenty or so count.
const WEIGHT: f64 = 0.05;
/// What is expected to take less than this makes older observations fade less (seconds): a thousand tiny files say little
/// of how fast a large one is read.
const FULL_S: f64 = 1.0;
/// A drive of which fewer are known is judged by all drives.
const ENOUGH: u64 = 5;
/// Spread of the factor before anything is known.
const UNKNOWN: f64 = 0.2;
/// Spread of what goes by from one file to the next, before anything is known (seconds).
const UNKNOWN_FILE_S: f64 = 0.005;
/// However little has gone by with files that were written: it is not taken for nothing, so that more of it can be learnt (seconds).
const LEAST_FILE_S: f64 = 1e-5;

/// Mean and variance of a factor. Longer observations count more, and so do newer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Learnt {
    /// Mean of observed ÷ expected.
    pub mean: f64,
    /// Its variance.
    pub variance: f64,
    /// Observations.
    pub count: u64,
    /// What they were expected to take, as far as it has not faded (seconds).
    pub weight_s: f64,
}

impl Learnt {
    fn note(&mut self, expected_s: f64, factor: f64) {
        self.weight_s *= (1.0 - WEIGHT).powf((expected_s / FULL_S).min(1.0));
        self.weight_s += expected_s;
        let share = expected_s / self.weight_s;
        let off = factor - self.mean;
        self.mean += share * off;
        self.variance = (1.0 - share) * (self.variance + share * off * off);
        self.count = self.count.saturating_add(1);
    }
}

/// What was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timed {
    /// The robot's way from slot to drive or back.
    Move,
    /// From there to ready, with reading the labels.
    Load,
    /// From ready to where the robot can take the cartridge.
    Unload,
    /// Going to a file.
    Locate,
    /// Reading it.
    Read,
    /// Writing bytes.
    Write,
    /// What goes by with each file that is read, besides the ways to them and their bytes. What is expected is their number, so
    /// that its factor is in seconds; each batch is one observation.
    File,
    /// What goes by with each file that is written, besides its bytes: reading it, and its share of flushes. As [`Timed::File`].
    WrittenFile,
}

/// Factors of one drive, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    /// Moves of the robot to and from it.
    pub moves: Learnt,
    /// Loads.
    pub load: Learnt,
    /// Unloads.
    pub unload: Learnt,
    /// Locates.
    pub locate: Learnt,
    /// Reads.
    pub read: Learnt,
    /// Writes.
    pub write: Learnt,
    /// Files read (seconds for each).
    pub file: Learnt,
    /// Files written (seconds for each).
    pub written: Learnt,
}

impl Factors {
    fn of(&mut self, what: Timed) -> &mut Learnt {
        match what {
            Timed::Move => &mut self.moves,
            Timed::Load => &mut self.load,
            Timed::Unload => &mut self.unload,
            Timed::Locate => &mut self.locate,
            Timed::Read => &mut self.read,
            Timed::Write => &mut self.write,
            Timed::File => &mut self.file,
            Timed::WrittenFile => &mut self.written,
        }
    }
}

/// What all drives have taught. Without observations everything takes as long as the model says, give or take a fifth; and from one
/// file to the next no time goes by, or a few milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Of each drive, with the robot's way to it.
    pub drives: BTreeMap<DriveNo, Factors>,
    /// Of all together.
    pub all: Factors,
}

impl Calibration {
    /// Something took `took_s` where the model says `expected_s` (seconds). What is no time at all teaches nothing.
    pub fn note(&mut self, drive: DriveNo, what: Timed, expected_s: f64, took_s: f64) {
        let factor = took_s / expected_s;
        if factor.is_finite() && factor >= 0.0 && expected_s > 0.0 {
            self.drives.entry(drive).or_default().of(what).note(expected_s, factor);
            self.all.of(what).note(expected_s, factor);
        }
    }

    /// So many files, whose bytes take `bytes_s` by the model, were written in `took_s`. A batch does not show what of that went with
    /// its bytes and what with its files: it is put down to both as is known so far. Since batches of large files say more of
    /// bytes and batches of small ones more of files, the two are told apart with time, and whatever is written is
    /// expected to take what its like took.
    pub fn note_written(&mut self, drive: DriveNo, bytes_s: f64, files: u64, took_s: f64) {
        let count = files as f64;
        let of_bytes = self.span(drive, Timed::Write, bytes_s).mean_s;
        let of_files = match self.known(drive, Timed::WrittenFile) {
            Some(known) => count * known.mean.max(LEAST_FILE_S),
            None => count * UNKNOWN_FILE_S,
        };
        let scale = took_s / (of_bytes + of_files);
        self.note(drive, Timed::Write, bytes_s, of_bytes * scale);
        self.note(drive, Timed::WrittenFile, count, of_files * scale);
    }

    /// How long it takes to write so many files, whose bytes take `bytes_s` by the model.
    pub fn writing(&self, drive: DriveNo, bytes_s: f64, files: f64) -> Span {
        self.span(drive, Timed::Write, bytes_s) + self.span(drive, Timed::WrittenFile, files)
    }

    /// What is known of this drive, or of all, if it is enough.
    fn known(&self, drive: DriveNo, what: Timed) -> Option<Learnt> {
        let by_number = matches!(what, Timed::File | Timed::WrittenFile);
        let enough = |known: &Learnt| known.count >= ENOUGH || by_number && known.weight_s >= ENOUGH as f64;
        let learnt = |factors: &Factors| Some(*factors.clone().of(what)).filter(enough);
        self.drives.get(&drive).and_then(learnt).or_else(|| learnt(&self.all))
    }

    /// How long something takes that takes `expected_s` by the model.
    pub fn span(&self, drive: DriveNo, what: Timed, expected_s: f64) -> Span {
        match self.known(drive, what) {
            Some(known) => {
                Span { mean_s: expected_s * known.mean, variance: expected_s * expected_s * known.variance }
            }
            None if matches!(what, Timed::File | Timed::WrittenFile) => {
                Span { mean_s: 0.0, variance: (expected_s * UNKNOWN_FILE_S).powi(2) }
            }
            None => Span { mean_s: expected_s, variance: (expected_s * UNKNOWN).powi(2) },
        }
    }

    /// Bringing a volume from its slot to ready.
    pub fn mount(&self, drive: DriveNo, model: &Mechanics) -> Span {
        self.span(drive, Timed::Move, model.move_s) + self.span(drive, Timed::Load, model.load_s)
    }

    /// Bringing it back.
    pub fn unmount(&self, drive: DriveNo, model: &Mechanics) -> Span {
        self.span(drive, Timed::Unload, model.unload_s) + self.span(drive, Timed::Move, model.move_s)
    }
}

/// A time that is not known exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Mean (seconds).
    pub mean_s: f64,
    /// Variance (square seconds).
    pub variance: f64,
}

impl Span {
    /// In a normal distribution nine of ten lie below the mean and so many standard deviations.
    const P90: f64 = 1.2816;

    /// As long as this, exactly.
    pub const fn exactly(seconds: f64) -> Self {
        Self { mean_s: seconds, variance: 0.0 }
    }

    /// As likely longer as shorter (seconds).
    pub fn p50_s(self) -> f64 {
        self.mean_s
    }

    /// Longer in one case of ten (seconds).
    pub fn p90_s(self) -> f64 {
        self.mean_s + Self::P90 * self.variance.max(0.0).sqrt()
    }
}

impl std::ops::Add for Span {
    type Output = Self;

    /// One after the other; what makes one longer than expected does not make the other so.
    fn add(self, other: Self) -> Self {
        Self { mean_s: self.mean_s + other.mean_s, variance: self.variance + other.variance }
    }
}

impl std::ops::AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_judged_by_itself_as_soon_as_enough_is_known() {
        let (mut c, slow, other) = (Calibration::default(), DriveNo(1), DriveNo(2));
        let mean = |c: &Calibration, drive| c.span(drive, Timed::Load, 10.0).mean_s;
        assert_eq!(mean(&c, slow), 10.0);
        (0..4).for_each(|_| c.note(slow, Timed::Load, 10.0, 20.0));
        assert_eq!(mean(&c, slow), 10.0, "too few");
        c.note(slow, Timed::Load, 10.0, 20.0);
        assert_eq!((mean(&c, slow), mean(&c, other)), (20.0, 20.0));
        (0..200).for_each(|_| c.note(other, Timed::Load, 10.0, 5.0));
        assert!((mean(&c, slow) - 20.0).abs() < 1e-9 && (mean(&c, other) - 5.0).abs() < 1e-9);
        c.note(slow, Timed::Load, 0.0, 3.0);
        assert!((mean(&c, slow) - 20.0).abs() < 1e-9, "nothing was expected");
    }

    #[test]
    fn long_observations_count_more_than_many_short_ones() {
        let (mut c, drive) = (Calibration::default(), DriveNo(1));
        (0..20).for_each(|_| c.note(drive, Timed::Read, 10.0, 15.0));
        // A thousand files of a few bytes each: what they take is not the drive's rate.
        (0..1000).for_each(|_| c.note(drive, Timed::Read, 1e-5, 1e-3));
        let factor = c.span(drive, Timed::Read, 1.0).mean_s;
        assert!((1.5..1.6).contains(&factor), "{factor}");
    }

    #[test]
    fn old_observations_fade_and_their_spread_is_known() {
        let (mut c, drive) = (Calibration::default(), DriveNo(1));
        (0..100).for_each(|_| c.note(drive, Timed::Locate, 1.0, 9.0));
        (0..400).for_each(|n| c.note(drive, Timed::Locate, 1.0, if n % 2 == 0 { 1.5 } else { 2.5 }));
        let span = c.span(drive, Timed::Locate, 2.0);
        assert!((span.mean_s - 4.0).abs() < 0.1 && (span.variance.sqrt() - 1.0).abs() < 0.1, "{span:?}");
        assert!(span.p90_s() > span.p50_s() + 1.2);
    }
}
