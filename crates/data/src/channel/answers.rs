//! What a mover answers, as it comes over a connection.

use super::item::Granted;
use crate::frame::{self, ANSWER_LEN, Answer, Session};
use crate::{Incoming, Refusal};
use std::io::{Error, Result};
use std::os::fd::OwnedFd;

/// An answer with all that belongs to it.
pub(super) struct Body {
    pub(super) answer: Answer,
    pub(super) sums: Vec<u32>,
    pub(super) bytes: Vec<u8>,
    pub(super) descriptor: Option<OwnedFd>,
}

impl Body {
    /// There are sums of bytes that did not come.
    pub(super) fn is_not_sent(&self) -> bool {
        is_not_sent(&self.answer)
    }

    /// The answer, if its mover has the target. If not, it is as if nobody had answered: a host may be back with another disk, and whoever waits does so
    /// until it has the right one, or until others stand in for it. That is not signed, as nobody there has the key; whoever forges it can as well cut
    /// the connection.
    pub(super) fn said_by_the_target(self) -> Result<Self> {
        match self.answer.code == Refusal::Elsewhere(String::new()).code() {
            true => Err(Error::other(String::from_utf8_lossy(&self.bytes))),
            false => Ok(self),
        }
    }
}

/// Receives an answer and checks its signature.
pub(super) fn receive(
    incoming: &mut dyn Incoming,
    session: &Session,
    granted: &Granted,
    sequence: u64,
    memory: Vec<u8>,
) -> Result<Body> {
    let mut header = [0; ANSWER_LEN];
    incoming.receive(&mut header)?;
    body(incoming, &header, session, granted, sequence, memory)
}

/// Reads what follows a header and checks the signature.
pub(super) fn body(
    incoming: &mut dyn Incoming,
    header: &[u8; ANSWER_LEN],
    session: &Session,
    granted: &Granted,
    sequence: u64,
    mut memory: Vec<u8>,
) -> Result<Body> {
    let answer = Answer::decode(header).map_err(Error::other)?;
    if answer.sequence != sequence {
        return Err(Error::other("it answers out of order"));
    }
    let mut sums = vec![0; answer.sums as usize * 4];
    incoming.receive(&mut sums)?;
    // What does not come is read into it.
    if !is_not_sent(&answer) {
        memory.resize(answer.length as usize, 0);
        incoming.receive(&mut memory)?;
    }
    let unsigned = header[32..] == [0; ANSWER_LEN - 32];
    // Without a capability the mover cannot sign that it refuses. Whoever forges that can as well cut the connection.
    if !(unsigned && matches!(answer.code, 1..=5 | 12 | 13)) {
        Answer::verify(header, session, &granted.key, &sums, &memory)
            .map_err(|_: Refusal| Error::other("it does not sign as the target of the capability would"))?;
    }
    let descriptor = incoming.descriptor();
    Ok(Body { answer, sums: frame::decode_sums(&sums), bytes: memory, descriptor })
}

fn is_not_sent(answer: &Answer) -> bool {
    answer.code == 0 && answer.length == 0 && answer.sums > 0
}
