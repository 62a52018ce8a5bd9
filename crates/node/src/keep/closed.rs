//! Pools that take no data now: no file is brought back for a copy in one of them, and those that are there already leave their
//! room to files for other pools.

use crate::Node;
use std::collections::BTreeSet;
use types::*;

/// Queues of which nothing can be written, as of now.
pub struct Closed {
    queues: BTreeSet<PoolName>,
    pools: Vec<Pool>,
}

impl Closed {
    /// As it is now.
    pub fn now(node: &Node) -> catalog::Result<Self> {
        let queues: BTreeSet<PoolName> = node.writes.blocked().into_keys().collect();
        let pools = if queues.is_empty() { Vec::new() } else { node.catalog.pools()? };
        Ok(Self { queues, pools })
    }

    /// Whether none of these pools takes a copy of the file.
    pub fn keeps_out(&self, node: &Node, ino: Ino, pools: &[PoolName]) -> bool {
        let takes = |name: &PoolName| match self.pools.iter().find(|pool| pool.name == *name) {
            Some(pool) => !self.queues.contains(&node.queue_of(pool, ino)),
            None => true, // who waits for it is told elsewhere
        };
        !self.queues.is_empty() && !pools.is_empty() && !pools.iter().any(takes)
    }
}

/// Pools in which a file lacks a copy, with the number of each.
pub fn missing(node: &Node, file: &FileState) -> catalog::Result<Vec<(PoolName, CopyNo)>> {
    let pools = node.catalog.class(&file.class)?.map_or_else(Vec::new, |class| class.copies);
    let all = pools.into_iter().zip(1..).map(|(pool, n)| (pool, CopyNo(n)));
    Ok(all.filter(|(_, copy)| !file.copies.contains(copy)).collect())
}
