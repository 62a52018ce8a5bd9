//! Connections to the movers of the cluster by the rights that the metadata service gives: one channel for each target serves all files of a mount, of a
//! connection of a program's session, or of a drive's host.

use crate::{Column, Columns, Striped};
use data::{CAPABILITY_LEN, Capability, CapabilityKey, Channel, Dial, Link, Place, Terms};
use layout::{Component, Layout, Redundancy};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
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
    place: Place,
    /// State directory of the node on this host.
    beside: Option<PathBuf>,
}

/// Where the mover of the node with that state directory listens for programs of its host, for a target that it serves.
pub fn socket(state: &Path, target: TargetId) -> PathBuf {
    state.join("movers").join(format!("{target}.sock"))
}

/// How a target is reached at the node with that state directory, if that is one that serves it.
pub fn near(state: Option<&Path>, target: TargetId, place: Place) -> Option<Dial> {
    let socket = socket(state?, target);
    Some(Box::new(move || Link::near(&socket, place)))
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
        Self::placed(|socket| socket)
    }
}

impl Ways {
    /// None is open yet; what becomes of sockets.
    pub fn placed(place: Place) -> Self {
        Self { patience: PATIENCE, next: Arc::default(), all: Mutex::default(), place, beside: None }
    }

    /// Targets of the node with that state directory are reached within this host.
    pub fn beside(self, state: Option<&Path>) -> Self {
        Self { beside: state.map(Path::to_owned), ..self }
    }

    /// Further connections of one client.
    pub fn more(&self) -> Self {
        let (next, beside) = (self.next.clone(), self.beside.clone());
        Self { next, patience: self.patience, beside, ..Self::placed(self.place) }
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
            let (capability, key) = decoded(access)?;
            let channel = self.channel(access, &capability)?;
            let slot = channel.attach(&capability, key);
            let slot = slot.map_err(|e| format!("target {}: {e}", access.target))?;
            Ok(Some(Column { channel, slot, target: access.target }))
        };
        parts.into_iter().map(|part| part.columns.iter().map(column).collect()).collect()
    }

    fn channel(&self, access: &ColumnAccess, capability: &Capability) -> Result<Arc<Channel>, String> {
        let mut all = self.all.lock();
        // The node gives its clients other numbers when it was started anew.
        if let Some(way) = all.get(&access.target).filter(|way| way.client == capability.client) {
            way.reach(access);
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
        let place = self.place;
        let near = near(self.beside.as_deref(), access.target, place);
        let opened = Channel::open_near(near, Box::new(move || Link::dial(&dialled.read(), place)), terms);
        let channel = Arc::new(opened.map_err(|e| format!("target {}: {e}", access.target))?);
        all.insert(access.target, Way { channel: channel.clone(), client: capability.client, addresses });
        Ok(channel)
    }
}

/// Rights to all columns of an open file that may go on.
pub struct Renewal(Vec<(Column, Capability, CapabilityKey)>);

impl Renewal {
    /// They count from now on.
    pub fn begin(self) {
        self.0.into_iter().for_each(|(way, capability, key)| way.channel.renew(&way.slot, &capability, key));
    }
}

impl Ways {
    /// The rights to a file that is open by these ways, given anew; None: they are of another generation than those that it was opened with, or to other columns, so it
    /// is to be opened anew.
    ///
    /// # Errors
    /// There is no right to one of them, or it cannot be read.
    pub fn renewal(
        &self,
        file: &Striped,
        generation: u64,
        parts: &[LentPart],
    ) -> Result<Option<Renewal>, String> {
        let ways = file.ways();
        let mut renewed = Vec::with_capacity(ways.len());
        for (place, access) in columns(parts) {
            let (capability, key) = decoded(access)?;
            let way = ways.iter().find(|(known, way)| *known == place && way.target == access.target);
            let Some((_, way)) = way.filter(|_| capability.generation == generation) else {
                return Ok(None);
            };
            if let Some(known) = self.all.lock().get(&access.target) {
                known.reach(access);
            }
            renewed.push((way.clone(), capability, key));
        }
        Ok((renewed.len() == ways.len()).then_some(Renewal(renewed)))
    }
}

impl Way {
    /// It is reached there now.
    fn reach(&self, access: &ColumnAccess) {
        if *self.addresses.read() != access.data {
            self.addresses.write().clone_from(&access.data);
        }
    }
}

/// The one generation of which all of these rights are: it is raised when they are ended.
///
/// # Errors
/// They are of two, or to nothing; or one is missing, or cannot be read.
pub fn generation_of(parts: &[LentPart]) -> Result<u64, String> {
    let mut generation = None;
    for (_, access) in columns(parts) {
        let (capability, _) = decoded(access)?;
        if *generation.get_or_insert(capability.generation) != capability.generation {
            return Err("the rights to it are of two generations".to_owned());
        }
    }
    generation.ok_or_else(|| "it has no columns".to_owned())
}

/// Component and column of each that is given.
fn columns(parts: &[LentPart]) -> impl Iterator<Item = ((usize, u16), &ColumnAccess)> {
    parts.iter().enumerate().flat_map(|(number, part)| {
        (0..).zip(&part.access.columns).map(move |(column, access)| ((number, column), access))
    })
}

fn decoded(access: &ColumnAccess) -> Result<(Capability, CapabilityKey), String> {
    let told = |e: &dyn std::fmt::Display| format!("target {}: {e}", access.target);
    let bytes: &[u8; CAPABILITY_LEN] =
        access.capability.as_slice().try_into().map_err(|_| told(&"there is no right to it"))?;
    let capability = Capability::decode(bytes).map_err(|e| told(&e))?;
    Ok((capability, CapabilityKey::from_secret(access.key.0)))
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
