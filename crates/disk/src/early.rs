//! Files that are made durable together.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

/// Has the kernel begin to write what was written to a file, and waits for nothing: a sync of this file right behind that of another one then finds
/// little left to do, as one commit of the file system's journal can serve both. It promises nothing, and an error is told by the sync.
pub fn begin_sync(file: impl AsFd) {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: no memory is passed, and the descriptor is borrowed from its owner for the call.
    let _ = unsafe { libc::sync_file_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}
