//! Sessions.

use crate::error::{Done, guard, object, text};
use client::native::{Options, Session};
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// `thermo_session`.
pub struct ThermoSession(pub(crate) Session);

/// `struct thermo_options`: 0 is the default everywhere.
#[repr(C)]
pub struct ThermoOptions {
    /// Milliseconds to wait for a node that is starting.
    pub patience_ms: u32,
    /// Connections for the bytes of one file.
    pub streams: u32,
    /// Bytes read ahead; -1: none.
    pub read_ahead: i64,
    /// Bytes written later; -1: none.
    pub write_behind: i64,
    /// Not 0: take no descriptors.
    pub no_descriptors: i32,
}

fn options(given: &ThermoOptions) -> Options {
    let default = Options::default();
    let bytes = |given: i64, default: usize| match given {
        0 => default,
        n => usize::try_from(n).unwrap_or(0),
    };
    Options {
        patience: Duration::from_millis(given.patience_ms.into()),
        streams: if given.streams == 0 { default.streams } else { given.streams.min(64) as usize },
        read_ahead: bytes(given.read_ahead, default.read_ahead),
        write_behind: bytes(given.write_behind, default.write_behind),
        descriptors: given.no_descriptors == 0,
        ..default
    }
}

/// A path of the namespace from C.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(given: *const c_char) -> Done<&'a Path> {
    // SAFETY: the caller's promise.
    Ok(Path::new(OsStr::from_bytes(unsafe { text(given) }?)))
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_connect(
    socket: *const c_char,
    given: *const ThermoOptions,
) -> *mut ThermoSession {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (socket, given) = unsafe { (path(socket)?, given.as_ref()) };
        let session = Session::connect_with(socket, given.map(options).unwrap_or_default())?;
        Ok(Box::into_raw(Box::new(ThermoSession(session))))
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_disconnect(session: *mut ThermoSession) {
    if !session.is_null() {
        // SAFETY: the caller gives it back, once.
        drop(unsafe { Box::from_raw(session) });
    }
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_sync(session: *const ThermoSession) -> i32 {
    // SAFETY: the caller's promise.
    guard(-1, || unsafe { object(session) }?.0.sync().map(|()| 0).map_err(Into::into))
}
