//! A node in a temporary directory, and a user of it.
#![allow(dead_code)] // each test binary uses a part

use node::{Config, Node, Session, Size};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use types::api::{FileApi, OpenFlags};
use types::*;
use wire::{Call, Reply, Selection};

pub struct Bed {
    pub dir: tempfile::TempDir,
    pub node: Arc<Node>,
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
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        change(&mut config);
        let node = Node::start(config).unwrap();
        Self { dir, node }
    }

    /// Stops gracefully and starts again on the same directory.
    pub fn restart(self) -> Self {
        let config = self.node.config().clone();
        self.node.stop(true);
        drop(self.node);
        let node = Node::start(config).unwrap();
        Self { dir: self.dir, node }
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
            match got.recv_timeout(Duration::from_secs(60)).expect("a read ends") {
                Ok(bytes) if bytes.is_empty() => break Ok(out),
                Ok(bytes) => out.extend(bytes),
                Err(e) => break Err(e),
            }
        };
        self.node.release(opened.handle);
        result
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
        let deadline = Instant::now() + Duration::from_secs(60);
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
