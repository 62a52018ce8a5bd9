//! A node in a temporary directory, and a user of it.
#![allow(dead_code)] // each test binary uses a part

pub mod medium;

use node::{Config, Node, Session, Size};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};
use types::api::{FileApi, OpenFlags, Opened, WaitId};
use types::*;
use wire::{Call, Reply, Selection};

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(300);
pub const READ: OpenFlags =
    OpenFlags { read: true, write: false, append: false, truncate: false, exclusive: false, nonblock: false };
pub const WRITE: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, nonblock: false };

pub struct Bed {
    pub dir: tempfile::TempDir,
    pub node: Running,
}

/// A node that is stopped when nobody has it any more: each that goes on holds a thousand files open, and threads.
pub struct Running(Arc<Node>);

impl Running {
    pub fn start(config: Config) -> Self {
        Node::start(config).unwrap().into()
    }

    pub fn with(config: Config, library: Arc<vtl::Library>) -> Self {
        Node::start_with(config, library).unwrap().into()
    }
}

impl From<Arc<Node>> for Running {
    fn from(node: Arc<Node>) -> Self {
        Self(node)
    }
}

impl std::ops::Deref for Running {
    type Target = Arc<Node>;

    fn deref(&self) -> &Arc<Node> {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.0.stops_within(Duration::ZERO) {
            self.0.stop(false);
        }
    }
}

pub fn config(dir: &std::path::Path) -> Config {
    let mut config = Config { state_dir: dir.to_owned(), ..Config::default() };
    config.library.cartridge_capacity = Size::mib(64);
    config.classes[0].migrate_after_s = 3600;
    config.tape.idle_unmount_s = 1;
    config
}

pub fn cx() -> Cx {
    Cx::admin(SystemTime::now().into())
}

impl Bed {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::at(tempfile::tempdir().unwrap(), change)
    }

    /// On a file system in memory if there is one with room: for tests that start very many nodes and in which no machine
    /// loses power (a virtual drive that does loses its buffer there as well).
    pub fn in_memory(change: impl FnOnce(&mut Config)) -> Self {
        const ENOUGH: u64 = 1 << 30;
        let memory = Path::new("/dev/shm");
        let free = rustix::fs::statvfs(memory).map_or(0, |s| s.f_bavail * s.f_frsize);
        let dir = if free > ENOUGH { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self::at(dir.unwrap(), change)
    }

    fn at(dir: tempfile::TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(dir.path());
        change(&mut config);
        Self { dir, node: Running::start(config) }
    }

    /// Stops gracefully and starts again on the same directory.
    pub fn restart(self) -> Self {
        let config = self.node.config().clone();
        self.node.stop(true);
        drop(self.node);
        Self { dir: self.dir, node: Running::start(config) }
    }

    pub fn call(&self, call: Call) -> Reply {
        self.try_call(call).unwrap()
    }

    pub fn try_call(&self, call: Call) -> Result<Reply, wire::Failure> {
        self.node.call(&cx(), &mut Session::default(), call).map(|a| a.reply)
    }

    pub fn write(&self, name: &str, data: &[u8]) -> Ino {
        let flags = OpenFlags { write: true, read: true, truncate: true, ..OpenFlags::default() };
        let opened = self.node.create(&cx(), Ino::ROOT, name.as_bytes(), 0o644, flags).unwrap();
        let fd = opened.backing.expect("a new file is given out directly");
        rustix::fs::ftruncate(&fd, 0).unwrap();
        rustix::io::pwrite(&fd, data, 0).unwrap();
        self.node.release(opened.handle);
        opened.attr.ino
    }

    pub fn try_read(&self, ino: Ino) -> FsResultVec {
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let opened = self.node.open(&cx(), ino, flags)?;
        let mut out = Vec::new();
        let result = loop {
            let (done, got) = std::sync::mpsc::channel();
            self.node.read(
                opened.handle,
                out.len() as u64,
                1 << 20,
                Box::new(move |r| done.send(r).unwrap()),
            );
            match got.recv_timeout(PATIENCE).expect("a read ends") {
                Ok(bytes) if bytes.is_empty() => break Ok(out),
                Ok(bytes) => out.extend(bytes),
                Err(e) => break Err(e),
            }
        };
        self.node.release(opened.handle);
        result
    }

    pub fn open(&self, ino: Ino, flags: OpenFlags) -> Opened {
        self.node.open(&cx(), ino, flags).unwrap()
    }

    /// Starts a read; its end comes through the channel.
    pub fn begin_read(
        &self,
        handle: Handle,
        offset: u64,
        len: u32,
    ) -> (Option<WaitId>, mpsc::Receiver<Result<Vec<u8>, FsError>>) {
        let (done, got) = mpsc::channel();
        let wait = self.node.read(handle, offset, len, Box::new(move |r| drop(done.send(r))));
        (wait, got)
    }

    pub fn read_at(&self, handle: Handle, offset: u64, len: u32) -> Result<Vec<u8>, FsError> {
        let (_, got) = self.begin_read(handle, offset, len);
        got.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("a read ends: {e}; status {:#?}", self.status()))
    }

    /// Whether it can be opened for reading.
    pub fn probe_open(&self, ino: Ino) -> Result<(), FsError> {
        self.node.open(&cx(), ino, READ).map(|opened| self.node.release(opened.handle))
    }

    /// Opens for reading, reads the first byte, closes: an error of the recall shows here.
    pub fn probe(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let opened = self.open(ino, READ);
        let result = self.read_at(opened.handle, 0, 1);
        self.node.release(opened.handle);
        result
    }

    /// Volumes of each copy of the newest version.
    pub fn volumes_of(&self, path: &str) -> Vec<Barcode> {
        let view = self.stat(path);
        let version = view.file.unwrap().version;
        let newest = view.versions.iter().find(|v| v.version == version).unwrap();
        newest.copies.iter().flat_map(|c| c.segments.iter().map(|s| s.volume.clone())).collect()
    }

    pub fn status(&self) -> StatusView {
        match self.call(Call::Status) {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub fn volume(&self, barcode: &Barcode) -> Volume {
        match self.call(Call::Volume(barcode.clone())) {
            Reply::Volume(view) => view.volume.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub fn volumes(&self) -> Vec<Volume> {
        match self.call(Call::Volumes) {
            Reply::Volumes(views) => views.into_iter().map(|v| v.volume).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub fn drives(&self) -> Vec<DriveView> {
        match self.call(Call::Drives) {
            Reply::Drives(drives) => drives,
            other => panic!("{other:?}"),
        }
    }

    /// States of a request's files.
    pub fn items(&self, id: RequestId) -> Vec<ItemState> {
        match self.call(Call::RequestItems { id, after: Ino(0), limit: 1000 }) {
            Reply::RequestItems(items) => items.into_iter().map(|i| i.state).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub fn one(&self, path: &str) -> Selection {
        Selection { paths: vec![path.as_bytes().to_vec()], recursive: false }
    }

    /// Starts an act without waiting for it.
    pub fn begin(&self, call: Call) -> RequestView {
        match self.call(call) {
            Reply::Request(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    pub fn request(&self, id: RequestId) -> RequestView {
        self.begin(Call::Request(id))
    }

    /// Purges one file, which must be possible once readers have let go of it.
    pub fn purge(&self, path: &str) {
        let request = self.act(Call::Purge(self.one(path)));
        assert_eq!(request.state, RequestState::Done, "{:?}", self.items(request.id));
    }

    /// Flips one bit of `needle` where it lies on the cartridge of `volume`: silent damage, which no drive reports.
    pub fn flip_a_bit_on(&self, volume: &Barcode, needle: &[u8]) {
        let of_volume = |p: &PathBuf| p.to_string_lossy().contains(volume.as_str());
        let mut damaged = 0;
        for path in files_below(&self.node.config().library_path()).into_iter().filter(of_volume) {
            let mut bytes = std::fs::read(&path).unwrap();
            if let Some(at) = bytes.windows(needle.len()).position(|w| w == needle) {
                bytes[at] ^= 1;
                std::fs::write(&path, bytes).unwrap();
                damaged += 1;
            }
        }
        assert_eq!(damaged, 1, "{volume} holds these bytes once");
    }

    /// Waits until no cartridge is in a drive.
    pub fn until_dismounted(&self) {
        self.until("the drives are empty", |b| b.drives().iter().all(|d| d.status == DriveStatus::Free));
    }

    /// Waits until something is true.
    pub fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "never: {what}; status {:#?}", self.status());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn read(&self, ino: Ino) -> Vec<u8> {
        self.try_read(ino).unwrap()
    }

    pub fn stat(&self, path: &str) -> FileView {
        match self.call(Call::Stat { path: path.into() }) {
            Reply::File(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    pub fn all(&self) -> Selection {
        Selection { paths: vec![b"/".to_vec()], recursive: true }
    }

    /// Runs an act and waits until its request ends.
    pub fn act(&self, call: Call) -> Request {
        let Reply::Request(view) = self.call(call) else { panic!("no request") };
        self.wait(view.request.id)
    }

    pub fn wait(&self, id: RequestId) -> Request {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Reply::Request(view) = self.call(Call::Request(id)) else { panic!("no request") };
            if !matches!(view.request.state, RequestState::Queued | RequestState::Active) {
                return view.request;
            }
            assert!(
                Instant::now() < deadline,
                "request does not end: {view:?}, status {:?}",
                self.call(Call::Status)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn migrate_and_purge(&self) {
        let request = self.act(Call::Migrate(self.all()));
        assert_eq!(request.state, RequestState::Done, "{request:?}");
        let request = self.act(Call::Purge(self.all()));
        assert_eq!(request.state, RequestState::Done, "{request:?}");
    }

    /// Waits until no request is open: readers have their bytes before a recall is settled.
    pub fn settle(&self) {
        let Reply::Requests(open) = self.call(Call::Requests { all: false, limit: 1000 }) else {
            panic!("no list")
        };
        open.iter().for_each(|r| drop(self.wait(r.request.id)));
    }

    pub fn check(&self, deep: bool) -> CheckReport {
        match self.call(Call::Check { tapes: true, deep }) {
            Reply::Check(report) => report,
            other => panic!("{other:?}"),
        }
    }
}

/// Regular files below a directory, the largest first.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort_by_key(|p| std::cmp::Reverse(p.metadata().unwrap().len()));
    found
}

pub type FsResultVec = Result<Vec<u8>, FsError>;

pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}
