//! Files to be read from one volume, kept in tape order, with sums that cost nothing to ask for.

use crate::AccountId;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use types::Time;

/// A file, or the part of one, to be read from a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecallItem {
    /// Identifier given by the caller, unique over all queues.
    pub id: u64,
    /// First block on the volume.
    pub block: u64,
    /// Byte of that block at which it begins: small files share blocks.
    pub byte: u32,
    /// Bytes to read.
    pub bytes: u64,
    /// Greater goes first (an open file before a bulk request).
    pub priority: u8,
    /// Since when somebody waits for it.
    pub since: Time,
    /// For whom it is read.
    pub account: AccountId,
    /// Somebody wants it by then (to the second).
    pub deadline: Option<Time>,
}

/// Where an item begins on tape; the id tells apart those that begin at one place (empty files).
type Place = (u64, u32, u64);

/// What is kept of an item besides its place.
#[derive(Clone, Copy, Debug)]
struct Rest {
    bytes: u64,
    since: Time,
    /// Second; [`NEVER`] without a deadline: there may be millions of items.
    deadline: i64,
    account: AccountId,
    priority: u8,
}

/// No deadline.
const NEVER: i64 = i64::MAX;

fn item((block, byte, id): Place, rest: Rest) -> RecallItem {
    let Rest { bytes, since, deadline, account, priority } = rest;
    RecallItem { id, block, byte, bytes, priority, since, account, deadline: time_of(deadline) }
}

fn time_of(deadline: i64) -> Option<Time> {
    (deadline != NEVER).then(|| Time::new(deadline, 0))
}

/// What the sums of one account are made of.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Numbers of items: those of a request have waited for equally long.
    by_since: BTreeMap<Time, u64>,
    /// Few differ.
    by_priority: Vec<(u8, u64)>,
    by_deadline: BTreeMap<i64, u64>,
}

/// What waits in a queue for one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// For whom.
    pub account: AccountId,
    /// Items.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Since when the oldest waits.
    pub since: Time,
    /// Greatest priority.
    pub priority: u8,
    /// First deadline.
    pub deadline: Option<Time>,
}

/// A [`Share`], smaller.
#[derive(Clone, Copy, Debug)]
struct Sum {
    account: AccountId,
    priority: u8,
    files: u64,
    bytes: u64,
    since: Time,
    deadline: i64,
}

impl Sum {
    fn empty(account: AccountId) -> Self {
        Self { account, priority: 0, files: 0, bytes: 0, since: Time::default(), deadline: NEVER }
    }

    fn share(&self) -> Share {
        let Self { account, priority, files, bytes, since, deadline } = *self;
        Share { account, files, bytes, since, priority, deadline: time_of(deadline) }
    }
}

impl Counts {
    fn add(&mut self, sum: &mut Sum, rest: &Rest) {
        sum.files += 1;
        sum.bytes = sum.bytes.saturating_add(rest.bytes);
        *self.by_since.entry(rest.since).or_default() += 1;
        match self.by_priority.binary_search_by_key(&rest.priority, |(priority, _)| *priority) {
            Ok(at) => self.by_priority[at].1 += 1,
            Err(at) => self.by_priority.insert(at, (rest.priority, 1)),
        }
        if rest.deadline != NEVER {
            *self.by_deadline.entry(rest.deadline).or_default() += 1;
        }
        self.sum_up(sum);
    }

    fn take(&mut self, sum: &mut Sum, rest: &Rest) {
        sum.files = sum.files.saturating_sub(1);
        sum.bytes = sum.bytes.saturating_sub(rest.bytes);
        take_one(&mut self.by_since, &rest.since);
        if let Ok(at) = self.by_priority.binary_search_by_key(&rest.priority, |(priority, _)| *priority) {
            self.by_priority[at].1 -= 1;
            self.by_priority.retain(|(_, count)| *count > 0);
        }
        take_one(&mut self.by_deadline, &rest.deadline);
        self.sum_up(sum);
    }

    fn sum_up(&self, sum: &mut Sum) {
        sum.since = self.by_since.first_key_value().map_or(sum.since, |(since, _)| *since);
        sum.priority = self.by_priority.last().map_or(0, |(priority, _)| *priority);
        sum.deadline = self.by_deadline.first_key_value().map_or(NEVER, |(deadline, _)| *deadline);
    }
}

/// The place before all that begin in a block.
fn begin_of(block: u64) -> Place {
    (block, 0, 0)
}

/// Queue of one volume. Adding and removing cost O(log n), the sums O(1).
///
/// Abandoned design: a plain list of items in the view, sorted at each decision; with a million requested files each
/// event would have cost a million steps.
#[derive(Clone, Debug, Default)]
pub struct RecallQueue {
    by_place: BTreeMap<Place, Rest>,
    place_of: BTreeMap<u64, (u64, u32)>,
    /// What waits for each account: few in one queue, sorted. A plan looks at those of tens of thousands of queues, so they
    /// lie in the queue itself: to follow a pointer takes longer than all that is done with them.
    sums: SmallVec<[Sum; 3]>,
    /// Of each of those.
    counts: Vec<Counts>,
}

impl RecallQueue {
    /// Adds an item; one with the same id is replaced.
    pub fn insert(&mut self, item: RecallItem) {
        self.remove(item.id);
        let RecallItem { id, block, byte, bytes, priority, since, account, deadline } = item;
        let deadline = deadline.map_or(NEVER, |at| at.secs.min(NEVER - 1));
        let rest = Rest { bytes, since, deadline, account, priority };
        self.by_place.insert((block, byte, id), rest);
        self.place_of.insert(id, (block, byte));
        let at = self.place_of_sum(account).unwrap_or_else(|at| {
            self.sums.insert(at, Sum::empty(account));
            self.counts.insert(at, Counts::default());
            at
        });
        self.counts[at].add(&mut self.sums[at], &rest);
    }

    /// Takes an item out (it was given to a drive, or withdrawn).
    pub fn remove(&mut self, id: u64) -> Option<RecallItem> {
        let (block, byte) = self.place_of.remove(&id)?;
        let place = (block, byte, id);
        let rest = self.by_place.remove(&place)?;
        if let Ok(at) = self.place_of_sum(rest.account) {
            self.counts[at].take(&mut self.sums[at], &rest);
            if self.sums[at].files == 0 {
                self.sums.remove(at);
                self.counts.remove(at);
            }
        }
        Some(item(place, rest))
    }

    fn place_of_sum(&self, account: AccountId) -> Result<usize, usize> {
        self.sums.binary_search_by_key(&account, |sum| sum.account)
    }

    /// The item with this id.
    pub fn get(&self, id: u64) -> Option<RecallItem> {
        let (block, byte) = *self.place_of.get(&id)?;
        let place = (block, byte, id);
        Some(item(place, *self.by_place.get(&place)?))
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.by_place.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// Sum of the bytes.
    pub fn bytes(&self) -> u64 {
        self.sums.iter().map(|sum| sum.bytes).fold(0, u64::saturating_add)
    }

    /// Since when the oldest item waits.
    pub fn oldest(&self) -> Option<Time> {
        self.shares().map(|share| share.since).min()
    }

    /// Greatest priority.
    pub fn priority(&self) -> u8 {
        self.shares().map(|share| share.priority).max().unwrap_or(0)
    }

    /// What waits for each account.
    pub fn shares(&self) -> impl Iterator<Item = Share> {
        self.sums.iter().map(Sum::share)
    }

    /// First and last block at which an item begins.
    pub fn span(&self) -> Option<(u64, u64)> {
        let ((first, ..), _) = self.by_place.first_key_value()?;
        let ((last, ..), _) = self.by_place.last_key_value()?;
        Some((*first, *last))
    }

    /// Items from block `position` on, then those before it: the order in which a tape that is one line serves them.
    pub fn pass(&self, position: u64) -> impl Iterator<Item = RecallItem> {
        let ahead = self.by_place.range(begin_of(position)..);
        let behind = self.by_place.range(..begin_of(position));
        ahead.chain(behind).map(|(place, rest)| item(*place, *rest))
    }

    /// The next batch, strictly forward: from `position` on, or, when nothing is ahead, from the first block. Ends after
    /// `most` items or with the item that reaches `bytes`; never empty while the queue is not.
    pub fn batch(&self, position: u64, most: usize, bytes: u64) -> Vec<RecallItem> {
        let ahead = self.by_place.range(begin_of(position)..).next().is_some();
        let start = if ahead { position } else { 0 };
        limited(self.by_place.range(begin_of(start)..).map(|(place, rest)| item(*place, *rest)), most, bytes)
    }

    /// Items to choose from on a tape where what lies behind may be nearer than what lies ahead: up to `most`, from
    /// `position` on, then from the first block; in order of blocks. Which of them come first is for
    /// [`crate::recall_order`] to say, and how many for [`first_part`].
    pub fn batch_around(&self, position: u64, most: usize) -> Vec<RecallItem> {
        let mut batch: Vec<RecallItem> = self.pass(position).take(most.max(1)).collect();
        batch.sort_unstable_by_key(|item| (item.block, item.byte, item.id));
        batch
    }
}

/// How many of the items in this order make up `bytes`; at least one.
pub fn first_part(order: &[RecallItem], bytes: u64) -> usize {
    limited(order.iter().copied(), usize::MAX, bytes).len()
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u64>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn limited(items: impl Iterator<Item = RecallItem>, most: usize, bytes: u64) -> Vec<RecallItem> {
    let mut room = bytes;
    let mut batch = Vec::new();
    for item in items.take(most.max(1)) {
        batch.push(item);
        room = room.saturating_sub(item.bytes);
        if room == 0 {
            break;
        }
    }
    batch
}
