//! Several nodes with one database take turns: one serves, and the others wait until its lease ends. How and why:
//! `docs/design/0014-turns.md`.

mod known;
mod told;
mod wait;

pub use wait::{Turn, Waited, wait_for_turn};

use crate::Node;
use crate::error::failure;
use crate::standby::kept;
use known::Known;
use kv::Seen;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use told::Told;
use types::{ErrorClass, NodeId};
use wire::{Failure, KeptFile, TurnState, TurnsView};

/// Looks at the others in one lease.
const LOOKS: u32 = 5;
/// Longest time between two of them.
const LONGEST: Duration = Duration::from_secs(1);

/// Pause between two looks.
fn pause(lease: Duration) -> Duration {
    (lease / LOOKS).min(LONGEST)
}

/// What a node that serves knows of the others.
#[derive(Default)]
pub(crate) struct Turns(Mutex<Looked>);

#[derive(Default)]
struct Looked {
    /// This node's name there.
    name: String,
    seen: Seen,
    trouble: Option<String>,
}

impl Turns {
    /// What the node of this name saw while it waited: the owner is the one before it then.
    pub(crate) fn begin_with(&self, name: &str, seen: Seen) {
        *self.0.lock() = Looked { name: name.into(), seen, trouble: None };
    }

    /// Where the others are called when they serve.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let looked = self.0.lock();
        let others = looked.seen.takers.iter().filter(|taker| taker.name != looked.name);
        others.flat_map(|taker| Told::read(&taker.told).addresses).collect()
    }
}

/// Tells the others of this node, if it takes turns, until it stops.
pub(crate) fn keep_telling(node: &Arc<Node>) -> Result<(), Failure> {
    let Some(lease) = node.config.turn() else { return Ok(()) };
    let mut way = told::Way::of(&node.config)?;
    let since = crate::now().secs;
    let telling = node.clone();
    let spawned = crate::startup::spawn(Some(node), "turns", move || {
        loop {
            let member = telling.membership().ok().flatten().and_then(|own| own.number());
            let seen = way.tell(&Told { member, ..Told::of(&telling.config, since) });
            {
                let mut looked = telling.turns.0.lock();
                match seen {
                    Ok(seen) => (looked.seen, looked.trouble) = (seen, None),
                    Err(e) => looked.trouble = Some(e.message),
                }
            }
            if telling.stops_within(pause(lease)) {
                return;
            }
        }
    });
    spawned.map(drop)
}

impl Node {
    /// Whether what this node says counts: no other one has gone on in its place, and none may have.
    ///
    /// # Errors
    /// One has, or may have.
    pub fn counts(&self) -> Result<(), Failure> {
        self.engine_moves.is_held()
    }

    /// Why the turn of this node is over, if it is. A database that has lost changes ends none: somebody has to look first.
    pub fn turn_is_over(&self) -> Option<Failure> {
        self.engine_moves.is_lost()
    }

    /// Whether the database has lost changes in this node's turn: nobody may go on with it before somebody has looked, this node neither when it is started again.
    pub fn database_is_behind(&self) -> bool {
        self.engine_moves.is_rewound()
    }

    /// Its turn ends, or the database has lost something in it: writes down how far it has brought the database, so that one that comes back with less is known to
    /// have lost something.
    pub fn keep_reached(&self) {
        let Some(reached) = self.engine_moves.reached() else { return };
        let state = &self.config.state_dir;
        let name = crate::engine::owner(state).map_err(|e| crate::startup::io(state, &e));
        let kept = name.and_then(|name| Known::open(state)?.goes_on(&name, reached));
        if let Err(e) = kept {
            tracing::error!("how far the database is was not written down: {e}");
        }
    }

    /// Whether it was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.lock().is_some()
    }

    /// Who serves, and who waits.
    pub(crate) fn turns_view(&self) -> Result<TurnsView, Failure> {
        let none = || {
            let message = "this node takes turns with nobody (catalog.take_turns_s in its configuration)";
            failure(ErrorClass::NotFound, message)
        };
        let lease = self.config.turn().ok_or_else(none)?;
        let looked = self.turns.0.lock();
        Ok(TurnsView { trouble: looked.trouble.clone(), ..told::view(&looked.seen, lease, false) })
    }

    /// What an operator should look at.
    pub(crate) fn turns_warning(&self) -> Option<String> {
        let view = self.turns_view().ok()?;
        if let Some(trouble) = view.trouble {
            return Some(format!("who waits to take over from this node is not known: {trouble}"));
        }
        let mut waiting = view.nodes.iter().filter(|node| node.state == TurnState::Waits).peekable();
        if waiting.peek().is_none() {
            return Some("no other node waits to take over from this one (`thermo cluster status`)".into());
        }
        let ready = waiting.clone().any(|node| node.lacks.is_none());
        let why = waiting.next().and_then(|node| node.lacks.clone());
        why.filter(|_| !ready).map(|why| format!("no other node could take over from this one yet: {why}"))
    }

    /// What a node that waits needs to serve the cluster; it is one of those that have the database.
    pub(crate) fn kept_for(&self, id: NodeId) -> Result<Vec<KeptFile>, Failure> {
        let waits = self.turns_view().is_ok_and(|view| {
            view.nodes.iter().any(|node| node.node == Some(id) && node.state == TurnState::Waits)
        });
        if !waits {
            let message = format!("{id} is not seen to wait for its turn with the database of this node");
            return Err(failure(ErrorClass::Denied, message));
        }
        kept::gather(&self.config.state_dir, self.config.cluster.subsystem.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Reached, SeenOwner, Taker};

    #[test]
    fn a_turn_begins_with_the_addresses_of_all_but_itself() {
        let taker = |name: &str| {
            let told = Told { addresses: vec![format!("{name}:1")], ..Told::default() };
            Taker { name: name.into(), told: toml::to_string(&told).unwrap(), ago: Duration::ZERO }
        };
        let owner = SeenOwner { name: "before".into(), reached: Reached::default(), live: false };
        let seen = Seen { owner: Some(owner), takers: ["before", "own", "third"].map(taker).into() };
        let turns = Turns::default();
        turns.begin_with("own", seen);
        assert_eq!(turns.addresses(), ["before:1", "third:1"]);
    }
}
