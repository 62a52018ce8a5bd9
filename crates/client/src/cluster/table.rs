//! Open files: what the node knows them by, and what is needed to open them again.

use super::behind::Behind;
use super::direct::Route;
use crate::copies::Copies;
use crate::length::Length;
use crate::lent::Lent;
use crate::spares::Spares;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use types::api::{FsResult, OpenFlags};
use types::{Cx, FsError, Handle, Ino};
use wire::Speaks;

/// One open handle.
pub(super) struct OpenFile {
    pub(super) ino: Ino,
    pub(super) flags: OpenFlags,
    /// Who opened it: it is opened again for him.
    pub(super) who: Speaks,
    /// What it is at the node.
    pub(super) place: Mutex<Place>,
    pub(super) inode: Arc<OpenInode>,
    /// How its bytes go.
    pub(super) route: Mutex<Route>,
    /// How they are read while nobody writes, if that is otherwise.
    pub(super) lent: Lent,
    /// What was held locked through it is lost.
    pub(super) lost: AtomicBool,
    /// Losses of what was kept in memory that its user was told of, or that were before it was opened.
    pub(super) losses: AtomicU64,
}

/// A handle of the node, and the session that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) begun: u64,
    pub(super) handle: Handle,
}

/// What all handles of an inode here have in common.
#[derive(Default)]
pub(super) struct OpenInode {
    /// Its content can be changed without waiting for tape: a file that is open is not released.
    pub(super) prepared: AtomicBool,
    /// What the node was told of its length.
    pub(super) length: Length<Weak<OpenFile>>,
    /// The session in which that was; 0: nothing is open yet.
    told_in: Mutex<u64>,
    /// The session in which locks of it are held; 0: none are.
    pub(super) locked_in: AtomicU64,
    /// What programs have written and targets do not have yet.
    pub(super) behind: Behind,
    /// What programs have written through the node, and targets may not have yet.
    pub(super) spares: Spares,
    /// How all copies are written while nobody else writes.
    pub(super) copies: Copies,
}

impl OpenInode {
    /// It is open in a session: another one than before knows nothing of what that was told.
    pub(super) fn is_open_in(&self, begun: u64) {
        let mut told_in = self.told_in.lock();
        if *told_in != begun {
            if *told_in != 0 {
                self.length.forgotten();
            }
            *told_in = begun;
        }
    }

    /// The node of a session has written something by a file, and told at which machines. Another one than that of now knows nothing of it.
    pub(super) fn served_in(&self, begun: u64, file: &Arc<OpenFile>, machines: &[u64]) {
        let told_in = self.told_in.lock();
        self.length.served(Arc::downgrade(file), machines);
        if *told_in != begun {
            self.length.forgotten();
        }
    }
}

/// All open files.
#[derive(Default)]
pub(super) struct Table {
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    handles: HashMap<Handle, Arc<OpenFile>>,
    /// With the number of handles.
    inodes: HashMap<Ino, (usize, Arc<OpenInode>)>,
}

impl Table {
    /// Enters a file that was opened; gives its handle here, which stays the same.
    pub(super) fn enter(&self, cx: &Cx, ino: Ino, flags: OpenFlags, place: Place) -> (Handle, Arc<OpenFile>) {
        let who = super::lines::speaks(cx);
        let handle = Handle(self.next.fetch_add(1, Ordering::Relaxed) + 1);
        let mut state = self.state.lock();
        let (count, inode) = state.inodes.entry(ino).or_default();
        *count += 1;
        inode.is_open_in(place.begun);
        let file = OpenFile {
            ino,
            flags,
            who,
            place: Mutex::new(place),
            inode: inode.clone(),
            route: Mutex::default(),
            lent: Lent::default(),
            lost: AtomicBool::default(),
            losses: AtomicU64::new(inode.behind.losses()),
        };
        let file = Arc::new(file);
        state.handles.insert(handle, file.clone());
        (handle, file)
    }

    pub(super) fn get(&self, handle: Handle) -> FsResult<Arc<OpenFile>> {
        let file = self.peek(handle).ok_or(FsError::BadHandle)?;
        if file.lost.load(Ordering::Acquire) { Err(FsError::Io) } else { Ok(file) }
    }

    /// The same of one that is of no use any more, too.
    pub(super) fn peek(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.state.lock().handles.get(&handle).cloned()
    }

    /// One of the handles of an inode, one to write if there is any.
    pub(super) fn any(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        let state = self.state.lock();
        let handles = state.handles.values().filter(|file| file.ino == ino);
        handles.max_by_key(|file| file.flags.write).cloned()
    }

    /// What is known of an inode that is open.
    pub(super) fn inode(&self, ino: Ino) -> Option<Arc<OpenInode>> {
        self.state.lock().inodes.get(&ino).map(|(_, inode)| inode.clone())
    }

    /// All inodes that are open.
    pub(super) fn inodes(&self) -> Vec<(Ino, Arc<OpenInode>)> {
        self.state.lock().inodes.iter().map(|(ino, (_, inode))| (*ino, inode.clone())).collect()
    }

    /// Takes a handle out.
    pub(super) fn leave(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        let mut state = self.state.lock();
        let file = state.handles.remove(&handle)?;
        if let Some((count, _)) = state.inodes.get_mut(&file.ino) {
            *count -= 1;
            if *count == 0 {
                state.inodes.remove(&file.ino);
            }
        }
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::length::Telling;
    use types::Time;

    #[test]
    fn what_a_node_has_written_that_was_started_anew_before_its_answer_came_is_told_too() {
        let table = Table::default();
        let place = Place { begun: 1, handle: Handle(3) };
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let (_, file) = table.enter(&Cx::admin(Time::default()), Ino(5), flags, place);
        let is_told = || file.inode.length.commit(Telling::All, |_, _| -> FsResult<_> { Ok(Some(0)) });
        file.inode.served_in(1, &file, &[10]);
        assert_eq!(is_told(), Ok(false));
        file.inode.is_open_in(2);
        assert_eq!(is_told(), Ok(true));
        file.inode.served_in(2, &file, &[10]);
        assert_eq!(is_told(), Ok(false), "the node of now knows");
        file.inode.served_in(1, &file, &[10]);
        assert_eq!(is_told(), Ok(true));
    }
}
