//! What the reading of a batch teaches: every second of it is put down to a way to a file, to bytes that stream, or to what goes by
//! from one file to the next.

use super::times::{Observed, Times};
use crate::clock::Moment;
use sched::{Calibration, Mechanics, Timed};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use types::{DriveNo, Extent};

/// What is expected to take less says nothing of the drive's motion or rate: it goes with the file (seconds).
const TELLING_S: f64 = 0.01;

/// What a long batch teaches is told while it goes on: estimates of the rest of it count on that.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// One batch.
pub struct Pace {
    model: Mechanics,
    begun: Moment,
    observed: RefCell<Vec<Observed>>,
    /// When they were told last, and the time (seconds) that was told of so far.
    told: Cell<(Moment, f64)>,
    /// Too short to tell by themselves; the model's times of them.
    short: RefCell<Vec<(Timed, f64)>>,
    files: Cell<u64>,
    /// Waits that are not the drive's.
    apart: Cell<Duration>,
}

/// The reading of one extent.
pub struct Run {
    begun: Moment,
    locate_s: f64,
    bytes: u64,
    first: Option<(Moment, u64)>,
}

impl Run {
    /// Bytes have come off the tape.
    pub fn arrived(&mut self, bytes: usize) {
        self.first.get_or_insert_with(|| (Moment::now(), bytes as u64));
    }
}

impl Pace {
    /// A batch begins.
    pub fn new(model: Mechanics) -> Self {
        let (observed, short) = Default::default();
        let (begun, files, apart) = (Moment::now(), Cell::default(), Cell::default());
        Self { model, begun, observed, told: Cell::new((begun, 0.0)), short, files, apart }
    }

    /// An extent is about to be read by a drive that stands there.
    pub fn run(&self, from: u64, extent: &Extent) -> Run {
        let locate_s = self.model.locate(from, extent.start_block);
        Run { begun: Moment::now(), locate_s, bytes: extent.byte_count, first: None }
    }

    /// It has been read.
    pub fn ran(&self, run: Run) {
        let Some((arrived, first)) = run.first else { return };
        self.took(Timed::Locate, run.locate_s, arrived - run.begun);
        // The first piece came with the way to it.
        let rest_s = self.model.transfer(run.bytes.saturating_sub(first));
        self.took(Timed::Read, rest_s, arrived.elapsed());
        self.short.borrow_mut().push((Timed::Read, self.model.transfer(first.min(run.bytes))));
    }

    fn took(&self, what: Timed, expected_s: f64, took: Duration) {
        if expected_s >= TELLING_S {
            self.observed.borrow_mut().push((what, expected_s, took.as_secs_f64()));
        } else {
            self.short.borrow_mut().push((what, expected_s));
        }
    }

    /// A file, or a part of one, has been read.
    pub fn file(&self, times: &Times, drive: DriveNo) {
        self.files.set(self.files.get() + 1);
        if self.told.get().0.elapsed() >= TOLD_EVERY {
            self.tell(times, drive);
        }
    }

    fn tell(&self, times: &Times, drive: DriveNo) {
        let observed = self.observed.take();
        let took_s: f64 = observed.iter().map(|(.., took_s)| took_s).sum();
        times.note(drive, &observed);
        self.told.set((Moment::now(), self.told.get().1 + took_s));
    }

    /// Something that takes its time for reasons that are not the drive's.
    pub fn apart<T>(&self, act: impl FnOnce() -> T) -> T {
        let begun = Moment::now();
        let done = act();
        self.apart.set(self.apart.get() + begun.elapsed());
        done
    }

    /// The batch is over. `calm`: it was read as it was given, so that what is left of its time went by with its files.
    pub fn note(self, times: &Times, drive: DriveNo, calm: bool) {
        let took_s = self.begun.elapsed().saturating_sub(self.apart.get()).as_secs_f64();
        self.tell(times, drive);
        let left_s = left(&times.known(), drive, took_s, self.told.get().1, &self.short.into_inner());
        let files = self.files.get() as f64;
        if calm && files > 0.0 {
            times.note(drive, &[(Timed::File, files, left_s)]);
        }
    }
}

/// What is left of a time when all that was told of is taken away: of what was too short to be told from it, what an estimate
/// would say.
fn left(known: &Calibration, drive: DriveNo, took_s: f64, told_s: f64, short: &[(Timed, f64)]) -> f64 {
    let of = |kind: Timed| short.iter().filter(move |(what, _)| *what == kind).map(|(_, s)| s).sum::<f64>();
    let guessed = [Timed::Locate, Timed::Read].map(|what| known.span(drive, what, of(what)).mean_s);
    (took_s - told_s - guessed.iter().sum::<f64>()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_of_a_batch_is_put_down_to_something_once() {
        let (mut known, drive) = (Calibration::default(), DriveNo(0));
        (0..9).for_each(|_| known.note(drive, Timed::Read, 1.0, 2.0));
        let short = [(Timed::Locate, 0.5), (Timed::Read, 0.25), (Timed::Read, 0.25)];
        // 23 s are told, half a second of ways and one of bytes are as estimated.
        assert!((left(&known, drive, 30.0, 23.0, &short) - 5.5).abs() < 1e-9);
        assert_eq!(left(&known, drive, 10.0, 23.0, &short), 0.0);
    }
}
