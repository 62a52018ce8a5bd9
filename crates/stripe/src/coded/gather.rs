//! Writing behind: of rows that are not complete the bytes stay in memory until they are, and then go to their columns at once, with parity and
//! seals; or until somebody asks for them, or memory runs out: then into the log.
//!
//! What is here lies over everything else: it is the newest there is. It goes when the columns or the log have it, not before, so whoever reads
//! looks here first; and it stays when they do not take it, to be written later. A row that is being written out is *busy*: nothing of it
//! changes here meanwhile, whoever writes to it waits.
//!
//! Writers that fill rows together drift apart: of a row that is complete one of them writes all, while the others go on. So whoever would
//! begin a row while many are in memory waits a moment (`pace`) for those behind him, and writes what they complete meanwhile, so that they go on.

use super::Coded;
use super::extents::Extents;
use super::failures::Failures;
use super::pace::{LEAST, LONGER, Pace, WINDOW};
use super::record::MAX_RECORD;
use super::room::Room;
use crate::write::NOBODY;
use crate::{Result, StripeError, Striped};
use parking_lot::{Condvar, Mutex};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// What a piece counts for besides its bytes.
const PIECE: u64 = 128;

/// What is gathered of a component.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    state: Mutex<State>,
    /// Rows are not busy any more.
    released: Condvar,
    /// For who runs ahead: something is to be done, or there is room again.
    turn: Condvar,
    /// None: nothing is gathered.
    room: Option<Arc<Room>>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<u64, Row>,
    /// Rows that are being written.
    busy: BTreeSet<u64>,
    /// Rows that are complete and not busy.
    whole: BTreeSet<u64>,
    /// How many wait because they run ahead, and whether that is of use.
    waiting: usize,
    pace: Pace,
    /// Counts rows that were completed, or written out.
    moved: u64,
    /// What all that is here counts for, as it was taken of the room.
    charge: u64,
    /// Counts how often somebody has begun to write out: rows have the number from when they began.
    turn: u64,
}

#[derive(Debug, Default)]
struct Row {
    /// Shared with who writes them out: they do not change meanwhile.
    pieces: Arc<Extents>,
    turn: u64,
    /// As `Pace` counts rows.
    number: u64,
    /// The least number of what was written to it.
    least: u64,
    /// It has all its bytes.
    whole: bool,
}

impl Row {
    fn charge(&self) -> u64 {
        self.pieces.bytes() + self.pieces.count() * PIECE
    }
}

/// What there is of some rows.
type Parts = Vec<Arc<Extents>>;

/// Which rows are written out.
struct Which {
    /// They began up to this turn.
    newest: u64,
    /// Something of a lower number was written to them; None: whatever was.
    below: Option<u64>,
    range: Range<u64>,
}

/// What became of bytes that were to be kept.
enum Kept<'a> {
    Here,
    /// A row is complete and nobody waits for one to write: whoever brought them writes it.
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
    /// The columns or the log have all that is gathered of these of them; the others are left.
    fn written(self, rows: &[u64]) {
        let mut state = self.gathered.state.lock();
        for row in rows {
            let charge = state.rows.remove(row).map_or(0, |row| row.charge());
            state.charge -= charge;
            self.gathered.give(charge);
        }
        state.moved += 1;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.gathered.state.lock();
        for row in &self.rows {
            state.busy.remove(row);
            if state.rows.get(row).is_some_and(|row| row.whole) {
                state.whole.insert(*row);
            }
        }
        self.gathered.released.notify_all();
        if state.waiting > 0 {
            self.gathered.turn.notify_all();
        }
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

    fn has_whole(&self) -> bool {
        !self.state.lock().whole.is_empty()
    }

    /// The least number of what is here.
    fn least(&self) -> Option<u64> {
        self.state.lock().rows.values().map(|row| row.least).min()
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

    /// Waits where bytes would begin one more of rows of so many bytes, while there are many. True: rows are complete that have to be written
    /// out first; then it is asked again.
    fn hold_back(&self, (row, row_bytes): (u64, u64), most: u64) -> bool {
        let Some(room) = &self.room else { return false };
        let window = (WINDOW * row_bytes).min(room.most() / 2).min(most).max(LEAST * row_bytes);
        let mut state = self.state.lock();
        if state.charge < window || state.rows.contains_key(&row) {
            return false;
        }
        let (mut moved, mut since) = (state.moved, Instant::now());
        loop {
            if !state.whole.is_empty() {
                return true;
            }
            if state.charge < window / 2 || !state.pace.holds() || state.rows.contains_key(&row) {
                return false;
            }
            let until = since + room.moment * if state.busy.is_empty() { 1 } else { LONGER };
            state.waiting += 1;
            self.turn.wait_until(&mut state, until);
            state.waiting -= 1;
            if state.moved != moved {
                (moved, since) = (state.moved, Instant::now());
            } else if Instant::now() >= until {
                state.pace.give_up();
                self.turn.notify_all();
            }
        }
    }

    /// A row that is complete, to be written out.
    fn claim_whole(&self, state: &mut State) -> Option<(Claim<'_>, Parts)> {
        let row = state.whole.pop_first()?;
        state.busy.insert(row);
        let parts = state.rows.get(&row).map(|row| row.pieces.clone()).into_iter().collect();
        Some((Claim { gathered: self, rows: vec![row] }, parts))
    }

    fn next_whole(&self) -> Option<(Claim<'_>, Parts)> {
        self.claim_whole(&mut self.state.lock())
    }

    /// Keeps bytes of a number that lie in one row of so many.
    fn keep(&self, (row, row_bytes): (u64, u64), number: u64, (at, bytes): (u64, &[u8])) -> Kept<'_> {
        let Some(room) = &self.room else { return Kept::Full };
        let bytes = bytes.to_vec();
        let mut guard = self.state.lock();
        while guard.busy.contains(&row) {
            self.released.wait(&mut guard);
        }
        let state = &mut *guard;
        // What it lies on may fall in two.
        let most = bytes.len() as u64 + 2 * PIECE;
        if state.charge + most > room.most() || !room.take(most) {
            return Kept::Full;
        }
        let new = || Row { turn: state.turn, number: state.pace.begin(), least: u64::MAX, ..Row::default() };
        let kept = state.rows.entry(row).or_insert_with(new);
        kept.least = kept.least.min(number);
        let before = kept.charge();
        Arc::make_mut(&mut kept.pieces).insert(at, bytes);
        let after = kept.charge();
        state.charge = state.charge + after - before;
        room.give(before + most - after);
        if kept.pieces.bytes() < row_bytes {
            return Kept::Here;
        }
        kept.whole = true;
        state.pace.complete(kept.number);
        state.moved += 1;
        state.whole.insert(row);
        if state.whole.len() <= state.waiting {
            self.turn.notify_one();
            return Kept::Here;
        }
        self.claim_whole(state).map_or(Kept::Here, |(claim, parts)| Kept::Whole(claim, parts))
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
    /// is left but those that have failed. Waits for those that others write: if they fail, they are left.
    fn next(&self, which: &Which, failed: &BTreeSet<u64>) -> Option<(Claim<'_>, Parts)> {
        let Which { newest, below, range } = which;
        let mut state = self.state.lock();
        loop {
            let (mut rows, mut parts, mut bytes, mut busy) = (Vec::new(), Parts::new(), 0, false);
            let tried = |number: &u64, row: &Row| {
                row.turn > *newest || below.is_some_and(|below| row.least >= below) || failed.contains(number)
            };
            for (number, row) in state.rows.range(range.clone()).filter(|(number, row)| !tried(number, row)) {
                if state.busy.contains(number) {
                    busy = true;
                    continue;
                }
                bytes += row.pieces.bytes();
                if !rows.is_empty() && bytes > MAX_RECORD as u64 {
                    break;
                }
                rows.push(*number);
                parts.push(row.pieces.clone());
            }
            if !rows.is_empty() {
                state.whole.retain(|row| !rows.contains(row));
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

    /// The least number of what [`Striped::write_numbered`] got, and is in the memory of this process only; None: nothing is.
    pub fn least_gathered(&self) -> Option<u64> {
        self.coded.iter().flatten().filter_map(|coded| coded.gathered.least()).min()
    }

    /// Writes what was gathered where every reader finds it, wherever he is. It is durable after [`Striped::sync`].
    ///
    /// # Errors
    /// `Mover`, `Lost`: what could not be written is still in memory, and is written by the next call.
    pub fn flush(&self) -> Result<()> {
        self.waiting(|| self.flush_once(false, None))
    }

    /// The same of rows to which something of a number below this one was written, so that [`Striped::least_gathered`] is not below it.
    ///
    /// # Errors
    /// As [`Striped::flush`].
    pub fn flush_below(&self, number: u64) -> Result<()> {
        self.waiting(|| self.flush_once(false, Some(number)))
    }

    /// The same of rows that were there at the last call of this: who calls it every second leaves alone what is being filled.
    ///
    /// # Errors
    /// As [`Striped::flush`].
    pub fn flush_older(&self) -> Result<()> {
        self.renewing(|| self.flush_once(true, None))
    }

    fn flush_once(&self, older: bool, below: Option<u64>) -> Result<()> {
        let _passed = self.gate.read();
        let mut failures = Failures::default();
        for (number, coded) in self.coded.iter().enumerate() {
            let Some(coded) = coded.as_ref().filter(|coded| !coded.gathered.is_empty()) else { continue };
            // Others have other targets: they go on.
            if let Err(e) = self.flush_component(number, coded, (older, below)) {
                failures.note(e);
            }
        }
        failures.outcome()
    }

    fn flush_component(
        &self,
        number: usize,
        coded: &Coded,
        (older, below): (bool, Option<u64>),
    ) -> Result<()> {
        let (mut failures, mut newest) = (Failures::default(), None);
        loop {
            // Again after a failure: then the log is read anew before more is appended.
            let _writes = match self.pass_writer(number, coded) {
                Ok(writes) => writes,
                Err(e) => {
                    failures.note(e);
                    return failures.outcome();
                }
            };
            let now = *newest.get_or_insert_with(|| coded.gathered.begin_turn());
            let Some(now) = now.checked_sub(u64::from(older)) else { return Ok(()) };
            let which = Which { newest: now, below, range: 0..u64::MAX };
            if self.write_gathered(number, coded, &which, &mut failures) {
                return failures.outcome();
            }
        }
    }

    /// Writes all out that is gathered. The caller has passed the gate of the component.
    pub(super) fn flush_coded(&self, number: usize, coded: &Coded) -> Result<()> {
        self.flush_rows(number, coded, 0..u64::MAX)
    }

    fn flush_rows(&self, number: usize, coded: &Coded, rows: Range<u64>) -> Result<()> {
        let mut failures = Failures::default();
        let which = Which { newest: coded.gathered.begin_turn(), below: None, range: rows };
        match self.write_gathered(number, coded, &which, &mut failures) {
            true => failures.outcome(),
            // Who gets this begins anew, as a writer who has read the log.
            false => failures.outcome().and(Err(StripeError::Interrupted)),
        }
    }

    /// Writes out what began up to a turn. What fails keeps none of the others from being written, unless those would fail in the same way.
    /// False: some is left because the log has to be read before.
    fn write_gathered(&self, number: usize, coded: &Coded, which: &Which, failures: &mut Failures) -> bool {
        while !failures.ends {
            if !coded.log.lock().writer {
                return false;
            }
            let Some((claim, parts)) = coded.gathered.next(which, &failures.rows) else { break };
            self.write_claimed(number, coded, claim, &parts, failures);
        }
        true
    }

    /// Writes bytes that lie in a component; what was gathered before of the same rows goes first. The caller has passed the gate.
    pub(super) fn write_now(&self, number: usize, coded: &Coded, at: u64, bytes: &[u8]) -> Result<()> {
        if !coded.gathered.is_empty() {
            let rows = coded.shape.row(at)..coded.shape.row(at + bytes.len() as u64 - 1) + 1;
            self.flush_rows(number, coded, rows)?;
        }
        self.write_through(number, coded, at, bytes)
    }

    /// Keeps bytes that lie in a component, but for whole rows of which nothing was kept. The caller has passed the gate.
    pub(super) fn gather(
        &self,
        number: usize,
        coded: &Coded,
        behind: u64,
        (offset, bytes): (u64, &[u8]),
    ) -> Result<()> {
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
            self.gather_part(number, coded, behind, (place, &bytes[at..next]))?;
            at = next;
        }
        Ok(())
    }

    /// The same of bytes of one row.
    fn gather_part(
        &self,
        number: usize,
        coded: &Coded,
        behind: u64,
        (at, bytes): (u64, &[u8]),
    ) -> Result<()> {
        let row = (coded.shape.row(at), coded.shape.row_bytes());
        let keep = || coded.gathered.keep(row, behind, (at, bytes));
        let mut kept = keep();
        if matches!(kept, Kept::Full) && !coded.gathered.is_empty() {
            self.flush_coded(number, coded)?;
            kept = keep();
        }
        match kept {
            Kept::Here => Ok(()),
            Kept::Whole(claim, parts) if behind == NOBODY => self.write_out(number, coded, claim, &parts),
            // Whoever has it written by others is answered before.
            Kept::Whole(..) => Ok(()),
            // Other files have all the room.
            Kept::Full => self.write_now(number, coded, at, bytes),
        }
    }

    /// Before bytes are kept that begin rows: who runs ahead of others waits for them, and writes what they complete. He holds
    /// nothing alone that those others need. That begins before more than `most` bytes are in memory, if not earlier, but for those of a few rows.
    ///
    /// # Errors
    /// As [`Striped::write_behind`].
    pub fn hold_back(&self, offset: u64, length: usize, most: u64) -> Result<()> {
        let end = offset.saturating_add(length as u64);
        for (number, coded) in self.coded.iter().enumerate() {
            let Some(coded) = coded else { continue };
            let shape = &coded.shape;
            let (from, to) = (offset.max(shape.range.start), end.min(shape.range.end));
            if from >= to {
                continue;
            }
            let (first, last) = (shape.row(from), shape.row(to - 1));
            let in_part = |row: &u64| from > shape.row_start(*row) || to < shape.row_start(*row + 1);
            for row in BTreeSet::from([first, last]).into_iter().filter(in_part) {
                while coded.gathered.hold_back((row, shape.row_bytes()), most) {
                    self.waiting(|| self.write_whole(number, coded))?;
                }
            }
        }
        Ok(())
    }

    /// Whether rows are complete that nobody writes.
    pub fn has_completed(&self) -> bool {
        self.coded.iter().flatten().any(|coded| coded.gathered.has_whole())
    }

    /// Writes the rows that [`Striped::write_numbered`] has completed.
    ///
    /// # Errors
    /// As [`Striped::flush`].
    pub fn write_completed(&self) -> Result<()> {
        for (number, coded) in self.coded.iter().enumerate() {
            let Some(coded) = coded else { continue };
            while coded.gathered.has_whole() {
                self.waiting(|| self.write_whole(number, coded))?;
            }
        }
        Ok(())
    }

    /// Writes a row that is complete, if there is one.
    fn write_whole(&self, number: usize, coded: &Coded) -> Result<()> {
        let _passed = self.gate.read();
        let _writes = self.pass_writer(number, coded)?;
        match coded.gathered.next_whole() {
            Some((claim, parts)) => self.write_out(number, coded, claim, &parts),
            None => Ok(()),
        }
    }

    /// Writes what is gathered of rows that are busy. What fails stays, all of it: what of it was written is written once more.
    fn write_out(&self, number: usize, coded: &Coded, claim: Claim<'_>, parts: &Parts) -> Result<()> {
        let mut failures = Failures::default();
        self.write_claimed(number, coded, claim, parts, &mut failures);
        failures.outcome()
    }

    fn write_claimed(
        &self,
        number: usize,
        coded: &Coded,
        claim: Claim<'_>,
        parts: &Parts,
        failures: &mut Failures,
    ) {
        let shape = &coded.shape;
        let (mut written, mut in_log) = (Vec::new(), Vec::new());
        let mut logged: Vec<(u64, Cow<'_, [u8]>)> = Vec::new();
        for (row, pieces) in claim.rows.iter().zip(parts) {
            if pieces.bytes() < shape.row_bytes() {
                in_log.push(*row);
                logged.extend(pieces.runs(0..u64::MAX));
                continue;
            }
            let (at, bytes) = pieces.joined();
            match self.write_fresh(number, coded, shape.row(at), &bytes) {
                Ok(true) => written.push(*row),
                Ok(false) => {
                    in_log.push(*row);
                    logged.push((at, Cow::Owned(bytes)));
                }
                Err(e) => failures.note_rows(e, [*row]),
            }
            if failures.ends {
                return claim.written(&written);
            }
        }
        let logged: Vec<(u64, &[u8])> = logged.iter().map(|(at, bytes)| (*at, bytes.as_ref())).collect();
        match self.append_all(number, coded, &logged) {
            Ok(()) => written.extend(in_log),
            Err(e) => failures.note_rows(e, in_log),
        }
        claim.written(&written);
    }
}
