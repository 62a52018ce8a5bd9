//! Bytes of open files, and waiting for tape.

use super::groups::Kind;
use super::lines::Trouble;
use super::table::OpenFile;
use super::{ClusterFiles, Shared};
use crate::copies::{self, Wrote};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::api::{FsResult, ReadDone, ReadyDone, WaitId};
use types::{Cx, FsError, Handle, Ino, Time};
use wire::{FileCall, LentLayout, Reply};

/// Calls that may wait for tape, by number; true: withdrawn.
#[derive(Default)]
pub(super) struct Waits(Mutex<HashMap<u64, bool>>);

impl Waits {
    fn begin(&self, number: u64) {
        self.0.lock().insert(number, false);
    }

    /// An error if the call is withdrawn.
    fn check(&self, number: u64) -> FsResult<()> {
        let withdrawn = self.0.lock().get(&number).copied().unwrap_or(false);
        if withdrawn { Err(FsError::Interrupted) } else { Ok(()) }
    }

    fn end(&self, number: u64) {
        self.0.lock().remove(&number);
    }
}

fn bytes(reply: Reply) -> FsResult<Vec<u8>> {
    match reply {
        Reply::Bytes(bytes) => Ok(bytes),
        _ => Err(FsError::Io),
    }
}

pub(super) fn count(reply: Reply) -> FsResult<u64> {
    match reply {
        Reply::Count(count) => Ok(count),
        _ => Err(FsError::Io),
    }
}

pub(super) fn done(reply: Reply) -> FsResult<()> {
    match reply {
        Reply::Done => Ok(()),
        _ => Err(FsError::Io),
    }
}

/// Calls that concern no user: what waits, and the node itself.
pub(super) fn nobody() -> Cx {
    Cx::admin(Time::default())
}

impl Shared {
    /// A call that might have waited is over.
    fn end(&self, wait: WaitId) {
        self.waits.end(wait.0);
    }

    /// Reads what is on disk; EAGAIN if it is not, and it is brought back.
    fn read_now(self: &Arc<Self>, file: &Arc<OpenFile>, offset: u64, len: u32) -> FsResult<Vec<u8>> {
        self.land_in(file, offset..offset.saturating_add(len.into()));
        if let Some(bytes) = self.read_lent(file, offset, len) {
            return Ok(bytes);
        }
        if let Some(bytes) = self.read_direct(file, offset, len)? {
            return Ok(bytes);
        }
        let number = self.lines.number();
        let call = |handle| Ok(FileCall::ReadNow { handle, offset, len });
        let read = self.lines.ask_open(Kind::Bytes, file, number.value, &call).and_then(bytes)?;
        file.lent.note_served(read.len());
        Ok(read)
    }

    /// Reads what nobody writes from the movers; None: it goes another way.
    fn read_lent(&self, file: &OpenFile, offset: u64, len: u32) -> Option<Vec<u8>> {
        if file.flags.write {
            return None;
        }
        let ask = || -> FsResult<Option<LentLayout>> {
            let number = self.lines.number();
            let call = |handle| Ok(FileCall::LayoutLend(handle));
            match self.lines.ask_open(Kind::Bytes, file, number.value, &call)? {
                Reply::Lent(lent) => Ok(lent.map(|lent| *lent)),
                _ => Err(FsError::Io),
            }
        };
        file.lent.read(&self.quick_ways, ask, offset, len as usize)
    }

    /// Reads, and waits for tape unless the call is withdrawn.
    fn read_patiently(&self, file: &OpenFile, offset: u64, len: u32, number: u64) -> FsResult<Vec<u8>> {
        let call = |handle| {
            self.waits.check(number).map_err(Trouble::Refused)?;
            Ok(FileCall::Read { handle, offset, len })
        };
        self.lines.ask_open(Kind::Tape, file, number, &call).and_then(bytes)
    }

    /// The same on a thread that may wait.
    fn read_later(
        self: Arc<Self>,
        file: Arc<OpenFile>,
        (offset, len): (u64, u32),
        wait: WaitId,
        done: ReadDone,
    ) {
        let patient = self.patient.clone();
        patient.run(Box::new(move || {
            let read = self.read_patiently(&file, offset, len, wait.0);
            self.end(wait);
            done(read);
        }));
    }

    fn prepare(&self, kind: Kind, ino: Ino, nonblock: bool, number: u64) -> FsResult<()> {
        self.waits.check(number)?;
        let call = FileCall::Prepare { ino, nonblock };
        let prepared = self.lines.ask_unless(kind, &nobody(), number, &|| {
            self.waits.check(number).map_err(Trouble::Refused)?;
            Ok(call.clone())
        });
        prepared.and_then(done)?;
        if let Some(inode) = self.table.inode(ino) {
            inode.prepared.store(true, Ordering::Release);
        }
        Ok(())
    }

    pub(super) fn write(
        self: &Arc<Self>,
        handle: Handle,
        offset: u64,
        data: &[u8],
        exact: bool,
    ) -> FsResult<usize> {
        let file = self.table.get(handle)?;
        self.settle_copies(&file)?;
        let append = file.flags.append && !exact;
        if append {
            // Only the node knows where the end is.
            self.land(file.ino, &file.inode);
            return self.write_served(&file, offset, data, append);
        }
        if let Some(kept) = self.keep(&file, offset, data) {
            return Ok(kept);
        }
        self.land_in(&file, offset..offset.saturating_add(data.len() as u64));
        let writer = self.writer(&file);
        let differ = match copies::write(&writer, offset, data)? {
            Wrote::All => return Ok(data.len()),
            Wrote::Nothing => false,
            Wrote::Some => true,
        };
        if !differ && self.write_direct(&file, &[(offset, data)])? {
            return Ok(data.len());
        }
        // What some copies may have already is written to all of them at once.
        let range = offset..offset.saturating_add(data.len() as u64);
        let apart = differ.then(|| self.apart(file.ino, &file.inode, Some(&file), range)).transpose();
        let written = apart.and_then(|_apart| self.write_served(&file, offset, data, append));
        if differ && written != Ok(data.len()) {
            copies::end(&writer, true)?;
        }
        file.inode.copies.note_served(*written.as_ref().unwrap_or(&0));
        written
    }

    /// Writes through the node.
    pub(super) fn write_served(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        data: &[u8],
        append: bool,
    ) -> FsResult<usize> {
        let _served = file.inode.copies.serve();
        let mut written = 0;
        for part in data.chunks(wire::frame::MAX_IO) {
            match self.write_part(file, offset + written as u64, part, append) {
                Ok(taken) if taken as usize == part.len() => written += part.len(),
                Ok(taken) => return Ok(written + taken as usize),
                Err(_) if written > 0 => return Ok(written),
                Err(e) => return Err(e),
            }
        }
        Ok(written)
    }
}

impl ClusterFiles {
    pub(super) fn read_file(&self, handle: Handle, offset: u64, len: u32, done: ReadDone) -> Option<WaitId> {
        let file = match self.0.table.get(handle) {
            Ok(file) => file,
            Err(e) => {
                done(Err(e));
                return None;
            }
        };
        if let Some(_busy) = self.0.reading.enter() {
            let read = self.0.read_now(&file, offset, len);
            if read != Err(FsError::WouldBlock) || file.flags.nonblock {
                done(read);
                return None;
            }
            let wait = self.begin();
            self.0.clone().read_later(file, (offset, len), wait, done);
            return Some(wait);
        }
        let (wait, shared) = (self.begin(), self.0.clone());
        self.0.quick.run(Box::new(move || {
            let read = shared.read_now(&file, offset, len);
            if read != Err(FsError::WouldBlock) || file.flags.nonblock {
                shared.end(wait);
                return done(read);
            }
            shared.read_later(file, (offset, len), wait, done);
        }));
        Some(wait)
    }

    pub(super) fn prepare(&self, ino: Ino, nonblock: bool, done: ReadyDone) -> Option<WaitId> {
        let prepared = |inode: Arc<super::table::OpenInode>| inode.prepared.load(Ordering::Acquire);
        if self.0.table.inode(ino).is_some_and(prepared) {
            done(Ok(()));
            return None;
        }
        let (wait, shared) = (self.begin(), self.0.clone());
        self.0.quick.run(Box::new(move || {
            let number = shared.lines.number();
            let ready = shared.prepare(Kind::Names, ino, true, number.value);
            if ready != Err(FsError::WouldBlock) || nonblock {
                shared.end(wait);
                return done(ready);
            }
            let again = shared.clone();
            shared.patient.run(Box::new(move || {
                let ready = again.prepare(Kind::Tape, ino, false, wait.0);
                again.end(wait);
                done(ready);
            }));
        }));
        Some(wait)
    }

    /// A call that may come to wait.
    fn begin(&self) -> WaitId {
        let number = self.0.lines.name();
        self.0.waits.begin(number);
        WaitId(number)
    }

    pub(super) fn withdraw(&self, wait: WaitId) {
        self.withdraw_lock(wait.0);
        let known = {
            let mut waits = self.0.waits.0.lock();
            waits.get_mut(&wait.0).map(|withdrawn| *withdrawn = true).is_some()
        };
        if known {
            // If that fails the call goes on waiting, as if the signal had come later.
            let _ = self.0.lines.ask(Kind::Names, &nobody(), FileCall::Withdraw(wait.0));
        }
    }
}
