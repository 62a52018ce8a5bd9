//! Cartridges of other programs with tar archives between filemarks, with ANSI labels around them or without: recognised
//! at mount, and read as they are. Nobody has listed what is on them: headers are read and the data between them is
//! skipped, by the length of the records as far as that is always the same.

use crate::head::{Head, Item, Place};
use crate::{Blame, Fault, Mounted, Result, TapeError};
use format::tar::BLOCK;
use format::tar::foreign::{self, Headers, Member, Step};
use scsi::{ReadOutcome, SpaceOutcome, Ssc};
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;
use types::Extent;

/// The only partition.
const PARTITION: u8 = 0;
/// Length of an ANSI label (bytes).
const CARD: usize = 80;
/// Records are read with a buffer of this size at first, and with a larger one where it does not do (bytes).
const BUFFER: usize = 256 << 10;
/// Bytes behind the end of an archive that are its padding, or one record of whatever length; more may be something else.
const MOST_PADDING: u64 = 20 << 10;
/// Longest record that a drive can give (bytes), with the sum of logical block protection.
const LONGEST: u64 = 0xFF_FFFF - 4;
const READING: &str = "reading the archives of another program";

/// A cartridge with tar archives of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarLabel {
    /// Made of the first record: the same cartridge has the same again, in the form of a uuid.
    pub uuid: String,
    /// Serial number of its ANSI label, if it has one.
    pub serial: Option<String>,
}

/// What a scan finds, in the order of the tape.
pub enum TarTold<'e> {
    /// A member, the number of its archive, and where its data lies.
    Member(u32, &'e Member, Extent),
    /// Something that cannot be taken, in words.
    Left(String),
}

/// The end of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TarEnd {
    /// Archives found.
    pub archives: u32,
    /// Block behind the last object.
    pub end_of_data: u64,
    /// Longest record seen (bytes).
    pub longest: u32,
}

/// Recognises a cartridge whose first record is neither of LTFS nor of ours.
pub(crate) fn recognise(head: &mut Head) -> Result<Option<TarLabel>> {
    let mut first = Vec::new();
    let found = record(head, 0, &mut first);
    match found {
        Ok(Item::Record(_)) => {}
        Ok(_) => return Ok(None),
        Err(e) if matches!(e.fault, Fault::BadRecord | Fault::MediumError | Fault::DataMissing) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    }
    let labelled = first.len() == CARD && first.starts_with(b"VOL1");
    let ours = labelled && first[24..].starts_with(b"THERMOCLINE");
    if ours || !(labelled || foreign::begins(&first)) {
        return Ok(None);
    }
    let mut sum = Sha256::new_with_prefix(&first);
    if labelled {
        // VOL1 alone says little: many sites have a tape 000001. The label of the first file has name and day.
        let mut second = Vec::new();
        if matches!(record(head, 1, &mut second), Ok(Item::Record(_))) {
            sum.update(&second);
        }
    }
    let hex: String = sum.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]].join("-");
    let serial = labelled.then(|| String::from_utf8_lossy(&first[4..10]).trim_end().to_owned());
    Ok(Some(TarLabel { uuid, serial }))
}

/// Reads the object at a block into `buffer`, which gets the length of the record.
fn record(head: &mut Head, block: u64, buffer: &mut Vec<u8>) -> Result<Item> {
    let at = Place { partition: PARTITION, block };
    let mut room = buffer.capacity().max(BUFFER);
    loop {
        head.locate(at)?;
        buffer.resize(room, 0);
        match head.read_any(buffer)? {
            ReadOutcome::Record { bytes } => {
                buffer.truncate(bytes);
                return Ok(Item::Record(bytes));
            }
            ReadOutcome::Filemark => return Ok(Item::Filemark),
            ReadOutcome::EndOfData => return Ok(Item::EndOfData),
            ReadOutcome::TooLong { length } => {
                let length = length.filter(|n| *n > room as u64 && *n <= LONGEST);
                let Some(length) = length else {
                    return Err(head.bad_record(READING, format!("block {block} is too long to be read")));
                };
                room = length as usize;
            }
        }
    }
}

impl Mounted<'_> {
    /// Reads the headers of all archives of a cartridge of another program, and skips their data. `visit` may stop it.
    ///
    /// # Errors
    /// [`Fault::NotLtfs`] where the cartridge is something else; medium and drive errors: what was told before is true.
    pub fn scan_tar(&mut self, visit: &mut dyn FnMut(TarTold<'_>) -> ControlFlow<()>) -> Result<TarEnd> {
        if !matches!(self.label, crate::LabelState::Tar(_)) {
            let what = format!("no tar archives of another program, but {}", self.label.describe());
            let advice = "put the right cartridge there";
            return Err(self.drive.head.error(Fault::NotLtfs, Blame::Medium, READING, what, advice));
        }
        self.record_block = None;
        let mut scan =
            Scan { head: &mut self.drive.head, end: TarEnd::default(), rest_of_file: false, visit };
        scan.volume()?;
        Ok(scan.end)
    }

    /// As [`Mounted::read`], from records of any length.
    pub(crate) fn read_tar(
        &mut self,
        extent: &Extent,
        sink: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let (mut block, mut skip) = (extent.start_block, extent.byte_offset as usize);
        let (mut offset, mut left) = (extent.file_offset, extent.byte_count);
        while left > 0 {
            if self.record_block != Some(block) {
                self.record_block = None;
                match record(&mut self.drive.head, block, &mut self.record)? {
                    Item::Record(_) => self.record_block = Some(block),
                    _ => {
                        let what = format!("the data of the file ends before block {block}");
                        return Err(self.drive.head.bad_record(READING, what));
                    }
                }
            }
            let end = usize::try_from(left).unwrap_or(usize::MAX).saturating_add(skip).min(self.record.len());
            let Some(piece) = self.record.get(skip..end).filter(|piece| !piece.is_empty()) else {
                let what = format!("block {block} has {} bytes, which is too few", self.record.len());
                return Err(self.drive.head.bad_record(READING, what));
            };
            if sink(offset, piece).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            offset += piece.len() as u64;
            left -= piece.len() as u64;
            (block, skip) = (block + 1, 0);
        }
        Ok(ControlFlow::Continue(()))
    }
}

struct Scan<'s> {
    head: &'s mut Head,
    end: TarEnd,
    /// The labels say that the next archive begins on another volume.
    rest_of_file: bool,
    visit: &'s mut dyn FnMut(TarTold<'_>) -> ControlFlow<()>,
}

/// Why the reading of an archive ends early.
enum Odd {
    /// The tape.
    Tape(TapeError),
    /// What is there is no archive.
    Content(String),
    /// The data of a member is not all there.
    Cut,
    /// Nobody wants more.
    Stopped,
}

type Odds<T> = std::result::Result<T, Odd>;

impl From<TapeError> for Odd {
    fn from(error: TapeError) -> Self {
        Self::Tape(error)
    }
}

impl Scan<'_> {
    fn volume(&mut self) -> Result<()> {
        let (mut block, mut buffer) = (0, Vec::new());
        loop {
            match record(self.head, block, &mut buffer)? {
                Item::EndOfData => break,
                Item::Filemark => block += 1,
                Item::Record(n) if is_label(&buffer[..n]) => {
                    if self.label(&buffer[..n]).is_break() {
                        break;
                    }
                    block += 1;
                }
                Item::Record(_) => {
                    let end = self.next_mark(block)?;
                    if self.file(block, end, std::mem::take(&mut buffer))?.is_break() {
                        block = end;
                        break;
                    }
                    block = end;
                }
            }
        }
        self.end.end_of_data = block;
        Ok(())
    }

    /// Block of the filemark or of the end of data behind a block.
    fn next_mark(&mut self, block: u64) -> Result<u64> {
        self.head.locate(Place { partition: PARTITION, block })?;
        self.head.forget_position();
        let outcome =
            self.head.attempt("going to the next filemark", |ssc: &mut Ssc| ssc.space_filemarks(1))?;
        let at = self.head.ask_position()?.block;
        Ok(if outcome == SpaceOutcome::Done { at.saturating_sub(1) } else { at })
    }

    fn label(&mut self, label: &[u8]) -> ControlFlow<()> {
        let say = |at: std::ops::Range<usize>| String::from_utf8_lossy(&label[at]).trim_end().to_owned();
        if label.starts_with(b"HDR1") {
            self.rest_of_file = !matches!(say(27..31).as_str(), "0001" | "0000" | "");
        } else if label.starts_with(b"EOV1") {
            let what =
                format!("file {:?} goes on on the next volume: what is cut there was not taken", say(4..21));
            return (self.visit)(TarTold::Left(what));
        }
        ControlFlow::Continue(())
    }

    /// One file of the tape.
    fn file(&mut self, first: u64, end: u64, record: Vec<u8>) -> Result<ControlFlow<()>> {
        self.end.longest = self.end.longest.max(record.len() as u32);
        if std::mem::take(&mut self.rest_of_file) {
            let what = format!(
                "blocks {first} to {}: the rest of an archive that begins on another volume",
                end - 1
            );
            return Ok((self.visit)(TarTold::Left(what)));
        }
        if !foreign::begins(&record) {
            let what = format!("blocks {first} to {}: no tar archive", end - 1);
            return Ok((self.visit)(TarTold::Left(what)));
        }
        self.end.archives += 1;
        let (archive, full) = (self.end.archives, record.len() as u64);
        let mut cursor = Cursor {
            head: self.head,
            end,
            full,
            record,
            held: Some(first),
            block: first,
            offset: 0,
            exact: false,
        };
        let done = members(&mut cursor, archive, self.visit);
        let (block, longest) = (cursor.block, cursor.record.len() as u32);
        self.end.longest = self.end.longest.max(longest);
        match done {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(Odd::Stopped) => Ok(ControlFlow::Break(())),
            Err(Odd::Tape(error)) => Err(error),
            Err(odd) => {
                let why =
                    if let Odd::Content(why) = odd { why } else { "its last member was cut off".into() };
                let what =
                    format!("archive {archive}, block {block}: {why}; nothing was taken from there on");
                Ok((self.visit)(TarTold::Left(what)))
            }
        }
    }
}

fn is_label(record: &[u8]) -> bool {
    let names: [&[u8]; 7] = [b"VOL", b"HDR", b"EOF", b"EOV", b"UHL", b"UTL", b"UVL"];
    record.len() == CARD && names.contains(&&record[..3]) && record[3].is_ascii_digit()
}

/// A place that is certain, block and offset, and the length of data behind which the next header begins.
type Sure = (u64, u64, u64);

/// The members of one archive. What goes wrong may only mean that its records are not all of one length: then it is read
/// through from the last place that is certain.
fn members(
    cursor: &mut Cursor<'_>,
    archive: u32,
    visit: &mut dyn FnMut(TarTold<'_>) -> ControlFlow<()>,
) -> Odds<()> {
    let mut headers = Headers::default();
    let mut sure: Sure = (cursor.block, cursor.offset, 0);
    let mut waiting: Option<(Member, Extent)> = None;
    loop {
        let mut found = next(cursor, sure, &headers);
        if matches!(found, Err(Odd::Content(_) | Odd::Cut)) && !cursor.exact {
            cursor.exact = true;
            found = next(cursor, sure, &headers);
        }
        if let (Ok(_) | Err(Odd::Content(_)), Some((member, extent))) = (&found, waiting.take())
            && visit(TarTold::Member(archive, &member, extent)).is_break()
        {
            return Err(Odd::Stopped);
        }
        let Some((member, behind, extent)) = found? else { break };
        headers = behind;
        sure = (extent.start_block, extent.byte_offset.into(), member.stored.next_multiple_of(BLOCK));
        waiting = Some((member, extent));
    }
    if cursor.far_from_end() {
        let left = cursor.end - cursor.block - 1;
        let what = format!("{left} records behind the end of archive {archive} were not looked at");
        return if visit(TarTold::Left(what)).is_break() { Err(Odd::Stopped) } else { Ok(()) };
    }
    Ok(())
}

/// The next member, the state behind its headers, and the place of its data; None at the end of the archive.
fn next(
    cursor: &mut Cursor<'_>,
    (block, offset, length): Sure,
    headers: &Headers,
) -> Odds<Option<(Member, Headers, Extent)>> {
    (cursor.block, cursor.offset) = (block, offset);
    cursor.skip(length)?;
    let mut headers = headers.clone();
    let Some(member) = header(cursor, &mut headers)? else {
        // Zeros in the midst of data look like an end.
        let early = !cursor.exact && cursor.far_from_end();
        return if early { Err(Odd::Content("it ends before the tape file".into())) } else { Ok(None) };
    };
    cursor.settle()?;
    let (start_block, byte_offset) = (cursor.block, cursor.offset as u32);
    let extent = Extent { file_offset: 0, start_block, byte_offset, byte_count: member.stored };
    Ok(Some((member, headers, extent)))
}

/// All headers of the next member; None at the end of the archive.
fn header(cursor: &mut Cursor<'_>, headers: &mut Headers) -> Odds<Option<Member>> {
    loop {
        // Some programs end an archive with the filemark.
        let Some(block) = cursor.take(BLOCK)? else { return Ok(None) };
        let block = block.as_slice().try_into().map_err(|_| Odd::Content("it was cut off".into()))?;
        match headers.block(block).map_err(Odd::Content)? {
            Step::Block => {}
            Step::End => return Ok(None),
            Step::Member(member) => return Ok(Some(*member)),
            Step::Body(length) => {
                let padded = length.next_multiple_of(BLOCK);
                let mut body = cursor.take(padded)?.unwrap_or_default();
                if (body.len() as u64) < padded {
                    return Err(Odd::Content("it was cut off".into()));
                }
                body.truncate(length as usize);
                headers.body(&body).map_err(Odd::Content)?;
            }
        }
    }
}

/// A place in a file of the tape, whose records all but the last are taken for equally long.
struct Cursor<'s> {
    head: &'s mut Head,
    /// Block of the filemark behind it.
    end: u64,
    /// Length of its first record (bytes).
    full: u64,
    record: Vec<u8>,
    /// Block of that record.
    held: Option<u64>,
    block: u64,
    /// Offset in the block (bytes).
    offset: u64,
    /// Records are not all of one length: nothing is skipped unread.
    exact: bool,
}

impl Cursor<'_> {
    /// More is behind the present record than pads an archive.
    fn far_from_end(&self) -> bool {
        let left = self.end.saturating_sub(self.block + 1);
        left > 1 && left.saturating_mul(self.full) > MOST_PADDING
    }

    /// Has the present block in `record`; false behind the last one.
    fn load(&mut self) -> Odds<bool> {
        if self.block >= self.end {
            return Ok(false);
        }
        if self.held != Some(self.block) {
            self.held = None;
            match record(self.head, self.block, &mut self.record)? {
                Item::Record(_) => self.held = Some(self.block),
                _ => return Err(Odd::Content(format!("block {} is no record", self.block))),
            }
            if !self.exact && self.block + 1 < self.end && self.record.len() as u64 != self.full {
                return Err(Odd::Content("its records are not all of one length".into()));
            }
        }
        Ok(true)
    }

    /// Goes to the block behind if nothing is left of the present one; false at the end.
    fn settle(&mut self) -> Odds<bool> {
        while self.load()? {
            if self.offset < self.record.len() as u64 {
                return Ok(true);
            }
            self.offset -= self.record.len() as u64;
            self.block += 1;
        }
        Ok(false)
    }

    /// The next bytes, fewer at the end of the file; None if nothing is left at all.
    fn take(&mut self, length: u64) -> Odds<Option<Vec<u8>>> {
        let mut out = Vec::new();
        while (out.len() as u64) < length && self.settle()? {
            let from = self.offset as usize;
            let wanted = (length - out.len() as u64).min(self.record.len() as u64 - self.offset);
            out.extend_from_slice(&self.record[from..from + wanted as usize]);
            self.offset += wanted;
        }
        Ok((!out.is_empty()).then_some(out))
    }

    /// Goes over `length` bytes, which must be there.
    fn skip(&mut self, length: u64) -> Odds<()> {
        self.offset = self.offset.checked_add(length).ok_or(Odd::Cut)?;
        if self.exact {
            // One record after the other.
            let there = self.settle()? || self.offset == 0;
            return if there { Ok(()) } else { Err(Odd::Cut) };
        }
        // What is held may be the last record, which is shorter.
        let here = if self.held == Some(self.block) { self.record.len() as u64 } else { self.full };
        if self.offset < here {
            return Ok(());
        }
        let beyond = self.offset - here;
        (self.block, self.offset) = (self.block + 1 + beyond / self.full, beyond % self.full);
        if self.block > self.end || (self.block == self.end && self.offset > 0) {
            return Err(Odd::Cut);
        }
        if self.block == self.end && self.held != Some(self.end - 1) {
            // It ends with the file: so the last record must be a whole one.
            (self.block, self.offset) = (self.end - 1, self.full);
        }
        if self.block + 1 == self.end && self.load()? && self.offset > self.record.len() as u64 {
            return Err(Odd::Cut);
        }
        Ok(())
    }
}
