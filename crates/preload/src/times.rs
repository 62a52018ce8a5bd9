//! Setting times. Each function is that of its manual page. What was written past the mount before is told to the node first: else it would be told
//! afterwards, and the file have the time of that.

use crate::{real, table};
use libc::{c_char, c_int, timespec, timeval, utimbuf};

macro_rules! told_first {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// The function of the C library of this name.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            table::tell();
            // SAFETY: the caller's promise.
            unsafe { real::$name()($($argument),*) }
        }
    )*};
}

told_first! {
    utime(path: *const c_char, times: *const utimbuf);
    utimes(path: *const c_char, times: *const timeval);
    lutimes(path: *const c_char, times: *const timeval);
    futimes(fd: c_int, times: *const timeval);
    futimesat(dir: c_int, path: *const c_char, times: *const timeval);
    utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int);
    futimens(fd: c_int, times: *const timespec);
}
