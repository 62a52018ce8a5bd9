//! Backups of the catalogue in the namespace: from there they go to tape like any other file, and any LTFS program or tar reads them
//! from the cartridges when nothing else is left. What backups and their log need themselves stays outside of it.

use crate::config::backup_names;
use crate::error::fs_failure;
use crate::restore::{PARTIAL, backups};
use crate::{Node, Session};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use types::api::{FileApi, OpenFlags};
use types::*;
use wire::{Call, Failure, Selection};

/// Copied at a time (bytes).
const PIECE: usize = 1 << 20;
/// Names of a directory read at a time.
const PAGE: usize = 1_000;

impl Node {
    /// Puts the newest backup of `dir` where `catalog.backup_to` says, unless it is there, and asks for it to be written to tape.
    /// Power may fail anywhere: what is not whole has another name, and is made anew.
    ///
    /// # Errors
    /// The backup cannot be read, or the namespace does not take it; nothing of it counts.
    pub(crate) fn put_backup(self: &Arc<Self>, dir: &Path) -> Result<(), Failure> {
        let settings = self.settings();
        let Some(to) = &settings.catalog.backup_to else { return Ok(()) };
        let _alone = self.putting_backup.lock();
        let Some(newest) = backups(dir).pop() else { return Ok(()) };
        let failed = |e: FsError| fs_failure(&format!("{} to {to}", newest.display()), e);
        let cx = Cx::admin(crate::now());
        let place = self.backup_place(&cx, to).map_err(failed)?;
        let name = newest.file_name().unwrap_or_default().as_bytes();
        if self.lookup(&cx, place, name).is_ok() {
            return Ok(());
        }
        self.copy_backup(&cx, &newest, place, name).map_err(failed)?;
        let path = [to.trim_end_matches('/').as_bytes(), b"/", name].concat();
        tracing::info!("backup of the catalogue: {}", String::from_utf8_lossy(&path));
        // It does not wait for the age of its class. Whatever keeps it from tape is seen with the request, and the policy goes on.
        let path = path.strip_prefix(b"tc:").unwrap_or(&path).to_owned();
        self.call(
            &cx,
            &mut Session::default(),
            Call::Migrate(Selection { paths: vec![path], recursive: true }),
        )?;
        self.prune_inside(&cx, place, name).map_err(failed)
    }

    /// The directory of the backups, made if it is not there: for nobody but root, as a catalogue knows all names.
    fn backup_place(&self, cx: &Cx, to: &str) -> Result<Ino, FsError> {
        let mut dir = Ino::ROOT;
        for name in backup_names(to).map_err(|_| FsError::Invalid)? {
            dir = match self.lookup(cx, dir, name.as_bytes()) {
                Err(FsError::NotFound) => self.mkdir(cx, dir, name.as_bytes(), 0o700)?.ino,
                found => found?.ino,
            };
        }
        Ok(dir)
    }

    fn copy_backup(&self, cx: &Cx, backup: &Path, place: Ino, name: &[u8]) -> Result<(), FsError> {
        let partial = [name, PARTIAL.as_bytes()].concat();
        self.remove_backup(cx, place, &partial)?;
        let dir = self.mkdir(cx, place, &partial, 0o700)?.ino;
        let read = |e: std::io::Error| {
            tracing::error!("{}: {e}", backup.display());
            FsError::Io
        };
        for entry in std::fs::read_dir(backup).map_err(read)? {
            let entry = entry.map_err(read)?;
            if entry.file_type().map_err(read)?.is_file() {
                let file = File::open(entry.path()).map_err(read)?;
                self.copy_file(cx, &file, dir, entry.file_name().as_bytes())?;
            }
        }
        // All bytes are on stable storage before the name says that it is whole.
        self.rename(cx, (place, &partial), (place, name), RenameMode::NoReplace)?;
        self.sync_names()
    }

    fn copy_file(&self, cx: &Cx, from: &File, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
        let handle = self.create(cx, dir, name, 0o600, flags)?.handle;
        let copied = self.copy_bytes(from, handle);
        self.release(handle);
        copied
    }

    fn copy_bytes(&self, from: &File, handle: Handle) -> Result<(), FsError> {
        let (mut piece, mut at) = (vec![0; PIECE], 0);
        loop {
            let n = from.read_at(&mut piece, at).map_err(|_| FsError::Io)?;
            if n == 0 {
                return self.fsync(handle, false);
            }
            let mut written = 0;
            while written < n {
                written += self.write(handle, at + written as u64, &piece[written..n])?;
            }
            at += n as u64;
        }
    }

    /// Older ones than are to be kept go; the one just made stays, whatever its name.
    fn prune_inside(&self, cx: &Cx, place: Ino, made: &[u8]) -> Result<(), FsError> {
        let keep = self.settings().catalog.backup_keep.max(1) as usize;
        let mut old = self.names_in(cx, place)?;
        old.retain(|name| crate::restore::is_backup(name) && name != made);
        old.sort();
        let gone = (old.len() + 1).saturating_sub(keep);
        old.iter().take(gone).try_for_each(|name| self.remove_backup(cx, place, name))
    }

    fn remove_backup(&self, cx: &Cx, place: Ino, name: &[u8]) -> Result<(), FsError> {
        let dir = match self.lookup(cx, place, name) {
            Err(FsError::NotFound) => return Ok(()),
            found => found?.ino,
        };
        for file in self.names_in(cx, dir)? {
            self.unlink(cx, dir, &file)?;
        }
        self.rmdir(cx, place, name)
    }

    fn names_in(&self, cx: &Cx, dir: Ino) -> Result<Vec<Vec<u8>>, FsError> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.readdir(cx, dir, cookie, PAGE)?;
            let Some(last) = page.last() else { return Ok(names) };
            cookie = last.cookie;
            names.extend(page.into_iter().map(|entry| entry.name));
        }
    }
}
