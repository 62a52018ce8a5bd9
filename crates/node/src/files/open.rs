//! Open files: which inodes are open, in which mode, and by how many handles.
//!
//! Everything that depends on "is it open?" (open, purge, truncate, recall start, reaping an unlinked inode) runs under
//! the lock of its inode's entry. Lock order: entry, then catalogue; the catalogue never calls back.

use super::far::FarFile;
use super::lengths::Lengths;
use super::losses::{Losses, Told};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use types::api::OpenFlags;
use types::{Handle, Ino, ObjectId};

const SHARDS: usize = 64;

/// The whole current version of a file as an open object.
#[derive(Clone, Debug)]
pub struct Backing {
    /// Object.
    pub object: ObjectId,
    /// Where its bytes are.
    pub content: Content,
}

/// The bytes of an open object.
#[derive(Clone, Debug)]
pub enum Content {
    /// In the node's disk tier: its descriptor, open for reading and writing.
    Local(Arc<OwnedFd>),
    /// On disk targets of the cluster.
    Far(Arc<FarFile>),
}

impl Backing {
    /// An object of the disk tier.
    pub fn local(object: ObjectId, fd: Arc<OwnedFd>) -> Self {
        Self { object, content: Content::Local(fd) }
    }

    /// The descriptor of an object of the disk tier.
    pub fn fd(&self) -> Option<&Arc<OwnedFd>> {
        match &self.content {
            Content::Local(fd) => Some(fd),
            Content::Far(_) => None,
        }
    }

    /// A file on targets.
    pub fn far(&self) -> Option<&Arc<FarFile>> {
        match &self.content {
            Content::Far(file) => Some(file),
            Content::Local(_) => None,
        }
    }
}

/// State of an open inode, changed only under its lock.
#[derive(Debug, Default)]
pub struct OpenState {
    /// Open handles.
    pub handles: u32,
    /// Handles that may write.
    pub writers: u32,
    /// Bytes are moved by the holder of the descriptor (true) or by the node; fixed while any handle is open.
    pub direct: bool,
    /// The object, once the file is wholly resident.
    pub backing: Option<Backing>,
    /// Handles that are idle ([`OpenFlags::is_idle`]): those of the node, which moves what is there.
    pub idle: u32,
    /// How often it was opened otherwise since, if the first who did that found it as an earlier node had left it.
    pub returned: Option<u32>,
    /// Allocated bytes as last recorded in the catalogue, for counting growth.
    pub recorded_allocated: u64,
    dead: bool,
}

/// An inode with an entry in the table.
#[derive(Debug)]
pub struct OpenInode {
    /// Inode.
    pub ino: Ino,
    /// Bytes on disk beyond what the catalogue has recorded.
    pub growth: AtomicU64,
    /// Handles whose holder writes into the object by himself, unseen by node and mounts.
    pub lent: AtomicU32,
    /// Hosts that take its length for given.
    pub(crate) lengths: Lengths,
    /// What of it may be lost, if it lies in the disk tier.
    pub(crate) losses: Losses,
    /// State.
    pub state: Mutex<OpenState>,
}

/// One open handle.
#[derive(Debug)]
pub struct OpenFile {
    /// Its inode.
    pub inode: Arc<OpenInode>,
    /// How it was opened.
    pub flags: OpenFlags,
    /// Counted in `lent` of the inode.
    lent: AtomicBool,
    /// A right to read at targets was asked for.
    asked: AtomicBool,
    /// What is known of losses of the inode through it.
    pub(super) told: Told,
}

impl OpenFile {
    /// Its holder gets a descriptor of the object to write with.
    pub fn lend(&self) {
        if !self.lent.swap(true, Ordering::AcqRel) {
            self.inode.lent.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A right to read at targets is asked for through it; whether that was so before.
    pub(crate) fn asks_again(&self) -> bool {
        self.asked.swap(true, Ordering::AcqRel)
    }

    /// He has closed.
    pub fn take_back(&self) {
        if self.lent.swap(false, Ordering::AcqRel) {
            self.inode.lent.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// All open inodes and handles.
pub struct OpenTable {
    inodes: Vec<Mutex<HashMap<Ino, Arc<OpenInode>>>>,
    handles: Vec<Mutex<HashMap<Handle, Arc<OpenFile>>>>,
    next: AtomicU64,
    /// How often the last writer of an inode has closed it.
    seals: [AtomicU64; SHARDS],
    /// Inodes that an earlier node left open, and that nobody has opened since.
    left: Mutex<HashSet<Ino>>,
    /// Inodes whose targets somebody asks how they are.
    asking: Mutex<HashSet<Ino>>,
    asked: Condvar,
}

/// The targets of an inode are asked how it is, and it is opened or closed so, by nobody else until this is dropped.
pub(super) struct Asking<'t>(&'t OpenTable, Ino);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.lock().remove(&self.1);
        self.0.asked.notify_all();
    }
}

/// The table at a moment.
pub(crate) struct Seals([u64; SHARDS]);

impl OpenTable {
    /// An empty table.
    pub fn new() -> Self {
        Self {
            inodes: (0..SHARDS).map(|_| Mutex::default()).collect(),
            handles: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next: AtomicU64::new(1),
            seals: [const { AtomicU64::new(0) }; SHARDS],
            left: Mutex::default(),
            asking: Mutex::default(),
            asked: Condvar::new(),
        }
    }

    /// Its targets are to be asked how it is: waits until nobody else does that, or (`waits` false) gives None.
    pub(super) fn ask(&self, ino: Ino, waits: bool) -> Option<Asking<'_>> {
        let mut asking = self.asking.lock();
        while !asking.insert(ino) {
            if !waits {
                return None;
            }
            self.asked.wait(&mut asking);
        }
        Some(Asking(self, ino))
    }

    /// An earlier node has left it open.
    pub(crate) fn left_by_earlier(&self, ino: Ino) {
        self.left.lock().insert(ino);
    }

    /// Somebody opens it: whether he is the first since an earlier node left it open.
    pub(crate) fn opens_left(&self, ino: Ino) -> bool {
        self.left.lock().remove(&ino)
    }

    /// To be called before the catalogue is read, where [`OpenTable::sealed_since`] is asked afterwards.
    pub(crate) fn seals(&self) -> Seals {
        Seals(std::array::from_fn(|shard| self.seals[shard].load(Ordering::SeqCst)))
    }

    /// Whether a last writer may have closed this inode since: what the catalogue said of it before may be older than what he had written.
    pub(crate) fn sealed_since(&self, ino: Ino, before: &Seals) -> bool {
        let shard = ino.0 as usize % SHARDS;
        self.seals[shard].load(Ordering::SeqCst) != before.0[shard]
    }

    /// The last writer has closed, and the catalogue knows all; the caller holds the inode's lock.
    pub(crate) fn sealed(&self, ino: Ino) {
        self.seals[ino.0 as usize % SHARDS].fetch_add(1, Ordering::SeqCst);
    }

    /// Runs `f` under the lock of `ino`, open or not.
    pub fn with<R>(&self, ino: Ino, f: impl FnOnce(&Arc<OpenInode>, &mut OpenState) -> R) -> R {
        let shard = &self.inodes[ino.0 as usize % SHARDS];
        let mut stale: Option<Arc<OpenInode>> = None;
        loop {
            let entry = {
                let mut map = shard.lock();
                if let Some(old) = stale.take()
                    && map.get(&ino).is_some_and(|now| Arc::ptr_eq(now, &old))
                {
                    map.remove(&ino);
                }
                map.entry(ino)
                    .or_insert_with(|| {
                        Arc::new(OpenInode {
                            ino,
                            growth: AtomicU64::new(0),
                            lent: AtomicU32::new(0),
                            lengths: Lengths::default(),
                            losses: Losses::default(),
                            state: Mutex::default(),
                        })
                    })
                    .clone()
            };
            let mut state = entry.state.lock();
            if state.dead {
                drop(state);
                stale = Some(entry);
                continue;
            }
            let result = f(&entry, &mut state);
            if state.handles == 0 {
                state.dead = true;
                drop(state);
                let mut map = shard.lock();
                if map.get(&ino).is_some_and(|now| Arc::ptr_eq(now, &entry)) {
                    map.remove(&ino);
                }
            }
            return result;
        }
    }

    /// The entry of an open inode.
    pub fn get(&self, ino: Ino) -> Option<Arc<OpenInode>> {
        self.inodes[ino.0 as usize % SHARDS].lock().get(&ino).cloned()
    }

    /// Adds a handle; the caller holds the inode's lock and has counted it in `state`.
    pub fn add_handle(&self, inode: Arc<OpenInode>, flags: OpenFlags) -> Handle {
        let handle = Handle(self.next.fetch_add(1, Ordering::Relaxed));
        let told = inode.losses.begin();
        let (lent, asked) = (AtomicBool::new(false), AtomicBool::new(false));
        self.handles[handle.0 as usize % SHARDS]
            .lock()
            .insert(handle, Arc::new(OpenFile { inode, flags, lent, asked, told }));
        handle
    }

    /// A handle.
    pub fn handle(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.handles[handle.0 as usize % SHARDS].lock().get(&handle).cloned()
    }

    /// Forgets a handle.
    pub fn remove_handle(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.handles[handle.0 as usize % SHARDS].lock().remove(&handle)
    }

    /// Every inode with an entry.
    pub fn all(&self) -> Vec<Arc<OpenInode>> {
        self.inodes.iter().flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_lives_exactly_as_long_as_its_handles() {
        let t = OpenTable::new();
        t.with(Ino(5), |_, s| assert_eq!(s.handles, 0));
        assert!(t.get(Ino(5)).is_none());
        let h = t.with(Ino(5), |e, s| {
            s.handles += 1;
            t.add_handle(e.clone(), OpenFlags::default())
        });
        assert!(t.get(Ino(5)).is_some() && t.handle(h).is_some());
        t.remove_handle(h);
        t.with(Ino(5), |_, s| s.handles -= 1);
        assert!(t.get(Ino(5)).is_none());
    }

    #[test]
    fn the_targets_of_an_inode_are_asked_by_one_at_a_time() {
        let (t, one) = (OpenTable::new(), Ino(5));
        let first = t.ask(one, true).unwrap();
        assert!(t.ask(one, false).is_none() && t.ask(Ino(6), false).is_some());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(t.ask(one, true)));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!second.is_finished());
            drop(first);
        });
        assert!(t.ask(one, false).is_some());
    }

    #[test]
    fn concurrent_users_never_see_two_entries_of_one_inode() {
        let t = Arc::new(OpenTable::new());
        let busy = Arc::new(AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (t, busy) = (t.clone(), busy.clone());
                scope.spawn(move || {
                    for i in 0..2000 {
                        t.with(Ino(7), |_, s| {
                            assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0);
                            s.handles = u32::from(i % 3 == 0);
                            busy.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
    }
}
