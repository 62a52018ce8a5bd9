//! Pools of targets: layouts name them, and then nothing of their files comes to lie elsewhere. Where a target is chosen the others are left out, and the
//! catalogue refuses what would lie outside.

use crate::Node;
use crate::error::{failure, refused};
use catalog::Far;
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

    /// Whether all of a file lies in the pool that it is to lie in: a target that is taken out keeps what it has.
    pub(super) fn lies_in_pool(&self, far: &Far) -> catalog::Result<bool> {
        let Some(name) = &far.pool else { return Ok(true) };
        let pools = self.catalog.target_pools()?;
        let pool = pools.iter().find(|pool| pool.name == *name);
        let mut targets = far.layout.components.iter().flat_map(|component| &component.targets);
        Ok(targets.all(|target| pool.is_some_and(|pool| pool.targets.contains(target))))
    }

    /// Why a file gets no other targets of a pool (none: of all) though none of them is down.
    pub(super) fn no_room_for_it(&self, pool: Option<&str>) -> String {
        let of_pool = match pool {
            None => String::new(),
            Some(name) => {
                if self.catalog.target_pools().is_ok_and(|all| all.iter().all(|one| one.name != name)) {
                    return format!(
                        "there is no target pool {name}: `thermo target pool {name} --add TARGET`, or ask for another layout; it stays as it is"
                    );
                }
                format!(" of target pool {name}")
            }
        };
        format!("too few targets{of_pool} have room for it: see `thermo target ls`; it stays as it is")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use catalog::Reported;
    use layout::Candidate;
    use std::collections::BTreeSet;

    #[test]
    fn what_lies_outside_its_pool_is_told_from_what_lies_in_it_and_a_pool_that_is_gone_from_one_without_room()
    {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        for uuid in ["a", "b"] {
            let said = Reported { uuid, node: NodeId(1), data: &[], domain: uuid, capacity: 100, free: 50 };
            node.catalog.report_target(&said, crate::now(), crate::now()).unwrap();
        }
        let (one, both) = (vec![TargetId(1)], [1, 2].map(TargetId));
        node.catalog.change_target_pool("fast", &both, &[]).unwrap();
        let pool = Some("fast".to_owned());
        let rule = LayoutRule { unit_bytes: 4096, stripes: 2, copies: 1, parity: 0, then: vec![], pool };
        let from = both.map(|target| Candidate { target, domain: target.0, weight: 1 });
        let far = node.catalog.reserve_far(&rule, &from, &BTreeSet::new()).unwrap();
        let lies_in_it = |far: &Far| node.lies_in_pool(far).unwrap();
        assert!(lies_in_it(&far));
        node.catalog.change_target_pool("fast", &[], &one).unwrap();
        assert!(!lies_in_it(&far), "half of it does");
        assert!(lies_in_it(&Far { pool: None, ..far.clone() }));
        assert!(!lies_in_it(&Far { pool: Some("slow".to_owned()), ..far }));
        let why = node.no_room_for_it(Some("fast"));
        assert!(why.contains("too few targets of target pool fast have room"), "{why}");
        let why = node.no_room_for_it(Some("slow"));
        assert!(why.contains("there is no target pool slow: `thermo target pool slow --add"), "{why}");
        assert!(node.no_room_for_it(None).starts_with("too few targets have room"));
        node.stop(true);
    }
}
