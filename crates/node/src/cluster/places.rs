//! Where the namespace is to be had: at the node that holds it, and at its standby, or who takes turns with it, which may come to hold it.

use super::{Own, directory, told};
use crate::Node;
use crate::error::failure;
use ident::Credentials;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::ErrorClass;
use wire::{Call, Failure, Reply, SubsystemView};

/// Addresses that a member remembers.
const MOST: usize = 8;

/// Where the namespaces of subsystems were last told to be had, by name of the subsystem; of the one whose host this is, by "".
#[derive(Default)]
pub(super) struct Places(Mutex<BTreeMap<String, Place>>);

struct Place {
    /// As the operator has said it.
    set: Vec<String>,
    /// As it was told, the likeliest first.
    told: Vec<String>,
}

impl Place {
    /// What the operator has said anew is likelier than what was told before.
    fn with(&self, set: &[String]) -> Vec<String> {
        if self.set == set { places(&self.told, set, set) } else { places(set, &self.told, set) }
    }
}

impl Places {
    /// Where one is to be had that was set to be at `set`: the likeliest first.
    pub(super) fn of(&self, name: &str, set: &[String]) -> Vec<String> {
        self.0.lock().get(name).map_or_else(|| set.to_vec(), |place| place.with(set))
    }

    /// Where one was last heard to be, who uses it already and may have been told at that time only where it was.
    pub(super) fn known(&self, name: &str) -> Option<Vec<String>> {
        self.0.lock().get(name).map(|place| place.with(&place.set))
    }

    /// The operator says now that it is at `set`.
    pub(super) fn note(&self, name: &str, set: &[String]) {
        let mut all = self.0.lock();
        let Some(place) = all.get_mut(name).filter(|place| place.set != set) else { return };
        *place = Place { set: set.to_vec(), told: place.with(set) };
    }
}

impl Node {
    /// Where the namespace of this host is to be had, which holds none: at the first node, or where its subsystem is.
    pub(crate) fn names_at(&self, own: &Own) -> Vec<String> {
        let set = &self.config.cluster.namespace;
        if set.is_empty() { own.credentials.addresses.clone() } else { self.membership.places.of("", set) }
    }

    /// Asks who holds the names that were set to be had at `set`, and notes where else they are: of the subsystem of that name, or (None) of whichever there is.
    pub(super) fn ask_names(
        &self,
        own: &Arc<Own>,
        name: Option<&str>,
        set: &[String],
    ) -> Result<SubsystemView, Failure> {
        let known = self.membership.places.of(name.unwrap_or_default(), set);
        let Reply::Subsystem(found) = own.ask_any(&known, Call::Subsystem)? else {
            return Err(failure(
                ErrorClass::Bug,
                "whose names there are was asked for, and something else came",
            ));
        };
        if name.is_none() || found.name.as_deref() == name {
            let place = Place { set: set.to_vec(), told: places(&found.addresses, &known, set) };
            self.membership.places.0.lock().insert(name.unwrap_or_default().into(), place);
        }
        Ok(*found)
    }

    /// What a member is told who asks; the likeliest first.
    pub(crate) fn namespace_addresses(&self) -> Vec<String> {
        match self.membership() {
            Ok(Some(own)) if !own.holds_names() => self.names_at(&own),
            _ => [self.config.cluster.control(), self.config.standby.to.clone(), self.turns.addresses()]
                .concat(),
        }
    }

    /// Hears from the node that holds the namespace where else it may be had, and keeps that.
    ///
    /// # Errors
    /// It cannot be asked, or what it says cannot be kept.
    pub fn hear_of_places(&self) -> Result<(), Failure> {
        let Some(own) = self.membership()?.filter(|own| !own.admits()) else {
            return Ok(());
        };
        let asked = self.hear_of_subsystems(&own);
        let known = &own.credentials.addresses;
        let Reply::Addresses(told_now) = own.ask_any(known, Call::ClusterAddresses)? else {
            return Err(failure(ErrorClass::Bug, "addresses were asked for, and something else came"));
        };
        let all = places(&told_now, known, &[]);
        if told_now.is_empty() || all == *known {
            return asked;
        }
        {
            let _one_at_a_time = self.membership.changes.lock();
            Credentials::keep_addresses(&directory(&self.config.state_dir), &all).map_err(told)?;
        }
        self.membership.forget();
        tracing::info!("the namespace of the cluster is to be had at {}", all.join(", "));
        asked
    }

    /// The same of those that this host uses besides; why one could not be asked.
    fn hear_of_subsystems(&self, own: &Arc<Own>) -> Result<(), Failure> {
        let set = &self.config.cluster.namespace;
        let own_names = (!set.is_empty()).then(|| (String::new(), set.clone()));
        let led = self
            .membership
            .places
            .0
            .lock()
            .iter()
            .map(|(name, at)| (name.clone(), at.set.clone()))
            .collect::<Vec<_>>();
        let led = led.into_iter().filter(|(name, _)| !name.is_empty());
        let ask = |(name, set): (String, Vec<String>)| {
            self.ask_names(own, (!name.is_empty()).then_some(name.as_str()), &set)
        };
        let asked: Vec<_> = own_names.into_iter().chain(led).map(ask).collect();
        asked.into_iter().try_for_each(|found| found.map(drop))
    }
}

/// What was told, and behind it what was known before: a node that has just taken over has no standby yet, and who knows only that one finds nobody when
/// the next takes over from it. Those that the operator has set are always among them.
fn places(told_now: &[String], known: &[String], set: &[String]) -> Vec<String> {
    let before = known.iter().filter(|address| !told_now.contains(address));
    let all: Vec<&String> = told_now.iter().chain(before).collect();
    let set_here = all.iter().filter(|address| set.contains(address)).count();
    let mut room = MOST.saturating_sub(set_here);
    let mut stays = |address: &&String| {
        let others = !set.contains(address);
        let stays = !others || room > 0;
        room -= usize::from(others && stays);
        stays
    };
    all.into_iter().filter(|address| stays(address)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_told_of_one_node_still_knows_the_other() {
        let all = |addresses: &[&str]| addresses.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
        let places = |told: &[String], known: &[String]| super::places(told, known, &[]);
        assert_eq!(places(&all(&["b"]), &all(&["a", "b"])), ["b", "a"]);
        assert_eq!(places(&all(&["a", "b"]), &all(&["b", "a"])), ["a", "b"]);
        let many: Vec<String> = (0..2 * MOST).map(|n| n.to_string()).collect();
        assert_eq!(places(&all(&["a"]), &many).len(), MOST);
    }

    #[test]
    fn what_the_operator_has_set_anew_is_asked_first_and_is_never_forgotten() {
        let all = |addresses: &[&str]| addresses.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
        let eight: Vec<String> = (0..MOST).map(|n| n.to_string()).collect();
        assert_eq!(super::places(&eight, &all(&["new"]), &all(&["new"]))[MOST - 1], "new");
        assert_eq!(super::places(&all(&["a", "b"]), &eight, &eight).len(), MOST);
        let places = Places::default();
        places.note("s", &eight); // nobody uses it
        assert_eq!((places.known("s"), places.of("s", &all(&["a"]))), (None, all(&["a"])));
        places.0.lock().insert("s".into(), Place { set: all(&["a", "b"]), told: all(&["b", "c", "a"]) });
        places.note("s", &all(&["a", "b"]));
        assert_eq!(places.known("s"), Some(all(&["b", "c", "a"])));
        places.note("s", &all(&["d"]));
        assert_eq!(places.known("s"), Some(all(&["d", "b", "c", "a"])));
        assert_eq!(places.of("s", &all(&["e"]))[0], "e", "one that is to be asked before it is noted");
        places.note("s", &eight);
        assert_eq!(places.known("s"), Some(eight));
    }
}
