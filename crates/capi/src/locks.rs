//! Locks of open files.

use crate::error::{Done, guard, invalid, object};
use crate::file::ThermoFile;
use client::native::{LockHeld, LockKind, Region};
use libc::{flock, off_t};
use std::ffi::c_int;
use std::time::Duration;

/// A region as fcntl(2) has it.
fn bytes(start: off_t, len: off_t) -> Done<Region> {
    match (u64::try_from(start), u64::try_from(len)) {
        (Ok(start), Ok(len)) => Ok(Region::Bytes { start, len }),
        _ => Err(invalid("a place or a length below 0")),
    }
}

/// None: it is given back.
fn record_kind(kind: c_int) -> Done<Option<LockKind>> {
    match kind {
        libc::F_RDLCK => Ok(Some(LockKind::Shared)),
        libc::F_WRLCK => Ok(Some(LockKind::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(invalid("a kind of lock that is not F_RDLCK, F_WRLCK or F_UNLCK")),
    }
}

fn file_kind(operation: c_int) -> Done<Option<LockKind>> {
    match operation {
        libc::LOCK_SH => Ok(Some(LockKind::Shared)),
        libc::LOCK_EX => Ok(Some(LockKind::Exclusive)),
        libc::LOCK_UN => Ok(None),
        _ => Err(invalid("an operation that is not LOCK_SH, LOCK_EX or LOCK_UN (wait_ms 0 is LOCK_NB)")),
    }
}

fn change(file: &ThermoFile, region: Region, kind: Option<LockKind>, wait_ms: i64) -> Done<c_int> {
    let limit = u64::try_from(wait_ms).ok().map(Duration::from_millis);
    match kind {
        Some(kind) => file.0.lock(region, kind, limit)?,
        None => file.0.unlock(region)?,
    }
    Ok(0)
}

/// What is in the way, in the place of what was asked for.
fn tell(lock: &mut flock, held: Option<LockHeld>) {
    let Some(LockHeld { kind, range, pid }) = held else {
        lock.l_type = libc::F_UNLCK as _;
        return;
    };
    lock.l_type = if kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK } as _;
    lock.l_start = range.start as off_t;
    let to_the_end = range.end >= off_t::MAX as u64;
    lock.l_len = if to_the_end { 0 } else { (range.end - range.start + 1) as off_t };
    lock.l_pid = pid as _;
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_lock(
    file: *const ThermoFile,
    kind: c_int,
    start: off_t,
    len: off_t,
    wait_ms: i64,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let file = unsafe { object(file) }?;
        change(file, bytes(start, len)?, record_kind(kind)?, wait_ms)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_flock(file: *const ThermoFile, operation: c_int, wait_ms: i64) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let file = unsafe { object(file) }?;
        change(file, Region::File, file_kind(operation)?, wait_ms)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_test_lock(file: *const ThermoFile, lock: *mut flock) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let file = unsafe { object(file) }?;
        // SAFETY: the caller's promise: NULL, or his own to be read and written.
        let lock = unsafe { lock.as_mut() }.ok_or_else(|| invalid("a lock that is NULL"))?;
        let kind = record_kind(lock.l_type.into())?.ok_or_else(|| invalid("a lock of no kind"))?;
        if c_int::from(lock.l_whence) != libc::SEEK_SET {
            return Err(invalid("a place that is not counted from the beginning of the file"));
        }
        let held = file.0.test_lock(bytes(lock.l_start, lock.l_len)?, kind)?;
        tell(lock, held);
        Ok(0)
    })
}
