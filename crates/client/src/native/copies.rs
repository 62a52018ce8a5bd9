//! Files with copies or parity that no other program or host has open for writing are written straight to their targets ([`crate::copies`]).

use super::Done;
use super::lanes::{Held, Lanes};
use super::names::reason;
use super::port::write_served;
use super::told::Told;
use crate::ClientError;
use crate::copies::{self, Copies, Writer, Wrote};
use crate::length::Length;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use stripe::Ways;
use types::{FsError, Ino};
use wire::{CopiesLayout, FileCall};

/// How many files a session has open for writing, by inode. Two of one inode would be two writers: neither gets a right of its own then.
#[derive(Debug, Default)]
pub struct Writers(Mutex<HashMap<Ino, usize>>);

impl Writers {
    fn are_one(&self, ino: Ino) -> bool {
        self.0.lock().get(&ino) == Some(&1)
    }
}

/// That a file is open for writing, until this is dropped.
#[derive(Debug)]
pub struct Counted {
    lanes: Arc<Lanes>,
    ino: Ino,
    /// It counts for as long as the session lasts.
    stays: bool,
}

impl Counted {
    /// It was opened.
    pub fn new(lanes: &Arc<Lanes>, ino: Ino) -> Self {
        *lanes.writers.0.lock().entry(ino).or_default() += 1;
        Self { lanes: lanes.clone(), ino, stays: false }
    }

    /// Something that was written by it may come late, and the node does not know: nobody else of this session gets such a right.
    pub fn stays(&mut self) {
        self.stays = true;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let mut writers = self.lanes.writers.0.lock();
        if let Some(count) = writers.get_mut(&self.ino) {
            *count -= 1;
            if *count == 0 {
                writers.remove(&self.ino);
            }
        }
    }
}

/// Whether the file is open no longer, as the session in which it was has ended.
fn is_gone(error: &ClientError) -> bool {
    matches!(reason(error), Some(FsError::Stale | FsError::BadHandle))
}

/// One open file, by whatever connections it is written.
pub struct Alone {
    ino: Ino,
    copies: Copies,
    told: Told,
}

impl std::fmt::Debug for Alone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alone").field("ino", &self.ino).finish_non_exhaustive()
    }
}

impl Alone {
    pub fn new(lanes: &Arc<Lanes>, held: &Arc<Held>, ino: Ino) -> Arc<Self> {
        Arc::new(Self { ino, copies: Copies::default(), told: Told::new(lanes, held) })
    }

    /// Writes all of it: straight, or through the node by the handle of this connection.
    pub fn write(
        self: &Arc<Self>,
        (lanes, held): (&Arc<Lanes>, &Held),
        offset: u64,
        data: &[u8],
    ) -> Done<()> {
        copies::settle(self)?;
        let differ = match copies::write(self, offset, data)? {
            Wrote::All => return Ok(()),
            Wrote::Nothing => false,
            Wrote::Some => true,
        };
        // What some copies may have already is written to all of them at once.
        let range = offset..offset.saturating_add(data.len() as u64);
        let apart = differ.then(|| lanes.apart(held, range)).transpose();
        let written = apart.and_then(|_apart| {
            let _served = self.copies.serve();
            write_served(lanes, held, offset, data)
        });
        match written {
            Ok(()) => self.copies.note_served(data.len()),
            Err(_) if differ => copies::end(self, true)?,
            Err(_) => {}
        }
        written
    }

    /// The node knows what was written.
    pub fn tell(self: &Arc<Self>) -> Done<()> {
        copies::settle(self)?;
        self.told.commit()
    }

    /// And it is durable.
    pub fn sync(self: &Arc<Self>) -> Done<()> {
        copies::settle(self)?;
        self.told.sync()
    }

    /// Whether what is written now goes straight to the targets.
    pub fn is_straight(&self) -> bool {
        self.copies.has_right()
    }

    /// Whether the node was told all that it has to know before anybody else writes the file.
    pub fn is_settled(&self) -> bool {
        self.copies.is_settled()
    }
}

impl Writer for Arc<Alone> {
    type Error = ClientError;
    type By = ();

    fn ino(&self) -> Ino {
        self.ino
    }

    fn copies(&self) -> &Copies {
        &self.copies
    }

    fn length(&self) -> &Length<()> {
        &self.told.length
    }

    fn quick_ways(&self) -> &Ways {
        self.told.held.quick_ways()
    }

    fn ask(&self) -> Result<Option<CopiesLayout>, String> {
        let Told { lanes, held, .. } = &self.told;
        match lanes.writers.are_one(self.ino) {
            true => match lanes.call(held, FileCall::LayoutCopies) {
                // It is open no longer, and nothing that it had counts.
                Err(e) if is_gone(&e) => Ok(None),
                answered => answered.map_err(|e| e.to_string()),
            },
            false => Ok(None),
        }
    }

    fn writing(&self, pieces: &[(u64, &[u8])], write: impl FnOnce() -> Done<bool>) -> Done<bool> {
        let mut ends = pieces.iter().map(|(offset, bytes)| offset.checked_add(bytes.len() as u64));
        self.told.writing(ends.try_fold(0_u64, |last, end| Some(last.max(end?))), write)
    }

    fn end(&self, differ: bool) -> Done<()> {
        let Told { lanes, held, .. } = &self.told;
        // At which machines it was written, before the node leaves one of them out.
        let told = self.told.commit();
        let ended: Done<()> = lanes.call_again(held, |handle| FileCall::CopiesEnd { handle, differ }).0;
        match ended {
            // What was not told is told with the next chance.
            Ok(()) if differ => Ok(()),
            // The node has seen to that when it ended the session.
            Err(e) if differ && is_gone(&e) => Ok(()),
            ended => ended.and(told),
        }
    }

    fn later(&self, work: impl FnOnce(&Self) + Send + 'static) {
        let alone = self.clone();
        let thread = std::thread::Builder::new().name("thermo-right".into());
        // Without one the right ends by itself, and is asked for anew.
        drop(thread.spawn(move || work(&alone)));
    }
}
