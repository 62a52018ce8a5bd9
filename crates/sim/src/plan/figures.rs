//! What a simulated system did.

use super::arrivals::DAY;
use serde::Serialize;

/// A moment of a system.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Days since the beginning.
    pub day: f64,
    /// Bytes that wait to be written.
    pub backlog: u64,
    /// Cartridges with data.
    pub cartridges: u64,
    /// How full the disk tier is (1: full).
    pub disk: f64,
    /// Reads that wait.
    pub waiting: u64,
}

/// Waits, sorted.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    all: Vec<(f64, f64)>,
}

impl Waits {
    fn note(&mut self, since: f64, seconds: f64) {
        self.all.push((since, seconds));
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// So many of a hundred waited no longer than this (seconds).
    pub fn percentile(&self, percent: f64) -> f64 {
        percentile(self.all.iter().map(|(_, s)| *s).collect(), percent)
    }

    /// The same of each of `parts` equal parts of the time.
    pub fn over(&self, days: f64, parts: usize, percent: f64) -> Vec<(f64, f64)> {
        let mut of: Vec<Vec<f64>> = vec![Vec::new(); parts];
        for (since, seconds) in &self.all {
            let at = (since / DAY / days * parts as f64) as usize;
            of[at.min(parts - 1)].push(*seconds);
        }
        let middle = |n: usize| (n as f64 + 0.5) * days / parts as f64;
        (0..parts)
            .zip(of)
            .filter(|(_, w)| !w.is_empty())
            .map(|(n, w)| (middle(n), percentile(w, percent)))
            .collect()
    }
}

fn percentile(mut of: Vec<f64>, percent: f64) -> f64 {
    of.sort_by(f64::total_cmp);
    let at = (percent / 100.0 * of.len() as f64).ceil() as usize;
    of.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Sums, waits and samples.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Reads that found all on disk.
    pub hits: u64,
    /// Recalls begun.
    pub asked: u64,
    /// Bytes written by users, to tape, and read from tape.
    pub written: u64,
    /// See `written`.
    pub migrated: u64,
    /// See `written`.
    pub recalled: u64,
    /// Mounts.
    pub mounts: u64,
    /// Cartridges labelled.
    pub labelled: u64,
    /// Cartridges bought.
    pub bought: u64,
    /// Failures of drives and robot.
    pub broken: u64,
    /// Seconds of drives with anything to do, and of those reading or writing.
    pub drive_s: f64,
    /// See `drive_s`.
    pub moving_s: f64,
    /// Seconds of the robot under way.
    pub robot_s: f64,
    /// Waits for a recall, from asking until all is there.
    pub recalls: Waits,
    /// Waits for migration, from due until every copy is on tape.
    pub migrations: Waits,
    /// Moments.
    pub samples: Vec<Sample>,
    /// Reads that still waited at the end, and the longest of these waits (seconds).
    pub unfinished: (u64, f64),
}

impl Figures {
    pub(super) fn wait(&mut self, since: f64, seconds: f64) {
        self.recalls.note(since, seconds);
    }

    pub(super) fn safe(&mut self, now: f64, seconds: f64) {
        self.migrations.note(now, seconds);
    }

    pub(super) fn sample(&mut self, now: f64, backlog: u64, cartridges: u64, disk: f64, waiting: u64) {
        self.samples.push(Sample { day: now / DAY, backlog, cartridges, disk, waiting });
    }

    pub(super) fn end(&mut self, waits: impl Iterator<Item = f64>) {
        self.unfinished = waits.fold((0, 0.0), |(n, most), w| (n + 1, f64::max(most, w)));
    }
}
