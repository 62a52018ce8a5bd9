//! Connections to the movers of the cluster by the rights that the metadata service gives: one channel for each target serves all files of a mount, of a
//! connection of a program's session, or of a drive's host.

use crate::{Column, Columns};
use data::{CAPABILITY_LEN, Capability, CapabilityKey, Channel, Link, Terms};
use layout::{Component, Layout, Redundancy};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::TargetId;
use wire::{ColumnAccess, LentPart, PartAccess};

/// How long a request waits for a mover that does not answer, where nobody else has the bytes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same where others have them, and the node has them too.
const QUICK_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes on their way to one target at once.
const WINDOW: usize = 16 << 20;

/// What is open.
pub struct Ways {
    patience: Duration,
    /// Numbers of channels: a mover knows by them, and by the client, what it has done already.
    next: Arc<AtomicU64>,
    all: Mutex<HashMap<TargetId, Way>>,
}

#[derive(Clone)]
struct Way {
    channel: Arc<Channel>,
    /// As whom.
    client: u64,
    /// Where the target is reached now.
    addresses: Arc<RwLock<Vec<String>>>,
}

impl Default for Ways {
    fn default() -> Self {
        Self { patience: PATIENCE, next: Arc::default(), all: Mutex::default() }
    }
}

impl Ways {
    /// Further connections of one client.
    pub fn more(&self) -> Self {
        Self { patience: self.patience, next: self.next.clone(), all: Mutex::default() }
    }

    /// The same, for what can be read elsewhere if a mover does not answer.
    pub fn quick(&self) -> Self {
        Self { patience: QUICK_PATIENCE, ..self.more() }
    }

    /// The columns of the parts of a file, with the rights to them; none where there is no right.
    pub fn columns<'a>(&self, parts: impl IntoIterator<Item = &'a PartAccess>) -> Result<Columns, String> {
        let column = |access: &ColumnAccess| {
            if access.capability.is_empty() {
                return Ok(None);
            }
            let told = |e: &dyn std::fmt::Display| format!("target {}: {e}", access.target);
            let bytes: &[u8; CAPABILITY_LEN] = access
                .capability
                .as_slice()
                .try_into()
                .map_err(|_| format!("the right to target {} has another length", access.target))?;
            let capability = Capability::decode(bytes).map_err(|e| told(&e))?;
            let channel = self.channel(access, &capability)?;
            let key = CapabilityKey::from_secret(access.key.0);
            let slot = channel.attach(&capability, key).map_err(|e| told(&e))?;
            Ok(Some(Column { channel, slot, target: access.target }))
        };
        parts.into_iter().map(|part| part.columns.iter().map(column).collect()).collect()
    }

    fn channel(&self, access: &ColumnAccess, capability: &Capability) -> Result<Arc<Channel>, String> {
        let mut all = self.all.lock();
        // The node gives its clients other numbers when it was started anew.
        if let Some(way) = all.get(&access.target).filter(|way| way.client == capability.client) {
            if *way.addresses.read() != access.data {
                way.addresses.write().clone_from(&access.data);
            }
            return Ok(way.channel.clone());
        }
        let addresses = Arc::new(RwLock::new(access.data.clone()));
        let dialled = addresses.clone();
        let terms = Terms {
            mover: format!("of target {} ({})", access.target, access.data.join(" ")),
            client: capability.client,
            channel: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            cluster: capability.cluster,
            patience: self.patience,
            window_bytes: WINDOW,
        };
        let opened = Channel::open(Box::new(move || Link::dial(&dialled.read())), terms);
        let channel = Arc::new(opened.map_err(|e| format!("target {}: {e}", access.target))?);
        all.insert(access.target, Way { channel: channel.clone(), client: capability.client, addresses });
        Ok(channel)
    }
}

/// The layout of a file of these parts.
pub fn layout_of<'a>(parts: impl Iterator<Item = (&'a PartAccess, Redundancy)>) -> Layout {
    let mut end = 0;
    let component = |(part, redundancy): (&PartAccess, Redundancy)| Component {
        range: std::mem::replace(&mut end, part.end)..part.end,
        unit_bytes: part.unit_bytes,
        redundancy,
        base: part.object,
        targets: part.columns.iter().map(|column| column.target).collect(),
    };
    Layout { generation: 1, components: parts.map(component).collect() }
}

/// How a part that is lent is kept.
pub fn redundancy(part: &LentPart) -> Redundancy {
    match (part.parity, part.copies) {
        (0, ..=1) => Redundancy::None,
        (0, copies) => Redundancy::Mirror { copies },
        (parity, _) => {
            let data = part.access.columns.len().saturating_sub(parity.into());
            Redundancy::Coded { data: u8::try_from(data).unwrap_or(u8::MAX), parity }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_client_give_no_channel_the_same_number() {
        let first = Ways::default();
        let all = [first.more(), first.more(), first];
        let numbers = all.map(|ways| ways.next.fetch_add(1, Ordering::Relaxed));
        assert_eq!(numbers, [0, 1, 2]);
    }
}
