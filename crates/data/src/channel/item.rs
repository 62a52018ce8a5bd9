//! Requests on their way, their answers, and the slots of capabilities.

use super::descriptors::{Kept, Way};
use super::{Ask, Shared};
use crate::frame::{Answer, HELD, Op, Request, SETTLED};
use crate::{CAPABILITY_LEN, CapabilityKey, DataError, Result, sum};
use parking_lot::{Condvar, Mutex};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A capability with its key.
#[derive(Debug)]
pub struct Granted {
    pub(super) capability: [u8; CAPABILITY_LEN],
    pub(super) key: CapabilityKey,
}

/// A capability that was presented; free again when the last one of it is dropped.
#[derive(Clone, Debug)]
pub struct Slot(pub(super) Arc<Held>);

pub(super) struct Held {
    pub(super) number: u16,
    pub(super) shared: Arc<Shared>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.number.fmt(f)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.state.lock().slots.remove(&self.number);
        let gone = self.shared.descriptors.lock().forget_slot(self.number);
        drop(gone);
    }
}

/// One request that was not answered.
pub(super) struct Item {
    pub(super) request: Request,
    pub(super) sums: Vec<u8>,
    /// What it takes of the window (bytes).
    pub(super) weight: usize,
    /// Bytes to be written, or memory for those that come.
    pub(super) buffer: Mutex<Vec<u8>>,
    /// What it is signed with.
    pub(super) granted: Mutex<Arc<Granted>>,
    pub(super) outcome: Arc<Outcome>,
    pub(super) slot: Slot,
    /// By what the bytes are read if they are not sent.
    pub(super) held: Option<Arc<Kept>>,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// Length of the object; of a read with [`crate::frame::COMPARED`] what was read of it (bytes).
    pub object_length: u64,
    /// What was read; what was written is given back.
    pub bytes: Vec<u8>,
    /// A descriptor that came along.
    pub descriptor: Option<OwnedFd>,
    /// Sums of the pieces of `bytes`.
    pub(super) sums: Vec<u32>,
}

impl Reply {
    pub(super) fn new(answer: &Answer, sums: Vec<u32>, bytes: Vec<u8>, descriptor: Option<OwnedFd>) -> Self {
        Self { object_length: answer.value, bytes, descriptor, sums }
    }
}

/// What becomes of a request.
#[derive(Default)]
pub(super) struct Outcome {
    fate: Mutex<Fate>,
    changed: Condvar,
}

#[derive(Default)]
struct Fate {
    answer: Option<Result<Reply>>,
    /// Somebody waits for it ...
    waits: bool,
    /// ... and is to read, as nobody else does.
    called: bool,
}

impl Outcome {
    pub(super) fn set(&self, answer: Result<Reply>) {
        self.fate.lock().answer = Some(answer);
        self.changed.notify_all();
    }

    /// Whether the answer is there.
    pub(super) fn is_there(&self) -> bool {
        self.fate.lock().answer.is_some()
    }

    /// Whether somebody waits for it.
    pub(super) fn is_waited_for(&self) -> bool {
        self.fate.lock().waits
    }

    /// The answer, if it is there; if not, whoever asks is going to wait for it.
    pub(super) fn there(&self) -> Option<Result<Reply>> {
        let mut fate = self.fate.lock();
        (fate.waits, fate.called) = (true, false);
        fate.answer.take()
    }

    /// Whoever waits for it is to read; false if nobody does.
    pub(super) fn call(&self) -> bool {
        let mut fate = self.fate.lock();
        fate.called = fate.waits;
        self.changed.notify_all();
        fate.waits
    }

    /// Waits until there is the answer, or whoever waits is called since he asked for it.
    pub(super) fn wait(&self) {
        let mut fate = self.fate.lock();
        while fate.answer.is_none() && !fate.called {
            self.changed.wait(&mut fate);
        }
    }
}

/// A request on its way. Dropping it does not call the request back.
pub struct Ticket {
    pub(super) shared: Arc<Shared>,
    pub(super) slot: Slot,
    pub(super) ask: Ask,
    pub(super) outcome: Arc<Outcome>,
}

/// How often bytes that were damaged on the way are asked for, or sent, again.
const ATTEMPTS: usize = 4;

impl Ticket {
    /// Waits for the answer. Bytes that were read are compared with their sums; such as were changed while the mover sent them are asked
    /// for again, settled, and so are such as were read by a descriptor. Bytes that were damaged on their way to the mover are sent again.
    ///
    /// # Errors
    /// `Refused`, `Unreachable`, `Damaged`, `Closed`.
    pub fn wait(self) -> Result<Reply> {
        let mut outcome = self.outcome;
        let mut ask = self.ask;
        for _ in 0..ATTEMPTS {
            let reply = outcome.take(&self.shared)?;
            let held = ask.flags & HELD != 0;
            // By a descriptor fewer bytes come where they are not in memory, and where they change.
            let whole = !held
                || reply.bytes.len() as u64 == ask.length.min(reply.object_length.saturating_sub(ask.offset));
            if ask.op != Op::Read || (whole && sum::parts(ask.offset, &reply.bytes) == reply.sums) {
                return Ok(reply);
            }
            if held && whole {
                self.shared.forget(ask.object);
            }
            ask.flags = ask.flags & !HELD | if whole { SETTLED } else { 0 };
            outcome = self.shared.submit_by(Way::Sent, &self.slot, ask, reply.bytes)?.outcome;
        }
        Err(DataError::Damaged { mover: self.shared.terms.mover.clone(), object: ask.object })
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({:?})", self.ask)
    }
}
