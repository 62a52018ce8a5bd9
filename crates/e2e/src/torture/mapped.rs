//! Writing through a shared mapping without risking SIGBUS when the file's server dies: the kernel copies into the mapping
//! (as read(2) from another file) and reports a page that cannot be had as an error.
#![expect(unsafe_code, reason = "mmap(2) has no safe interface")]

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;

struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us, and no reference into it is left.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// Writes `data` at `at`, which must lie within the file, through a mapping; with `sync` it is followed by msync(2).
pub fn write(file: &File, at: u64, data: &[u8], sync: bool) -> io::Result<()> {
    let skip = (at % PAGE) as usize;
    let length = skip + data.len();
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses the address, so nothing of ours is replaced.
    let start = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, file, at - skip as u64) }?;
    let mapping = Mapping { start, length };
    let source = File::from(memfd_create("data", MemfdFlags::CLOEXEC)?);
    source.write_all_at(data, 0)?;
    // SAFETY: the range is mapped for as long as `mapping` lives; only the kernel writes to it, through the slice.
    let target = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>().add(skip), data.len()) };
    let mut copied = 0;
    while copied < data.len() {
        match source.read_at(&mut target[copied..], copied as u64)? {
            0 => return Err(Error::new(ErrorKind::UnexpectedEof, "a page of the mapping cannot be had")),
            n => copied += n,
        }
    }
    if sync {
        // SAFETY: the range is mapped; msync changes no memory.
        unsafe { msync(mapping.start, mapping.length, MsyncFlags::SYNC) }?;
    }
    Ok(())
}
