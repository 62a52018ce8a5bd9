//! Inodes that the kernel has. Of those it can be told that attributes have changed, and an answer that is on its way then sets no old ones; of an inode that
//! is new to it the notice finds nothing.

use parking_lot::Mutex;
use std::collections::HashSet;
use types::Ino;

/// Most that are remembered. Behind that all are taken for new ones, until the kernel asks for them again.
const MOST: usize = 100_000;

/// Their numbers.
#[derive(Default)]
pub(crate) struct Known(Mutex<HashSet<Ino>>);

impl Known {
    /// The kernel has got this one.
    pub(crate) fn enter(&self, ino: Ino) {
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(ino);
    }

    /// The kernel says that it has forgotten it, or one of its looks at it: what is taken for new costs one more question.
    pub(crate) fn leave(&self, ino: Ino) {
        self.0.lock().remove(&ino);
    }

    /// Whether the kernel had it before its last question.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.0.lock().contains(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_has_is_known_until_it_is_forgotten_and_does_not_grow_without_end() {
        let known = Known::default();
        known.enter(Ino(7));
        assert!(known.has(Ino(7)) && !known.has(Ino(8)));
        known.leave(Ino(7));
        assert!(!known.has(Ino(7)));
        (0..2 * MOST as u64).for_each(|n| known.enter(Ino(100 + n)));
        assert!(known.0.lock().len() <= MOST);
    }
}
