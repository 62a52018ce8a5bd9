//! What the node tells a host of others: locks that were waited for, what is to be forgotten, and what it writes alone.

use super::groups::Kind;
use super::lines::{Line, Lines, Tried, Trouble, speaks};
use super::table::{OpenFile, Place};
use std::cell::Cell;
use types::api::FsResult;
use types::{FsError, Ino};
use wire::{FileCall, LockEvent, Reply};

/// Place of the news, what is to be forgotten, and what is to be written alone no more, with the numbers of those leases.
pub(super) type ToForget = (u64, Vec<Ino>, Vec<(Ino, u64)>);

impl Lines {
    /// News of locks that wait in a session, after those that have come; the number of another session if it has ended.
    pub(super) fn lock_events(&self, begun: u64, after: u64) -> FsResult<Result<Vec<LockEvent>, u64>> {
        let another = Cell::new(begun);
        let made = |line: &mut Line| {
            another.set(line.begun);
            match line.begun == begun {
                true => Ok(FileCall::LockEvents { after, claimed: true }),
                false => Err(Trouble::Refused(FsError::Stale)),
            }
        };
        let answer = self.insist(Kind::News, &speaks(&super::bytes::nobody()), self.name(), &made);
        match answer {
            Err(FsError::Stale) if another.get() != begun => Ok(Err(another.get())),
            Ok((Reply::LockEvents(events), _)) => Ok(Ok(events)),
            Ok(_) => Err(FsError::Io),
            Err(e) => Err(e),
        }
    }

    /// What is to be forgotten in a session, after what is, and what is to be written alone no more; the number of another session if it has ended. It is asked for
    /// once.
    pub(super) fn to_forget(&self, begun: u64, after: u64) -> Tried<Result<ToForget, u64>> {
        let another = Cell::new(begun);
        let made = |line: &mut Line| {
            another.set(line.begun);
            match line.begun == begun {
                true => Ok(FileCall::Forgotten { after }),
                false => Err(Trouble::Refused(FsError::Stale)),
            }
        };
        let who = speaks(&super::bytes::nobody());
        match self.attempt(Kind::Forget, &who, self.name(), &made, &mut None) {
            Ok((Reply::Forget { place, inodes, alone }, _)) => Ok(Ok((place, inodes, alone))),
            Err(_) if another.get() != begun => Ok(Err(another.get())),
            Ok(_) => Err(Trouble::Refused(FsError::Io)),
            Err(e) => Err(e),
        }
    }

    /// Asks once whether a file is written here alone, if it is open in the session of now.
    pub(super) fn ask_alone(&self, file: &OpenFile) -> Tried<Reply> {
        let Place { begun, handle } = *file.place.lock();
        let made = |line: &mut Line| match line.begun == begun {
            true => Ok(FileCall::WriteAlone(handle)),
            false => Err(Trouble::Refused(FsError::BadHandle)),
        };
        let number = self.number();
        self.attempt(Kind::Alone, &file.who, number.value, &made, &mut None).map(|(reply, _)| reply)
    }
}
