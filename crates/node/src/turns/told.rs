//! What nodes that take turns tell each other in the database.

use crate::Config;
use crate::engine::{class, owner};
use crate::error::failure;
use crate::startup::io;
use kv::{Seen, Taker};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use types::{NodeId, Time};
use wire::{Failure, TurnNode, TurnState, TurnsView};

/// Leases after which one that has told nothing counts as away.
const AWAY: u32 = 2;

/// What one tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Told {
    /// It has been waiting, or serving, since then (seconds since 1970).
    pub(super) since: i64,
    /// Name of its host.
    pub(super) host: String,
    /// Its number in the cluster.
    pub(super) member: Option<u32>,
    /// Where it is called when it serves.
    pub(super) addresses: Vec<String>,
    /// Why it could not serve.
    pub(super) lacks: Option<String>,
}

impl Told {
    pub(super) fn of(config: &Config, since: i64) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { since, host, addresses: config.cluster.control(), ..Self::default() }
    }

    /// What another release has told may be understood in part.
    pub(super) fn read(text: &str) -> Self {
        toml::from_str(text).unwrap_or_default()
    }
}

/// The way to the others.
pub(super) struct Way {
    turns: Box<dyn kv::Turns>,
    pub(super) name: String,
}

impl Way {
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        let address = config.catalog.engine.as_deref().unwrap_or_default();
        let name = owner(&config.state_dir).map_err(|e| io(&config.state_dir, &e))?;
        let turns = kv::watch_database(address, &name).map_err(|e| failure(class(&e), e.to_string()))?;
        Ok(Self { turns, name })
    }

    /// For tests: where nobody but those are.
    #[cfg(test)]
    pub(super) fn over(turns: impl kv::Turns + 'static) -> Self {
        Self { turns: Box::new(turns), name: "own".into() }
    }

    /// Tells the others, and looks.
    pub(super) fn tell(&mut self, told: &Told) -> Result<Seen, Failure> {
        // Nothing in it is anything that TOML does not know.
        let text = toml::to_string(told).unwrap_or_default();
        self.turns.tell(&text).map_err(|e| failure(class(&e), e.to_string()))
    }
}

/// The same for people; who serves comes first.
pub(super) fn view(seen: &Seen, lease: Duration, waits: bool) -> TurnsView {
    let serves =
        |taker: &Taker| seen.owner.as_ref().is_some_and(|owner| owner.live && owner.name == taker.name);
    let node = |taker: &Taker| {
        let told = Told::read(&taker.told);
        let state = match serves(taker) {
            true => TurnState::Serves,
            false if taker.ago > lease * AWAY => TurnState::Away,
            false => TurnState::Waits,
        };
        TurnNode {
            host: told.host,
            node: told.member.map(NodeId),
            addresses: told.addresses,
            state,
            since: Time::new(told.since, 0),
            heard_s: taker.ago.as_secs(),
            lacks: told.lacks,
        }
    };
    let mut nodes: Vec<_> = seen.takers.iter().map(node).collect();
    nodes.sort_by_key(|node| (node.state as u8, node.node));
    let lease_s = u32::try_from(lease.as_secs()).unwrap_or(u32::MAX);
    TurnsView { waits, lease_s, trouble: None, nodes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::SeenOwner;

    #[test]
    fn who_serves_is_who_has_the_lease_and_who_is_silent_is_away() {
        let taker = |name: &str, member, ago| {
            let told = Told { member: Some(member), host: format!("host {name}"), ..Told::default() };
            Taker { name: name.into(), told: toml::to_string(&told).unwrap(), ago: Duration::from_secs(ago) }
        };
        let owner = |live| Some(SeenOwner { name: "b".into(), reached: kv::Reached::default(), live });
        let takers = vec![taker("a", 1, 3), taker("b", 2, 25), taker("c", 3, 21)];
        let states = |seen: &Seen| -> Vec<_> {
            let view = view(seen, Duration::from_secs(10), true);
            view.nodes.iter().map(|node| (node.node.unwrap().0, node.state)).collect()
        };
        let seen = Seen { owner: owner(true), takers: takers.clone() };
        use TurnState::{Away, Serves, Waits};
        assert_eq!(states(&seen), [(2, Serves), (1, Waits), (3, Away)]);
        let seen = Seen { owner: owner(false), takers };
        assert_eq!(states(&seen), [(1, Waits), (2, Away), (3, Away)]);
        assert_eq!(Told::read("what = \"else\""), Told::default());
    }
}
