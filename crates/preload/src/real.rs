//! The functions of the C library that this one takes the place of.

use crate::threads::Start;
use libc::{
    c_char, c_int, c_uint, c_void, iovec, mode_t, off_t, pthread_attr_t, pthread_t, size_t, ssize_t,
    timespec, timeval, utimbuf,
};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next definition of a name after this library's.
fn next(name: &CStr, known: &AtomicPtr<c_void>) -> *mut c_void {
    let found = known.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // Without the function itself there is nothing that could be done for the program.
        std::process::abort();
    }
    known.store(found, Ordering::Relaxed);
    found
}

macro_rules! functions {
    ($($name:ident($($argument:ty),* $(; $variadic:tt)?) -> $result:ty;)*) => {$(
        pub fn $name() -> unsafe extern "C" fn($($argument),* $(, $variadic)?) -> $result {
            static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
            // SAFETY: this is the type of the function of this name.
            unsafe { std::mem::transmute(next(NAME, &KNOWN)) }
        }
    )*};
}

functions! {
    open(*const c_char, c_int; ...) -> c_int;
    openat(c_int, *const c_char, c_int; ...) -> c_int;
    creat(*const c_char, mode_t) -> c_int;
    close(c_int) -> c_int;
    close_range(c_uint, c_uint, c_int) -> c_int;
    fclose(*mut libc::FILE) -> c_int;
    dup(c_int) -> c_int;
    dup2(c_int, c_int) -> c_int;
    dup3(c_int, c_int, c_int) -> c_int;
    fcntl(c_int, c_int; ...) -> c_int;
    lseek(c_int, off_t, c_int) -> off_t;
    read(c_int, *mut c_void, size_t) -> ssize_t;
    write(c_int, *const c_void, size_t) -> ssize_t;
    pread(c_int, *mut c_void, size_t, off_t) -> ssize_t;
    pwrite(c_int, *const c_void, size_t, off_t) -> ssize_t;
    readv(c_int, *const iovec, c_int) -> ssize_t;
    writev(c_int, *const iovec, c_int) -> ssize_t;
    preadv(c_int, *const iovec, c_int, off_t) -> ssize_t;
    pwritev(c_int, *const iovec, c_int, off_t) -> ssize_t;
    sendfile(c_int, c_int, *mut off_t, size_t) -> ssize_t;
    copy_file_range(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    splice(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    utime(*const c_char, *const utimbuf) -> c_int;
    utimes(*const c_char, *const timeval) -> c_int;
    lutimes(*const c_char, *const timeval) -> c_int;
    futimes(c_int, *const timeval) -> c_int;
    futimesat(c_int, *const c_char, *const timeval) -> c_int;
    utimensat(c_int, *const c_char, *const timespec, c_int) -> c_int;
    futimens(c_int, *const timespec) -> c_int;
    fsync(c_int) -> c_int;
    fdatasync(c_int) -> c_int;
    pthread_create(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;
    mmap(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
}
