//! Clients whose older capabilities are refused: `<target>/revoked`, lines of client and nanoseconds since 1970.

use crate::sidecar::FileError;
use parking_lot::Mutex;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use types::Time;

pub(crate) struct Revoked {
    dir: PathBuf,
    since: Mutex<BTreeMap<u64, Time>>,
}

impl Revoked {
    pub(crate) fn open(dir: &Path) -> Result<Self, FileError> {
        let path = dir.join("revoked");
        let error = |doing, source| FileError { doing, path: path.clone(), source };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(error("reading", Errno::from_io_error(&e).unwrap_or(Errno::IO))),
        };
        let since = text
            .lines()
            .map(|line| {
                let (client, since) = line.split_once(' ')?;
                Some((client.parse().ok()?, Time::from_nanos(since.parse().ok()?)))
            })
            .collect::<Option<_>>()
            // A damaged line could let in somebody who was shut out.
            .ok_or_else(|| error("understanding", Errno::ILSEQ))?;
        Ok(Self { dir: dir.to_path_buf(), since: Mutex::new(since) })
    }

    pub(crate) fn since(&self, client: u64) -> Option<Time> {
        self.since.lock().get(&client).copied()
    }

    /// Adds a client durably; a later time stays.
    pub(crate) fn add(&self, client: u64, since: Time) -> Result<(), FileError> {
        let mut all = self.since.lock();
        if all.get(&client).is_some_and(|known| *known >= since) {
            return Ok(());
        }
        let mut new = all.clone();
        new.insert(client, since);
        let text: String =
            new.iter().map(|(client, since)| format!("{client} {}\n", since.as_nanos())).collect();
        self.replace(text.as_bytes())?;
        *all = new;
        Ok(())
    }

    fn replace(&self, bytes: &[u8]) -> Result<(), FileError> {
        let new = self.dir.join("revoked.new");
        let fail = |doing| {
            let path = new.clone();
            move |source| FileError { doing, path, source }
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::open(&new, flags, Mode::RUSR | Mode::WUSR).map_err(fail("making"))?;
        let mut left = bytes;
        while !left.is_empty() {
            let sent = rustix::io::write(&file, left).map_err(fail("writing"))?;
            left = &left[sent..];
        }
        fs::fsync(&file).map_err(fail("syncing"))?;
        fs::rename(&new, self.dir.join("revoked")).map_err(fail("renaming"))?;
        fs::open(&self.dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .and_then(fs::fsync)
            .map_err(fail("syncing the directory of"))
    }
}
