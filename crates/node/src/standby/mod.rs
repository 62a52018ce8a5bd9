//! A warm standby of a node with the embedded engine: who follows whom, written down (`standby` in the state directory), and both ends.
//! How and why: `docs/design/0012-standby.md`.

mod feeder;
mod follow;
pub(crate) mod kept;
mod ledger;
mod link;
pub(crate) mod listen;

pub use crate::config::{StandbyConfig, StandbyMode, WhenAway};
pub(crate) use feeder::{Feeding, before_start};
pub use follow::{Followed, follow};
pub(crate) use ledger::Ledger;

use crate::error::{failure, refused};
use crate::{Config, Node};
use catalog::Catalog;
use std::sync::Arc;
use types::ErrorClass;
use wire::{Failure, StandbyView};

const PROGRAM: &str = concat!("thermo ", env!("CARGO_PKG_VERSION"));

/// Whether the node of this configuration is a standby, or becomes one now.
///
/// # Errors
/// Its state directory says something else than its configuration.
pub fn is_standby(config: &Config) -> Result<bool, Failure> {
    follow::is_standby(config)
}

/// What the catalogue of a standby needs before anybody uses it in a node: new objects must not be taken for those of the other node, and what was
/// acknowledged there and is missing here may be on tape behind what the catalogue knows.
pub(crate) fn settle_in(ledger: &Ledger, engine: Arc<dyn kv::Engine>) -> Result<(), Failure> {
    let settle = || {
        let catalog = Catalog::open(engine, crate::now())?;
        match ledger.get().behind {
            true => catalog.mark_restored(crate::now())?,
            false => catalog.skip_objects(crate::now())?,
        }
        // Targets take nothing more of the other node as soon as they hear of this one.
        catalog.turn_above(catalog.turn()?)?;
        catalog.sync()
    };
    settle().map_err(|e| refused("taking over", &e))
}

impl Node {
    pub(crate) fn standby_view(&self) -> Result<StandbyView, Failure> {
        let none =
            || failure(ErrorClass::NotFound, "this node has no standby ([standby] in its configuration)");
        self.feeding.get().ok_or_else(none)?.view(&self.config)
    }
}

/// The epoch in which a node that takes turns serves is its turn: drives of other hosts refuse whoever had an earlier one and does not know yet
/// that it is over. Devices know both by one number, so a turn is above every epoch that this host has served in.
pub(crate) fn serve_in_turn(ledger: &Ledger, engine: Arc<dyn kv::Engine>) -> Result<(), Failure> {
    let before = ledger.get().epoch;
    let turn = || {
        let catalog = Catalog::open(engine, crate::now())?;
        match catalog.turn()? {
            turn if turn > before => Ok(turn),
            _ => catalog.turn_above(before),
        }
    };
    let turn = turn().map_err(|e| refused("the turn", &e))?;
    ledger.change(|r| r.epoch = turn)
}

/// The highest epoch that a node knows which serves.
pub(crate) fn epoch(config: &Config) -> Result<u64, Failure> {
    Ok(Ledger::open(&config.state_dir)?.get().epoch)
}

/// The epoch that the node of this state directory serves in.
///
/// # Errors
/// Another node has taken over from it.
pub(crate) fn serving_epoch(state: &std::path::Path) -> Result<u64, Failure> {
    let record = Ledger::open(state)?.get();
    match record.replaced_by {
        Some(by) => Err(failure(ErrorClass::Denied, format!("{by} has taken over from this node"))),
        None => Ok(record.epoch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Record, Role};

    #[test]
    fn a_turn_is_above_each_epoch_that_the_host_has_served_in() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Arc::new(kv::MemoryEngine::new());
        let catalog = Catalog::open(engine.clone(), crate::now()).unwrap();
        let ledger = Ledger::open(dir.path()).unwrap();
        ledger.change(|r| r.epoch = 7).unwrap();
        serve_in_turn(&ledger, engine.clone()).unwrap();
        assert_eq!((catalog.turn().unwrap(), serving_epoch(dir.path()).unwrap()), (8, 8));
        // Another host had the turns between.
        assert_eq!(catalog.turn_above(20).unwrap(), 21);
        serve_in_turn(&ledger, engine.clone()).unwrap();
        assert_eq!((catalog.turn().unwrap(), serving_epoch(dir.path()).unwrap()), (21, 21));
        // A database that came back with less.
        let older = Arc::new(kv::MemoryEngine::new());
        let catalog = Catalog::open(older.clone(), crate::now()).unwrap();
        serve_in_turn(&ledger, older).unwrap();
        assert_eq!((catalog.turn().unwrap(), serving_epoch(dir.path()).unwrap()), (22, 22));
    }

    #[test]
    fn a_take_over_begins_a_turn_also_when_it_is_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let engine =
            Arc::new(crate::startup::open_engine(&dir.path().join("catalog"), None, None, None).unwrap());
        let ledger = Ledger::open(dir.path()).unwrap();
        let turn = || Catalog::open(engine.clone(), crate::now()).unwrap().turn().unwrap();
        assert_eq!(turn(), 0);
        for (n, behind) in (1..).zip([false, true]) {
            ledger.change(|r| *r = Record { role: Role::Taking, behind, ..Record::default() }).unwrap();
            settle_in(&ledger, engine.clone()).unwrap();
            assert_eq!(turn(), n);
        }
    }
}
