//! Appending to the log.

use super::record::{Head, Kind, MAX_RECORD, RECORD_LEN, Record};
use super::shape::{HALF, HALVES, HEADS};
use super::{Coded, Log};
use crate::error::Failed;
use crate::opened::Place;
use crate::{Result, StripeError, Striped};
use data::Ticket;
use data::frame::{MAX_IO, Op};
use parking_lot::MutexGuard;

impl Striped {
    /// The copies of a component's journal.
    pub(super) fn journals(&self, number: usize, coded: &Coded) -> Vec<Place> {
        let first = coded.shape.journals;
        self.places(number).filter(|place| place.object >= first).collect()
    }

    /// Appends bytes of the file to the log, in records. When this returns every copy of the journal has them, and every later read sees
    /// them.
    pub(super) fn append(&self, number: usize, coded: &Coded, offset: u64, bytes: &[u8]) -> Result<()> {
        self.append_all(number, coded, &[(offset, bytes)])
    }

    /// The same of several pieces, as many as fit in one request.
    pub(super) fn append_all(&self, number: usize, coded: &Coded, pieces: &[(u64, &[u8])]) -> Result<()> {
        let mut records: Vec<(u64, &[u8])> = Vec::new();
        for (at, bytes) in pieces {
            let offsets = (*at..).step_by(MAX_RECORD);
            records.extend(offsets.zip(bytes.chunks(MAX_RECORD)));
        }
        let mut left = records.as_slice();
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = left.iter().take_while(|(_, piece)| {
                bytes += RECORD_LEN + piece.len();
                bytes <= RECORD_LEN + MAX_RECORD
            });
            let (now, later) = left.split_at(fits.count());
            self.append_once(number, coded, now)?;
            left = later;
        }
        Ok(())
    }

    /// Appends pieces, each at most a record, in one request to each copy.
    fn append_once(&self, number: usize, coded: &Coded, pieces: &[(u64, &[u8])]) -> Result<()> {
        let whole: usize = pieces.iter().map(|(_, bytes)| RECORD_LEN + bytes.len()).sum();
        let mut log = self.with_room(number, coded, whole as u64)?;
        // Under the lock, so that every copy gets records in their order, and has none without all before it.
        let used = self.columns_to_change()?;
        let (start, epoch) = (log.end, log.head.epoch);
        let end = start + whole as u64;
        let mut records = Vec::with_capacity(whole);
        for (at, bytes) in pieces {
            let record = Record { kind: Kind::Data, epoch, at: *at, within: 0, bytes: bytes.to_vec() };
            records.extend_from_slice(&record.encode());
            log.written.extend(coded.shape.row(*at)..=coded.shape.row(at + bytes.len() as u64 - 1));
        }
        let places = self.record_places(number, coded, HALVES[(epoch % 2) as usize] + start, whole);
        log.end = end;
        let tickets: Vec<data::Result<Ticket>> =
            places.iter().map(|place| self.submit(place, Op::Write, records.clone())).collect();
        MutexGuard::unlock_fair(log);
        let appended = self.appended_everywhere(&used, &places, tickets, &records);
        let mut log = coded.log.lock();
        while log.writer && log.head.epoch == epoch && log.answered != start {
            coded.appended.wait(&mut log);
        }
        let lost = !log.writer || log.head.epoch != epoch;
        if appended.is_err() || lost {
            // What was appended behind it cannot be found: the log is read anew before anything else is written.
            log.writer = false;
        } else {
            log.answered = end;
            for (at, bytes) in pieces {
                log.view.new.insert(*at, bytes.to_vec());
                log.view.length = log.view.length.max(at + bytes.len() as u64);
            }
        }
        coded.appended.notify_all();
        appended?;
        match lost {
            false => Ok(()),
            true => Err(StripeError::Interrupted),
        }
    }

    fn appended_everywhere(
        &self,
        used: &std::sync::Arc<crate::opened::Columns>,
        places: &[Place],
        tickets: Vec<data::Result<Ticket>>,
        record: &[u8],
    ) -> Result<()> {
        let mut again = Vec::new();
        let mut failures = Vec::new();
        for (place, ticket) in places.iter().zip(tickets) {
            if used[place.component][usize::from(place.column)].is_none() {
                continue;
            }
            if let Err(source) = ticket.and_then(Ticket::wait) {
                again.push(*place);
                failures.push(Failed { component: place.component, column: place.column, source });
            }
        }
        failures.iter().try_for_each(|failed| self.decide(used, failed))?;
        if again.is_empty() {
            return Ok(());
        }
        self.everywhere(Op::Write, &again, &|_| record.to_vec())
    }

    /// The log, with so much room in the half that is appended to. Where there is none in either half, folds first.
    fn with_room<'a>(
        &self,
        number: usize,
        coded: &'a Coded,
        whole: u64,
    ) -> Result<parking_lot::MutexGuard<'a, Log>> {
        loop {
            let log = coded.log.lock();
            if !log.writer {
                return Err(StripeError::Interrupted);
            }
            if log.head.epoch > 0 && log.end + whole <= HALF {
                return Ok(log);
            }
            drop(log);
            let one = coded.folding.lock();
            let log = coded.log.lock();
            if log.writer && (log.head.epoch == 0 || log.end + whole > HALF) {
                drop(log);
                self.fold_old(number, coded)?;
                self.begin_epoch(number, coded)?;
            }
            drop(one);
        }
    }

    /// From now on records go to the other half, of which nothing counts any more. What was appended before is being folded. That is durable before any record
    /// of the new epoch is written: should it be lost, they would not be found, and those of another one would be taken for theirs.
    pub(super) fn begin_epoch(&self, number: usize, coded: &Coded) -> Result<()> {
        let mut log = coded.log.lock();
        while log.writer && log.answered != log.end {
            coded.appended.wait(&mut log);
        }
        if !log.writer {
            return Err(StripeError::Interrupted);
        }
        let head = Head { count: log.head.count + 1, epoch: log.head.epoch + 1, ..log.head };
        // Nobody appends meanwhile.
        self.durably(&self.journals(number, coded), || self.write_head(number, coded, &head))?;
        log.head = head;
        (log.end, log.answered) = (0, 0);
        log.view.old = std::mem::take(&mut log.view.new);
        Ok(())
    }

    pub(super) fn write_head(&self, number: usize, coded: &Coded, head: &Head) -> Result<()> {
        let bytes = head.encode();
        let offset = HEADS[(head.count % 2) as usize];
        let places = self.record_places(number, coded, offset, bytes.len());
        self.everywhere(Op::Write, &places, &|_| bytes.to_vec())
    }

    /// A range of every journal.
    pub(super) fn record_places(
        &self,
        number: usize,
        coded: &Coded,
        offset: u64,
        length: usize,
    ) -> Vec<Place> {
        let journals = self.journals(number, coded);
        journals.into_iter().map(|place| Place { offset, length, ..place }).collect()
    }

    /// Writes the same bytes, as many as there are, to every journal.
    pub(super) fn write_journals(
        &self,
        number: usize,
        coded: &Coded,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        bytes.chunks(MAX_IO).enumerate().try_for_each(|(n, bytes)| {
            let places = self.record_places(number, coded, offset + (n * MAX_IO) as u64, bytes.len());
            self.everywhere(Op::Write, &places, &|_| bytes.to_vec())
        })
    }

    /// What was written to journals is durable.
    pub(super) fn sync_journals(&self, number: usize, coded: &Coded) -> Result<()> {
        self.everywhere(Op::Sync, &self.journals(number, coded), &|_| Vec::new())
    }
}
