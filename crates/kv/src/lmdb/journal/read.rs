//! What the journal holds beyond the store, after a process ended without giving it over.

use std::fs;
use std::io::ErrorKind;

use super::{BLOCK, FILE, Head, NAMES, blocks};
use crate::buffer::Changes;
use crate::key::Key;
use crate::limits::{check_key, check_value};
use crate::lmdb::at::At;
use crate::lmdb::log::batch::{self, Batch};
use crate::lmdb::overlay::{Older, Overlay};
use crate::lmdb::place::{Place, io_error};
use crate::{KvError, Result};

/// Changes that the store lacks.
pub(in crate::lmdb) struct Found {
    pub(in crate::lmdb) changes: Overlay,
    /// The last batch of them.
    pub(in crate::lmdb) last: u64,
    /// How many batches they are.
    pub(in crate::lmdb) batches: u64,
}

/// Reads what goes on from the state `at` of the store, of transaction `txn`.
///
/// # Errors
/// `Corrupt` if something that was acknowledged is damaged or missing, or follows another state; `Io` as the file system says.
pub(in crate::lmdb) fn recover(place: &Place, at: At, txn: u64) -> Result<Found> {
    let mut files = Vec::new();
    for name in NAMES {
        files.push(match fs::read(place.dir.join(name)) {
            Err(e) if e.kind() == ErrorKind::NotFound && at.mark == 0 => Vec::new(),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(place.corrupt(format!("{name} is missing; it may hold acknowledged changes")));
            }
            read => read.map_err(|e| io_error(&place.dir, name, &e))?,
        });
        if at.mark != 0 && files.last().is_some_and(|bytes| bytes.len() as u64 != FILE) {
            return Err(place.corrupt(format!("{name} has another length than it was made with")));
        }
    }
    let mut replay = Replay { place, changes: Overlay::default(), number: at.number, batches: 0 };
    let mut consumed = [false; 2];
    let mut state = (at.mark, txn);
    while state.0 != 0 {
        let next = replay.file(&files, state, &mut consumed)?;
        if next != 0 && consumed.iter().all(|consumed| *consumed) {
            return Err(place.corrupt("its journal goes on from a state that data.mdb does not have"));
        }
        state = (next, txn + 1);
    }
    for (n, bytes) in files.iter().enumerate().filter(|(n, _)| !consumed[*n]) {
        if let Some(head) = Head::decode(bytes).filter(|head| head.txn > txn) {
            return Err(place.corrupt(format!(
                "{} goes on from transaction {} of data.mdb, whose last is {txn}: data.mdb is an older one",
                NAMES[n], head.txn
            )));
        }
    }
    Ok(Found { changes: replay.changes, last: replay.number, batches: replay.batches })
}

struct Replay<'p> {
    place: &'p Place,
    changes: Overlay,
    /// The last batch so far.
    number: u64,
    batches: u64,
}

impl Replay<'_> {
    /// Takes what the file with this mark holds; the mark of the one that follows, 0 if none does. It is no error that
    /// nothing was written behind that state.
    fn file(&mut self, files: &[Vec<u8>], (mark, txn): (u64, u64), consumed: &mut [bool; 2]) -> Result<u64> {
        let of_mark = |bytes: &[u8]| bytes.chunks(BLOCK).filter_map(Head::decode).any(|h| h.mark == mark);
        let Some(n) = files.iter().position(|bytes| of_mark(bytes)) else { return Ok(0) };
        consumed[n] = true;
        let (bytes, mut at, mut index, mut next) = (files[n].as_slice(), 0, 0, 0);
        while let Some(head) = bytes.get(at..).and_then(Head::decode) {
            if (head.mark, head.index) != (mark, index) {
                break;
            }
            if head.txn != txn {
                return Err(self.damaged(n, index, "is of another transaction"));
            }
            if head.length == 0 {
                next = head.next;
                if next == 0 {
                    break;
                }
            } else {
                let from = at + Head::BYTES;
                let batch = bytes.get(from..from + head.length as usize).and_then(batch::whole);
                let Some(batch) = batch else { break };
                self.take(&batch).map_err(|why| self.damaged(n, index, why))?;
            }
            (at, index) = (at + blocks(head.length as usize) as usize, index + 1);
            if next != 0 {
                break;
            }
        }
        // The last one may have been torn by a failure: nothing lies behind it then.
        let later = |head: Head| head.mark == mark && head.index > index - u32::from(next != 0);
        if bytes.get(at..).unwrap_or_default().chunks(BLOCK).filter_map(Head::decode).any(later) {
            return Err(self.damaged(n, index, "is damaged, and others follow it"));
        }
        Ok(next)
    }

    fn take(&mut self, batch: &Batch<'_>) -> Result<(), &'static str> {
        if batch.number != self.number + 1 {
            return Err("does not follow the batch before it");
        }
        let mut changes = Changes::new();
        for (key, value) in batch.changes().flatten() {
            let fits = check_key(key).and_then(|()| value.map_or(Ok(()), check_value));
            fits.map_err(|_| "holds what cannot be stored")?;
            changes.insert(Key::new(key), value.map(<[u8]>::to_vec));
        }
        (self.number, self.batches) = (batch.number, self.batches + 1);
        self.changes.insert(changes, 0, Older::Drop); // before all transactions of this process
        Ok(())
    }

    fn damaged(&self, file: usize, index: u32, how: &str) -> KvError {
        self.place.corrupt(format!("record {index} of {} {how}", NAMES[file]))
    }
}
