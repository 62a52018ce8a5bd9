//! The list of members at the front of a section: text, a line for each member, with all that the catalogue knows of it.

use super::member;
use super::pax::Record;
use super::plan::Place;
use super::{BLOCK, TarError, time};
use crate::ltfs::is_uuid;
use types::{Extent, TapeFile, Time};

/// Record of the member that is the list.
pub const MARK: &str = "THERMOCLINE.index";
/// Key of the parts that hold data, `offset+length` with commas between, where a member has holes.
const PIECES: &str = "THERMOCLINE.pieces";
/// First words of a list.
const MAGIC: &str = "thermocline section 1";
/// Offsets have this many digits ...
const WIDTH: usize = 16;
/// ... and stay below this.
pub const MOST: u64 = 10_u64.pow(WIDTH as u32);

/// What a section says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionHead {
    /// Number of the section.
    pub section: u64,
    /// Uuid of its volume.
    pub volume: String,
    /// When it was begun.
    pub begun: Time,
    /// Byte of the section at which the member with the digests begins; set by [`super::plan::Plan::new`].
    pub sums: u64,
    /// Whose volume it is: keys of lower-case letters and any value.
    pub attributes: Vec<Record>,
}

/// A member of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Byte of the section at which its headers begin.
    pub offset: u64,
    /// Byte at which its data begins (the map of a sparse member is part of that).
    pub data: u64,
    /// Length of its data in the section (bytes).
    pub stored: u64,
    /// The file, with the places of its data on the volume.
    pub file: TapeFile,
}

/// The list as text.
pub fn encode(head: &SectionHead, entries: &[Entry]) -> Vec<u8> {
    let sums = format!("{:0WIDTH$}", head.sums);
    let mut out = MAGIC.as_bytes().to_vec();
    let fixed: [(&str, &str); 4] = [
        ("section", &head.section.to_string()),
        ("volume", &head.volume),
        ("begun", &time::encode(head.begun)),
        ("sums", &sums),
    ];
    for (key, value) in fixed {
        field(&mut out, key, value.as_bytes());
    }
    for (key, value) in &head.attributes {
        field(&mut out, key, value);
    }
    for entry in entries {
        let line = format!("\n{:0WIDTH$}\t{:0WIDTH$}\t{:0WIDTH$}", entry.offset, entry.data, entry.stored);
        out.extend_from_slice(line.as_bytes());
        for (key, value) in member::records(&entry.file) {
            field(&mut out, &key, &value);
        }
        if let Some(pieces) = pieces(&entry.file) {
            field(&mut out, PIECES, pieces.as_bytes());
        }
    }
    out.extend_from_slice(format!("\nend\t{}\n", entries.len()).as_bytes());
    out
}

/// The parts that hold data, where there are holes: `offset+length` from the start of the segment.
fn pieces(file: &TapeFile) -> Option<String> {
    let held: u64 = file.extents.iter().map(|extent| extent.byte_count).sum();
    let piece = |e: &Extent| format!("{}+{}", e.file_offset - file.segment_offset, e.byte_count);
    let all = || file.extents.iter().map(piece).collect::<Vec<_>>();
    (held < file.segment_length).then(|| format!("{}/{}", file.segment_length, all().join(",")))
}

/// A tab, the key, an equals sign, and the value with `%XX` for control characters and `%`.
fn field(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    out.push(b'\t');
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    for &byte in value {
        match byte {
            0..0x20 | 0x7f | b'%' => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            other => out.push(other),
        }
    }
}

/// Reads a list.
///
/// # Errors
/// [`TarError::Damaged`] with the byte of the list at which something is wrong; a list that was cut too.
pub fn decode(bytes: &[u8], place: Place) -> Result<(SectionHead, Vec<Entry>), TarError> {
    let mut at = 0;
    let mut head = None;
    let mut entries: Vec<Entry> = Vec::new();
    let mut ended = false;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let damaged =
            |what: String| TarError::Damaged { offset: at, what: format!("in the list of members: {what}") };
        let text = line.strip_suffix(b"\n").ok_or_else(|| damaged("a line without end".to_owned()))?;
        let mut fields = text.split(|&byte| byte == b'\t');
        let first = fields.next().unwrap_or_default();
        if ended {
            return Err(damaged("lines behind the end".to_owned()));
        }
        match &head {
            None if first == MAGIC.as_bytes() => head = Some(section(fields).map_err(damaged)?),
            None => return Err(damaged("it does not begin as one".to_owned())),
            Some(_) if first == b"end" => {
                let count = fields.next().and_then(decimal);
                if count != Some(entries.len() as u64) || fields.next().is_some() {
                    return Err(damaged(format!("{} lines, another number was written", entries.len())));
                }
                ended = true;
            }
            Some(_) => {
                let entry = entry(first, fields, place).map_err(damaged)?;
                let behind = entries.last().map_or(0, |last| last.data + last.stored);
                if entry.offset < behind {
                    return Err(damaged("members overlap".to_owned()));
                }
                entries.push(entry);
            }
        }
        at += line.len() as u64;
    }
    let head = head.filter(|_| ended);
    let head =
        head.ok_or(TarError::Damaged { offset: at, what: "the list of members was cut off".to_owned() })?;
    Ok((head, entries))
}

fn section<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Result<SectionHead, String> {
    let mut records = fields.map(record).collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut next = |key: &str| {
        let value = records.next().filter(|(found, _)| found == key).map(|(_, value)| value);
        value.and_then(|value| String::from_utf8(value).ok()).ok_or_else(|| format!("{key} is missing"))
    };
    let wrong = |key: &str, value: &str| format!("{key} is {value:?}");
    let number = next("section")?;
    let section = decimal(number.as_bytes()).ok_or_else(|| wrong("section", &number))?;
    let volume = next("volume")?;
    if !is_uuid(&volume) {
        return Err(wrong("volume", &volume));
    }
    let begun = next("begun")?;
    let begun = time::decode(&begun).ok_or_else(|| wrong("begun", &begun))?;
    let sums = next("sums")?;
    let sums = offset(sums.as_bytes()).ok_or_else(|| wrong("sums", &sums))?;
    Ok(SectionHead { section, volume, begun, sums, attributes: records.collect() })
}

fn entry<'a>(
    first: &[u8],
    mut fields: impl Iterator<Item = &'a [u8]>,
    place: Place,
) -> Result<Entry, String> {
    let numbers = (offset(first), fields.next().and_then(offset), fields.next().and_then(decimal));
    let (Some(start), Some(data), Some(stored)) = numbers else {
        return Err("a line without numbers".to_owned());
    };
    let aligned = start.is_multiple_of(BLOCK) && data.is_multiple_of(BLOCK) && start < data && stored < MOST;
    if !aligned {
        return Err(format!("a member at byte {start} with {stored} bytes of data at byte {data}"));
    }
    let mut records = fields.map(record).collect::<Result<Vec<_>, _>>()?;
    let holes = records.pop_if(|(key, _)| key == PIECES).map(|(_, value)| value);
    let (length, pieces) = match &holes {
        None => (stored, Vec::from_iter((stored > 0).then_some((0, stored)))),
        Some(value) => parse_pieces(value).ok_or("its holes are not understood")?,
    };
    let held: u64 = pieces.iter().map(|(_, length)| length).sum();
    let map = stored.checked_sub(held).filter(|map| holes.is_some() || *map == 0);
    let map = map.ok_or("more data than the member has")?;
    let file = member::file(&records, length)?;
    let mut file = file.ok_or("a line that is not about a file")?;
    let mut here = data + map;
    for (at, length) in pieces {
        let (start_block, byte_offset) = place.of(here);
        let file_offset = at + file.segment_offset; // both lie within the file's length
        file.extents.push(Extent { file_offset, start_block, byte_offset, byte_count: length });
        here += length;
    }
    Ok(Entry { offset: start, data, stored, file })
}

/// `length/offset+length,...`: the length of the segment, and its parts in order.
fn parse_pieces(value: &[u8]) -> Option<(u64, Vec<(u64, u64)>)> {
    let (length, list) = std::str::from_utf8(value).ok()?.split_once('/')?;
    let length = decimal(length.as_bytes())?;
    let (mut pieces, mut behind) = (Vec::new(), 0_u64);
    for piece in list.split(',').filter(|_| !list.is_empty()) {
        let (at, count) = piece.split_once('+')?;
        let (at, count) = (decimal(at.as_bytes())?, decimal(count.as_bytes())?);
        let end = at.checked_add(count).filter(|&end| at >= behind && count > 0 && end <= length)?;
        pieces.push((at, count));
        behind = end;
    }
    Some((length, pieces))
}

/// A key and a value with its `%XX` undone.
fn record(field: &[u8]) -> Result<Record, String> {
    let broken = || format!("a field {:?}", field.escape_ascii().to_string());
    let equals = field.iter().position(|&byte| byte == b'=').filter(|&at| at > 0).ok_or_else(broken)?;
    let key = std::str::from_utf8(&field[..equals]).map_err(|_| broken())?;
    let mut value = Vec::with_capacity(field.len() - equals);
    let mut rest = &field[equals + 1..];
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            value.push(*first);
            continue;
        }
        let (digits, after) = tail.split_at_checked(2).ok_or_else(broken)?;
        let digits =
            std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        value.push(u8::from_str_radix(digits.ok_or_else(broken)?, 16).map_err(|_| broken())?);
        rest = after;
    }
    Ok((key.to_owned(), value))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn offset(digits: &[u8]) -> Option<u64> {
    decimal(digits).filter(|_| digits.len() == WIDTH)
}
