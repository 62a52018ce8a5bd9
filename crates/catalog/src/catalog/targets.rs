//! Disk targets of the cluster.

use super::Catalog;
use crate::Result;
use crate::ops::target_pools;
use crate::ops::targets::{self, Reported};
use types::{Target, TargetId, TargetPool, Time};

impl Catalog {
    /// The turn of whoever serves: targets take nothing of those before.
    pub fn turn(&self) -> Result<u64> {
        self.read(targets::turn)
    }

    /// Raises the turn, if need be, above another one, durably: that of who served before, or one that a target has heard of although this catalogue has
    /// not (it is from a backup). Nobody can whose turn is over.
    pub fn turn_above(&self, other: u64) -> Result<u64> {
        self.durable(|tx| targets::turn_above(tx, other))
    }

    /// All targets, in order of their numbers.
    pub fn targets(&self) -> Result<Vec<Target>> {
        self.read(targets::all)
    }

    /// Says whether a target gets no new files, and whether it will never come back. Durable.
    pub fn set_target(&self, id: TargetId, draining: bool, lost: bool) -> Result<Target> {
        self.durable(|tx| targets::set(tx, id, draining, lost))
    }

    /// Targets that were taken out of the list, as they were then.
    pub fn removed_targets(&self) -> Result<Vec<Target>> {
        self.read(targets::removed)
    }

    /// Takes a target out of the list on which, as the caller has seen, nothing lies. Refused unless it gets no new files, so that nothing can have come
    /// to lie there since. Durable.
    pub fn remove_target(&self, id: TargetId) -> Result<Target> {
        self.durable(|tx| targets::remove(tx, id))
    }

    /// All pools of targets, in order of their names.
    pub fn target_pools(&self) -> Result<Vec<TargetPool>> {
        self.read(target_pools::all)
    }

    /// Puts targets into a pool, which is made if it is not there, and takes others out. What lies on them stays there. Durable.
    pub fn change_target_pool(
        &self,
        name: &str,
        add: &[TargetId],
        remove: &[TargetId],
    ) -> Result<TargetPool> {
        self.durable(|tx| target_pools::change(tx, name, add, remove))
    }

    /// Takes away a pool that has no targets. Durable.
    pub fn delete_target_pool(&self, name: &str) -> Result<()> {
        self.durable(|tx| target_pools::delete(tx, name))
    }

    /// Takes note of what a node says of a target; one that is not known gets a number, durably. Refused if another node has served it
    /// since `lately`.
    pub fn report_target(&self, said: &Reported<'_>, now: Time, lately: Time) -> Result<Target> {
        let known = self.targets()?.iter().any(|target| target.uuid == said.uuid);
        if known {
            return self.relaxed(|tx| targets::report(tx, said, now, lately));
        }
        self.durable(|tx| targets::report(tx, said, now, lately))
    }
}
