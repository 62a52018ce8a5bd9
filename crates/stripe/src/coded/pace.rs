//! Writers that fill rows together, and drift apart: whoever runs ahead begins row after row, and what is begun stays in memory until the
//! others have been there. So he waits a moment before he begins another one, as long as that is of use.

use std::time::Duration;

/// Who runs ahead waits for the others as long as something of the file moves, and then so long,
pub(super) const MOMENT: Duration = Duration::from_millis(50);
/// or so many times as long while something of it is on its way to targets: it does not help them to get more.
pub(super) const LONGER: u32 = 10;
/// Bytes of so many rows are in memory when that begins,
pub(super) const WINDOW: u64 = 16;
/// or, where half of what the file may have there is less, at least of so many.
pub(super) const LEAST: u64 = 4;
/// So many rows are begun without waiting when it was of no use,
const FIRST: u64 = 64;
/// so many times as many when it was again,
const FACTOR: u64 = 8;
/// and at most so many.
const LONGEST: u64 = 1 << 20;

/// Whether it is of use.
#[derive(Debug)]
pub(super) struct Pace {
    /// Rows that were begun.
    begun: u64,
    /// How many there were when somebody waited for nothing.
    given_up: u64,
    /// So many more are begun without waiting.
    free: u64,
    /// How many it will be the next time.
    pause: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { begun: 0, given_up: 0, free: 0, pause: FIRST }
    }
}

impl Pace {
    /// Whether who runs ahead waits.
    pub(super) fn holds(&self) -> bool {
        self.free == 0
    }

    /// A row is begun; its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.free = self.free.saturating_sub(1);
        self.begun
    }

    /// Nothing has moved for a moment: those that he waited for write something else, or nothing, or wait for him.
    pub(super) fn give_up(&mut self) {
        self.given_up = self.begun;
        self.free = self.pause;
        self.pause = (self.pause * FACTOR).min(LONGEST);
    }

    /// A row with this number is complete. If nobody waited for it any more they were late only.
    pub(super) fn complete(&mut self, number: u64) {
        if number <= self.given_up {
            *self = Self { begun: self.begun, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often somebody waits who begins so many rows that nobody else fills.
    fn waits(pace: &mut Pace, rows: u64) -> usize {
        let held = (0..rows).filter(|_| {
            let held = pace.holds();
            if held {
                pace.give_up();
            }
            pace.begin();
            held
        });
        held.count()
    }

    #[test]
    fn who_waits_for_nobody_does_so_less_and_less() {
        let mut pace = Pace::default();
        assert_eq!(waits(&mut pace, FIRST), 1);
        assert_eq!(waits(&mut pace, FIRST * FACTOR), 1);
        assert_eq!(waits(&mut pace, 100_000), 3);
        // Rows that were begun since say nothing of those that he waited for.
        let number = pace.begin();
        pace.complete(number);
        assert!(!pace.holds());
        pace.complete(pace.given_up);
        assert!(pace.holds(), "they were late only");
        assert_eq!(waits(&mut pace, FIRST), 1);
        assert_eq!(waits(&mut pace, FIRST), 1);
    }
}
