//! What is kept beside an object: the sums of its blocks, its fence, and the number of what each channel did last. One file per object,
//! `<target>/sums/<2 hex>/<16 hex>`; `docs/formats/target.md` has the table.

use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use types::ObjectId;

/// Length of what comes before the sums (bytes).
const HEAD: u64 = 4096;
const MAGIC: [u8; 8] = *b"THERMOSM";
const VERSION: u32 = 1;
/// Bit of the flags: the object was handed out as a descriptor for writing, so its sums say nothing.
const UNSUMMED: u32 = 1;
/// Where the numbers of channels begin, and how long one is (bytes).
const CHANNELS_AT: u64 = 64;
const CHANNEL_LEN: usize = 32;
/// Channels that are remembered for one object.
pub(crate) const CHANNELS: usize = 126;
/// Blocks whose sums fill one page.
pub(crate) const BLOCKS_PER_PAGE: u64 = 1024;

/// Directory of all sidecars of a target.
#[derive(Debug)]
pub(crate) struct Sidecars {
    dir: PathBuf,
    root: OwnedFd,
}

/// An open sidecar.
#[derive(Debug)]
pub(crate) struct Sidecar {
    file: OwnedFd,
    path: PathBuf,
}

/// What a sidecar says before the sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Capabilities with a lower generation are refused.
    pub(crate) fence: u64,
    /// The sums say nothing.
    pub(crate) unsummed: bool,
    /// The file is still empty: nothing was written since the object was made.
    pub(crate) blank: bool,
    /// What was done last, by (client, channel), in the order of the file.
    pub(crate) channels: Vec<Option<Done>>,
}

/// The last thing that a channel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) client: u64,
    pub(crate) channel: u64,
    pub(crate) sequence: u64,
}

/// An error of a file, with its path.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}: {source}", path.display())]
pub(crate) struct FileError {
    pub(crate) doing: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) source: Errno,
}

impl Sidecars {
    /// Opens the directory in a target, making it and the 256 in it durably where they are missing.
    pub(crate) fn open(target: &Path) -> Result<Self, FileError> {
        let dir = target.join("sums");
        let fail = |doing| {
            let path = dir.clone();
            move |source| FileError { doing, path, source }
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = fs::open(target, flags, Mode::empty()).map_err(fail("opening the directory of"))?;
        let mut new = made(fs::mkdirat(&above, "sums", Mode::RWXU)).map_err(fail("making"))?;
        let root = fs::openat(&above, "sums", flags, Mode::empty()).map_err(fail("opening"))?;
        for number in 0..=u8::MAX {
            new |= made(fs::mkdirat(&root, format!("{number:02x}"), Mode::RWXU))
                .map_err(fail("making directories in"))?;
        }
        if new {
            fs::fsync(&root).and_then(|()| fs::fsync(&above)).map_err(fail("syncing"))?;
        }
        Ok(Self { dir, root })
    }

    /// Makes empty sidecars for new objects, durably, as are those that are `present`. One that a crash left behind is replaced: its object was
    /// never made. What a head needs is taken now: on a disk that is full an object can be fenced, and so be moved away.
    pub(crate) fn create(&self, new: &[u64], present: &[ObjectId]) -> Result<(), FileError> {
        for id in new.iter().copied().map(ObjectId) {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let path = self.dir.join(relative(id));
            match fs::openat(&self.root, relative(id), flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => Sidecar { file, path }.take(0, HEAD)?,
                Err(source) => return Err(FileError { doing: "making", path, source }),
            }
        }
        let all = new.iter().copied().map(ObjectId).chain(present.iter().copied());
        let touched: std::collections::BTreeSet<u8> = all.map(fan_out).collect();
        touched.into_iter().try_for_each(|number| self.sync_directory(number))
    }

    /// Opens the sidecar of an object; `None` if it has none (objects that were made without a mover).
    pub(crate) fn find(&self, id: ObjectId) -> Result<Option<Sidecar>, FileError> {
        let path = self.dir.join(relative(id));
        match fs::openat(
            &self.root,
            relative(id),
            OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::empty(),
        ) {
            Ok(file) => Ok(Some(Sidecar { file, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(source) => Err(FileError { doing: "opening", path, source }),
        }
    }

    /// Removes the sidecar of an object, if it has one.
    pub(crate) fn remove(&self, id: ObjectId) -> Result<(), FileError> {
        match fs::unlinkat(&self.root, relative(id), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(source) => Err(FileError { doing: "removing", path: self.dir.join(relative(id)), source }),
        }
    }

    fn sync_directory(&self, number: u8) -> Result<(), FileError> {
        let name = format!("{number:02x}");
        fs::openat(&self.root, &name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .and_then(fs::fsync)
            .map_err(|source| FileError { doing: "syncing", path: self.dir.join(name), source })
    }
}

impl Sidecar {
    /// What it says before the sums; an error text if it is not a sidecar, or of a newer release.
    pub(crate) fn head(&self) -> Result<Result<Head, &'static str>, FileError> {
        let mut bytes = [0; HEAD as usize];
        let got = self.read(&mut bytes, 0)?;
        // Its length may reach the disk without it. A fence is synced with all that is before it, so none was there.
        if got == 0 || (got == bytes.len() && bytes.iter().all(|byte| *byte == 0)) {
            return Ok(Ok(Head { blank: true, ..Head::default() }));
        }
        if got < bytes.len() || bytes[..8] != MAGIC {
            return Ok(Err("this is not a file of sums"));
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(8) != VERSION {
            return Ok(Err("its format is of another release"));
        }
        if word(24) != crc32c::crc32c(&bytes[..24]) {
            return Ok(Err("it is damaged"));
        }
        Ok(Ok(Head {
            fence: long(&bytes, 16),
            unsummed: word(12) & UNSUMMED != 0,
            blank: false,
            channels: (0..CHANNELS).map(|n| decode_done(&bytes, n)).collect(),
        }))
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> Result<bool, FileError> {
        Ok(fs::fstat(&self.file).map_err(|e| self.error("looking at", e))?.st_size == 0)
    }

    /// Writes all that comes before the sums. Not durable before [`Sidecar::sync`].
    pub(crate) fn write_head(&self, head: &Head) -> Result<(), FileError> {
        let mut bytes = vec![0; HEAD as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(if head.unsummed { UNSUMMED } else { 0 }).to_le_bytes());
        bytes[16..24].copy_from_slice(&head.fence.to_le_bytes());
        let check = crc32c::crc32c(&bytes[..24]);
        bytes[24..28].copy_from_slice(&check.to_le_bytes());
        for (n, done) in head.channels.iter().take(CHANNELS).enumerate() {
            let at = CHANNELS_AT as usize + n * CHANNEL_LEN;
            if let Some(done) = done {
                bytes[at..at + CHANNEL_LEN].copy_from_slice(&encode_done(*done));
            }
        }
        self.write(&bytes, 0)
    }

    /// Notes what a channel did last, in place `n`.
    pub(crate) fn write_done(&self, n: usize, done: Done) -> Result<(), FileError> {
        self.write(&encode_done(done), CHANNELS_AT + (n * CHANNEL_LEN) as u64)
    }

    /// The sums of `count` blocks from `first` on; those that were never written are 0.
    pub(crate) fn sums(&self, first: u64, count: usize) -> Result<Vec<u32>, FileError> {
        let mut bytes = vec![0; count * 4];
        self.read(&mut bytes, HEAD + first * 4)?;
        Ok(data::frame::decode_sums(&bytes))
    }

    /// Writes the sums of blocks from `first` on.
    pub(crate) fn write_sums(&self, first: u64, sums: &[u32]) -> Result<(), FileError> {
        self.write(&data::frame::encode_sums(sums), HEAD + first * 4)
    }

    /// Takes disk space for the sums of `pages` pages from that of block `first` on, so that writing them cannot fail for want of it.
    pub(crate) fn reserve(&self, first: u64, pages: u64) -> Result<(), FileError> {
        self.take(HEAD + first / BLOCKS_PER_PAGE * HEAD, pages * HEAD)
    }

    fn take(&self, at: u64, length: u64) -> Result<(), FileError> {
        loop {
            match fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, at, length) {
                // File systems that cannot reserve take the space when it is written.
                Ok(()) | Err(Errno::OPNOTSUPP) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(source) => return Err(self.error("taking space for", source)),
            }
        }
    }

    /// Forgets the sums from block `blocks` on.
    pub(crate) fn cut(&self, blocks: u64) -> Result<(), FileError> {
        let length = fs::fstat(&self.file).map_err(|e| self.error("looking at", e))?.st_size.max(0) as u64;
        let wanted = HEAD + blocks * 4;
        if wanted >= length {
            return Ok(());
        }
        fs::ftruncate(&self.file, wanted).map_err(|e| self.error("setting the length of", e))
    }

    /// The sync of another file comes first: this one is begun.
    pub(crate) fn begin_sync(&self) {
        disk::begin_sync(&self.file);
    }

    /// Makes it durable.
    pub(crate) fn sync(&self) -> Result<(), FileError> {
        fs::fdatasync(&self.file).map_err(|e| self.error("syncing", e))
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, FileError> {
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.file, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.error("reading", e)),
            }
        }
        Ok(done)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), FileError> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.file, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(self.error("writing", Errno::IO)),
                Ok(sent) => done += sent,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.error("writing", e)),
            }
        }
        Ok(())
    }

    fn error(&self, doing: &'static str, source: Errno) -> FileError {
        FileError { doing, path: self.path.clone(), source }
    }
}

fn encode_done(done: Done) -> [u8; CHANNEL_LEN] {
    let mut bytes = [0; CHANNEL_LEN];
    bytes[..8].copy_from_slice(&done.client.to_le_bytes());
    bytes[8..16].copy_from_slice(&done.channel.to_le_bytes());
    bytes[16..24].copy_from_slice(&done.sequence.to_le_bytes());
    let check = crc32c::crc32c(&bytes[..24]);
    bytes[24..28].copy_from_slice(&check.to_le_bytes());
    // Tells an entry from bytes that were never written.
    bytes[28] = 1;
    bytes
}

fn decode_done(head: &[u8], n: usize) -> Option<Done> {
    let at = CHANNELS_AT as usize + n * CHANNEL_LEN;
    let entry = &head[at..at + CHANNEL_LEN];
    let done = Done { client: long(entry, 0), channel: long(entry, 8), sequence: long(entry, 16) };
    (encode_done(done) == entry).then_some(done)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// The same directories as those of the objects, see crate `disk`.
fn fan_out(id: ObjectId) -> u8 {
    (id.0 >> 8) as u8
}

fn relative(id: ObjectId) -> String {
    format!("{:02x}/{:016x}", fan_out(id), id.0)
}

fn made(outcome: Result<(), Errno>) -> Result<bool, Errno> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(e),
    }
}
