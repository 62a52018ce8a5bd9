//! Makes sections of files: list, members, digests. What was promised in the list is kept: a file that cannot be read to its
//! end is filled up with zeros, and its digest says that it does not count.

use super::super::buffers::{Buffer, Buffers};
use super::super::bytes::FileHash;
use super::super::hand::{InHand, Ticket};
use super::super::source::{Skip, Source, halted};
use super::super::there::Sums;
use super::super::worker::Worker;
use super::choose::{Chooser, Chosen, Limits, skipped};
use catalog::Part;
use crossbeam_channel::Sender;
use format::tar::index::{Entry, SectionHead};
use format::tar::padding;
use format::tar::pax::Record;
use format::tar::plan::{self, Place, Plan};
use types::*;

/// Next for the drive.
pub enum Fed {
    /// A section begins.
    Section(Time),
    /// Bytes of it.
    Bytes(Buffer),
    /// It is whole.
    End(Vec<Member>),
    /// Nothing follows; the reason if it is that the volume takes no more.
    Over(Option<&'static str>),
}

/// A member of a section that was fed.
pub struct Member {
    /// To settle it by.
    pub ticket: Ticket,
    /// As the list tells of it; blocks count from the first of the section's data.
    pub file: TapeFile,
    /// Digest of the whole file, where all of it was read.
    pub digest: Option<Digest>,
    /// It was read to its end and did not change meanwhile.
    pub counts: bool,
}

/// Nobody listens any more, or the node stops.
struct Closed;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Digests of what was read.
struct Made {
    member: Option<Digest>,
    file: Option<Digest>,
}

/// Makes sections until the backlog is empty, the volume takes no more, or nobody listens.
pub struct Feeder<'t> {
    chooser: Chooser<'t>,
    buffers: &'t Buffers,
    out: Sender<Fed>,
    buffer: Buffer,
    uuid: String,
    block_size: u32,
    /// Number of the section written last.
    section: u64,
    attributes: Vec<Record>,
}

impl<'t> Feeder<'t> {
    /// Behind the recorded end of a volume. `attributes` go into each list.
    pub fn new(
        worker: &'t Worker,
        hand: &'t InHand<'t>,
        buffers: &'t Buffers,
        out: Sender<Fed>,
        limits: Limits,
        volume: &Volume,
        attributes: Vec<Record>,
    ) -> Self {
        let chooser = Chooser {
            worker,
            hand,
            buffers,
            limits,
            volume: volume.barcode.clone(),
            capacity: volume.capacity,
            next_uid: volume.next_uid,
        };
        Self {
            chooser,
            buffers,
            out,
            buffer: buffers.take(),
            uuid: volume.uuid.clone(),
            block_size: volume.block_size,
            section: volume.generation,
            attributes,
        }
    }

    /// Does it all.
    pub fn run(mut self) {
        // Closed: the drive has ended its turn and says why itself; or the node stops.
        let why = self.feed().unwrap_or(None);
        let _ = self.out.send(Fed::Over(why));
    }

    fn feed(&mut self) -> Result<Option<&'static str>, Closed> {
        while self.chooser.limits.until_index > 0 {
            let batch = self.chooser.batch();
            if batch.files.is_empty() {
                return Ok(batch.full);
            }
            self.put_section(batch.files)?;
            if batch.full.is_some() {
                return Ok(batch.full);
            }
        }
        Ok(None)
    }

    fn put_section(&mut self, mut files: Vec<Chosen>) -> Result<(), Closed> {
        self.section += 1;
        let begun = crate::now();
        let head = SectionHead {
            section: self.section,
            volume: self.uuid.clone(),
            begun,
            sums: 0,
            attributes: self.attributes.clone(),
        };
        let place = Place { first_block: 0, block_size: self.block_size };
        let plan = Plan::new(head, files.iter().map(|chosen| chosen.file.clone()).collect(), place);
        let plan = match plan {
            Ok(plan) => plan,
            Err(e) => {
                // All go back to the backlog when the turn ends.
                tracing::error!("a section cannot be made: {e}; report this");
                return Err(Closed);
            }
        };
        self.put(Fed::Section(begun))?;
        self.bytes(plan.front())?;
        let (mut members, mut sums) = (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
        for (entry, chosen) in plan.entries().iter().zip(files.drain(..)) {
            let (member, sum) = self.member(&plan, entry, chosen)?;
            members.push(member);
            sums.push(sum);
        }
        self.bytes(&plan.back(&sums))?;
        self.send()?;
        self.put(Fed::End(members))
    }

    /// Headers, data and padding of a member, and its digest as it is extracted.
    fn member(
        &mut self,
        plan: &Plan,
        entry: &Entry,
        chosen: Chosen,
    ) -> Result<(Member, Option<Digest>), Closed> {
        self.bytes(&plan.head(entry))?;
        if !entry.file.has_data() {
            let digest = (plan::has_sum(&entry.file)).then(|| FileHash::new().finish(0)).flatten();
            let member =
                Member { ticket: chosen.ticket, file: entry.file.clone(), digest: None, counts: true };
            return Ok((member, digest));
        }
        let read = self.data(entry, &chosen)?;
        self.zeros(padding(entry.stored))?;
        let file = entry.file.clone();
        Ok(match read {
            Ok(sums) => {
                let counts = sums.member.is_some();
                (Member { ticket: chosen.ticket, file, digest: sums.file, counts }, sums.member)
            }
            // Nothing comes of the section.
            Err(_) if self.buffers.are_gone() => return Err(Closed),
            Err(why) => {
                self.chooser.hand.hold(chosen.ticket, true, crate::now());
                skipped(self.chooser.worker, chosen.item.ino, why);
                (Member { ticket: chosen.ticket, file, digest: None, counts: false }, None)
            }
        })
    }

    /// The data of a member. Whatever happens, as many bytes follow as were promised.
    fn data(&mut self, entry: &Entry, chosen: &Chosen) -> Result<Result<Made, Skip>, Closed> {
        let worker = self.chooser.worker;
        let mut opened = self.open(entry, chosen);
        for extent in &entry.file.extents {
            let mut at = extent.file_offset;
            let end = extent.file_offset + extent.byte_count;
            while let (Ok((source, sums)), true) = (&mut opened, at < end) {
                if self.buffer.space() == 0 {
                    self.send()?;
                }
                let most = usize::try_from(end - at).unwrap_or(usize::MAX);
                match source.read(worker, sums, (at, most), (&mut self.buffer, true)) {
                    Ok(got) => {
                        self.chooser.hand.read(got as u64);
                        at += got as u64;
                    }
                    Err(why) => opened = Err(why),
                }
            }
            if worker.node.archive.halted() {
                return Err(Closed);
            }
            self.zeros(end - at)?;
        }
        Ok(opened.and_then(|(source, sums)| {
            halted(worker)?;
            source.unchanged(worker, chosen.item.ino)?;
            let found = sums.finish(source.size())?;
            if !is_last(entry) {
                // Nothing but that part was asked for.
                return Ok(Made { member: found.parts.first().map(|(_, digest)| *digest), file: None });
            }
            let part =
                found.parts.iter().find(|(part, _)| *part == part_of(entry)).map(|(_, digest)| *digest);
            let file = source.digest(worker, &chosen.item, found)?;
            Ok(Made { member: if entry_is_whole(entry) { file } else { part }, file })
        }))
    }

    /// The object again that the list was made of, and its sums, with what is on other volumes in them where all of it is read then.
    fn open(&self, entry: &Entry, chosen: &Chosen) -> Result<(Source, Sums), Skip> {
        let (worker, item) = (self.chooser.worker, &chosen.item);
        let source = Source::open(worker, item)?;
        if (source.origin.object, source.origin.stamp) != (chosen.origin.object, chosen.origin.stamp) {
            return Err(Skip::Later("it changed after it was chosen for a section".into()));
        }
        // A part that moves is not followed by the rest, whose end would show whether all of it is right.
        if !is_last(entry) && source.moves {
            source.verify(worker, item.ino, self.buffers)?;
        }
        if !is_last(entry) {
            let sums = source.sums_of(worker, item.ino, self.buffers, part_of(entry));
            return Ok((source, sums));
        }
        let part = (!entry_is_whole(entry)).then(|| part_of(entry));
        let mut sums = source.sums(worker, item, self.buffers, part);
        if entry.file.segment_offset > 0 {
            source.read_through(worker, &mut sums, entry.file.segment_offset)?;
        }
        Ok((source, sums))
    }

    /// Puts bytes into the section.
    fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), Closed> {
        while !bytes.is_empty() {
            if self.buffer.space() == 0 {
                self.send()?;
            }
            // Where the buffer is gone nothing comes of the section.
            let taken = self.buffer.put(bytes).map_err(|_| Closed)?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn zeros(&mut self, mut count: u64) -> Result<(), Closed> {
        while count > 0 {
            let n = ZEROS.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            self.bytes(&ZEROS[..n])?;
            count -= n as u64;
        }
        Ok(())
    }

    /// Hands over what is gathered.
    fn send(&mut self) -> Result<(), Closed> {
        self.chooser.worker.progress.takes(self.chooser.limits.room, false);
        if self.buffer.len() == 0 {
            return Ok(());
        }
        let next = self.buffers.after(&self.buffer);
        let bytes = std::mem::replace(&mut self.buffer, next);
        self.put(Fed::Bytes(bytes))
    }

    fn put(&self, fed: Fed) -> Result<(), Closed> {
        self.out.send(fed).map_err(|_| Closed)
    }
}

fn entry_is_whole(entry: &Entry) -> bool {
    entry.file.segment_offset == 0 && entry.file.segment_length == entry.file.file_size
}

/// The part of its file that a member is.
fn part_of(entry: &Entry) -> Part {
    (entry.file.segment_offset, entry.file.segment_length)
}

/// Whether a member has the end of its file.
fn is_last(entry: &Entry) -> bool {
    entry.file.segment_offset + entry.file.segment_length == entry.file.file_size
}
