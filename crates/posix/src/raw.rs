//! truncate(2), which the safe interface of the system leaves out because open and ftruncate do the same; here the call itself
//! is tested.

use rustix::io::Errno;
use std::ffi::CString;

/// truncate(2).
pub fn truncate(path: &[u8], length: i64) -> Result<(), Errno> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    // SAFETY: a string that ends with NUL and lives until the call returns
    match unsafe { libc::truncate64(path.as_ptr(), length) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("an error of the system")),
    }
}
