//! Writes through the node of which a spare stays in the program ([`crate::spares`]), and their return to a node that was started anew.
//!
//! What is kept belongs to a file of the session, by however many handles it is open. A handle that is used in another session of the node returns it first. Others may wait for it, so a
//! thread looks twice a second whether the node is still the one it was, from the first such write until the session is over.

use super::Done;
use super::lanes::{Held, Lanes};
use super::names::{reason, refused};
use crate::ClientError;
use crate::answer::Spared;
use crate::connection::{Connection, Life};
use crate::spares::{Apart, Came, Entered, Entry, Refusal, Room, Spares};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use types::{Attr, ErrorClass, FsError, Ino};
use wire::{Call, Failure, FileCall, WireError};

/// Between two looks at the node.
const LOOK: Duration = Duration::from_millis(500);

/// What a session keeps.
#[derive(Debug, Default)]
pub struct Sparing {
    room: Arc<Room>,
    files: Mutex<HashMap<Ino, Weak<Kept>>>,
    /// The node wants none of it.
    off: AtomicBool,
    /// The thread that looks at the node, until this is dropped.
    looks: Mutex<Option<Sender<()>>>,
    /// Something may be on record at the node.
    any: AtomicBool,
    /// Writes that are asked for, and may be kept.
    asked: AtomicU64,
}

/// What is kept of a file that is open.
#[derive(Debug)]
pub struct Kept {
    ino: Ino,
    spares: Spares,
    /// How often that was lost.
    losses: AtomicU64,
}

impl Refusal for ClientError {
    fn refused(&self) -> Option<FsError> {
        reason(self)
    }

    fn of(fs: FsError) -> Self {
        refused(b"open file", fs)
    }
}

/// Whether the node keeps nothing in memory for programs: it is of an earlier release, or their own.
fn wants_none(error: &ClientError) -> bool {
    match error {
        ClientError::Wire { source: WireError::NotYet { .. }, .. } => true,
        ClientError::Refused(why) if why.fs.is_none() => why.class == ErrorClass::Invalid,
        other => reason(other) == Some(FsError::NotSupported),
    }
}

impl Sparing {
    /// What is kept of a file that was just opened in a session of the node.
    pub fn of(&self, ino: Ino, life: Life) -> Arc<Kept> {
        let mut files = self.files.lock();
        if let Some(kept) = files.get(&ino).and_then(Weak::upgrade) {
            return kept;
        }
        files.retain(|_, kept| kept.strong_count() > 0);
        let spares = Spares::default();
        if let Life::Session(begun) = life {
            spares.begin(begun);
        }
        let kept = Kept { ino, spares, losses: AtomicU64::new(0) };
        let kept = Arc::new(kept);
        files.insert(ino, Arc::downgrade(&kept));
        kept
    }

    /// What is kept of a file, if that is open.
    pub fn known(&self, ino: Ino) -> Option<Arc<Kept>> {
        self.files.lock().get(&ino).and_then(Weak::upgrade)
    }

    /// Of all files that are open.
    fn all(&self) -> Vec<Arc<Kept>> {
        self.files.lock().values().filter_map(Weak::upgrade).collect()
    }
}

/// A write is being asked for until this is dropped.
struct Asked<'s>(&'s Sparing);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.asked.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Kept {
    /// Whether something may have to be returned before anything is done in a session.
    pub fn is_behind(&self, life: Life) -> bool {
        matches!(life, Life::Session(begun) if !self.spares.is_whole_in(begun))
    }

    /// Returns what is kept since an earlier session of the node than that of a connection. What its targets do not take now is to be tried again, as where there is no node.
    pub fn bring(&self, connection: &mut Connection) -> Done<()> {
        let Life::Session(begun) = connection.life() else {
            // It knows nobody by his number, and is asked by nobody else.
            return if self.spares.keeps_any() { Err(self.later("it has no sessions")) } else { Ok(()) };
        };
        if self.spares.is_whole_in(begun) {
            return Ok(());
        }
        let _one = self.spares.one_returns();
        if self.spares.is_whole_in(begun) {
            return Ok(());
        }
        // It may have broken, and its session be over, without anybody having noticed.
        connection.call_once(&Call::File(FileCall::GetAttr(Ino::ROOT)))?;
        // It is not connected anew for this: it would ask in another session.
        let mut ask = |call| match connection.call_once(&Call::File(call)) {
            Ok((reply, _)) => Ok(reply),
            // This node takes none of it, now or later.
            Err(e) if wants_none(&e) => Err(ClientError::of(FsError::Stale)),
            Err(e) => Err(e),
        };
        match self.spares.bring(self.ino, begun, &mut ask) {
            Ok(Came::All) => Ok(()),
            Ok(Came::TooLate) => {
                self.losses.fetch_add(1, Ordering::AcqRel);
                Ok(())
            }
            Err(ClientError::Refused(why)) if why.fs.is_some() => Err(self.later(&why.message)),
            Err(e) => Err(e),
        }
    }

    /// It is to be brought again, as where there is no node.
    fn later(&self, why: &str) -> ClientError {
        let message = format!(
            "what was written to inode {} is kept until the node that was started anew takes it, which it does not now: {why}; try again later",
            self.ino
        );
        ClientError::Refused(Failure { class: ErrorClass::Retry, fs: None, message })
    }

    /// How often something was lost.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }
}

impl Lanes {
    /// Writes a part of at most 1 MiB through the node, which may have it in its memory only; how many bytes that took. None: it is not to be kept.
    pub fn write_spared(self: &Arc<Self>, held: &Held, offset: u64, part: &[u8]) -> Done<Option<u64>> {
        let range = offset..offset.saturating_add(part.len() as u64);
        let Some(mut entered) = self.enter(held, &range)? else { return Ok(None) };
        let Some(_asked) = self.ask_to_keep() else { return Ok(None) };
        loop {
            let life = Cell::new(held.life());
            let call = || {
                self.call(held, |handle| {
                    life.set(held.life());
                    FileCall::WriteSpared { handle, offset, data: part.to_vec(), keeps: entered.keeps() }
                })
            };
            // The same bytes at the same place.
            let answered = self.again(call).0;
            match &answered {
                Err(e) if wants_none(e) => {
                    self.spares.off.store(true, Ordering::Release);
                    return Ok(None);
                }
                // Of one that was not answered it is not known.
                Ok(Spared(_, _, Some(_))) | Err(_) => self.spares.any.store(true, Ordering::Release),
                Ok(Spared(_, _, None)) => {}
            }
            let Spared(taken, machines, spare) = answered?;
            held.note_spared(life.get(), &machines);
            let len = part.len().min(usize::try_from(taken).unwrap_or(usize::MAX));
            let (Some(spare), Life::Session(begun)) = (spare, life.get()) else {
                entered.refused();
                return Ok(Some(taken));
            };
            // Else the node was started anew since.
            if entered.answered(begun, spare, offset, &part[..len]) {
                return Ok(Some(taken));
            }
        }
    }

    fn enter<'h>(&self, held: &'h Held, range: &Range<u64>) -> Done<Option<Entered<'h>>> {
        let mut settled = false;
        while held.can_repeat()
            && matches!(held.life(), Life::Session(_))
            && !self.spares.off.load(Ordering::Acquire)
        {
            match held.kept().spares.enter(range, &self.spares.room) {
                Entry::Entered(entered) => return Ok(Some(entered)),
                Entry::Full if !settled => {
                    self.settle(held)?;
                    settled = true;
                }
                Entry::Full | Entry::Plain => return Ok(None),
            }
        }
        Ok(None)
    }

    /// When this returns all that was written to the file through the node before is at the targets.
    pub fn settle(&self, held: &Held) -> Done<()> {
        let spares = &held.kept().spares;
        let Some(moment) = spares.wait() else { return Ok(()) };
        self.call_again::<()>(held, FileCall::SettleSpared).0?;
        spares.settled_before(moment);
        Ok(())
    }

    /// Something is about to go another way than is kept.
    pub fn apart<'h>(&self, held: &'h Held, range: Range<u64>) -> Done<Apart<'h>> {
        let apart = held.kept().spares.apart(range);
        self.settle(held)?;
        Ok(apart)
    }

    /// A write through the node was answered that is not kept.
    pub fn note_plain(&self, held: &Held) {
        held.kept().spares.served();
    }

    /// Syncs by a handle.
    pub fn sync_spared(&self, held: &Held, sync: impl FnOnce() -> Done<()>) -> Done<()> {
        let spares = &held.kept().spares;
        let before = spares.moment();
        sync()?;
        spares.settled_before(before);
        Ok(())
    }

    /// A write is about to be asked for that may be kept: from now on somebody looks whether the node is still the one it was. None: nobody can.
    fn ask_to_keep(self: &Arc<Self>) -> Option<Asked<'_>> {
        let mut looks = self.spares.looks.lock();
        if looks.is_none() {
            let (bell, rings) = bounded(0);
            let lanes = Arc::downgrade(self);
            let work = move || look(&lanes, &rings);
            match std::thread::Builder::new().name("thermo-spares".into()).spawn(work) {
                Ok(_) => *looks = Some(bell),
                Err(e) => {
                    tracing::warn!(
                        "no thread to return what is written: {e}; it is written to targets at once"
                    );
                    self.spares.off.store(true, Ordering::Release);
                    return None;
                }
            }
        }
        self.spares.asked.fetch_add(1, Ordering::AcqRel);
        Some(Asked(&self.spares))
    }

    /// Returns what is kept, if the node is another one than it was for this thread; then which one it is.
    fn return_all(&self, connection: &mut Option<Connection>, known: Option<Life>) -> Done<Life> {
        let connection = match connection {
            Some(connection) => connection.mended()?,
            none => none.insert(self.connect_at_once()?),
        };
        // Whether it is there.
        connection.file::<Attr>(FileCall::GetAttr(Ino::ROOT))?;
        let life = connection.life();
        if known == Some(life) {
            return Ok(life);
        }
        let mut over = Ok(());
        // Also where nothing is kept: what is answered late in an earlier session is not kept from now on.
        for kept in self.spares.all() {
            match kept.bring(connection) {
                // One that its node cannot take now holds up none of the others.
                Err(e @ ClientError::Refused(_)) => over = Err(e),
                brought => brought?,
            }
        }
        over?;
        match connection.file::<()>(FileCall::SparedOver) {
            Err(e) if !wants_none(&e) => Err(e),
            _ => Ok(life),
        }
    }

    /// Whether the node has nothing on record, nor is asked to: then nobody looks at it until somebody asks again.
    fn looks_no_more(&self) -> bool {
        let mut looks = self.spares.looks.lock();
        let over = !self.spares.any.load(Ordering::Acquire) && self.spares.asked.load(Ordering::Acquire) == 0;
        if over {
            *looks = None;
        }
        over
    }
}

/// Looks at the node until the session is over.
fn look(lanes: &Weak<Lanes>, rings: &Receiver<()>) {
    let (mut connection, mut known) = (None, None);
    while let Err(RecvTimeoutError::Timeout) = rings.recv_timeout(LOOK) {
        let Some(lanes) = lanes.upgrade() else { return };
        if lanes.looks_no_more() {
            return;
        }
        match lanes.return_all(&mut connection, known) {
            Ok(life) => known = Some(life),
            Err(e) => tracing::debug!("what was written is not returned yet: {e}"),
        }
    }
}
