//! A section before it is written: which member begins at which byte. The list of members comes first, so everything but
//! the data itself must be known; digests that are not yet known follow in the last member.

use super::header::{FILE, Header, MAX_ELEVEN, MAX_NAME, MAX_SEVEN, PAX};
use super::index::{self, Entry, SectionHead};
use super::member::{self, LINK, MODE, PATH, records};
use super::pax::{self, Record};
use super::{BLOCK, TarError, name, node, padding};
use types::{Digest, Extent, TapeFile, Time};

/// Where the data of the section begins on its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Block that has the first byte of the section.
    pub first_block: u64,
    /// Size of blocks (bytes); all but the last are full.
    pub block_size: u32,
}

impl Place {
    /// Block and byte in it of a byte of the section.
    pub fn of(&self, offset: u64) -> (u64, u32) {
        let size = u64::from(self.block_size.max(1));
        (self.first_block.saturating_add(offset / size), (offset % size) as u32)
    }
}

/// A section to be written: [`Plan::front`]; for each file [`Plan::head`], the bytes of its extents, and zeros to the next
/// multiple of 512; [`Plan::back`].
#[derive(Clone, Debug)]
pub struct Plan {
    head: SectionHead,
    entries: Vec<Entry>,
    front: Vec<u8>,
    /// Length of the section (bytes).
    length: u64,
}

impl Plan {
    /// Plans a section of these files. Of their extents only `file_offset` and `byte_count` are looked at: they say which
    /// parts hold data, in order; what none covers is a hole. [`Plan::entries`] has the parts to be written with their
    /// places; they may reach a little into the holes.
    ///
    /// # Errors
    /// Extents that overlap or lie outside their segment; more than 10^16 bytes.
    pub fn new(mut head: SectionHead, files: Vec<TapeFile>, place: Place) -> Result<Self, TarError> {
        let mut entries = Vec::with_capacity(files.len());
        for mut file in files {
            file.extents = merged(&file)?;
            let held: u64 = file.extents.iter().map(|extent| extent.byte_count).sum();
            if held >= index::MOST {
                return Err(too_long(&file));
            }
            let (data, stored) = (member_head(&file).len() as u64, map_length(&file) + held);
            entries.push(Entry { offset: 0, data, stored, file });
        }
        // Offsets have a fixed width, so the length of the list does not depend on them.
        let list = index::encode(&head, &entries);
        let own = index_head(&head, list.len() as u64);
        let mut at = own.len() as u64 + list.len() as u64 + padding(list.len() as u64);
        for entry in &mut entries {
            entry.offset = at;
            let map = map_length(&entry.file);
            let mut here = at + entry.data;
            (entry.data, at) = (here - map, here + entry.stored - map);
            for extent in &mut entry.file.extents {
                (extent.start_block, extent.byte_offset) = place.of(here);
                here += extent.byte_count;
            }
            at = at.checked_add(padding(at)).filter(|&at| at < index::MOST).ok_or_else(|| {
                TarError::Unfit {
                    name: String::from_utf8_lossy(&entry.file.path).into_owned(),
                    what: "the section would become too long".to_owned(),
                }
            })?;
        }
        head.sums = at;
        let list = index::encode(&head, &entries);
        let gap = vec![0; padding(list.len() as u64) as usize];
        let mut plan = Self { front: [own, list, gap].concat(), head, entries, length: 0 };
        plan.length = at + plan.back(&[]).len() as u64;
        Ok(plan)
    }

    /// Length of the whole section (bytes), a multiple of 512.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The files in order, with the places of their data on the volume.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The beginning of the section: the list of members.
    pub fn front(&self) -> &[u8] {
        &self.front
    }

    /// What precedes the data of a file.
    pub fn head(&self, entry: &Entry) -> Vec<u8> {
        member_head(&entry.file)
    }

    /// The end of the section: the SHA-256 of each member as it is extracted, in order, and the end of the archive. A
    /// member without one (it could not be read in full) is shown with zeros.
    pub fn back(&self, digests: &[Option<Digest>]) -> Vec<u8> {
        let mut text = Vec::new();
        let digests = digests.iter().copied().chain(std::iter::repeat(None));
        for (entry, digest) in self.entries.iter().zip(digests).filter(|(entry, _)| has_sum(&entry.file)) {
            sum_line(&mut text, &name::of(&entry.file), digest.unwrap_or(Digest([0; 32])));
        }
        let records = [("THERMOCLINE.sums".to_owned(), b"1".to_vec())];
        let length = text.len() as u64;
        let mut out = own_head(&name::sums(self.head.section), length, self.head.begun, &records);
        out.extend_from_slice(&text);
        out.resize(out.len() + padding(length) as usize + 2 * BLOCK as usize, 0);
        out
    }
}

fn too_long(file: &TapeFile) -> TarError {
    let name = String::from_utf8_lossy(&file.path).into_owned();
    TarError::Unfit { name, what: "the section would become too long".to_owned() }
}

/// Whether a member is a file when it is extracted, so that the section has its digest.
pub fn has_sum(file: &TapeFile) -> bool {
    node::kind(file) == FILE
}

/// The digests of a section, one for each member that [`has_sum`]; None where the member does not count. None at all if the text is not
/// what [`Plan::back`] writes.
pub fn sums(text: &[u8]) -> Option<Vec<Option<Digest>>> {
    let lines = text.strip_suffix(b"\n").map_or(text, |text| text).split(|&byte| byte == b'\n');
    let digest = |line: &[u8]| {
        let line = line.strip_prefix(b"\\").unwrap_or(line);
        let (hex, rest) = line.split_at_checked(64)?;
        let digest = member::parse_digest(std::str::from_utf8(hex).ok()?)?;
        rest.starts_with(b"  ").then_some(Some(digest).filter(|digest| digest.0 != [0; 32]))
    };
    lines.filter(|line| !line.is_empty()).map(digest).collect()
}

/// A line as `sha256sum` writes it.
fn sum_line(out: &mut Vec<u8>, name: &[u8], digest: Digest) {
    let escaped = name.iter().any(|byte| matches!(byte, b'\n' | b'\\'));
    if escaped {
        out.push(b'\\');
    }
    out.extend_from_slice(format!("{digest}  ").as_bytes());
    for &byte in name {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            other => out.push(other),
        }
    }
    out.push(b'\n');
}

pub(super) fn own_head(name: &str, size: u64, begun: Time, records: &[Record]) -> Vec<u8> {
    let mtime = u64::try_from(begun.secs).unwrap_or(0);
    let header =
        Header { name: name.as_bytes().to_vec(), kind: FILE, mode: 0o444, size, mtime, ..Header::default() };
    let mut records = records.to_vec();
    if size > MAX_ELEVEN {
        records.push(("size".to_owned(), size.to_string().into_bytes()));
    }
    with_records(&records, &header)
}

fn index_head(head: &SectionHead, size: u64) -> Vec<u8> {
    own_head(&name::index(head.section), size, head.begun, &[(index::MARK.to_owned(), b"1".to_vec())])
}

/// A pax header with these records, if there are any, and the header of the member.
fn with_records(records: &[Record], header: &Header) -> Vec<u8> {
    if records.is_empty() {
        return header.encode().to_vec();
    }
    let body = pax::encode(records);
    let size = body.len() as u64;
    let pax = Header {
        name: b"./PaxHeaders/thermocline".to_vec(),
        kind: PAX,
        mode: 0o644,
        size,
        ..Header::default()
    };
    let mut out = pax.encode().to_vec();
    out.extend_from_slice(&body);
    out.resize(out.len() + padding(size) as usize, 0);
    out.extend_from_slice(&header.encode());
    out
}

/// Everything before the data of a file: records, header, and the map of a sparse member.
fn member_head(file: &TapeFile) -> Vec<u8> {
    let map = sparse_map(file);
    let stored = map.len() as u64 + file.extents.iter().map(|extent| extent.byte_count).sum::<u64>();
    let own = name::of(file);
    let member = if map.is_empty() { own.clone() } else { name::sparse(&own) };
    let mtime = file.times[1];
    let whole_seconds = u64::try_from(mtime.secs).ok().filter(|&s| s <= MAX_ELEVEN && mtime.nanos == 0);
    let mut records = records(file);
    records.retain_mut(|(key, value)| match key.as_str() {
        PATH => {
            value.clone_from(&member);
            member.len() > MAX_NAME || !member.is_ascii()
        }
        MODE => false,
        "uid" => u64::from(file.uid_owner) > MAX_SEVEN,
        "gid" => u64::from(file.gid_owner) > MAX_SEVEN,
        "mtime" => whole_seconds.is_none(),
        LINK => value.len() > MAX_NAME || !value.is_ascii(),
        _ => true,
    });
    let mut extra = Vec::new();
    if !own.is_ascii() || !file.node.target.is_ascii() {
        // Bytes as they are: otherwise readers convert names to their locale, and fail where they cannot.
        extra.push(("hdrcharset".to_owned(), b"BINARY".to_vec()));
    }
    if stored > MAX_ELEVEN {
        extra.push(("size".to_owned(), stored.to_string().into_bytes()));
    }
    if !map.is_empty() {
        let sparse = |key: &str, value: &[u8]| (format!("GNU.sparse.{key}"), value.to_vec());
        let size = file.segment_length.to_string();
        extra.extend([sparse("major", b"1"), sparse("minor", b"0"), sparse("name", &own)]);
        extra.push(sparse("realsize", size.as_bytes()));
    }
    extra.append(&mut records);
    let header = Header {
        name: member,
        kind: FILE,
        mode: file.mode & 0o7777,
        uid: file.uid_owner.into(),
        gid: file.gid_owner.into(),
        size: stored,
        mtime: whole_seconds.unwrap_or(0),
        ..Header::default()
    };
    let header = node::header(file, header);
    [with_records(&extra, &header), map].concat()
}

/// Length of the map of a sparse member (bytes), 0 for others.
fn map_length(file: &TapeFile) -> u64 {
    sparse_map(file).len() as u64
}

/// The map that precedes the data of a member with holes (GNU sparse format 1.0); empty without holes.
fn sparse_map(file: &TapeFile) -> Vec<u8> {
    let relative = |extent: &Extent| extent.file_offset - file.segment_offset;
    let whole = match file.extents.as_slice() {
        [] => file.segment_length == 0,
        [one] => relative(one) == 0 && one.byte_count == file.segment_length,
        _ => false,
    };
    if whole {
        return Vec::new();
    }
    let mut pieces: Vec<_> =
        file.extents.iter().map(|extent| (relative(extent), extent.byte_count)).collect();
    if pieces.last().is_none_or(|(at, length)| at + length < file.segment_length) {
        pieces.push((file.segment_length, 0));
    }
    let mut map = format!("{}\n", pieces.len());
    for (at, length) in pieces {
        map.push_str(&format!("{at}\n{length}\n"));
    }
    let mut map = map.into_bytes();
    map.resize(map.len() + padding(map.len() as u64) as usize, 0);
    map
}

/// The parts of a segment that hold data, without places; adjacent ones are put together. All but the last part are
/// widened into their holes to a multiple of 512 bytes, because GNU tar begins each part at a block.
fn merged(file: &TapeFile) -> Result<Vec<Extent>, TarError> {
    let unfit = |what: &str| {
        let name = String::from_utf8_lossy(&file.path).into_owned();
        TarError::Unfit { name, what: what.to_owned() }
    };
    let end = file.segment_offset.checked_add(file.segment_length).filter(|&end| end <= file.file_size);
    let end = end.ok_or_else(|| unfit("its segment is longer than the file"))?;
    let (mut out, mut at): (Vec<Extent>, u64) = (Vec::new(), file.segment_offset);
    for extent in file.extents.iter().filter(|extent| extent.byte_count > 0) {
        let behind = extent.file_offset.checked_add(extent.byte_count).filter(|&behind| behind <= end);
        let behind = behind.ok_or_else(|| unfit("an extent lies outside its segment"))?;
        if extent.file_offset < at {
            return Err(unfit("its extents overlap or lie before its segment"));
        }
        at = behind;
        let from = match out.pop_if(|last| last.file_offset + last.byte_count >= extent.file_offset) {
            Some(last) => last.file_offset,
            None => extent.file_offset,
        };
        let byte_count = (behind - from).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX).min(end - from);
        out.push(Extent { file_offset: from, start_block: 0, byte_offset: 0, byte_count });
    }
    Ok(out)
}
