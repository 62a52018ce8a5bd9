//! Threads of the library, by which it hears from movers. A program does not know of them: its signals are not for them, and what they call is not taken over.

use crate::real;
use crate::table::Inside;
use libc::{c_int, c_void, pthread_attr_t, pthread_t, sigset_t};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// What a thread does.
pub type Start = extern "C" fn(*mut c_void) -> *mut c_void;

struct Begin {
    start: Start,
    argument: *mut c_void,
}

/// pthread_create(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if !Inside::is() {
        // SAFETY: the caller's promise.
        return unsafe { real::pthread_create()(thread, attributes, start, argument) };
    }
    let begin = Box::into_raw(Box::new(Begin { start, argument }));
    // A new thread begins with the signals blocked that are blocked in this one.
    let before = block_all();
    // SAFETY: the caller's promise; the thread takes what it begins with.
    let made = unsafe { real::pthread_create()(thread, attributes, inside, begin.cast()) };
    // SAFETY: a set that was filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut()) };
    if made != 0 {
        // SAFETY: nobody else has it.
        drop(unsafe { Box::from_raw(begin) });
    }
    made
}

/// Blocks all signals; which were blocked before.
fn block_all() -> sigset_t {
    let (mut all, mut before) = (MaybeUninit::<sigset_t>::uninit(), MaybeUninit::<sigset_t>::zeroed());
    // SAFETY: sets that are filled; a set of zeros is one.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

extern "C" fn inside(begin: *mut c_void) -> *mut c_void {
    // SAFETY: it was made for this thread.
    let Begin { start, argument } = *unsafe { Box::from_raw(begin.cast::<Begin>()) };
    Inside::for_ever();
    start(argument)
}
