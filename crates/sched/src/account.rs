//! For whom something is done: fair shares of the drives between owners, and limits of what may be taken at once.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use types::Time;

/// After this long the use of a drive counts half.
const HALF_LIFE: Duration = Duration::from_secs(3600);

/// Number of an account in [`Accounts::list`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub u32);

/// Whom a wish for files is put down to.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The owner: all accounts of one owner share what is his.
    pub owner: u32,
    /// Share of the drives, in proportion to those of others (above 0).
    pub weight: f64,
    /// Caps that count for it, by their place in [`Accounts::caps`].
    pub caps: Vec<usize>,
}

impl Default for Account {
    fn default() -> Self {
        Self { owner: 0, weight: 1.0, caps: Vec::new() }
    }
}

/// Most drives at once for all accounts that it counts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Name for people.
    pub name: String,
    /// Drives.
    pub drives: u32,
}

/// All accounts, and what their owners have used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accounts {
    /// By [`AccountId`]; one that is not here has weight 1, owner 0 and no caps.
    pub list: Vec<Account>,
    /// Limits.
    pub caps: Vec<Cap>,
    /// What owners have used.
    pub used: Shares,
}

impl Accounts {
    /// Owner and weight of an account; a weight that is none counts as 1.
    pub(crate) fn share(&self, id: AccountId) -> (u32, f64) {
        let found = self.list.get(id.0 as usize);
        found.map_or((0, 1.0), |a| (a.owner, if a.weight > 0.0 { a.weight } else { 1.0 }))
    }

    /// Caps that count for an account.
    pub(crate) fn caps_of(&self, id: AccountId) -> &[usize] {
        self.list.get(id.0 as usize).map_or(&[], |a| &a.caps)
    }
}

/// Time of drives that owners have used, older use counting less. Plain data that can be kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    used: BTreeMap<u32, (f64, Time)>,
}

impl Shares {
    /// A drive worked for so long (seconds) for an owner.
    pub fn charge(&mut self, owner: u32, seconds: f64, now: Time) {
        let before = self.used(owner, now);
        self.used.insert(owner, (before + seconds.max(0.0), now));
        // Whoever has used nothing for days need not be remembered.
        self.used.retain(|_, (used, at)| faded(*used, *at, now) >= 0.01);
    }

    /// What an owner has used (seconds).
    pub fn used(&self, owner: u32, now: Time) -> f64 {
        self.used.get(&owner).map_or(0.0, |(used, at)| faded(*used, *at, now))
    }
}

fn faded(used: f64, at: Time, now: Time) -> f64 {
    used * 0.5f64.powf(now.since(at).as_secs_f64() / HALF_LIFE.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_fades_and_is_forgotten() {
        let mut shares = Shares::default();
        let at = |hours: i64| Time::new(1_000_000 + hours * 3600, 0);
        shares.charge(7, 100.0, at(0));
        assert_eq!((shares.used(7, at(0)), shares.used(7, at(2)), shares.used(8, at(0))), (100.0, 25.0, 0.0));
        shares.charge(7, 5.0, at(2));
        assert_eq!(shares.used(7, at(2)), 30.0);
        shares.charge(9, 1.0, at(48));
        assert_eq!(shares.used.len(), 1);
    }
}
