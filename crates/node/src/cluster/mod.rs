//! What the node is in a cluster: its credentials in `<state_dir>/cluster`, calls that concern it, and the listener.

mod ask;
mod calls;
mod changes;
mod junctions;
mod listen;
mod members;
mod places;
mod present;
mod renew;
mod roster;
mod sessions;
mod tend;

pub use listen::{ClusterServer, serve_cluster};
pub(crate) use places::keep_list;
pub(crate) use present::report;
pub(crate) use renew::{Member, certificates_of, credentials, renew_member};
pub(crate) use sessions::{Whose, join};
pub use tend::{ClusterKeeper, keep_cluster};

use crate::error::{failure, refused};
use crate::{Config, Node};
use ident::{Acceptor, Connector, Credentials, IdentError, Refusals, Withdrawn};
use listen::Open;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::{JunctionState, MemberId, Time};
use wire::Failure;

/// What the node is; found out when it is first needed, since it may join while it runs.
#[derive(Default)]
pub(crate) struct Membership {
    known: Mutex<Option<Arc<Own>>>,
    /// Changes of members and of the files beside the credentials go one after another.
    changes: Mutex<()>,
    removed: Withdrawn,
    refusals: Arc<Refusals>,
    refused: Mutex<Refused>,
    open: Open,
    pub(crate) sessions: sessions::Sessions,
    /// What a subsystem was told of the members by the node that admits them.
    told: Arc<members::Told>,
    /// Where the namespaces of subsystems were last told to be had.
    places: places::Places,
    /// When members were heard of last, since the node was started.
    heard: Mutex<BTreeMap<MemberId, Time>>,
    /// What members said of themselves when they were asked last.
    present: present::Present,
    /// What was last seen of the subsystems to which junctions of this first node lead, by name.
    led: Mutex<BTreeMap<String, JunctionState>>,
}

/// Connections that were refused since the node was started.
#[derive(Clone, Default)]
struct Refused {
    count: u64,
    last: Option<(Time, String)>,
}

/// A node that is a member.
pub(crate) struct Own {
    pub(crate) credentials: Credentials,
    pub(crate) acceptor: Acceptor,
    /// Asks other nodes.
    connector: Connector,
    /// Name of the subsystem whose namespace it holds.
    pub(crate) subsystem: Option<String>,
}

impl Own {
    /// Whether it can admit others: it has the key of the authority.
    pub(crate) fn admits(&self) -> bool {
        self.credentials.authority_key.is_some()
    }

    /// Whether it holds a namespace: that of the cluster's first node, or that of a subsystem.
    pub(crate) fn holds_names(&self) -> bool {
        self.admits() || self.subsystem.is_some()
    }

    /// Keeps a list of members that were removed, if all that are known to be are on it; those that were not known.
    pub(crate) fn note_removed(&self, state: &Path, list: &[u8]) -> Result<Vec<ident::Role>, Failure> {
        self.credentials.keep_removed(&directory(state), list).map_err(told)
    }

    /// Its number, if it is a node.
    pub(crate) fn number(&self) -> Option<u32> {
        match member_id(self.credentials.identity.role) {
            MemberId::Node(id) => Some(id.0),
            MemberId::Client(_) => None,
        }
    }
}

/// What the node with this state directory is, before it is started.
pub(crate) fn own(config: &Config) -> Result<Option<Own>, Failure> {
    let found = Credentials::load(&directory(&config.state_dir)).map_err(told)?;
    found.map(|own| Membership::default().take(own, config)).transpose()
}

impl Membership {
    fn get(&self, node: &Node) -> Result<Option<Arc<Own>>, Failure> {
        let mut known = self.known.lock();
        if known.is_none() {
            let found = Credentials::load(&directory(&node.config.state_dir)).map_err(told)?;
            *known = found.map(|own| self.take(own, &node.config)).transpose()?.map(Arc::new);
        }
        Ok(known.clone())
    }

    /// Who was removed and who was refused outlives a certificate.
    fn take(&self, mut credentials: Credentials, config: &Config) -> Result<Own, Failure> {
        self.removed.add(credentials.removed.all());
        credentials.removed = self.removed.clone();
        let acceptor = Acceptor::new(&credentials, self.refusals.clone()).map_err(told)?;
        let connector = Connector::member(&credentials).map_err(told)?;
        let subsystem = config.cluster.subsystem.clone();
        if let Some(name) = subsystem.as_ref().filter(|_| credentials.authority_key.is_some()) {
            let message = format!(
                "this node admits the members of its cluster, and is no subsystem of it: take cluster.subsystem = {name:?} out of its configuration"
            );
            return Err(failure(types::ErrorClass::Invalid, message));
        }
        Ok(Own { credentials, acceptor, connector, subsystem })
    }

    /// Whether it is known that somebody was removed.
    pub(crate) fn is_removed(&self, id: MemberId) -> bool {
        self.removed.contains(role(id))
    }

    /// Credentials have changed: they are read again when they are needed.
    fn forget(&self) {
        *self.known.lock() = None;
    }

    fn note_refusal(&self, from: SocketAddr, why: &str) {
        let mut refused = self.refused.lock();
        refused.count += 1;
        refused.last = Some((crate::now(), format!("{}: {why}", from.ip())));
    }
}

impl Node {
    /// Whether that is this node.
    fn is(&self, who: MemberId) -> bool {
        self.membership()
            .is_ok_and(|own| own.is_some_and(|own| member_id(own.credentials.identity.role) == who))
    }

    /// What the node is in a cluster; None if it belongs to none.
    pub(crate) fn membership(&self) -> Result<Option<Arc<Own>>, Failure> {
        self.membership.get(self)
    }

    /// Where the credentials are of a node that has joined a cluster: the namespace is that of the cluster then, and another node holds it. None of
    /// one that holds its own, as the first node or as a subsystem.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn joined(&self) -> Result<Option<PathBuf>, Failure> {
        let own = self.membership()?;
        let elsewhere = own.is_some_and(|own| !own.holds_names());
        Ok(elsewhere.then(|| directory(&self.config.state_dir)))
    }

    /// Whatever is wrong with the cluster's files, the node's own users are served.
    fn recall_cluster_or_say(&self) {
        if let Err(e) = self.recall_cluster() {
            tracing::error!("this node cannot act as a member of its cluster: {e}");
        }
        // Drives of other hosts are wanted soon, and nobody believes one whose certificate ended while it was off. Others are asked later, for new ones.
        if self.admitting().is_ok()
            && let Err(e) = self.renew_if_due(crate::now())
        {
            tracing::warn!(
                "the certificate of this node ends soon or has ended, and there is no new one: {e}"
            );
        }
    }

    /// Power may have failed between the record of a new cluster and its keys: they lie prepared, and get their place now.
    pub(crate) fn finish_cluster(&self) -> Result<(), Failure> {
        let dir = directory(&self.config.state_dir);
        if dir.exists() {
            self.recall_cluster_or_say();
            return Ok(());
        }
        let Some(cluster) = self.catalog.cluster().map_err(|e| refused("the cluster", &e))? else {
            return Ok(());
        };
        match Credentials::prepared(&dir) {
            Some(ready) if ready.authority == cluster.authority => {
                Credentials::commit(&dir).map_err(told)?;
                self.recall_cluster_or_say();
                Ok(())
            }
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
pub(crate) fn directory(state: &Path) -> PathBuf {
    state.join("cluster")
}

fn told(error: IdentError) -> Failure {
    failure(error.class(), error.to_string())
}

pub(crate) fn member_id(role: ident::Role) -> MemberId {
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
