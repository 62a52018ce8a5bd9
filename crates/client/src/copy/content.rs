//! Bytes of one file from one open end to the other; holes stay holes.

use super::tree::{Open, Sink, Source};
use crate::ClientError;
use crate::escape;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use types::{Attr, ErrorClass};

type Done<T> = Result<T, ClientError>;

/// Bytes moved at a time through this process.
const CHUNK: u64 = wire::frame::MAX_IO as u64;
/// Bytes moved at a time within the kernel: progress is shown after each.
const KERNEL_CHUNK: u64 = 16 << 20;

/// One file being copied.
pub struct Content<'a, S: Source, D: Sink> {
    /// Where bytes come from.
    pub source: &'a mut S,
    /// The file there.
    pub from: &'a Open,
    /// Where they go.
    pub sink: &'a mut D,
    /// The file there ...
    pub place: &'a D::Place,
    /// ... opened and empty.
    pub to: &'a Open,
    /// Attributes of the source at the beginning.
    pub attr: &'a Attr,
    /// Path for messages.
    pub path: &'a [u8],
    /// Told of bytes done.
    pub moved: &'a dyn Fn(u64),
}

impl<S: Source, D: Sink> Content<'_, S, D> {
    /// Copies `attr.size` bytes.
    pub fn copy(&mut self) -> Done<()> {
        let size = self.attr.size;
        let mut at = 0;
        let mut written_to = 0;
        while let Some(data) = self.next_data(at)? {
            (self.moved)(data.start - at);
            if self.copy_range(data.clone())? {
                written_to = data.end;
            }
            at = data.end;
        }
        (self.moved)(size - at);
        if written_to < size {
            self.sink.set_len(self.place, self.to, size)?;
        }
        Ok(())
    }

    /// The next range that may hold anything but zeros.
    fn next_data(&self, at: u64) -> Done<Option<Range<u64>>> {
        let size = self.attr.size;
        let whole = (at < size).then_some(at..size);
        let (Some(file), true) = (&self.from.file, self.attr.disk_bytes < size) else { return Ok(whole) };
        if whole.is_none() {
            return Ok(None);
        }
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(_) => return Ok(whole),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        Ok((start < end).then_some(start..end))
    }

    /// True if the last byte of the range was written (and not left out as part of a hole).
    fn copy_range(&mut self, range: Range<u64>) -> Done<bool> {
        let mut at = range.start;
        if let (Some(from), Some(to)) = (&self.from.file, &self.to.file) {
            at += in_kernel(from, to, range.clone(), self.moved);
        }
        let mut last_written = at == range.end;
        while at < range.end {
            let data = self.read(at, (range.end - at).min(CHUNK))?;
            let len = data.len() as u64;
            // Where no descriptor tells the holes, a chunk of zeros is taken as one.
            last_written = self.from.file.is_some() || data.iter().any(|&b| b != 0);
            if last_written {
                self.write(at, data)?;
            }
            at += len;
            (self.moved)(len);
        }
        Ok(last_written)
    }

    fn read(&mut self, offset: u64, len: u64) -> Done<Vec<u8>> {
        let mut data = match &self.from.file {
            Some(file) => {
                let mut data = vec![0; len as usize];
                let got = read_some(file, &mut data, offset).map_err(|e| self.local("cannot read", e))?;
                data.truncate(got);
                data
            }
            None => self.source.read(self.from, offset, len as usize)?,
        };
        data.truncate(len as usize);
        if data.is_empty() {
            return Err(changed(self.path));
        }
        Ok(data)
    }

    fn write(&mut self, offset: u64, data: Vec<u8>) -> Done<()> {
        match &self.to.file {
            Some(file) => {
                file.write_all_at(&data, offset).map_err(|e| self.local("cannot write the copy of", e))
            }
            None => self.sink.write(self.to, offset, data),
        }
    }

    fn local(&self, doing: &'static str, source: io::Error) -> ClientError {
        ClientError::Local { doing, path: escape(self.path), source }
    }
}

/// The source is not what it was when the copy began.
pub fn changed(path: &[u8]) -> ClientError {
    ClientError::tree(path, ErrorClass::Busy, "changed while it was copied; run the same command again")
}

/// Bytes copied by copy_file_range(2) before it was done or declined; whoever goes on meets the reason again.
fn in_kernel(from: &File, to: &File, range: Range<u64>, moved: &dyn Fn(u64)) -> u64 {
    let (mut read_at, mut write_at) = (range.start, range.start);
    while read_at < range.end {
        let len = (range.end - read_at).min(KERNEL_CHUNK) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), len) {
            Ok(0) | Err(_) => break,
            Ok(n) => moved(n as u64),
        }
    }
    read_at - range.start
}

fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
