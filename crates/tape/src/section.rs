//! Volumes without partitions: sections between ANSI labels (`docs/formats/ansi-tar.md`).
//!
//! A section counts once its EOF labels and the filemark behind them are on the medium: [`SectionWriter::close`] returns
//! then. What a crash leaves behind the last whole section never counted, and the next section overwrites it.

use crate::head::{Head, Item, Place, Wrote};
use crate::records::RecordSource;
use crate::there::{Load, Record, TWO_PLACES, rest};
use crate::{Blame, Fault, LabelSpec, LabelState, Mounted, Result, Room};
use format::ansi::{AnsiLabel, Ending, LENGTH, SECTION_LABELS, SectionLabel, Trailer};
use format::tar::index::{Entry, SectionHead};
use format::tar::{index, plan, read};
use scsi::{FormatKind, Ssc};
use types::{Barcode, Time, Volume};

const LABELLING: &str = "labelling";
pub(crate) const WRITING: &str = "writing a section";
const READING: &str = "reading the labels of a section";
/// The only partition.
pub(crate) const PARTITION: u8 = 0;
/// Block of the first section: VOL1 and UVL1 are before it.
pub(crate) const FIRST: u64 = 2;
/// The labels around the data of a section, and the filemark behind them.
pub(crate) const GROUP: u64 = SECTION_LABELS as u64 + 1;
/// Filemarks from the end of a volume back to the EOF labels of the last whole section, at most: those of a section that
/// was cut off have three.
const CUT_MARKS: usize = 4;
/// The same on WORM media, where what is cut off is not overwritten but closed, and the closing can be cut off as well.
const CUT_MARKS_WORM: usize = 64;

/// Where the next section goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionPoint {
    /// Uuid of the volume.
    pub uuid: String,
    /// Block at which its HDR1 goes; behind it nothing counts.
    pub block: u64,
    /// Number of the last section, 0 where there is none.
    pub section: u64,
}

impl From<&Volume> for SectionPoint {
    fn from(v: &Volume) -> Self {
        Self { uuid: v.uuid.clone(), block: v.append_block, section: v.generation }
    }
}

/// A whole section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What its labels say.
    pub label: SectionLabel,
    /// Blocks and bytes of its data.
    pub trailer: Trailer,
}

impl Section {
    /// It counts nothing: what was cut off on WORM medium, closed before something else was written.
    pub fn is_void(&self) -> bool {
        self.trailer.ending == Ending::Void
    }

    /// Number of the last section that counts, up to this one.
    fn number(&self) -> u64 {
        self.label.section - u64::from(self.is_void())
    }
}

/// Writes one section. Nothing of it counts until [`SectionWriter::close`] has returned; dropping it before leaves what was
/// written to be overwritten.
pub struct SectionWriter<'m, 'd> {
    mounted: &'m mut Mounted<'d>,
    label: SectionLabel,
    /// The record being filled.
    record: Record,
    blocks: u64,
    bytes: u64,
    room: Room,
    failed: bool,
}

/// The label of a volume of ours without partitions; None for anything else.
pub(crate) fn read_label(head: &mut Head, expect: Option<&Barcode>) -> Result<Option<AnsiLabel>> {
    head.locate(Place { partition: PARTITION, block: 0 })?;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for record in [&mut first, &mut second] {
        match label_record(head)? {
            Some(found) => *record = found,
            None => return Ok(None),
        }
    }
    let label = AnsiLabel::decode(&first, &second).ok();
    let expected =
        |label: &AnsiLabel| expect.is_none_or(|barcode| barcode.as_str().starts_with(&label.serial));
    Ok(label.filter(expected))
}

/// The next record, if it has the length of a label.
fn label_record(head: &mut Head) -> Result<Option<Vec<u8>>> {
    let mut record = vec![0; LENGTH];
    match head.read(&mut record) {
        Ok(Item::Record(LENGTH)) => Ok(Some(record)),
        Ok(_) => Ok(None),
        Err(e) if matches!(e.fault, Fault::BadRecord | Fault::MediumError | Fault::DataMissing) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The four labels at a block and the filemark behind them.
fn labels(head: &mut Head, block: u64) -> Result<Option<[Vec<u8>; SECTION_LABELS]>> {
    match head.locate(Place { partition: PARTITION, block }) {
        Ok(()) => {}
        Err(e) if matches!(e.fault, Fault::DataMissing | Fault::MediumError) => return Ok(None),
        Err(e) => return Err(e),
    }
    let mut found: [Vec<u8>; SECTION_LABELS] = Default::default();
    for record in &mut found {
        match label_record(head)? {
            Some(label) => *record = label,
            None => return Ok(None),
        }
    }
    let mark = head.read(&mut [0; LENGTH]);
    Ok(matches!(mark, Ok(Item::Filemark)).then_some(found))
}

impl<'d> Mounted<'d> {
    /// The label of a volume of ours without partitions.
    pub fn ansi(&self) -> Option<&AnsiLabel> {
        if let LabelState::Sections(label) = &self.label { Some(label) } else { None }
    }

    /// Labels a medium without partitions; on the medium when this returns. Partitions that it has are made one. After a
    /// power failure in between the cartridge is blank, or foreign with half a label.
    ///
    /// # Errors
    /// As [`Mounted::format`].
    pub fn format_ansi(&mut self, spec: &LabelSpec<'_>) -> Result<SectionPoint> {
        let label = AnsiLabel::new(spec.barcode.as_str(), spec.uuid, spec.now, spec.block_size);
        let label = label.map_err(|e| self.misuse(LABELLING, e.to_string()))?;
        self.may_overwrite(spec.overwrite)?;
        self.writable(LABELLING)?;
        self.distrust();
        self.record_block = None;
        self.label = LabelState::Damaged { what: "labelling did not finish".into(), uuids: Vec::new() };
        let start = Place { partition: PARTITION, block: 0 };
        let worm = self.worm;
        let head = self.head();
        crate::keys::lock(head, spec.key)?;
        let partitions = head.attempt("asking for the partitions", Ssc::partition_page)?.additional;
        head.locate(start)?;
        if partitions > 0 {
            head.allow_format()?;
            head.attempt("formatting the medium", |ssc| ssc.format_medium(FormatKind::Default))?;
            head.forget_position();
            head.locate(start)?;
        }
        head.verify(LABELLING, start)?;
        if !worm {
            // One that counts as blank may have the beginning of a label.
            head.allow_replacing(start)?;
        }
        for record in label.encode() {
            let wrote = head.write(&record)?;
            room(head, LABELLING, wrote)?;
        }
        let wrote = head.filemarks(0, false)?;
        room(head, LABELLING, wrote)?;
        head.verify(LABELLING, Place { partition: PARTITION, block: FIRST })?;
        let point = SectionPoint { uuid: label.uuid.clone(), block: FIRST, section: 0 };
        self.label = LabelState::Sections(label);
        self.capacity = self.read_capacity()?;
        Ok(point)
    }

    fn misuse(&self, doing: &str, what: String) -> crate::TapeError {
        let advice = "nothing was written; correct it and try again";
        self.drive.head.error(Fault::Misuse, Blame::Us, doing, what, advice)
    }

    fn need_ansi(&self, doing: &str) -> Result<AnsiLabel> {
        self.ansi().cloned().ok_or_else(|| {
            let what = "the cartridge carries no ANSI label of ours";
            let advice = "put the right cartridge there, or label it again if nothing on it is needed";
            self.drive.head.error(Fault::NotLtfs, Blame::Medium, doing, what, advice)
        })
    }

    /// Bytes that the volume still takes behind its recorded end, as far as the drive tells: what lies behind that (a section
    /// that was cut off) is overwritten, but on WORM media.
    ///
    /// # Errors
    /// The volume carries no ANSI label of ours; failures of the drive.
    pub fn section_room(&mut self, point: &SectionPoint) -> Result<Option<u64>> {
        let used = point.block * u64::from(self.need_ansi(WRITING)?.block_size);
        let capacity = self.read_capacity()?;
        if self.worm {
            return Ok(capacity.map(|c| c.remaining));
        }
        Ok(capacity.map(|c| c.remaining.max(c.maximum.saturating_sub(used))))
    }

    /// Begins a section at the recorded end of the volume, after checking that it is the volume meant, that the last
    /// section recorded ends there, and that what lies behind is nothing or a section of ours that never counted. That is
    /// overwritten; on WORM media it is closed, and the section begins behind it ([`SectionWriter::point`]).
    ///
    /// # Errors
    /// [`Fault::WrongVolume`], [`Fault::ForeignWriter`], [`Fault::WriteProtected`], active TapeAlert flags,
    /// [`Fault::Full`], and failures of the drive.
    pub fn begin_section(&mut self, point: &SectionPoint, begun: Time) -> Result<SectionWriter<'_, 'd>> {
        self.writable(WRITING)?;
        let volume = self.need_ansi(WRITING)?;
        if volume.uuid != point.uuid {
            let what = format!("the cartridge carries volume {}, not {}", volume.uuid, point.uuid);
            let advice =
                "nothing was written; see which cartridge is in the slot, and take the inventory again";
            return Err(self.drive.head.error(Fault::WrongVolume, Blame::Medium, WRITING, what, advice));
        }
        let free = self.check_end(point)?;
        let mut label = SectionLabel {
            set: volume.serial,
            section: point.section + 1,
            part: 1,
            first_block: point.block,
            block_size: volume.block_size,
            volume: volume.uuid,
            begun: format::ltfs::time::clamp(begun),
        };
        if self.worm && !free {
            label.first_block = self.close_leftovers(&label)?;
        }
        let header = label.header().map_err(|e| self.misuse(WRITING, e.to_string()))?;
        self.record_block = None;
        let worm = self.worm;
        let (head, at) = (self.head(), Place { partition: PARTITION, block: label.first_block });
        head.locate(at)?;
        head.verify(WRITING, at)?;
        if !free && !worm {
            head.allow_replacing(at)?;
        }
        put_group(head, &header, true)?;
        let record = Record::new(volume.block_size as usize);
        Ok(SectionWriter { mounted: self, label, record, blocks: 0, bytes: 0, room: Room::Ok, failed: false })
    }

    /// True if nothing lies behind the recorded end; false for what may be overwritten.
    fn check_end(&mut self, point: &SectionPoint) -> Result<bool> {
        let last = if point.block == FIRST { None } else { self.section_before(point.block)? };
        let found = last.as_ref().map_or(0, Section::number);
        if found != point.section || (last.is_none() && point.block != FIRST) {
            let what = format!("section {} does not end before block {}", point.section, point.block);
            return Err(self.not_ours(what));
        }
        let head = self.head();
        head.locate(Place { partition: PARTITION, block: point.block })?;
        let mut record = [0; LENGTH];
        let ours = format!("HDR1SECTION{:010}", point.section + 1);
        match head.read(&mut record) {
            Ok(Item::EndOfData) => Ok(true),
            Ok(Item::Record(_))
                if record.starts_with(ours.as_bytes()) && record[60..].starts_with(b"THERMOCLINE") =>
            {
                Ok(false)
            }
            Err(e) if e.fault == Fault::MediumError => Ok(false), // a write that the power ended
            Err(e) if e.fault != Fault::BadRecord => Err(e),
            _ => Err(self.not_ours(format!("behind section {} is something else", point.section))),
        }
    }

    fn not_ours(&self, what: String) -> crate::TapeError {
        let what = format!("the volume does not end as recorded: {what}");
        let advice = "nothing was written; mark the volume read-only, check it, and find out who uses it";
        self.drive.head.error(Fault::ForeignWriter, Blame::Medium, WRITING, what, advice)
    }

    /// The section whose last filemark is before `block`; None if none of this volume ends there.
    pub(crate) fn section_before(&mut self, block: u64) -> Result<Option<Section>> {
        let uuid = self.need_ansi(READING)?.uuid;
        let Some(at) = block.checked_sub(GROUP).filter(|&at| at > FIRST) else { return Ok(None) };
        let records = labels(self.head(), at)?;
        let decoded = records.and_then(|records| SectionLabel::decode_trailer(&records).ok());
        let section = decoded.map(|(label, trailer)| Section { label, trailer });
        // first block, labels and filemark, data, filemark, labels and filemark
        let length = |section: &Section| section.trailer.blocks + 2 * GROUP + 1;
        Ok(section
            .filter(|found| found.label.volume == uuid && found.label.first_block + length(found) == block))
    }

    /// Where the volume ends, from the medium alone: behind its last whole section.
    ///
    /// # Errors
    /// The volume carries no ANSI label of ours; failures of the drive.
    pub fn find_end(&mut self) -> Result<SectionPoint> {
        let uuid = self.need_ansi(READING)?.uuid;
        let mut block = self.end_of_sections()?;
        for _ in 0..if self.worm { CUT_MARKS_WORM } else { CUT_MARKS } {
            if let Some(last) = self.section_before(block)? {
                return Ok(SectionPoint { uuid, block, section: last.number() });
            }
            let head = self.head();
            head.locate(Place { partition: PARTITION, block })?;
            head.forget_position();
            head.attempt("going back to a filemark", |ssc| ssc.space_filemarks(-1))?;
            let mark = head.ask_position()?.block;
            // The head stands before the filemark; a section before it ends behind the mark.
            if mark <= FIRST {
                break;
            }
            if let Some(last) = self.section_before(mark + 1)? {
                return Ok(SectionPoint { uuid, block: mark + 1, section: last.number() });
            }
            block = mark;
        }
        Ok(SectionPoint { uuid, block: FIRST, section: 0 })
    }

    /// Where the data ends, counted or not.
    pub(crate) fn end_of_sections(&mut self) -> Result<u64> {
        let head = self.head();
        head.forget_position();
        head.attempt("going to the end of data", Ssc::space_to_end_of_data)?;
        Ok(head.ask_position()?.block)
    }

    /// The sections of the volume, last first: one step for each, whatever lies in them. Those that are void count nothing.
    ///
    /// # Errors
    /// [`Fault::BadRecord`] where labels are missing; failures of the drive.
    pub fn sections(&mut self, end: &SectionPoint) -> Result<Vec<Section>> {
        let (mut out, mut block): (Vec<Section>, u64) = (Vec::new(), end.block);
        while block > FIRST {
            let Some(section) = self.section_before(block)? else {
                let what = format!("no section of this volume ends before block {block}");
                return Err(self.head().bad_record(READING, what));
            };
            block = section.label.first_block;
            out.push(section);
        }
        Ok(out)
    }

    /// Reads the list of members of a section: its files, with the places of their data.
    ///
    /// # Errors
    /// [`Fault::BadRecord`] where it is damaged; failures of the drive.
    pub fn read_list(&mut self, section: &Section) -> Result<(SectionHead, Vec<Entry>)> {
        let block_size = section.label.block_size;
        let first_block = section.label.first_block + GROUP;
        let head = self.head();
        head.locate(Place { partition: PARTITION, block: first_block })?;
        let mut source = RecordSource::new(head, block_size as usize);
        let mut reader = read::Reader::new(&mut source);
        let text = reader.next().and_then(|member| match member.filter(read::Member::is_index) {
            Some(member) => reader.read_data(&member, u64::MAX),
            None => Ok(Vec::new()),
        });
        let list = text.and_then(|text| index::decode(&text, plan::Place { first_block, block_size }));
        match (list, source.error.take()) {
            (Ok(list), None) => Ok(list),
            (_, Some(error)) => Err(error),
            (Err(error), None) => {
                Err(self.head().bad_record("reading the list of a section", error.to_string()))
            }
        }
    }
}

/// Four labels and a filemark.
pub(crate) fn put_group(
    head: &mut Head,
    group: &[[u8; LENGTH]; SECTION_LABELS],
    immediate: bool,
) -> Result<()> {
    for record in group {
        let wrote = head.write(record)?;
        room(head, WRITING, wrote)?;
    }
    let wrote = head.filemarks(1, immediate)?;
    room(head, WRITING, wrote)
}

pub(crate) fn room(head: &Head, doing: &str, wrote: Wrote) -> Result<()> {
    if wrote != Wrote::Overflow {
        return Ok(());
    }
    let what = "the volume has no room for the labels";
    let advice = "the sections before are safe; write this one to another volume, and mark this one as full";
    Err(head.error(Fault::Full, Blame::Medium, doing, what, advice))
}

impl SectionWriter<'_, '_> {
    /// Where the section begins, and its number.
    pub fn point(&self) -> SectionPoint {
        let SectionLabel { volume, section, first_block, .. } = &self.label;
        SectionPoint { uuid: volume.clone(), block: *first_block, section: *section }
    }

    /// Block of its first data.
    pub fn first_data(&self) -> u64 {
        self.label.first_block + GROUP
    }

    /// Appends bytes of the section. With [`Room::Full`] the end of `data` was not taken: the section cannot be closed,
    /// and belongs onto another volume as a whole.
    ///
    /// # Errors
    /// Medium, drive and path errors; the section is then over.
    pub fn write(&mut self, mut data: &[u8]) -> Result<Room> {
        let size = self.label.block_size as usize;
        while !data.is_empty() && self.room != Room::Full {
            let taken = self.record.gather(data, size);
            data = &data[self.gathered(taken)?..];
        }
        Ok(self.room)
    }

    /// The same of bytes that are here, or at the drive's host.
    ///
    /// # Errors
    /// As [`SectionWriter::write`].
    pub fn write_load(&mut self, load: Load<'_>) -> Result<Room> {
        let data = match &load {
            Load::Here(room) => return self.write(&room[..load.bytes()]),
            Load::There(data) => *data,
        };
        let (size, mut at) = (self.label.block_size as usize, 0);
        while at < data.bytes && self.room != Room::Full {
            let taken = self.record.gather_there(rest(data, at), size);
            at += self.gathered(taken)?;
        }
        Ok(self.room)
    }

    fn gathered(&mut self, taken: Option<usize>) -> Result<usize> {
        let n = taken.ok_or_else(|| self.failed(TWO_PLACES.to_owned()))?;
        if self.record.bytes() == self.label.block_size as usize {
            self.put_record()?;
        }
        Ok(n)
    }

    fn put_record(&mut self) -> Result<()> {
        self.usable()?;
        let (head, bytes) = (self.mounted.head(), self.record.bytes());
        let wrote = self.record.put(|load| load.write(head));
        self.failed = wrote.is_err();
        match wrote? {
            Wrote::Good => {}
            Wrote::EarlyWarning => self.room = Room::EarlyWarning,
            Wrote::Overflow => {
                self.room = Room::Full;
                return Ok(());
            }
        }
        self.blocks += 1;
        self.bytes += bytes as u64;
        Ok(())
    }

    /// The caller cannot go on.
    pub(crate) fn failed(&self, what: String) -> crate::TapeError {
        let advice = "report this; the section does not count, those before it are safe";
        self.mounted.drive.head.error(Fault::Misuse, Blame::Us, WRITING, what, advice)
    }

    fn usable(&self) -> Result<()> {
        if !self.failed {
            return Ok(());
        }
        Err(self.mounted.misuse(WRITING, "an earlier command of this section failed".to_owned()))
    }

    /// Ends the section: its last record, filemark, EOF labels, and a filemark that puts everything on the medium.
    /// Returns where the next one goes.
    ///
    /// # Errors
    /// [`Fault::Full`] when it did not fit, and as [`SectionWriter::write`]: nothing of the section counts.
    pub fn close(mut self) -> Result<SectionPoint> {
        if self.record.bytes() > 0 && self.room != Room::Full {
            self.put_record()?;
        }
        self.usable()?;
        let head = &mut self.mounted.drive.head;
        if self.room == Room::Full {
            room(head, WRITING, Wrote::Overflow)?;
        }
        let (blocks, bytes) = (self.blocks, self.bytes);
        let trailer = self.label.trailer(&Trailer { ending: Ending::Section, blocks, bytes });
        let misuse = |e: format::ansi::AnsiError| (e.to_string(), "report this; the section does not count");
        let trailer = trailer
            .map_err(misuse)
            .map_err(|(what, advice)| head.error(Fault::Misuse, Blame::Us, WRITING, what, advice))?;
        let wrote = head.filemarks(1, true)?;
        room(head, WRITING, wrote)?;
        put_group(head, &trailer, false)?;
        let block = self.label.first_block + 2 * GROUP + 1 + blocks;
        head.verify(WRITING, Place { partition: PARTITION, block })?;
        Ok(SectionPoint { uuid: self.label.volume, block, section: self.label.section })
    }
}
