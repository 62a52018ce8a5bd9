//! Where the namespace is to be had: at the node that holds it, and at its standby, or who takes turns with it, which may come to hold it.

use super::changes::{signer, tell};
use super::{Own, ask, directory, told};
use crate::Node;
use crate::error::failure;
use ident::{Connector, Credentials};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use types::{ErrorClass, Member, MemberId};
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
    /// The namespace that was found there.
    site: Option<String>,
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
        *place = Place { set: set.to_vec(), told: place.with(set), site: place.site.clone() };
    }

    /// The namespace that was found last at `set`, where this host uses the names.
    fn site(&self, set: &[String]) -> Option<String> {
        self.0.lock().get("").filter(|place| place.set == set)?.site.clone()
    }
}

impl Node {
    /// Where the namespace of this host is to be had, which holds none: at the first node, or where its subsystem is.
    pub(crate) fn names_at(&self, own: &Own) -> Vec<String> {
        let set = &self.config.cluster.namespace;
        if set.is_empty() { own.credentials.addresses.clone() } else { self.membership.places.of("", set) }
    }

    /// The subsystems of which this node has heard, by what tells their namespaces from others.
    pub(crate) fn known_sites(&self) -> BTreeMap<String, String> {
        let all = self.membership.places.0.lock();
        let named = all.iter().filter(|(name, _)| !name.is_empty());
        named.filter_map(|(name, place)| Some((place.site.clone()?, name.clone()))).collect()
    }

    /// Asks the subsystem of that name, which was set to be had at `set`, where else it is, and notes that.
    pub(super) fn ask_names(&self, own: &Arc<Own>, name: &str, set: &[String]) -> Result<(), Failure> {
        let (known, wanted) = (self.membership.places.of(name, set), name.to_owned());
        let is_wanted = move |found: &SubsystemView| is_named(found, &wanted);
        let found = whose(own.ask_subsystem(&known, is_wanted, Call::Subsystem)?)?;
        self.note_place(name, set, &known, &found);
        Ok(())
    }

    /// The same of the subsystem whose names this host uses, whichever that is.
    fn ask_own_names(&self, own: &Arc<Own>) -> Result<(), Failure> {
        let set = &self.config.cluster.namespace;
        let known = self.membership.places.of("", set);
        let found = whose(own.ask_subsystem(&known, self.is_own_subsystem(), Call::Subsystem)?)?;
        self.note_place("", set, &known, &found);
        Ok(())
    }

    /// Asks the node whose names this host uses, which holds none.
    pub(crate) fn ask_of_names(&self, own: &Arc<Own>, call: Call) -> Result<Reply, Failure> {
        let known = self.names_at(own);
        match self.config.cluster.namespace.is_empty() {
            true => own.ask_any(&known, call),
            false => own.ask_subsystem(&known, self.is_own_subsystem(), call),
        }
    }

    /// Whether it is the subsystem whose names this host uses: an address may be another one's by now.
    fn is_own_subsystem(&self) -> impl Fn(&SubsystemView) -> Result<(), Failure> + Send + Sync + 'static {
        let before = self.membership.places.site(&self.config.cluster.namespace);
        move |found| match &found.name {
            Some(_) if before.as_ref().is_none_or(|before| *before == found.site) => Ok(()),
            Some(name) => Err(another(&format!("subsystem {name}, namespace {}", found.site))),
            None => Err(another("the first node of the cluster")),
        }
    }

    fn note_place(&self, key: &str, set: &[String], known: &[String], found: &SubsystemView) {
        let told = places(&found.addresses, known, set);
        let site = Some(found.site.clone()).filter(|site| !site.is_empty());
        let place = Place { set: set.to_vec(), told, site };
        self.membership.places.0.lock().insert(key.into(), place);
    }

    /// What a member is told who asks; the likeliest first.
    pub(crate) fn namespace_addresses(&self) -> Vec<String> {
        match self.membership() {
            Ok(Some(own)) if !own.holds_names() => own.credentials.addresses.clone(),
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
        self.keep_places(&told_now)?;
        asked
    }

    /// What nodes are to be told of where the namespace is, all others or those of them: whoever knows only of places where nobody is any more would ask there for
    /// ever. None: it is not this node's to tell, or not any more.
    ///
    /// # Errors
    /// They are not known.
    pub(super) fn telling(&self, whom: Option<&[MemberId]>) -> Result<Option<Telling>, Failure> {
        let replaced = self.feeding.get().is_some_and(crate::standby::Feeding::is_replaced);
        let Some(own) = self.membership()?.filter(|own| own.admits() && !replaced) else { return Ok(None) };
        self.counts()?;
        let mut members = self.other_nodes(&own)?;
        members.retain(|m| !m.control.is_empty() && whom.is_none_or(|whom| whom.contains(&m.id)));
        let said = ident::Places { turn: self.movers.turn(), addresses: self.namespace_addresses() };
        let list = signer(&own)?.place(&said).map_err(told)?;
        Ok(Some(Telling { own, members, call: Call::ClusterPlaces { list } }))
    }

    /// Keeps what the authority says of places.
    pub(crate) fn cluster_places(&self, list: &[u8]) -> Result<(), Failure> {
        let one_at_a_time = self.membership.changes.lock();
        let Some(own) = self.membership()?.filter(|own| !own.admits()) else { return Ok(()) };
        if keep_list(&self.config.state_dir, &own.credentials, list)? {
            self.membership.forget();
        }
        drop(one_at_a_time);
        Ok(())
    }

    /// Keeps where the namespace was told to be had, the likeliest first.
    fn keep_places(&self, told_now: &[String]) -> Result<(), Failure> {
        let one_at_a_time = self.membership.changes.lock();
        let Some(own) = self.membership()? else { return Ok(()) };
        if keep(&self.config.state_dir, &own.credentials, &places(told_now, &own.credentials.addresses, &[]))?
        {
            self.membership.forget();
        }
        drop(one_at_a_time);
        Ok(())
    }

    /// The same of those that this host uses besides; why one could not be asked. One that stands still keeps nobody from the others.
    fn hear_of_subsystems(&self, own: &Arc<Own>) -> Result<(), Failure> {
        let all = self.membership.places.0.lock();
        let led: Vec<_> = all.iter().map(|(name, at)| (name.clone(), at.set.clone())).collect();
        drop(all);
        std::thread::scope(|scope| {
            let led = led.iter().filter(|(name, _)| !name.is_empty());
            let mut asked = Vec::new();
            for (name, set) in led {
                let ask = move || self.ask_names(own, name, set);
                let thread = std::thread::Builder::new().spawn_scoped(scope, ask);
                asked.extend(thread.inspect_err(|e| tracing::warn!("no thread to ask {name}: {e}")).ok());
            }
            let own_names = match self.config.cluster.namespace.is_empty() {
                true => Ok(()),
                false => self.ask_own_names(own),
            };
            let answers = asked.into_iter().filter_map(|thread| thread.join().ok());
            answers.fold(own_names, Result::and)
        })
    }
}

/// Keeps what the authority says of places; whether anything is different now. What one of an earlier turn says is asked last: it may be a catalogue from a
/// backup that goes on.
pub(crate) fn keep_list(state: &Path, own: &Credentials, list: &[u8]) -> Result<bool, Failure> {
    let (said, latest) = own.keep_places(&directory(state), list).map_err(told)?;
    let known = &own.addresses;
    keep(state, own, &if latest { places(&said, known, &[]) } else { places(known, &said, &[]) })
}

fn keep(state: &Path, own: &Credentials, all: &[String]) -> Result<bool, Failure> {
    let changes = all != own.addresses;
    if changes {
        Credentials::keep_addresses(&directory(state), all).map_err(told)?;
        tracing::info!("the namespace of the cluster is to be had at {}", all.join(", "));
    }
    Ok(changes)
}

/// What is to be told, and whom. The node may stop meanwhile.
pub(super) struct Telling {
    own: Arc<Own>,
    members: Vec<Member>,
    call: Call,
}

impl Telling {
    /// Tells them; those that were not reached.
    pub(super) fn tell(self) -> Vec<MemberId> {
        let unreached = tell(&self.members, |member| {
            // It may have been in vain that it asked for a new certificate, too.
            let known: Vec<_> =
                Some(member.certificate).into_iter().chain(member.next).map(|d| d.0).collect();
            let connector = Connector::member_knowing(&self.own.credentials, &known).map_err(told)?;
            ask::ask(&connector, &member.control, Some(member.id), &self.call)
        });
        let unreached = unreached.into_iter().map(|(member, why)| {
            tracing::debug!("{} ({}) is told later where the namespace is: {why}", member.id, member.name);
            member.id
        });
        unreached.collect()
    }
}

fn whose(reply: Reply) -> Result<SubsystemView, Failure> {
    match reply {
        Reply::Subsystem(found) => Ok(*found),
        _ => Err(failure(ErrorClass::Bug, "whose names there are was asked for, and something else came")),
    }
}

/// Whether it is the subsystem of that name.
fn is_named(found: &SubsystemView, wanted: &str) -> Result<(), Failure> {
    let what = match found.name.as_deref() {
        Some(name) if name == wanted => return Ok(()),
        Some(name) => format!("subsystem {name}"),
        None => "the first node of the cluster".into(),
    };
    let message = format!("there is {what}, and not subsystem {wanted}: say where that is (`--at`)");
    Err(failure(ErrorClass::Invalid, message))
}

/// Somebody else is at an address of `cluster.namespace`.
fn another(found: &str) -> Failure {
    let message = format!(
        "{found} is there, and not the subsystem whose names this host uses: look at `cluster.namespace`, and start this node anew if that is meant"
    );
    failure(ErrorClass::Retry, message)
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
        places
            .0
            .lock()
            .insert("s".into(), Place { set: all(&["a", "b"]), told: all(&["b", "c", "a"]), site: None });
        places.note("s", &all(&["a", "b"]));
        assert_eq!(places.known("s"), Some(all(&["b", "c", "a"])));
        places.note("s", &all(&["d"]));
        assert_eq!(places.known("s"), Some(all(&["d", "b", "c", "a"])));
        assert_eq!(places.of("s", &all(&["e"]))[0], "e", "one that is to be asked before it is noted");
        places.note("s", &eight);
        assert_eq!(places.known("s"), Some(eight));
    }
}
