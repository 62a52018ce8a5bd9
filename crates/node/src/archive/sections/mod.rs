//! Writing a pool's backlog to a volume without partitions: section by section, each with a list of its files at its front
//! (`docs/formats/ansi-tar.md`). So what goes into a section is decided before its first byte is written
//! ([`choose`]); one thread reads the files and makes the section of them ([`feed`]), this one gives the drive nothing to
//! wait for, one records whole sections ([`super::commit`]).

mod choose;
mod feed;

use super::buffers::Buffers;
use super::commit::{Recorder, Records};
use super::hand::InHand;
use super::index::write_index;
use super::migrate::{close, leave_to_others};
use super::room;
use super::there::There;
use super::times;
use super::trouble::ours;
use super::worker::Worker;
use crate::clock::Moment;
use catalog::{NewSegment, VolumeAppend};
use choose::Limits;
use crossbeam_channel::{Receiver, bounded, unbounded};
use feed::{Fed, Feeder, Member};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tape::{Fault, Mounted, Onto, Room, SectionPoint, TapeError};
use types::*;

/// Why a volume is full.
const END_REACHED: &str = "its end was reached";
/// Orders that wait to be carried out while the drive goes on, two for each section.
const RECORD_AHEAD: usize = 16;
/// A section is at most this share of the disk tier: what a written one holds can be released while the next is written.
const SECTION_SHARE: u64 = 4;

/// One turn of writing to one volume.
struct Turn<'t> {
    worker: &'t Worker,
    hand: &'t InHand<'t>,
    /// Behind the last section written.
    point: SectionPoint,
    fed: Receiver<Fed>,
    records: Records<'t>,
    /// When the last section was written, or the turn began.
    since: Moment,
    /// Where what is fed lies, if that is at the drive's host.
    there: Option<Arc<There>>,
}

/// Writes until the backlog is empty, the volume is full or the node stops; returns the tape's position.
pub fn migrate(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    volume: Volume,
    pool: &PoolName,
) -> Result<u64, TapeError> {
    let barcode = &volume.barcode.clone();
    let point = SectionPoint::from(&volume);
    let limits = limits(worker, mounted, &volume, &point)?;
    let hand = InHand::new(&worker.node.writes, pool);
    let buffers = Buffers::to_write(worker, volume.block_size as usize);
    let recorder = Recorder::new(worker, barcode, &hand);
    let origin = super::index::origin(worker, &volume).map_err(|e| ours(barcode, "writing a section", e))?;
    std::thread::scope(|scope| {
        let (out, fed) = unbounded(); // as many as there are buffers
        let (orders, queue) = bounded(RECORD_AHEAD);
        let (done, recorded) = unbounded();
        let (hand, buffers) = (&hand, &buffers);
        let failed = |e: std::io::Error| ours(barcode, "starting threads", e);
        let feeder = Feeder::new(worker, hand, buffers, out, limits, &volume, origin.records());
        let reader = worker.helper(scope, "read", move || feeder.run()).map_err(failed)?;
        let records = move || recorder.run(&queue, &done);
        let recorder = worker.helper(scope, "record", records).map_err(failed)?;
        let records = Records::by_thread(volume, orders, recorded);
        let there = buffers.there().cloned();
        let turn = Turn { worker, hand, point, fed, records, since: Moment::now(), there };
        let ended = turn.run(mounted);
        for thread in [reader, recorder] {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        ended
    })
}

fn limits(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    volume: &Volume,
    point: &SectionPoint,
) -> Result<Limits, TapeError> {
    let tape = &worker.node.settings().tape;
    let block_size = u64::from(volume.block_size);
    let by_count = volume.capacity.saturating_sub(point.block * block_size);
    let room = mounted.section_room(point)?.unwrap_or(by_count);
    let unindexed = volume.append_block.saturating_sub(volume.indexed_to) * block_size;
    Ok(Limits {
        files: tape.max_files_per_volume.saturating_sub(volume.files),
        room: room.saturating_sub(room::index_reserve(volume)),
        section_bytes: tape.flush_every.0.min(worker.node.space.view().capacity / SECTION_SHARE),
        section_files: tape.flush_files,
        until_index: tape.index_every.0.saturating_sub(unindexed).max(1),
    })
}

impl Turn<'_> {
    fn run(mut self, mounted: &mut Mounted<'_>) -> Result<u64, TapeError> {
        let barcode = self.records.volume.barcode.clone();
        let full = loop {
            match self.fed.recv().unwrap_or(Fed::Over(None)) {
                Fed::Section(begun) => {
                    match self.section(mounted, begun) {
                        Ok(true) => {}
                        Ok(false) => break Some(END_REACHED),
                        // It goes again: nothing of the section counts, and the drive is as it was.
                        Err(e) if self.there.as_ref().is_some_and(|there| there.has_failed(&e)) => {
                            break None;
                        }
                        Err(e) => return Err(e),
                    }
                    if self.records.volume.state != VolumeState::Filling {
                        break None;
                    }
                }
                Fed::Over(why) => break why,
                // Of a section that was given up.
                Fed::Bytes(_) | Fed::End(_) => {}
            }
        };
        self.records.settle()?;
        if let Some(why) = full {
            self.worker.progress.takes(0, true);
            self.records.volume = close(self.worker, &barcode, why)?;
            leave_to_others(self.worker, self.hand);
        }
        let unindexed = self.point.block.saturating_sub(self.records.volume.indexed_to);
        let due = self.worker.node.settings().tape.index_every.0;
        if full.is_some() || unindexed * u64::from(self.records.volume.block_size) >= due {
            write_index(self.worker, mounted, &barcode, Onto::Both)?;
        }
        Ok(mounted.reads_from())
    }

    /// Writes a section; false if the volume had no room for it.
    fn section(&mut self, mounted: &mut Mounted<'_>, begun: Time) -> Result<bool, TapeError> {
        let mut writer = mounted.begin_section(&self.point, begun)?;
        let (first_block, mut written) = (writer.first_data(), 0);
        loop {
            match self.fed.recv().unwrap_or(Fed::Over(None)) {
                Fed::Bytes(mut bytes) => {
                    let count = bytes.len() as u64;
                    if writer.write_load(bytes.load(bytes.len()))? == Room::Full {
                        return Ok(false);
                    }
                    self.worker.progress.bytes.fetch_add(count, Ordering::Relaxed);
                    written += count;
                }
                Fed::End(members) => {
                    self.records.sync()?;
                    self.point = match writer.close() {
                        Err(e) if e.fault == Fault::Full => return Ok(false),
                        closed => closed?,
                    };
                    self.took(members.len() as u64, written);
                    for Member { file, .. } in members.iter().filter(|member| member.counts) {
                        let flights = &self.worker.node.writes.flights;
                        flights.wrote((file.ino, file.copy), file.segment_length, crate::now);
                    }
                    self.record(members, first_block)?;
                    return Ok(true);
                }
                // It was given up: what is written of it never counts.
                Fed::Section(_) | Fed::Over(_) => return Ok(true),
            }
        }
    }

    /// A section was written.
    fn took(&mut self, files: u64, bytes: u64) {
        let begun = std::mem::replace(&mut self.since, Moment::now());
        self.worker.progress.files.fetch_add(files, Ordering::Relaxed);
        let bytes_s = times::mechanics(&self.worker.node, &self.records.volume.barcode).transfer(bytes);
        let took_s = begun.elapsed().as_secs_f64();
        self.worker.node.archive.times.note_written(self.worker.no, bytes_s, files, took_s);
    }

    /// Hands a section that is on the medium to the recorder.
    fn record(&mut self, members: Vec<Member>, first_block: u64) -> Result<(), TapeError> {
        let next_uid = members.last().map_or(self.records.volume.next_uid, |last| last.file.uid + 1);
        let good = members.into_iter().filter(|member| member.counts);
        let segments = good.map(|member| (member.ticket, segment(member, first_block)));
        let append = VolumeAppend {
            volume: self.records.volume.barcode.clone(),
            append_block: self.point.block,
            next_uid,
            vcr: 0,
            now: crate::now(),
            section: Some(self.point.section),
        };
        self.records.record(append, segments.collect())
    }
}

/// What the catalogue is told of a member whose section begins its data at this block.
fn segment(member: Member, first_block: u64) -> NewSegment {
    let mut file = member.file;
    file.extents.iter_mut().for_each(|extent| extent.start_block += first_block);
    NewSegment {
        ino: file.ino,
        version: file.version,
        copy: file.copy,
        file_offset: file.segment_offset,
        length: file.segment_length,
        extents: file.extents.clone(),
        size: file.file_size,
        digest: member.digest,
        uid: file.uid,
        told: Some(Box::new(file)),
    }
}
