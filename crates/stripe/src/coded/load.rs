//! What the journals say: for readers beside a writer, and for the next writer.

use super::record::{Head, Kind, Next, Record, next};
use super::shape::{HALF, HALVES, HEADS, REDO, Seal};
use super::{Coded, Redo, View};
use crate::opened::Place;
use crate::read::helps;
use crate::{Result, StripeError, Striped};
use data::frame::{MAX_IO, Op};
use data::{DataError, Ticket};

/// Bytes of a log that are read at once.
const STEP: usize = 256 << 10;

/// What was found.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) head: Head,
    pub(super) view: View,
    /// The log as it lies in the halves: where, and what. The next writer makes all copies have it.
    pub(super) halves: Vec<(u64, Vec<u8>)>,
    /// Where the log of the epoch ends in its half.
    pub(super) end: u64,
    /// Number that is above those of all folds.
    pub(super) turn: u64,
    /// The copies that answered, and their lengths.
    pub(super) copies: Vec<(Place, u64)>,
}

/// A log as one copy has it.
#[derive(Default)]
pub(super) struct Scanned {
    raw: Vec<u8>,
    pub(super) records: Vec<Record>,
}

impl Striped {
    /// Reads what the log says, from all copies or, as every copy that counts has everything that was answered, from one.
    pub(super) fn load(&self, number: usize, coded: &Coded, all: bool) -> Result<Loaded> {
        let mut loaded = Loaded::default();
        let mut last = None;
        for journal in self.journals(number, coded) {
            if !self.is_present(number, journal.column) {
                continue;
            }
            match self.read_heads(&journal) {
                Ok((head, length)) => {
                    loaded.copies.push((journal, length));
                    loaded.head = if head.count > loaded.head.count { head } else { loaded.head };
                    if !all {
                        break;
                    }
                }
                Err(e) => match &e {
                    StripeError::Mover { source, .. } if helps(source) => {
                        self.missed(number, journal.column, source);
                        last = Some(e);
                    }
                    _ => return Err(e),
                },
            }
        }
        if loaded.copies.is_empty() {
            return Err(last.unwrap_or(StripeError::Columns { component: number, wanted: 1, found: 0 }));
        }
        self.load_logs(number, coded, &mut loaded)?;
        self.load_redo(number, coded, &mut loaded)?;
        loaded.view.length = self.sealed_length(number, coded, &loaded.copies)?;
        let logged = loaded.view.old.end().max(loaded.view.new.end());
        loaded.view.length = loaded.view.length.max(logged);
        Ok(loaded)
    }

    /// Of a record of what is not there.
    pub(super) fn no_such_place(&self, journal: &Place) -> StripeError {
        let what = "has a record of bytes that the file cannot have";
        StripeError::Journal { target: self.target(journal.component, journal.column), what }
    }

    fn load_logs(&self, number: usize, coded: &Coded, loaded: &mut Loaded) -> Result<()> {
        let Head { epoch, folded, .. } = loaded.head;
        for live in (folded + 1..=epoch).rev().take(2) {
            let at = HALVES[(live % 2) as usize];
            let scanned = self.scan_best(number, loaded, at..at + HALF, &|_, record| record.epoch == live)?;
            let view = if live == epoch { &mut loaded.view.new } else { &mut loaded.view.old };
            for record in scanned.records.into_iter().filter(|record| record.kind == Kind::Data) {
                if !coded.shape.has(record.at, record.bytes.len() as u64) {
                    return Err(self.no_such_place(&loaded.copies[0].0));
                }
                view.insert(record.at, record.bytes);
            }
            loaded.end = if live == epoch { scanned.raw.len() as u64 } else { loaded.end };
            loaded.halves.push((at, scanned.raw));
        }
        Ok(())
    }

    fn load_redo(&self, number: usize, coded: &Coded, loaded: &mut Loaded) -> Result<()> {
        let shape = &coded.shape;
        let least = loaded.head.turn;
        let belongs = |first: Option<&Record>, record: &Record| {
            record.kind == Kind::Redo
                && record.epoch >= least
                && first.is_none_or(|first| first.epoch == record.epoch)
        };
        let scanned = self.scan_best(number, loaded, REDO, &belongs)?;
        loaded.turn = scanned.records.first().map_or(least, |record| record.epoch + 1);
        for record in scanned.records {
            let Some(length) = record.bytes.len().checked_sub(shape.seal_len()) else { continue };
            if !shape.has_cells(record.at, record.within, (length / shape.m) as u64) {
                return Err(self.no_such_place(&loaded.copies[0].0));
            }
            let (seal, parity) = record.bytes.split_at(shape.seal_len());
            let redo = loaded.view.redo.entry(record.at);
            let redo = redo.or_insert_with(|| Redo { seal: Seal::empty(shape), parity: Default::default() });
            redo.seal = Seal(seal.to_vec());
            if length > 0 && length.is_multiple_of(shape.m) {
                let units = parity.chunks(length / shape.m).map(<[u8]>::to_vec).collect();
                redo.parity.insert(record.within, units);
            }
        }
        Ok(())
    }

    /// The head of a journal that is in force, and the length of the journal as it is with that head, or is later.
    fn read_heads(&self, journal: &Place) -> Result<(Head, u64)> {
        let head = self.head_of(journal, self.ask_heads(journal))?;
        // With the answer to a read comes a length from before its bytes, which may lack seals; and a read may be asked for twice.
        let stat = self.submit(journal, Op::Stat, Vec::new()).and_then(Ticket::wait);
        let failed = |source| self.failed(journal.component, journal.column, source);
        Ok((head, stat.map_err(failed)?.object_length))
    }

    pub(super) fn ask_heads(&self, journal: &Place) -> data::Result<Ticket> {
        self.submit(&Place { offset: 0, length: HALVES[0] as usize, ..*journal }, Op::Read, Vec::new())
    }

    pub(super) fn head_of(&self, journal: &Place, asked: data::Result<Ticket>) -> Result<Head> {
        let failed = |source| self.failed(journal.component, journal.column, source);
        let reply = asked.and_then(Ticket::wait).map_err(failed)?;
        let heads = HEADS.map(|at| reply.bytes.get(at as usize..).and_then(Head::decode));
        match heads.into_iter().flatten().max_by_key(|head| head.count) {
            Some(head) => Ok(head),
            None if reply.bytes.iter().all(|byte| *byte == 0) => Ok(Head::default()),
            None => Err(StripeError::Journal {
                target: self.target(journal.component, journal.column),
                what: "has no head that this release understands",
            }),
        }
    }

    /// The log in a range of journals: from the copy that has most of it. What one has more than the others was never answered.
    fn scan_best(
        &self,
        number: usize,
        loaded: &Loaded,
        range: std::ops::Range<u64>,
        belongs: &dyn Fn(Option<&Record>, &Record) -> bool,
    ) -> Result<Scanned> {
        let mut best = Scanned::default();
        let mut failed = None;
        let mut answered = false;
        for (journal, length) in &loaded.copies {
            let range = range.start..range.end.min(*length);
            match self.scan(journal, range, Vec::new(), belongs) {
                Ok(scanned) => {
                    answered = true;
                    let rank = |s: &Scanned| (s.records.first().map_or(0, |first| first.epoch), s.raw.len());
                    best = if rank(&scanned) > rank(&best) { scanned } else { best };
                }
                Err(e) if helps(&e) => failed = Some((journal.column, e)),
                Err(source) => return Err(self.failed(number, journal.column, source)),
            }
        }
        match failed {
            Some((column, source)) if !answered => Err(self.failed(number, column, source)),
            _ => Ok(best),
        }
    }

    /// The log in a range of a journal, of which the first bytes may have been read.
    pub(super) fn scan(
        &self,
        journal: &Place,
        range: std::ops::Range<u64>,
        mut raw: Vec<u8>,
        belongs: &dyn Fn(Option<&Record>, &Record) -> bool,
    ) -> Result<Scanned, DataError> {
        let mut scanned = Scanned::default();
        let mut used = 0;
        loop {
            match next(&raw[used..]) {
                Next::Record(record, length) if belongs(scanned.records.first(), &record) => {
                    scanned.records.push(record);
                    used += length;
                }
                Next::Record(..) | Next::End => break,
                Next::More(wanted) => {
                    let at = range.start + raw.len() as u64;
                    let missing = (used + wanted - raw.len()).clamp(STEP, MAX_IO);
                    let length = missing.min(range.end.saturating_sub(at) as usize);
                    let place = Place { offset: at, length, ..*journal };
                    let got = match length {
                        0 => Vec::new(),
                        _ => self.submit(&place, Op::Read, Vec::new()).and_then(Ticket::wait)?.bytes,
                    };
                    if got.is_empty() {
                        break;
                    }
                    raw.extend(got);
                }
            }
        }
        raw.truncate(used);
        scanned.raw = raw;
        Ok(scanned)
    }

    /// Length of the file as the last seal has it, the greatest of the copies.
    pub(super) fn sealed_length(&self, number: usize, coded: &Coded, copies: &[(Place, u64)]) -> Result<u64> {
        let shape = &coded.shape;
        let mut longest = 0;
        for (journal, length) in copies {
            // A seal that was torn before it was answered says nothing.
            for row in (0..shape.sealed_rows(*length)).rev() {
                let seal = self.read_seal(coded, journal, row);
                let end = seal.map_err(|source| self.failed(number, journal.column, source))?.end();
                if end > 0 {
                    longest = longest.max(shape.row_start(row) + end.min(shape.row_bytes()));
                    break;
                }
            }
        }
        Ok(longest)
    }
}
