//! Committed changes that are not yet in LMDB, with older versions as long as a reader may need them. A reader locks
//! the map only for a step (one key, or a few entries of a scan), so no reader keeps writers waiting.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;

use crate::Result;
use crate::buffer::Changes;
use crate::key::Key;
use crate::merge::{Direction, Entry, Source};

/// Memory of one key besides its value: its place in a tree three quarters full, the allocation of the value
/// (estimate, bytes).
const OVERHEAD: usize = 176;
/// Changes entered, and entries copied for a scan, at a time under the lock.
const STEP: usize = 64;
/// Entries that a scan copies first: many scans end at once.
const FIRST_STEP: usize = 4;

type Value = Option<Vec<u8>>;

/// What is known of a key; `None` is a deletion.
struct Versions {
    seq: u64,
    value: Value,
    /// Older versions, the oldest first.
    older: Vec<(u64, Value)>,
}

impl Versions {
    /// What transaction `seq` sees.
    fn at(&self, seq: u64) -> Option<&Value> {
        if self.seq <= seq {
            return Some(&self.value);
        }
        self.older.iter().rev().find(|(s, _)| *s <= seq).map(|(_, v)| v)
    }
}

/// What becomes of the version before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Older {
    /// A reader may see it.
    Keep,
    /// There is no reader, and none begins before the change is visible.
    Drop,
}

/// Versions by key.
#[derive(Default)]
pub(super) struct Overlay {
    map: RwLock<BTreeMap<Key, Versions>>,
    bytes: AtomicUsize,
}

fn size(value: &Value) -> usize {
    value.as_ref().map_or(0, Vec::len)
}

impl Overlay {
    /// Enters the changes of transaction `seq`; with [`Older::Keep`] readers of earlier transactions do not see them.
    pub(super) fn insert(&self, changes: Changes, seq: u64, older: Older) {
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let mut map = self.map.write();
            for (key, value) in changes.by_ref().take(STEP) {
                self.enter(&mut map, key, Versions { seq, value, older: Vec::new() }, older);
            }
        }
    }

    fn enter(&self, map: &mut BTreeMap<Key, Versions>, key: Key, new: Versions, older: Older) {
        use std::collections::btree_map::Entry::{Occupied, Vacant};
        let added = size(&new.value);
        match map.entry(key) {
            Vacant(slot) => {
                self.bytes.fetch_add(OVERHEAD + added, Relaxed);
                slot.insert(new);
            }
            Occupied(mut slot) => {
                let old = mem::replace(slot.get_mut(), new);
                if older == Older::Keep {
                    self.bytes.fetch_add(mem::size_of::<(u64, Value)>() + added, Relaxed);
                    let versions = slot.get_mut();
                    versions.older = old.older;
                    versions.older.push((old.seq, old.value));
                } else {
                    let freed = size(&old.value) + old.older.iter().map(|(_, v)| kept(v)).sum::<usize>();
                    self.bytes.fetch_add(added, Relaxed);
                    self.bytes.fetch_sub(freed, Relaxed);
                }
            }
        }
    }

    /// Memory held (bytes, estimate).
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.map.read().len()
    }

    /// What transaction `seq` sees at `key`: nothing of it here, a deletion, or a value.
    pub(super) fn get(&self, key: &Key, seq: u64) -> Option<Value> {
        self.map.read().get(key)?.at(seq).cloned()
    }

    /// Calls `f` with the newest version of each key, in order. For an overlay that does not change any more.
    pub(super) fn newest<E>(
        &self,
        mut f: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.map.read().iter().try_for_each(|(key, versions)| f(key.bytes(), versions.value.as_deref()))
    }
}

/// Memory of an older version besides its key (bytes).
fn kept(value: &Value) -> usize {
    mem::size_of::<(u64, Value)>() + size(value)
}

/// What transaction `seq` sees of an overlay in a range, copied a few entries at a time.
pub(super) struct OverlaySource<'a> {
    overlay: &'a Overlay,
    seq: u64,
    /// What is still to be looked at.
    range: (Bound<Key>, Bound<Key>),
    direction: Direction,
    /// The next entries, the foremost last.
    ahead: Vec<(Key, Value)>,
    step: usize,
}

impl<'a> OverlaySource<'a> {
    /// The part of `overlay` with `from <= key < to`; `from` is below `to`.
    pub(super) fn new(
        overlay: &'a Overlay,
        seq: u64,
        (from, to): (&[u8], &[u8]),
        direction: Direction,
    ) -> Self {
        let range = (Bound::Included(Key::new(from)), Bound::Excluded(Key::new(to)));
        let mut source = Self { overlay, seq, range, direction, ahead: Vec::new(), step: FIRST_STEP };
        source.fill();
        source
    }

    /// Copies the next entries; none are left if it copies none.
    fn fill(&mut self) {
        let (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to)) =
            (&self.range.0, &self.range.1)
        else {
            return;
        };
        if from >= to {
            return; // nothing lies between, and a map refuses such ranges
        }
        let seq = self.seq;
        let visible =
            |(key, versions): (&Key, &Versions)| versions.at(seq).map(|value| (key.clone(), value.clone()));
        {
            let map = self.overlay.map.read();
            let range = map.range(self.range.clone());
            match self.direction {
                Direction::Up => self.ahead.extend(range.filter_map(visible).take(self.step)),
                Direction::Down => self.ahead.extend(range.rev().filter_map(visible).take(self.step)),
            }
        }
        if let Some((last, _)) = self.ahead.last() {
            let last = Bound::Excluded(last.clone());
            match self.direction {
                Direction::Up => self.range.0 = last,
                Direction::Down => self.range.1 = last,
            }
        }
        self.ahead.reverse();
        self.step = STEP;
    }
}

impl Source for OverlaySource<'_> {
    fn peek(&self) -> Option<Entry<'_>> {
        self.ahead.last().map(|(key, value)| (key.bytes(), value.as_deref()))
    }

    fn advance(&mut self) -> Result<()> {
        self.ahead.pop();
        if self.ahead.is_empty() {
            self.fill();
        }
        Ok(())
    }
}
