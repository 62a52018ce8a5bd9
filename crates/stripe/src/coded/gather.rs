//! Writing behind: of rows that are not complete the bytes stay in memory until they are, and then go to their columns at once, with parity and
//! seals; or until somebody asks for them, or memory runs out: then into the log.
//!
//! What is here lies over everything else: it is the newest there is. It goes when the columns or the log have it, not before, so whoever reads
//! looks here first; and it stays when they do not take it, to be written later. A row that is being written out is *busy*: nothing of it
//! changes here meanwhile, whoever writes to it waits.

use super::Coded;
use super::extents::Extents;
use super::record::MAX_RECORD;
use crate::{Result, Striped};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most bytes that are kept of one component.
const MOST: u64 = 64 << 20;
/// What a piece counts for besides its bytes.
const PIECE: u64 = 128;

/// Room in memory for what is written behind, for all files that share it.
#[derive(Debug)]
pub struct Room {
    left: AtomicU64,
    closed: AtomicBool,
}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes), closed: AtomicBool::new(false) }
    }

    /// How many bytes are free.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// From now on nothing more is kept: what is written goes through, and what a [`Striped::flush`] that begins after this leaves was not
    /// taken. False if it was so before.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        !self.closed.load(Ordering::Acquire)
            && self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    fn give(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::AcqRel);
    }
}

/// What is gathered of a component.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    state: Mutex<State>,
    /// Rows are not busy any more.
    released: Condvar,
    /// None: nothing is gathered.
    room: Option<Arc<Room>>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<u64, Row>,
    /// Rows that are being written.
    busy: BTreeSet<u64>,
    /// What all that is here counts for, as it was taken of the room.
    charge: u64,
    /// Counts how often somebody has begun to write out: rows have the number from when they began.
    turn: u64,
}

#[derive(Debug, Default)]
struct Row {
    pieces: Extents,
    turn: u64,
}

impl Row {
    fn charge(&self) -> u64 {
        self.pieces.bytes() + self.pieces.count() * PIECE
    }
}

/// Pieces of the file, and where they begin.
type Parts = Vec<(u64, Vec<u8>)>;

/// What became of bytes that were to be kept.
enum Kept<'a> {
    Here,
    /// With them their row is complete: whoever brought them writes it.
    Whole(Claim<'a>, Parts),
    /// There is no room for them.
    Full,
}

/// Rows that are busy until this is dropped.
struct Claim<'a> {
    gathered: &'a Gathered,
    rows: Vec<u64>,
}

impl Claim<'_> {
    /// The columns or the log have all that is gathered of them.
    fn written(self) {
        let mut state = self.gathered.state.lock();
        for row in &self.rows {
            let charge = state.rows.remove(row).map_or(0, |row| row.charge());
            state.charge -= charge;
            self.gathered.give(charge);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.gathered.state.lock();
        state.busy.retain(|row| !self.rows.contains(row));
        self.gathered.released.notify_all();
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.give(self.state.lock().charge);
    }
}

impl Gathered {
    pub(super) fn set_room(&mut self, room: Arc<Room>) {
        self.room = Some(room);
    }

    /// Whether anything is to be kept.
    pub(super) fn has_room(&self) -> bool {
        self.room.is_some()
    }

    fn give(&self, charge: u64) {
        self.room.iter().for_each(|room| room.give(charge));
    }

    fn is_empty(&self) -> bool {
        self.state.lock().rows.is_empty()
    }

    /// Bytes of the file that are here only.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().rows.values().map(|row| row.pieces.bytes()).sum()
    }

    /// What is here of a range of the file that lies in some rows, and where the last piece of all ends.
    pub(super) fn part(&self, rows: Range<u64>, range: Range<u64>) -> (Extents, u64) {
        let state = self.state.lock();
        let mut part = Extents::default();
        for (_, row) in state.rows.range(rows) {
            row.pieces.within(range.clone()).for_each(|(at, bytes)| part.insert(at, bytes.to_vec()));
        }
        (part, state.rows.last_key_value().map_or(0, |(_, row)| row.pieces.end()))
    }

    /// Keeps bytes that lie in one row of so many.
    fn keep(&self, row: u64, row_bytes: u64, at: u64, bytes: &[u8]) -> Kept<'_> {
        let Some(room) = &self.room else { return Kept::Full };
        let mut state = self.state.lock();
        while state.busy.contains(&row) {
            self.released.wait(&mut state);
        }
        // What it lies on may fall in two.
        let most = bytes.len() as u64 + 2 * PIECE;
        if state.charge + most > MOST || !room.take(most) {
            return Kept::Full;
        }
        let turn = state.turn;
        let kept = state.rows.entry(row).or_insert_with(|| Row { turn, ..Row::default() });
        let before = kept.charge();
        kept.pieces.insert(at, bytes.to_vec());
        let after = kept.charge();
        let whole = (kept.pieces.bytes() == row_bytes).then(|| kept.pieces.owned());
        state.charge = state.charge + after - before;
        room.give(before + most - after);
        match whole {
            None => Kept::Here,
            Some(parts) => {
                state.busy.insert(row);
                Kept::Whole(Claim { gathered: self, rows: vec![row] }, parts)
            }
        }
    }

    /// The first of these rows, as long as nothing is gathered of them and nobody writes them out; None if that is not so of the first.
    fn claim_empty(&self, rows: Range<u64>) -> Option<Claim<'_>> {
        let mut state = self.state.lock();
        let empty = |row: &u64| !state.rows.contains_key(row) && !state.busy.contains(row);
        let rows: Vec<u64> = rows.take_while(empty).collect();
        state.busy.extend(&rows);
        (!rows.is_empty()).then(|| Claim { gathered: self, rows })
    }

    /// From now on rows have another number: what is here now has at most this one.
    fn begin_turn(&self) -> u64 {
        let mut state = self.state.lock();
        state.turn += 1;
        state.turn - 1
    }

    /// Some of the rows that began up to a turn and lie in a range, as many as are written at once, and what is gathered of them; None when none
    /// is left. Waits for those that others write: if they fail, they are left.
    fn next(&self, newest: u64, range: &Range<u64>) -> Option<(Claim<'_>, Parts)> {
        let mut state = self.state.lock();
        loop {
            let (mut rows, mut parts, mut bytes, mut busy) = (Vec::new(), Parts::new(), 0, false);
            for (number, row) in state.rows.range(range.clone()).filter(|(_, row)| row.turn <= newest) {
                if state.busy.contains(number) {
                    busy = true;
                    continue;
                }
                bytes += row.pieces.bytes();
                if !rows.is_empty() && bytes > MAX_RECORD as u64 {
                    break;
                }
                rows.push(*number);
                parts.extend(row.pieces.owned());
            }
            if !rows.is_empty() {
                state.busy.extend(&rows);
                return Some((Claim { gathered: self, rows }, parts));
            }
            if !busy {
                return None;
            }
            self.released.wait(&mut state);
        }
    }
}

impl Striped {
    /// Bytes that [`Striped::write_behind`] gets may stay in this room until they fill rows.
    #[must_use]
    pub fn gathering(mut self, room: &Arc<Room>) -> Self {
        self.coded.iter_mut().flatten().for_each(|coded| coded.gathered.set_room(room.clone()));
        self
    }

    /// Bytes of the file that are in the memory of this process only.
    pub fn gathered(&self) -> u64 {
        self.coded.iter().flatten().map(|coded| coded.gathered.bytes()).sum()
    }

    /// Writes what was gathered where every reader finds it, wherever he is. It is durable after [`Striped::sync`].
    ///
    /// # Errors
    /// `Mover`, `Lost`: what could not be written is still in memory, and is written by the next call.
    pub fn flush(&self) -> Result<()> {
        self.renewing(|| self.flush_once(false))
    }

    /// The same of rows that were there at the last call of this: who calls it every second leaves alone what is being filled.
    ///
    /// # Errors
    /// As [`Striped::flush`].
    pub fn flush_older(&self) -> Result<()> {
        self.renewing(|| self.flush_once(true))
    }

    fn flush_once(&self, older: bool) -> Result<()> {
        let _passed = self.gate.read();
        let mut flushed = Ok(());
        for (number, coded) in self.coded.iter().enumerate() {
            let Some(coded) = coded.as_ref().filter(|coded| !coded.gathered.is_empty()) else { continue };
            // Others have other targets: they go on.
            flushed = flushed.and(self.flush_component(number, coded, older));
        }
        flushed
    }

    fn flush_component(&self, number: usize, coded: &Coded, older: bool) -> Result<()> {
        let _writes = self.pass_writer(number, coded)?;
        match (coded.gathered.begin_turn(), older) {
            (now, false) => self.write_gathered(number, coded, now, 0..u64::MAX),
            (0, true) => Ok(()),
            (now, true) => self.write_gathered(number, coded, now - 1, 0..u64::MAX),
        }
    }

    /// Writes all out that is gathered. The caller has passed the gate of the component.
    pub(super) fn flush_coded(&self, number: usize, coded: &Coded) -> Result<()> {
        self.write_gathered(number, coded, coded.gathered.begin_turn(), 0..u64::MAX)
    }

    fn write_gathered(&self, number: usize, coded: &Coded, newest: u64, rows: Range<u64>) -> Result<()> {
        while let Some((claim, parts)) = coded.gathered.next(newest, &rows) {
            self.write_out(number, coded, claim, &parts)?;
        }
        Ok(())
    }

    /// Writes bytes that lie in a component; what was gathered before of the same rows goes first. The caller has passed the gate.
    pub(super) fn write_now(&self, number: usize, coded: &Coded, at: u64, bytes: &[u8]) -> Result<()> {
        if !coded.gathered.is_empty() {
            let rows = coded.shape.row(at)..coded.shape.row(at + bytes.len() as u64 - 1) + 1;
            self.write_gathered(number, coded, coded.gathered.begin_turn(), rows)?;
        }
        self.write_through(number, coded, at, bytes)
    }

    /// Keeps bytes that lie in a component, but for whole rows of which nothing was kept. The caller has passed the gate.
    pub(super) fn gather(&self, number: usize, coded: &Coded, offset: u64, bytes: &[u8]) -> Result<()> {
        let shape = &coded.shape;
        let (mut at, end) = (0, bytes.len());
        while at < end {
            let place = offset + at as u64;
            let row = shape.row(place);
            let whole = if place == shape.row_start(row) { (end - at) as u64 / shape.row_bytes() } else { 0 };
            if let Some(claim) = coded.gathered.claim_empty(row..row + whole) {
                let length = claim.rows.len() * shape.row_bytes() as usize;
                self.write_through(number, coded, place, &bytes[at..at + length])?;
                at += length;
                continue;
            }
            let next = usize::try_from(shape.row_start(row + 1) - offset).unwrap_or(end).min(end);
            self.gather_part(number, coded, place, &bytes[at..next])?;
            at = next;
        }
        Ok(())
    }

    /// The same of bytes of one row.
    fn gather_part(&self, number: usize, coded: &Coded, at: u64, bytes: &[u8]) -> Result<()> {
        let keep = || coded.gathered.keep(coded.shape.row(at), coded.shape.row_bytes(), at, bytes);
        let mut kept = keep();
        if matches!(kept, Kept::Full) && !coded.gathered.is_empty() {
            self.flush_coded(number, coded)?;
            kept = keep();
        }
        match kept {
            Kept::Here => Ok(()),
            Kept::Whole(claim, parts) => self.write_out(number, coded, claim, &parts),
            // Other files have all the room.
            Kept::Full => self.write_now(number, coded, at, bytes),
        }
    }

    /// Writes what is gathered of rows that are busy. What fails stays, all of it: what of it was written is written once more.
    fn write_out(&self, number: usize, coded: &Coded, claim: Claim<'_>, parts: &Parts) -> Result<()> {
        let shape = &coded.shape;
        let mut logged = Vec::new();
        for (at, bytes) in parts {
            let row = shape.row(*at);
            if bytes.len() as u64 != shape.row_bytes() || !self.write_fresh(number, coded, row, bytes)? {
                logged.push((*at, bytes.as_slice()));
            }
        }
        self.append_all(number, coded, &logged)?;
        claim.written();
        Ok(())
    }
}
