//! Shared mappings: a look into one, and a change through it.

use rustix::fd::OwnedFd;
use rustix::io;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// What a mapping of `length` bytes at `offset` (whole pages) shows; then `data` is stored through it and synced. The range
/// must lie within the file, and nobody may shorten the file meanwhile.
pub fn exchange(fd: &OwnedFd, offset: usize, length: usize, data: Option<&[u8]>) -> io::Result<Vec<u8>> {
    let protection = if data.is_some() { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let place = std::ptr::null_mut();
    // SAFETY: a mapping at an address of the kernel's choice, used and given up here; its range is within the file
    unsafe {
        let at = mmap(place, length, protection, MapFlags::SHARED, fd, offset as u64)?;
        let seen = std::slice::from_raw_parts(at.cast::<u8>(), length).to_vec();
        if let Some(data) = data {
            std::ptr::copy_nonoverlapping(data.as_ptr(), at.cast::<u8>(), length.min(data.len()));
            msync(at, length, MsyncFlags::SYNC)?;
        }
        munmap(at, length)?;
        Ok(seen)
    }
}
