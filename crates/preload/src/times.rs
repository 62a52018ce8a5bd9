//! Setting times. Each function is that of its manual page. What was written past the mount before is told to the node first: else it would be told
//! afterwards, and the file have the time of that.

use crate::{real, table};
use libc::{c_char, c_int, timespec, timeval, utimbuf};

macro_rules! told_first {
    ($($name:ident($($argument:ident: $type:ty),*) tells $told:expr;)*) => {$(
        /// The function of the C library of this name.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            $told;
            // SAFETY: the caller's promise.
            unsafe { real::$name()($($argument),*) }
        }
    )*};
}

told_first! {
    utime(path: *const c_char, times: *const utimbuf) tells table::tell_all();
    utimes(path: *const c_char, times: *const timeval) tells table::tell_all();
    lutimes(path: *const c_char, times: *const timeval) tells table::tell_all();
    futimes(fd: c_int, times: *const timeval) tells table::tell(fd);
    futimesat(dir: c_int, path: *const c_char, times: *const timeval) tells table::tell_all();
    utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) tells table::tell_all();
    futimens(fd: c_int, times: *const timespec) tells table::tell(fd);
}
