//! A segment of a file of ours as an LTFS file and back, without loss: what LTFS has no place for travels in extended
//! attributes, so that the catalogue can be rebuilt from tape alone. The keys are listed in `docs/formats/ltfs.md`.

use super::index::{Content, EntryTimes, IndexExtent, IndexFile, Xattr, xml_letter};
use super::{Partition, time};
use types::{ClassName, CopyNo, Digest, Extent, FileKind, Ino, NodeFacts, TapeFile, Time, Version};

/// Path in the namespace (bytes, absolute).
pub const PATH: &str = "thermo.path";
/// Mode with the file type bits, octal.
pub const MODE: &str = "thermo.mode";
/// `uid:gid`, decimal.
pub const OWNER: &str = "thermo.owner";
/// `inode.version.copy`, decimal. Its presence makes the file one of ours.
pub const ID: &str = "thermo.id";
/// Class of service.
pub const CLASS: &str = "thermo.class";
/// `offset/size`: first byte of the file in this segment and length of the whole file, where the segment is not all.
pub const PART: &str = "thermo.part";
/// SHA-256 of the whole file, hex, where this segment is not the whole file.
pub const WHOLE_DIGEST: &str = "thermo.sha256sum";
/// Access, modification, change, creation and written time as `seconds.nanoseconds` with spaces between, where the
/// LTFS times cannot express one of them.
pub const TIMES: &str = "thermo.times";
/// `1` where the version was overwritten or deleted before the index was written.
pub const DEAD: &str = "thermo.dead";
/// Target of a symlink, bytes, where the element of the index cannot hold it.
pub const TARGET: &str = "thermo.target";
/// Device number of a device as Linux encodes it, decimal.
pub const DEVICE: &str = "thermo.device";
/// `1` where the node was removed: what volumes tell of its earlier versions is over.
pub const GONE: &str = "thermo.gone";
/// Inode of the directory in which it was named, decimal.
pub const PARENT: &str = "thermo.parent";
/// Prefix of a further name, a number follows: inode of its directory in decimal, a space, the path in bytes.
pub const NAME_PREFIX: &str = "thermo.name.";
/// Version of the word on the file that was in force; of a word: the version of the data that the file had. Decimal.
pub const BESIDE: &str = "thermo.beside";
/// Uid on the volume, of a directory of an index that stands for an entry of its own.
pub const UID: &str = "thermo.uid";
/// Prefix of the user's own attributes; the rest is their name with `=XX` for what is not a letter, digit, `.`, `_`
/// or `-`.
pub const USER_PREFIX: &str = "thermo.xattr.";
/// Prefix for attributes whose encoded name is too long; the rest is a number, the value is name, NUL, value.
pub const LONG_PREFIX: &str = "thermo.long-xattr.";
/// SHA-256 of this LTFS file, hex (the name that LTFS programs agree on).
pub const DIGEST: &str = "ltfs.hash.sha256sum";

/// Why an LTFS file that carries our attributes could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("file {name:?} (uid {uid}) on the volume: {what}")]
pub struct FileError {
    /// Name on tape.
    pub name: String,
    /// Uid on the volume.
    pub uid: u64,
    /// What is wrong.
    pub what: String,
}

/// The LTFS file of a segment, under a name that is unique in its directory.
///
/// Fails if an extent lies outside the segment.
pub fn to_index(name: &str, file: &TapeFile) -> Result<IndexFile, FileError> {
    let extents = file.extents.iter().map(|extent| {
        let file_offset = extent.file_offset.checked_sub(file.segment_offset).ok_or_else(|| FileError {
            name: name.to_owned(),
            uid: file.uid,
            what: format!(
                "an extent at {} lies before its segment at {}",
                extent.file_offset, file.segment_offset
            ),
        })?;
        Ok(IndexExtent { partition: Partition::DATA, extent: Extent { file_offset, ..*extent } })
    });
    let [access, modify, change, creation] = file.times;
    Ok(IndexFile {
        name: name.to_owned(),
        uid: file.uid,
        length: file.segment_length,
        readonly: false,
        times: EntryTimes { creation, change, modify, access, backup: file.written },
        xattrs: attributes(file),
        content: match symlink(file) {
            Some(target) => Content::Symlink(target.to_owned()),
            None => Content::Extents(extents.collect::<Result<_, FileError>>()?),
        },
        unknown: Vec::new(),
    })
}

/// Target of a symlink that an index can hold as it is.
fn symlink(file: &TapeFile) -> Option<&str> {
    let fits = file.kind() == Some(FileKind::Symlink) && file.file_size == 0 && file.extents.is_empty();
    let target = std::str::from_utf8(&file.node.target).ok().filter(|_| fits)?;
    (!target.is_empty() && target.trim() == target && target.chars().all(xml_letter)).then_some(target)
}

/// What the index says of a node of ours beside its name, data and times.
pub fn attributes(file: &TapeFile) -> Vec<Xattr> {
    let mut out = Vec::with_capacity(8 + file.xattrs.len());
    let mut put = |key: &str, value: Vec<u8>| out.push(Xattr { key: key.to_owned(), value });
    put(ID, format!("{}.{}.{}", file.ino, file.version, file.copy).into_bytes());
    put(PATH, file.path.clone());
    put(MODE, format!("{:o}", file.mode).into_bytes());
    put(OWNER, format!("{}:{}", file.uid_owner, file.gid_owner).into_bytes());
    put(CLASS, file.class.as_str().as_bytes().to_vec());
    let whole = file.segment_offset == 0 && file.segment_length == file.file_size;
    if !whole {
        put(PART, format!("{}/{}", file.segment_offset, file.file_size).into_bytes());
    }
    if let Some(digest) = file.digest {
        put(if whole { DIGEST } else { WHOLE_DIGEST }, digest.to_string().into_bytes());
    }
    let all_times = [file.times[0], file.times[1], file.times[2], file.times[3], file.written];
    if all_times.iter().any(|&t| time::clamp(t) != t) {
        let texts = all_times.map(|t| format!("{}.{:09}", t.secs, t.nanos));
        put(TIMES, texts.join(" ").into_bytes());
    }
    if !file.node.target.is_empty() && symlink(file).is_none() {
        put(TARGET, file.node.target.clone());
    }
    if file.node.rdev != 0 {
        put(DEVICE, file.node.rdev.to_string().into_bytes());
    }
    if file.node.parent != Ino(0) {
        put(PARENT, file.node.parent.to_string().into_bytes());
    }
    if file.node.gone {
        put(GONE, b"1".to_vec());
    }
    if file.node.beside != Version(0) {
        put(BESIDE, file.node.beside.to_string().into_bytes());
    }
    for (number, (dir, path)) in file.node.names.iter().enumerate() {
        put(&format!("{NAME_PREFIX}{number}"), further_name(*dir, path));
    }
    if !file.live {
        put(DEAD, b"1".to_vec());
    }
    for (number, (name, value)) in file.xattrs.iter().enumerate() {
        let (key, value) = user_attribute(number, name, value);
        put(&key, value);
    }
    out
}

/// A further name as it travels in both formats.
pub(crate) fn further_name(dir: Ino, path: &[u8]) -> Vec<u8> {
    [format!("{dir} ").as_bytes(), path].concat()
}

/// And back.
pub(crate) fn parse_further_name(value: &[u8]) -> Option<(Ino, Vec<u8>)> {
    let at = value.iter().position(|&byte| byte == b' ')?;
    let dir = std::str::from_utf8(&value[..at]).ok()?.parse().ok()?;
    Some((Ino(dir), value[at + 1..].to_vec()))
}

/// Key and value under which an attribute of the user's own travels.
fn user_attribute(number: usize, name: &[u8], value: &[u8]) -> (String, Vec<u8>) {
    let mut key = String::from(USER_PREFIX);
    for &byte in name {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') {
            key.push(char::from(byte));
        } else {
            key.push_str(&format!("={byte:02X}"));
        }
    }
    if key.len() <= 255 && !name.is_empty() {
        return (key, value.to_vec());
    }
    (format!("{LONG_PREFIX}{number}"), [name, b"\0", value].concat())
}

fn user_name(encoded: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'=' {
            let (digits, after) = tail.split_at_checked(2)?;
            out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    Some(out)
}

/// The segment behind an LTFS file; `None` for a file that does not carry our attributes (it was put there by somebody
/// else).
pub fn from_index(file: &IndexFile) -> Result<Option<TapeFile>, FileError> {
    let error = |what: String| FileError { name: file.name.clone(), uid: file.uid, what };
    let Some(id) = file.xattr(ID) else { return Ok(None) };
    let mut found = parse_fixed(file, id).map_err(|key| {
        let value = file.xattr(key).map(|value| value.escape_ascii().to_string());
        error(value.map_or(format!("attribute {key} is missing"), |v| format!("attribute {key} is {v:?}")))
    })?;
    if let Content::Symlink(target) = &file.content {
        if found.kind() != Some(FileKind::Symlink) || found.file_size > 0 {
            return Err(error("a symlink with the attributes of a file".to_owned()));
        }
        found.node.target = target.clone().into_bytes();
    }
    found.extents = data_extents(file, found.segment_offset).map_err(error)?;
    for Xattr { key, value } in &file.xattrs {
        if let Some(encoded) = key.strip_prefix(USER_PREFIX) {
            let name =
                user_name(encoded).ok_or_else(|| error(format!("attribute {key} has a broken name")))?;
            found.xattrs.push((name, value.clone()));
        } else if key.starts_with(LONG_PREFIX) {
            let at = value.iter().position(|&b| b == 0);
            let at = at.ok_or_else(|| error(format!("attribute {key} has no name in it")))?;
            found.xattrs.push((value[..at].to_vec(), value[at + 1..].to_vec()));
        } else if key.starts_with(NAME_PREFIX) {
            let name = parse_further_name(value);
            found.node.names.push(name.ok_or_else(|| error(format!("attribute {key} is no name")))?);
        }
    }
    Ok(Some(found))
}

fn data_extents(file: &IndexFile, segment_offset: u64) -> Result<Vec<Extent>, String> {
    let Content::Extents(extents) = &file.content else { return Ok(Vec::new()) };
    let mut out = Vec::with_capacity(extents.len());
    for IndexExtent { partition, extent } in extents {
        if *partition != Partition::DATA {
            return Err(format!("an extent on partition {partition}; files of ours lie on b only"));
        }
        let end = extent.file_offset.checked_add(extent.byte_count);
        let inside = end.is_some_and(|end| end <= file.length);
        let file_offset = extent.file_offset.checked_add(segment_offset).filter(|_| inside);
        let file_offset = file_offset.ok_or_else(|| "an extent beyond the length of the file".to_owned())?;
        out.push(Extent { file_offset, ..*extent });
    }
    Ok(out)
}

/// Everything but extents and the user's attributes; the error is the key that is missing or wrong.
fn parse_fixed(file: &IndexFile, id: &[u8]) -> Result<TapeFile, &'static str> {
    let text = |key: &'static str| file.xattr(key).and_then(|v| std::str::from_utf8(v).ok()).ok_or(key);
    let (ino, version, copy) = parse_id(id).ok_or(ID)?;
    let (uid_owner, gid_owner) = pair(text(OWNER)?, ':').ok_or(OWNER)?;
    let (segment_offset, file_size) = match file.xattr(PART) {
        None => (0, file.length),
        Some(_) => pair(text(PART)?, '/').ok_or(PART)?,
    };
    segment_offset.checked_add(file.length).filter(|&end| end <= file_size).ok_or(PART)?;
    let digest_key = if file.xattr(PART).is_some() { WHOLE_DIGEST } else { DIGEST };
    let digest = match file.xattr(digest_key) {
        None => None,
        Some(value) => Some(parse_digest(value).ok_or(digest_key)?),
    };
    let t = &file.times;
    let [atime, mtime, ctime, btime, written] = match file.xattr(TIMES) {
        None => [t.access, t.modify, t.change, t.creation, t.backup],
        Some(_) => parse_times(text(TIMES)?).ok_or(TIMES)?,
    };
    Ok(TapeFile {
        uid: file.uid,
        ino,
        version,
        copy,
        file_size,
        segment_offset,
        segment_length: file.length,
        extents: Vec::new(),
        path: file.xattr(PATH).ok_or(PATH)?.to_vec(),
        mode: u32::from_str_radix(text(MODE)?, 8).map_err(|_| MODE)?,
        uid_owner,
        gid_owner,
        times: [atime, mtime, ctime, btime],
        digest,
        xattrs: Vec::new(),
        class: ClassName(text(CLASS)?.to_owned()),
        written,
        live: file.xattr(DEAD).is_none(),
        node: NodeFacts {
            target: file.xattr(TARGET).unwrap_or_default().to_vec(),
            rdev: match file.xattr(DEVICE) {
                None => 0,
                Some(_) => text(DEVICE)?.parse().map_err(|_| DEVICE)?,
            },
            gone: file.xattr(GONE).is_some(),
            parent: Ino(match file.xattr(PARENT) {
                None => 0,
                Some(_) => text(PARENT)?.parse().map_err(|_| PARENT)?,
            }),
            names: Vec::new(),
            beside: Version(match file.xattr(BESIDE) {
                None => 0,
                Some(_) => text(BESIDE)?.parse().map_err(|_| BESIDE)?,
            }),
        },
    })
}

pub(super) fn pair<T: std::str::FromStr>(text: &str, separator: char) -> Option<(T, T)> {
    let (first, second) = text.split_once(separator)?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

fn parse_id(id: &[u8]) -> Option<(Ino, Version, CopyNo)> {
    let (ino, rest) = std::str::from_utf8(id).ok()?.split_once('.')?;
    let (version, copy) = rest.split_once('.')?;
    Some((Ino(ino.parse().ok()?), Version(version.parse().ok()?), CopyNo(copy.parse().ok()?)))
}

fn parse_digest(hex: &[u8]) -> Option<Digest> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).map(|v| v as u8);
    let mut digest = [0; 32];
    if hex.len() != 64 {
        return None;
    }
    for (slot, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
        *slot = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(Digest(digest))
}

fn parse_times(text: &str) -> Option<[Time; 5]> {
    let time = |word: &str| {
        let (secs, nanos) = word.split_once('.')?;
        Some(Time::new(secs.parse().ok()?, nanos.parse().ok()?))
    };
    let times: Vec<Time> = text.split(' ').map(time).collect::<Option<_>>()?;
    times.try_into().ok()
}
