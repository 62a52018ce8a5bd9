//! Which records of volumes changed: who keeps something of all of them, of which there may be tens of thousands, reads only
//! those anew.

use super::Catalog;
use crate::Result;
use crate::store::Tx;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use types::Barcode;

/// Changes that are remembered one by one.
const REMEMBERED: usize = 10_000;

/// Changes since the start.
#[derive(Default)]
pub(super) struct Changes(Mutex<Log>);

#[derive(Default)]
struct Log {
    count: u64,
    /// The last of them; None: any volume may have changed.
    last: VecDeque<Option<Barcode>>,
}

impl Log {
    fn note(&mut self, volume: Option<Barcode>) {
        self.count += 1;
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(volume);
    }

    fn since(&self, before: u64) -> Option<BTreeSet<Barcode>> {
        let later = usize::try_from(self.count.checked_sub(before)?).ok()?;
        let first = self.last.len().checked_sub(later)?;
        self.last.range(first..).cloned().collect()
    }
}

impl Catalog {
    /// Grows with every change of a volume's record, after it can be read. The live sums are no part of that.
    pub fn volume_changes(&self) -> u64 {
        self.changes.0.lock().count
    }

    /// [`Catalog::volume_changes`], and the volumes whose records changed since that was `before`; None: it may be any.
    pub fn volumes_changed_since(&self, before: u64) -> (u64, Option<BTreeSet<Barcode>>) {
        let log = self.changes.0.lock();
        (log.count, log.since(before))
    }

    /// A durable change of these volumes' records; None: of any.
    pub(super) fn durable_volumes<'b, T>(
        &self,
        volumes: impl Into<Option<&'b [Barcode]>>,
        f: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let done = self.durable(f);
        let mut log = self.changes.0.lock();
        match volumes.into() {
            Some(volumes) => volumes.iter().for_each(|volume| log.note(Some(volume.clone()))),
            None => log.note(None),
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_known_one_by_one_as_long_as_they_are_remembered() {
        let mut log = Log::default();
        let volume = |n: usize| Barcode::from(format!("{n:06}L9").as_str());
        let set = |all: &[usize]| Some(all.iter().map(|n| volume(*n)).collect::<BTreeSet<_>>());
        [1, 2, 1].into_iter().for_each(|n| log.note(Some(volume(n))));
        assert_eq!((log.since(0), log.since(2), log.since(3)), (set(&[1, 2]), set(&[1]), set(&[])));
        assert_eq!(log.since(4), None, "that has not been yet");
        log.note(None);
        log.note(Some(volume(3)));
        assert_eq!((log.since(3), log.since(4)), (None, set(&[3])));
        (0..REMEMBERED).for_each(|n| log.note(Some(volume(n))));
        assert_eq!((log.since(4), log.since(5).map(|all| all.len())), (None, Some(REMEMBERED)));
        assert_eq!(log.last.len(), REMEMBERED);
    }
}
