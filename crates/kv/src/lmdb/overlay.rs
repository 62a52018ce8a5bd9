//! Committed changes that are not yet in LMDB: a skip list of versions, so that readers keep their point in time
//! without locking anybody out.

use std::borrow::Borrow;
use std::cmp::{Ordering, Reverse};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry as Node;

use crate::Result;
use crate::buffer::Changes;
use crate::merge::{Direction, Entry, Source};

/// Memory of one version besides its key and value: node, tower, two allocations (estimate, bytes).
const OVERHEAD: usize = 128;

/// A key at a transaction; the newest version of a key comes first.
#[derive(PartialEq, Eq)]
struct VersionedKey {
    key: Vec<u8>,
    seq: u64,
}

/// What versions are ordered by; lets a search borrow its key.
trait Probe {
    fn parts(&self) -> (&[u8], Reverse<u64>);
}

impl Probe for VersionedKey {
    fn parts(&self) -> (&[u8], Reverse<u64>) {
        (&self.key, Reverse(self.seq))
    }
}

impl Probe for (&[u8], u64) {
    fn parts(&self) -> (&[u8], Reverse<u64>) {
        (self.0, Reverse(self.1))
    }
}

impl PartialEq for dyn Probe + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Probe + '_ {}

impl PartialOrd for dyn Probe + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Probe + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for VersionedKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VersionedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl<'a> Borrow<dyn Probe + 'a> for VersionedKey {
    fn borrow(&self) -> &(dyn Probe + 'a) {
        self
    }
}

type Found<'a> = Option<Node<'a, VersionedKey, Option<Vec<u8>>>>;

/// Versions by key; `None` is a deletion.
#[derive(Default)]
pub(super) struct Overlay {
    versions: SkipMap<VersionedKey, Option<Vec<u8>>>,
    bytes: AtomicUsize,
}

impl Overlay {
    /// Enters the changes of transaction `seq`; readers of earlier transactions do not see them.
    pub(super) fn insert(&self, changes: Changes, seq: u64) {
        let mut bytes = 0;
        for (key, value) in changes {
            bytes += OVERHEAD + key.len() + value.as_ref().map_or(0, Vec::len);
            self.versions.insert(VersionedKey { key, seq }, value);
        }
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Memory held (bytes, estimate).
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Number of versions.
    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    /// What transaction `seq` sees at `key`: nothing of it here, a deletion, or a value.
    pub(super) fn get(&self, key: &[u8], seq: u64) -> Option<Option<Vec<u8>>> {
        let node = self.at_or_after(key, seq)?;
        (node.key().key == key).then(|| node.value().clone())
    }

    /// Calls `f` with the newest version of each key, in order.
    pub(super) fn newest<E>(
        &self,
        mut f: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last: Found<'_> = None;
        for node in self.versions.iter() {
            if last.as_ref().is_none_or(|l| l.key().key != node.key().key) {
                f(&node.key().key, node.value().as_deref())?;
                last = Some(node);
            }
        }
        Ok(())
    }

    fn at_or_after(&self, key: &[u8], seq: u64) -> Found<'_> {
        self.versions.lower_bound(Bound::Included(&(key, seq) as &dyn Probe))
    }

    /// The oldest version of the last key before `key`.
    fn before(&self, key: &[u8]) -> Found<'_> {
        self.versions.upper_bound(Bound::Excluded(&(key, u64::MAX) as &dyn Probe))
    }
}

/// What transaction `seq` sees of an overlay in a range.
pub(super) struct OverlaySource<'a> {
    overlay: &'a Overlay,
    seq: u64,
    from: &'a [u8],
    to: &'a [u8],
    direction: Direction,
    here: Found<'a>,
}

impl<'a> OverlaySource<'a> {
    pub(super) fn new(
        overlay: &'a Overlay,
        seq: u64,
        (from, to): (&'a [u8], &'a [u8]),
        direction: Direction,
    ) -> Self {
        let mut source = Self { overlay, seq, from, to, direction, here: None };
        source.here = match direction {
            Direction::Up => source.settle_up(overlay.at_or_after(from, u64::MAX)),
            Direction::Down => source.settle_down(overlay.before(to)),
        };
        source
    }

    /// The first visible version at or after `node`.
    fn settle_up(&self, mut node: Found<'a>) -> Found<'a> {
        while let Some(n) = &node {
            let k = n.key();
            if k.key.as_slice() >= self.to {
                return None;
            }
            if k.seq <= self.seq {
                break;
            }
            node = self.overlay.at_or_after(&k.key, self.seq);
        }
        node
    }

    /// The visible version of the key of `node`, or of the next key before it that has one.
    fn settle_down(&self, mut node: Found<'a>) -> Found<'a> {
        while let Some(n) = &node {
            let key = &n.key().key;
            if key.as_slice() < self.from {
                return None;
            }
            let visible = self.overlay.at_or_after(key, self.seq).filter(|v| v.key().key == *key);
            if visible.is_some() {
                return visible;
            }
            node = self.overlay.before(key);
        }
        node
    }

    /// The newest version of the key after `node`: mostly its neighbour, else behind all older versions.
    fn after(&self, node: &Node<'a, VersionedKey, Option<Vec<u8>>>) -> Found<'a> {
        let next = node.next()?;
        if next.key().key != node.key().key {
            return Some(next);
        }
        self.overlay.versions.lower_bound(Bound::Excluded(&(node.key().key.as_slice(), 0u64) as &dyn Probe))
    }
}

impl Source for OverlaySource<'_> {
    fn peek(&self) -> Option<Entry<'_>> {
        self.here.as_ref().map(|n| (n.key().key.as_slice(), n.value().as_deref()))
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(node) = self.here.take() {
            self.here = match self.direction {
                Direction::Up => self.settle_up(self.after(&node)),
                Direction::Down => self.settle_down(self.overlay.before(&node.key().key)),
            };
        }
        Ok(())
    }
}
