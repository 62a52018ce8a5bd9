//! Copies waiting to be written, per pool: filled by the governor, pulled by drive workers.

use parking_lot::Mutex;
use policy::{MigrateBatch, MigrateItem};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;
use types::{CopyNo, Ino, PoolName, Time};

/// A file that could not be copied (it is being written, or could not be read) is looked at again after this long.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Copies held for a pool that takes no data; the rest stays in the catalogue's index.
const BLOCKED_LIMIT: usize = 5_000;

/// What waits for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolBacklog {
    /// Copies.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the oldest became due.
    pub oldest_due: Option<Time>,
    /// The disk tier needs the space, or a user asked.
    pub urgent: bool,
}

#[derive(Default)]
struct PoolQueue {
    items: VecDeque<MigrateItem>,
    bytes: u64,
    urgent: bool,
}

#[derive(Default)]
struct Inner {
    pools: BTreeMap<PoolName, PoolQueue>,
    taken: HashSet<(Ino, CopyNo)>,
    retry: HashMap<(Ino, CopyNo), Time>,
    blocked: BTreeMap<PoolName, String>,
    in_flight: u64,
}

/// The queues.
#[derive(Default)]
pub struct WriteQueue {
    inner: Mutex<Inner>,
}

impl WriteQueue {
    /// Adds what is not queued, in flight, or to be left alone for a while; returns how many were new.
    pub fn push(&self, batch: &MigrateBatch, urgent: bool, now: Time) -> usize {
        let mut inner = self.inner.lock();
        let Inner { pools, taken, retry, blocked, .. } = &mut *inner;
        retry.retain(|_, at| *at > now);
        let queue = pools.entry(batch.pool.clone()).or_default();
        let room = match blocked.contains_key(&batch.pool) {
            true => BLOCKED_LIMIT.saturating_sub(queue.items.len()),
            false => usize::MAX,
        };
        let mut added = 0;
        for item in &batch.items {
            if added >= room {
                break;
            }
            let key = (item.ino, item.copy);
            if !retry.contains_key(&key) && taken.insert(key) {
                queue.bytes += item.size;
                queue.items.push_back(*item);
                added += 1;
            }
        }
        queue.urgent |= urgent && added > 0;
        added
    }

    /// The next copy to write to this pool.
    pub fn pop(&self, pool: &PoolName) -> Option<MigrateItem> {
        let mut inner = self.inner.lock();
        let queue = inner.pools.get_mut(pool)?;
        let item = queue.items.pop_front()?;
        queue.bytes -= item.size;
        queue.urgent &= !queue.items.is_empty();
        inner.in_flight += 1;
        Some(item)
    }

    /// A popped copy was not written: it goes back to the front.
    pub fn put_back(&self, pool: &PoolName, item: MigrateItem) {
        let mut inner = self.inner.lock();
        inner.in_flight -= 1;
        let queue = inner.pools.entry(pool.clone()).or_default();
        queue.bytes += item.size;
        queue.items.push_front(item);
    }

    /// A popped copy is recorded, or will be looked at again later.
    pub fn finish(&self, item: &MigrateItem, written: bool, now: Time) {
        let mut inner = self.inner.lock();
        inner.in_flight -= 1;
        inner.taken.remove(&(item.ino, item.copy));
        if !written {
            inner.retry.insert((item.ino, item.copy), now.plus(RETRY_AFTER));
        }
    }

    /// Copies queued or in flight.
    pub fn len(&self) -> usize {
        self.inner.lock().taken.len()
    }

    /// Those of them that do not wait for a pool that takes no data: the others must not keep new ones out.
    pub fn movable(&self) -> usize {
        let inner = self.inner.lock();
        let stuck = inner.blocked.keys().filter_map(|pool| inner.pools.get(pool)).map(|q| q.items.len());
        inner.taken.len().saturating_sub(stuck.sum())
    }

    /// What waits, per pool.
    pub fn backlog(&self) -> BTreeMap<PoolName, PoolBacklog> {
        let inner = self.inner.lock();
        let view = |q: &PoolQueue| PoolBacklog {
            files: q.items.len() as u64,
            bytes: q.bytes,
            oldest_due: q.items.iter().map(|i| i.due).min(),
            urgent: q.urgent,
        };
        inner.pools.iter().filter(|(_, q)| !q.items.is_empty()).map(|(n, q)| (n.clone(), view(q))).collect()
    }

    /// Notes that a pool cannot take data now, and why; None lifts it.
    pub fn set_blocked(&self, pool: &PoolName, why: Option<String>) {
        let mut inner = self.inner.lock();
        match why {
            Some(why) => {
                if inner.blocked.insert(pool.clone(), why.clone()).as_ref() != Some(&why) {
                    tracing::warn!("pool {pool} takes no data: {why}");
                }
            }
            None => drop(inner.blocked.remove(pool)),
        }
    }

    /// Pools that cannot take data, with the reason.
    pub fn blocked(&self) -> BTreeMap<PoolName, String> {
        self.inner.lock().blocked.clone()
    }

    /// Whether some copy is being written or can be.
    pub fn makes_progress(&self) -> bool {
        let inner = self.inner.lock();
        inner.in_flight > 0
            || inner.pools.iter().any(|(n, q)| !q.items.is_empty() && !inner.blocked.contains_key(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::MigrateWhy;
    use types::{ClassName, Version};

    fn batch(pool: &str, from: u64, count: u64) -> MigrateBatch {
        let item = |n| MigrateItem {
            ino: Ino(n),
            version: Version(1),
            copy: CopyNo(1),
            size: 10,
            due: Time::default(),
        };
        let (class, pool) = (ClassName("default".into()), PoolName(pool.into()));
        MigrateBatch {
            class,
            pool,
            items: (from..from + count).map(item).collect(),
            bytes: 0,
            why: MigrateWhy::Age,
        }
    }

    #[test]
    fn a_pool_that_takes_no_data_leaves_room_for_the_others() {
        let queue = WriteQueue::default();
        let now = Time::new(1, 0);
        queue.set_blocked(&PoolName("full".into()), Some("no volume".into()));
        let count = BLOCKED_LIMIT as u64 + 100;
        assert_eq!(queue.push(&batch("full", 0, count), false, now), BLOCKED_LIMIT);
        assert_eq!(queue.push(&batch("full", 0, count), false, now), 0);
        assert_eq!((queue.movable(), queue.makes_progress()), (0, false));
        assert_eq!(queue.push(&batch("good", count, 7), false, now), 7);
        assert_eq!((queue.movable(), queue.makes_progress()), (7, true));
    }
}
