//! Advisory locks of files: what fcntl(2) and flock(2) ask for, and the ranges that one owner holds.

use serde::{Deserialize, Serialize};

/// The two families of locks, which know nothing of each other, as on a local file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockSpace {
    /// Of ranges: fcntl(2).
    Records,
    /// Of whole files: flock(2).
    Files,
}

/// How a lock is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// Several owners may hold it together.
    Shared,
    /// One owner alone.
    Exclusive,
}

impl LockKind {
    fn excludes(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// Bytes from `start` to `end`, both included (the last byte of every file is that of the greatest offset).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
}

impl LockRange {
    /// All bytes that a file can have.
    pub const WHOLE: Self = Self { start: 0, end: i64::MAX as u64 };

    fn meets(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// What becomes of a request that somebody else's lock is in the way of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockWait {
    /// EAGAIN.
    Never,
    /// It waits.
    Patient,
    /// It waits, unless owners would wait for each other in a circle: EDEADLK, as the kernel does it for fcntl(2) with locks of processes.
    Checked,
}

/// A lock that is asked for or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockOrder {
    /// Which family.
    pub space: LockSpace,
    /// For whom: a number of the caller's own, such as the kernel's for a process or an open file.
    pub owner: u64,
    /// None: given back.
    pub kind: Option<LockKind>,
    /// Which bytes.
    pub range: LockRange,
    /// Process, for those who ask who holds it.
    pub pid: u32,
    /// If it cannot be had at once.
    pub wait: LockWait,
}

impl LockOrder {
    /// Gives back all record locks of an owner, as close(2) does.
    pub fn give_back(owner: u64) -> Self {
        Self {
            space: LockSpace::Records,
            owner,
            kind: None,
            range: LockRange::WHOLE,
            pid: 0,
            wait: LockWait::Never,
        }
    }
}

/// A lock that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHeld {
    /// How it is shared.
    pub kind: LockKind,
    /// Its bytes.
    pub range: LockRange,
    /// Process that holds it; 0: one of another host.
    pub pid: u32,
}

/// What one owner holds of one file: ranges in order, none of which meets another; of one kind they do not even touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockRanges(Vec<(LockRange, LockKind)>);

impl LockRanges {
    /// Nothing is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (LockRange, LockKind)> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first of them that keeps another owner from this range.
    pub fn against(&self, range: LockRange, kind: LockKind) -> Option<(LockRange, LockKind)> {
        self.iter().find(|(held, of)| held.meets(range) && of.excludes(kind))
    }

    /// Makes the range be held so, whatever was held of it before; None: not at all.
    pub fn set(&mut self, range: LockRange, kind: Option<LockKind>) {
        let mut set = Vec::with_capacity(self.0.len() + 2);
        for (held, of) in self.0.drain(..) {
            if !held.meets(range) {
                set.push((held, of));
                continue;
            }
            if held.start < range.start {
                set.push((LockRange { start: held.start, end: range.start - 1 }, of));
            }
            if held.end > range.end {
                set.push((LockRange { start: range.end + 1, end: held.end }, of));
            }
        }
        set.extend(kind.map(|kind| (range, kind)));
        set.sort_unstable_by_key(|(held, _)| held.start);
        for (held, of) in set {
            match self.0.last_mut() {
                Some((before, same)) if *same == of && before.end.checked_add(1) == Some(held.start) => {
                    before.end = held.end;
                }
                _ => self.0.push((held, of)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> LockRange {
        LockRange { start, end }
    }

    #[test]
    fn ranges_split_merge_and_change_their_kind_as_single_bytes_do() {
        const BYTES: usize = 24;
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let (mut ranges, mut bytes) = (LockRanges::default(), [None; BYTES]);
            for _ in 0..40 {
                let start = random(BYTES as u64);
                let end = start + random(BYTES as u64 - start);
                let kind = [None, Some(LockKind::Shared), Some(LockKind::Exclusive)][random(3) as usize];
                ranges.set(range(start, end), kind);
                bytes[start as usize..=end as usize].fill(kind);
                let seen: Vec<_> = (0..BYTES as u64)
                    .map(|at| ranges.iter().find(|(held, _)| held.meets(range(at, at))).map(|(_, kind)| kind))
                    .collect();
                assert_eq!(seen, bytes);
                // As few as can be.
                let changes = bytes.windows(2).filter(|two| two[0] != two[1] && two[1].is_some()).count();
                assert_eq!(ranges.len(), changes + usize::from(bytes[0].is_some()));
            }
        }
    }

    #[test]
    fn the_last_byte_of_all_can_be_locked_and_given_back() {
        let mut ranges = LockRanges::default();
        ranges.set(range(0, u64::MAX), Some(LockKind::Shared));
        ranges.set(range(u64::MAX, u64::MAX), Some(LockKind::Exclusive));
        assert_eq!(ranges.len(), 2);
        assert!(ranges.against(range(0, 5), LockKind::Shared).is_none());
        assert!(ranges.against(range(u64::MAX, u64::MAX), LockKind::Shared).is_some());
        ranges.set(range(0, u64::MAX), None);
        assert!(ranges.is_empty());
    }
}
