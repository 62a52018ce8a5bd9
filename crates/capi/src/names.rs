//! Names and attributes.

use crate::error::{Done, answer, guard, invalid, object, text};
use crate::session::{ThermoSession, path};
use client::native::Session;
use libc::ssize_t;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint};
use std::path::{Path, PathBuf};
use types::{Attr, DirEntry, FsError, RenameMode, SetAttr, Time};

/// `struct thermo_time`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThermoTime {
    /// Seconds since 1970.
    pub s: i64,
    /// And nanoseconds.
    pub ns: u32,
}

/// `struct thermo_stat`.
#[repr(C)]
pub struct ThermoStat {
    /// Inode number.
    pub ino: u64,
    /// Length (bytes).
    pub size: u64,
    /// Bytes on disk; 0 when offline.
    pub disk_bytes: u64,
    /// Device number.
    pub rdev: u64,
    /// Kind and permission bits, as `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: ThermoTime,
    /// Last change of content.
    pub mtime: ThermoTime,
    /// Last change.
    pub ctime: ThermoTime,
    /// Creation.
    pub btime: ThermoTime,
}

fn time(time: Time) -> ThermoTime {
    ThermoTime { s: time.secs, ns: time.nanos }
}

impl ThermoStat {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self {
            ino: attr.ino.0,
            size: attr.size,
            disk_bytes: attr.disk_bytes,
            rdev: attr.rdev.into(),
            mode: attr.kind.type_bits() | attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            btime: time(attr.btime),
        }
    }
}

/// A call on one path that gives nothing.
///
/// # Safety
/// As of the arguments of the functions below.
unsafe fn on<T>(
    session: *const ThermoSession,
    name: *const c_char,
    call: impl FnOnce(&Session, &Path) -> Result<T, client::ClientError>,
) -> Done<T> {
    // SAFETY: the caller's promise.
    let (session, name) = unsafe { (object(session)?, path(name)?) };
    Ok(call(&session.0, name)?)
}

/// Attribute changes of one path.
///
/// # Safety
/// As of the arguments of the functions below.
unsafe fn set(session: *const ThermoSession, name: *const c_char, set: SetAttr) -> c_int {
    // SAFETY: the caller's promise.
    guard(-1, || unsafe { on(session, name, |s, p| s.set_attr(p, set)) }.map(|_| 0))
}

macro_rules! calls {
    ($($name:ident($($arg:ident: $type:ty),*) => |$session:ident, $path:ident| $call:expr;)*) => {$(
        /// See thermo.h.
        ///
        /// # Safety
        /// As thermo.h says of the arguments.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(session: *const ThermoSession, name: *const c_char, $($arg: $type),*) -> c_int {
            // SAFETY: the caller's promise.
            guard(-1, || unsafe { on(session, name, |$session, $path| $call) }.map(|_| 0))
        }
    )*};
}

calls! {
    thermo_mkdir(mode: libc::mode_t) => |session, path| session.mkdir(path, mode & 0o7777);
    thermo_rmdir() => |session, path| session.rmdir(path);
    thermo_unlink() => |session, path| session.unlink(path);
    thermo_chmod(mode: libc::mode_t) => |session, path| {
        session.set_attr(path, SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() })
    };
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_stat(
    session: *const ThermoSession,
    name: *const c_char,
    stat: *mut ThermoStat,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let attr = unsafe { on(session, name, |s, p| s.stat(p)) }?;
        // SAFETY: the caller's promise.
        unsafe { answer(stat, ThermoStat::of(&attr)) }.map(|()| 0)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_lstat(
    session: *const ThermoSession,
    name: *const c_char,
    stat: *mut ThermoStat,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let attr = unsafe { on(session, name, |s, p| s.lstat(p)) }?;
        // SAFETY: the caller's promise.
        unsafe { answer(stat, ThermoStat::of(&attr)) }.map(|()| 0)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_chown(
    session: *const ThermoSession,
    name: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    // SAFETY: the caller's promise.
    unsafe { set(session, name, SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() }) }
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_utimes(
    session: *const ThermoSession,
    name: *const c_char,
    atime: ThermoTime,
    mtime: ThermoTime,
) -> c_int {
    if atime.ns >= 1_000_000_000 || mtime.ns >= 1_000_000_000 {
        return guard(-1, || Err(invalid("nanoseconds of a second or more")));
    }
    let (atime, mtime) = (Time::new(atime.s, atime.ns), Time::new(mtime.s, mtime.ns));
    // SAFETY: the caller's promise.
    unsafe { set(session, name, SetAttr { atime: Some(atime), mtime: Some(mtime), ..SetAttr::default() }) }
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_truncate(
    session: *const ThermoSession,
    name: *const c_char,
    len: libc::off_t,
) -> c_int {
    let Ok(size) = u64::try_from(len) else { return guard(-1, || Err(invalid("a length below 0"))) };
    // SAFETY: the caller's promise.
    unsafe { set(session, name, SetAttr { size: Some(size), ..SetAttr::default() }) }
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_rename(
    session: *const ThermoSession,
    from: *const c_char,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    guard(-1, || {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(invalid("a rename flag that thermo_rename does not know; see thermo.h")),
        };
        // SAFETY: the caller's promise.
        let to = unsafe { path(to) }?;
        // SAFETY: the caller's promise.
        unsafe { on(session, from, |s, p| s.rename(p, to, mode)) }.map(|()| 0)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_symlink(
    session: *const ThermoSession,
    target: *const c_char,
    name: *const c_char,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let target = unsafe { path(target) }?;
        // SAFETY: the caller's promise.
        unsafe { on(session, name, |s, p| s.symlink(target, p)) }.map(|_| 0)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_link(
    session: *const ThermoSession,
    existing: *const c_char,
    name: *const c_char,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let existing = unsafe { path(existing) }?;
        // SAFETY: the caller's promise.
        unsafe { on(session, name, |s, p| s.link(existing, p)) }.map(|_| 0)
    })
}

/// Gives as many bytes as there are; copies as many as fit, as getxattr(2) does with a size of 0 and refuses otherwise.
///
/// # Safety
/// `buffer` may be written for `size` bytes.
unsafe fn give(value: &[u8], buffer: *mut c_char, size: usize) -> Done<ssize_t> {
    if size != 0 {
        if value.len() > size || buffer.is_null() {
            return Err(invalid("a buffer that is too short: ask with size 0 for the length"));
        }
        // SAFETY: as promised above; the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), value.len()) };
    }
    Ok(value.len() as ssize_t)
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_readlink(
    session: *const ThermoSession,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let target = unsafe { on(session, name, |s, p| s.readlink(p)) }?;
        // SAFETY: the caller's promise.
        unsafe { give(&target, buffer, size) }
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_getxattr(
    session: *const ThermoSession,
    name: *const c_char,
    attribute: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let attribute = unsafe { text(attribute) }?;
        // SAFETY: the caller's promise.
        let all = unsafe { on(session, name, |s, p| s.xattrs(p)) }?;
        let (_, value) = all.iter().find(|(n, _)| n == attribute).ok_or(FsError::NoAttribute)?;
        // SAFETY: the caller's promise.
        unsafe { give(value, buffer, size) }
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_listxattr(
    session: *const ThermoSession,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let all = unsafe { on(session, name, |s, p| s.xattrs(p)) }?;
        let names: Vec<u8> = all.into_iter().flat_map(|(n, _)| n.into_iter().chain([0])).collect();
        // SAFETY: the caller's promise.
        unsafe { give(&names, buffer, size) }
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_setxattr(
    session: *const ThermoSession,
    name: *const c_char,
    attribute: *const c_char,
    value: *const c_char,
    size: usize,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let attribute = unsafe { text(attribute) }?;
        if value.is_null() && size > 0 {
            return Err(invalid("a value that is NULL"));
        }
        // SAFETY: the caller's promise.
        let value =
            if size == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(value.cast(), size) } };
        // SAFETY: the caller's promise.
        unsafe { on(session, name, |s, p| s.set_xattr(p, attribute, value)) }.map(|()| 0)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_removexattr(
    session: *const ThermoSession,
    name: *const c_char,
    attribute: *const c_char,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let attribute = unsafe { text(attribute) }?;
        // SAFETY: the caller's promise.
        unsafe { on(session, name, |s, p| s.remove_xattr(p, attribute)) }.map(|()| 0)
    })
}

/// `thermo_dir`: a listing under way.
pub struct ThermoDir {
    session: Session,
    path: PathBuf,
    after: u64,
    page: VecDeque<(DirEntry, Attr)>,
}

/// `struct thermo_dirent`.
#[repr(C)]
pub struct ThermoDirent {
    /// Name, ended by a NUL.
    pub name: [c_char; 256],
    /// Attributes.
    pub stat: ThermoStat,
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_opendir(
    session: *const ThermoSession,
    name: *const c_char,
) -> *mut ThermoDir {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { (object(session)?.0.clone(), path(name)?.to_owned()) };
        let page: VecDeque<_> = session.read_dir(&path, 0)?.into();
        Ok(Box::into_raw(Box::new(ThermoDir { session, path, after: 0, page })))
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_readdir(dir: *mut ThermoDir, entry: *mut ThermoDirent) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let Some(dir) = (unsafe { dir.as_mut() }) else { return Err(invalid("a directory that is NULL")) };
        if dir.page.is_empty() && dir.after != 0 {
            dir.page = dir.session.read_dir(&dir.path, dir.after)?.into();
        }
        let Some((next, attr)) = dir.page.pop_front() else { return Ok(0) };
        dir.after = next.cookie;
        let mut name = [0; 256];
        for (place, byte) in name.iter_mut().zip(&next.name) {
            *place = *byte as c_char;
        }
        // SAFETY: the caller's promise.
        unsafe { answer(entry, ThermoDirent { name, stat: ThermoStat::of(&attr) }) }?;
        Ok(1)
    })
}

/// See thermo.h.
///
/// # Safety
/// As thermo.h says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_closedir(dir: *mut ThermoDir) {
    if !dir.is_null() {
        // SAFETY: the caller gives it back, once.
        drop(unsafe { Box::from_raw(dir) });
    }
}
