//! Calls on descriptors and bytes.

use super::{Words, done};
use crate::world::{Outcome, World, mode, number, show, text};
use rustix::fs::{self, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::{self, Errno};

/// An offset as the kernel takes it: negative ones too.
fn offset(word: &[u8]) -> u64 {
    number::<i64>(word) as u64
}

fn flags(word: &[u8]) -> OFlags {
    let one = |name: &str| match name {
        "r" => OFlags::RDONLY,
        "w" => OFlags::WRONLY,
        "rw" => OFlags::RDWR,
        "creat" => OFlags::CREATE,
        "excl" => OFlags::EXCL,
        "trunc" => OFlags::TRUNC,
        "append" => OFlags::APPEND,
        "nofollow" => OFlags::NOFOLLOW,
        "dir" => OFlags::DIRECTORY,
        "path" => OFlags::PATH,
        "nonblock" => OFlags::NONBLOCK,
        "sync" => OFlags::SYNC,
        "direct" => OFlags::DIRECT,
        "tmpfile" => OFlags::TMPFILE,
        "noatime" => OFlags::NOATIME,
        other => panic!("no open flag {other}"),
    };
    text(word).split(',').fold(OFlags::CLOEXEC, |all, name| all | one(name))
}

/// open NAME PATH FLAGS [MODE]: a descriptor under a name.
pub fn open(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let mode = w.get(3).map_or(Mode::empty(), |m| mode(m));
    let fd = fs::open(&w[1], flags(&w[2]), mode)?;
    world.files.insert(w[0].clone(), fd);
    Ok("ok".into())
}

pub fn close(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    world.files.remove(&w[0]).expect("an open descriptor");
    Ok("ok".into())
}

fn write_whole(path: &[u8], flags: OFlags, data: &[u8]) -> Outcome {
    let fd = fs::open(path, flags | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))?;
    let mut left = data;
    while !left.is_empty() {
        left = &left[io::write(&fd, left)?..];
    }
    Ok("ok".into())
}

/// put PATH DATA: what `echo -n DATA > PATH` does.
pub fn put(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    write_whole(&w[0], OFlags::CREATE | OFlags::TRUNC, &w[1])
}

/// append PATH DATA: what `echo -n DATA >> PATH` does.
pub fn append(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    write_whole(&w[0], OFlags::APPEND, &w[1])
}

fn read_up_to(length: usize, mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; length];
    let n = read(&mut buffer)?;
    buffer.truncate(n);
    Ok(buffer)
}

/// Content of a file.
pub fn cat(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let fd = fs::open(&w[0], OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut content = Vec::new();
    loop {
        match read_up_to(1 << 16, |b| io::read(&fd, b))? {
            piece if piece.is_empty() => return Ok(show(&content)),
            piece => content.extend(piece),
        }
    }
}

pub fn read(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    Ok(show(&read_up_to(number(&w[1]), |b| io::read(world.fd(&w[0]), b))?))
}

/// pread NAME OFFSET LENGTH
pub fn pread(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    Ok(show(&read_up_to(number(&w[2]), |b| io::pread(world.fd(&w[0]), b, offset(&w[1])))?))
}

pub fn write(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    Ok(io::write(world.fd(&w[0]), &w[1])?.to_string())
}

/// pwrite NAME OFFSET DATA
pub fn pwrite(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    Ok(io::pwrite(world.fd(&w[0]), &w[2], offset(&w[1]))?.to_string())
}

/// seek NAME WHENCE OFFSET
pub fn seek(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let to = match text(&w[1]) {
        "set" => SeekFrom::Start(offset(&w[2])),
        "cur" => SeekFrom::Current(number(&w[2])),
        "end" => SeekFrom::End(number(&w[2])),
        "data" => SeekFrom::Data(offset(&w[2])),
        "hole" => SeekFrom::Hole(offset(&w[2])),
        other => panic!("no whence {other}"),
    };
    Ok(fs::seek(world.fd(&w[0]), to)?.to_string())
}

/// truncate(2) with its own lookup.
pub fn truncate(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    crate::raw::truncate(&w[0], number(&w[1])).map(|()| "ok".to_owned())
}

pub fn ftruncate(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::ftruncate(world.fd(&w[0]), offset(&w[1])))
}

/// fallocate NAME MODE OFFSET LENGTH
pub fn fallocate(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let keep = FallocateFlags::KEEP_SIZE;
    let flags = match text(&w[1]) {
        "extend" => FallocateFlags::empty(),
        "keep" => keep,
        "punch" => FallocateFlags::PUNCH_HOLE | keep,
        "punch-without-keep" => FallocateFlags::PUNCH_HOLE,
        "zero" => FallocateFlags::ZERO_RANGE,
        "zero-keep" => FallocateFlags::ZERO_RANGE | keep,
        "collapse" => FallocateFlags::COLLAPSE_RANGE,
        "insert" => FallocateFlags::INSERT_RANGE,
        other => panic!("no mode {other}"),
    };
    done(fs::fallocate(world.fd(&w[0]), flags, offset(&w[2]), offset(&w[3])))
}

/// copy FROM OFFSET TO OFFSET LENGTH: copy_file_range(2).
pub fn copy(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let (mut from, mut to) = (number::<u64>(&w[1]), number::<u64>(&w[3]));
    let (source, target) = (world.fd(&w[0]), world.fd(&w[2]));
    Ok(fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), number(&w[4]))?.to_string())
}

pub fn fsync(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::fsync(world.fd(&w[0])))
}

pub fn fdatasync(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::fdatasync(world.fd(&w[0])))
}
