//! LTO tape: data is written in wraps, to the end of the tape and back, one wrap beside the other.

use types::Generation;

/// What is published of a generation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Native capacity (bytes).
    pub capacity: f64,
    /// Wraps: tracks of the format, divided by those that the head writes at once.
    pub wraps: u32,
    /// Native rate of a full-height drive (bytes per second).
    pub rate: f64,
    /// Load to ready, of a medium that was initialised before (seconds).
    pub load_s: f64,
    /// Unload (seconds).
    pub unload_s: f64,
    /// Search over the whole length: twice the average time of a rewind, or of a locate from the load point.
    pub length_s: f64,
}

impl Facts {
    /// Capacities, tracks and rates of the format; times of IBM's TS2290 for LTO-5 to LTO-9 ("nominal load-to-ready
    /// time", "nominal unload time", "average rewind time", for LTO-5 and 6 "average space record time from load
    /// point"). For want of others LTO-10 is given the times of LTO-9, and as many wraps as make each as large as one of
    /// LTO-9. Of LTO-1 to LTO-4 there are none here.
    pub fn of(generation: Generation) -> Option<Self> {
        use Generation as G;
        let (tb, mb, tracks, load_s, unload_s, average_s) = match generation {
            G::Lto1 | G::Lto2 | G::Lto3 | G::Lto4 => return None,
            G::Lto5 => (1.5, 140.0, 1280 / 16, 12.0, 17.0, 60.0),
            G::Lto6 => (2.5, 160.0, 2176 / 16, 12.0, 17.0, 62.0),
            G::Lto7 => (6.0, 300.0, 3584 / 32, 15.0, 20.0, 60.0),
            G::Lto7M8 => (9.0, 300.0, 5376 / 32, 15.0, 20.0, 60.0),
            G::Lto8 => (12.0, 360.0, 6656 / 32, 15.0, 24.0, 59.0),
            G::Lto9 => (18.0, 400.0, 8960 / 32, 16.0, 56.0, 62.0),
            G::Lto10 => (30.0, 400.0, 8960 / 32 * 30 / 18, 16.0, 56.0, 62.0),
        };
        Some(Self {
            capacity: tb * 1e12,
            wraps: tracks,
            rate: mb * 1e6,
            load_s,
            unload_s,
            length_s: 2.0 * average_s,
        })
    }
}

/// Where the blocks of a volume lie, and how long the tape moves between two of them. Wraps are taken to hold equally
/// many blocks; with compression they do not, and the order is then a little worse than it could be, never wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Wraps {
    /// Blocks of one wrap.
    pub wrap_blocks: f64,
    /// Number of wraps.
    pub count: u32,
    /// Search over the whole length (seconds).
    pub length_s: f64,
    /// Added when the wrap changes (seconds).
    pub change_s: f64,
    /// Added when the tape turns round (seconds).
    pub turn_s: f64,
}

/// A block on the tape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub block: u64,
    pub wrap: u32,
    /// Distance from the beginning of the tape; its length is 1.
    pub along: f64,
}

impl Wraps {
    /// Start and settle of a locate: CERN's fit for LTO-7 type M (seconds), as are the two that follow.
    pub const START_S: f64 = 4.29;
    const CHANGE_S: f64 = 6.69;
    const TURN_S: f64 = 5.22;

    /// Wraps of equal length.
    pub fn even(facts: &Facts, block_bytes: u64) -> Self {
        let blocks = facts.capacity / block_bytes.max(1) as f64;
        Self {
            wrap_blocks: (blocks / f64::from(facts.wraps)).max(1.0),
            count: facts.wraps,
            length_s: facts.length_s,
            change_s: Self::CHANGE_S,
            turn_s: Self::TURN_S,
        }
    }

    pub(crate) fn point(&self, block: u64) -> Point {
        let turns = block as f64 / self.wrap_blocks;
        let last = self.count.saturating_sub(1);
        // What is written beyond the nominal capacity lies on the last wrap.
        let wrap = (turns as u32).min(last);
        let share = (turns - f64::from(wrap)).clamp(0.0, 1.0);
        Point { block, wrap, along: if wrap.is_multiple_of(2) { share } else { 1.0 - share } }
    }

    /// About how long the locates of `count` scattered files take in a good order: once forth and once back along the
    /// tape, from wrap to wrap, turning round at every third file.
    pub(crate) fn sweep_s(&self, count: f64, start_s: f64) -> f64 {
        count * (start_s + self.change_s + self.turn_s / 3.0) + 2.0 * self.length_s * count / (count + 3.0)
    }

    /// What a locate takes besides its start.
    pub(crate) fn motion_s(&self, from: Point, to: Point) -> f64 {
        let mut time = self.length_s * (from.along - to.along).abs();
        if from.wrap != to.wrap {
            time += self.change_s;
        }
        let opposite = from.wrap % 2 != to.wrap % 2;
        if opposite || to.block < from.block {
            time += self.turn_s;
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mechanics;

    #[test]
    fn wraps_are_what_the_formats_say() {
        let wraps: Vec<u32> = Generation::ALL.iter().filter_map(|g| Some(Facts::of(*g)?.wraps)).collect();
        assert_eq!(wraps, [80, 136, 112, 168, 208, 280, 466]);
    }

    #[test]
    fn neighbouring_wraps_run_against_each_other() {
        let m = Mechanics::of(Generation::Lto9, 1 << 20);
        let wrap = (18e12 / 280.0 / f64::from(1 << 20)) as u64;
        let near = m.locate(wrap - 100, wrap + 200);
        assert!(near < 17.0, "one wrap on at the end of the tape: {near}");
        let far = m.locate(wrap / 10, wrap * 2 - wrap / 10);
        assert!(far < 17.0, "above each other: {far}");
        let along = m.locate(0, wrap - 1);
        assert!((along - 128.0).abs() < 1.0, "one length of the tape: {along}");
        assert_eq!(m.locate(7, 7), 0.0);
        // One block is read through; one block back means to turn round and come again.
        assert!(m.locate(7, 9) < 0.1 && m.locate(9, 7) > 9.0);
    }

    #[test]
    fn an_average_locate_takes_about_as_long_as_the_data_sheet_says() {
        let m = Mechanics::of(Generation::Lto9, 1 << 20);
        let end = (18e12 / f64::from(1 << 20)) as u64;
        let sum: f64 = (1..1000).map(|n| m.locate(0, end / 1000 * n)).sum();
        let average = sum / 999.0;
        assert!((65.0..85.0).contains(&average), "{average} s from the load point, 65 s by the data sheet");
    }
}
