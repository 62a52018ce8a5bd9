//! Calls that make, remove and change names.

use super::{Words, done};
use crate::world::{Outcome, World, mode, number, text};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};

/// open(O_CREAT | O_EXCL) and close.
pub fn create(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    done(fs::open(&w[0], flags, mode(&w[1])).map(drop))
}

pub fn mkdir(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::mkdir(&w[0], mode(&w[1])))
}

pub fn rmdir(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::rmdir(&w[0]))
}

/// mknod PATH KIND MODE [MAJOR MINOR]
pub fn mknod(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let kind = match text(&w[1]) {
        "file" => FileType::RegularFile,
        "fifo" => FileType::Fifo,
        "socket" => FileType::Socket,
        "char" => FileType::CharacterDevice,
        "block" => FileType::BlockDevice,
        "dir" => FileType::Directory,
        other => panic!("no kind {other}"),
    };
    let device = if w.len() > 4 { fs::makedev(number(&w[3]), number(&w[4])) } else { 0 };
    done(fs::mknodat(CWD, &w[0], kind, mode(&w[2]), device))
}

pub fn mkfifo(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::mknodat(CWD, &w[0], FileType::Fifo, mode(&w[1]), 0))
}

pub fn link(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::link(&w[0], &w[1]))
}

/// linkat FROM TO follow, or linkat @FD TO empty
pub fn linkat(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    match text(&w[2]) {
        "follow" => done(fs::linkat(CWD, &w[0], CWD, &w[1], AtFlags::SYMLINK_FOLLOW)),
        "empty" => done(fs::linkat(world.fd(&w[0]), "", CWD, &w[1], AtFlags::EMPTY_PATH)),
        other => panic!("no flag {other}"),
    }
}

/// symlink TARGET PATH
pub fn symlink(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::symlink(&w[0], &w[1]))
}

pub fn readlink(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let target = fs::readlink(&w[0], Vec::new())?.into_bytes();
    Ok(if target.len() > 100 { format!("{} bytes", target.len()) } else { text(&target).to_owned() })
}

pub fn unlink(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::unlink(&w[0]))
}

pub fn rename(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(fs::rename(&w[0], &w[1]))
}

/// rename2 FROM TO noreplace|exchange|whiteout|both
pub fn rename2(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let flags = match text(&w[2]) {
        "noreplace" => RenameFlags::NOREPLACE,
        "exchange" => RenameFlags::EXCHANGE,
        "whiteout" => RenameFlags::WHITEOUT,
        "both" => RenameFlags::NOREPLACE | RenameFlags::EXCHANGE,
        "unknown" => RenameFlags::from_bits_retain(1 << 20),
        other => panic!("no flag {other}"),
    };
    done(fs::renameat_with(CWD, &w[0], CWD, &w[1], flags))
}

/// Names in a directory in order of their bytes; their number if there are many.
pub fn ls(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let dir = fs::open(&w[0], OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 32 << 10];
    let mut entries = fs::RawDir::new(&dir, &mut buffer);
    while let Some(entry) = entries.next() {
        names.push(String::from_utf8_lossy(entry?.file_name().to_bytes()).into_owned());
    }
    names.retain(|n| n != "." && n != "..");
    names.sort();
    Ok(match names.len() {
        0 => "nothing".to_owned(),
        n if n > 30 => format!("{n} names"),
        _ => names.join(" "),
    })
}

fn socket() -> rustix::io::Result<rustix::fd::OwnedFd> {
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, net::SocketFlags::CLOEXEC, None)
}

/// Binds a unix socket to a path and listens.
pub fn bind(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let fd = socket()?;
    net::bind(&fd, &SocketAddrUnix::new(&*w[0])?)?;
    net::listen(&fd, 1)?;
    world.sockets.push(fd);
    Ok("ok".into())
}

/// Connects to a unix socket.
pub fn connect(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let fd = socket()?;
    let connected: Result<(), Errno> = net::connect(&fd, &SocketAddrUnix::new(&*w[0])?);
    world.sockets.push(fd);
    done(connected)
}
