//! Bytes of files on disk targets go straight to and from the movers; the node is told how long the file has become.
//!
//! A write that makes a file longer is told to the node before it is answered, so that whoever asks for the length anywhere learns it. That
//! bytes were changed in place is told when the file is flushed, synced or closed, or its attributes are asked for here.

use super::Shared;
use super::groups::Kind;
use super::lines::PATIENCE;
use super::table::{OpenFile, OpenInode};
use crate::length::{Asked, News, Telling};
use layout::Redundancy;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stripe::{Authority, Columns, StripeError, Striped, layout_of};
use types::api::FsResult;
use types::{ErrorClass, FsError};
use wire::{FileCall, FileLayout, Reply};

/// Where bytes go through the node, it is asked again so much later: a column that was moving lies somewhere then.
const AGAIN: Duration = Duration::from_secs(2);

/// How often a file may have moved while one request of it is under way.
pub(super) const MOVES: u32 = 16;

/// How the bytes of an open file go.
#[derive(Clone, Default)]
pub(super) enum Route {
    /// Nobody has said it.
    #[default]
    Unknown,
    /// Through the node, which said so then.
    Served(Instant),
    /// To and from movers.
    Direct(Arc<Direct>),
}

/// The way to the movers of an open file.
pub(super) struct Direct {
    pub(super) striped: Striped,
}

impl OpenFile {
    /// The node has said how long the file is, with a right. It is known as long as the right to write stands.
    fn learn_length(&self, asked: Asked, layout: &FileLayout) {
        if self.flags.write {
            self.inode.length.found(asked, layout.length, layout.cuts);
        }
    }
}

/// Asks the node for another right when one has ended.
struct Renewal {
    shared: Weak<Shared>,
    file: Weak<OpenFile>,
    layout: FileLayout,
}

impl Authority for Renewal {
    fn leave_out(&self, _: usize, _: u16, why: &data::DataError) -> Result<Columns, String> {
        Err(format!("only the node that holds the namespace leaves columns out ({why})"))
    }

    fn renew(&self) -> Result<Columns, String> {
        let (Some(shared), Some(file)) = (self.shared.upgrade(), self.file.upgrade()) else {
            return Err("the file is closed".into());
        };
        let asked = file.inode.length.asks();
        let layout = shared.layout(Kind::Bytes, &file).map_err(|e| format!("there is no new right: {e}"))?;
        let layout = layout.ok_or("the file lies elsewhere now")?;
        if !layout.same_place(&self.layout) {
            return Err("the file lies elsewhere now".into());
        }
        // Rights end also because somebody makes the file shorter.
        file.learn_length(asked, &layout);
        shared.ways.columns(&layout.parts)
    }
}

/// A file at its movers; without an authority a right that has ended is not replaced by another one.
pub(crate) fn striped(
    found: &FileLayout,
    columns: Columns,
    authority: Option<Arc<dyn Authority>>,
) -> Result<Striped, StripeError> {
    let layout = layout_of(found.parts.iter().map(|part| (part, Redundancy::None)));
    Striped::open_with(layout, columns, authority)
}

impl Shared {
    /// Where the bytes of an open file lie, with rights; None: they go through the node.
    fn layout(&self, kind: Kind, file: &OpenFile) -> FsResult<Option<FileLayout>> {
        let number = self.lines.number();
        let call = |handle| Ok(FileCall::LayoutGet(handle));
        match self.lines.ask_open(kind, file, number.value, &call)? {
            Reply::FileLayout(layout) => Ok(layout.map(|layout| *layout)),
            _ => Err(FsError::Io),
        }
    }

    /// A way to the movers with the rights of now, and no others later; None: bytes go through the node.
    pub(super) fn way_of_now(&self, file: &OpenFile) -> FsResult<Option<Arc<Direct>>> {
        let Some(layout) = self.layout(Kind::Alone, file)? else { return Ok(None) };
        self.direct(file, &layout, None).map(|direct| Some(Arc::new(direct)))
    }

    fn renewing(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        (asked, layout): (Asked, &FileLayout),
    ) -> FsResult<Direct> {
        let (shared, open) = (Arc::downgrade(self), Arc::downgrade(file));
        let renewal = Renewal { shared, file: open, layout: layout.clone() };
        let direct = self.direct(file, layout, Some(Arc::new(renewal)))?;
        file.learn_length(asked, layout);
        Ok(direct)
    }

    /// How the bytes of a file go.
    pub(super) fn route(self: &Arc<Self>, file: &Arc<OpenFile>) -> FsResult<Route> {
        let mut route = file.route.lock();
        let asks = match &*route {
            Route::Unknown => true,
            Route::Served(since) => since.elapsed() >= AGAIN,
            Route::Direct(_) => false,
        };
        if asks {
            let asked = file.inode.length.asks();
            *route = match self.layout(Kind::Bytes, file)? {
                None => Route::Served(Instant::now()),
                Some(layout) => Route::Direct(Arc::new(self.renewing(file, (asked, &layout))?)),
            };
        }
        Ok(route.clone())
    }

    /// The node has said, when it opened a file, where its bytes lie; None: they go through it.
    pub(super) fn lies(self: &Arc<Self>, file: &Arc<OpenFile>, layout: Option<&FileLayout>) {
        *file.route.lock() =
            match layout.map(|layout| self.renewing(file, (Asked::BEFORE_IT_WAS_OPEN, layout))) {
                None => Route::Served(Instant::now()),
                Some(Ok(direct)) => Route::Direct(Arc::new(direct)),
                // Whoever reads or writes asks again, and is told why.
                Some(Err(_)) => Route::Unknown,
            };
    }

    fn direct(
        &self,
        file: &OpenFile,
        found: &FileLayout,
        authority: Option<Arc<dyn Authority>>,
    ) -> FsResult<Direct> {
        let failed = |e: &dyn std::fmt::Display| {
            tracing::error!("inode {}: its targets cannot be used: {e}", file.ino);
            FsError::Io
        };
        let columns = self.ways.columns(&found.parts).map_err(|e| failed(&e))?;
        let striped = striped(found, columns, authority).map_err(|e| failed(&e))?;
        Ok(Direct { striped })
    }

    /// Does something at the movers; again if the file may lie elsewhere now. None: it goes through the node.
    fn at_movers<T>(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        doing: &str,
        act: impl Fn(&Direct) -> Result<T, StripeError>,
    ) -> FsResult<Option<T>> {
        let mut failed = 0;
        loop {
            let Route::Direct(direct) = self.route(file)? else { return Ok(None) };
            match act(&direct) {
                Ok(done) => return Ok(Some(done)),
                Err(e) if e.class() == ErrorClass::NoSpace => {
                    // The node has it move to where there is room.
                    *file.route.lock() = Route::Served(Instant::now());
                    return Ok(None);
                }
                // The node has it get more, and says then where that is.
                Err(StripeError::Beyond(_)) => {
                    *file.route.lock() = Route::Unknown;
                    return Ok(None);
                }
                // Its columns may be moved one after the other.
                Err(e) if failed == 0 || (failed < MOVES && matches!(e, StripeError::Authority { .. })) => {
                    tracing::debug!("{doing} inode {}: {e}; the node is asked where it lies", file.ino);
                    failed += 1;
                    *file.route.lock() = Route::Unknown;
                }
                Err(e) => {
                    tracing::error!("{doing} inode {}: {e}", file.ino);
                    return Err(FsError::Io);
                }
            }
        }
    }

    /// Reads from the movers; None: the node reads.
    pub(super) fn read_direct(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: u32,
    ) -> FsResult<Option<Vec<u8>>> {
        self.at_movers(file, "reading", |direct| {
            let mut bytes = vec![0; len as usize];
            let got = direct.striped.read_at(offset, &mut bytes)?;
            bytes.truncate(got);
            Ok(bytes)
        })
    }

    /// Writes pieces to the movers; false: the node writes.
    pub(super) fn write_direct(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        pieces: &[(u64, &[u8])],
    ) -> FsResult<bool> {
        if !matches!(self.route(file)?, Route::Direct(_)) {
            return Ok(false);
        }
        self.writing(file, pieces, || {
            let written =
                self.at_movers(file, "writing", |direct| file.inode.length.put(&direct.striped, pieces))?;
            Ok(written.is_some())
        })
    }

    /// Has pieces written at movers, and the node told if the file is longer then; false: they were not written there.
    pub(super) fn writing(
        &self,
        file: &Arc<OpenFile>,
        pieces: &[(u64, &[u8])],
        write: impl FnOnce() -> FsResult<bool>,
    ) -> FsResult<bool> {
        let mut ends = pieces.iter().map(|(offset, bytes)| offset.checked_add(bytes.len() as u64));
        let end = ends.try_fold(0_u64, |last, end| Some(last.max(end?)));
        let end = end.filter(|end| *end <= i64::MAX as u64).ok_or(FsError::FileTooLarge)?;
        let begin = pieces.iter().map(|(offset, _)| *offset).min().unwrap_or(end);
        // Nothing older comes over it later.
        let _apart = self.apart(file.ino, &file.inode, Some(file), begin..end)?;
        let length = &file.inode.length;
        let writing = length.writing(Arc::downgrade(file));
        if !write()? {
            return Ok(false);
        }
        if length.written(Arc::downgrade(file), writing, end) {
            self.commit_by(&file.inode, Telling::All, Some(file))?;
            if length.was_cut() {
                // The node is asked how long it is, so that not each write within that is told.
                *file.route.lock() = Route::Unknown;
            }
        }
        Ok(true)
    }

    /// Tells the node what was written here of an inode, if it has not said yet that it knows; true if there was something.
    pub(super) fn commit(&self, inode: &OpenInode, what: Telling) -> FsResult<bool> {
        self.commit_by(inode, what, None)
    }

    /// The same; through this handle if the one through which it was written is closed, and could not tell.
    pub(super) fn commit_by(
        &self,
        inode: &OpenInode,
        what: Telling,
        other: Option<&Arc<OpenFile>>,
    ) -> FsResult<bool> {
        inode.length.commit(what, |by, News { end, cuts, machines }| {
            let other = other.filter(|other| other.flags.write).cloned();
            // One whose locks are lost can tell nothing more; another one may come.
            let is_of_use = |file: &Arc<OpenFile>| !file.lost.load(Ordering::Acquire);
            let mut all = by.iter().filter_map(Weak::upgrade).chain(other);
            let Some(file) = all.find(is_of_use) else { return Ok(None) };
            let number = self.lines.number();
            let call = |handle| {
                Ok(FileCall::LayoutCommit { handle, end: *end, machines: machines.clone(), cuts: *cuts })
            };
            let told = self.lines.ask_open(Kind::Bytes, &file, number.value, &call);
            told.and_then(super::bytes::count).map(Some)
        })
    }

    /// What was written through a handle before is durable, and the node knows of it, if the node says so.
    pub(super) fn sync_direct(
        &self,
        file: &Arc<OpenFile>,
        mut sync: impl FnMut() -> FsResult<()>,
    ) -> FsResult<()> {
        let took = Cell::new(Duration::ZERO);
        let sync = || {
            let begun = Instant::now();
            let synced = sync();
            took.set(begun.elapsed());
            synced
        };
        let commit = || self.commit_by(&file.inode, Telling::All, Some(file)).map(drop);
        // An error after so long is no answer: the node could not be asked.
        file.inode.length.sync(commit, sync, |_| took.get() < PATIENCE)
    }
}
