//! The namespace of a cluster on a host whose node does not hold it: [`FileApi`] over TLS connections to the node that does.
//!
//! * `lines.rs`: connections, and calls that are made again over another one when theirs breaks.
//! * `news.rs`: what the node tells of others.
//! * `silent.rs`: nodes that do not answer.
//! * `table.rs`: open files, which are opened again when the node was started anew.
//! * `bytes.rs`: reading and writing; what may wait for tape has threads and connections of its own.
//! * `locks.rs`: locks that programs here hold and wait for.
//! * `whose.rs`: which of the cluster's namespaces it is.
//! * `memory.rs`: names and attributes, remembered for a moment by leases of the node.
//! * `ahead.rs`: names that are looked at one after the other, learned of by one call.
//! * `direct.rs`: bytes of files on disk targets, which go to and from the movers; [`crate::lent`]: the same of files with copies or parity that are only read.
//! * `copies.rs`: files with copies or parity that nobody else writes, which are written straight to all of them.
//! * `behind.rs`: small writes that stay in memory for a moment.
//! * `returns.rs`: what was written through the node, which gets it again if it is started anew before that is at the targets ([`crate::spares`]).
//! * `relay.rs`: programs of this host that go past its mounts.
//!
//! Gateways ask each time, and see what others did.

mod ahead;
mod behind;
mod bytes;
mod copies;
mod direct;
mod groups;
mod lines;
mod locks;
mod memory;
mod names;
mod news;
mod relay;
mod returns;
mod silent;
mod table;
mod threads;
mod whose;

pub(crate) use direct::striped;
pub use relay::{Relay, Relayed};
pub use whose::Names;

use crate::{ClientError, Remote};
use lines::Lines;
use std::path::Path;
use std::sync::Arc;
use table::Table;
use threads::{Here, Threads};

/// How the node that holds the namespace is reached now: certificates are replaced while files are open.
pub type Reach = Box<dyn Fn() -> Result<Vec<Remote>, ClientError> + Send + Sync>;

/// The attribute by which programs find the node of a mount.
const NODE: &[u8] = b"user.thermo.node";

/// Files of a cluster's namespace, for a gateway on another host. Calls wait for a node that does not answer for a minute.
pub struct ClusterFiles(Arc<Shared>);

struct Shared {
    lines: Lines,
    table: Table,
    /// For what waits for the network only.
    quick: Threads,
    /// Threads of a gateway that read from the network by themselves: always some are left for names, however long a target does not answer.
    reading: Here,
    /// For what waits for tape.
    patient: Threads,
    waits: bytes::Waits,
    ways: stripe::Ways,
    /// For what is lent.
    quick_ways: stripe::Ways,
    locks: locks::Locks,
    memory: memory::Memory,
    ahead: ahead::Ahead,
    landing: behind::Landing,
    sparing: returns::Sparing,
    /// What files say of the node of this mount; None: what the node says that holds them.
    node: Option<String>,
}

/// Threads of each kind.
const THREADS: usize = 16;
/// Half of those that a gateway has for a mount.
const READING: usize = 4;

impl ClusterFiles {
    /// Nothing is asked yet. `session`: a random number, which no other mount has. `node`: what files say of their node to programs that go past the mount; without,
    /// these find none on this host. `beside`: state directory of a node on this host, whose targets are reached within it.
    pub fn new(
        reach: Reach,
        session: u64,
        names: Names,
        node: Option<String>,
        beside: Option<&Path>,
    ) -> Self {
        let ways = stripe::Ways::default().beside(beside);
        Self(Arc::new(Shared {
            lines: Lines::new(reach, session, names),
            table: Table::default(),
            quick: Threads::new("cluster-io", THREADS),
            reading: Here::new(READING),
            patient: Threads::new("cluster-wait", THREADS),
            waits: bytes::Waits::default(),
            quick_ways: ways.quick(),
            ways,
            locks: locks::Locks::default(),
            memory: memory::Memory::default(),
            ahead: ahead::Ahead::default(),
            landing: behind::Landing::default(),
            sparing: returns::Sparing::default(),
            node,
        }))
    }

    /// From now on names and attributes are remembered for a moment, by leases of the node: for gateways of which each look comes here.
    pub fn remember(&self) {
        self.0.tend_memory();
    }

    /// Asks whether a node that holds the namespace answers, and takes this one for a member that may speak for users.
    ///
    /// # Errors
    /// It does not.
    pub fn probe(&self) -> Result<(), ClientError> {
        self.0.lines.probe()
    }
}
