//! Files with copies or parity that no other host has open for writing: how this one asks for the right to write them straight ([`crate::copies`]).

use super::groups::Kind;
use super::table::OpenFile;
use super::{Shared, bytes};
use crate::copies::{self, Copies, Writer};
use crate::length::{Length, Telling};
use std::sync::{Arc, Weak};
use stripe::Ways;
use types::api::FsResult;
use types::{FsError, Ino};
use wire::{CopiesLayout, FileCall, Reply};

/// One open handle, of which all write by the rights of the inode.
#[derive(Clone)]
pub(super) struct Open {
    shared: Arc<Shared>,
    file: Arc<OpenFile>,
}

impl Writer for Open {
    type Error = FsError;
    type By = Weak<OpenFile>;

    fn ino(&self) -> Ino {
        self.file.ino
    }

    fn copies(&self) -> &Copies {
        &self.file.inode.copies
    }

    fn length(&self) -> &Length<Weak<OpenFile>> {
        &self.file.inode.length
    }

    fn quick_ways(&self) -> &Ways {
        &self.shared.quick_ways
    }

    fn ask(&self) -> Result<Option<CopiesLayout>, String> {
        let number = self.shared.lines.number();
        let call = |handle| Ok(FileCall::LayoutCopies(handle));
        match self.shared.lines.ask_open(Kind::Bytes, &self.file, number.value, &call) {
            Ok(Reply::Copies(layout)) => Ok(layout.map(|layout| *layout)),
            Ok(_) => Err("the node gives another answer".into()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn writing(&self, pieces: &[(u64, &[u8])], write: impl FnOnce() -> FsResult<bool>) -> FsResult<bool> {
        self.shared.writing(&self.file, pieces, write)
    }

    fn end(&self, differ: bool) -> FsResult<()> {
        // At which machines it was written, before the node leaves one of them out.
        let told = self.shared.commit_by(&self.file.inode, Telling::All, Some(&self.file));
        let number = self.shared.lines.number();
        let call = |handle| Ok(FileCall::CopiesEnd { handle, differ });
        let ended = self.shared.lines.ask_open(Kind::Bytes, &self.file, number.value, &call);
        ended.and_then(bytes::done).and(told.map(drop))
    }

    fn later(&self, work: impl FnOnce(&Self) + Send + 'static) {
        let open = self.clone();
        self.shared.landing.ask(Box::new(move || work(&open)));
    }
}

impl Shared {
    /// Who writes by this handle.
    pub(super) fn writer(self: &Arc<Self>, file: &Arc<OpenFile>) -> Open {
        Open { shared: self.clone(), file: file.clone() }
    }

    /// If copies may differ, the node knows that.
    pub(super) fn settle_copies(self: &Arc<Self>, file: &Arc<OpenFile>) -> FsResult<()> {
        if file.flags.write { copies::settle(&self.writer(file)) } else { Ok(()) }
    }
}
