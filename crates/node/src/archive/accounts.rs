//! For whom files are recalled and written: numbers for the scheduler, made as they are needed from the limits of the
//! configuration.

use crate::limits::{Asker, LimitConfig, weight_of};
use sched::{Account, AccountId, Accounts, Cap};
use std::collections::BTreeMap;
use types::ClassName;

/// Owner of what nobody asked for.
const NOBODY: u32 = u32::MAX;

/// Everybody who has asked for files, or had some written, since the start.
#[derive(Default)]
pub struct AccountTable {
    limits: Vec<LimitConfig>,
    ids: BTreeMap<(u32, u32, ClassName), AccountId>,
    /// What the scheduler sees.
    pub all: Accounts,
}

impl AccountTable {
    /// The number of an asker. Group and class tell accounts apart only where a limit looks at them.
    pub fn id(&mut self, who: &Asker<'_>) -> AccountId {
        let limits = &self.limits;
        let gid = if limits.iter().any(|limit| limit.group.is_some()) { who.gid } else { 0 };
        let by_class = limits.iter().any(|limit| limit.class.is_some());
        let class = if by_class { who.class.clone() } else { ClassName(String::new()) };
        let key = (who.uid, gid, class);
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        if self.all.list.is_empty() {
            // What is brought back for nobody.
            self.all.list.push(Account { owner: NOBODY, ..Account::default() });
        }
        let capping = limits.iter().filter(|limit| limit.drives.is_some() && limit.counts_for(who));
        let caps = capping.map(|limit| cap(&mut self.all.caps, limit)).collect();
        let account = Account { owner: who.uid, weight: weight_of(limits, who), caps };
        let id = AccountId(self.all.list.len() as u32);
        self.all.list.push(account);
        self.ids.insert(key, id);
        id
    }

    /// The limits are these from now on. What waits stays with its account: the limits that it had count for it, by their names, with the numbers
    /// of drives of now; none that is new. Who asks from now on gets a new account.
    pub fn renew(&mut self, limits: &[LimitConfig]) {
        if self.limits == limits {
            return;
        }
        self.ids.clear();
        self.limits = limits.to_vec();
        for cap in &mut self.all.caps {
            let limit = limits.iter().find(|limit| limit.name == cap.name);
            cap.drives = limit.and_then(|limit| limit.drives).unwrap_or(u32::MAX);
        }
    }

    /// Owner of an account.
    pub fn owner(&self, id: AccountId) -> Option<u32> {
        self.all.list.get(id.0 as usize).map(|account| account.owner)
    }
}

/// Where the cap of a limit is: it stays there, because drives that work are counted by it.
fn cap(caps: &mut Vec<Cap>, limit: &LimitConfig) -> usize {
    let known = caps.iter().position(|cap| cap.name == limit.name);
    known.unwrap_or_else(|| {
        caps.push(Cap { name: limit.name.clone(), drives: limit.drives.unwrap_or(u32::MAX) });
        caps.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_told_apart_by_what_limits_look_at() {
        let mut table = AccountTable::default();
        let (a, b) = (ClassName("a".into()), ClassName("b".into()));
        let who = |uid, class| Asker { uid, gid: uid, class };
        assert_eq!(table.id(&who(1, &a)), table.id(&who(1, &b)));
        assert_ne!(table.id(&who(1, &a)), table.id(&who(2, &a)));
        let limit = |name: &str, class: Option<&str>, drives| LimitConfig {
            name: name.into(),
            class: class.map(Into::into),
            drives,
            ..LimitConfig::default()
        };
        let limits = [limit("w", None, None), limit("all", None, Some(4)), limit("b", Some("b"), Some(1))];
        let mut table = AccountTable::default();
        table.renew(&limits);
        let ids = [table.id(&who(1, &a)), table.id(&who(1, &b))];
        let caps = ids.map(|id| table.all.list[id.0 as usize].caps.clone());
        assert_eq!((caps, table.owner(ids[1])), ([vec![0], vec![0, 1]], Some(1)));
        assert_eq!(table.all.caps[1], Cap { name: "b".into(), drives: 1 });
        // One limit is gone, one allows more, and one is new.
        let limits = [limit("new", None, Some(2)), limit("b", Some("b"), Some(3))];
        table.renew(&limits);
        let drives = |table: &AccountTable| table.all.caps.iter().map(|cap| cap.drives).collect::<Vec<_>>();
        assert_eq!(drives(&table), [u32::MAX, 3], "those that wait are counted as before");
        let again = table.id(&who(1, &b));
        assert!(!ids.contains(&again) && table.owner(again) == Some(1), "one owner has one share");
        assert_eq!(
            (&*table.all.list[again.0 as usize].caps, drives(&table)),
            (&[2, 1][..], vec![u32::MAX, 3, 2])
        );
        table.renew(&[limit("all", None, Some(4))]);
        assert_eq!(drives(&table), [4, u32::MAX, u32::MAX], "a limit that comes back is where it was");
    }
}
