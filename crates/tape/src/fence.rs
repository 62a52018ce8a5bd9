//! The fence around devices that other hosts reach too: a persistent reservation, exclusive access.
//!
//! A node has one key for all its devices. It takes a device that nobody holds, and one that it held itself before a
//! crash; from another it takes one only when an operator says so. Downside: two nodes on one host with one host adapter
//! are one initiator to the device; they are told apart by their keys only when they begin.

use scsi::{Device, ReservationKind, ScsiError, SenseKey};

const KIND: ReservationKind = ReservationKind::ExclusiveAccess;
/// Unit attentions in a row before a device counts as broken.
const MAX_ATTENTIONS: u32 = 32;
/// First two bytes of the keys of all Thermocline nodes: `TC`.
const OURS: u64 = 0x5443;

/// Key of a node: `identity` is what tells it from all others.
pub fn key(identity: &str) -> u64 {
    let hash = identity
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3));
    (OURS << 48) | (hash & 0xFFFF_FFFF_FFFF)
}

/// What a claim came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// Not asked for.
    #[default]
    None,
    /// The device has no reservations.
    Unsupported,
    /// It is ours alone.
    Held,
}

/// Why a device could not be claimed.
pub(crate) enum Refused {
    /// Somebody else has it.
    Elsewhere(String),
    /// It does not answer as it should.
    Failed(ScsiError),
}

impl From<ScsiError> for Refused {
    fn from(e: ScsiError) -> Self {
        Self::Failed(e)
    }
}

/// How a command ended.
enum End {
    Good,
    Conflict,
    Unsupported,
}

/// Sends a command until it gets through the unit attentions that wait.
fn send(
    device: &mut Device,
    command: &mut dyn FnMut(&mut Device) -> scsi::Result<()>,
) -> Result<End, Refused> {
    let mut attentions = 0;
    loop {
        let error = match command(device) {
            Ok(()) => return Ok(End::Good),
            Err(e) => e,
        };
        match (&error, error.sense().map(|s| s.key)) {
            (_, Some(SenseKey::UnitAttention)) if attentions < MAX_ATTENTIONS => attentions += 1,
            (_, Some(SenseKey::IllegalRequest)) => return Ok(End::Unsupported),
            (ScsiError::Status { status: 0x18, .. }, _) => return Ok(End::Conflict),
            _ => return Err(error.into()),
        }
    }
}

/// Makes sure that the device is ours; `force` takes it from whoever has it.
pub(crate) fn claim(device: &mut Device, key: u64, force: bool) -> Result<Claim, Refused> {
    match send(device, &mut |d| d.reserve(KIND, key))? {
        End::Good => return Ok(Claim::Held),
        End::Unsupported => return Ok(Claim::Unsupported),
        End::Conflict => {}
    }
    register(device, key, force)?;
    if matches!(send(device, &mut |d| d.reserve(KIND, key))?, End::Good) {
        return Ok(Claim::Held);
    }
    let holder = holder(device)?;
    // Our own key on another way to the device: what a run before a crash left.
    if force || holder == Some(key) {
        let from = holder.unwrap_or(0);
        if let End::Good = send(device, &mut |d| d.preempt(KIND, key, from))? {
            return Ok(Claim::Held);
        }
    }
    let who = describe(device, holder);
    // Whoever holds nothing need not stay registered.
    let _ = send(device, &mut |d| d.register_key(0));
    Err(Refused::Elsewhere(who))
}

/// Registers this host unless it is registered with a key of somebody else.
fn register(device: &mut Device, key: u64, force: bool) -> Result<(), Refused> {
    for old in [0, key] {
        if let End::Good = send(device, &mut |d| d.change_key(old, key))? {
            return Ok(());
        }
    }
    if force && matches!(send(device, &mut |d| d.register_key(key))?, End::Good) {
        return Ok(());
    }
    let holder = holder(device)?;
    Err(Refused::Elsewhere(describe(device, holder)))
}

fn holder(device: &mut Device) -> Result<Option<u64>, Refused> {
    let mut found = None;
    let asked = send(device, &mut |d| d.reservation().map(|r| found = r.map(|r| r.key)))?;
    Ok(found.filter(|_| matches!(asked, End::Good)))
}

fn describe(device: &mut Device, holder: Option<u64>) -> String {
    let Some(key) = holder else {
        return "it is reserved by another host or program (RESERVE, without a key), or by another node of this host".into();
    };
    let mut ports = Vec::new();
    // Some devices cannot say who is registered.
    let _ = send(device, &mut |d| d.registrants().map(|all| ports = all));
    let port = ports.iter().find(|r| r.key == key).map(|r| format!(" at {}", r.port)).unwrap_or_default();
    let who = if key >> 48 == OURS { "another Thermocline node" } else { "another host" };
    format!("it is reserved by {who}{port}, key {key:#x}")
}

/// Who has reserved a device, as far as it says.
pub(crate) fn who(device: &mut Device) -> String {
    let holder = holder(device).ok().flatten();
    describe(device, holder)
}

/// Gives the device back.
pub(crate) fn release(device: &mut Device, key: u64) {
    // What cannot be given back now is ours again at the next start.
    let _ = send(device, &mut |d| d.release(KIND, key));
    let _ = send(device, &mut |d| d.change_key(key, 0));
}
