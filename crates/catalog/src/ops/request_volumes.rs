//! Requests whose items are volumes: verify and repack.

use super::{request, volume};
use crate::keys;
use crate::rec::{self, ItemRec};
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result};
use format::record;
use std::ops::ControlFlow;
use types::*;

/// Enters a request with its volumes and their bytes; `state`: what they all become.
pub fn create(
    tx: &mut Tx<'_>,
    wanted: &Request,
    volumes: &[(Barcode, u64)],
    state: Option<VolumeState>,
) -> Result<Request> {
    let made = request::create(tx, wanted, &[])?;
    let pending = |bytes| ItemRec { state: ItemState::Pending, bytes };
    for (barcode, bytes) in volumes {
        tx.w.put(&keys::request_volume(made.id, barcode), &record::encode(&pending(*bytes)))?;
        if let Some(state) = state {
            volume::set_aside(tx, barcode, state, format!("request {}", made.id), wanted.created)?;
        }
    }
    request::update(tx, made.id, &mut |r| {
        r.files_total = volumes.len() as u64;
        r.bytes_total = volumes.iter().map(|(_, bytes)| bytes).sum();
    })
}

/// Volumes of a request in order of barcode.
pub fn list(view: View<'_>, id: RequestId) -> Result<Vec<(Barcode, ItemState, u64)>> {
    let mut found = Vec::new();
    let prefix = keys::request_volumes(id);
    store::each(view.r, &prefix, &keys::end(&prefix), |k, v| {
        let barcode = Barcode::from(&*String::from_utf8_lossy(&k[prefix.len()..]));
        let item: ItemRec = rec::decode("volume of request", format!("{id}: {barcode}"), v)?;
        found.push((barcode, item.state, item.bytes));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Ends one volume of an open request (again: no effect); with the last one the request ends.
pub fn finish(
    tx: &mut Tx<'_>,
    id: RequestId,
    barcode: &Barcode,
    state: &ItemState,
    note: &str,
    now: Time,
) -> Result<Request> {
    let key = keys::request_volume(id, barcode);
    let missing = || CatalogError::missing("volume in request", format!("{id}: {barcode}"));
    let value = tx.w.get_for_update(&key)?.ok_or_else(missing)?;
    let item: ItemRec = rec::decode("volume of request", format!("{id}: {barcode}"), &value)?;
    let open = item.state == ItemState::Pending;
    if open {
        tx.w.put(&key, &record::encode(&ItemRec { state: state.clone(), bytes: item.bytes }))?;
    }
    request::update(tx, id, &mut |r| {
        if !open || !matches!(r.state, RequestState::Queued | RequestState::Active) {
            return;
        }
        r.state = RequestState::Active;
        r.started.get_or_insert(now);
        r.files_done += 1;
        match state {
            ItemState::Failed(why) => {
                r.files_failed += 1;
                r.message = format!("volume {barcode}: {why}");
            }
            _ => r.bytes_done = r.bytes_done.saturating_add(item.bytes),
        }
        if !note.is_empty() && r.files_failed == 0 {
            r.message = note.to_owned();
        }
        if r.files_done >= r.files_total {
            r.state = if r.files_failed > 0 { RequestState::Failed } else { RequestState::Done };
            r.finished = Some(now);
        }
    })
}

/// The request is forgotten.
pub fn erase(tx: &mut Tx<'_>, id: RequestId) -> Result<()> {
    for (barcode, ..) in list(tx.view(), id)? {
        tx.w.delete(&keys::request_volume(id, &barcode))?;
    }
    Ok(())
}
