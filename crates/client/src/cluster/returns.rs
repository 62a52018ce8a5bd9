//! Writes through the node of which a spare stays here ([`crate::spares`]), and their return to a node that was started anew.

use super::bytes::{done, nobody};
use super::groups::Kind;
use super::lines::{Line, Lines, Tried, Trouble, speaks};
use super::table::{OpenFile, OpenInode};
use super::{ClusterFiles, Shared};
use crate::answer::{FromReply, Written};
use crate::spares::{Apart, Came, Entered, Entry, Refusal, Room, WHOLE};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;
use types::api::FsResult;
use types::{FsError, Ino};
use wire::{FileCall, Reply};

/// Before it is tried again to return what is kept.
const PAUSE: Duration = Duration::from_millis(500);
/// So many files at a time are brought to their targets when a mount ends.
const ENDING: usize = 8;

/// What all files of a mount share.
#[derive(Default)]
pub(super) struct Sparing {
    room: Arc<Room>,
    returning: Mutex<Returning>,
}

#[derive(Default)]
struct Returning {
    /// To the node of this session.
    session: u64,
    /// A thread does it.
    busy: bool,
}

impl Refusal for Trouble {
    fn refused(&self) -> Option<FsError> {
        if let Self::Refused(fs) = self { Some(*fs) } else { None }
    }

    fn of(fs: FsError) -> Self {
        Self::Refused(fs)
    }
}

impl Lines {
    /// What is kept of a file since a session before that of this connection is returned over it: before anything else is done with the file in that.
    pub(super) fn return_kept(&self, ino: Ino, inode: &OpenInode, line: &mut Line) -> Tried<()> {
        let begun = line.begun;
        if inode.spares.is_whole_in(begun) {
            return Ok(());
        }
        let _one = inode.spares.one_returns();
        if inode.spares.is_whole_in(begun) {
            return Ok(());
        }
        if self.begun() != begun {
            return Err(Trouble::Lost("that session has ended".into()));
        }
        let who = speaks(&nobody());
        let brought = inode.spares.bring(ino, begun, &mut |call| {
            let number = self.number();
            self.exchange(line, &who, number.value, call)
        });
        match brought {
            Ok(Came::All) => Ok(()),
            Ok(Came::TooLate) => {
                inode.behind.lost(FsError::Io);
                Ok(())
            }
            Err(Trouble::Refused(e)) => {
                tracing::debug!("inode {ino}: what is kept of it is not taken now: {e}");
                Err(Trouble::Later)
            }
            Err(e) => Err(e),
        }
    }
}

impl Shared {
    /// Writes a part of at most 1 MiB through the node.
    pub(super) fn write_part(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        part: &[u8],
        append: bool,
    ) -> FsResult<u64> {
        let range = offset..offset.saturating_add(part.len() as u64);
        if !append && let Some(entered) = self.enter(file, &range)? {
            return self.write_spared(file, offset, part, entered);
        }
        let range = if append { WHOLE } else { range };
        let _apart = self.apart(file.ino, &file.inode, Some(file), range)?;
        let number = self.lines.number();
        let call = |handle| {
            let data = part.to_vec();
            Ok(match append {
                true => FileCall::Write { handle, offset, data },
                false => FileCall::WriteAt { handle, offset, data },
            })
        };
        let (reply, begun) = self.lines.ask_open_in(Kind::Bytes, file, number.value, &call)?;
        let Written(written, machines) = Written::from_reply(reply).ok_or(FsError::Io)?;
        file.inode.served_in(begun, file, &machines);
        file.inode.spares.served();
        Ok(written)
    }

    /// Enters a write that is to be kept; None: it is not to be.
    fn enter<'f>(&self, file: &'f OpenFile, range: &Range<u64>) -> FsResult<Option<Entered<'f>>> {
        let spares = &file.inode.spares;
        let mut settled = false;
        // Where nobody notices that the node was started anew others would wait in vain.
        while self.memory.is_live() && !self.landing.is_closed() {
            match spares.enter(range, &self.sparing.room) {
                Entry::Entered(entered) => return Ok(Some(entered)),
                Entry::Full if !settled => {
                    self.settle(file.ino, &file.inode, Some(file))?;
                    settled = true;
                }
                Entry::Full | Entry::Plain => return Ok(None),
            }
        }
        Ok(None)
    }

    fn write_spared(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        part: &[u8],
        mut entered: Entered<'_>,
    ) -> FsResult<u64> {
        loop {
            let number = self.lines.number();
            let call = |handle| {
                let keeps = entered.keeps();
                Ok(FileCall::WriteSpared { handle, offset, data: part.to_vec(), keeps })
            };
            let (reply, begun) = self.lines.ask_open_in(Kind::Bytes, file, number.value, &call)?;
            let Reply::Spared(count, machines, spare) = reply else { return Err(FsError::Io) };
            file.inode.served_in(begun, file, &machines);
            let taken = part.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            match spare {
                None => {
                    entered.refused();
                    return Ok(taken as u64);
                }
                Some(spare) if entered.answered(begun, spare, offset, &part[..taken]) => {
                    return Ok(taken as u64);
                }
                // The node was started anew since.
                Some(_) => {}
            }
        }
    }

    /// When this returns all that was written through the node before by this host is at the targets. `by`: asks for that.
    pub(super) fn settle(&self, ino: Ino, inode: &OpenInode, by: Option<&OpenFile>) -> FsResult<()> {
        let Some(moment) = inode.spares.wait() else { return Ok(()) };
        let other = if by.is_some() { None } else { self.table.any(ino) };
        // Without a handle it is closed, and was settled then.
        let Some(file) = by.or(other.as_deref()) else { return Ok(()) };
        let number = self.lines.number();
        // Also for one that is of no use any more: what it wrote before was answered.
        let made = |line: &mut Line| Ok(FileCall::SettleSpared(self.lines.handle(file, line)?));
        let (reply, _) = self.lines.insist(Kind::Bytes, &file.who, number.value, &made)?;
        done(reply)?;
        inode.spares.settled_before(moment);
        Ok(())
    }

    /// The same before it is closed, if it may write.
    pub(super) fn settle_by(&self, file: &OpenFile) -> FsResult<()> {
        if file.flags.write { self.settle(file.ino, &file.inode, Some(file)) } else { Ok(()) }
    }

    /// Something is about to go another way than is kept.
    pub(super) fn apart<'i>(
        &self,
        ino: Ino,
        inode: &'i OpenInode,
        by: Option<&OpenFile>,
        range: Range<u64>,
    ) -> FsResult<Apart<'i>> {
        let apart = inode.spares.apart(range);
        self.settle(ino, inode, by)?;
        Ok(apart)
    }

    /// A node that was started anew was asked for attributes before it knew what was written here; true: it knows now.
    pub(super) fn return_late(&self, ino: Ino, inode: &OpenInode) -> FsResult<bool> {
        let late = inode.spares.is_late(self.lines.begun());
        if late {
            self.settle(ino, inode, None)?;
        }
        Ok(late)
    }

    /// Another session has begun than there was: what is kept of all files is returned, by a thread for that.
    pub(super) fn return_spares(self: &Arc<Self>, begun: u64) {
        {
            let mut returning = self.sparing.returning.lock();
            returning.session = begun;
            if std::mem::replace(&mut returning.busy, true) {
                return;
            }
        }
        let shared = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("cluster-spares".into()).spawn(move || tend(&shared));
        if let Err(e) = thread {
            tracing::error!("no thread to return what was written: {e}; others wait until it is used here");
            self.sparing.returning.lock().busy = false;
        }
    }

    fn return_all(&self, begun: u64) -> Tried<()> {
        let made = |line: &mut Line| {
            if line.begun != begun {
                return Err(Trouble::Lost("that session has ended".into()));
            }
            // Also where nothing is kept: what is answered late in an earlier session is not kept from now on.
            let mut over = Ok(FileCall::SparedOver);
            for (ino, inode) in self.table.inodes() {
                match self.lines.return_kept(ino, &inode, line) {
                    // One that its node cannot take now holds up none of the others.
                    Err(e @ (Trouble::Refused(_) | Trouble::Later)) => over = Err(e),
                    returned => returned?,
                }
            }
            over
        };
        let number = self.lines.number();
        let who = speaks(&nobody());
        let (reply, _) = self.lines.attempt(Kind::Kept, &who, number.value, &made, &mut None)?;
        done(reply).map_err(Trouble::Refused)
    }
}

fn tend(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let begun = shared.sparing.returning.lock().session;
        let brought = shared.return_all(begun);
        let mut returning = shared.sparing.returning.lock();
        if returning.session != begun {
            continue;
        }
        match brought {
            Ok(()) => {
                returning.busy = false;
                return;
            }
            Err(Trouble::Lost(why) | Trouble::Elsewhere(why)) => {
                tracing::debug!("what was kept is not returned yet: {why}");
            }
            Err(Trouble::Refused(e)) => tracing::debug!("what was kept is not returned yet: {e}"),
            Err(Trouble::Later) => {}
        }
        drop(returning);
        drop(shared);
        std::thread::sleep(PAUSE);
    }
}

impl ClusterFiles {
    /// What is kept comes to the targets. The caller has seen to it that no more is.
    pub(super) fn end_spares(&self) {
        let all = self.0.table.inodes().into_iter();
        let all: Vec<_> = all.filter(|(_, inode)| !inode.spares.is_empty()).collect();
        let threads = all.len().min(ENDING);
        let left = Mutex::new(all);
        let next = || left.lock().pop();
        let settle = || {
            while let Some((ino, inode)) = next() {
                if let Err(e) = self.0.settle(ino, &inode, None) {
                    tracing::error!(
                        "inode {ino}: what was written is lost if the node is started anew now: it did not bring it to its targets ({e})"
                    );
                }
            }
        };
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(settle))));
    }
}
