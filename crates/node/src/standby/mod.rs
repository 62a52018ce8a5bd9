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

/// Before anybody uses the catalogue in a node that serves. The epoch of one that takes turns is its turn: drives of other hosts refuse whoever had an earlier
/// one and does not know yet that it is over. Devices know turns and the epochs of a standby by one number, so a turn is above every epoch that this host
/// has served in, and who takes turns no more, or not yet, serves in the turn that the catalogue has. Of a node and its standby take-overs alone raise the epoch:
/// the catalogue of one that was replaced may have the higher turn.
pub(crate) fn begin(ledger: &Ledger, config: &Config, engine: Arc<dyn kv::Engine>) -> Result<(), Failure> {
    if ledger.has_taken_over() {
        settle_in(ledger, engine.clone())?;
    }
    let before = ledger.get();
    // Over a database there are no pairs; there may have been one before.
    let pair = config.catalog.engine.is_none() && (before.standby.is_some() || before.of.is_some());
    let in_turn = config.takes_turns();
    if !in_turn && (pair || !config.standby.to.is_empty() || config.standby.of.is_some()) {
        return Ok(());
    }
    let turn = || {
        let catalog = Catalog::open(engine, crate::now())?;
        match catalog.turn()? {
            turn if in_turn && turn <= before.epoch => catalog.turn_above(before.epoch),
            turn => Ok(turn),
        }
    };
    let turn = turn().map_err(|e| refused("the turn", &e))?;
    if turn > before.epoch { ledger.change(|r| r.epoch = turn) } else { Ok(()) }
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
        let mut config = Config::default();
        config.catalog.engine = Some("postgres:///x".into());
        config.catalog.take_turns_s = Some(5);
        assert!(config.takes_turns());
        let open = |engine: &Arc<kv::MemoryEngine>| Catalog::open(engine.clone(), crate::now()).unwrap();
        let (engine, older) = (Arc::new(kv::MemoryEngine::new()), Arc::new(kv::MemoryEngine::new()));
        let ledger = Ledger::open(dir.path()).unwrap();
        ledger.change(|r| r.epoch = 7).unwrap();
        let serves = |engine: &Arc<kv::MemoryEngine>, config: &Config| {
            begin(&ledger, config, engine.clone()).unwrap();
            (open(engine).turn().unwrap(), serving_epoch(dir.path()).unwrap())
        };
        assert_eq!(serves(&engine, &config), (8, 8));
        // Another host had the turns between.
        assert_eq!(open(&engine).turn_above(20).unwrap(), 21);
        assert_eq!(serves(&engine, &config), (21, 21));
        // A database that came back with less.
        assert_eq!(serves(&older, &config), (22, 22));
        // The other one had another turn, and this one goes on alone.
        assert_eq!(open(&older).turn_above(30).unwrap(), 31);
        let alone = Config::default();
        assert_eq!(serves(&older, &alone), (31, 31));
        // Of a pair the catalogue of the one that was taken over from may be ahead.
        assert_eq!(open(&older).turn_above(40).unwrap(), 41);
        ledger.change(|r| r.standby = Some(2)).unwrap();
        assert_eq!(serves(&older, &alone), (41, 31));
        // Until its catalogue is in a database.
        let mut database = Config::default();
        database.catalog.engine = Some("postgres:///x".into());
        assert_eq!(serves(&older, &database), (41, 41));
    }

    #[test]
    fn a_node_alone_writes_nothing_down() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path()).unwrap();
        begin(&ledger, &Config::default(), Arc::new(kv::MemoryEngine::new())).unwrap();
        assert!(!ledger.exists());
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
