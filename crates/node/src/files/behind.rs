//! Writing behind: what programs of this host write to coded files stays in the node's memory until it fills rows, for about a second at most.
//! fsync, and closing, have it written to the targets before they are answered. Programs of other hosts go on when the node was started anew: what
//! they were answered is at the targets, or they keep a spare of it ([`super::spares`]).

use super::far::FarFile;
use super::open::{Backing, OpenFile};
use super::spares::number_of;
use crate::Node;
use crate::error::fs_error;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stripe::{Room, Striped};
use types::Ino;
use types::api::{FsResult, OpenFlags};

/// Between two looks. What was there at one is written at the next.
const AGAIN: Duration = Duration::from_secs(1);
/// What part of the machine's memory all files together have, and how many bytes at least.
const SHARE: u64 = 16;
const LEAST: u64 = 64 << 20;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A program at the node's mount, whose open files end with the node. Behind the end of a file its kernel has one write at a time.
    Mount,
    /// Another one whose open files end with the node.
    Here,
    /// A program of another host, or a service of the node: what it was answered is at the targets.
    Elsewhere,
}

/// Files of which something is in memory only.
pub(crate) struct Behind {
    pub(super) room: Arc<Room>,
    files: Mutex<BTreeSet<Ino>>,
}

impl Default for Behind {
    fn default() -> Self {
        let machine = rustix::system::sysinfo();
        let memory = machine.totalram as u64 * u64::from(machine.mem_unit);
        Self { room: Arc::new(Room::new(LEAST.max(memory / SHARE))), files: Mutex::default() }
    }
}

impl Behind {
    /// Whether anything is kept, until the node ends.
    pub(super) fn keeps(&self) -> bool {
        !self.room.is_closed()
    }
}

/// What of that concerns one file.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// It is among those files.
    noted: AtomicBool,
    /// Held by who writes behind everybody's back: why that failed the last time.
    told: Mutex<String>,
    /// It failed the last time.
    fails: AtomicBool,
}

impl Pending {
    /// Targets do not take what is in memory: nothing more is put there, so that whoever writes is told.
    pub(super) fn fails(&self) -> bool {
        self.fails.load(Ordering::Acquire)
    }
}

impl FarFile {
    /// Something may be in memory only.
    pub(super) fn note_behind(&self, node: &Node) {
        if !self.pending.noted.swap(true, Ordering::AcqRel) {
            node.movers.behind.files.lock().insert(self.ino());
        }
    }

    /// Writes to the targets what was written behind.
    pub fn flush(&self) -> FsResult<()> {
        self.is_whole()?;
        self.write_out(&Striped::flush).map_err(|e| self.failed("writing", &e))?;
        // What went behind a loss that was found meanwhile is not there.
        self.is_whole()
    }

    /// The same of what has a number below this one.
    pub(super) fn flush_below(&self, number: u64) -> FsResult<()> {
        self.is_whole()?;
        self.write_out(&|striped| striped.flush_below(number)).map_err(|e| self.failed("writing", &e))
    }

    /// Writes rows that are complete; false: it has failed, as whoever syncs is told.
    pub(super) fn write_completed(&self) -> bool {
        self.is_whole().is_ok() && self.write_out(&Striped::write_completed).is_ok()
    }

    /// Each time it is tried the file has the same objects until that is done.
    fn write_out(&self, flush: &dyn Fn(&Striped) -> stripe::Result<()>) -> stripe::Result<()> {
        let place = self.place();
        if place.striped().gathered() == 0 {
            return Ok(());
        }
        place.striped().meet();
        self.machines.note(place.striped());
        // Not while it leaves a target that is full: then whoever changes its objects has to end first.
        let written = self.with_room(&place, || flush(self.place.read().striped()));
        self.note_machines();
        written
    }

    /// The same by who has claimed the file, so that it leaves no target that is full.
    pub(crate) fn flush_claimed(&self) -> stripe::Result<()> {
        let place = self.place();
        if place.striped().gathered() == 0 {
            return Ok(());
        }
        place.striped().meet();
        self.machines.note(place.striped());
        let written = place.striped().flush();
        drop(place);
        self.note_machines();
        written
    }

    /// Writes what has been there since the last time. What targets do not take stays, and whoever syncs or closes is told.
    fn write_older(&self, node: &Node) {
        self.pending.noted.store(false, Ordering::Release);
        if self.is_whole().is_err() {
            return; // it stays, and whoever closes the file last says how much that is
        }
        if let Some(mut told) = self.pending.told.try_lock() {
            let problem = self.write_out(&Striped::flush_older).err().map(|e| e.to_string());
            let problem = problem.unwrap_or_default();
            if !problem.is_empty() && problem != *told {
                let bytes = self.striped().gathered();
                tracing::error!(
                    "inode {}: {bytes} bytes that programs have written are in memory only, and that is tried again: {problem}",
                    self.ino()
                );
            }
            self.pending.fails.store(!problem.is_empty(), Ordering::Release);
            *told = problem;
        }
        // Another look ends a failure, too, when somebody else has written it since.
        if self.striped().gathered() > 0 || self.pending.fails() {
            self.note_behind(node);
        }
    }
}

impl FarFile {
    /// Nothing is kept any more: what was goes to the targets, durably.
    fn end_behind(&self) {
        let settled = match self.striped().gathered() {
            0 => Ok(()),
            _ => self.flush().and_then(|()| self.sync()),
        };
        if settled.and_then(|()| self.settle_spares()).is_err() {
            let bytes = self.striped().gathered();
            tracing::error!(
                "inode {}: the node stops, and {bytes} bytes that programs have written are lost",
                self.ino()
            );
        }
    }
}

impl Node {
    /// Writes what was written behind, until the node stops.
    pub(crate) fn write_behind(&self) {
        while !self.stops_within(AGAIN) {
            let files = std::mem::take(&mut *self.movers.behind.files.lock());
            for ino in files {
                let Some(node) = self.movers.node() else { return };
                self.movers.run_behind(Box::new(move || node.write_older(ino)));
            }
        }
    }

    fn write_older(&self, ino: Ino) {
        self.while_open(ino, |backing| backing.far().into_iter().for_each(|far| far.write_older(self)));
    }

    /// Does something with the content of a file if it is open, and it stays open until that is done: whoever opens it meanwhile gets the same
    /// content, so that never two of them write to one file.
    pub(crate) fn while_open<T>(&self, ino: Ino, what: impl FnOnce(&Backing) -> T) -> Option<T> {
        let entry = self.open.get(ino)?;
        let (handle, backing) = {
            let mut state = entry.state.lock();
            let backing = state.backing.clone().filter(|_| state.handles > 0)?;
            state.handles += 1;
            state.idle += 1;
            (self.open.add_handle(entry.clone(), OpenFlags::default()), backing)
        };
        let done = what(&backing);
        self.close_file(handle);
        Some(done)
    }

    /// Writes out what was written through a handle: who closes it is told if that fails.
    pub(super) fn flush_file(&self, file: &OpenFile) -> FsResult<()> {
        let backing = file.inode.state.lock().backing.clone();
        match backing.as_ref().and_then(Backing::far).filter(|_| file.flags.write) {
            Some(far) => far.flush(),
            None => Ok(()),
        }
    }

    /// The node ends: what is in memory only goes to the targets, durably, and what is written from now on goes there at once. Whoever serves
    /// targets in this process calls it before they end.
    pub fn end_behind(&self) {
        let Some(node) = self.movers.node().filter(|_| self.movers.behind.room.close()) else { return };
        // Nothing is sent: who waits goes on when the last of them is dropped.
        let (ends, all) = std::sync::mpsc::channel::<()>();
        for ino in self.open.all().iter().map(|entry| entry.ino) {
            let (node, ends) = (node.clone(), ends.clone());
            self.movers.run_behind(Box::new(move || {
                node.while_open(ino, |backing| backing.far().into_iter().for_each(|far| far.end_behind()));
                drop((node, ends));
            }));
        }
        drop((node, ends));
        let _ = all.recv();
    }

    /// Whether closing this handle has to make something durable on targets.
    pub(super) fn waits_for_targets(file: &OpenFile) -> bool {
        let state = file.inode.state.lock();
        file.flags.write && state.backing.as_ref().and_then(Backing::far).is_some_and(|far| !far.is_settled())
    }

    /// Makes durable what was written through a handle that is being closed, before the lock of the file is taken: a target that does not answer
    /// takes a minute. If that fails the file stays marked as being written, and [`Node::tend_far`] closes it later.
    pub(super) fn settle_written(&self, file: &OpenFile) {
        let backing = file.inode.state.lock().backing.clone();
        let far = backing.as_ref().and_then(Backing::far).filter(|_| file.flags.write);
        match far.map(|far| (far, far.sync())) {
            Some((far, Ok(()))) => far.leave_spares(self, number_of(file)),
            Some((far, Err(_))) => tracing::warn!("inode {} is closed when its targets answer", far.ino()),
            None => {}
        }
    }

    /// Nobody has the file open any more: what its targets did not take until now is lost, unless it has no name anyway.
    pub(super) fn forget_behind(&self, far: &FarFile) {
        let lost = far.striped().gathered();
        let named = || self.catalog.inode(far.ino()).map_err(|e| fs_error("close", &e));
        if lost > 0 && named().is_ok_and(|inode| inode.attr.nlink > 0) {
            tracing::error!(
                "inode {} was closed, and {lost} bytes that programs have written are lost, because its targets did not take them; fsync and \
                 close have said so if they were called: write them again",
                far.ino()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Node};
    use types::api::{FileApi, OpenFlags};
    use types::{Cx, Ino};

    #[test]
    fn a_file_that_is_closed_while_something_of_it_is_written_behind_is_the_same_for_who_opens_it_then() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let (cx, flags) = (Cx::admin(crate::now()), OpenFlags { write: true, ..OpenFlags::default() });
        let made = node.create(&cx, Ino::ROOT, b"file", 0o644, flags).unwrap();
        let ino = made.attr.ino;
        let content = || node.open.get(ino).unwrap().state.lock().backing.clone().unwrap();
        let again = node.while_open(ino, |backing| {
            node.release(made.handle);
            let again = node.open(&cx, ino, flags).unwrap();
            let now = content();
            assert!(std::sync::Arc::ptr_eq(backing.fd().unwrap(), now.fd().unwrap()), "two of one file");
            again
        });
        node.release(again.expect("it was open").handle);
        assert!(node.open.get(ino).is_none(), "nobody has it open any more");
        assert!(node.while_open(ino, |_| ()).is_none(), "nothing is written behind of a file that is closed");
        node.stop(true);
    }

    /// Else a host whose column is being moved just when the node comes back would lose what it has in its memory.
    #[test]
    fn that_the_node_itself_opens_what_an_earlier_one_left_is_no_use_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let (cx, flags) = (Cx::admin(crate::now()), OpenFlags { write: true, ..OpenFlags::default() });
        let made = node.create(&cx, Ino::ROOT, b"file", 0o644, flags).unwrap();
        node.release(made.handle);
        let ino = made.attr.ino;
        let open = |flags| node.open_file(&cx, ino, flags).unwrap().handle;
        let state = || {
            let entry = node.open.get(ino).unwrap();
            let state = entry.state.lock();
            (state.handles, state.idle, state.returned)
        };
        node.open.left_by_earlier(ino);
        let first = open(OpenFlags::default());
        assert_eq!(state(), (1, 1, Some(0)));
        node.close_file(first);
        let own = open(OpenFlags::default());
        let user = open(flags);
        node.while_open(ino, |_| assert_eq!(state(), (3, 2, Some(1)), "it was returned to, once")).unwrap();
        node.close_file(own);
        assert_eq!(state(), (1, 0, Some(1)));
        let other = open(OpenFlags { read: true, ..OpenFlags::default() });
        assert_eq!(state(), (2, 0, Some(2)));
        [user, other].into_iter().for_each(|handle| node.close_file(handle));
        let again = open(flags);
        assert_eq!(state(), (1, 0, None), "somebody has had it open since");
        node.close_file(again);
        node.stop(true);
    }
}
