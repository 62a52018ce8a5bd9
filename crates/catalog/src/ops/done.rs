//! Calls of other hosts on names that were done, each recorded in the transaction that did it, until its caller has the answer.

use crate::keys;
use crate::recorded::Recording;
use crate::store::{Tx, View};
use crate::{CatalogError, Result};
use std::ops::ControlFlow;
use types::{CallId, Cx, Ino, NodeId, Time};

/// What a call came to: the node that it made or linked, if any, and when that was.
const BYTES: usize = 16;
/// Records that are removed in one transaction.
const SOME: usize = 1000;

/// The call of `cx` is done with this transaction. What its session will not ask for again is forgotten.
pub fn record(tx: &mut Tx<'_>, cx: &Cx, made: Option<Ino>) -> Result<()> {
    let Some(call) = cx.call else { return Ok(()) };
    let CallId { node, session, number, answered } = call;
    let found = match tx.recorded.answered(&call, SOME) {
        Some(known) => known,
        None => numbers(tx.view(), node, session)?,
    };
    let answered = found.iter().copied().filter(|before| *before < answered.min(number));
    let forgotten: Vec<u64> = answered.take(SOME).collect();
    for before in &forgotten {
        tx.w.delete(&keys::done_call(node, session, *before))?;
    }
    *tx.recording = Some(Recording { call, found, forgotten });
    let mut value = [0; BYTES];
    value[..8].copy_from_slice(&made.map_or(0, |ino| ino.0).to_le_bytes());
    value[8..].copy_from_slice(&cx.now.secs.to_le_bytes());
    Ok(tx.w.put(&keys::done_call(node, session, number), &value)?)
}

/// Numbers of the calls of a session that are recorded.
fn numbers(view: View<'_>, node: NodeId, session: u64) -> Result<Vec<u64>> {
    let prefix = keys::done_in(node, session);
    let mut numbers = Vec::new();
    view.r.scan(&prefix, &keys::end(&prefix), &mut |key, _| {
        numbers.extend(key.last_chunk().map(|number| u64::from_be_bytes(*number)));
        ControlFlow::Continue(())
    })?;
    Ok(numbers)
}

/// What a call came to; None: it was not done.
pub fn find(view: View<'_>, call: &CallId) -> Result<Option<Option<Ino>>> {
    let value = view.r.get(&keys::done_call(call.node, call.session, call.number))?;
    value.map(|value| decode(&value).map(|(made, _)| made)).transpose()
}

/// Whether calls of a session are recorded.
pub fn any(view: View<'_>, node: NodeId, session: u64) -> Result<bool> {
    let prefix = keys::done_in(node, session);
    let mut found = false;
    view.r.scan(&prefix, &keys::end(&prefix), &mut |_, _| {
        found = true;
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Forgets some calls that were done before a moment: their callers did not come back. True if there may be more.
pub fn forget_before(tx: &mut Tx<'_>, moment: Time) -> Result<bool> {
    let prefix = keys::done_calls();
    let is_old = |value: &[u8]| decode(value).is_ok_and(|(_, at)| at < moment.secs);
    let keys = list(tx.view(), &prefix, &keys::end(&prefix), is_old)?;
    for key in &keys {
        tx.w.delete(key)?;
    }
    Ok(keys.len() == SOME)
}

/// At most so many keys whose values are wanted.
fn list(view: View<'_>, from: &[u8], to: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    view.r.scan(from, to, &mut |key, value| {
        if wanted(value) {
            keys.push(key.to_vec());
        }
        if keys.len() < SOME { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(keys)
}

fn decode(value: &[u8]) -> Result<(Option<Ino>, i64)> {
    let damaged = || CatalogError::corrupt("call", "of another host", "not 16 bytes");
    let value: &[u8; BYTES] = value.try_into().map_err(|_| damaged())?;
    let (made, at) = value.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map_err(|_| damaged());
    let made = Some(u64::from_le_bytes(number(made)?)).filter(|ino| *ino != 0).map(Ino);
    Ok((made, i64::from_le_bytes(number(at)?)))
}
