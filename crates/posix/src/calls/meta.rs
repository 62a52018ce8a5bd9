//! Attributes and times.

use super::{Words, done};
use crate::errors;
use crate::users;
use crate::world::{Outcome, World, mode, number, text};
use rustix::fs::{self, Access, AtFlags, CWD, FileType, Gid, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// What `mark` sets access and modification times to.
const MARK: i64 = 1_000_000_000;

fn look(world: &World<'_>, path: &[u8], follow: bool) -> Result<Stat, Errno> {
    match path.first() {
        Some(b'@') => fs::fstat(world.fd(path)),
        _ if follow => fs::statat(CWD, path, AtFlags::empty()),
        _ => fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW),
    }
}

fn field(s: &Stat, name: &str) -> String {
    match name {
        "type" => match FileType::from_raw_mode(s.st_mode) {
            FileType::RegularFile => "file",
            FileType::Directory => "dir",
            FileType::Symlink => "link",
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
            FileType::CharacterDevice => "char",
            FileType::BlockDevice => "block",
            FileType::Unknown => "unknown",
        }
        .to_owned(),
        "mode" => format!("{:o}", s.st_mode & 0o7777),
        "nlink" => s.st_nlink.to_string(),
        "uid" => users::name(s.st_uid),
        "gid" => users::name(s.st_gid),
        "size" => s.st_size.to_string(),
        "rdev" => format!("{}:{}", fs::major(s.st_rdev), fs::minor(s.st_rdev)),
        "blocks" => if s.st_blocks > 0 { "some" } else { "none" }.to_owned(),
        "atime" => format!("{}.{:09}", s.st_atime, s.st_atime_nsec),
        "mtime" => format!("{}.{:09}", s.st_mtime, s.st_mtime_nsec),
        // whether a time was given by the clock, not long ago
        "mnow" => is_now(s.st_mtime).to_owned(),
        "anow" => is_now(s.st_atime).to_owned(),
        other => panic!("no field {other}"),
    }
}

fn is_now(secs: i64) -> &'static str {
    let now = clock_gettime(ClockId::Realtime).tv_sec;
    if (now - 600..=now + 1).contains(&secs) { "now" } else { "then" }
}

fn fields(stat: &Stat, names: &[u8]) -> String {
    let shown: Vec<String> = text(names).split(',').map(|name| field(stat, name)).collect();
    shown.join(" ")
}

/// stat PATH|@NAME FIELD,FIELD...
pub fn stat(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    Ok(fields(&look(world, &w[0], true)?, &w[1]))
}

pub fn lstat(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    Ok(fields(&look(world, &w[0], false)?, &w[1]))
}

/// Whether two paths lead to one inode.
pub fn same(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let (a, b) = (look(world, &w[0], false)?, look(world, &w[1], false)?);
    Ok(if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) { "yes" } else { "no" }.to_owned())
}

pub fn chmod(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::chmod(&w[0], mode(&w[1])))
}

pub fn fchmod(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::fchmod(world.fd(&w[0]), mode(&w[1])))
}

fn id(word: &[u8]) -> Option<u32> {
    (word != b"-").then(|| users::number(text(word)).unwrap_or_else(|| panic!("no user {}", text(word))))
}

/// chown PATH USER GROUP, `-` for what stays
pub fn chown(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::chown(&w[0], id(&w[1]).map(Uid::from_raw), id(&w[2]).map(Gid::from_raw)))
}

pub fn lchown(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let (uid, gid) = (id(&w[1]).map(Uid::from_raw), id(&w[2]).map(Gid::from_raw));
    done(fs::chownat(CWD, &w[0], uid, gid, AtFlags::SYMLINK_NOFOLLOW))
}

pub fn fchown(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::fchown(world.fd(&w[0]), id(&w[1]).map(Uid::from_raw), id(&w[2]).map(Gid::from_raw)))
}

/// `now`, `omit`, or seconds with up to nine digits behind the point (which count upwards, also before 1970).
fn time(word: &[u8]) -> Timespec {
    match text(word) {
        "now" => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        "omit" => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        "wrong" => Timespec { tv_sec: 0, tv_nsec: 1_000_000_000 },
        t => {
            let (secs, nanos) = t.split_once('.').unwrap_or((t, "0"));
            let nanos = format!("{nanos:0<9}").parse().expect("nanoseconds");
            Timespec { tv_sec: secs.parse().expect("seconds"), tv_nsec: nanos }
        }
    }
}

fn times(w: Words<'_>) -> Timestamps {
    Timestamps { last_access: time(&w[1]), last_modification: time(&w[2]) }
}

/// utimens PATH ATIME MTIME
pub fn utimens(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::utimensat(CWD, &w[0], &times(w), AtFlags::empty()))
}

pub fn lutimens(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::utimensat(CWD, &w[0], &times(w), AtFlags::SYMLINK_NOFOLLOW))
}

pub fn futimens(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::futimens(world.fd(&w[0]), &times(w)))
}

fn wanted(word: &[u8]) -> Access {
    let one = |c: char| match c {
        'r' => Access::READ_OK,
        'w' => Access::WRITE_OK,
        'x' => Access::EXEC_OK,
        'f' => Access::EXISTS,
        other => panic!("no access {other}"),
    };
    text(word).chars().fold(Access::empty(), |all, c| all | one(c))
}

pub fn access(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::accessat(CWD, &w[0], wanted(&w[1]), AtFlags::empty()))
}

/// faccessat(2) with AT_EACCESS
pub fn eaccess(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::accessat(CWD, &w[0], wanted(&w[1]), AtFlags::EACCESS))
}

/// statvfs PATH FIELD
pub fn statvfs(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let s = fs::statvfs(&w[0])?;
    Ok(match text(&w[1]) {
        "namemax" => s.f_namemax.to_string(),
        "sane" => {
            let sane = s.f_blocks >= s.f_bfree && s.f_bfree >= s.f_bavail && s.f_files >= s.f_ffree;
            (if sane && s.f_frsize > 0 && s.f_blocks > 0 { "yes" } else { "no" }).to_owned()
        }
        other => panic!("no field {other}"),
    })
}

/// Sets access and modification times far back, remembers change times, and waits until the clock has gone on.
pub fn mark(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let t = Timespec { tv_sec: MARK, tv_nsec: 0 };
    let times = Timestamps { last_access: t, last_modification: t };
    for path in w {
        match path.first() {
            Some(b'@') => fs::futimens(world.fd(path), &times)?,
            _ => fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?,
        }
    }
    let mut newest = (0, 0);
    for path in w {
        let s = look(world, path, false)?;
        let change = (s.st_ctime, number::<i64>(s.st_ctime_nsec.to_string().as_bytes()));
        newest = newest.max(change);
        world.marks.insert(path.clone(), change);
    }
    loop {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        if (now.tv_sec, now.tv_nsec as i64) > newest {
            return Ok("ok".into());
        }
        std::thread::yield_now();
    }
}

/// Which of the times of marked objects have changed: `path:amc`, each letter there if that time did.
pub fn seen(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let one = |path: &Vec<u8>| {
        let before = *world.marks.get(path).expect("a marked path");
        let what = match look(world, path, false) {
            Err(errno) => errors::name(errno),
            Ok(s) => {
                let moved = [
                    ('a', (s.st_atime, s.st_atime_nsec as i64) != (MARK, 0)),
                    ('m', (s.st_mtime, s.st_mtime_nsec as i64) != (MARK, 0)),
                    ('c', (s.st_ctime, s.st_ctime_nsec as i64) != before),
                ];
                moved.iter().filter(|m| m.1).map(|m| m.0).collect()
            }
        };
        format!("{}:{what}", text(path))
    };
    Ok(w.iter().map(one).collect::<Vec<_>>().join(" "))
}
