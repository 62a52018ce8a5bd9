//! What a reader beside the writer knows of the log, and how it is kept true: each read asks one copy of the journal whether it still is what
//! it was, instead of reading all of it.
//!
//! While a head is in force its log only grows, and what has come lies behind the end that is known. Another head, another journal or other
//! columns (a new generation) make the reader read everything anew. What a fold has computed is not remembered: who computes lost
//! bytes reads that himself.
//!
//! Of a file that nobody changes meanwhile ([`Striped::quiet`]) it is read once, and nothing is asked. If it cannot be read, that is not tried again either.

use super::load::Loaded;
use super::record::{Head, Kind, RECORD_LEN, Record};
use super::shape::{HALF, HALVES};
use super::{Coded, View};
use crate::opened::{Columns, Place};
use crate::read::helps;
use crate::{Result, StripeError, Striped};
use data::Ticket;
use data::frame::Op;
use std::ops::Range;
use std::sync::Arc;

/// Bytes behind the known end of a log that are asked for together with the heads.
const NEAR: usize = 4096;

/// The log as it was when it was looked at last.
#[derive(Debug)]
pub(super) struct Seen {
    mark: Mark,
    pub(super) view: View,
    /// A fold had begun to change rows.
    pub(super) folds: bool,
}

/// By which it is known again.
#[derive(Clone, Debug)]
struct Mark {
    columns: Arc<Columns>,
    journal: Place,
    head: Head,
    /// Where the log of the epoch ends in its half.
    end: u64,
}

impl Mark {
    /// Whether both are of one journal while one head is in force there.
    fn is_of(&self, other: &Self) -> bool {
        let same = (self.head, self.journal.column) == (other.head, other.journal.column);
        same && Arc::ptr_eq(&self.columns, &other.columns)
    }

    fn is_later(&self, other: &Self) -> bool {
        let place = |mark: &Self| (mark.head.count, mark.end);
        Arc::ptr_eq(&self.columns, &other.columns) && place(self) > place(other)
    }
}

impl Striped {
    /// What lies over the columns in a range now, beside the writer.
    pub(super) fn look(&self, number: usize, coded: &Coded, range: Range<u64>) -> Result<View> {
        if !self.quiet {
            return self.look_anew(number, coded, range);
        }
        // One reads it for all.
        let _one = coded.folding.lock();
        if let Some(seen) = &*coded.seen.lock() {
            return Ok(seen.view.part(range, seen.view.length));
        }
        let mut unseen = coded.unseen.lock();
        if let Some(error) = &*unseen {
            return Err(error.clone());
        }
        let looked = self.look_anew(number, coded, range);
        *unseen = looked.as_ref().err().cloned();
        looked
    }

    fn look_anew(&self, number: usize, coded: &Coded, range: Range<u64>) -> Result<View> {
        let columns = self.columns();
        let known = coded.seen.lock().as_ref().map(|seen| seen.mark.clone());
        if let Some(mark) = known.filter(|mark| Arc::ptr_eq(&mark.columns, &columns)) {
            match self.follow(number, coded, &mark, range.clone()) {
                Ok(Some(part)) => return Ok(part),
                Ok(None) => {}
                // Another copy may answer.
                Err(StripeError::Mover { source, .. }) if helps(&source) => {}
                Err(e) => return Err(e),
            }
        }
        let Loaded { head, mut view, end, copies, .. } = self.load(number, coded, false)?;
        let folds = !view.redo.is_empty();
        view.redo.clear();
        let part = view.part(range, view.length);
        if let Some((journal, _)) = copies.first() {
            let mark = Mark { columns, journal: *journal, head, end };
            let mut seen = coded.seen.lock();
            if seen.as_ref().is_none_or(|other| !other.mark.is_later(&mark)) {
                *seen = Some(Seen { mark, view, folds });
            }
        }
        Ok(part)
    }

    /// Takes in what was appended since; None if everything has to be read anew.
    fn follow(&self, number: usize, coded: &Coded, mark: &Mark, range: Range<u64>) -> Result<Option<View>> {
        let epoch = mark.head.epoch;
        let half = HALVES[(epoch % 2) as usize];
        let log = half + mark.end..half + HALF;
        // The mover answers in this order: what it has of the log is of these heads, or of later ones that this read need not know.
        let heads = self.ask_heads(&mark.journal);
        let near =
            Place { offset: log.start, length: NEAR.min((log.end - log.start) as usize), ..mark.journal };
        let near = self.submit(&near, Op::Read, Vec::new());
        let head = self.head_of(&mark.journal, heads)?;
        if head != mark.head {
            return Ok(None);
        }
        let failed = |source| self.failed(number, mark.journal.column, source);
        let near = near.and_then(Ticket::wait).map_err(failed)?;
        // From after the head was read: all seals that it tells of are there.
        let (near, length) = (near.bytes, near.object_length);
        let belongs = |_: Option<&Record>, record: &Record| record.epoch == epoch;
        // What was folded is in the columns, and may have been changed there since.
        let end = if head.folded < epoch { log.end.min(length) } else { log.start };
        let near = if head.folded < epoch { near } else { Vec::new() };
        let log = log.start..end;
        let scanned = self.scan(&mark.journal, log, near, &belongs).map_err(failed)?;
        let sealed = self.sealed_length(number, coded, &[(mark.journal, length)])?;
        let mut seen = coded.seen.lock();
        let Some(seen) = seen.as_mut().filter(|seen| seen.mark.is_of(mark)) else { return Ok(None) };
        let mut at = mark.end;
        for record in scanned.records {
            let end = at + (RECORD_LEN + record.bytes.len()) as u64;
            // Another reader may have taken it in meanwhile.
            if at >= seen.mark.end {
                let is_data = record.kind == Kind::Data;
                if is_data && !coded.shape.has(record.at, record.bytes.len() as u64) {
                    return Err(self.no_such_place(&mark.journal));
                }
                seen.mark.end = end;
                if is_data {
                    seen.view.new.insert(record.at, record.bytes);
                }
            }
            at = end;
        }
        let length = sealed.max(seen.view.old.end()).max(seen.view.new.end());
        Ok(Some(seen.view.part(range, length)))
    }
}
