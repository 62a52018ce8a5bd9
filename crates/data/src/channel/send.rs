//! Sending what is queued, by whoever queued something and finds nobody sending.

use super::Shared;
use super::item::Item;
use crate::frame::{Op, Session};
use crate::{HangUp, Outgoing};
use std::sync::Arc;

impl Shared {
    /// Sends what is queued, as long as there is a connection and something to be sent.
    pub(super) fn drain(&self) {
        // Whoever sends looks at the queue once more after he has let go: nothing is left lying by two that wait for each other.
        while let Some(mut outgoing) = self.sending.try_lock() {
            let Some(out) = outgoing.as_mut() else { return };
            while let Some((item, session, hang_up)) = self.next() {
                if send(out.as_mut(), &item, &session).is_err() {
                    // The keeper reads the end of the connection and makes another.
                    *outgoing = None;
                    hang_up();
                    return;
                }
            }
            drop(outgoing);
            if !self.is_unsent() {
                return;
            }
        }
    }

    fn next(&self) -> Option<(Arc<Item>, Session, HangUp)> {
        let mut state = self.state.lock();
        let item = state.queue.get(state.sent)?.clone();
        let (session, hang_up) = state.live.as_ref().map(|live| (live.session, live.hang_up.clone()))?;
        state.sent += 1;
        Some((item, session, hang_up))
    }

    fn is_unsent(&self) -> bool {
        let state = self.state.lock();
        state.live.is_some() && state.sent < state.queue.len()
    }
}

/// Sends one request.
pub(super) fn send(out: &mut dyn Outgoing, item: &Item, session: &Session) -> std::io::Result<()> {
    let granted = item.granted.lock().clone();
    let buffer = item.buffer.lock();
    let body: &[u8] = match item.request.op {
        Op::Attach => &granted.capability,
        Op::Write | Op::Create | Op::Remove => &buffer,
        _ => &[],
    };
    let header = item.request.encode(session, &granted.key, &item.sums, body);
    out.send(&[&header, &item.sums, body], false)
}
