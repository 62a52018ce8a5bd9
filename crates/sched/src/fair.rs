//! Whose part of a pool's backlog is written next: files that wait for a drive are taken in turns of their owners, in
//! proportion to the owners' weights, and not for more drives at once than limits allow.
//!
//! Always true (property tests in `tests/fair.rs`):
//! * of one account the file that came first is taken first, and each is taken once;
//! * owners who all have files waiting get bytes in proportion to their weights, but for one stint each;
//! * a more urgent account comes first, but what has waited for long takes turns with it (unless it is [`FIRST`]): nobody starves;
//! * never more drives than a cap allows hold files of those that it counts for.

use crate::{AccountId, Accounts};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::Time;

/// Of this priority nothing waits for anything else, not even for what has waited for long.
pub const FIRST: u8 = u8::MAX;
/// Files of one owner are written together until he has had so much more than another (bytes, for weight 1): what belongs
/// together should not lie in pieces.
pub const STINT: u64 = 4 << 30;
/// A file counts as so many bytes at least.
const FILE_COSTS: u64 = 1 << 20;

/// A file that waits to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waiting<T> {
    /// What the caller knows it by.
    pub what: T,
    /// Its length.
    pub bytes: u64,
    /// For whom it is written.
    pub account: AccountId,
    /// Greater goes first.
    pub priority: u8,
    /// Since when it waits.
    pub since: Time,
}

impl<T> Waiting<T> {
    fn cost(&self, weight: f64) -> f64 {
        self.bytes.max(FILE_COSTS) as f64 / weight
    }
}

/// Files of one account, first come first.
#[derive(Clone, Debug)]
struct Line<T> {
    items: VecDeque<Waiting<T>>,
    bytes: u64,
}

/// The first file of an account.
struct Front {
    id: AccountId,
    owner: u32,
    /// What its owner has had.
    had: f64,
    priority: u8,
    since: Time,
    /// Limits allow it, for the drive that asks.
    may: bool,
    starves: bool,
}

impl Front {
    fn before(&self, other: &Self) -> Ordering {
        self.had.total_cmp(&other.had).then_with(|| (self.since, self.id).cmp(&(other.since, other.id)))
    }
}

/// What waits for one pool.
#[derive(Clone, Debug)]
pub struct FairQueue<T> {
    /// None is empty.
    lines: BTreeMap<AccountId, Line<T>>,
    files: usize,
    bytes: u64,
    /// What each owner has had, in bytes by weight. Who comes back after a while has had as much as the one whose turn it is,
    /// and nobody who waits falls behind that by more than a stint.
    had: BTreeMap<u32, f64>,
    turn: f64,
    /// Whose stint it is.
    owner: Option<u32>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), files: 0, bytes: 0, had: BTreeMap::new(), turn: 0.0, owner: None }
    }
}

impl<T> FairQueue<T> {
    /// Number of files.
    pub fn len(&self) -> usize {
        self.files
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files == 0
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A file comes behind the others of its account.
    pub fn push(&mut self, accounts: &Accounts, item: Waiting<T>) {
        let (owner, _) = accounts.share(item.account);
        if !self.lines.contains_key(&item.account) {
            let turn = self.turn;
            self.had.entry(owner).and_modify(|had| *had = had.max(turn)).or_insert(turn);
        }
        self.line(&item).items.push_back(item);
    }

    /// A file that was taken comes back to where it was.
    pub fn put_back(&mut self, accounts: &Accounts, item: Waiting<T>) {
        let (owner, weight) = accounts.share(item.account);
        let had = self.had.entry(owner).or_insert(self.turn);
        // Attempts in vain save nothing up either.
        *had = (*had - item.cost(weight)).max(self.turn - STINT as f64);
        self.line(&item).items.push_front(item);
    }

    /// Whether files of an account wait.
    pub fn has(&self, account: AccountId) -> bool {
        self.lines.contains_key(&account)
    }

    /// Those that `which` tells come behind the files of another account, with another priority.
    pub fn hand_over(
        &mut self,
        accounts: &Accounts,
        which: impl Fn(&T) -> bool,
        (account, priority): (AccountId, u8),
    ) {
        let mut gone = Vec::new();
        for line in self.lines.iter_mut().filter(|(id, _)| **id != account).map(|(_, line)| line) {
            let (go, stay): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut line.items).into_iter().partition(|item| which(&item.what));
            line.items = stay;
            line.bytes = line.items.iter().fold(0, |sum: u64, item| sum.saturating_add(item.bytes));
            gone.extend(go);
        }
        self.lines.retain(|_, line| !line.items.is_empty());
        for item in gone {
            self.files -= 1;
            self.bytes = self.bytes.saturating_sub(item.bytes);
            self.push(accounts, Waiting { account, priority, ..item });
        }
    }

    /// All files, those of each account in their order.
    pub fn take_all(&mut self) -> Vec<Waiting<T>> {
        (self.files, self.bytes) = (0, 0);
        std::mem::take(&mut self.lines).into_values().flat_map(|line| line.items).collect()
    }

    fn line(&mut self, item: &Waiting<T>) -> &mut Line<T> {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(item.bytes);
        let line = self.lines.entry(item.account);
        let line = line.or_insert_with(|| Line { items: VecDeque::new(), bytes: 0 });
        line.bytes = line.bytes.saturating_add(item.bytes);
        line
    }

    /// Takes the file whose turn it is, of accounts that may have it; priority does not keep back what has waited for
    /// `starve_after`.
    pub fn pop(
        &mut self,
        accounts: &Accounts,
        now: Time,
        starve_after: Duration,
        may: impl Fn(AccountId) -> bool,
    ) -> Option<Waiting<T>> {
        let id = self.next(accounts, now, starve_after, may)?;
        let line = self.lines.get_mut(&id)?;
        let item = line.items.pop_front()?;
        line.bytes = line.bytes.saturating_sub(item.bytes);
        if line.items.is_empty() {
            self.lines.remove(&id);
        }
        self.files -= 1;
        self.bytes = self.bytes.saturating_sub(item.bytes);
        let (owner, weight) = accounts.share(id);
        *self.had.entry(owner).or_insert(self.turn) += item.cost(weight);
        self.owner = Some(owner);
        self.forget(accounts);
        Some(item)
    }

    fn next(
        &mut self,
        accounts: &Accounts,
        now: Time,
        starve_after: Duration,
        may: impl Fn(AccountId) -> bool,
    ) -> Option<AccountId> {
        let front = |(id, line): (&AccountId, &Line<T>)| {
            let (first, owner) = (line.items.front()?, accounts.share(*id).0);
            let had = self.had.get(&owner).copied().unwrap_or(self.turn);
            let starves = now.since(first.since) >= starve_after;
            Some(Front {
                id: *id,
                owner,
                had,
                priority: first.priority,
                since: first.since,
                may: may(*id),
                starves,
            })
        };
        let fronts: Vec<Front> = self.lines.iter().filter_map(front).collect();
        let top = fronts.iter().filter(|f| f.may).map(|f| f.priority).max()?;
        let in_turn = |f: &&Front| f.may && (f.priority == top || (f.starves && top < FIRST));
        let best = fronts.iter().filter(in_turn).min_by(|a, b| a.before(b))?;
        let goes_on = |f: &&Front| self.owner == Some(f.owner) && f.had < best.had + STINT as f64;
        let chosen = fronts.iter().filter(in_turn).filter(goes_on).min_by(|a, b| a.before(b));
        let chosen = chosen.unwrap_or(best).id;
        self.turn = self.turn.max(best.had);
        for waits in fronts.iter().filter(|f| !in_turn(f)) {
            // Whoever waits for others that are more urgent saves nothing up meanwhile, who waits for a limit no more than a
            // stint: later that would be at the cost of others.
            let least = if waits.may { best.had } else { best.had - STINT as f64 };
            self.had.entry(waits.owner).and_modify(|had| *had = had.max(least));
        }
        Some(chosen)
    }

    /// Owners without files of whom nothing need be known any more, looked for when there are many.
    fn forget(&mut self, accounts: &Accounts) {
        if self.had.len() > 2 * self.lines.len() + 16 {
            let waits: BTreeSet<u32> = self.lines.keys().map(|id| accounts.share(*id).0).collect();
            let turn = self.turn;
            self.had.retain(|owner, had| *had > turn || waits.contains(owner));
        }
    }

    /// What limits leave of this backlog for drives, each of which is worth `per_writer` bytes; None where none counts.
    pub fn limited(&self, accounts: &Accounts, holds: &Holds, per_writer: u64) -> Option<Limited> {
        if self.lines.keys().all(|id| accounts.caps_of(*id).is_empty()) {
            return None;
        }
        let mut left: Vec<u64> = accounts.caps.iter().map(|cap| u64::from(cap.drives)).collect();
        let mut limited = Limited { drives: 0, open: 0 };
        for (id, line) in &self.lines {
            let wanted = line.bytes.div_ceil(per_writer.max(1)).max(1);
            let caps = accounts.caps_of(*id);
            let allowed = caps.iter().filter_map(|cap| left.get(*cap).copied()).min();
            let drives = wanted.min(allowed.unwrap_or(u64::MAX));
            caps.iter().for_each(|cap| {
                if let Some(left) = left.get_mut(*cap) {
                    *left -= drives;
                }
            });
            limited.drives = limited.drives.saturating_add(drives);
            if holds.allows(accounts, *id, None) {
                limited.open = limited.open.saturating_add(line.bytes.max(1));
            }
        }
        Some(limited)
    }
}

/// How many drives a backlog keeps busy within the limits of those whose files wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Drives at once, if they begin together.
    pub drives: u64,
    /// Bytes that one more drive may take from now; 0: it would find nothing.
    pub open: u64,
}

/// Which drives hold files that they have taken and not yet written, of accounts with caps.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    /// Numbers of files, by cap and drive.
    files: BTreeMap<(usize, u64), u64>,
}

impl Holds {
    /// A drive takes a file.
    pub fn take(&mut self, accounts: &Accounts, account: AccountId, drive: u64) {
        for cap in accounts.caps_of(account) {
            *self.files.entry((*cap, drive)).or_default() += 1;
        }
    }

    /// It has written it, or gives it back.
    pub fn settle(&mut self, accounts: &Accounts, account: AccountId, drive: u64) {
        for cap in accounts.caps_of(account) {
            let files = self.files.get_mut(&(*cap, drive));
            let left = files.map_or(0, |files| {
                *files = files.saturating_sub(1);
                *files
            });
            if left == 0 {
                self.files.remove(&(*cap, drive));
            }
        }
    }

    /// Drives that count for a cap.
    pub fn drives(&self, cap: usize) -> usize {
        self.files.range((cap, 0)..=(cap, u64::MAX)).count()
    }

    /// Whether a drive may take a file of an account: it counts already, or one more may. None: a drive that holds nothing.
    pub fn allows(&self, accounts: &Accounts, account: AccountId, drive: Option<u64>) -> bool {
        accounts.caps_of(account).iter().all(|cap| {
            let counts = drive.is_some_and(|drive| self.files.contains_key(&(*cap, drive)));
            counts || accounts.caps.get(*cap).is_none_or(|most| self.drives(*cap) < most.drives as usize)
        })
    }
}
