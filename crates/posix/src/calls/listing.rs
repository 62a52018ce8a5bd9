//! Listings that are interrupted: by changes of the directory, and by going back.

use super::{Words, call};
use crate::world::{Outcome, World};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags, RawDir, SeekFrom};
use rustix::io;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;

/// Names that stay while others come and go.
const STAY: usize = 500;
/// Names read between two changes.
const STEP: usize = 60;

fn open(dir: &[u8]) -> io::Result<OwnedFd> {
    fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The next `most` names (all but the dots), as readdir(3) gives them; the descriptor then stands behind the last of them.
fn next(fd: &OwnedFd, most: usize) -> io::Result<Vec<String>> {
    let mut buffer = [MaybeUninit::uninit(); 8 << 10];
    let mut names = Vec::new();
    let mut after = None;
    let mut entries = RawDir::new(fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = String::from_utf8_lossy(entry.file_name().to_bytes()).into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
        if names.len() == most {
            after = Some(entry.next_entry_cookie());
            break;
        }
    }
    if let Some(cookie) = after {
        fs::seek(fd, SeekFrom::Start(cookie))?;
    }
    Ok(names)
}

/// churn DIR: lists a directory while names are made, renamed and removed in it. Names that are there all the time must come
/// exactly once, others at most once.
pub fn churn(world: &mut World<'_>, w: Words<'_>) -> Outcome {
    let path = |name: &str| [&w[0], &b"/"[..], name.as_bytes()].concat();
    let mut make = |what: &str, name: &str| match what {
        "make" => call(world, &[b"create".to_vec(), path(name), b"644".to_vec()]),
        _ => call(world, &[b"unlink".to_vec(), path(name)]),
    };
    for n in 0..STAY {
        make("make", &format!("stay-{n}"))?;
        make("make", &format!("go-{n}"))?;
    }
    let fd = open(&w[0])?;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut round = 0;
    loop {
        let names = next(&fd, STEP)?;
        if names.is_empty() {
            break;
        }
        names.into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
        for n in round * 40..(round + 1) * 40 {
            if n < STAY {
                make("remove", &format!("go-{n}"))?;
                make("make", &format!("new-{n}"))?;
            }
        }
        round += 1;
    }
    let missing = (0..STAY).filter(|n| !seen.contains_key(&format!("stay-{n}"))).count();
    let twice = seen.values().filter(|times| **times > 1).count();
    Ok(match (missing, twice) {
        (0, 0) => "each once".to_owned(),
        _ => format!("{missing} missing, {twice} more than once"),
    })
}

/// rewind DIR: from a place in a listing the same names follow again; from its beginning all of them.
pub fn rewind(_: &mut World<'_>, w: Words<'_>) -> Outcome {
    let fd = open(&w[0])?;
    let first = next(&fd, STEP)?;
    let place = fs::tell(&fd)?;
    let rest = next(&fd, usize::MAX)?;
    fs::seek(&fd, SeekFrom::Start(place))?;
    let again = next(&fd, usize::MAX)?;
    fs::seek(&fd, SeekFrom::Start(0))?;
    let all = next(&fd, usize::MAX)?;
    let same = again == rest && all == [first, rest].concat();
    Ok(if same { format!("{} names twice", all.len()) } else { "other names".to_owned() })
}
