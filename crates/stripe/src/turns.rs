//! Bytes that have copies are written in the same order to each of them: what overlaps, one after the other.

use parking_lot::{Condvar, Mutex};
use std::ops::Range;

/// Ranges of a file that are being written.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    busy: Mutex<Vec<Range<u64>>>,
    left: Condvar,
}

/// That a range may be written.
pub(crate) struct Turn<'t> {
    turns: &'t Turns,
    range: Range<u64>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut busy = self.turns.busy.lock();
        if let Some(place) = busy.iter().position(|range| *range == self.range) {
            busy.swap_remove(place);
        }
        self.turns.left.notify_all();
    }
}

impl Turns {
    /// Waits until nobody writes anything of a range.
    pub(crate) fn take(&self, range: Range<u64>) -> Turn<'_> {
        let mut busy = self.busy.lock();
        while busy.iter().any(|other| other.start < range.end && range.start < other.end) {
            self.left.wait(&mut busy);
        }
        busy.push(range.clone());
        Turn { turns: self, range }
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
        assert!(turns.busy.lock().is_empty());
    }
}
