//! What every logical unit does the same way: hosts with their unit attentions, reservations, common answers.

use scsi::{CHECK_CONDITION, Data, GOOD, Reply, Sense, SenseKey, opcode};
use std::collections::{BTreeMap, VecDeque};

/// Status RESERVATION CONFLICT.
pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;

/// Which host (I_T nexus) sends a command. Host 0 is the process that owns the library, host 1 everything that comes
/// through the unix sockets; as on Linux, all programs of one host share its unit attentions and reservations.
pub type Host = u32;

/// A command that was carried out, perhaps with something to tell.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) transferred: usize,
    pub(crate) sense: Option<Sense>,
}

/// Err: not carried out.
pub(crate) type Outcome = Result<Done, Sense>;

pub(crate) const OK: Outcome = Ok(Done { transferred: 0, sense: None });

pub(crate) const fn illegal(asc: u8, ascq: u8) -> Sense {
    Sense::new(SenseKey::IllegalRequest, asc, ascq)
}

/// Invalid field in CDB.
pub(crate) const BAD_FIELD: Sense = illegal(0x24, 0x00);
/// Invalid field in parameter list.
pub(crate) const BAD_PARAMETER: Sense = illegal(0x26, 0x00);
/// Parameter list length error.
pub(crate) const BAD_LENGTH: Sense = illegal(0x1A, 0x00);

/// Big-endian number in a CDB or parameter list; bytes beyond the end count as 0.
pub(crate) fn field(raw: &[u8], at: usize, width: usize) -> u64 {
    (at..at + width).fold(0, |n, i| (n << 8) | u64::from(raw.get(i).copied().unwrap_or(0)))
}

/// Gives `bytes` to the initiator, at most `alloc` of them.
pub(crate) fn give(data: Data<'_>, bytes: &[u8], alloc: u64) -> Outcome {
    let Data::In(buf) = data else {
        return if alloc == 0 { OK } else { Err(BAD_FIELD) };
    };
    let n = bytes.len().min(buf.len()).min(usize::try_from(alloc).unwrap_or(usize::MAX));
    buf[..n].copy_from_slice(&bytes[..n]);
    Ok(Done { transferred: n, sense: None })
}

/// The parameter list of `length` bytes that came with the command.
pub(crate) fn parameters<'a>(data: &'a Data<'_>, length: u64) -> Result<&'a [u8], Sense> {
    match data {
        _ if length == 0 => Ok(&[]),
        Data::Out(bytes) => usize::try_from(length).ok().and_then(|n| bytes.get(..n)).ok_or(BAD_LENGTH),
        _ => Err(BAD_LENGTH),
    }
}

pub(crate) fn reply(outcome: Outcome) -> Reply {
    let (transferred, sense) = match outcome {
        Ok(done) => (done.transferred, done.sense),
        Err(sense) => (0, Some(sense)),
    };
    match sense {
        None => Reply { status: GOOD, transferred, sense: Vec::new() },
        Some(sense) => Reply { status: CHECK_CONDITION, transferred, sense: sense.encode() },
    }
}

/// Commands that are answered whatever is pending or reserved (SPC-4 sections 5.14 and 6.4).
pub(crate) fn always_answered(op: u8) -> bool {
    matches!(op, opcode::INQUIRY | opcode::REPORT_LUNS | opcode::REQUEST_SENSE)
}

/// Hosts as a logical unit knows them.
#[derive(Default)]
pub(crate) struct Hosts {
    pending: BTreeMap<Host, VecDeque<(u8, u8)>>,
    prevented: BTreeMap<Host, bool>,
    reserved_by: Option<Host>,
    keys: BTreeMap<Host, u64>,
    persistent: Option<(Host, u8)>,
    generation: u32,
}

/// The hosts there are (see [`Host`]).
pub(crate) const HOSTS: [Host; 2] = [0, 1];

impl Hosts {
    /// Tells all hosts but `except` (unit attention).
    pub(crate) fn attention(&mut self, asc: u8, ascq: u8, except: Option<Host>) {
        for host in HOSTS.into_iter().filter(|h| Some(*h) != except) {
            let queue = self.pending.entry(host).or_default();
            if !queue.contains(&(asc, ascq)) {
                queue.push_back((asc, ascq));
            }
        }
    }

    /// Power on or reset: everything is forgotten, and every host is told.
    pub(crate) fn reset(&mut self, ascq: u8) {
        *self = Self::default();
        self.attention(0x29, ascq, None);
    }

    /// Next unit attention for a host.
    pub(crate) fn take_attention(&mut self, host: Host) -> Option<Sense> {
        let (asc, ascq) = self.pending.get_mut(&host)?.pop_front()?;
        Some(Sense::new(SenseKey::UnitAttention, asc, ascq))
    }

    /// PREVENT ALLOW MEDIUM REMOVAL.
    pub(crate) fn prevent(&mut self, host: Host, cdb: &[u8]) -> Outcome {
        self.prevented.insert(host, cdb[4] & 1 == 1);
        OK
    }

    /// True while any host prevents removal.
    pub(crate) fn removal_prevented(&self) -> bool {
        self.prevented.values().any(|p| *p)
    }

    /// Ends all preventions (the medium has left).
    pub(crate) fn allow_removal(&mut self) {
        self.prevented.clear();
    }

    /// True when `op` from `host` meets somebody else's reservation.
    pub(crate) fn conflict(&self, host: Host, op: u8) -> bool {
        use opcode::*;
        if always_answered(op) || matches!(op, PERSISTENT_RESERVE_IN | PERSISTENT_RESERVE_OUT) {
            return false;
        }
        let releasing = matches!(op, RELEASE_6 | RELEASE_10);
        let reserved = self.reserved_by.is_some_and(|h| h != host) && !releasing;
        let persistent = self.persistent.is_some_and(|(holder, kind)| {
            let registrants = kind >= 5;
            holder != host && !(registrants && self.keys.contains_key(&host))
        });
        reserved || persistent
    }

    /// RESERVE and RELEASE (SPC-2).
    pub(crate) fn reserve(&mut self, host: Host, reserve: bool) -> Outcome {
        match reserve {
            true => self.reserved_by = Some(host),
            false if self.reserved_by == Some(host) => self.reserved_by = None,
            false => {}
        }
        OK
    }

    /// PERSISTENT RESERVE IN: read keys, read reservation, report capabilities (SPC-4 section 6.15).
    pub(crate) fn persistent_in(&self, cdb: &[u8], data: Data<'_>) -> Outcome {
        let mut raw = self.generation.to_be_bytes().to_vec();
        match cdb[1] & 0x1F {
            0 => {
                raw.extend((8 * self.keys.len() as u32).to_be_bytes());
                self.keys.values().for_each(|k| raw.extend(k.to_be_bytes()));
            }
            1 => match self.persistent {
                None => raw.extend([0; 4]),
                Some((holder, kind)) => {
                    raw.extend(16u32.to_be_bytes());
                    raw.extend(self.keys.get(&holder).copied().unwrap_or(0).to_be_bytes());
                    raw.extend([0, 0, 0, 0, 0, kind, 0, 0]);
                }
            },
            2 => raw = vec![0, 8, 0x10, 0x80, 0xEA, 0x01, 0, 0],
            _ => return Err(BAD_FIELD),
        }
        give(data, &raw, field(cdb, 7, 2))
    }

    /// PERSISTENT RESERVE OUT: register, reserve, release, clear, preempt, register and ignore (SPC-4 section 6.16).
    /// None: reservation conflict.
    pub(crate) fn persistent_out(&mut self, host: Host, cdb: &[u8], data: &Data<'_>) -> Option<Outcome> {
        let list = match parameters(data, field(cdb, 5, 4)) {
            Ok(list) if list.len() >= 24 => list,
            _ => return Some(Err(BAD_LENGTH)),
        };
        let (key, action_key) = (field(list, 0, 8), field(list, 8, 8));
        let (action, kind) = (cdb[1] & 0x1F, cdb[2] & 0x0F);
        let registered = self.keys.get(&host).copied();
        match action {
            0 | 6 => {
                if action == 0 && registered.unwrap_or(0) != key {
                    return None;
                }
                self.generation = self.generation.wrapping_add(1);
                match action_key {
                    0 => self.unregister(host),
                    new => _ = self.keys.insert(host, new),
                }
            }
            _ if registered != Some(key) => return None,
            1 => match self.persistent {
                Some(held) if held != (host, kind) => return None,
                _ if !matches!(kind, 1 | 3 | 5..=8) => return Some(Err(BAD_FIELD)),
                _ => self.persistent = Some((host, kind)),
            },
            2 => {
                if let Some((holder, held)) = self.persistent.filter(|(h, _)| *h == host) {
                    if held != kind {
                        return Some(Err(illegal(0x26, 0x04)));
                    }
                    self.persistent = None;
                    if held >= 5 {
                        self.attention(0x2A, 0x04, Some(holder));
                    }
                }
            }
            3 => {
                self.generation = self.generation.wrapping_add(1);
                self.keys.clear();
                self.persistent = None;
                self.attention(0x2A, 0x03, Some(host));
            }
            4 => self.preempt(host, action_key, kind),
            _ => return Some(Err(BAD_FIELD)),
        }
        Some(OK)
    }

    fn unregister(&mut self, host: Host) {
        self.keys.remove(&host);
        if self.persistent.is_some_and(|(holder, _)| holder == host) {
            self.persistent = None;
        }
    }

    fn preempt(&mut self, host: Host, victim_key: u64, kind: u8) {
        self.generation = self.generation.wrapping_add(1);
        let holder_key = self.persistent.and_then(|(h, _)| self.keys.get(&h).copied());
        if holder_key == Some(victim_key) {
            self.persistent = Some((host, kind));
        }
        self.keys.retain(|h, k| *h == host || *k != victim_key);
        self.attention(0x2A, 0x05, Some(host));
    }
}
