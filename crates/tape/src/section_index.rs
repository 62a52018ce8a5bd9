//! What a volume without partitions tells of its files: an index of all of them in a section of its own, and the lists of
//! the sections behind it.

use crate::head::Place;
use crate::records::RecordSource;
use crate::section::{FIRST, GROUP, PARTITION};
use crate::{Fill, Mounted, Result, Room, Section, SectionPoint, SectionWriter, TapeError};
use format::ltfs::Partition;
use format::ltfs::index::{IndexEvent, IndexHeader, IndexWriter, Location, parse};
use format::tar::index::SectionHead;
use format::tar::{plan, read, volume};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use types::{TapeFile, Time};

const READING: &str = "reading what is on the volume";

/// What a volume tells.
pub enum Told<'e> {
    /// First: where it ends.
    End(&'e SectionPoint),
    /// Next in the newest index of the whole volume.
    Event(IndexEvent<'e>),
    /// A file of a section behind that index.
    File(&'e SectionHead, &'e TapeFile),
}

/// What was found besides the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Where the volume ends.
    pub end: SectionPoint,
    /// The newest index of the whole volume.
    pub index: Option<IndexHeader>,
    /// Sections behind it.
    pub behind: u64,
}

impl Mounted<'_> {
    /// Writes an index of the whole volume as a section of its own; on the medium when this returns. Returns the block at which
    /// that begins, and where the next one goes.
    ///
    /// # Errors
    /// As [`Mounted::begin_section`] and [`SectionWriter::close`]; an error of `fill` (`Blame::Us`).
    pub fn write_section_index(
        &mut self,
        point: &SectionPoint,
        (creator, highest_uid, now): (&str, u64, Time),
        fill: &mut Fill<'_>,
    ) -> Result<(u64, SectionPoint)> {
        let writer = self.begin_section(point, now)?;
        let begins = writer.point();
        let header = IndexHeader {
            creator: creator.to_owned(),
            comment: None,
            volume_uuid: begins.uuid,
            generation: begins.section,
            update_time: now,
            location: Location { partition: Partition::DATA, block: begins.block },
            previous: None,
            allow_policy_update: true,
            highest_file_uid: highest_uid,
            unknown: Vec::new(),
        };
        let (section, begun) = (header.generation, now);
        let mut sink = PartSink { writer, section, begun, part: 0, buffer: Vec::new(), error: None };
        let filled = (|| {
            let out: &mut dyn Write = &mut sink;
            let mut index = IndexWriter::new(out);
            index.begin(&header)?;
            fill(&mut index)?;
            index.finish()?;
            sink.put_part()?;
            sink.put(&volume::END)?;
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        })();
        match (filled, sink.error.take()) {
            (_, Some(error)) => Err(error),
            (Err(error), None) => Err(sink.writer.failed(error.to_string())),
            (Ok(()), None) => Ok((header.location.block, sink.writer.close()?)),
        }
    }

    /// Reads the newest index of the volume and the lists of the sections behind it, oldest first, and hands them to `visit`.
    ///
    /// # Errors
    /// [`crate::Fault::BadRecord`] where labels, index or lists are damaged: what was handed out before is not all.
    pub fn contents(&mut self, visit: &mut dyn FnMut(Told<'_>) -> ControlFlow<()>) -> Result<Contents> {
        let end = self.find_end()?;
        if visit(Told::End(&end)).is_break() {
            return Ok(Contents { end, index: None, behind: 0 });
        }
        let (mut behind, mut block) = (Vec::new(), end.block);
        let mut index = None;
        while block > FIRST && index.is_none() {
            let Some(section) = self.section_before(block)? else {
                let what = format!("no section of this volume ends before block {block}");
                return Err(self.head().bad_record(READING, what));
            };
            block = section.label.first_block;
            if section.is_void() {
                continue;
            }
            match self.volume_index(&section, visit)? {
                Some((header, ControlFlow::Continue(()))) => index = Some(header),
                Some((header, ControlFlow::Break(()))) => {
                    return Ok(Contents { end, index: Some(header), behind: behind.len() as u64 });
                }
                None => behind.push(section),
            }
        }
        let contents = Contents { end, index, behind: behind.len() as u64 };
        for section in behind.iter().rev() {
            let (head, files) = self.counted(section)?;
            for file in &files {
                if visit(Told::File(&head, file)).is_break() {
                    return Ok(contents);
                }
            }
        }
        Ok(contents)
    }

    /// The index of the whole volume that a section holds; None if it holds files.
    fn volume_index(
        &mut self,
        section: &Section,
        visit: &mut dyn FnMut(Told<'_>) -> ControlFlow<()>,
    ) -> Result<Option<(IndexHeader, ControlFlow<()>)>> {
        let mut source = self.data_of(section, 0)?;
        let (mut header, mut flow) = (None, ControlFlow::Continue(()));
        let parsed = match volume::Parts::open(&mut source) {
            Ok(None) => Ok(false),
            Ok(Some(parts)) => parse(parts, &mut |event| {
                if let IndexEvent::Header(found) = event {
                    header = Some(found.clone());
                }
                flow = visit(Told::Event(event));
                flow
            })
            .map(|_| true)
            .map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        match (parsed, source.error.take()) {
            (_, Some(error)) => Err(error),
            (Err(what), None) => Err(self.head().bad_record(READING, what)),
            (Ok(_), None) => Ok(header.map(|header| (header, flow))),
        }
    }

    /// The files of a section that count, with the digests known at its end.
    fn counted(&mut self, section: &Section) -> Result<(SectionHead, Vec<TapeFile>)> {
        let (head, entries) = self.read_list(section)?;
        let mut source = self.data_of(section, head.sums)?;
        let mut reader = read::Reader::new(&mut source);
        let text = reader.next().and_then(|member| match member {
            Some(member) => reader.read_data(&member, u64::MAX),
            None => Ok(Vec::new()),
        });
        if let Some(error) = source.error.take() {
            return Err(error);
        }
        let sums = text.ok().as_deref().and_then(plan::sums).filter(|sums| {
            let with = entries.iter().filter(|entry| plan::has_sum(&entry.file));
            sums.len() == with.count()
        });
        let Some(sums) = sums else {
            let what = format!("the digests of section {} are not what they should be", head.section);
            return Err(self.head().bad_record(READING, what));
        };
        let mut sums = sums.into_iter();
        let files = entries.into_iter().filter_map(|entry| {
            if !plan::has_sum(&entry.file) {
                return Some(entry.file);
            }
            let (mut file, sum) = (entry.file, sums.next().flatten()?);
            let whole = file.segment_offset == 0 && file.segment_length == file.file_size;
            file.digest = file.digest.or(whole.then_some(sum));
            Some(file)
        });
        Ok((head, files.collect()))
    }

    /// The data of a section from a byte on.
    fn data_of(&mut self, section: &Section, from: u64) -> Result<RecordSource<'_>> {
        let size = section.label.block_size;
        let place = plan::Place { first_block: section.label.first_block + GROUP, block_size: size };
        let (block, skip) = place.of(from);
        let head = self.head();
        head.locate(Place { partition: PARTITION, block })?;
        let mut source = RecordSource::new(head, size as usize);
        // What is missing shows as an archive that was cut.
        let _ = io::copy(&mut (&mut source).take(skip.into()), &mut io::sink());
        Ok(source)
    }
}

/// Cuts an index into members.
struct PartSink<'m, 'd> {
    writer: SectionWriter<'m, 'd>,
    section: u64,
    begun: Time,
    part: u32,
    buffer: Vec<u8>,
    error: Option<TapeError>,
}

impl PartSink<'_, '_> {
    fn put_part(&mut self) -> io::Result<()> {
        let member = volume::part(self.section, self.part, self.begun, &self.buffer);
        self.part += 1;
        self.buffer.clear();
        self.put(&member)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.writer.write(bytes) {
            // Closing says that it did not fit.
            Ok(Room::Ok | Room::EarlyWarning | Room::Full) => Ok(()),
            Err(error) => {
                self.error = Some(error);
                Err(io::Error::other("the index could not be written"))
            }
        }
    }
}

impl Write for PartSink<'_, '_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = data.len().min(volume::PART - self.buffer.len());
        self.buffer.extend_from_slice(&data[..taken]);
        if self.buffer.len() == volume::PART {
            self.put_part()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
