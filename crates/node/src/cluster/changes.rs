//! Members that go, and lists of those that were removed.

use super::roster;
use super::{Own, directory, member_id, role, told};
use crate::Node;
use crate::error::{failure, refused};
use ident::{Authority, Credentials};
use std::collections::BTreeSet;
use types::{ErrorClass, Member, MemberId, Removal};
use wire::{Call, Failure, Reply};

/// Longest reason (bytes).
const LONGEST_REASON: usize = 255;
/// Nodes that are told at once.
const AT_ONCE: usize = 32;

impl Node {
    /// Removes a member, ends its connections, and tells the other nodes; which of them do not know yet. Doing it again tells them again.
    pub(crate) fn cluster_remove(&self, id: MemberId, reason: &str) -> Result<Vec<MemberId>, Failure> {
        if reason.len() > LONGEST_REASON || reason.chars().any(char::is_control) {
            let message = "a reason of at most 255 bytes without control characters is due";
            return Err(failure(ErrorClass::Invalid, message));
        }
        let own = self.admitting()?;
        if id == member_id(own.credentials.identity.role) {
            let message =
                "that is this node, which has the key of the authority: without it there is no cluster";
            return Err(failure(ErrorClass::Invalid, message));
        }
        let removal = Removal { at: crate::now(), reason: reason.to_owned() };
        let gone = self.catalog.remove_member(id, &removal).map_err(|e| refused("the cluster", &e))?;
        if gone {
            tracing::info!("{id} is removed from the cluster: {reason:?}");
        }
        let list = self.keep_roster(&own)?;
        self.tell_nodes(&own, list)
    }

    /// Withdraws all tokens that can still be used.
    pub(crate) fn cluster_revoke(&self) -> Result<u64, Failure> {
        self.admitting()?;
        let count =
            self.catalog.revoke_tokens(crate::now()).map_err(|e| refused("the tokens of the cluster", &e))?;
        tracing::info!("{count} tokens of the cluster are withdrawn");
        Ok(count)
    }

    /// Takes the list that somebody brings, and gives that of this node.
    pub(crate) fn cluster_removed(&self, list: &[u8]) -> Result<Vec<u8>, Failure> {
        let Some(own) = self.membership()? else {
            return Err(failure(ErrorClass::NotFound, "this node belongs to no cluster"));
        };
        if !list.is_empty() {
            self.take_list(&own, list)?;
        }
        Credentials::kept_removed(&directory(&self.config.state_dir)).map_err(told)
    }

    fn take_list(&self, own: &Own, list: &[u8]) -> Result<(), Failure> {
        let _one_at_a_time = self.membership.changes.lock();
        let new = own.note_removed(&self.config.state_dir, list)?;
        for gone in new {
            tracing::info!("{gone} was removed from the cluster");
            self.membership.open.cut(gone);
        }
        Ok(())
    }

    /// Writes the roster and the list of removed members as the catalogue has them; gives the list.
    pub(super) fn keep_roster(&self, own: &Own) -> Result<Vec<u8>, Failure> {
        let dir = directory(&self.config.state_dir);
        let fail = |e| refused("the cluster", &e);
        let list = {
            let _one_at_a_time = self.membership.changes.lock();
            let Some(cluster) = self.catalog.cluster().map_err(fail)? else { return Ok(Vec::new()) };
            let members = self.catalog.members().map_err(fail)?;
            let bytes = roster::encode(&cluster, &members);
            Credentials::keep_roster(&dir, &bytes).map_err(told)?;
            let gone = members.iter().filter(|member| member.removed.is_some()).map(|member| role(member.id));
            let all: BTreeSet<_> = gone.chain(own.credentials.removed.all()).collect();
            if all.is_empty() {
                return Ok(Vec::new());
            }
            signer(own)?.withdraw(&all).map_err(told)?
        };
        self.take_list(own, &list)?;
        Ok(list)
    }

    /// The member has its place in the catalogue whether the roster can be written or not.
    pub(super) fn keep_roster_or_say(&self, own: &Own) {
        if let Err(e) = self.keep_roster(own) {
            tracing::error!("the roster of the cluster lacks the last change until the next one: {e}");
        }
    }

    /// Brings the list to all other nodes; which of them were not reached.
    fn tell_nodes(&self, own: &Own, list: Vec<u8>) -> Result<Vec<MemberId>, Failure> {
        let members = self.other_nodes(own)?;
        let call = Call::ClusterRemoved { list };
        let unreached = tell(&members, |member| own.ask(&member.control, Some(member.id), &call));
        let unreached = unreached.into_iter().map(|(member, why)| {
            tracing::warn!("{} ({}) does not know yet who was removed: {why}", member.id, member.name);
            member.id
        });
        Ok(unreached.collect())
    }

    /// All nodes of the cluster but this one.
    pub(super) fn other_nodes(&self, own: &Own) -> Result<Vec<Member>, Failure> {
        let mut members = self.catalog.members().map_err(|e| refused("the cluster", &e))?;
        let this = member_id(own.credentials.identity.role);
        members.retain(|m| matches!(m.id, MemberId::Node(_)) && m.id != this && m.removed.is_none());
        Ok(members)
    }

    /// Hears from the node that admitted this one who was removed.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn hear_of_removed(&self) -> Result<(), Failure> {
        let Some(own) = self.membership()?.filter(|own| !own.admits()) else {
            return Ok(());
        };
        let list = Credentials::kept_removed(&directory(&self.config.state_dir)).map_err(told)?;
        match own.ask(&own.credentials.addresses, None, &Call::ClusterRemoved { list })? {
            Reply::Removed(list) if list.is_empty() => Ok(()),
            Reply::Removed(list) => self.take_list(&own, &list),
            _ => Err(failure(ErrorClass::Bug, "a list was asked for, and something else came")),
        }
    }

    /// A catalogue that was rebuilt from tapes, or is an older backup, gets from the roster who belongs to the cluster.
    pub(super) fn recall_cluster(&self) -> Result<(), Failure> {
        let Some(own) = self.membership()?.filter(|own| own.admits()) else {
            return Ok(());
        };
        let kept = Credentials::kept_roster(&directory(&self.config.state_dir)).map_err(told)?;
        if !kept.is_empty() {
            let Some((cluster, members)) = roster::decode(&kept) else {
                let message = "the roster in the state directory's `cluster` is damaged; bring it back from a backup, or move it away if the \
                               catalogue is whole";
                return Err(failure(ErrorClass::Corrupt, message));
            };
            let count = self.catalog.recall_cluster(&cluster, &members);
            let count = count.map_err(|e| refused("the roster of the cluster", &e))?;
            if count > 0 {
                tracing::warn!(
                    "the catalogue did not know {count} members of the cluster as they are; the roster did"
                );
            }
        }
        self.keep_roster(&own).map(drop)
    }
}

/// Tells members something, some at once; who was not reached, and why.
pub(super) fn tell(
    members: &[Member],
    ask: impl Fn(&Member) -> Result<Reply, Failure> + Sync,
) -> Vec<(&Member, Failure)> {
    let (ask, mut unreached) = (&ask, Vec::new());
    for some in members.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let begin = |member| {
                let thread = std::thread::Builder::new().spawn_scoped(scope, move || ask(member));
                (member, thread)
            };
            let asking: Vec<_> = some.iter().map(begin).collect();
            for (member, thread) in asking {
                let no_thread = |e| Err(failure(ErrorClass::NoSpace, format!("no thread: {e}")));
                let ended = |_| Err(failure(ErrorClass::Bug, "the question ended without an answer"));
                let asked = thread.map_or_else(no_thread, |thread| thread.join().unwrap_or_else(ended));
                unreached.extend(asked.err().map(|why| (member, why)));
            }
        });
    }
    unreached
}

pub(super) fn signer(own: &Own) -> Result<Authority, Failure> {
    own.credentials.signer().map_err(told)?.ok_or_else(super::calls::not_here)
}
