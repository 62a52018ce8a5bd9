//! Copies waiting to be written, per pool, and per family in pools that collocate: filled by the governor, pulled by drive workers.

use super::accounts::AccountTable;
use super::family::pool_of;
use super::flights::Flights;
use crate::limits::{Asker, LimitConfig, priority_of};
use parking_lot::Mutex;
use policy::{MigrateBatch, MigrateItem};
use sched::{AccountId, FairQueue, Holds, Limited, Waiting};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;
use types::{CopyNo, Ino, PoolName, Request, Time, Version};

/// A file that could not be copied (it is being written, or could not be read) is left alone for this long, and twice as
/// long each further time.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Longest pause of a file that was in use.
const RETRY_IN_USE: Duration = Duration::from_secs(60);
/// Longest pause of a file that failed after some of it had been written: each attempt is lost space on a volume.
const RETRY_WASTEFUL: Duration = Duration::from_secs(3600);

/// Copies held for one pool, so that one with slow drives does not keep the others' out; the rest stays in the
/// catalogue's index.
pub const POOL_LIMIT: usize = 20_000;
/// A pool with as many has enough for now.
pub const POOL_ENOUGH: usize = POOL_LIMIT / 2;
/// Greatest number that a copy has.
const MOST_COPIES: u8 = 32;
/// Copies held for a pool that takes no data.
const BLOCKED_LIMIT: usize = 5_000;

/// The account of copies of files that have only one left: they go first, whoever owns them, and no limit counts for them.
const RESCUE: AccountId = AccountId(u32::MAX);

/// What became of a batch that was to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Copies that are new.
    pub added: usize,
    /// Some found no room in the queue of a pool that takes data.
    pub full: bool,
}

/// What waits for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolBacklog {
    /// Copies.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The disk tier needs the space, or a user asked.
    pub urgent: bool,
    /// Some are of files that have only one copy left.
    pub rescue: bool,
}

#[derive(Default)]
struct PoolQueue {
    items: FairQueue<MigrateItem>,
    /// Copies that drives have taken of those whom limits count for.
    holds: Holds,
    /// Bytes that drives have taken and not yet read.
    in_hand: u64,
    urgent: bool,
}

/// For whom a copy is written, and how urgent that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    account: AccountId,
    priority: u8,
}

impl Default for Turn {
    /// Nobody's in particular.
    fn default() -> Self {
        Self { account: AccountId::default(), priority: Request::USUAL_PRIORITY }
    }
}

/// A copy that is queued or in flight.
struct Taken {
    turn: Turn,
    since: Time,
    /// The drive's turn in which it is in flight.
    session: Option<u64>,
}

impl Taken {
    fn waiting(&self, item: MigrateItem) -> Waiting<MigrateItem> {
        let Turn { account, priority } = self.turn;
        Waiting { what: item, bytes: item.size, account, priority, since: self.since }
    }
}

/// A copy that could not be written.
struct Held {
    /// Left alone until then.
    until: Time,
    version: Version,
    /// Attempts before the last.
    tries: u32,
    /// Some attempt cost space on a volume.
    wasteful: bool,
}

impl Held {
    /// A new version is another matter, unless it is the file that keeps changing.
    fn keeps_out(&self, item: &MigrateItem, now: Time) -> bool {
        self.until > now && (self.version == item.version || self.tries == 0)
    }
}

#[derive(Default)]
struct Inner {
    pools: BTreeMap<PoolName, PoolQueue>,
    taken: HashMap<(Ino, CopyNo), Taken>,
    accounts: AccountTable,
    /// Turns of drives that go on, and what they write.
    sessions: HashMap<u64, PoolName>,
    begun: u64,
    /// The disk tier needs the space: nobody's limit holds anything back.
    pressed: bool,
    retry: HashMap<(Ino, CopyNo), Held>,
    blocked: BTreeMap<PoolName, String>,
    /// Pools for which copies are on their way to the queue.
    coming: BTreeSet<PoolName>,
    in_flight: u64,
}

impl Inner {
    /// Copies queued for a pool, of all its families.
    fn queued(&self, pool: &PoolName) -> usize {
        let of_pool = self.pools.iter().filter(|(name, _)| pool_of(name) == *pool);
        of_pool.map(|(_, queue)| queue.items.len()).sum()
    }

    /// A copy is not in flight any more.
    fn settle(&mut self, item: &MigrateItem) {
        self.in_flight -= 1;
        let Some(taken) = self.taken.get_mut(&(item.ino, item.copy)) else { return };
        let pool = taken.session.take().and_then(|session| Some((session, self.sessions.get(&session)?)));
        if let Some((session, pool)) = pool
            && let Some(queue) = self.pools.get_mut(pool)
        {
            queue.holds.settle(&self.accounts.all, taken.turn.account, session);
        }
    }
}

/// The queues.
#[derive(Default)]
pub struct WriteQueue {
    inner: Mutex<Inner>,
    /// What of requests is on its way.
    pub flights: Flights,
}

impl WriteQueue {
    /// For whom something is written, by these limits.
    pub fn turn(&self, limits: &[LimitConfig], who: &Asker<'_>) -> Turn {
        let account = self.inner.lock().accounts.id(who);
        Turn { account, priority: priority_of(limits, who) }
    }

    /// The limits are these from now on; see [`AccountTable::renew`].
    pub fn renew(&self, limits: &[LimitConfig]) {
        self.inner.lock().accounts.renew(limits);
    }

    /// Whether [`WriteQueue::push_for`] would add it, if there is room.
    pub fn is_new(&self, item: &MigrateItem, now: Time) -> bool {
        let (inner, key) = (self.inner.lock(), (item.ino, item.copy));
        let held = inner.retry.get(&key).is_some_and(|held| held.keeps_out(item, now));
        !held && !inner.taken.contains_key(&key)
    }

    /// [`WriteQueue::push_for`] nobody in particular.
    #[cfg(test)]
    pub fn push(&self, batch: &MigrateBatch, urgent: bool, now: Time) -> Pushed {
        self.push_for(batch, &HashMap::new(), urgent, now)
    }

    /// Adds what is not queued, in flight, or to be left alone for a while, as far as there is room. Files that `turns` does
    /// not name are nobody's in particular.
    pub fn push_for(
        &self,
        batch: &MigrateBatch,
        turns: &HashMap<Ino, Turn>,
        urgent: bool,
        now: Time,
    ) -> Pushed {
        let mut inner = self.inner.lock();
        let Inner { pools, taken, retry, blocked, accounts, .. } = &mut *inner;
        retry.retain(|_, held| held.until.plus(RETRY_WASTEFUL) > now);
        let pool = pool_of(&batch.pool);
        let others = |(name, _): &(&PoolName, &PoolQueue)| **name != batch.pool && pool_of(name) == pool;
        let others: usize = pools.iter().filter(others).map(|(_, queue)| queue.items.len()).sum();
        let queue = pools.entry(batch.pool.clone()).or_default();
        let blocked = blocked.contains_key(&batch.pool);
        let limit = if blocked { BLOCKED_LIMIT } else { POOL_LIMIT };
        let (mut added, mut full) = (0, false);
        for item in &batch.items {
            let key = (item.ino, item.copy);
            if taken.contains_key(&key) || retry.get(&key).is_some_and(|held| held.keeps_out(item, now)) {
                continue;
            }
            if others + queue.items.len() >= limit {
                full = !blocked;
                break;
            }
            let turn = turns.get(&item.ino).copied().unwrap_or_default();
            let one = Taken { turn, since: now, session: None };
            queue.items.push(&accounts.all, one.waiting(*item));
            taken.insert(key, one);
            added += 1;
        }
        queue.urgent |= urgent && added > 0;
        Pushed { added, full }
    }

    /// Copies for these pools, and no others, are about to come: their files are being brought back just now.
    pub fn set_coming(&self, pools: BTreeSet<PoolName>) {
        self.inner.lock().coming = pools;
    }

    /// Whether copies for this pool are about to come.
    pub fn is_coming(&self, pool: &PoolName) -> bool {
        self.inner.lock().coming.contains(pool)
    }

    /// A drive begins to write to this pool; the number is for [`WriteQueue::take`].
    pub fn begin(&self, pool: &PoolName) -> u64 {
        let mut inner = self.inner.lock();
        inner.begun += 1;
        let session = inner.begun;
        inner.sessions.insert(session, pool.clone());
        session
    }

    /// It has ended, and all it took is settled.
    pub fn end(&self, session: u64) {
        self.inner.lock().sessions.remove(&session);
    }

    /// The next copy to write to this pool, of those that this turn of a drive may take.
    pub fn take(&self, pool: &PoolName, session: u64) -> Option<MigrateItem> {
        let mut inner = self.inner.lock();
        let Inner { pools, taken, accounts, in_flight, pressed, .. } = &mut *inner;
        let (accounts, pressed) = (&accounts.all, *pressed);
        let PoolQueue { items, holds, urgent, .. } = pools.get_mut(pool)?;
        let may = |account| pressed || holds.allows(accounts, account, Some(session));
        let Waiting { what: item, account, .. } =
            items.pop(accounts, crate::now(), sched::Limits::default().starve_after, may)?;
        holds.take(accounts, account, session);
        if let Some(one) = taken.get_mut(&(item.ino, item.copy)) {
            one.session = Some(session);
        }
        *urgent &= !items.is_empty();
        *in_flight += 1;
        Some(item)
    }

    /// The next copy, for a drive that has nothing else.
    #[cfg(test)]
    pub fn pop(&self, pool: &PoolName) -> Option<MigrateItem> {
        let session = self.begin(pool);
        self.take(pool, session)
    }

    /// Whether the disk tier needs the space: then nobody's limit holds anything back.
    pub fn set_pressed(&self, pressed: bool) {
        self.inner.lock().pressed = pressed;
    }

    /// What limits leave of a pool's backlog for drives that write `per_writer` bytes each.
    pub fn limited(&self, pool: &PoolName, per_writer: u64) -> Option<Limited> {
        let inner = self.inner.lock();
        let queue = inner.pools.get(pool).filter(|_| !inner.pressed)?;
        queue.items.limited(&inner.accounts.all, &queue.holds, per_writer)
    }

    /// These copies are written before all others of their pools: of their files only one is left.
    pub fn go_first(&self, copies: &HashSet<(Ino, CopyNo)>) {
        let mut inner = self.inner.lock();
        let Inner { pools, taken, accounts, .. } = &mut *inner;
        let waits = |copy: &&(Ino, CopyNo)| {
            taken.get(copy).is_some_and(|one| one.session.is_none() && one.turn.account != RESCUE)
        };
        let fresh: HashSet<(Ino, CopyNo)> = copies.iter().filter(waits).copied().collect();
        if fresh.is_empty() {
            return;
        }
        for queue in pools.values_mut() {
            let which = |item: &MigrateItem| fresh.contains(&(item.ino, item.copy));
            queue.items.hand_over(&accounts.all, which, (RESCUE, sched::FIRST));
        }
        for copy in &fresh {
            if let Some(one) = taken.get_mut(copy) {
                one.turn = Turn { account: RESCUE, priority: sched::FIRST };
            }
        }
    }

    /// What waits for one pool waits for another from now on, behind what does already for the same.
    pub fn move_all(&self, from: &PoolName, to: &PoolName) {
        let mut inner = self.inner.lock();
        let Inner { pools, accounts, .. } = &mut *inner;
        let Some(queue) = pools.get_mut(from).filter(|_| from != to) else { return };
        let (items, urgent) = (queue.items.take_all(), std::mem::take(&mut queue.urgent));
        let queue = pools.entry(to.clone()).or_default();
        queue.urgent |= urgent;
        items.into_iter().for_each(|item| queue.items.push(&accounts.all, item));
    }

    /// Drives have taken so many bytes of a pool from the queue, or (`taken` false) read them or given them up.
    pub fn in_hand(&self, pool: &PoolName, bytes: u64, taken: bool) {
        if let Some(queue) = self.inner.lock().pools.get_mut(pool) {
            queue.in_hand =
                if taken { queue.in_hand.saturating_add(bytes) } else { queue.in_hand.saturating_sub(bytes) };
        }
    }

    /// Bytes that drives have taken and not yet read, per pool.
    pub fn all_in_hand(&self) -> BTreeMap<PoolName, u64> {
        let inner = self.inner.lock();
        inner.pools.iter().filter(|(_, q)| q.in_hand > 0).map(|(n, q)| (n.clone(), q.in_hand)).collect()
    }

    /// A taken copy was not written: it goes back to the front.
    pub fn put_back(&self, pool: &PoolName, item: MigrateItem) {
        self.flights.lost((item.ino, item.copy));
        let mut inner = self.inner.lock();
        inner.settle(&item);
        let Inner { pools, taken, accounts, .. } = &mut *inner;
        if let Some(one) = taken.get(&(item.ino, item.copy)) {
            pools.entry(pool.clone()).or_default().items.put_back(&accounts.all, one.waiting(item));
        }
    }

    /// A taken copy is recorded.
    pub fn finish(&self, item: &MigrateItem) {
        let mut inner = self.inner.lock();
        inner.settle(item);
        inner.taken.remove(&(item.ino, item.copy));
        inner.retry.remove(&(item.ino, item.copy));
    }

    /// A taken copy could not be written; `wasteful`: some of it was, which is lost space now. It is left alone for a
    /// while, each time longer.
    pub fn hold(&self, item: &MigrateItem, wasteful: bool, now: Time) {
        let key = (item.ino, item.copy);
        self.flights.lost(key);
        let mut inner = self.inner.lock();
        inner.settle(item);
        inner.taken.remove(&key);
        let before = inner.retry.get(&key).filter(|held| held.version == item.version);
        let tries = before.map_or(0, |held| held.tries.saturating_add(1));
        let wasteful = wasteful || before.is_some_and(|held| held.wasteful);
        let longest = if wasteful { RETRY_WASTEFUL } else { RETRY_IN_USE };
        let pause = RETRY_AFTER.saturating_mul(1 << tries.min(16)).min(longest);
        inner.retry.insert(key, Held { until: now.plus(pause), version: item.version, tries, wasteful });
    }

    /// Somebody asks for these files now: whatever kept them out may be mended.
    pub fn let_in(&self, files: impl Iterator<Item = Ino>, now: Time) {
        let files: HashSet<Ino> = files.collect();
        let mut inner = self.inner.lock();
        inner
            .retry
            .iter_mut()
            .filter(|((ino, _), _)| files.contains(ino))
            .for_each(|(_, held)| held.until = now);
    }

    /// Files that are left alone for a while.
    pub fn held(&self, items: &[MigrateItem], now: Time) -> Vec<Ino> {
        let inner = self.inner.lock();
        let is_held = |item: &&MigrateItem| {
            inner.retry.get(&(item.ino, item.copy)).is_some_and(|held| held.keeps_out(item, now))
        };
        items.iter().filter(is_held).map(|item| item.ino).collect()
    }

    /// Whether an attempt to write this copy cost space on a volume in vain.
    pub fn was_wasteful(&self, item: &MigrateItem) -> bool {
        let inner = self.inner.lock();
        let held = inner.retry.get(&(item.ino, item.copy));
        held.is_some_and(|held| held.wasteful && held.version == item.version)
    }

    /// Whether another copy of the same file is queued or in flight.
    pub fn has_others(&self, item: &MigrateItem) -> bool {
        let inner = self.inner.lock();
        let mut numbers = (1..=MOST_COPIES).map(CopyNo).filter(|copy| *copy != item.copy);
        numbers.any(|copy| inner.taken.contains_key(&(item.ino, copy)))
    }

    /// Copies queued, in flight, or left alone for a while.
    pub fn len(&self) -> usize {
        let inner = self.inner.lock();
        inner.taken.len() + inner.retry.len()
    }

    /// Copies queued for a pool.
    pub fn queued(&self, pool: &PoolName) -> usize {
        self.inner.lock().queued(pool)
    }

    /// Pools for which no more need be looked for now: they have enough, or take no data.
    pub fn sated(&self) -> BTreeSet<PoolName> {
        let inner = self.inner.lock();
        let pools: BTreeSet<PoolName> = inner.pools.keys().map(pool_of).collect();
        let enough = pools.into_iter().filter(|pool| inner.queued(pool) >= POOL_ENOUGH);
        enough.chain(inner.blocked.keys().cloned()).collect()
    }

    /// What waits, per pool.
    pub fn backlog(&self) -> BTreeMap<PoolName, PoolBacklog> {
        let inner = self.inner.lock();
        let view = |q: &PoolQueue| PoolBacklog {
            files: q.items.len() as u64,
            bytes: q.items.bytes(),
            urgent: q.urgent,
            rescue: q.items.has(RESCUE),
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
mod tests;
