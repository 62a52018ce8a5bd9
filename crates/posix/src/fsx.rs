//! Random reads and writes of a handful of files against their content in memory, with their bytes going to tape and back
//! meanwhile.

use crate::mapped;
use crate::random::Random;
use crate::world::{Host, Tape};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FallocateFlags, Mode, OFlags};
use rustix::io::{self, Errno};
use std::path::{Path, PathBuf};
use std::time::Instant;

const FILES: usize = 4;
const DESCRIPTORS: usize = 3;

struct Open {
    fd: OwnedFd,
    read: bool,
    write: bool,
    append: bool,
}

struct File {
    path: PathBuf,
    content: Vec<u8>,
    open: Vec<Open>,
}

/// A run.
pub struct Fsx<'a> {
    host: &'a dyn Host,
    dir: PathBuf,
    random: Random,
    files: Vec<File>,
    /// Longest file (bytes).
    longest: usize,
    names: usize,
    log: Vec<String>,
    /// Calls made.
    pub calls: usize,
    /// Acts of the tape side.
    pub acts: usize,
}

impl<'a> Fsx<'a> {
    /// Files of at most `longest` bytes in `dir`.
    pub fn new(host: &'a dyn Host, dir: &Path, seed: u64, longest: usize) -> Self {
        let (dir, random) = (dir.to_owned(), Random::new(seed));
        let (files, log) = Default::default();
        let mut fsx = Self { host, dir, random, files, longest, names: 0, log, calls: 0, acts: 0 };
        for _ in 0..FILES {
            let file = fsx.fresh();
            fsx.files.push(file);
        }
        fsx
    }

    /// Goes on until `end`; at the end everything goes to tape, and comes back.
    pub fn run(&mut self, end: Instant) {
        while Instant::now() < end {
            let at = self.random.below(FILES);
            self.one(at);
            self.calls += 1;
        }
        self.note("the end: all to tape and back".into());
        for at in 0..FILES {
            self.files[at].open.clear();
            self.act(at, Tape::Migrate);
            self.act(at, Tape::Purge);
        }
        (0..FILES).for_each(|at| self.whole(at));
    }

    fn note(&mut self, what: String) {
        self.log.push(what);
    }

    /// Ends the test with everything that led here.
    fn fail(&self, what: String) -> ! {
        let log = std::env::temp_dir().join(format!("fsx-{}.log", std::process::id()));
        let kept = std::fs::write(&log, self.log.join("\n"));
        let last = &self.log[self.log.len().saturating_sub(60)..];
        panic!("{what}\nall calls: {} ({kept:?}); the last ones:\n{}", log.display(), last.join("\n"));
    }

    fn must<T>(&self, what: &str, result: Result<T, Errno>) -> T {
        result.unwrap_or_else(|e| self.fail(format!("{what}: {}", crate::errors::name(e))))
    }

    fn fresh(&mut self) -> File {
        self.names += 1;
        let path = self.dir.join(format!("file-{}", self.names));
        self.must("create", std::fs::write(&path, b"").map_err(|e| Errno::from_io_error(&e).expect("errno")));
        File { path, content: Vec::new(), open: Vec::new() }
    }

    fn one(&mut self, at: usize) {
        match self.random.below(100) {
            0..24 => self.read(at),
            24..46 => self.write(at),
            46..52 => self.map(at),
            52..57 => self.truncate(at),
            57..63 => self.allocate(at),
            63..68 => self.copy(at),
            68..71 => self.sync(at),
            71..80 => self.close(at),
            80..83 => self.rename(at),
            83..85 => self.replace(at),
            85..88 => self.whole(at),
            // a file that is open for writing would be waited for
            88..92 if self.files[at].open.iter().all(|o| !o.write) => self.act(at, Tape::Migrate),
            88..92 => self.close(at),
            92..97 => self.offline(at),
            _ => self.act(at, Tape::Stage),
        }
    }

    /// A descriptor that may read or write, opened if there is none.
    fn descriptor(&mut self, at: usize, read: bool, write: bool) -> usize {
        let fits = |o: &Open| (!read || o.read) && (!write || o.write);
        let found: Vec<usize> =
            (0..self.files[at].open.len()).filter(|i| fits(&self.files[at].open[*i])).collect();
        if !found.is_empty() && self.random.below(4) > 0 {
            return *self.random.of(&found);
        }
        if self.files[at].open.len() >= DESCRIPTORS {
            let gone = self.random.below(DESCRIPTORS);
            self.files[at].open.remove(gone);
        }
        let (read, write) = (read || self.random.below(2) == 0, write || self.random.below(2) == 0);
        let (read, append) = (read || !write, write && self.random.below(5) == 0);
        let mut flags = OFlags::CLOEXEC | if append { OFlags::APPEND } else { OFlags::empty() };
        flags |= match (read, write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        if write && self.random.below(12) == 0 {
            flags |= OFlags::TRUNC;
            self.files[at].content.clear();
        }
        let path = self.files[at].path.clone();
        self.note(format!("open {} {flags:?}", path.display()));
        let fd = self.must("open", fs::open(&path, flags, Mode::empty()));
        self.files[at].open.push(Open { fd, read, write, append });
        self.files[at].open.len() - 1
    }

    fn range(&mut self, most: usize) -> (usize, usize) {
        let offset = self.random.below(self.longest);
        let length = if self.random.below(8) == 0 { self.longest } else { 1 << self.random.below(17) };
        (offset, 1 + self.random.below(length.min(most)).min(self.longest - offset - 1))
    }

    fn compare(&self, at: usize, what: &str, offset: usize, got: &[u8], wanted: usize) {
        let content = &self.files[at].content;
        let start = offset.min(content.len());
        let expected = &content[start..(offset + wanted).min(content.len()).max(start)];
        if got == expected {
            return;
        }
        let first =
            got.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(got.len().min(expected.len()));
        self.fail(format!(
            "{what} of {} at {offset}+{wanted}: {} bytes, {} expected, first difference at {}",
            self.files[at].path.display(),
            got.len(),
            expected.len(),
            offset + first
        ));
    }

    fn read_at(&self, fd: &OwnedFd, offset: usize, length: usize) -> Vec<u8> {
        let (mut buffer, mut filled) = (vec![0; length], 0);
        while filled < length {
            match self.must("read", io::pread(fd, &mut buffer[filled..], (offset + filled) as u64)) {
                0 => break,
                n => filled += n,
            }
        }
        buffer.truncate(filled);
        buffer
    }

    fn read(&mut self, at: usize) {
        let by = self.descriptor(at, true, false);
        let (offset, length) = self.range(1 << 20);
        self.note(format!("read {} {offset}+{length}", self.files[at].path.display()));
        let got = self.read_at(&self.files[at].open[by].fd, offset, length);
        self.compare(at, "read", offset, &got, length);
    }

    fn change(&mut self, at: usize, offset: usize, data: &[u8]) {
        let content = &mut self.files[at].content;
        content.resize(content.len().max(offset + data.len()), 0);
        content[offset..offset + data.len()].copy_from_slice(data);
    }

    fn write(&mut self, at: usize) {
        let by = self.descriptor(at, false, true);
        let (mut offset, length) = self.range(256 << 10);
        let append = self.files[at].open[by].append;
        if append {
            offset = self.files[at].content.len();
            if offset + length > self.longest {
                return;
            }
        }
        let data = self.random.bytes(length);
        self.note(format!("write {} {offset}+{length} append {append}", self.files[at].path.display()));
        let mut done = 0;
        while done < length {
            let to = (offset + done) as u64;
            done += self.must("write", io::pwrite(&self.files[at].open[by].fd, &data[done..], to));
        }
        self.change(at, offset, &data);
    }

    fn map(&mut self, at: usize) {
        let size = self.files[at].content.len();
        if size == 0 {
            return;
        }
        let write = self.random.below(2) == 0;
        let by = self.descriptor(at, true, write);
        let size = self.files[at].content.len().min(size);
        if size == 0 {
            return; // truncated by the open
        }
        let offset = self.random.below(size) / 4096 * 4096;
        let length = (1 + self.random.below(64 << 10)).min(size - offset);
        self.note(format!("map {} {offset}+{length} write {write}", self.files[at].path.display()));
        let data = self.random.bytes(length);
        let fd = &self.files[at].open[by].fd;
        let got = self.must("mapping", mapped::exchange(fd, offset, length, write.then_some(&data[..])));
        self.compare(at, "mapping", offset, &got, length);
        if write {
            self.change(at, offset, &data);
        }
    }

    fn truncate(&mut self, at: usize) {
        let size = if self.random.below(4) == 0 { 0 } else { self.random.below(self.longest) };
        let by = self.descriptor(at, false, true);
        self.note(format!("truncate {} {size}", self.files[at].path.display()));
        self.must("ftruncate", fs::ftruncate(&self.files[at].open[by].fd, size as u64));
        self.files[at].content.resize(size, 0);
    }

    fn allocate(&mut self, at: usize) {
        let by = self.descriptor(at, false, true);
        let (offset, length) = self.range(512 << 10);
        let keep = FallocateFlags::KEEP_SIZE;
        let (flags, zeroes) = *self.random.of(&[
            (FallocateFlags::empty(), false),
            (keep, false),
            (keep | FallocateFlags::PUNCH_HOLE, true),
            (keep | FallocateFlags::ZERO_RANGE, true),
            (FallocateFlags::ZERO_RANGE, true),
        ]);
        self.note(format!("fallocate {} {offset}+{length} {flags:?}", self.files[at].path.display()));
        let fd = &self.files[at].open[by].fd;
        self.must("fallocate", fs::fallocate(fd, flags, offset as u64, length as u64));
        let content = &mut self.files[at].content;
        if !flags.contains(keep) {
            content.resize(content.len().max(offset + length), 0);
        }
        if zeroes {
            let size = content.len();
            content[offset.min(size)..(offset + length).min(size)].fill(0);
        }
    }

    fn copy(&mut self, at: usize) {
        let from = (at + 1 + self.random.below(FILES - 1)) % FILES;
        let (source, target) = (self.descriptor(from, true, false), self.descriptor(at, false, true));
        if self.files[at].open[target].append {
            return;
        }
        let ((offset, length), (to, _)) = (self.range(256 << 10), self.range(1));
        let length = length.min(self.longest - to);
        let name = |i: usize| self.files[i].path.display().to_string();
        self.note(format!("copy {} {offset}+{length} to {} {to}", name(from), name(at)));
        let (mut read_at, mut write_at) = (offset as u64, to as u64);
        let (s, t) = (&self.files[from].open[source].fd, &self.files[at].open[target].fd);
        let copied = fs::copy_file_range(s, Some(&mut read_at), t, Some(&mut write_at), length);
        let copied = self.must("copy_file_range", copied);
        let size = self.files[from].content.len();
        if copied > size.saturating_sub(offset).min(length) || (copied == 0 && offset < size) {
            self.fail(format!("copy_file_range copied {copied} bytes"));
        }
        if copied > 0 {
            let data = self.files[from].content[offset..offset + copied].to_vec();
            self.change(at, to, &data);
        }
    }

    fn sync(&mut self, at: usize) {
        if let Some(open) = self.files[at].open.first() {
            self.must("fsync", fs::fsync(&open.fd));
        }
    }

    fn close(&mut self, at: usize) {
        let open = self.files[at].open.len();
        if open > 0 {
            let gone = self.random.below(open);
            self.files[at].open.remove(gone);
        }
    }

    fn rename(&mut self, at: usize) {
        self.names += 1;
        let to = self.dir.join(format!("file-{}", self.names));
        let from = self.files[at].path.clone();
        self.note(format!("rename {} {}", from.display(), to.display()));
        match self.random.below(2) {
            0 => self.must("rename", fs::rename(&from, &to)),
            _ => {
                self.must("link", fs::link(&from, &to));
                self.must("unlink", fs::unlink(&from));
            }
        }
        self.files[at].path = to;
    }

    /// The file is unlinked while open, looked at once more, and another one takes its place.
    fn replace(&mut self, at: usize) {
        let by = self.descriptor(at, true, false);
        let path = self.files[at].path.clone();
        self.note(format!("unlink {}", path.display()));
        self.must("unlink", fs::unlink(&path));
        let got = self.read_at(&self.files[at].open[by].fd, 0, self.longest);
        self.compare(at, "read of the unlinked file", 0, &got, self.longest);
        self.files[at] = self.fresh();
    }

    /// All of it, by a descriptor of its own.
    fn whole(&mut self, at: usize) {
        let path = self.files[at].path.clone();
        self.note(format!("read all of {}", path.display()));
        let size = self.must("stat", fs::stat(&path)).st_size as usize;
        if size != self.files[at].content.len() {
            self.fail(format!(
                "{} has {size} bytes, {} expected",
                path.display(),
                self.files[at].content.len()
            ));
        }
        let fd = self.must("open", fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()));
        let got = self.read_at(&fd, 0, self.longest + 1);
        self.compare(at, "read", 0, &got, self.longest + 1);
    }

    fn act(&mut self, at: usize, act: Tape) {
        self.acts += 1;
        let path = self.files[at].path.clone();
        self.note(format!("{act:?} {}", path.display()));
        self.host.tape(act, &path);
    }

    /// To tape only, unless it is open by then.
    fn offline(&mut self, at: usize) {
        if self.random.below(4) > 0 {
            self.files[at].open.clear();
            self.act(at, Tape::Migrate);
        }
        self.act(at, Tape::Purge);
    }
}
