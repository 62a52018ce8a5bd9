//! Nodes for tests of the steps between disk and tape: one without cartridges, with a worker of a drive that is not there, and one with
//! a cartridge in a drive.

use super::Event;
use super::library::sleeper;
use super::progress::Progress;
use super::state::CheckAsk;
use super::worker::Worker;
use crate::{Config, Node, Size};
use parking_lot::Mutex;
use policy::{MigrateBatch, MigrateItem, MigrateWhy};
use std::sync::Arc;
use tape::{Changer, Drive, Mounted};
use types::api::{FileApi, OpenFlags};
use types::*;

/// With a blank cartridge in a drive.
pub fn with_one(test: impl FnOnce(&Worker, &mut Mounted<'_>, &Barcode)) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
    config.library.cartridges = 1;
    let node = Node::start(config).unwrap();
    let library = node.virtual_library().clone();
    let mut robot = Changer::open(Box::new(library.changer()), sleeper()).unwrap();
    let elements = robot.inventory().unwrap();
    let slot = elements.iter().find(|e| e.barcode.is_some()).unwrap();
    let element = elements.iter().find(|e| e.kind == ElementKind::Drive).unwrap().address;
    let barcode = slot.barcode.clone().unwrap();
    robot.move_medium(slot.address, element).unwrap();
    let mut drive = Drive::open(Box::new(library.drive(0)), sleeper()).unwrap();
    let mut mounted = drive.mount(Some(&barcode)).unwrap();
    let robot = Arc::new(Mutex::new(robot));
    let worker = Worker::new(node.clone(), DriveNo(0), (LibraryNo(0), element), robot, Arc::default());
    test(&worker, &mut mounted, &barcode);
    node.stop(false);
}

/// Gives the cartridge of [`with_one`] its label; from then on the service of its node does nothing.
pub fn labelled(worker: &Worker, mounted: &mut Mounted<'_>, barcode: &Barcode) {
    worker.node.stop(false);
    worker.node.archive.state.lock().stopping = None;
    worker.node.catalog.update_volume(barcode, &mut |v| v.state = VolumeState::Blank).unwrap();
    assert!(super::label::label(worker, mounted, barcode, Some("p".into()), None).unwrap() > 0);
}

/// A drive says that the medium of a volume is bad.
pub fn medium_fails(worker: &Worker, barcode: &Barcode) {
    let error = super::trouble::damaged(barcode, "a spot".into());
    let ended = super::worker::Ended::new(worker.no, barcode.clone(), None, Err(error));
    super::events::finished(&worker.node, ended);
}

/// See the module.
pub struct Rig {
    /// Of drive 0.
    pub worker: Worker,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// Three buffers of 1 MiB.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        config.library.cartridges = 0;
        config.tape.buffers = Size(0);
        let node = Node::start(config).unwrap();
        // The service puts away first what it finds in drives, and that shall not be what a test puts there. It drops this
        // order when it has come to it.
        let (answer, begun) = crossbeam_channel::bounded(0);
        node.archive.send(Event::Check(CheckAsk { volumes: Vec::new(), deep: false, answer }));
        assert!(begun.recv().is_err());
        let robot =
            Changer::open(Box::new(node.virtual_library().changer()), Box::new(std::thread::sleep)).unwrap();
        let robot = Arc::new(Mutex::new(robot));
        Self {
            worker: Worker::new(node, DriveNo(0), (LibraryNo(0), 0), robot, Arc::new(Progress::default())),
            _dir: dir,
        }
    }

    /// What the node was started with.
    pub fn config(&self) -> Config {
        self.worker.node.config.clone()
    }

    /// A closed file of so many bytes, to be copied.
    pub fn put(&self, name: &str, size: u64) -> MigrateItem {
        let node = &self.worker.node;
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let opened = node.create(&Cx::admin(crate::now()), Ino::ROOT, name.as_bytes(), 0o644, flags).unwrap();
        let data = vec![7; size as usize];
        let mut at = 0;
        while at < data.len() {
            at += node.write(opened.handle, at as u64, &data[at..]).unwrap() as usize;
        }
        node.release(opened.handle);
        let inode = node.catalog.inode(opened.attr.ino).unwrap();
        let version = inode.file.unwrap().version;
        MigrateItem { ino: opened.attr.ino, version, copy: CopyNo(1), size, due: Time::default() }
    }

    fn object(&self, ino: Ino) -> std::os::fd::OwnedFd {
        let file = self.worker.node.catalog.inode(ino).unwrap().file.unwrap();
        self.worker.node.disk.open_object(file.object.unwrap(), true).unwrap()
    }

    /// Changes a byte behind the node's back, as a program does that the kernel lets write.
    pub fn overwrite(&self, ino: Ino, at: u64) {
        self.worker.node.disk.write_at(self.object(ino), b"x", at).unwrap();
    }

    /// Makes the object shorter behind the node's back.
    pub fn cut(&self, ino: Ino, size: u64) {
        self.worker.node.disk.set_len(self.object(ino), size).unwrap();
    }

    /// For a write queue.
    pub fn batch(pool: &PoolName, items: &[MigrateItem]) -> MigrateBatch {
        MigrateBatch {
            class: ClassName("default".into()),
            pool: pool.clone(),
            items: items.to_vec(),
            bytes: 0,
            why: MigrateWhy::Age,
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.worker.node.stop(false);
    }
}
