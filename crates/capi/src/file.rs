//! Open files.

use crate::error::{Done, answer, guard, invalid, object};
use crate::names::ThermoStat;
use crate::session::{ThermoSession, path};
use client::native::{File, OpenOptions, Pending, Stride};
use libc::{iovec, off_t, ssize_t};
use std::ffi::{c_char, c_int, c_void};

/// `thermo_file`.
pub struct ThermoFile(pub(crate) File);

/// `thermo_op`: what an asynchronous call will give.
pub enum ThermoOp {
    /// A read.
    Read(Pending<Vec<u8>>),
    /// A write of so many bytes.
    Write(Pending<()>, usize),
}

/// Flags of open(2) that say nothing about files of a namespace, or that everything here is anyway.
const PASSED_OVER: c_int = libc::O_CLOEXEC | libc::O_LARGEFILE | libc::O_NOCTTY | libc::O_NOATIME;

fn options(flags: c_int, mode: u32) -> Done<OpenOptions> {
    let has = |flag: c_int| flags & flag != 0;
    let way = flags & libc::O_ACCMODE;
    let known = libc::O_ACCMODE
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_TRUNC
        | libc::O_APPEND
        | libc::O_NONBLOCK
        | PASSED_OVER;
    if flags & !known != 0 || way == libc::O_ACCMODE {
        return Err(invalid("an open flag that thermo_open does not know; see thermo.h"));
    }
    let write = way != libc::O_RDONLY;
    let options = OpenOptions::new()
        .read(way != libc::O_WRONLY)
        .write(write)
        .truncate(write && has(libc::O_TRUNC))
        .nonblock(has(libc::O_NONBLOCK))
        .append(write && has(libc::O_APPEND));
    Ok(match (has(libc::O_CREAT), has(libc::O_EXCL)) {
        (false, _) => options,
        (true, false) => options.create(mode & 0o7777),
        (true, true) => options.create_new(mode & 0o7777),
    })
}

fn offset(given: off_t) -> Done<u64> {
    u64::try_from(given).map_err(|_| invalid("an offset below 0"))
}

/// Bytes for the library to fill.
///
/// # Safety
/// `buffer` may be written for `len` bytes.
unsafe fn room<'a>(buffer: *mut c_void, len: usize) -> Done<&'a mut [u8]> {
    match (buffer.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(invalid("a buffer that is NULL")),
        // SAFETY: as promised above.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) }),
    }
}

/// Bytes to be written.
///
/// # Safety
/// `buffer` may be read for `len` bytes.
unsafe fn bytes<'a>(buffer: *const c_void, len: usize) -> Done<&'a [u8]> {
    match (buffer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid("a buffer that is NULL")),
        // SAFETY: as promised above.
        _ => Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), len) }),
    }
}

/// The buffers of a vectored call.
///
/// # Safety
/// `list` may be read for `count` entries.
unsafe fn vectors<'a>(list: *const iovec, count: c_int) -> Done<&'a [iovec]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        // SAFETY: as promised above.
        Ok(count) if count <= 1024 && !list.is_null() => {
            Ok(unsafe { std::slice::from_raw_parts(list, count) })
        }
        _ => Err(invalid("a list of buffers that is NULL or longer than 1024")),
    }
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_open(
    session: *const ThermoSession,
    name: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> *mut ThermoFile {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (session, name) = unsafe { (object(session)?, path(name)?) };
        let file = session.0.open(name, options(flags, mode)?)?;
        Ok(Box::into_raw(Box::new(ThermoFile(file))))
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_close(file: *mut ThermoFile) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        unsafe { object(file) }?;
        // SAFETY: the caller gives it back, once.
        let file = unsafe { Box::from_raw(file) };
        file.0.close().map(|()| 0).map_err(Into::into)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pread(
    file: *const ThermoFile,
    buffer: *mut c_void,
    len: usize,
    at: off_t,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (file, buffer) = unsafe { (object(file)?, room(buffer, len)?) };
        Ok(file.0.read_at(buffer, offset(at)?)? as ssize_t)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pwrite(
    file: *const ThermoFile,
    buffer: *const c_void,
    len: usize,
    at: off_t,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (file, buffer) = unsafe { (object(file)?, bytes(buffer, len)?) };
        file.0.write_at(buffer, offset(at)?)?;
        Ok(len as ssize_t)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_preadv(
    file: *const ThermoFile,
    list: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (file, list) = unsafe { (object(file)?, vectors(list, count)?) };
        let mut read = 0;
        for part in list {
            // SAFETY: the caller's promise.
            let buffer = unsafe { room(part.iov_base, part.iov_len) }?;
            let wanted = buffer.len();
            let n = file.0.read_at(buffer, offset(at)? + read as u64)?;
            read += n;
            if n < wanted {
                break;
            }
        }
        Ok(read as ssize_t)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pwritev(
    file: *const ThermoFile,
    list: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (file, list) = unsafe { (object(file)?, vectors(list, count)?) };
        let mut written = 0;
        for part in list {
            // SAFETY: the caller's promise.
            let data = unsafe { bytes(part.iov_base, part.iov_len) }?;
            file.0.write_at(data, offset(at)? + written as u64)?;
            written += data.len();
        }
        Ok(written as ssize_t)
    })
}

fn stride(at: off_t, block: usize, step: off_t, count: usize) -> Done<(Stride, usize)> {
    let stride = Stride { offset: offset(at)?, block, step: offset(step)?, count };
    let len =
        stride.bytes().ok_or_else(|| invalid("blocks that overlap or end beyond what a file can have"))?;
    Ok((stride, len))
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_read_strided(
    file: *const ThermoFile,
    buffer: *mut c_void,
    at: off_t,
    block: usize,
    step: off_t,
    count: usize,
) -> ssize_t {
    guard(-1, || {
        let (stride, len) = stride(at, block, step, count)?;
        // SAFETY: the caller's promise.
        let (file, buffer) = unsafe { (object(file)?, room(buffer, len)?) };
        Ok(file.0.read_strided(stride, buffer)? as ssize_t)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_write_strided(
    file: *const ThermoFile,
    buffer: *const c_void,
    at: off_t,
    block: usize,
    step: off_t,
    count: usize,
) -> ssize_t {
    guard(-1, || {
        let (stride, len) = stride(at, block, step, count)?;
        // SAFETY: the caller's promise.
        let (file, data) = unsafe { (object(file)?, bytes(buffer, len)?) };
        file.0.write_strided(stride, data)?;
        Ok(len as ssize_t)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pread_start(file: *const ThermoFile, len: usize, at: off_t) -> *mut ThermoOp {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let pending = unsafe { object(file) }?.0.read_async(offset(at)?, len)?;
        Ok(Box::into_raw(Box::new(ThermoOp::Read(pending))))
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pwrite_start(
    file: *const ThermoFile,
    buffer: *const c_void,
    len: usize,
    at: off_t,
) -> *mut ThermoOp {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (file, data) = unsafe { (object(file)?, bytes(buffer, len)?) };
        let pending = file.0.write_async(data.to_vec(), offset(at)?)?;
        Ok(Box::into_raw(Box::new(ThermoOp::Write(pending, len))))
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_ready(op: *const ThermoOp) -> c_int {
    // SAFETY: the caller's promise.
    guard(-1, || match unsafe { object(op) }? {
        ThermoOp::Read(pending) => Ok(pending.is_ready().into()),
        ThermoOp::Write(pending, _) => Ok(pending.is_ready().into()),
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_wait(op: *mut ThermoOp, buffer: *mut c_void, len: usize) -> ssize_t {
    guard(-1, || {
        // SAFETY: the caller's promise.
        unsafe { object(op) }?;
        // SAFETY: the caller gives it back, once.
        match *unsafe { Box::from_raw(op) } {
            ThermoOp::Read(pending) => {
                let read = pending.wait()?;
                // SAFETY: the caller's promise.
                let room = unsafe { room(buffer, len) }?;
                let fits = room
                    .get_mut(..read.len())
                    .ok_or_else(|| invalid("a buffer shorter than what was read"))?;
                fits.copy_from_slice(&read);
                Ok(read.len() as ssize_t)
            }
            ThermoOp::Write(pending, written) => {
                pending.wait()?;
                Ok(written as ssize_t)
            }
        }
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_flush(file: *const ThermoFile) -> c_int {
    // SAFETY: the caller's promise.
    guard(-1, || unsafe { object(file) }?.0.flush().map(|()| 0).map_err(Into::into))
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_fsync(file: *const ThermoFile) -> c_int {
    // SAFETY: the caller's promise.
    guard(-1, || unsafe { object(file) }?.0.sync().map(|()| 0).map_err(Into::into))
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_ftruncate(file: *const ThermoFile, len: off_t) -> c_int {
    // SAFETY: the caller's promise.
    guard(-1, || unsafe { object(file) }?.0.set_len(offset(len)?).map(|()| 0).map_err(Into::into))
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_fstat(file: *const ThermoFile, stat: *mut ThermoStat) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let attr = unsafe { object(file) }?.0.attr()?;
        // SAFETY: the caller's promise.
        unsafe { answer(stat, ThermoStat::of(&attr)) }?;
        Ok(0)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_is_direct(file: *const ThermoFile) -> c_int {
    // SAFETY: the caller's promise.
    guard(-1, || Ok(unsafe { object(file) }?.0.is_direct().into()))
}
