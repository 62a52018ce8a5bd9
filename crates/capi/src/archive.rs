//! What a file system does not know: where files are, and when they will be back.

use crate::error::{answer, guard, invalid, object, text};
use crate::session::{ThermoSession, path};
use std::ffi::{c_char, c_int};
use types::{RequestId, RequestState, Residency};

/// `struct thermo_state`.
#[repr(C)]
pub struct ThermoState {
    /// `enum thermo_residency`.
    pub residency: c_int,
    /// Copies on tape that count.
    pub copies: u32,
    /// Copies that the class of service requires.
    pub copies_required: u32,
    /// Per cent that have come back, while it comes back; else -1.
    pub percent: i32,
    /// Seconds until it is back, if that can be said; else -1.
    pub eta_s: i64,
    /// Request that brings it back; 0: none.
    pub request: u64,
}

/// `struct thermo_request`.
#[repr(C)]
pub struct ThermoRequest {
    /// Number.
    pub id: u64,
    /// `enum thermo_request_state`.
    pub state: c_int,
    /// Per cent done, by bytes.
    pub percent: u32,
    /// Place among the requests that wait, from 1; 0: it does not wait.
    pub queue_position: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Seconds until it is done, if that can be said; else -1.
    pub eta_s: i64,
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_state(
    session: *const ThermoSession,
    name: *const c_char,
    state: *mut ThermoState,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { object(session)?.0.state(path(name)?) }?;
        let residency = match view.residency {
            None => 0,
            Some(Residency::Resident) => 1,
            Some(Residency::Dual) => 2,
            Some(Residency::Offline) => 3,
            Some(Residency::Staging) => 4,
        };
        let found = ThermoState {
            residency,
            copies: view.file.as_ref().map_or(0, |file| file.copies.len() as u32),
            copies_required: view.copies_required.into(),
            percent: view.percent.map_or(-1, i32::from),
            eta_s: view.eta_s.map_or(-1, |s| i64::try_from(s).unwrap_or(i64::MAX)),
            request: view.request.map_or(0, |id| id.0),
        };
        // SAFETY: the caller's promise.
        unsafe { answer(state, found) }.map(|()| 0)
    })
}

fn shown(view: &types::RequestView) -> ThermoRequest {
    let state = match view.request.state {
        RequestState::Queued => 0,
        RequestState::Active => 1,
        RequestState::Done => 2,
        RequestState::Failed => 3,
        RequestState::Cancelled => 4,
    };
    ThermoRequest {
        id: view.request.id.0,
        state,
        percent: view.percent.into(),
        queue_position: view.queue_position,
        bytes: view.bytes_moved,
        eta_s: view.eta_s.map_or(-1, |s| i64::try_from(s).unwrap_or(i64::MAX)),
    }
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_stage(
    session: *const ThermoSession,
    names: *const *const c_char,
    count: usize,
    recursive: c_int,
    request: *mut ThermoRequest,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let session = unsafe { object(session) }?;
        if names.is_null() && count > 0 {
            return Err(invalid("a list of paths that is NULL"));
        }
        // SAFETY: the caller's promise.
        let path = |n: usize| Ok(unsafe { text(*names.add(n)) }?.to_vec());
        let paths = (0..count).map(path).collect::<crate::error::Done<Vec<_>>>()?;
        let view = session.0.stage(paths, recursive != 0)?;
        // SAFETY: the caller's promise.
        unsafe { answer(request, shown(&view)) }.map(|()| 0)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_request(
    session: *const ThermoSession,
    id: u64,
    request: *mut ThermoRequest,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { object(session) }?.0.request(RequestId(id))?;
        // SAFETY: the caller's promise.
        unsafe { answer(request, shown(&view)) }.map(|()| 0)
    })
}
