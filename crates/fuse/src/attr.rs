//! Conversions between the namespace's data and the protocol's.

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::{Attr, FileKind, Ino, Time};

/// `st_blksize`: large enough that programs with default buffers make few system calls.
const PREFERRED_IO: u32 = 64 << 10;

/// The kernel's view of `attr`.
pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.disk_bytes.div_ceil(512),
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: PREFERRED_IO,
        flags: 0,
    }
}

/// A reply that says "no such name" and may be cached: inode 0.
pub(crate) fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// Kind of a node as the protocol names it.
pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Kind from the format bits of a mode; None for what mknod(2) does not make.
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => Some(FileKind::File),
        libc::S_IFIFO => Some(FileKind::Fifo),
        libc::S_IFSOCK => Some(FileKind::Socket),
        libc::S_IFCHR => Some(FileKind::CharDevice),
        libc::S_IFBLK => Some(FileKind::BlockDevice),
        _ => None,
    }
}

/// Inode number as the namespace knows it.
pub(crate) fn ino(node: INodeNo) -> Ino {
    Ino(node.0)
}

fn system_time(time: Time) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos.min(999_999_999)));
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let base = if time.secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|t| t.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// A time that a program set. The protocol crate (0.18.0) turns a time before 1970 into `epoch - (seconds + nanos)`
/// instead of `epoch - seconds + nanos`; nothing is lost by it, so it is undone here.
pub(crate) fn set_time(time: TimeOrNow, now: Time) -> Time {
    match time {
        TimeOrNow::Now => now,
        TimeOrNow::SpecificTime(t) => match t.duration_since(UNIX_EPOCH) {
            Ok(d) => Time::new(i64::try_from(d.as_secs()).unwrap_or(i64::MAX), d.subsec_nanos()),
            Err(e) => {
                let d = e.duration();
                Time::new(0i64.checked_sub_unsigned(d.as_secs()).unwrap_or(i64::MIN), d.subsec_nanos())
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_reach_the_kernel_as_they_are() {
        let t = system_time(Time::new(-2, 250_000_000));
        assert_eq!(UNIX_EPOCH.duration_since(t).unwrap(), Duration::from_millis(1750));
    }

    #[test]
    fn times_before_1970_come_back_from_the_crate_as_they_were_set() {
        // what fuser 0.18.0 makes of seconds -2, nanoseconds 250_000_000
        let from_crate = UNIX_EPOCH - Duration::new(2, 250_000_000);
        let got = set_time(TimeOrNow::SpecificTime(from_crate), Time::default());
        assert_eq!(got, Time::new(-2, 250_000_000));
    }

    #[test]
    fn extreme_times_do_not_panic() {
        for secs in [i64::MIN, i64::MAX] {
            for nanos in [0, 999_999_999, u32::MAX] {
                system_time(Time::new(secs, nanos));
            }
        }
    }
}
