//! The cluster's records.

use super::Catalog;
use crate::Result;
use crate::ops::cluster::{self, Renewed};
use crate::ops::done;
use types::{CallId, Cluster, Digest, Grant, Ino, Member, MemberId, NodeId, Removal, Time, TokenRecord};

impl Catalog {
    /// The cluster; None if this is none.
    pub fn cluster(&self) -> Result<Option<Cluster>> {
        self.read(cluster::get)
    }

    /// Makes the cluster, with its first node; refused if there is one.
    pub fn found_cluster(&self, new: &Cluster, first: &Member) -> Result<()> {
        self.durable(|tx| cluster::found(tx, new, first))
    }

    /// A number for a member that is about to be admitted; it is never given again.
    pub fn number_member(&self, grant: &Grant) -> Result<MemberId> {
        self.durable(|tx| cluster::number(tx, grant))
    }

    /// Admits the bearer of a token, which is used then. False, and nothing changes, if it is used, past its end or unknown.
    pub fn admit_member(&self, token: &[u8; 16], member: &Member, now: Time) -> Result<bool> {
        self.durable(|tx| cluster::admit(tx, token, member, now))
    }

    /// Removes a member; false if it was removed already.
    pub fn remove_member(&self, id: MemberId, removal: &Removal) -> Result<bool> {
        self.durable(|tx| cluster::remove(tx, id, removal))
    }

    /// Another certificate is to follow that of a member. False if it was removed.
    pub fn renew_member(&self, id: MemberId, renewed: &Renewed) -> Result<bool> {
        self.durable(|tx| cluster::renew(tx, id, renewed))
    }

    /// A member uses the certificate that was to follow: the one before is not believed any more.
    pub fn member_renewed(&self, id: MemberId, certificate: Digest) -> Result<()> {
        self.durable(|tx| cluster::renewed(tx, id, certificate))
    }

    /// Withdraws all tokens that can still be used; how many those were.
    pub fn revoke_tokens(&self, now: Time) -> Result<u64> {
        self.durable(|tx| cluster::revoke_tokens(tx, now))
    }

    /// Enters what this catalogue does not know of a cluster and its members; how many of these were entered or changed.
    pub fn recall_cluster(&self, cluster: &Cluster, members: &[Member]) -> Result<u64> {
        self.durable(|tx| cluster::recall(tx, cluster, members))
    }

    /// Enters a token.
    pub fn put_token(&self, token: &TokenRecord, now: Time) -> Result<()> {
        self.durable(|tx| cluster::put_token(tx, token, now))
    }

    /// A token.
    pub fn token(&self, id: &[u8; 16]) -> Result<Option<TokenRecord>> {
        self.read(|v| cluster::token(v, id))
    }

    /// All tokens that are remembered.
    pub fn tokens(&self) -> Result<Vec<TokenRecord>> {
        self.read(cluster::tokens)
    }

    /// A session of another node is about to hold locks: it may claim them after a restart of this one.
    pub fn put_lock_session(&self, node: NodeId, number: u64) -> Result<()> {
        self.durable(|tx| cluster::put_lock_session(tx, node, number))
    }

    /// A session holds no locks any more, and may claim none.
    pub fn forget_lock_session(&self, node: NodeId, number: u64) -> Result<()> {
        self.durable(|tx| cluster::forget_lock_session(tx, node, number))
    }

    /// Sessions of other nodes that may hold locks.
    pub fn lock_sessions(&self) -> Result<Vec<(NodeId, u64)>> {
        self.read(cluster::lock_sessions)
    }

    /// What a call of another host came to: the node that it made, if any. None: it was not done.
    pub fn done_call(&self, call: &CallId) -> Result<Option<Option<Ino>>> {
        self.read(|v| done::find(v, call))
    }

    /// Whether calls of a session of another host are recorded: it is from before a restart.
    pub fn has_done_calls(&self, node: NodeId, session: u64) -> Result<bool> {
        self.read(|v| done::any(v, node, session))
    }

    /// Forgets calls of sessions that did not come back since a moment.
    pub fn forget_done_before(&self, moment: Time) -> Result<()> {
        while self.relaxed(|tx| done::forget_before(tx, moment))? {}
        Ok(())
    }

    /// A member.
    pub fn member(&self, id: MemberId) -> Result<Option<Member>> {
        self.read(|v| cluster::member(v, id))
    }

    /// All members: nodes, then clients.
    pub fn members(&self) -> Result<Vec<Member>> {
        self.read(cluster::members)
    }
}
