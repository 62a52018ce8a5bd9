//! Reservations of a logical unit: persistent (SPC-4 section 5.13) and the old RESERVE and RELEASE (SPC-2).
//!
//! A pure state machine: who holds the unit, who is registered, which commands others may send, and whom an action
//! concerns. Registrations survive resets and end with the power (no APTPL).

use crate::unit::{BAD_FIELD, BAD_LENGTH, Host, Outcome, field, give, illegal, parameters};
use scsi::{Data, Sense, opcode};
use std::collections::BTreeMap;

/// Service actions of PERSISTENT RESERVE OUT.
mod action {
    pub(super) const REGISTER: u8 = 0;
    pub(super) const RESERVE: u8 = 1;
    pub(super) const RELEASE: u8 = 2;
    pub(super) const CLEAR: u8 = 3;
    pub(super) const PREEMPT: u8 = 4;
    pub(super) const REGISTER_AND_IGNORE: u8 = 6;
}

/// PERSISTENT RESERVE OUT: preempt and abort.
pub(crate) const PREEMPT_AND_ABORT: u8 = 5;

/// Reservations preempted, reservations released, registrations preempted.
const PREEMPTED: (u8, u8) = (0x2A, 0x03);
const RELEASED: (u8, u8) = (0x2A, 0x04);
pub(crate) const UNREGISTERED: (u8, u8) = (0x2A, 0x05);

/// Bits of PERSISTENT RESERVE OUT's parameter list that ask for what is not there: SPEC_I_PT, ALL_TG_PT, APTPL.
const UNSUPPORTED: u8 = 0x0D;

/// Kind of a persistent reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind(u8);

impl Kind {
    fn new(code: u8) -> Option<Self> {
        matches!(code, 1 | 3 | 5..=8).then_some(Self(code))
    }

    /// Others may read what changes nothing.
    fn write_exclusive(self) -> bool {
        matches!(self.0, 1 | 5 | 7)
    }

    /// Whoever is registered may do everything.
    fn registrants_only(self) -> bool {
        self.0 >= 5
    }

    /// Whoever is registered holds it.
    fn all_registrants(self) -> bool {
        self.0 >= 7
    }
}

/// Not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Status RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION.
    Check(Sense),
}

/// What other hosts are told (unit attentions).
pub(crate) type Notices = Vec<(Host, (u8, u8))>;

/// See the module.
#[derive(Default)]
pub(crate) struct Reservations {
    old: Option<Host>,
    keys: BTreeMap<Host, u64>,
    held: Option<(Host, Kind)>,
    generation: u32,
}

impl Reservations {
    /// Reset: the old kind of reservation ends, the persistent kind stays.
    pub(crate) fn reset(&mut self) {
        self.old = None;
    }

    fn holds(&self, host: Host) -> bool {
        self.held.is_some_and(|(holder, kind)| {
            holder == host || (kind.all_registrants() && self.keys.contains_key(&host))
        })
    }

    /// True when a command from `host` meets somebody else's reservation.
    pub(crate) fn conflict(&self, host: Host, cdb: &[u8; 16]) -> bool {
        use opcode::*;
        let op = cdb[0];
        if matches!(op, INQUIRY | REPORT_LUNS | REQUEST_SENSE) {
            return false;
        }
        if self.old.is_some_and(|holder| holder != host) && !matches!(op, RELEASE_6 | RELEASE_10) {
            return true;
        }
        if matches!(op, RESERVE_6 | RESERVE_10) {
            return !self.keys.is_empty() && !self.holds(host) && !self.keys.contains_key(&host);
        }
        let Some((_, kind)) = self.held.filter(|_| !self.holds(host)) else { return false };
        let registered = kind.registrants_only() && self.keys.contains_key(&host);
        !registered && !allowed(cdb, kind)
    }

    /// RESERVE. With a registration it changes nothing (CRH of the capabilities).
    pub(crate) fn reserve_old(&mut self, host: Host) {
        if self.keys.is_empty() {
            self.old = Some(host);
        }
    }

    /// RELEASE.
    pub(crate) fn release_old(&mut self, host: Host) {
        self.old = self.old.filter(|holder| *holder != host);
    }

    /// PERSISTENT RESERVE IN: read keys, read reservation, report capabilities, read full status (SPC-4 section 6.15).
    pub(crate) fn answer(&self, cdb: &[u8], data: Data<'_>) -> Outcome {
        let mut raw = self.generation.to_be_bytes().to_vec();
        let body: Vec<u8> = match cdb[1] & 0x1F {
            0 => self.keys.values().flat_map(|k| k.to_be_bytes()).collect(),
            1 => self.held.map_or_else(Vec::new, |(holder, kind)| {
                let key = if kind.all_registrants() { 0 } else { self.key(holder) };
                [&key.to_be_bytes()[..], &[0, 0, 0, 0, 0, kind.0, 0, 0]].concat()
            }),
            2 => {
                // CRH; type mask valid; all six types
                raw = vec![0, 8, 0x10, 0x80, 0xEA, 0x01, 0, 0];
                return give(data, &raw, field(cdb, 7, 2));
            }
            3 => self.keys.keys().flat_map(|host| self.full_status(*host)).collect(),
            _ => return Err(BAD_FIELD),
        };
        raw.extend((body.len() as u32).to_be_bytes());
        raw.extend(body);
        give(data, &raw, field(cdb, 7, 2))
    }

    /// One registrant; its port is given as a SAS address that ends with the host's number.
    fn full_status(&self, host: Host) -> Vec<u8> {
        let mut raw = self.key(host).to_be_bytes().to_vec();
        let kind = self.held.filter(|_| self.holds(host)).map_or(0, |(_, kind)| kind.0);
        raw.extend([0, 0, 0, 0, u8::from(kind != 0), kind, 0, 0, 0, 0, 0, 1, 0, 0, 0, 24]);
        let mut port = [0u8; 24];
        port[0] = 0x06;
        port[4..12].copy_from_slice(&(0x5000_0000_0000_0000 | u64::from(host)).to_be_bytes());
        raw.extend(port);
        raw
    }

    fn key(&self, host: Host) -> u64 {
        self.keys.get(&host).copied().unwrap_or(0)
    }

    /// PERSISTENT RESERVE OUT (SPC-4 section 6.16). Ok: whom it concerns.
    pub(crate) fn act(&mut self, host: Host, cdb: &[u8], data: &Data<'_>) -> Result<Notices, Refusal> {
        let list = match parameters(data, field(cdb, 5, 4)) {
            Ok(list) if list.len() == 24 => list,
            _ => return Err(Refusal::Check(BAD_LENGTH)),
        };
        let (key, other) = (field(list, 0, 8), field(list, 8, 8));
        let what = cdb[1] & 0x1F;
        let ours = self.keys.get(&host).copied();
        if matches!(what, action::REGISTER | action::REGISTER_AND_IGNORE) {
            if what == action::REGISTER && ours.unwrap_or(0) != key {
                return Err(Refusal::Conflict);
            }
            if list[20] & UNSUPPORTED != 0 {
                return Err(Refusal::Check(illegal(0x26, 0x00)));
            }
            return Ok(self.register(host, other));
        }
        if ours != Some(key) {
            return Err(Refusal::Conflict);
        }
        let kind = || {
            let unit = cdb[2] >> 4 == 0; // the scope
            Kind::new(cdb[2] & 0x0F).filter(|_| unit).ok_or(Refusal::Check(BAD_FIELD))
        };
        match what {
            action::RESERVE => self.reserve(host, kind()?).map(|()| Notices::new()),
            action::RELEASE => self.release(host, cdb[2]),
            action::CLEAR => Ok(self.clear(host)),
            action::PREEMPT | PREEMPT_AND_ABORT => self.preempt(host, other, kind),
            _ => Err(Refusal::Check(BAD_FIELD)),
        }
    }

    fn register(&mut self, host: Host, key: u64) -> Notices {
        if key != 0 || self.keys.contains_key(&host) {
            self.generation = self.generation.wrapping_add(1);
        }
        if key != 0 {
            self.keys.insert(host, key);
            return Notices::new();
        }
        self.keys.remove(&host);
        let ends = |(holder, kind): &(Host, Kind)| match kind.all_registrants() {
            true => self.keys.is_empty(),
            false => *holder == host,
        };
        match self.held.take_if(|held| ends(held)) {
            Some((_, kind)) if kind.registrants_only() => self.tell(host, RELEASED),
            _ => Notices::new(),
        }
    }

    fn reserve(&mut self, host: Host, kind: Kind) -> Result<(), Refusal> {
        match self.held {
            None => self.held = Some((host, kind)),
            Some((_, held)) if self.holds(host) && held == kind => {}
            Some(_) => return Err(Refusal::Conflict),
        }
        Ok(())
    }

    /// Whoever holds nothing releases nothing, which is no error.
    fn release(&mut self, host: Host, scope_and_kind: u8) -> Result<Notices, Refusal> {
        let Some((_, kind)) = self.held.filter(|_| self.holds(host)) else { return Ok(Notices::new()) };
        if scope_and_kind != kind.0 {
            return Err(Refusal::Check(illegal(0x26, 0x04)));
        }
        self.held = None;
        Ok(if kind.registrants_only() { self.tell(host, RELEASED) } else { Notices::new() })
    }

    fn clear(&mut self, host: Host) -> Notices {
        self.generation = self.generation.wrapping_add(1);
        let told = self.tell(host, PREEMPTED);
        self.keys.clear();
        self.held = None;
        told
    }

    /// Removes whoever is registered with `victim`, and takes the reservation if they hold it.
    fn preempt(
        &mut self,
        host: Host,
        victim: u64,
        kind: impl Fn() -> Result<Kind, Refusal>,
    ) -> Result<Notices, Refusal> {
        let held = self.held;
        let all = held.is_some_and(|(_, kind)| kind.all_registrants());
        let takes = match held {
            Some(_) if all => victim == 0,
            Some((holder, _)) => self.key(holder) == victim,
            None => false,
        };
        if victim == 0 && !all {
            return Err(Refusal::Check(illegal(0x26, 0x00)));
        }
        let new = if takes { Some(kind()?) } else { None };
        let gone: Vec<Host> = self
            .keys
            .iter()
            .filter(|(h, k)| **h != host && (**k == victim || (takes && victim == 0)))
            .map(|(h, _)| *h)
            .collect();
        if gone.is_empty() && !takes {
            return Err(Refusal::Conflict);
        }
        self.generation = self.generation.wrapping_add(1);
        self.keys.retain(|h, _| !gone.contains(h));
        let mut told: Notices = gone.into_iter().map(|h| (h, UNREGISTERED)).collect();
        if let Some(new) = new {
            if held.is_some_and(|(_, old)| old != new) {
                told.extend(self.tell(host, RELEASED));
            }
            self.held = Some((host, new));
        }
        Ok(told)
    }

    /// A notice for everybody registered but `except`.
    fn tell(&self, except: Host, what: (u8, u8)) -> Notices {
        self.keys.keys().filter(|h| **h != except).map(|h| (*h, what)).collect()
    }
}

/// Commands that a host without a share in the reservation may send: SPC-4 table 48, SSC-4 table 15, SMC-3 table 9.
/// PERSISTENT RESERVE OUT decides by itself.
fn allowed(cdb: &[u8; 16], kind: Kind) -> bool {
    use opcode::*;
    match cdb[0] {
        TEST_UNIT_READY | LOG_SENSE | PERSISTENT_RESERVE_IN | PERSISTENT_RESERVE_OUT => true,
        READ_BLOCK_LIMITS | REPORT_DENSITY_SUPPORT | RELEASE_6 | RELEASE_10 => true,
        PREVENT_ALLOW => cdb[4] & 3 == 0,
        // What is read without moving anything (CURDATA).
        READ_ELEMENT_STATUS => cdb[6] & 2 != 0,
        MODE_SENSE_6 | MODE_SENSE_10 | READ_ATTRIBUTE | SECURITY_PROTOCOL_IN => kind.write_exclusive(),
        _ => false,
    }
}
