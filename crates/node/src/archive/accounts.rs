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
    ids: BTreeMap<(u32, u32, ClassName), AccountId>,
    /// What the scheduler sees.
    pub all: Accounts,
}

impl AccountTable {
    /// The number of an asker. Group and class tell accounts apart only where a limit looks at them.
    pub fn id(&mut self, limits: &[LimitConfig], who: &Asker<'_>) -> AccountId {
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
        let capping: Vec<&LimitConfig> = limits.iter().filter(|limit| limit.drives.is_some()).collect();
        if self.all.caps.is_empty() {
            let cap = |l: &&LimitConfig| Cap { name: l.name.clone(), drives: l.drives.unwrap_or(u32::MAX) };
            self.all.caps = capping.iter().map(cap).collect();
        }
        let caps = capping.iter().enumerate().filter(|(_, limit)| limit.counts_for(who)).map(|(n, _)| n);
        let account = Account { owner: who.uid, weight: weight_of(limits, who), caps: caps.collect() };
        let id = AccountId(self.all.list.len() as u32);
        self.all.list.push(account);
        self.ids.insert(key, id);
        id
    }

    /// Owner of an account.
    pub fn owner(&self, id: AccountId) -> Option<u32> {
        self.all.list.get(id.0 as usize).map(|account| account.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_told_apart_by_what_limits_look_at() {
        let mut table = AccountTable::default();
        let (a, b) = (ClassName("a".into()), ClassName("b".into()));
        let who = |uid, class| Asker { uid, gid: uid, class };
        assert_eq!(table.id(&[], &who(1, &a)), table.id(&[], &who(1, &b)));
        assert_ne!(table.id(&[], &who(1, &a)), table.id(&[], &who(2, &a)));
        let limit = |name: &str, class: Option<&str>, drives| LimitConfig {
            name: name.into(),
            class: class.map(Into::into),
            drives,
            ..LimitConfig::default()
        };
        let limits = [limit("w", None, None), limit("all", None, Some(4)), limit("b", Some("b"), Some(1))];
        let mut table = AccountTable::default();
        let ids = [table.id(&limits, &who(1, &a)), table.id(&limits, &who(1, &b))];
        let caps = ids.map(|id| table.all.list[id.0 as usize].caps.clone());
        assert_eq!((caps, table.owner(ids[1])), ([vec![0], vec![0, 1]], Some(1)));
        assert_eq!(table.all.caps[1], Cap { name: "b".into(), drives: 1 });
    }
}
