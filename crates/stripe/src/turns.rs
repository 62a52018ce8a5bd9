//! Writes that overlap come one after the other, in the order in which they came: of bytes that have copies each copy takes the same one last, and
//! of other bytes nobody finds parts of two writes of one piece.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of a file that are being written, or are to be.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    all: Mutex<All>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct All {
    next: u64,
    /// In the order in which they came.
    ranges: BTreeMap<u64, Range<u64>>,
    waiting: usize,
}

/// That a range may be written.
pub(crate) struct Turn<'t> {
    turns: &'t Turns,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.turns.all.lock();
        all.ranges.remove(&self.number);
        if all.waiting > 0 {
            self.turns.left.notify_all();
        }
    }
}

impl Turns {
    /// Waits until nobody writes anything of a range who came before.
    pub(crate) fn take(&self, range: Range<u64>) -> Turn<'_> {
        let mut all = self.all.lock();
        let number = all.next;
        all.next += 1;
        all.ranges.insert(number, range.clone());
        let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        while all.ranges.range(..number).any(|(_, other)| meets(other)) {
            all.waiting += 1;
            self.left.wait(&mut all);
            all.waiting -= 1;
        }
        Turn { turns: self, number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn what_overlaps_is_written_one_after_the_other_and_the_rest_beside_it() {
        let turns = Turns::default();
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let first = turns.take(10..20);
            drop((turns.take(0..10), turns.take(20..30)));
            let turns = &turns;
            let second = scope.spawn(move || {
                let _turn = turns.take(19..25);
                tell.send(()).unwrap();
            });
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it overlaps");
            drop(first);
            second.join().unwrap();
        });
        assert!(turns.all.lock().ranges.is_empty());
    }

    #[test]
    fn who_writes_much_is_not_passed_by_all_who_write_little() {
        let turns = Turns::default();
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let (turns, little) = (&turns, turns.take(0..1));
            let much = tell.clone();
            scope.spawn(move || {
                let _turn = turns.take(0..10);
                much.send("much").unwrap();
            });
            while turns.all.lock().waiting < 1 {
                std::thread::yield_now();
            }
            scope.spawn(move || {
                let _turn = turns.take(5..6);
                tell.send("little").unwrap();
            });
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "he came later");
            drop(little);
            assert_eq!([told.recv().unwrap(), told.recv().unwrap()], ["much", "little"]);
        });
    }
}
