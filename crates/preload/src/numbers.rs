//! Opening, copying and closing descriptors. Each function is that of its manual page.
//!
//! Functions with a variable number of arguments are defined with as many as there can be: both are passed in the same places on the
//! machines that this is built for, and one that the caller did not give is looked at by the C library only where it must be there.

use crate::calls::names;
use crate::open::Open;
use crate::{own, real, table};
use libc::{c_char, c_int, c_uint, c_ulong, mode_t};

fn refuse(errno: c_int) -> c_int {
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn opened(fd: c_int, flags: c_int) -> c_int {
    table::opened(fd, flags);
    fd
}

fn copied(from: c_int, to: c_int) -> c_int {
    table::copied(from, to);
    to
}

/// open(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    opened(unsafe { real::open()(path, flags | libc::O_LARGEFILE, mode) }, flags)
}

/// openat(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    opened(unsafe { real::openat()(dir, path, flags | libc::O_LARGEFILE, mode) }, flags)
}

/// creat(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    opened(unsafe { real::creat()(path, mode) }, libc::O_WRONLY)
}

/// open(2) of a program that was compiled to check that a mode is given where one is needed.
///
/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    if flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { open(path, flags, 0) }
}

/// openat(2) of such a program.
///
/// # Safety
/// As openat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    if flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { openat(dir, path, flags, 0) }
}

/// close(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if !own::may_close(fd) {
        return refuse(libc::EBADF);
    }
    table::forget(fd);
    let own = own::is_own(fd);
    // SAFETY: the caller's promise.
    let done = unsafe { real::close()(fd) };
    if own {
        own::closed(fd);
    }
    done
}

/// fclose(3), which closes without close(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let fd = unsafe { libc::fileno(stream) };
    let closed = unsafe { real::fclose()(stream) };
    // What it still wrote has gone to the mount before the file is closed beside it.
    table::forget(fd);
    closed
}

/// close_range(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let number = |fd: c_uint| c_int::try_from(fd).unwrap_or(c_int::MAX);
    let mut from = number(first);
    if first > last || flags != 0 {
        // What is only marked to be closed stays open; a table of its own for this thread is beyond us.
        // SAFETY: the caller's promise.
        return unsafe { real::close_range()(first, last, flags) };
    }
    table::forget_range(from, number(last));
    for fd in own::within(from, number(last)) {
        if fd > from {
            // SAFETY: the caller's promise.
            unsafe { real::close_range()(from as c_uint, fd as c_uint - 1, 0) };
        }
        from = fd + 1;
    }
    if from as c_uint > last {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { real::close_range()(from as c_uint, last, 0) }
}

/// closefrom(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the caller's promise.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// dup(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    copied(fd, unsafe { real::dup()(fd) })
}

/// dup2(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if own::is_own(to) && !table::retire(to) {
        return refuse(libc::EBUSY);
    }
    // SAFETY: the caller's promise.
    copied(fd, unsafe { real::dup2()(fd, to) })
}

/// dup3(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if own::is_own(to) && !table::retire(to) {
        return refuse(libc::EBUSY);
    }
    // SAFETY: the caller's promise.
    copied(fd, unsafe { real::dup3()(fd, to, flags) })
}

/// fcntl(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if command == libc::F_SETFL && !Open::may_be(argument as c_int) {
        table::leave(fd);
    }
    // SAFETY: the caller's promise.
    let done = unsafe { real::fcntl()(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, done),
        _ => done,
    }
}

names! {
    open64 = open: fn(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64 = openat: fn(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    creat64 = creat: fn(path: *const c_char, mode: mode_t) -> c_int;
    __open64_2 = __open_2: fn(path: *const c_char, flags: c_int) -> c_int;
    __openat64_2 = __openat_2: fn(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fcntl64 = fcntl: fn(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
}
