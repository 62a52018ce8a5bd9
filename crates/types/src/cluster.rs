//! Who belongs to a cluster, as its engine keeps it.

use crate::*;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemberId {
    /// Runs services.
    Node(NodeId),
    /// Only asks.
    Client(ClientId),
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(id) => write!(f, "node {id}"),
            Self::Client(id) => write!(f, "client {id}"),
        }
    }
}

/// Whom a client speaks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundUser {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// What the bearer of a token becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grant {
    /// A node.
    Node,
    /// A client that speaks for this user and nobody else.
    Client(BoundUser),
}

/// The cluster itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Uuid.
    pub id: String,
    /// Certificate of its authority (DER).
    pub authority: Vec<u8>,
    /// When it was made.
    pub made: Time,
    /// Number of the next node.
    pub next_node: NodeId,
    /// Number of the next client.
    pub next_client: ClientId,
}

/// A node or client that was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Which.
    pub id: MemberId,
    /// What it calls itself (its host), for people.
    pub name: String,
    /// SHA-256 of its certificate: another one with its name is not believed.
    pub certificate: Digest,
    /// When it was admitted.
    pub joined: Time,
    /// End of its certificate.
    pub expires: Time,
    /// Whom a client speaks for.
    pub user: Option<BoundUser>,
    /// Where a node takes calls (`host:port`).
    pub control: Vec<String>,
    /// Where a node moves bytes (`host:port`).
    pub data: Vec<String>,
    /// SHA-256 of a certificate that was made to follow; it is believed too, and alone from its first use on.
    pub next: Option<Digest>,
    /// That it was removed: it is not believed any more.
    pub removed: Option<Removal>,
}

/// When and why a member was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// When.
    pub at: Time,
    /// Why, as the administrator said.
    pub reason: String,
}

/// A token that was given out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// By which it is found.
    pub id: [u8; 16],
    /// SHA-256 of its secret, which is kept nowhere.
    pub secret: Digest,
    /// End of its life.
    pub expires: Time,
    /// What its bearer becomes.
    pub grant: Grant,
    /// Who used it.
    pub used: Option<MemberId>,
}

/// What `thermo cluster status` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// Uuid.
    pub id: String,
    /// Who the node is that answers.
    pub answers: MemberId,
    /// It has the key of the authority, and can admit others.
    pub admits: bool,
    /// Members, removed ones too: nodes, then clients.
    pub members: Vec<Member>,
    /// Tokens that can still be used.
    pub tokens: u32,
    /// Connections that the answering node has refused since it was started.
    pub refused: u64,
    /// When the last of them was, from where, and why it was refused.
    pub last_refused: Option<(Time, String)>,
}
