//! An open file.

use super::ahead::Ahead;
use super::behind::Behind;
use super::copies::{Alone, Counted};
use super::direct::Direct;
use super::lanes::{Held, Lanes, Opened};
use super::port::{Port, Ports, fill};
use super::told::Told;
use super::{Done, PIECE, Session, Stride, names};
use crate::ClientError;
use crate::spares::WHOLE;
use crossbeam_channel::{Receiver, bounded};
use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::api::OpenFlags;
use types::{Attr, FsError, Ino, SetAttr};
use wire::FileCall;

/// An open file. Any number of threads may use it at once; reads and writes name their offset.
#[derive(Debug)]
pub struct File {
    pub(super) lanes: Arc<Lanes>,
    ino: Ino,
    pub(super) flags: OpenFlags,
    pub(super) held: Arc<Held>,
    object: Option<Arc<std::fs::File>>,
    movers: Option<Arc<Direct>>,
    alone: Option<Arc<Alone>>,
    /// For what is written through the node, where there is none of both.
    told: Told,
    counted: Option<Counted>,
    ports: Ports,
    pub(super) ahead: Mutex<Ahead>,
    behind: Behind,
    /// Losses of what the node had in memory that it has told, or that were before it was opened.
    losses: AtomicU64,
    closed: bool,
}

/// What an asynchronous call will give.
#[derive(Debug)]
pub struct Pending<T>(Receiver<Done<T>>);

impl<T> Pending<T> {
    /// Waits for it.
    ///
    /// # Errors
    /// Those of the call.
    pub fn wait(self) -> Done<T> {
        self.0.recv().unwrap_or(Err(ClientError::WrongAnswer { asked: "file" }))
    }

    /// Whether [`Pending::wait`] would return at once.
    pub fn is_ready(&self) -> bool {
        !self.0.is_empty()
    }
}

impl File {
    pub(super) fn open(session: &Session, attr: &Attr, flags: OpenFlags) -> Done<Self> {
        let lanes = &session.0;
        let call = |flags| FileCall::OpenAs { ino: attr.ino, flags };
        if !lanes.local() || flags.append {
            return Ok(Self::new(lanes, lanes.open(call(flags), true)?, flags));
        }
        let opened = lanes.open(call(flags), false)?;
        if opened.object.is_some() {
            return Ok(Self::new(lanes, opened, flags));
        }
        // It may have to wait for tape, so it gets a connection of its own.
        let again = OpenFlags { truncate: false, ..flags };
        let own = lanes.open(call(again), true);
        let (released, own) = (lanes.release(&opened.held), own?);
        if released.is_err() {
            let _ = lanes.release(&own.held);
        }
        released?;
        Ok(Self::new(lanes, Opened { held: own.held.beside(&opened.held), ..own }, flags))
    }

    pub(super) fn open_direct(
        session: &Session,
        ino: Ino,
        flags: OpenFlags,
        much: bool,
    ) -> Done<Option<Self>> {
        let lanes = &session.0;
        // Whatever becomes of it while it is open, nothing here waits for tape.
        let flags = OpenFlags { nonblock: true, ..flags };
        let file = Self::new(lanes, lanes.open(FileCall::OpenAs { ino, flags }, false)?, flags);
        // Of copies or parity who only reads has a right for some seconds at a time; where that has ended the node reads.
        match file.is_direct() || (much && !flags.write && lanes.is_lent(&file.held)) {
            true => Ok(Some(file)),
            false => file.close().map(|()| None),
        }
    }

    pub(super) fn create(
        session: &Session,
        parent: Ino,
        name: Vec<u8>,
        mode: u32,
        flags: OpenFlags,
    ) -> Done<Self> {
        let flags = OpenFlags { write: true, ..flags };
        let own = !session.0.local() || flags.append;
        let opened = session.0.open(FileCall::CreateAs { parent, name, mode, flags }, own)?;
        Ok(Self::new(&session.0, opened, flags))
    }

    fn new(lanes: &Arc<Lanes>, opened: Opened, flags: OpenFlags) -> Self {
        let options = lanes.options();
        let Opened { held, attr, object } = opened;
        let (held, object) = (Arc::new(held), object.map(Arc::new));
        // Where a file ends at this moment only the node knows.
        let movers = match object.is_none() && lanes.local() && !flags.append {
            true => Direct::open(lanes, &held),
            false => Ok(None),
        };
        let movers = movers.unwrap_or_else(|e| {
            tracing::warn!("inode {} goes through the node: {e}", attr.ino);
            None
        });
        let counted = flags.write.then(|| Counted::new(lanes, attr.ino));
        let may_be_alone =
            flags.write && !flags.append && lanes.local() && object.is_none() && movers.is_none();
        let alone = may_be_alone.then(|| Alone::new(lanes, &held, attr.ino));
        let first = match (&object, &movers) {
            (Some(object), _) => Port::Object(object.clone()),
            (None, Some(movers)) => Port::Movers(movers.clone(), lanes.clone(), held.clone()),
            (None, None) => Port::Served(lanes.clone(), held.clone(), alone.clone()),
        };
        let again = OpenFlags { truncate: false, exclusive: false, ..flags };
        let again = (!flags.append).then_some((attr.ino, again));
        let behind = if flags.append { 0 } else { options.write_behind };
        Self {
            told: Told::new(lanes, &held),
            lanes: lanes.clone(),
            ino: attr.ino,
            flags,
            object,
            movers,
            alone,
            counted,
            ports: Ports::new(first, again, options.streams),
            ahead: Mutex::new(Ahead::new(options.read_ahead)),
            behind: Behind::new(behind),
            losses: AtomicU64::new(held.kept().losses()),
            held,
            closed: false,
        }
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Whether bytes go to and from the object on this host; what is written needs no word to the node then.
    pub fn has_object(&self) -> bool {
        self.object.is_some()
    }

    /// Whether bytes go to the object on this host, or to movers, without passing through the node.
    pub fn is_direct(&self) -> bool {
        self.object.is_some()
            || self.movers.is_some()
            || self.alone.as_ref().is_some_and(|alone| alone.is_straight())
    }

    /// Reads until the buffer is full or the file ends; says how many bytes. Waits for tape.
    ///
    /// # Errors
    /// Those of pread(2).
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Done<usize> {
        self.may(self.flags.read)?;
        if let Some(object) = &self.object {
            return fill(object, buffer, offset);
        }
        self.behind.settle(&self.ports)?;
        if let Some(mut ahead) = self.ahead.try_lock() {
            if ahead.continues(offset) {
                return ahead.read(&self.ports, buffer);
            }
            ahead.clear(offset + buffer.len() as u64);
        }
        self.read_pieces(buffer, offset)
    }

    /// The pieces of a long read are asked for at once.
    fn read_pieces(&self, buffer: &mut [u8], offset: u64) -> Done<usize> {
        if buffer.len() <= PIECE {
            let bytes = self.ports.first().read(offset, buffer.len())?;
            buffer[..bytes.len()].copy_from_slice(&bytes);
            return Ok(bytes.len());
        }
        let starts = (0..buffer.len()).step_by(PIECE);
        let asked: Vec<_> = starts
            .map(|start| self.submit_read(offset + start as u64, PIECE.min(buffer.len() - start)))
            .collect::<Done<_>>()?;
        let mut read = 0;
        for (pending, part) in asked.into_iter().zip(buffer.chunks_mut(PIECE)) {
            let bytes = pending.wait()?;
            part[..bytes.len()].copy_from_slice(&bytes);
            read += bytes.len();
            if bytes.len() < part.len() {
                break;
            }
        }
        Ok(read)
    }

    /// Writes all of it. Where bytes travel, they may travel later: see [`File::flush`].
    ///
    /// # Errors
    /// Those of pwrite(2), also of earlier writes that nobody has heard of yet.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Done<()> {
        self.may(self.flags.write)?;
        if self.object.is_some() {
            return self.ports.first().write(offset, data);
        }
        self.ahead.lock().clear(u64::MAX);
        self.behind.write(&self.ports, offset, data)
    }

    /// Reads into several buffers, one after the other.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Done<usize> {
        let mut read = 0;
        for buffer in buffers {
            let n = self.read_at(buffer, offset + read as u64)?;
            read += n;
            if n < buffer.len() {
                break;
            }
        }
        Ok(read)
    }

    /// Writes several buffers, one after the other.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], mut offset: u64) -> Done<()> {
        for buffer in buffers {
            self.write_at(buffer, offset)?;
            offset += buffer.len() as u64;
        }
        Ok(())
    }

    /// Reads a pattern of blocks into one buffer; all blocks are asked for at once. Says how many bytes there were before the end of the file.
    ///
    /// # Errors
    /// As [`File::read_at`]; EINVAL for a pattern that overlaps or a buffer of another length.
    pub fn read_strided(&self, stride: Stride, buffer: &mut [u8]) -> Done<usize> {
        self.may(self.flags.read)?;
        self.fits(stride, buffer.len())?;
        if stride.block == 0 {
            return Ok(0);
        }
        let blocks = stride.offsets().zip(buffer.chunks_mut(stride.block));
        let mut read = 0;
        if self.object.is_some() {
            for (offset, block) in blocks {
                read += self.read_at(block, offset)?;
            }
            return Ok(read);
        }
        self.behind.settle(&self.ports)?;
        let asked: Vec<_> =
            stride.offsets().map(|offset| self.submit_read(offset, stride.block)).collect::<Done<_>>()?;
        for (pending, (_, block)) in asked.into_iter().zip(blocks) {
            let bytes = pending.wait()?;
            block[..bytes.len()].copy_from_slice(&bytes);
            read += bytes.len();
        }
        Ok(read)
    }

    /// Writes one buffer as a pattern of blocks.
    ///
    /// # Errors
    /// As [`File::write_at`]; EINVAL for a pattern that overlaps or a buffer of another length.
    pub fn write_strided(&self, stride: Stride, data: &[u8]) -> Done<()> {
        self.fits(stride, data.len())?;
        if stride.block == 0 {
            return self.may(self.flags.write);
        }
        stride.offsets().zip(data.chunks(stride.block)).try_for_each(|(at, block)| self.write_at(block, at))
    }

    /// Begins to read; the caller goes on meanwhile.
    ///
    /// # Errors
    /// The file is not open for reading.
    pub fn read_async(&self, offset: u64, len: usize) -> Done<Pending<Vec<u8>>> {
        self.may(self.flags.read)?;
        self.behind.settle(&self.ports)?;
        self.submit_read(offset, len)
    }

    /// Begins to write; the caller goes on meanwhile. Asynchronous writes that overlap are done in any order.
    ///
    /// # Errors
    /// The file is not open for writing.
    pub fn write_async(&self, data: Vec<u8>, offset: u64) -> Done<Pending<()>> {
        self.may(self.flags.write)?;
        self.behind.settle(&self.ports)?;
        self.ahead.lock().clear(u64::MAX);
        let (done, pending) = bounded(1);
        self.ports.submit(Box::new(move |port| drop(done.send(port.write(offset, &data)))))?;
        Ok(Pending(pending))
    }

    fn submit_read(&self, offset: u64, len: usize) -> Done<Pending<Vec<u8>>> {
        let (done, pending) = bounded(1);
        self.ports.submit(Box::new(move |port| drop(done.send(port.read(offset, len)))))?;
        Ok(Pending(pending))
    }

    /// What was written is seen by everybody who reads from now on.
    ///
    /// # Errors
    /// The first thing that failed since the last flush.
    pub fn flush(&self) -> Done<()> {
        if self.object.is_some() {
            return Ok(());
        }
        self.behind.flush(&self.ports)?;
        self.tell()?;
        self.is_whole()
    }

    /// What was written, and the name, survive a power failure from now on.
    ///
    /// # Errors
    /// As [`File::flush`], and those of fsync(2).
    pub fn sync(&self) -> Done<()> {
        self.flush()?;
        match (&self.movers, &self.alone) {
            (Some(movers), _) => movers.told().sync(),
            (None, Some(alone)) => alone.sync(),
            (None, None) => self.told.sync(),
        }?;
        self.is_whole()
    }

    /// Nothing was lost, with a node that had it in memory, of which nobody was told by this file.
    fn is_whole(&self) -> Done<()> {
        let losses = self.held.kept().losses();
        let told = self.losses.fetch_max(losses, Ordering::AcqRel) >= losses;
        if told { Ok(()) } else { Err(names::refused(b"open file", FsError::Io)) }
    }

    /// The node knows what was written.
    fn tell(&self) -> Done<()> {
        match (&self.movers, &self.alone) {
            (Some(movers), _) => movers.told().commit(),
            (None, Some(alone)) => alone.tell(),
            (None, None) => self.told.commit(),
        }
    }

    /// Attributes now.
    ///
    /// # Errors
    /// As [`File::flush`], and those of fstat(2).
    pub fn attr(&self) -> Done<Attr> {
        self.behind.settle(&self.ports)?;
        self.tell()?;
        let ask = || {
            self.lanes.names(|connection| {
                // What was written here is seen here, also by a node that was started anew.
                self.held.kept().bring(connection)?;
                connection.file(FileCall::GetAttr(self.ino))
            })
        };
        self.lanes.again(ask).0
    }

    /// Length now (bytes).
    ///
    /// # Errors
    /// As [`File::attr`].
    pub fn len(&self) -> Done<u64> {
        self.attr().map(|attr| attr.size)
    }

    /// Whether the length is 0.
    ///
    /// # Errors
    /// As [`File::attr`].
    pub fn is_empty(&self) -> Done<bool> {
        self.len().map(|len| len == 0)
    }

    /// Sets the length.
    ///
    /// # Errors
    /// As [`File::flush`], and those of ftruncate(2).
    pub fn set_len(&self, len: u64) -> Done<()> {
        self.may(self.flags.write)?;
        self.flush()?;
        self.ahead.lock().clear(u64::MAX);
        let call =
            FileCall::SetAttr { ino: self.ino, set: SetAttr { size: Some(len), ..SetAttr::default() } };
        let _apart = self.lanes.apart(&self.held, WHOLE)?;
        let _cutting = self.lanes.cuts.begin();
        self.lanes.names_of(&self.held, |connection| {
            let life = self.held.life();
            connection.file::<Attr>(call)?;
            self.held.note_served(life);
            Ok(())
        })?;
        self.movers.iter().for_each(|movers| movers.cut());
        Ok(())
    }

    /// Flushes and closes. Dropping a file does the same, without a word when that fails.
    ///
    /// # Errors
    /// As [`File::flush`].
    pub fn close(mut self) -> Done<()> {
        self.shut()
    }

    fn shut(&mut self) -> Done<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        // Also what was begun and not waited for is told.
        let written = if self.object.is_some() { Ok(()) } else { self.behind.flush(&self.ports) };
        let flushed = written.and(self.ports.close());
        // Where there is no node each of these would wait for it.
        let then = |done: Done<()>, next: &dyn Fn() -> Done<()>| match done {
            Err(e) if e.is_away() => Err(e),
            done => done.and(next()),
        };
        let flushed = then(flushed, &|| self.lanes.settle(&self.held));
        let flushed = then(flushed, &|| self.tell()).and(self.is_whole());
        if self.alone.as_ref().is_some_and(|alone| !alone.is_settled()) {
            // It stays open at the node, which sees with the end of the session that copies may differ.
            self.counted.iter_mut().for_each(Counted::stays);
            return flushed;
        }
        flushed.and(self.lanes.release(&self.held))
    }

    pub(super) fn may(&self, open_for_it: bool) -> Done<()> {
        if open_for_it { Ok(()) } else { Err(names::refused(b"open file", FsError::BadHandle)) }
    }

    fn fits(&self, stride: Stride, len: usize) -> Done<()> {
        let fits = stride.bytes() == Some(len);
        if fits { Ok(()) } else { Err(names::refused(b"open file", FsError::Invalid)) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = self.shut();
    }
}
