//! What every logical unit does the same way: hosts with their unit attentions, reservations, common answers.

use crate::reserve::{PREEMPT_AND_ABORT, Refusal, Reservations, UNREGISTERED};
use scsi::{CHECK_CONDITION, Data, GOOD, Reply, Sense, SenseKey};
use std::collections::{BTreeMap, VecDeque};

/// Status RESERVATION CONFLICT.
pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;

/// Which host (I_T nexus) sends a command. Host 0 is the process that owns the library; each directory of sockets is one
/// more, from 1. As on Linux, all programs of one host share its unit attentions and reservations.
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

/// Hosts as a logical unit knows them. One that was never heard of has the power-on still to be told.
#[derive(Default)]
pub(crate) struct Hosts {
    pending: BTreeMap<Host, VecDeque<(u8, u8)>>,
    /// What a host is told that comes later.
    newcomers: VecDeque<(u8, u8)>,
    prevented: BTreeMap<Host, bool>,
    reservations: Reservations,
}

impl Hosts {
    fn queue(&mut self, host: Host) -> &mut VecDeque<(u8, u8)> {
        self.pending.entry(host).or_insert_with(|| self.newcomers.clone())
    }

    /// Tells all hosts (unit attention).
    pub(crate) fn attention(&mut self, asc: u8, ascq: u8) {
        for queue in self.pending.values_mut().chain([&mut self.newcomers]) {
            enqueue(queue, (asc, ascq));
        }
    }

    /// Tells all other hosts.
    pub(crate) fn tell_others(&mut self, host: Host, asc: u8, ascq: u8) {
        for (_, queue) in self.pending.iter_mut().filter(|(h, _)| **h != host) {
            enqueue(queue, (asc, ascq));
        }
    }

    /// Power on: everything is forgotten, and every host is told.
    pub(crate) fn power_on(&mut self) {
        let known = std::mem::take(&mut self.pending);
        *self =
            Self { pending: known.into_keys().map(|h| (h, VecDeque::new())).collect(), ..Self::default() };
        self.attention(0x29, 0x01);
    }

    /// Reset: preventions end, registrations stay, and every host is told.
    pub(crate) fn reset(&mut self) {
        self.reservations.reset();
        self.prevented.clear();
        self.pending.values_mut().chain([&mut self.newcomers]).for_each(VecDeque::clear);
        self.attention(0x29, 0x00);
    }

    /// Next unit attention for a host.
    pub(crate) fn take_attention(&mut self, host: Host) -> Option<Sense> {
        let (asc, ascq) = self.queue(host).pop_front()?;
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

    /// True when a command from `host` meets somebody else's reservation.
    pub(crate) fn conflict(&self, host: Host, cdb: &[u8; 16]) -> bool {
        self.reservations.conflict(host, cdb)
    }

    /// RESERVE and RELEASE (SPC-2).
    pub(crate) fn reserve(&mut self, host: Host, reserve: bool) -> Outcome {
        match reserve {
            true => self.reservations.reserve_old(host),
            false => self.reservations.release_old(host),
        }
        OK
    }

    /// PERSISTENT RESERVE IN.
    pub(crate) fn persistent_in(&self, cdb: &[u8], data: Data<'_>) -> Outcome {
        self.reservations.answer(cdb, data)
    }

    /// PERSISTENT RESERVE OUT. None: reservation conflict.
    pub(crate) fn persistent_out(&mut self, host: Host, cdb: &[u8], data: &Data<'_>) -> Option<Outcome> {
        match self.reservations.act(host, cdb, data) {
            Ok(notices) => {
                for (other, what) in notices {
                    if what == UNREGISTERED && cdb[1] & 0x1F == PREEMPT_AND_ABORT {
                        self.prevented.remove(&other);
                    }
                    enqueue(self.queue(other), what);
                }
                Some(OK)
            }
            Err(Refusal::Check(sense)) => Some(Err(sense)),
            Err(Refusal::Conflict) => None,
        }
    }
}

fn enqueue(queue: &mut VecDeque<(u8, u8)>, what: (u8, u8)) {
    if !queue.contains(&what) {
        queue.push_back(what);
    }
}
