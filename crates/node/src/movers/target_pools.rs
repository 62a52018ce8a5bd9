//! Pools of targets: layouts name them, and then nothing of their files comes to lie elsewhere. Where a target is chosen the others are left out, and the
//! catalogue refuses what would lie outside.

use crate::Node;
use crate::error::{failure, refused};
use types::*;
use wire::{Failure, TargetPoolOrder};

impl Node {
    /// Says which targets belong to a pool.
    pub(crate) fn change_target_pool(&self, order: &TargetPoolOrder) -> Result<(), Failure> {
        let TargetPoolOrder { name, add, remove, delete } = order;
        if !TargetPool::is_name(name) {
            let message = format!(
                "{}: the name of a target pool has at most {MAX_TARGET_POOL} letters, digits, dots, hyphens and underscores, and does not begin with a hyphen",
                escape(name.as_bytes())
            );
            return Err(failure(ErrorClass::Invalid, message));
        }
        if self.membership()?.is_none_or(|own| !own.holds_names()) {
            let message =
                "pools of targets are changed at the cluster's first node; see `thermo cluster status`";
            return Err(failure(ErrorClass::Invalid, message));
        }
        let fail = |e| refused("target pools", &e);
        match delete {
            true if add.is_empty() && remove.is_empty() => {
                self.catalog.delete_target_pool(name).map_err(fail)?
            }
            true => {
                let message = "a pool is taken away by itself, once it has no targets";
                return Err(failure(ErrorClass::Invalid, message));
            }
            false => drop(self.catalog.change_target_pool(name, add, remove).map_err(fail)?),
        }
        self.tell_of_pools();
        Ok(())
    }

    /// The log has it from the moment on that a pool takes no files.
    pub(super) fn tell_of_pools(&self) {
        match self.pool_warnings() {
            Ok(all) => all.iter().for_each(|told| tracing::warn!("{told}")),
            Err(e) => tracing::error!("whether all target pools take files is not known: {}", e.message),
        }
    }

    /// Pools that take no files, and what to do; nothing where the records of targets are not kept.
    pub(crate) fn pool_warnings(&self) -> Result<Vec<String>, Failure> {
        if self.membership()?.is_none_or(|own| !own.holds_names()) {
            return Ok(Vec::new());
        }
        let pools = self.catalog.target_pools().map_err(|e| refused("target pools", &e))?;
        if pools.is_empty() {
            return Ok(Vec::new());
        }
        let views = self.target_views()?;
        Ok(pools.iter().filter_map(|pool| pool.trouble(&views)).collect())
    }

    /// Targets on which files of a rule may lie; refused if it names a pool without any.
    pub(super) fn targets_for(&self, rule: &LayoutRule) -> Result<u64, Failure> {
        let fail = |e| refused("the targets", &e);
        let Some(name) = &rule.pool else { return Ok(self.catalog.targets().map_err(fail)?.len() as u64) };
        let pools = self.catalog.target_pools().map_err(fail)?;
        match pools.iter().find(|pool| pool.name == *name).map_or(0, |pool| pool.targets.len()) {
            0 => {
                let message = format!(
                    "no target is in target pool {}; `thermo target ls` shows the pools of each, `thermo target pool` puts targets into one",
                    escape(name.as_bytes())
                );
                Err(failure(ErrorClass::NotFound, message))
            }
            count => Ok(count as u64),
        }
    }
}
