//! Which handles are open, and in which mode each inode is.
//!
//! The kernel wants every concurrent passthrough open of an inode to name the same backing id, so the id is kept per
//! inode with a count of its users and closed with the last of them.

use fuser::BackingId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::api::{OpenFlags, Opened};
use types::{Attr, Handle, Ino};

const SHARDS: usize = 64;
/// A call that took longer until the kernel asks for what it has made may have been made more than once.
const AT_ONCE: Duration = Duration::from_millis(50);

/// How the bytes of an open file travel.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// The kernel reads and writes the backing file.
    Kernel(Arc<BackingId>),
    /// This process reads and writes the backing file (no passthrough here).
    Local(Arc<OwnedFd>),
    /// Through the interface.
    Served,
}

/// What is known about one open handle.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    /// The inode.
    pub ino: Ino,
    /// How it was opened.
    pub flags: OpenFlags,
    /// How its bytes travel.
    pub route: Route,
    /// The backing file, where there is one.
    pub backing: Option<Arc<OwnedFd>>,
    /// Several writes to it come at once.
    pub parallel_writes: bool,
}

#[derive(Default)]
struct InodeOpens {
    handles: u32,
    /// Handles that allow a shared writable mapping: the kernel does not see what is written through one.
    mappable: u32,
    route: Option<Route>,
    made: Option<Made>,
}

/// A file as it was made a moment ago.
pub(crate) struct Made {
    /// As the call that made it has answered.
    pub attr: Attr,
    /// When that call began.
    pub begun: Instant,
    /// Who made it (thread id; 0: not known here).
    pub thread: u32,
}

type Shards<K, V> = [Mutex<HashMap<K, V>>; SHARDS];

/// The table of open files.
pub(crate) struct OpenTable {
    inodes: Shards<Ino, InodeOpens>,
    handles: Shards<Handle, OpenFile>,
}

fn shard<K, V>(shards: &Shards<K, V>, key: u64) -> &Mutex<HashMap<K, V>> {
    &shards[(key as usize) % SHARDS]
}

impl OpenTable {
    pub(crate) fn new() -> Self {
        Self {
            inodes: std::array::from_fn(|_| Mutex::default()),
            handles: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Enters a handle, of a file that its call has `made`, and says how its bytes travel. `register` gives the backing file to the kernel; it is called only
    /// for the first open of an inode, and if it fails this process serves the file until all its handles are closed.
    pub(crate) fn enter(
        &self,
        ino: Ino,
        flags: OpenFlags,
        opened: &Opened,
        made: Option<Made>,
        register: impl FnOnce(&OwnedFd) -> Option<io::Result<BackingId>>,
    ) -> Route {
        let mut inodes = shard(&self.inodes, ino.0).lock();
        let entry = inodes.entry(ino).or_default();
        entry.handles += 1;
        entry.made = made.filter(|_| entry.handles == 1);
        entry.mappable += u32::from(flags.read && flags.write);
        let route = match (&opened.backing, &entry.route) {
            (None, _) => Route::Served,
            (Some(_), Some(Route::Kernel(id))) => Route::Kernel(Arc::clone(id)),
            (Some(fd), Some(_)) => Route::Local(Arc::clone(fd)), // its own descriptor: it has the rights of this open
            (Some(fd), None) => entry.route.insert(first_route(ino, fd, register)).clone(),
        };
        drop(inodes);
        let parallel_writes = opened.parallel_writes;
        let backing = opened.backing.clone();
        let file = OpenFile { ino, flags, route: route.clone(), backing, parallel_writes };
        shard(&self.handles, opened.handle.0).lock().insert(opened.handle, file);
        route
    }

    /// The answer to the question of who has just made it, once. A kernel that keeps no attributes asks for them once more before its open(2) returns (it checks
    /// the right to open whatever it opens): that question belongs to the call, and is answered from its answer. `thread`: who asks.
    pub(crate) fn take_made(&self, ino: Ino, thread: u32) -> Option<Attr> {
        let mut inodes = shard(&self.inodes, ino.0).lock();
        let entry = inodes.get_mut(&ino)?;
        let made = entry.made.take_if(|made| made.thread == thread && thread != 0)?;
        (made.begun.elapsed() < AT_ONCE).then_some(made.attr)
    }

    /// It is not as it was made any more.
    pub(crate) fn changes(&self, ino: Ino) {
        if let Some(entry) = shard(&self.inodes, ino.0).lock().get_mut(&ino) {
            entry.made = None;
        }
    }

    /// The open file behind a handle.
    pub(crate) fn get(&self, handle: Handle) -> Option<OpenFile> {
        shard(&self.handles, handle.0).lock().get(&handle).cloned()
    }

    /// Removes a handle. The backing id is given up with the inode's last handle.
    pub(crate) fn leave(&self, handle: Handle) -> Option<OpenFile> {
        let file = shard(&self.handles, handle.0).lock().remove(&handle)?;
        let mut inodes = shard(&self.inodes, file.ino.0).lock();
        if let Some(entry) = inodes.get_mut(&file.ino) {
            entry.handles -= 1;
            entry.mappable -= u32::from(file.flags.read && file.flags.write);
            if entry.handles == 0 {
                inodes.remove(&file.ino);
            }
        }
        Some(file)
    }

    /// Whether a shared writable mapping may exist: then the kernel's attributes of it must not be cached.
    pub(crate) fn may_be_mapped(&self, ino: Ino) -> bool {
        shard(&self.inodes, ino.0).lock().get(&ino).is_some_and(|entry| entry.mappable > 0)
    }

    /// Takes every handle out (the session ended: the kernel sends no RELEASE for what was open).
    pub(crate) fn drain(&self) -> Vec<Handle> {
        self.inodes.iter().for_each(|s| s.lock().clear());
        self.handles.iter().flat_map(|s| std::mem::take(&mut *s.lock()).into_keys()).collect()
    }
}

fn first_route(
    ino: Ino,
    fd: &Arc<OwnedFd>,
    register: impl FnOnce(&OwnedFd) -> Option<io::Result<BackingId>>,
) -> Route {
    match register(fd) {
        Some(Ok(id)) => Route::Kernel(Arc::new(id)),
        Some(Err(error)) => {
            tracing::warn!(%ino, %error, "the kernel refused the backing file for passthrough; serving it from the daemon");
            Route::Local(Arc::clone(fd))
        }
        None => Route::Local(Arc::clone(fd)),
    }
}
