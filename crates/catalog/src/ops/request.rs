//! Requests and their files. `PENDING ino id` exists for each pending item of an open request.

use super::open;
use crate::keys::{self, req};
use crate::rec::{self, ItemRec};
use crate::store::{self, Tx, View};
use crate::{CatalogError, Result};
use format::record;
use std::ops::ControlFlow;
use types::*;

/// Whether it waits or is under way.
pub fn is_open(request: &Request) -> bool {
    matches!(request.state, RequestState::Queued | RequestState::Active)
}

fn missing(id: RequestId) -> CatalogError {
    CatalogError::missing("request", id)
}

/// A request by id.
pub fn request(view: View<'_>, id: RequestId) -> Result<Option<Request>> {
    view.r.get(&keys::request(id))?.map(|v| rec::decode("request", id, &v)).transpose()
}

fn load(tx: &mut Tx<'_>, id: RequestId) -> Result<Request> {
    let value = tx.w.get_for_update(&keys::request(id))?.ok_or_else(|| missing(id))?;
    rec::decode("request", id, &value)
}

fn put(tx: &mut Tx<'_>, request: &Request) -> Result<()> {
    Ok(tx.w.put(&keys::request(request.id), &record::encode(request))?)
}

/// Enters a request with its items.
pub fn create(tx: &mut Tx<'_>, request: &Request, items: &[(Ino, u64)]) -> Result<Request> {
    let mut request = request.clone();
    request.id = RequestId(open::reserve_request(tx)?);
    (request.files_total, request.files_done, request.files_failed) = (0, 0, 0);
    (request.bytes_total, request.bytes_done) = (0, 0);
    if is_open(&request) {
        tx.w.put(&keys::open_request(request.id), &[])?;
    }
    append(tx, &mut request, items)?;
    put(tx, &request)?;
    Ok(request)
}

/// Adds items to an open request.
pub fn add_items(tx: &mut Tx<'_>, id: RequestId, items: &[(Ino, u64)]) -> Result<Request> {
    let mut request = load(tx, id)?;
    if !is_open(&request) {
        return Err(CatalogError::refused(format!("request {id}"), "it has ended; make a new one"));
    }
    append(tx, &mut request, items)?;
    put(tx, &request)?;
    Ok(request)
}

fn append(tx: &mut Tx<'_>, request: &mut Request, items: &[(Ino, u64)]) -> Result<()> {
    for (ino, bytes) in items {
        let key = keys::item(request.id, *ino);
        if tx.w.get_for_update(&key)?.is_some() {
            continue;
        }
        tx.w.put(&key, &record::encode(&ItemRec { state: ItemState::Pending, bytes: *bytes }))?;
        if is_open(request) {
            tx.w.put(&keys::pending(*ino, request.id), &[])?;
        }
        request.files_total += 1;
        request.bytes_total = request.bytes_total.saturating_add(*bytes);
    }
    Ok(())
}

/// The first byte of it moved at `began`; it may have begun before, or have ended, and stays as it is then.
pub fn begin(tx: &mut Tx<'_>, id: RequestId, began: Time) -> Result<Request> {
    let mut request = load(tx, id)?;
    if is_open(&request) && (request.started.is_none() || request.state == RequestState::Queued) {
        request.state = RequestState::Active;
        request.started.get_or_insert(began);
        put(tx, &request)?;
    }
    Ok(request)
}

/// Ends one item, whose first byte moved at `began`.
pub fn finish_item(
    tx: &mut Tx<'_>,
    id: RequestId,
    ino: Ino,
    state: ItemState,
    bytes: u64,
    (began, now): (Time, Time),
) -> Result<Request> {
    let mut request = load(tx, id)?;
    let key = keys::item(id, ino);
    let value =
        tx.w.get_for_update(&key)?
            .ok_or_else(|| CatalogError::missing("file in request", format!("{id}: inode {ino}")))?;
    let item: ItemRec = rec::decode("request item", format!("{id}: inode {ino}"), &value)?;
    if item.state != ItemState::Pending || state == ItemState::Pending || !is_open(&request) {
        return Ok(request);
    }
    request.state = RequestState::Active;
    request.started.get_or_insert(began);
    request.files_done += 1;
    request.bytes_done = request.bytes_done.saturating_add(bytes);
    if let ItemState::Failed(why) = &state {
        request.files_failed += 1;
        request.message = why.clone();
    }
    tx.w.put(&key, &record::encode(&ItemRec { state, bytes: item.bytes }))?;
    tx.w.delete(&keys::pending(ino, id))?;
    if request.files_done >= request.files_total {
        request.state = if request.files_failed > 0 { RequestState::Failed } else { RequestState::Done };
        request.finished = Some(now);
        tx.w.delete(&keys::open_request(id))?;
    }
    put(tx, &request)?;
    Ok(request)
}

/// Changes a request.
pub fn update(tx: &mut Tx<'_>, id: RequestId, change: &mut dyn FnMut(&mut Request)) -> Result<Request> {
    let mut request = load(tx, id)?;
    let was_open = is_open(&request);
    change(&mut request);
    request.id = id;
    match (was_open, is_open(&request)) {
        (true, false) => {
            tx.w.delete(&keys::open_request(id))?;
            set_pending(tx, id, false)?;
        }
        (false, true) => {
            tx.w.put(&keys::open_request(id), &[])?;
            set_pending(tx, id, true)?;
        }
        _ => {}
    }
    put(tx, &request)?;
    Ok(request)
}

/// Enters or removes the reverse links of pending items.
fn set_pending(tx: &mut Tx<'_>, id: RequestId, present: bool) -> Result<()> {
    for (ino, state, _) in items(tx.view(), id, Ino(0), usize::MAX)? {
        if state == ItemState::Pending {
            let key = keys::pending(ino, id);
            if present { tx.w.put(&key, &[])? } else { tx.w.delete(&key)? }
        }
    }
    Ok(())
}

/// Requests, newest first.
pub fn requests(view: View<'_>, all: bool, limit: usize) -> Result<Vec<Request>> {
    let what = if all { req::RECORD } else { req::OPEN };
    let prefix = [keys::REQUEST, what];
    let mut ids = Vec::new();
    if limit > 0 {
        view.r.scan_back(&prefix, &keys::end(&prefix), &mut |k, _| {
            ids.extend(keys::number_at(k, 2).map(RequestId));
            if ids.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
    }
    let load = |id: RequestId| {
        request(view, id)?.ok_or_else(|| CatalogError::corrupt("open request", id, "its record is missing"))
    };
    ids.into_iter().map(load).collect()
}

/// Open requests in which this inode is pending.
pub fn requests_for(view: View<'_>, ino: Ino) -> Result<Vec<RequestId>> {
    let prefix = keys::pendings(ino);
    let mut ids = Vec::new();
    view.r.scan(&prefix, &keys::end(&prefix), &mut |k, _| {
        ids.extend(keys::number_at(k, 10).map(RequestId));
        ControlFlow::Continue(())
    })?;
    Ok(ids)
}

/// Items in order of inode.
pub fn items(view: View<'_>, id: RequestId, after: Ino, limit: usize) -> Result<Vec<(Ino, ItemState, u64)>> {
    let mut found = Vec::new();
    let to = keys::end(&keys::items(id));
    store::each(view.r, &keys::after(&keys::item(id, after)), &to, |k, v| {
        if found.len() >= limit {
            return Ok(ControlFlow::Break(()));
        }
        let ino = Ino(keys::number_at(k, 10).unwrap_or(0));
        let item: ItemRec = rec::decode("request item", format!("{id}: inode {ino}"), v)?;
        found.push((ino, item.state, item.bytes));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Forgets requests that ended long ago.
pub fn prune(tx: &mut Tx<'_>, ended_before: Time, limit: usize) -> Result<usize> {
    let mut old = Vec::new();
    let prefix = [keys::REQUEST, req::RECORD];
    store::each(&*tx.w, &prefix, &keys::end(&prefix), |k, v| {
        if old.len() >= limit {
            return Ok(ControlFlow::Break(()));
        }
        let r: Request = rec::decode("request", keys::number_at(k, 2).unwrap_or(0), v)?;
        if !is_open(&r) && r.finished.is_none_or(|t| t < ended_before) {
            old.push(r.id);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for id in &old {
        for (ino, ..) in items(tx.view(), *id, Ino(0), usize::MAX)? {
            tx.w.delete(&keys::item(*id, ino))?;
        }
        super::request_volumes::erase(tx, *id)?;
        tx.w.delete(&keys::request(*id))?;
    }
    Ok(old.len())
}
