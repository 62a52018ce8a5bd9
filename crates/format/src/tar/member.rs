//! A segment of a file as a member of a section and back, without loss. The keys are listed in
//! `docs/formats/ansi-tar.md`.

use super::pax::Record;
use super::{name, time};
use crate::ltfs::file::{further_name, parse_further_name};
use types::{ClassName, CopyNo, Digest, Ino, NodeFacts, TapeFile, Time, Version};

/// Prefix of our own keys.
pub const VENDOR: &str = "THERMOCLINE.";
/// Name of the member.
pub const PATH: &str = "path";
/// Permissions, octal; in the list of members only.
pub const MODE: &str = "mode";
/// Path in the namespace where the member's name does not tell it.
pub const TRUE_PATH: &str = "THERMOCLINE.path";
/// Mode with the type of the file, octal, where it is not that of a regular file.
pub const FULL_MODE: &str = "THERMOCLINE.mode";
/// `inode.version.copy.uid`: its presence makes the member a file of ours; uid is unique on the volume.
pub const ID: &str = "THERMOCLINE.id";
/// Class of service.
pub const CLASS: &str = "THERMOCLINE.class";
/// `offset/length/size`: place and length of this segment and length of the whole file, where it is not the whole file.
pub const PART: &str = "THERMOCLINE.part";
/// SHA-256 of the whole file, hex, where it was known before the section was written.
pub const DIGEST: &str = "THERMOCLINE.sha256";
/// Target of a symlink.
pub const LINK: &str = "linkpath";
/// Device number of a device as Linux encodes it, decimal.
pub const DEVICE: &str = "THERMOCLINE.device";
/// `1` where the node was removed: what tapes tell of its earlier versions is over.
pub const GONE: &str = "THERMOCLINE.gone";
/// Inode of the directory in which it was named, decimal.
pub const PARENT: &str = "THERMOCLINE.parent";
/// Prefix of a further name, a number follows: inode of its directory in decimal, a space, the path in bytes.
pub const NAME: &str = "THERMOCLINE.name.";
/// Version of the word on the file that was in force; of a word: the version of the data that the file had. Decimal.
pub const BESIDE: &str = "THERMOCLINE.beside";
/// When the segment was written.
pub const WRITTEN: &str = "THERMOCLINE.written";
/// `1` where the version was overwritten or deleted before the section was written.
pub const DEAD: &str = "THERMOCLINE.dead";
/// Prefix of an attribute whose name tar programs cannot take: a number follows; the value is name, NUL, value.
pub const ODD_XATTR: &str = "THERMOCLINE.xattr.";
/// Prefix of the attributes of the file.
pub const XATTR: &str = "SCHILY.xattr.";
/// Creation time, as libarchive names it.
pub const CREATION: &str = "LIBARCHIVE.creationtime";
/// Type bits of a regular file.
const REGULAR: u32 = 0o100_000;

/// Everything about a segment but its length and where its data lies, in the order of the list of members.
pub fn records(file: &TapeFile) -> Vec<Record> {
    let member = name::of(file);
    let mut out = Vec::with_capacity(14 + file.xattrs.len());
    let mut put = |key: &str, value: Vec<u8>| out.push((key.to_owned(), value));
    let shown = [b"/", member.as_slice()].concat();
    put(PATH, member);
    if let Some(digest) = file.digest {
        put(DIGEST, digest.to_string().into_bytes());
    }
    put(ID, format!("{}.{}.{}.{}", file.ino, file.version, file.copy, file.uid).into_bytes());
    put(MODE, format!("{:o}", file.mode & 0o7777).into_bytes());
    put("uid", file.uid_owner.to_string().into_bytes());
    put("gid", file.gid_owner.to_string().into_bytes());
    let [access, modify, change, creation] = file.times;
    let times = [
        ("mtime", modify),
        ("atime", access),
        ("ctime", change),
        (CREATION, creation),
        (WRITTEN, file.written),
    ];
    for (key, at) in times {
        put(key, time::encode(at).into_bytes());
    }
    put(CLASS, file.class.as_str().as_bytes().to_vec());
    if shown != file.path {
        put(TRUE_PATH, file.path.clone());
    }
    if file.mode & !0o7777 != REGULAR {
        put(FULL_MODE, format!("{:o}", file.mode).into_bytes());
    }
    if file.segment_offset != 0 || file.segment_length != file.file_size {
        put(PART, format!("{}/{}/{}", file.segment_offset, file.segment_length, file.file_size).into_bytes());
    }
    if !file.node.target.is_empty() {
        put(LINK, file.node.target.clone());
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
        put(&format!("{NAME}{number}"), further_name(*dir, path));
    }
    if !file.live {
        put(DEAD, b"1".to_vec());
    }
    for (number, (name, value)) in file.xattrs.iter().enumerate() {
        match std::str::from_utf8(name).ok().filter(|name| plain_attribute(name)) {
            Some(name) => put(&format!("{XATTR}{name}"), value.clone()),
            None => put(&format!("{ODD_XATTR}{number}"), [name, &b"\0"[..], value].concat()),
        }
    }
    out
}

/// Whether an attribute's name can be part of a key for every tar: GNU's takes `%` and `=` for something else.
fn plain_attribute(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=' && byte != b'%')
}

/// The segment behind records, without extents; `length` is that of the extracted member (bytes). None for a member that
/// is not a file of ours. The error says which record is missing or wrong.
pub fn file(records: &[Record], length: u64) -> Result<Option<TapeFile>, String> {
    let get = |key: &str| records.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_slice());
    let Some(id) = get(ID) else { return Ok(None) };
    let parsed = parse(&get, id, length).map_err(|key| match get(key) {
        None => format!("record {key} is missing"),
        Some(value) => format!("record {key} is {:?}", value.escape_ascii().to_string()),
    });
    let mut file = parsed?;
    for (key, value) in records {
        if let Some(name) = key.strip_prefix(XATTR) {
            if name.contains('\0') {
                return Err(format!("record {key:?} is about an attribute that no file can have"));
            }
            file.xattrs.push((name.as_bytes().to_vec(), value.clone()));
        } else if key.starts_with(ODD_XATTR) {
            let at = value.iter().position(|&byte| byte == 0);
            let at = at.ok_or_else(|| format!("record {key} has no name in it"))?;
            file.xattrs.push((value[..at].to_vec(), value[at + 1..].to_vec()));
        } else if key.starts_with(NAME) {
            let name = parse_further_name(value);
            file.node.names.push(name.ok_or_else(|| format!("record {key} is no name"))?);
        }
    }
    Ok(Some(file))
}

fn parse<'r>(
    get: &dyn Fn(&str) -> Option<&'r [u8]>,
    id: &[u8],
    length: u64,
) -> Result<TapeFile, &'static str> {
    let text = |key: &'static str| get(key).and_then(|value| std::str::from_utf8(value).ok()).ok_or(key);
    let at = |key: &'static str| -> Result<Time, &'static str> { time::decode(text(key)?).ok_or(key) };
    let octal = |key: &'static str| u32::from_str_radix(text(key)?, 8).map_err(|_| key);
    let (ino, version, copy, uid) = parse_id(id).ok_or(ID)?;
    let (segment_offset, segment_length, file_size) = match get(PART) {
        None => (0, length, length),
        Some(_) => three(text(PART)?).ok_or(PART)?,
    };
    let end = segment_offset.checked_add(segment_length).filter(|&end| end <= file_size);
    end.filter(|_| segment_length == length).ok_or(PART)?;
    let digest = match get(DIGEST) {
        None => None,
        Some(_) => Some(parse_digest(text(DIGEST)?).ok_or(DIGEST)?),
    };
    let path = match get(TRUE_PATH) {
        Some(path) => path.to_vec(),
        None => [b"/", get(PATH).ok_or(PATH)?].concat(),
    };
    let mode = match get(FULL_MODE) {
        Some(_) => octal(FULL_MODE)?,
        None => REGULAR | octal(MODE)? & 0o7777,
    };
    let number = |key: &'static str| text(key)?.parse::<u32>().map_err(|_| key);
    Ok(TapeFile {
        uid,
        ino,
        version,
        copy,
        file_size,
        segment_offset,
        segment_length,
        extents: Vec::new(),
        path,
        mode,
        uid_owner: number("uid")?,
        gid_owner: number("gid")?,
        times: [at("atime")?, at("mtime")?, at("ctime")?, at(CREATION)?],
        digest,
        xattrs: Vec::new(),
        class: ClassName(text(CLASS)?.to_owned()),
        written: at(WRITTEN)?,
        live: get(DEAD).is_none(),
        node: NodeFacts {
            target: get(LINK).unwrap_or_default().to_vec(),
            rdev: get(DEVICE).map_or(Ok(0), |_| number(DEVICE))?,
            gone: get(GONE).is_some(),
            parent: Ino(match get(PARENT) {
                None => 0,
                Some(_) => text(PARENT)?.parse().map_err(|_| PARENT)?,
            }),
            names: Vec::new(),
            beside: Version(match get(BESIDE) {
                None => 0,
                Some(_) => text(BESIDE)?.parse().map_err(|_| BESIDE)?,
            }),
        },
    })
}

fn parse_id(id: &[u8]) -> Option<(Ino, Version, CopyNo, u64)> {
    let mut parts = std::str::from_utf8(id).ok()?.split('.');
    let ino = Ino(parts.next()?.parse().ok()?);
    let version = Version(parts.next()?.parse().ok()?);
    let copy = CopyNo(parts.next()?.parse().ok()?);
    let uid = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((ino, version, copy, uid))
}

fn three(text: &str) -> Option<(u64, u64, u64)> {
    let (offset, rest) = text.split_once('/')?;
    let (length, size) = rest.split_once('/')?;
    Some((offset.parse().ok()?, length.parse().ok()?, size.parse().ok()?))
}

pub(super) fn parse_digest(hex: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (slot, at) in digest.iter_mut().zip((0..).step_by(2)) {
        *slot = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(Digest(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_attributes_that_a_tar_takes_for_something_else_are_no_part_of_a_key() {
        assert!(plain_attribute("user.mime_type") && plain_attribute("user./~"));
        // GNU tar undoes %XX in names, and reads a key up to the first `=`.
        for odd in ["", "user.a=b", "user.a%3Db", "user.100%", "user.a b", "user.\u{e9}", "user.a\n"] {
            assert!(!plain_attribute(odd), "{odd:?}");
        }
    }
}
