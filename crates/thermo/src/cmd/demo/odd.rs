//! Names, modes, times and attributes that a documentation tree does not have.

use anyhow::{Context, Result};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, mknodat, setxattr, utimensat,
};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// Every name is legal in POSIX.
const NAMES: &[&[u8]] = &[
    b"two\nlines",
    b"tab\tand trailing space ",
    b"--looks-like-an-option",
    b"-",
    b"'quotes' \"and\" `more` $(true)",
    b"back\\slash",
    b"*?[stars]",
    b"%41 percent %2F",
    b"<xml attribute=\"&amp;\">",
    b"invalid UTF-8 \xff\xfe\x80",
    b"control \x01\x1b[31m",
    "emoji \u{1f4fc}\u{1f9ca}".as_bytes(),
    "combining e\u{301}".as_bytes(),
    "composed \u{e9}".as_bytes(),
    "\u{202e}right to left".as_bytes(),
    b".hidden",
    b"...",
    b"attr_0_1",
];

/// Fills a new directory. Gives what this machine does not allow.
pub fn make(dir: &Path) -> Result<Vec<&'static str>> {
    fs::create_dir(dir).with_context(|| format!("making {}", dir.display()))?;
    let at = |name: &[u8]| dir.join(OsStr::from_bytes(name));
    for name in NAMES {
        fs::write(at(name), [b"content of ", *name].concat())?;
    }
    fs::write(at(&[b'n'; 255]), "the longest name")?;
    fs::write(at(b"empty"), "")?;
    let sparse = File::create(at(b"sparse"))?;
    sparse.set_len(9 << 20)?;
    sparse.write_all_at(b"in the middle", 5 << 20)?;
    fs::write(at(b"one byte"), "1")?;
    fs::hard_link(at(b"one byte"), at(b"one byte, second name"))?;
    fs::create_dir(at(b"sub"))?;
    fs::hard_link(at(b"one byte"), at(b"sub/third name"))?;
    symlink("nowhere at all", at(b"dangling"))?;
    symlink(OsStr::from_bytes(b"odd \xff target\n"), at(b"odd target"))?;
    symlink(".", at(b"loop"))?;
    modes_and_times(dir)?;
    let mut refused = Vec::new();
    if mknodat(CWD, at(b"fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).is_err() {
        refused.push("a fifo");
    }
    fs::write(at(b"attributes"), "has extended attributes")?;
    for (name, value) in [("user.odd", &b"\x00binary\xff"[..]), ("user.empty", b"")] {
        if setxattr(at(b"attributes"), name, value, XattrFlags::empty()).is_err() {
            refused.push("extended attributes");
        }
    }
    refused.dedup();
    Ok(refused)
}

fn modes_and_times(dir: &Path) -> Result<()> {
    // Only root can read back what nobody may read.
    let closed = if rustix::process::geteuid().is_root() { 0o000 } else { 0o600 };
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2755), ("no permissions", closed), ("sub", 0o1777)]
    {
        let path = dir.join(name);
        if name != "sub" {
            fs::write(&path, name)?;
        }
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    let times = [
        ("nanoseconds", 1_234_567_890, 123_456_789),
        ("before 1970", -1, 1),
        ("after 2038", 4_000_000_000, 999_999_999),
    ];
    for (name, tv_sec, tv_nsec) in times {
        let path = dir.join(name);
        fs::write(&path, name)?;
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, AtFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_odd_is_there() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("odd");
        let refused = make(&dir).unwrap();
        let made = fs::read_dir(&dir).unwrap().count();
        assert_eq!(made, NAMES.len() + 17 - usize::from(refused.contains(&"a fifo")));
    }
}
