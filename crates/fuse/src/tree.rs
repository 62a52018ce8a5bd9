//! The tree of mounts that this process sees, from the kernel's own list: no path is walked, so no file system is asked anything.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mount in the tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Something is mounted over it.
    pub(crate) covered: bool,
}

/// The mount of that number, if it shows the file system of that device; None: it is in the tree no more.
pub(crate) fn find(id: u64, device: (u32, u32)) -> io::Result<Option<Seen>> {
    std::fs::read("/proc/self/mountinfo").map(|list| find_in(&list, id, device))
}

fn find_in(list: &[u8], id: u64, device: (u32, u32)) -> Option<Seen> {
    let lines = || list.split(|b| *b == b'\n').filter_map(Line::of);
    let ours = lines().find(|line| line.id == id && line.device == device)?;
    let covered = lines().any(|line| line.parent == id && line.path == ours.path);
    Some(Seen { path: unescaped(ours.path), covered })
}

struct Line<'l> {
    id: u64,
    parent: u64,
    device: (u32, u32),
    path: &'l [u8],
}

impl<'l> Line<'l> {
    /// None: no line of that list.
    fn of(line: &'l [u8]) -> Option<Self> {
        let mut words = line.split(|b| *b == b' ');
        let mut word = || words.next();
        let (id, parent, device, _root, path) = (word()?, word()?, word()?, word()?, word()?);
        let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        Some(Self { id: number(id)?, parent: number(parent)?, device, path })
    }
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Blanks, line ends and backslashes are there as a backslash and three octal digits.
fn unescaped(path: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|d| *first == b'\\' && d.iter().all(|d| (b'0'..b'8').contains(d)));
        let value = digits.map(|d| d.iter().fold(0_u32, |value, d| value * 8 + u32::from(d - b'0')));
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_numbers_wherever_it_is() {
        let list = b"36 35 0:40 / /mnt/tc rw - fuse.thermocline thermocline rw\n\
            nonsense\n\
            37 36 0:41 / /mnt/tc/a\\040b\\134c rw shared:1 - fuse.thermocline thermocline rw\n\
            38 37 0:42 / /mnt/tc/a\\040b\\134c rw - tmpfs none rw\n";
        let seen = |path: &str, covered| Some(Seen { path: path.into(), covered });
        assert_eq!(find_in(list, 36, (0, 40)), seen("/mnt/tc", false));
        assert_eq!(find_in(list, 37, (0, 41)), seen("/mnt/tc/a b\\c", true));
        assert_eq!(find_in(list, 37, (0, 40)), None, "the number belongs to another one by now");
        assert_eq!(find_in(list, 39, (0, 41)), None);
        assert_eq!(unescaped(b"a\\09\\777\\"), PathBuf::from("a\\09\\777\\"));
    }
}
