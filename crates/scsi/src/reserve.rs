//! Persistent reservations (SPC-4 section 5.13): who may use a device that several hosts see.

use crate::bytes::{DecodeError, Fields};
use crate::{Data, Device, Result, opcode, timeout};

/// Kind of a reservation (SPC-4 table 66), those that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationKind {
    /// Others may read what changes nothing.
    WriteExclusive = 1,
    /// Others may only ask who the device is and how it is.
    ExclusiveAccess = 3,
}

/// Who holds a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Key of the holder; 0 when all that are registered hold it.
    pub key: u64,
    /// Kind, as the standard numbers them.
    pub kind: u8,
}

/// One that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// Its key.
    pub key: u64,
    /// Its port: an iSCSI name, or a world wide name in hexadecimal digits.
    pub port: String,
    /// It holds the device.
    pub holds: bool,
}

/// Service actions of PERSISTENT RESERVE OUT.
mod action {
    pub(super) const REGISTER: u8 = 0;
    pub(super) const RESERVE: u8 = 1;
    pub(super) const RELEASE: u8 = 2;
    pub(super) const PREEMPT_AND_ABORT: u8 = 5;
    pub(super) const REGISTER_AND_IGNORE: u8 = 6;
}

const IN: &str = "PERSISTENT RESERVE IN";
const OUT: &str = "PERSISTENT RESERVE OUT";

impl Device {
    fn persistent_in(&mut self, action: u8) -> Result<Vec<u8>> {
        let cdb = [opcode::PERSISTENT_RESERVE_IN, action, 0, 0, 0, 0, 0, 0x10, 0, 0];
        self.fetch(IN, &cdb, 0x1000, timeout::SHORT)
    }

    fn persistent_out(&mut self, action: u8, kind: u8, key: u64, other: u64) -> Result<()> {
        let mut list = [0; 24];
        list[..8].copy_from_slice(&key.to_be_bytes());
        list[8..16].copy_from_slice(&other.to_be_bytes());
        let cdb = [opcode::PERSISTENT_RESERVE_OUT, action, kind, 0, 0, 0, 0, 0, list.len() as u8, 0];
        self.must(OUT, &cdb, Data::Out(&list), timeout::SHORT).map(drop)
    }

    /// Keys of all that are registered.
    pub fn registered_keys(&mut self) -> Result<Vec<u64>> {
        let raw = self.persistent_in(0)?;
        self.decoded(IN, decode_keys(&raw))
    }

    /// Who holds the device, if anybody does.
    pub fn reservation(&mut self) -> Result<Option<Reservation>> {
        let raw = self.persistent_in(1)?;
        self.decoded(IN, decode_reservation(&raw))
    }

    /// Who is registered; not every device can say.
    pub fn registrants(&mut self) -> Result<Vec<Registrant>> {
        let raw = self.persistent_in(3)?;
        self.decoded(IN, decode_full_status(&raw))
    }

    /// Registers this host, which has to be registered with `old` (0: not at all), with `new` (0: no longer).
    pub fn change_key(&mut self, old: u64, new: u64) -> Result<()> {
        self.persistent_out(action::REGISTER, 0, old, new)
    }

    /// Registers this host with `key` (0: no longer), whatever it was registered with before.
    pub fn register_key(&mut self, key: u64) -> Result<()> {
        self.persistent_out(action::REGISTER_AND_IGNORE, 0, 0, key)
    }

    /// Takes the device for the host registered with `key`. Status 18h: somebody else has it.
    pub fn reserve(&mut self, kind: ReservationKind, key: u64) -> Result<()> {
        self.persistent_out(action::RESERVE, kind as u8, key, 0)
    }

    /// Gives the device back; nothing if it was not held.
    pub fn release(&mut self, kind: ReservationKind, key: u64) -> Result<()> {
        self.persistent_out(action::RELEASE, kind as u8, key, 0)
    }

    /// Takes the device from whoever holds it with key `from`, and ends that host's commands, registration and
    /// prevention of medium removal.
    pub fn preempt(&mut self, kind: ReservationKind, key: u64, from: u64) -> Result<()> {
        self.persistent_out(action::PREEMPT_AND_ABORT, kind as u8, key, from)
    }
}

/// Decodes the keys of PERSISTENT RESERVE IN, read keys.
pub fn decode_keys(raw: &[u8]) -> std::result::Result<Vec<u64>, DecodeError> {
    let f = Fields::new("registered keys", raw);
    let body = f.slice(8, f.u32(4)? as usize)?;
    Ok(body.chunks_exact(8).map(crate::bytes::uint).collect())
}

/// Decodes PERSISTENT RESERVE IN, read reservation.
pub fn decode_reservation(raw: &[u8]) -> std::result::Result<Option<Reservation>, DecodeError> {
    let f = Fields::new("reservation", raw);
    if f.u32(4)? == 0 {
        return Ok(None);
    }
    Ok(Some(Reservation { key: f.uint(8, 8)?, kind: f.u8(21)? & 0x0F }))
}

/// Decodes PERSISTENT RESERVE IN, read full status.
pub fn decode_full_status(raw: &[u8]) -> std::result::Result<Vec<Registrant>, DecodeError> {
    let f = Fields::new("full status of reservations", raw);
    let mut rest = f.slice(8, f.u32(4)? as usize)?;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let one = Fields::new("registrant", rest);
        let length = one.u32(20)? as usize;
        let id = one.slice(24, length)?;
        all.push(Registrant { key: one.u64(0)?, port: port(id), holds: one.u8(12)? & 1 == 1 });
        rest = &rest[24 + length..];
    }
    Ok(all)
}

/// Name in a TransportID (SPC-4 section 7.6.4).
fn port(id: &[u8]) -> String {
    let protocol = id.first().map_or(0xF, |b| b & 0x0F);
    let name = |at: usize| id.get(at..at + 8).unwrap_or(&[]).iter().map(|b| format!("{b:02x}")).collect();
    match protocol {
        0x0 => name(8), // Fibre Channel
        0x5 => crate::bytes::text(id.get(4..).unwrap_or(&[])),
        0x6 => name(4), // SAS
        _ => id.iter().map(|b| format!("{b:02x}")).collect(),
    }
}
