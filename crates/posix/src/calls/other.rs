//! Programs, mounts, what a process has of its own; and what only this suite has.

use super::{Words, call, done};
use crate::world::{Outcome, Tape, World, mode, number, text};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_change, mount_remount,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// Runs a program to its end.
pub fn exec(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let mut command = Command::new(OsStr::from_bytes(&w[0]));
    command.args(w[1..].iter().map(|a| OsStr::from_bytes(a))).stdin(Stdio::null());
    match command.output() {
        Ok(output) => Ok(format!("exit {}", output.status.code().unwrap_or(-1))),
        Err(e) => Err(Errno::from_raw_os_error(e.raw_os_error().expect("an error of the system"))),
    }
}

pub fn cd(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(rustix::process::chdir(&w[0]))
}

pub fn umask(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    rustix::process::umask(mode(&w[0]));
    Ok("ok".into())
}

/// This thread gets mounts of its own, which nobody else sees and which end with it.
fn own_mounts(world: &mut World<'_>) -> rustix::io::Result<()> {
    if !world.own_mounts {
        // SAFETY: only the mounts that this thread sees part from those of its process.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        world.own_mounts = true;
    }
    Ok(())
}

/// Mounts a directory on itself.
pub fn mount(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    own_mounts(world)?;
    done(mount_bind(&w[0], &w[0]))
}

/// Mounts a directory on itself, read-only. (Paths below it are looked up again from outside.)
pub fn mount_read_only(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    own_mounts(world)?;
    mount_bind(&w[0], &w[0])?;
    done(mount_remount(&w[0], MountFlags::BIND | MountFlags::RDONLY, ""))
}

pub fn unmount(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    done(rustix::mount::unmount(&w[0], UnmountFlags::DETACH))
}

/// The content of a file leaves the disk, if the file system has somewhere else for it.
pub fn offline(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let path = world.dir.join(OsStr::from_bytes(&w[0]));
    for act in [Tape::Migrate, Tape::Purge] {
        world.host.tape(act, &path);
    }
    Ok("ok".into())
}

/// Everything below a directory, as root sees it: kinds, modes, links, owners, sizes, modification times that were set,
/// content.
pub fn tree(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let mut found = Vec::new();
    let path = w[0].clone();
    tree_below(world, &path, &mut found)?;
    Ok(found.join("; "))
}

fn tree_below(world: &mut World<'_>, dir: &[u8], found: &mut Vec<String>) -> rustix::io::Result<()> {
    let names = call(world, &[b"ls".to_vec(), dir.to_vec()])?;
    for name in names.split(' ').filter(|_| names != "nothing") {
        let path = [dir, b"/", name.as_bytes()].concat();
        let of = |fields: &str| vec![b"lstat".to_vec(), path.clone(), fields.as_bytes().to_vec()];
        let kind = call(world, &of("type"))?;
        let mut line = format!("{} {kind} {}", text(&path), call(world, &of("mode,nlink,uid,gid"))?);
        if kind == "dir" {
            found.push(line);
            tree_below(world, &path, found)?;
            continue;
        }
        line += &format!(" {}", call(world, &of("size"))?);
        line += &match kind.as_str() {
            "file" => format!(" {}", call(world, &[b"cat".to_vec(), path.clone()])?),
            "link" => format!(" {}", call(world, &[b"readlink".to_vec(), path.clone()])?),
            _ => String::new(),
        };
        let xattrs = call(world, &[b"listxattr".to_vec(), path.clone(), b"1000".to_vec()]);
        if kind == "file" {
            line += &format!(" {}", xattrs?);
        }
        found.push(line);
    }
    Ok(())
}

/// repeat N CALL...: `%` in the arguments is the number of the round. Ends with the first error.
pub fn repeat(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let mut last = String::new();
    for round in 0..number::<u64>(&w[0]) {
        let digits = round.to_string();
        let one = |word: &Vec<u8>| text(word).replace('%', &digits).into_bytes();
        let words: Vec<Vec<u8>> = w[1..].iter().map(one).collect();
        last = call(world, &words)?;
    }
    Ok(last)
}
