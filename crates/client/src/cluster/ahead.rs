//! Who looks at one name of a directory after the other, in the order in which they were made, learns of several by one call: the listing behind the
//! name that he looked at last. A listing goes in order of cookies, and the cookie of a name that was made with its file is the number of its inode.
//!
//! That is a guess, and no more: what a listing told is remembered by leases as always, and what was not guessed is looked up by itself. Listings become
//! longer only while each begins where the one before has been used up, so little is asked for in vain.

use parking_lot::Mutex;
use std::collections::HashMap;
use types::Ino;

/// Names that are looked up one by one before several are asked for.
const PATIENCE: u32 = 3;
/// The same where guesses were wrong, again and again.
const MOST_PATIENCE: u32 = 256;
/// Names that are asked for at first, and twice as many each time after.
const FIRST: u32 = 16;
/// As many as are surely looked at while they are remembered.
const MOST: u32 = 1000;
/// Most directories that are kept in mind.
const DIRS: usize = 1000;

/// Directories in which names are looked at.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<HashMap<Ino, Run>>);

/// Names of one of them.
#[derive(Debug)]
struct Run {
    /// Cookie of the last one.
    after: u64,
    /// Looked up by themselves, each made after the one before.
    single: u32,
    patience: u32,
    /// So many are asked for next; 0: one.
    limit: u32,
}

impl Ahead {
    /// What to ask for instead of a name of this directory: so many entries behind that cookie.
    pub(super) fn guess(&self, dir: Ino) -> Option<(u64, u32)> {
        let runs = self.0.lock();
        runs.get(&dir).filter(|run| run.limit > 0).map(|run| (run.after, run.limit))
    }

    /// A name was looked up by itself, and leads there.
    pub(super) fn found(&self, dir: Ino, ino: Ino) {
        let mut runs = self.0.lock();
        if runs.len() >= DIRS && !runs.contains_key(&dir) {
            runs.clear();
        }
        let run = runs.entry(dir).or_insert(Run { after: 0, single: 0, patience: PATIENCE, limit: 0 });
        run.single = if ino.0 > run.after { run.single.saturating_add(1) } else { 0 };
        run.after = ino.0;
        run.limit = if run.single >= run.patience { FIRST } else { 0 };
    }

    /// What was asked for came to this: the cookie of the last entry, if the name was among them. `any`: there were entries, or it was refused.
    pub(super) fn came(&self, dir: Ino, last: Option<u64>, any: bool) {
        let mut runs = self.0.lock();
        let Some(run) = runs.get_mut(&dir) else { return };
        if let Some(last) = last {
            (run.after, run.limit, run.patience) = (last, (run.limit * 2).min(MOST), PATIENCE);
            return;
        }
        (run.single, run.limit) = (0, 0);
        if any {
            run.patience = (run.patience * 2).min(MOST_PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(1);

    fn after_some(ahead: &Ahead, inodes: impl IntoIterator<Item = u64>) -> Option<(u64, u32)> {
        inodes.into_iter().for_each(|ino| ahead.found(DIR, Ino(ino)));
        ahead.guess(DIR)
    }

    #[test]
    fn who_looks_at_one_name_after_the_other_asks_for_more_and_more_at_once() {
        let ahead = Ahead::default();
        assert_eq!(after_some(&ahead, [10, 11]), None);
        assert_eq!(after_some(&ahead, [12]), Some((12, FIRST)));
        ahead.came(DIR, Some(28), true);
        assert_eq!(ahead.guess(DIR), Some((28, 2 * FIRST)));
        (0..20).for_each(|n| ahead.came(DIR, Some(100 + n), true));
        assert_eq!(ahead.guess(DIR), Some((119, MOST)));
        ahead.came(DIR, None, false);
        assert_eq!(ahead.guess(DIR), None, "it was the last");
        assert_eq!(after_some(&ahead, [10, 11, 12, 13]), Some((13, FIRST)));
        assert_eq!(ahead.guess(Ino(2)), None);
    }

    #[test]
    fn who_looks_at_names_in_another_order_asks_for_one_at_a_time() {
        let ahead = Ahead::default();
        assert_eq!(after_some(&ahead, [19, 18, 17, 16, 15, 17, 14, 16, 13]), None);
    }

    #[test]
    fn wrong_guesses_become_rare() {
        let ahead = Ahead::default();
        let mut wrong = 0;
        for ino in 1..=10_000 {
            // He leaves out what comes behind.
            if after_some(&ahead, [100 * ino]).is_some() {
                ahead.came(DIR, None, true);
                wrong += 1;
            }
        }
        assert!((2..60).contains(&wrong), "{wrong}");
    }

    #[test]
    fn no_more_directories_are_kept_in_mind_than_may_be() {
        let ahead = Ahead::default();
        (0..3 * DIRS as u64).for_each(|dir| ahead.found(Ino(dir), Ino(1)));
        assert!(ahead.0.lock().len() <= DIRS);
    }
}
