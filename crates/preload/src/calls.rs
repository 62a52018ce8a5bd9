//! Reading, writing, syncing and mapping. Each function is that of its manual page.

use crate::{real, table};
use libc::{c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};

/// What came past the mount, else what the mount says.
fn or(past: Option<usize>, mount: impl FnOnce() -> ssize_t) -> ssize_t {
    past.map_or_else(mount, |bytes| bytes as ssize_t)
}

fn part(buffer: *const c_void, length: size_t) -> [iovec; 1] {
    [iovec { iov_base: buffer.cast_mut(), iov_len: length }]
}

/// The parts of a vector; None: more than there may be, or none.
///
/// # Safety
/// As readv(2) wants them.
unsafe fn parts<'a>(vector: *const iovec, count: c_int) -> Option<&'a [iovec]> {
    let count =
        usize::try_from(count).ok().filter(|count| (1..=libc::UIO_MAXIOV as usize).contains(count))?;
    // SAFETY: the caller's promise.
    (!vector.is_null()).then(|| unsafe { std::slice::from_raw_parts(vector, count) })
}

/// read(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise, here and below.
    let past = table::with(fd, |table, open| unsafe { open.read(table, fd, &part(buffer, length)) });
    or(past, || unsafe { real::read()(fd, buffer, length) })
}

/// write(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise, here and below.
    let past = table::with(fd, |table, open| unsafe { open.write(table, fd, &part(buffer, length)) });
    or(past, || unsafe { real::write()(fd, buffer, length) })
}

/// pread(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, buffer: *mut c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise, here and below.
    let past = table::with(fd, |table, open| unsafe { open.read_at(table, fd, &part(buffer, length), at) });
    or(past, || unsafe { real::pread()(fd, buffer, length, at) })
}

/// pwrite(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, buffer: *const c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise, here and below.
    let past = table::with(fd, |table, open| unsafe { open.write_at(table, fd, &part(buffer, length), at) });
    or(past, || unsafe { real::pwrite()(fd, buffer, length, at) })
}

/// readv(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise, here and below.
    let past = table::with(fd, |table, open| unsafe { open.read(table, fd, parts(vector, count)?) });
    or(past, || unsafe { real::readv()(fd, vector, count) })
}

/// writev(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise, here and below.
    let past = table::with(fd, |table, open| unsafe { open.write(table, fd, parts(vector, count)?) });
    or(past, || unsafe { real::writev()(fd, vector, count) })
}

/// preadv(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv(fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise, here and below.
    let past = table::with(fd, |table, open| unsafe { open.read_at(table, fd, parts(vector, count)?, at) });
    or(past, || unsafe { real::preadv()(fd, vector, count, at) })
}

/// pwritev(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise, here and below.
    let past = table::with(fd, |table, open| unsafe { open.write_at(table, fd, parts(vector, count)?, at) });
    or(past, || unsafe { real::pwritev()(fd, vector, count, at) })
}

/// What was written past the mount is on record at the node, and durable, before the mount is asked for the same; false: it is not.
fn synced(fd: c_int) -> bool {
    let synced = table::sync(fd);
    if !synced {
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = libc::EIO };
    }
    synced
}

/// fsync(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if synced(fd) { unsafe { real::fsync()(fd) } } else { -1 }
}

/// fdatasync(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if synced(fd) { unsafe { real::fdatasync()(fd) } } else { -1 }
}

/// mmap(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0 {
        table::mapped(fd);
    }
    // SAFETY: the caller's promise.
    unsafe { real::mmap()(address, length, protection, flags, fd, at) }
}

/// sendfile(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t {
    [to, from].into_iter().for_each(table::leave);
    // SAFETY: the caller's promise.
    unsafe { real::sendfile()(to, from, at, length) }
}

/// copy_file_range(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    [to, from].into_iter().for_each(table::leave);
    // SAFETY: the caller's promise.
    unsafe { real::copy_file_range()(from, from_at, to, to_at, length, flags) }
}

/// splice(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    [to, from].into_iter().for_each(table::leave);
    // SAFETY: the caller's promise.
    unsafe { real::splice()(from, from_at, to, to_at, length, flags) }
}

/// Other names of the same functions, where offsets have 64 bits anyway; those with `_chk` abort a program that would write behind a buffer.
macro_rules! names {
    ($($name:ident = $function:path: fn($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// The same.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller's promise.
            unsafe { $function($($argument),*) }
        }
    )*};
}
pub(crate) use names;

names! {
    pread64 = pread: fn(fd: c_int, buffer: *mut c_void, length: size_t, at: off_t) -> ssize_t;
    pwrite64 = pwrite: fn(fd: c_int, buffer: *const c_void, length: size_t, at: off_t) -> ssize_t;
    preadv64 = preadv: fn(fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t;
    pwritev64 = pwritev: fn(fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t;
    sendfile64 = sendfile: fn(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t;
    mmap64 = mmap: fn(address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t) -> *mut c_void;
}

/// read(2) of a program that was compiled to check the length of its buffers.
///
/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t) -> ssize_t {
    if length > room {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { read(fd, buffer, length) }
}

/// pread(2) of such a program.
///
/// # Safety
/// As pread(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pread_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    at: off_t,
    room: size_t,
) -> ssize_t {
    if length > room {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { pread(fd, buffer, length, at) }
}

names! {
    __pread64_chk = __pread_chk: fn(fd: c_int, buffer: *mut c_void, length: size_t, at: off_t, room: size_t) -> ssize_t;
}
