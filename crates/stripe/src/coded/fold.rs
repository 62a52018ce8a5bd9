//! Folding: what lies in the log goes into rows, and the next writer's beginning, which folds what was left.

use super::load::Loaded;
use super::record::{Head, Kind, RECORD_LEN, Record};
use super::shape::{CELL, REDO, Seal};
use super::units::Cells;
use super::write::sealed;
use super::{Coded, View};
use crate::opened::Place;
use crate::{Result, StripeError, Striped};
use data::frame::{MAX_IO, Op};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of parity that one record of a fold has at most.
const REDO_BYTES: usize = 1 << 20;
/// Bytes of records that are folded at once.
const BATCH: usize = 8 << 20;

/// What becomes of a part of a row.
struct Fold {
    cells: Cells,
    parity: Vec<Vec<u8>>,
    seal: Seal,
}

impl Striped {
    /// Folds what was gathered, or is in the logs, into rows, also what another writer has left there: who calls this may write. Writes go on meanwhile; a
    /// service calls it when nobody has written for a while, so that whoever does finds room.
    ///
    /// # Errors
    /// `Mover`, `Lost`: what is not folded stays in the log.
    pub fn fold(&self) -> Result<()> {
        let _passed = self.gate.read();
        let all = self.coded.iter().enumerate().filter_map(|(number, coded)| Some((number, coded.as_ref()?)));
        // One that cannot be folded keeps none of the others from it.
        all.map(|(number, coded)| self.fold_component(number, coded)).fold(Ok(()), Result::and)
    }

    fn fold_component(&self, number: usize, coded: &Coded) -> Result<()> {
        self.become_writer(number, coded)?;
        let _passed = coded.gate.read();
        if coded.log.lock().writer {
            self.flush_coded(number, coded)?;
            self.fold_all(number, coded)?;
        }
        Ok(())
    }

    /// Whether something of it is coded.
    pub fn is_coded(&self) -> bool {
        self.coded.iter().any(Option::is_some)
    }

    /// Bytes of the file that are not in rows, about; asks a journal where nobody has written through this.
    ///
    /// # Errors
    /// `Mover`.
    pub fn logged(&self) -> Result<u64> {
        let mut bytes = 0;
        for (number, coded) in self.coded.iter().enumerate() {
            let Some(coded) = coded else { continue };
            let own = {
                let log = coded.log.lock();
                log.writer.then(|| u64::from(log.head.folded + 1 < log.head.epoch) + log.end)
            };
            bytes += coded.gathered.bytes();
            bytes += match own {
                Some(own) => own,
                None => {
                    let loaded = self.load(number, coded, false)?;
                    let halves = loaded.halves.iter().map(|(_, raw)| raw.len() as u64).sum::<u64>();
                    halves + loaded.view.redo.len() as u64
                }
            };
        }
        Ok(bytes)
    }

    /// Folds everything that was appended before.
    pub(super) fn fold_all(&self, number: usize, coded: &Coded) -> Result<()> {
        let _one = coded.folding.lock();
        self.fold_old(number, coded)?;
        if coded.log.lock().end > 0 {
            self.begin_epoch(number, coded)?;
            self.fold_old(number, coded)?;
        }
        Ok(())
    }

    /// Folds what was appended before the epoch began. The caller holds `folding`.
    pub(super) fn fold_old(&self, number: usize, coded: &Coded) -> Result<()> {
        let (mut head, view) = {
            let log = coded.log.lock();
            (log.head, View { old: log.view.old.clone(), ..View::default() })
        };
        if head.folded + 1 >= head.epoch {
            return Ok(());
        }
        let whole = whole_rows(coded, &view);
        if !whole.is_empty() {
            // What is overwritten may have been synced, so what stands for it meanwhile has to be durable.
            self.sync_journals(number, coded)?;
            let write = |rows: &Range<u64>| self.fold_whole(number, coded, &view, rows.clone());
            self.durably(&self.all_places(number), || whole.iter().try_for_each(write))?;
        }
        let parts = parts(coded, &view, &whole);
        let least = RECORD_LEN + coded.shape.seal_len();
        let one = |cells: &Cells| least + cells.length() * coded.shape.m;
        let mut left = parts.as_slice();
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = left.iter().take_while(|cells| {
                bytes += one(cells);
                bytes <= BATCH.max(one(&left[0]))
            });
            let (batch, later) = left.split_at(fits.count());
            self.fold_batch(number, coded, &view, head.turn, batch)?;
            head.turn += 1;
            coded.log.lock().head.turn = head.turn;
            left = later;
        }
        let head = Head { count: head.count + 1, folded: head.epoch - 1, ..head };
        self.durably(&self.journals(number, coded), || self.write_head(number, coded, &head))?;
        let mut log = coded.log.lock();
        log.head = head;
        log.view.old = Default::default();
        Ok(())
    }

    /// Writes rows of which the log has every byte, like new ones: should it end in the middle, the log still has all of them.
    fn fold_whole(&self, number: usize, coded: &Coded, view: &View, rows: Range<u64>) -> Result<()> {
        let shape = &coded.shape;
        let _held = coded.hold(rows.clone());
        let mut bytes = vec![0; (rows.end - rows.start) as usize * shape.row_bytes() as usize];
        view.old.lay_over(shape.row_start(rows.start), &mut bytes);
        self.write_rows(number, coded, rows, &bytes)
    }

    /// Columns and journals.
    fn all_places(&self, number: usize) -> Vec<Place> {
        self.places(number).collect()
    }

    fn fold_batch(
        &self,
        number: usize,
        coded: &Coded,
        view: &View,
        turn: u64,
        batch: &[Cells],
    ) -> Result<()> {
        let mut rows: Vec<u64> = batch.iter().map(|cells| cells.row).collect();
        rows.dedup();
        let _held = coded.hold(rows.iter().copied());
        let folds = self.folds(number, coded, view, batch)?;
        let mut records = Vec::new();
        for fold in &folds {
            let bytes = [&fold.seal.0, &fold.parity.concat()[..]].concat();
            let (at, within) = (fold.cells.row, fold.cells.from as u64);
            let record = Record { kind: Kind::Redo, epoch: turn, at, within, bytes };
            records.extend_from_slice(&record.encode());
        }
        // What is going to be in the rows is durable before anything of them changes.
        let write = || self.write_journals(number, coded, REDO.start, &records);
        self.durably(&self.journals(number, coded), write)?;
        self.put(number, coded, view, &folds)
    }

    /// Computes what becomes of parts of rows.
    fn folds(&self, number: usize, coded: &Coded, view: &View, batch: &[Cells]) -> Result<Vec<Fold>> {
        let shape = &coded.shape;
        let file_end = |cells: &Cells| {
            let start = shape.row_start(cells.row);
            let last = view.old.within(start..start + shape.row_bytes()).last();
            last.map_or(0, |(at, bytes)| at + bytes.len() as u64 - start)
        };
        // Where everything is in the log, nothing need be read, and nothing of the row be whole.
        let covered = |cells: &Cells| {
            (0..shape.k).all(|unit| {
                let at = cells.in_file(coded, unit);
                view.old.cover(at..at + cells.length() as u64)
            })
        };
        let read: Vec<Cells> = batch.iter().filter(|cells| !covered(cells)).copied().collect();
        let mut read = self.data_units(number, coded, view, &read)?.into_iter();
        let mut seals: BTreeMap<u64, Seal> = BTreeMap::new();
        let mut folds = Vec::new();
        for cells in batch {
            let empty = || vec![vec![0; cells.length()]; shape.k];
            let (mut data, before) = match (covered(cells), seals.remove(&cells.row)) {
                (true, Some(seal)) => (empty(), seal),
                (true, None) => (empty(), self.any_seal(number, coded, cells.row)?),
                (false, known) => {
                    let there = read.next().unwrap_or_else(empty);
                    match known {
                        Some(seal) if seal.matches_data(shape, cells.from / CELL, &there) => (there, seal),
                        known => {
                            let (data, stored) = self.as_sealed(number, coded, (view, cells), there)?;
                            // Other parts of the row have changed in the one that is known.
                            (data, known.unwrap_or(stored))
                        }
                    }
                }
            };
            for (unit, bytes) in data.iter_mut().enumerate() {
                view.old.lay_over(cells.in_file(coded, unit), bytes);
            }
            let units: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let parity = self.encode(number, coded, &units)?;
            let seal = sealed(coded, before, cells.from / CELL, &units, &parity, file_end(cells));
            seals.insert(cells.row, seal.clone());
            folds.push(Fold { cells: *cells, parity, seal });
        }
        Ok(folds)
    }

    /// The seal of a row from a journal that gives it.
    fn any_seal(&self, number: usize, coded: &Coded, row: u64) -> Result<Seal> {
        let mut failed = None;
        for journal in self.journals(number, coded) {
            match self.read_seal(coded, &journal, row) {
                Ok(seal) => return Ok(seal),
                Err(e) => failed = Some(self.failed(number, journal.column, e)),
            }
        }
        Err(failed.unwrap_or(StripeError::Columns { component: number, wanted: 1, found: 0 }))
    }

    /// Writes what is in records of a fold into rows, durably.
    fn put(&self, number: usize, coded: &Coded, view: &View, folds: &[Fold]) -> Result<()> {
        let shape = &coded.shape;
        let mut puts: Vec<(Place, Cow<'_, [u8]>)> = Vec::new();
        for fold in folds {
            for unit in 0..shape.k {
                let at = fold.cells.in_file(coded, unit);
                let whole = fold.cells.place(coded, number, unit);
                for (start, bytes) in view.old.runs(at..at + fold.cells.length() as u64) {
                    let offset = whole.offset + (start - at);
                    puts.push((Place { offset, length: bytes.len(), ..whole }, bytes));
                }
            }
            for (p, bytes) in fold.parity.iter().enumerate() {
                puts.push((fold.cells.place(coded, number, shape.k + p), Cow::Borrowed(bytes)));
            }
            let seal = &fold.seal.0;
            let seals = self.record_places(number, coded, shape.seal_at(fold.cells.row), seal.len());
            puts.extend(seals.into_iter().map(|place| (place, Cow::Borrowed(seal.as_slice()))));
        }
        let rows = folds.iter().map(|fold| fold.cells.row);
        coded.log.lock().changed.iter_mut().for_each(|changed| changed.extend(rows.clone()));
        let places: Vec<Place> = puts.iter().map(|(place, _)| *place).collect();
        let write = || self.everywhere(Op::Write, &places, &|n| puts[n].1.to_vec());
        self.durably(&self.all_places(number), write)
    }

    /// Takes over: finishes what the writer before has left.
    pub(crate) fn become_writer(&self, number: usize, coded: &Coded) -> Result<()> {
        let _all = coded.gate.write();
        if coded.log.lock().writer {
            return Ok(());
        }
        let loaded = self.load(number, coded, true)?;
        for (at, raw) in &loaded.halves {
            self.write_journals(number, coded, *at, raw)?;
        }
        self.make_lengths_equal(number, coded, &loaded)?;
        self.finish_folds(number, coded, &loaded.view)?;
        let clean = loaded.head.folded == loaded.head.epoch;
        let mut log = coded.log.lock();
        // Another one may have written in between.
        let every = || (0..coded.shape.rows(loaded.view.length)).collect();
        let changed = log.changed.take().map(|_| every());
        *log = super::Log {
            writer: true,
            head: Head { turn: loaded.turn, ..loaded.head },
            end: loaded.end,
            answered: loaded.end,
            rows: coded.shape.rows(loaded.view.length),
            changed,
            view: View { redo: BTreeMap::new(), ..loaded.view },
            ..super::Log::default()
        };
        drop(log);
        *coded.seen.lock() = None;
        let begun = match clean {
            true => self.begin_epoch(number, coded),
            false => self.fold_left(number, coded),
        };
        if begun.is_err() {
            coded.log.lock().writer = false;
        }
        begun
    }

    fn fold_left(&self, number: usize, coded: &Coded) -> Result<()> {
        let _one = coded.folding.lock();
        self.fold_old(number, coded)?;
        self.begin_epoch(number, coded)?;
        self.fold_old(number, coded)
    }

    /// Writes into their rows what a fold that was interrupted has in its records.
    fn finish_folds(&self, number: usize, coded: &Coded, view: &View) -> Result<()> {
        let folds: Vec<Fold> = view
            .redo
            .iter()
            .flat_map(|(row, redo)| {
                redo.parity.iter().map(|(from, parity)| {
                    let from = *from as usize;
                    let to = from + parity.first().map_or(0, Vec::len);
                    Fold {
                        cells: Cells { row: *row, from, to },
                        parity: parity.clone(),
                        seal: redo.seal.clone(),
                    }
                })
            })
            .collect();
        if folds.is_empty() { Ok(()) } else { self.put(number, coded, view, &folds) }
    }

    /// What is not sealed is not there: it was being written, or cut off, and nobody was told that it is done. Seals that some copies lack
    /// are taken from the others.
    fn make_lengths_equal(&self, number: usize, coded: &Coded, loaded: &Loaded) -> Result<()> {
        let shape = &coded.shape;
        let longest = loaded.copies.iter().map(|(_, length)| *length).max().unwrap_or(0);
        let source = loaded.copies.iter().find(|(_, length)| *length == longest);
        for row in loaded.copies.iter().map(|(_, length)| shape.sealed_rows(*length)).min().unwrap_or(0)
            ..shape.sealed_rows(longest)
        {
            if let Some((journal, _)) = source {
                let seal = self.read_seal(coded, journal, row);
                let seal = seal.map_err(|source| self.failed(number, journal.column, source))?;
                self.write_journals(number, coded, shape.seal_at(row), &seal.0)?;
            }
        }
        self.cut_columns(number, coded, shape.sealed_rows(longest))
    }
}

/// Rows of which a log has every byte, as many in a run as are written at once.
fn whole_rows(coded: &Coded, view: &View) -> Vec<Range<u64>> {
    let shape = &coded.shape;
    let most = (MAX_IO / shape.unit).max(1) as u64;
    let mut runs: Vec<Range<u64>> = Vec::new();
    // A row that is whole has a piece that reaches its end.
    for (at, bytes) in view.old.within(0..u64::MAX) {
        let (first, end) = (shape.row(at), shape.row(at + bytes.len() as u64));
        for row in first..end {
            let start = shape.row_start(row);
            if !view.old.cover(start..start + shape.row_bytes()) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == row && run.end - run.start < most => run.end += 1,
                _ => runs.push(row..row + 1),
            }
        }
    }
    runs
}

/// The parts of rows that a log changes, but for those that are `whole`, each small enough for one record.
fn parts(coded: &Coded, view: &View, whole: &[Range<u64>]) -> Vec<Cells> {
    let shape = &coded.shape;
    let mut hulls: BTreeMap<u64, Cells> = BTreeMap::new();
    for (at, bytes) in view.old.within(0..u64::MAX) {
        let mut from = at;
        let end = at + bytes.len() as u64;
        while from < end {
            let row = shape.row(from);
            let within = (from - shape.row_start(row)) as usize;
            let place = within % shape.unit;
            let length = (shape.unit - place).min((end - from) as usize);
            let after = whole.partition_point(|rows| rows.end <= row);
            if whole.get(after).is_some_and(|rows| rows.contains(&row)) {
                from += length as u64;
                continue;
            }
            let touched = Cells::around(coded, row, place..place + length);
            let hull = hulls.entry(row).or_insert(touched);
            (hull.from, hull.to) = (hull.from.min(touched.from), hull.to.max(touched.to));
            from += length as u64;
        }
    }
    let step = (REDO_BYTES / shape.m / CELL).max(1) * CELL;
    let cut = |hull: Cells| {
        (hull.from..hull.to).step_by(step).map(move |from| Cells {
            from,
            to: hull.to.min(from + step),
            ..hull
        })
    };
    hulls.into_values().flat_map(cut).collect()
}
