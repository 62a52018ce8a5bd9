//! Reads the copies on a volume through, in tape order, and compares them with their digests. Gives the drive away at the
//! next file when somebody wants it, and goes on from there later, also after a restart.

use super::bytes::FileHash;
use super::trouble::ours;
use super::worker::Worker;
use crate::clock::Moment;
use crate::keep::Ticket;
use catalog::{Lost, LostCopy, TapePlace};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tape::{Blame, Fault, Mounted, TapeError};
use types::*;

/// Segments of a volume listed at a time.
const PAGE: usize = 5_000;
/// How far it has come is recorded this often: a restart repeats as much.
const NOTE_EVERY: Duration = Duration::from_secs(20);
/// Errors of the medium in a row after which the volume is given up for this time.
const GIVE_UP_AFTER: u32 = 10;
/// Damaged files that are named in a request.
const NAMED: usize = 5;

/// Verifies a mounted volume as far as it gets; returns the tape's position.
pub fn verify(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    ticket: Ticket,
) -> Result<u64, TapeError> {
    let mut pass = Pass {
        worker,
        barcode,
        ticket: &ticket,
        noted: Moment::now(),
        damaged: Vec::new(),
        last: Vec::new(),
        errors: 0,
        unknown: 0,
    };
    let ended = pass.run(mounted);
    let summary = pass.summary();
    match ended {
        Ok(End::Whole) if pass.last.is_empty() => ticket.done(summary),
        Ok(End::Whole) => ticket.refused(summary),
        Ok(End::Paused) => ticket.paused(summary),
        Ok(End::Unfit(why)) => ticket.refused(why),
        Err(e) => {
            ticket.failed(&e);
            return Err(e);
        }
    }
    Ok(mounted.reads_from())
}

enum End {
    /// All copies were read.
    Whole,
    /// Others want the drive, or the time is up.
    Paused,
    /// It is not the volume that it should be.
    Unfit(String),
}

/// What reading one segment showed.
enum Found {
    Good,
    /// It can be read; nobody knows its digest.
    Unknown,
    Bad(String),
}

struct Pass<'p> {
    worker: &'p Worker,
    barcode: &'p Barcode,
    ticket: &'p Ticket,
    noted: Moment,
    /// Files whose copy here is damaged, of which there is another ...
    damaged: Vec<String>,
    /// ... and those of which there is none.
    last: Vec<String>,
    /// Of the medium, in a row.
    errors: u32,
    /// What was read and could not be compared with anything.
    unknown: u64,
}

impl Pass<'_> {
    fn run(&mut self, mounted: &mut Mounted<'_>) -> Result<End, TapeError> {
        let catalog = &self.worker.node.catalog;
        let volume = super::migrate::volume(self.worker, self.barcode)?;
        if mounted.label().uuid() != Some(volume.uuid.as_str()) {
            return Ok(End::Unfit("its label is not the one recorded; nothing was read".into()));
        }
        let mut from: TapePlace = (volume.verified_to, 0, 0);
        loop {
            let page = catalog.live_segments(self.barcode, from, PAGE);
            let page = page.map_err(|e| ours(self.barcode, "listing its files", e))?;
            if page.is_empty() {
                self.note(0, self.last.is_empty())?;
                return Ok(End::Whole);
            }
            for file in &page {
                let (block, byte, uid) = catalog::place_of(file);
                if self.must_pause(file) {
                    self.note(block, false)?;
                    return Ok(End::Paused);
                }
                self.ticket.at(block);
                if self.noted.elapsed() >= NOTE_EVERY {
                    self.note(block, false)?;
                }
                if !self.segment(mounted, file)? {
                    self.note(block, false)?;
                    return Ok(End::Paused);
                }
                from = (block, byte, uid.saturating_add(1));
            }
        }
    }

    fn must_pause(&self, file: &TapeFile) -> bool {
        let archive = &self.worker.node.archive;
        archive.halted()
            || archive.drive_is_wanted(self.worker.no)
            || self.ticket.withdrawn()
            || !self.ticket.may_read(file.extents.iter().map(|e| e.byte_count).sum())
    }

    /// Reads a segment, once more if it is not right: only then it is damaged. False if the node stops meanwhile.
    fn segment(&mut self, mounted: &mut Mounted<'_>, file: &TapeFile) -> Result<bool, TapeError> {
        let mut why = String::new();
        for _ in 0..2 {
            match self.read(mounted, file) {
                Ok(found @ (Found::Good | Found::Unknown)) => {
                    self.errors = 0;
                    self.unknown += u64::from(matches!(found, Found::Unknown));
                    return Ok(true);
                }
                Ok(Found::Bad(what)) => why = what,
                Err(e) if e.blame == Blame::Medium && e.fault != Fault::Incompatible => {
                    self.errors += 1;
                    if self.errors >= GIVE_UP_AFTER {
                        return Err(e);
                    }
                    why = e.to_string();
                }
                Err(e) => return Err(e),
            }
            if self.worker.node.archive.halted() {
                return Ok(false);
            }
        }
        self.damage(file, &why)?;
        Ok(true)
    }

    fn read(&self, mounted: &mut Mounted<'_>, file: &TapeFile) -> Result<Found, TapeError> {
        let mut hash = FileHash::new();
        for extent in &file.extents {
            let read = mounted.read(extent, &mut |offset, bytes| {
                hash.add(offset.saturating_sub(file.segment_offset), bytes);
                self.worker.progress.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                match self.worker.node.archive.halted() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
            if read.is_break() {
                return Ok(Found::Bad("the node stops".into()));
            }
        }
        Ok(match hash.finish(file.segment_length).zip(self.wanted(file)?) {
            Some((found, wanted)) if found != wanted => Found::Bad("the bytes have another digest".into()),
            Some(_) => Found::Good,
            None if file.has_data() => Found::Unknown,
            None => Found::Good,
        })
    }

    /// The digest of what lies here: of the whole file, or of a part, which is known once a later part was written.
    fn wanted(&self, file: &TapeFile) -> Result<Option<Digest>, TapeError> {
        if file.segment_offset == 0 && file.segment_length == file.file_size {
            return Ok(file.digest);
        }
        let part = (file.segment_offset, file.segment_length);
        let known = self.worker.node.catalog.part_digest(file.ino, file.version, part);
        known.map_err(|e| ours(self.barcode, "looking up the digest of a part", e))
    }

    fn damage(&mut self, file: &TapeFile, why: &str) -> Result<(), TapeError> {
        let node = &self.worker.node;
        let path = types::escape(&node.catalog.path_of(file.ino).unwrap_or(file.path.clone()));
        let what = format!("{path} (inode {}): copy {} is damaged: {why}", file.ino, file.copy);
        crate::check::distrust(self.worker, self.barcode, &what);
        let (ino, version, copy) = (file.ino, file.version, file.copy);
        let lost = LostCopy { ino, version, copy, volume: self.barcode.clone() };
        let lost = node.catalog.lose_copies(&[lost], crate::now());
        let lost = lost.map_err(|e| ours(self.barcode, "recording a damaged copy", e))?;
        match lost.first() {
            Some(Lost::Dropped) => {
                node.archive
                    .warn(format!("volume {}: {what}; a new copy is made from the other", self.barcode));
                self.damaged.push(path);
                node.governor.wake();
                node.keeper.wake();
            }
            Some(Lost::Last) => {
                node.archive.warn(format!(
                    "volume {}: {what}; there is no other copy: it is kept on record, restore the file from elsewhere",
                    self.barcode
                ));
                self.last.push(path);
            }
            Some(Lost::Gone) | None => {}
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let named = |files: &[String]| {
            let more = files.len().saturating_sub(NAMED);
            let first = files.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            if more > 0 { format!("{first} and {more} more") } else { first }
        };
        let mut parts = Vec::new();
        if !self.last.is_empty() {
            parts.push(format!("THE ONLY COPY IS DAMAGED of {}", named(&self.last)));
        }
        if !self.damaged.is_empty() {
            parts.push(format!(
                "{} damaged copies are made anew: {}",
                self.damaged.len(),
                named(&self.damaged)
            ));
        }
        if self.unknown > 0 {
            let what = if self.unknown == 1 { "file or part of one" } else { "files or parts of files" };
            parts.push(format!("{} {what} read, but not compared: no digest is known", self.unknown));
        }
        parts.join("; ")
    }

    /// Records how far it has come; 0: to the end, and `good` if all that is still needed there is.
    fn note(&mut self, block: u64, good: bool) -> Result<(), TapeError> {
        self.noted = Moment::now();
        let now = crate::now();
        let noted = self.worker.node.catalog.update_volume(self.barcode, &mut |v| {
            v.verified_to = block;
            v.last_read = Some(now);
            if block == 0 && good {
                v.last_verified = Some(now);
            }
        });
        noted.map(drop).map_err(|e| ours(self.barcode, "recording how far it is verified", e))
    }
}
