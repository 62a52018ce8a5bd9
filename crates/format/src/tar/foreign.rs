//! Archives of other programs: what the headers of ustar, pax, GNU, and older tar archives say, block by block, so that
//! the data between them need not be read. Sources: POSIX.1-2001 (pax), the manual of GNU tar ("Tar Internals"), tar(5) of libarchive.

use super::pax::{self, Record};
use super::{BLOCK, time};
use types::Time;

/// Longest body of an extended header that is read (bytes).
const MAX_BODY: u64 = 16 << 20;
/// Longest data of a member (bytes).
const MAX_DATA: u64 = 1 << 60;
/// Longest name in a directory (bytes).
const MAX_NAME: usize = 255;
/// Bits of the mode that are taken: not those that change who runs a program.
const MODE: i128 = 0o1777;

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A regular file whose data follows.
    File,
    /// Another name of the member with this name.
    Link(Vec<u8>),
    /// A symbolic link to this.
    Symlink(Vec<u8>),
    /// A directory.
    Dir,
    /// Name of the archive.
    Label,
    /// Something else, in words.
    Other(String),
}

/// A member, by its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it is.
    pub what: What,
    /// Its name as written.
    pub name: Vec<u8>,
    /// Permissions.
    pub mode: u32,
    /// Owner and group; None where the archive says none that we can have.
    pub owner: Option<(u32, u32)>,
    /// Length of the data behind its headers, without padding (bytes).
    pub stored: u64,
    /// Modification time.
    pub mtime: Time,
    /// Access, change and creation time, where the archive has them.
    pub others: [Option<Time>; 3],
    /// Attributes of users (`user.*`).
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What comes after a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another header block.
    Block,
    /// So many bytes, padded to whole blocks, for [`Headers::body`].
    Body(u64),
    /// All headers of a member are known; its data follows.
    Member(Box<Member>),
    /// The archive ends.
    End,
}

/// Follows the headers of an archive.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    global: Vec<Record>,
    local: Vec<Record>,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    /// Kind of the header whose body comes next.
    awaited: Option<u8>,
    /// Member whose further headers with the map of its holes come next.
    sparse: Option<Box<Member>>,
}

impl Headers {
    /// The next header block.
    ///
    /// # Errors
    /// It is no header of tar.
    pub fn block(&mut self, block: &[u8; BLOCK as usize]) -> Result<Step, String> {
        if let Some(member) = self.sparse.take() {
            return Ok(self.mapped(member, block[504]));
        }
        if block.iter().all(|&byte| byte == 0) {
            let begun = !self.local.is_empty() || self.name.is_some() || self.link.is_some();
            return if begun { Err("headers of no member".into()) } else { Ok(Step::End) };
        }
        check(block)?;
        let size = field(block, "size", 124..136)?;
        let size = u64::try_from(size).ok().filter(|size| *size <= MAX_DATA);
        let size = size.ok_or("its length is beyond reason")?;
        match block[156] {
            kind @ (b'x' | b'X' | b'g' | b'L' | b'K') => {
                if size > MAX_BODY {
                    return Err(format!("an extended header of {size} bytes"));
                }
                self.awaited = Some(kind);
                Ok(Step::Body(size))
            }
            kind => {
                let member = Box::new(self.member(block, kind, size)?);
                Ok(if kind == b'S' { self.mapped(member, block[482]) } else { Step::Member(member) })
            }
        }
    }

    /// A sparse member of GNU's old format; `more`: further blocks with its map follow.
    fn mapped(&mut self, member: Box<Member>, more: u8) -> Step {
        if more == 0 {
            return Step::Member(member);
        }
        self.sparse = Some(member);
        Step::Block
    }

    /// The body of the extended header given last.
    ///
    /// # Errors
    /// It is not what its kind says.
    pub fn body(&mut self, body: &[u8]) -> Result<(), String> {
        let records = || pax::decode(body).ok_or("an extended header that is not right".to_owned());
        let text = body.split(|&byte| byte == 0).next().unwrap_or_default();
        match self.awaited.take() {
            Some(b'x' | b'X') => self.local.extend(records()?),
            Some(b'g') => {
                for (key, value) in records()? {
                    self.global.retain(|(known, _)| *known != key);
                    self.global.push((key, value));
                }
            }
            Some(b'L') => self.name = Some(text.to_vec()),
            Some(b'K') => self.link = Some(text.to_vec()),
            _ => return Err("a body that no header announced".to_owned()),
        }
        Ok(())
    }

    fn member(&mut self, block: &[u8; BLOCK as usize], kind: u8, size: u64) -> Result<Member, String> {
        let local = std::mem::take(&mut self.local);
        let (long_name, long_link) = (self.name.take(), self.link.take());
        let all = || local.iter().rev().chain(self.global.iter().rev());
        // An empty value takes back what a global header said.
        let record = |key: &str| {
            all().find(|(known, _)| known == key).map(|(_, value)| value).filter(|value| !value.is_empty())
        };
        let name = record("GNU.sparse.name").or(record("path")).cloned();
        let name = name.or(long_name).unwrap_or_else(|| header_name(block));
        let target = record("linkpath").cloned().or(long_link).unwrap_or_else(|| text(&block[157..257]));
        let number =
            |key: &str| record(key).map(|value| decimal(value).ok_or(format!("its {key} is no number")));
        let stored = number("size").transpose()?.unwrap_or(size);
        if stored > MAX_DATA {
            return Err("its length is beyond reason".to_owned());
        }
        let at = |key: &str| record(key).and_then(|value| time::decode(std::str::from_utf8(value).ok()?));
        let seconds = field(block, "time", 136..148)?;
        let mtime = at("mtime").unwrap_or(Time::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0));
        let id = |key: &str, at: std::ops::Range<usize>| match record(key) {
            Some(value) => decimal(value).and_then(|n| u32::try_from(n).ok()),
            None => numeric(&block[at]).and_then(|n| u32::try_from(n).ok()),
        };
        let sparse = all().any(|(key, _)| key.starts_with("GNU.sparse."));
        let what = what(kind, &name, target, sparse);
        let stored = if matches!(what, What::Link(_) | What::Symlink(_)) { 0 } else { stored };
        let xattr = |(key, value): &Record| {
            let name = key.strip_prefix("SCHILY.xattr.").filter(|name| name.starts_with("user."))?;
            Some((name.as_bytes().to_vec(), value.clone()))
        };
        Ok(Member {
            what,
            name,
            mode: (field(block, "mode", 100..108)? & MODE) as u32,
            owner: id("uid", 108..116).zip(id("gid", 116..124)),
            stored,
            mtime,
            others: ["atime", "ctime", "LIBARCHIVE.creationtime"].map(at),
            xattrs: local.iter().filter_map(xattr).collect(),
        })
    }
}

fn what(kind: u8, name: &[u8], target: Vec<u8>, sparse: bool) -> What {
    let other = |text: &str| What::Other(text.to_owned());
    match kind {
        0 | b'0' | b'7' if sparse => other("it has holes (a sparse member)"),
        // as tar wrote directories before there was a kind for them
        0 | b'0' if name.ends_with(b"/") => What::Dir,
        0 | b'0' | b'7' => What::File,
        b'1' => What::Link(target),
        b'2' => What::Symlink(target),
        b'5' | b'D' => What::Dir,
        b'3' | b'4' => other("it is a device"),
        b'6' => other("it is a named pipe"),
        b'S' => other("it has holes (a sparse member)"),
        b'M' => other("it is the rest of a file that begins on another volume"),
        b'V' => What::Label,
        kind => What::Other(format!("it is of kind {:?}, which is not known", char::from(kind))),
    }
}

/// Whether the block is a header by its sum; some programs added up signed bytes.
fn check(block: &[u8; BLOCK as usize]) -> Result<(), String> {
    let said = numeric(&block[148..156]).ok_or("no header of tar: its sum is no number")?;
    let (mut unsigned, mut signed) = (0_i128, 0_i128);
    for (at, &byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { byte };
        unsigned += i128::from(byte);
        signed += i128::from(byte as i8);
    }
    if said == unsigned || said == signed {
        Ok(())
    } else {
        Err("no header of tar: its sum is wrong".to_owned())
    }
}

/// Whether a record of a tape begins with a header of tar.
pub fn begins(record: &[u8]) -> bool {
    let block = record.first_chunk::<{ BLOCK as usize }>();
    block.is_some_and(|block| check(block).is_ok() && (block[0] != 0 || block[156] != 0))
}

fn field(block: &[u8; BLOCK as usize], name: &str, at: std::ops::Range<usize>) -> Result<i128, String> {
    numeric(&block[at]).ok_or_else(|| format!("the {name} in its header is no number"))
}

/// Octal digits between spaces and NULs, nothing at all (zero), or a binary number with the highest bit set (GNU).
fn numeric(field: &[u8]) -> Option<i128> {
    let (&first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        let begin = if first & 0x40 != 0 { i128::from(first as i8) } else { i128::from(first & 0x7f) };
        return rest.iter().try_fold(begin, |n, &byte| n.checked_mul(256)?.checked_add(byte.into()));
    }
    let blank = |byte: &u8| *byte == b' ' || *byte == 0;
    let begin = field.iter().position(|byte| !blank(byte)).unwrap_or(field.len());
    let digits = &field[begin..];
    let (digits, rest) = digits.split_at(digits.iter().position(blank).unwrap_or(digits.len()));
    let good = digits.iter().all(|byte| (b'0'..=b'7').contains(byte)) && rest.iter().all(blank);
    good.then(|| digits.iter().fold(0, |n, byte| n * 8 + i128::from(byte - b'0')))
}

fn decimal(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

fn text(field: &[u8]) -> Vec<u8> {
    field.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

/// Name, with the prefix that only headers of POSIX have.
fn header_name(block: &[u8; BLOCK as usize]) -> Vec<u8> {
    let (name, prefix) = (text(&block[..100]), text(&block[345..500]));
    let posix = &block[257..263] == b"ustar\0";
    if posix && !prefix.is_empty() { [&prefix[..], b"/", &name].concat() } else { name }
}

/// A name of an archive as a path below a directory: without a slash at begin or end, and without `.`; empty for that
/// directory itself.
///
/// # Errors
/// It leads out of the directory, or is no name that a file can have.
pub fn path(name: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut path: Vec<u8> = Vec::with_capacity(name.len());
    for part in name.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            return Err("its name has `..` in it");
        }
        if part.len() > MAX_NAME || part.contains(&0) {
            return Err("its name is none that a file can have");
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(part);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::super::header::{FILE, Header};
    use super::*;
    use proptest::prelude::*;

    /// All steps of an archive.
    fn members(archive: &[u8]) -> Result<Vec<Member>, String> {
        let (mut headers, mut at, mut found) = (Headers::default(), 0, Vec::new());
        loop {
            let block = archive.get(at..).and_then(|rest| rest.first_chunk()).ok_or("cut")?;
            at += 512;
            match headers.block(block)? {
                Step::Block => {}
                Step::End => return Ok(found),
                Step::Body(n) => {
                    headers.body(archive.get(at..at + n as usize).ok_or("cut")?)?;
                    at += n.next_multiple_of(512) as usize;
                }
                Step::Member(member) => {
                    at = at.saturating_add(member.stored.next_multiple_of(512) as usize);
                    found.push(*member);
                }
            }
        }
    }

    #[test]
    fn names_stay_below_their_directory() {
        assert_eq!(path(b"./a//b/./c/"), Ok(b"a/b/c".to_vec()));
        assert_eq!(path(b"/etc/passwd"), Ok(b"etc/passwd".to_vec()));
        assert_eq!(path(b"./"), Ok(Vec::new()));
        for bad in [&b"../a"[..], b"a/..", b"a/../b", b"/..", b"a\0b", &[b'x'; 256]] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn numbers_of_all_kinds() {
        assert_eq!(numeric(b"0000644\0"), Some(0o644));
        assert_eq!(numeric(b"   644 \0"), Some(0o644));
        assert_eq!(numeric(b"\0\0\0\0"), Some(0));
        assert_eq!(numeric(&[0x80, 0, 0, 1, 0, 0, 0, 0]), Some(1 << 32));
        assert_eq!(numeric(&[0xff; 12]), Some(-1));
        for bad in [&b"64x\0"[..], b"6 4 ", b"-1\0"] {
            assert_eq!(numeric(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_ends_too_early_or_is_no_header_is_an_error() {
        let mut header = Header { name: b"n".to_vec(), kind: FILE, ..Header::default() }.encode();
        assert!(begins(&header) && !begins(&[0; 512]) && !begins(&header[..511]));
        header[3] ^= 1;
        assert!(Headers::default().block(&header).is_err() && !begins(&header));
        let long = Header { name: b"@".to_vec(), kind: b'L', size: 3, ..Header::default() }.encode();
        let archive = [&long[..], b"abc", &[0; 509], &[0; 512]].concat();
        assert_eq!(members(&archive), Err("headers of no member".to_owned()));
    }

    proptest! {
        #[test]
        fn any_blocks_never_panic(blocks in prop::collection::vec(prop::array::uniform32(any::<u8>()), 1..6), kind: u8) {
            let mut archive = Vec::new();
            for seed in blocks {
                let mut header = Header { name: seed.to_vec(), kind, size: u64::from(seed[0]), ..Header::default() }.encode();
                header[124..136].copy_from_slice(&seed[..12]);
                header[148..156].fill(b' ');
                let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
                header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
                archive.extend(header);
                archive.extend(seed.iter().cycle().take(512));
            }
            let _ = members(&archive);
        }
    }
}
