//! What the node is in a cluster: its credentials in `<state_dir>/cluster`, calls that concern it, and the listener.

mod calls;
mod listen;

pub use listen::{ClusterServer, serve_cluster};

use crate::error::{failure, refused};
use crate::{Config, Node};
use ident::{Acceptor, Credentials, IdentError};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use types::{MemberId, Time};
use wire::Failure;

/// What the node is; found out when it is first needed, since it may join while it runs.
#[derive(Default)]
pub(crate) struct Membership {
    known: Mutex<Option<Arc<Own>>>,
}

/// A node that is a member.
pub(crate) struct Own {
    pub(crate) credentials: Credentials,
    pub(crate) acceptor: Acceptor,
}

impl Membership {
    fn get(&self, node: &Node) -> Result<Option<Arc<Own>>, Failure> {
        let mut known = self.known.lock();
        if known.is_none() {
            let found = Credentials::load(&directory(&node.config)).map_err(told)?;
            *known = found.map(Own::new).transpose()?.map(Arc::new);
        }
        Ok(known.clone())
    }
}

impl Own {
    fn new(credentials: Credentials) -> Result<Self, Failure> {
        let acceptor = Acceptor::new(&credentials).map_err(told)?;
        Ok(Self { credentials, acceptor })
    }
}

impl Node {
    /// What the node is in a cluster; None if it belongs to none.
    pub(crate) fn membership(&self) -> Result<Option<Arc<Own>>, Failure> {
        self.membership.get(self)
    }

    /// Power may have failed between the record of a new cluster and its keys: they lie prepared, and get their place now.
    pub(crate) fn finish_cluster(&self) -> Result<(), Failure> {
        let dir = directory(&self.config);
        let Some(cluster) = self.catalog.cluster().map_err(|e| refused("the cluster", &e))? else {
            return Ok(());
        };
        if dir.exists() {
            return Ok(());
        }
        match Credentials::prepared(&dir) {
            Some(ready) if ready.authority == cluster.authority => Credentials::commit(&dir).map_err(told),
            _ => {
                let warning =
                    "this node made a cluster, and its keys are gone; bring them back from a backup";
                tracing::warn!("{}: {warning}", dir.display());
                Ok(())
            }
        }
    }
}

/// Where the credentials of a node are.
pub(crate) fn directory(config: &Config) -> PathBuf {
    config.state_dir.join("cluster")
}

fn told(error: IdentError) -> Failure {
    failure(error.class(), error.to_string())
}

fn member_id(role: ident::Role) -> MemberId {
    match role {
        ident::Role::Node(id) => MemberId::Node(id),
        ident::Role::Client(id) => MemberId::Client(id),
    }
}

fn role(id: MemberId) -> ident::Role {
    match id {
        MemberId::Node(id) => ident::Role::Node(id),
        MemberId::Client(id) => ident::Role::Client(id),
    }
}

/// Seconds since 1970, as certificates and tokens have them.
fn seconds(time: Time) -> u64 {
    u64::try_from(time.secs).unwrap_or(0)
}

fn time(seconds: u64) -> Time {
    Time::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0)
}
