//! Which columns of a file with copies or parity count. That one does not is durable in the catalogue before anything is answered without it,
//! and it is not read before it was rebuilt ([`super::mend`]), whoever answers meanwhile.
//!
//! Only this node writes such files, and it has each of them open once. Whoever reads them elsewhere ([`super::lent`]) was lent them while nobody wrote, and reads
//! nothing any more before anything is answered without a column.

use super::ways::PATIENCE;
use crate::Node;
use catalog::Far;
use data::DataError;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stripe::{Authority, Columns};
use types::{Ino, ObjectId};

/// Decides for one open file.
pub(crate) struct Decider {
    node: Weak<Node>,
    ino: Ino,
    object: ObjectId,
}

impl Decider {
    pub(crate) fn new(node: &Arc<Node>, ino: Ino, object: ObjectId) -> Self {
        Self { node: Arc::downgrade(node), ino, object }
    }

    /// Whose file it is.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.node.upgrade()
    }

    /// The object that the catalogue knows the file's layout by.
    pub(crate) fn object(&self) -> ObjectId {
        self.object
    }

    /// Records, durably, that a column is out of date.
    pub(crate) fn record(&self, component: u16, column: u16, why: &str) -> Result<Far, String> {
        let node = self.node().ok_or("the node stops")?;
        let far =
            node.catalog.set_stale(self.object, (component, column), true).map_err(|e| e.to_string())?;
        let target = far.layout.components.get(usize::from(component)).and_then(|c| c.target(column));
        tracing::warn!(
            "inode {}: what target {} has is out of date from now on, and is rebuilt when it answers: {why}",
            self.ino,
            target.unwrap_or_default()
        );
        Ok(far)
    }

    /// Whoever leaves a column out has opened the file while others counted; as it is on record now, enough of them still do.
    fn is_spared(&self, column: (u16, u16)) -> Result<(), String> {
        let node = self.node().ok_or("the node stops")?;
        let far = node.catalog.far(self.object).map_err(|e| e.to_string())?;
        match is_spared(far.ok_or("it has left its targets")?, column) {
            true => Ok(()),
            false => Err("too little else counts any more".to_owned()),
        }
    }

    fn columns(&self, far: Far) -> Result<Columns, String> {
        let node = self.node().ok_or("the node stops")?;
        let (columns, absent) = node.columns(&far, &Default::default()).map_err(|e| e.to_string())?;
        for (component, column) in absent {
            self.record(component, column, "nobody answers there")?;
        }
        Ok(columns)
    }
}

impl std::fmt::Debug for Decider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decider").field("object", &self.object).finish_non_exhaustive()
    }
}

impl Authority for Decider {
    fn leave_out(&self, component: usize, column: u16, why: &DataError) -> Result<Columns, String> {
        self.is_spared((component as u16, column))?;
        self.columns(self.record(component as u16, column, &why.to_string())?)
    }

    fn renew(&self) -> Result<Columns, String> {
        let node = self.node().ok_or("the node stops")?;
        let far = node.catalog.far(self.object).map_err(|e| e.to_string())?;
        self.columns(far.ok_or("it has left its targets")?)
    }

    /// As for files without copies, until the node stops.
    fn patience(&self) -> Duration {
        self.node().filter(|node| !node.stops_within(Duration::ZERO)).map_or(Duration::ZERO, |_| PATIENCE)
    }
}

/// Whether enough counts without a column, if it does with it.
fn is_spared(mut far: Far, column: (u16, u16)) -> bool {
    let enough = |far: &Far| far.can_spare(&BTreeSet::new());
    let before = enough(&far);
    if !far.stale.contains(&column) {
        far.stale.push(column);
    }
    enough(&far) || !before
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::{Component, Layout, Redundancy};
    use types::TargetId;

    #[test]
    fn the_last_copy_that_counts_is_left_out_by_nobody() {
        let part = |redundancy, start: u64, end, targets: std::ops::Range<u32>| Component {
            range: start..end,
            unit_bytes: 1 << 20,
            redundancy,
            base: ObjectId(u64::from(targets.start)),
            targets: targets.map(TargetId).collect(),
        };
        let copies = part(Redundancy::Mirror { copies: 2 }, 0, 1 << 20, 1..3);
        let coded = part(Redundancy::Coded { data: 2, parity: 1 }, 1 << 20, u64::MAX, 3..6);
        let layout = Layout { generation: 1, components: vec![copies, coded] };
        let far = |stale: &[(u16, u16)]| Far {
            layout: layout.clone(),
            stale: stale.to_vec(),
            then: Vec::new(),
            pool: None,
        };
        assert!(is_spared(far(&[]), (0, 0)) && is_spared(far(&[]), (1, 2)));
        // Somebody else has left out the other one since.
        assert!(!is_spared(far(&[(0, 1)]), (0, 0)) && !is_spared(far(&[(1, 0)]), (1, 2)));
        assert!(is_spared(far(&[(0, 1)]), (0, 1)), "it is out of date already");
        assert!(is_spared(far(&[(1, 0), (1, 1)]), (0, 1)), "that part is lost without this one, too");
    }
}
