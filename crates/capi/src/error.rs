//! How errors reach C: errno, and a sentence of the thread's last one.

use client::ClientError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use types::FsError;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Why a call failed: an errno and a sentence.
pub struct Failed(i32, String);

/// What the functions of this library work with.
pub type Done<T> = Result<T, Failed>;

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        Self(error.errno().raw_os_error(), error.to_string())
    }
}

impl From<FsError> for Failed {
    fn from(error: FsError) -> Self {
        Self(client::errno(error).raw_os_error(), error.to_string())
    }
}

/// An argument that no call takes.
pub fn invalid(what: &str) -> Failed {
    Failed(libc::EINVAL, what.to_owned())
}

/// Runs a call. What fails, a panic too, becomes `failed`, errno and a sentence.
pub fn guard<T>(failed: T, call: impl FnOnce() -> Done<T>) -> T {
    let result = catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(Failed(libc::EIO, "a defect in libthermo, please report it".into())));
    match result {
        Ok(value) => value,
        Err(Failed(errno, sentence)) => {
            let sentence = CString::new(sentence.replace('\0', "?")).unwrap_or_default();
            // A thread that is ending has no place for a sentence any more.
            let _ = LAST.try_with(|last| *last.borrow_mut() = sentence);
            // SAFETY: the address is that of this thread's errno.
            unsafe { *libc::__errno_location() = errno };
            failed
        }
    }
}

/// The sentence of this thread's last error; valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn thermo_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Text or a path from C.
///
/// # Safety
/// `text` is NULL or ends with a NUL and stays as it is during the call.
pub unsafe fn text<'a>(text: *const c_char) -> Done<&'a [u8]> {
    if text.is_null() {
        return Err(Failed(libc::EFAULT, "NULL where a path or a name was expected".into()));
    }
    // SAFETY: as promised above.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// An object of this library.
///
/// # Safety
/// `object` is NULL or came from this library, and was not given back.
pub unsafe fn object<'a, T>(object: *const T) -> Done<&'a T> {
    // SAFETY: as promised above.
    unsafe { object.as_ref() }
        .ok_or_else(|| Failed(libc::EFAULT, "NULL where an open object was expected".into()))
}

/// A place for an answer.
///
/// # Safety
/// `place` is NULL or may be written.
pub unsafe fn answer<T>(place: *mut T, value: T) -> Done<()> {
    if place.is_null() {
        return Err(Failed(libc::EFAULT, "NULL where a place for the answer was expected".into()));
    }
    // SAFETY: as promised above.
    unsafe { place.write(value) };
    Ok(())
}
