//! Counts of which one part is kept in memory and the other in the catalogue, read together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A reader tries so often, and then takes what he gets: where files end all the time, one more or less does not show.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// Files that end go from the one part to the other; whoever reads both while none does sees each file once.
#[derive(Default)]
pub struct Steady {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A file goes from the one part to the other until this is dropped.
pub struct Ending<'s>(&'s Steady);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl Steady {
    /// A file is about to end.
    pub fn ends(&self) -> Ending<'_> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ending(self)
    }

    /// Reads both parts.
    pub fn read<T>(&self, mut read: impl FnMut() -> T) -> T {
        for _ in 0..TRIES {
            let (ended, begun) = (self.ended.load(Ordering::SeqCst), self.begun.load(Ordering::SeqCst));
            if ended == begun {
                let seen = read();
                if self.begun.load(Ordering::SeqCst) == begun {
                    return seen;
                }
            }
            crate::clock::sleep(PAUSE);
        }
        read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_from_one_count_to_the_other_is_seen_once() {
        let (steady, memory, catalogue) = (Steady::default(), AtomicU64::new(300), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..300 {
                    let ending = steady.ends();
                    memory.fetch_sub(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_micros(200));
                    catalogue.fetch_add(1, Ordering::SeqCst);
                    drop(ending);
                    std::thread::sleep(Duration::from_micros(600));
                }
            });
            while catalogue.load(Ordering::SeqCst) < 300 {
                let both = || catalogue.load(Ordering::SeqCst) + memory.load(Ordering::SeqCst);
                assert_eq!(steady.read(both), 300);
            }
        });
    }
}
