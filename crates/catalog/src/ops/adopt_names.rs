//! Names of what comes back: as many as tapes tell, each contested by whoever else claims it. A directory that was made up
//! because something lay in it is taken out when that turns out to lie elsewhere.

use super::adopt::{Namespace, evidence, is_empty, unlink};
use super::{junction, names, open, path, remove, version};
use crate::dirent::Dirent;
use crate::keys;
use crate::rec::InodeRec;
use crate::store::Tx;
use crate::{ListedFile, Result};
use types::*;

impl Namespace<'_> {
    /// Gives a node that is no directory just these names, as `file` says; in `/lost+found` if it gets none. The caller writes
    /// its record.
    pub fn set_names(
        &self,
        tx: &mut Tx<'_>,
        mut rec: InodeRec,
        places: Vec<(Ino, Vec<u8>)>,
        file: &TapeFile,
    ) -> Result<InodeRec> {
        let mut left = Vec::new();
        for (dir, cookie) in names::links(tx.view(), &rec)? {
            let name = path::name_at(tx.view(), rec.ino, (dir, cookie))?;
            if !places.iter().any(|(d, n)| (*d, n) == (dir, &name)) {
                take_name(tx, &mut rec, (dir, &name), cookie)?;
                left.push(dir);
            }
        }
        for (dir, name) in places {
            let free = match names::find_for_update(tx, dir, &name)? {
                None => true,
                Some(there) if there.ino == rec.ino => false,
                Some(there) => self.contest(tx, (dir, &name), there, file)?,
            };
            if free {
                add_name(tx, &mut rec, dir, &name)?;
            }
        }
        if rec.nlink == 0 {
            let name = file.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
            rec = self.lose(tx, rec, name)?;
        }
        left.into_iter().try_for_each(|dir| prune(tx, dir))?;
        Ok(rec)
    }

    /// Where an entry says beyond its path that a node is named.
    pub fn further_places(&self, tx: &mut Tx<'_>, file: &TapeFile) -> Result<Vec<(Ino, Vec<u8>)>> {
        let mut places = Vec::new();
        for (parent, path) in &file.node.names {
            let node = NodeFacts { parent: *parent, ..NodeFacts::default() };
            let file = TapeFile { path: path.clone(), node, ..file.clone() };
            let one = ListedFile { dirs: [].into(), name: String::new(), file };
            places.extend(self.place(tx, &one)?);
        }
        Ok(places)
    }

    /// Two claim one name: true if the newcomer gets it; the other then goes to `/lost+found`, unless it has further names.
    pub fn contest(&self, tx: &mut Tx<'_>, at: (Ino, &[u8]), there: Dirent, file: &TapeFile) -> Result<bool> {
        let Some(other) = tx.try_load(there.ino)? else { return Ok(false) };
        // A directory without versions was made up: something lies in it.
        let Some(f) = &other.file else { return Ok(false) };
        // A file that is on disk was never lost.
        let later = f.object.is_none() && evidence(tx, &other)? < file.written;
        if later {
            let mut rec = other.clone();
            take_name(tx, &mut rec, at, there.cookie)?;
            if rec.is_dir() || rec.nlink == 0 {
                rec = self.lose(tx, rec, at.1)?;
            }
            tx.replace(Some(&other), Some(&rec))?;
        }
        Ok(later)
    }
}

/// Takes all names of what is no directory, whose record the caller then takes out; returns where they were.
pub fn take_names(tx: &mut Tx<'_>, rec: &InodeRec) -> Result<Vec<Ino>> {
    let (mut rest, mut left) = (rec.clone(), Vec::new());
    for (dir, cookie) in names::links(tx.view(), rec)? {
        let name = path::name_at(tx.view(), rec.ino, (dir, cookie))?;
        take_name(tx, &mut rest, (dir, &name), cookie)?;
        left.push(dir);
    }
    Ok(left)
}

fn take_name(tx: &mut Tx<'_>, rec: &mut InodeRec, (dir, name): (Ino, &[u8]), cookie: u64) -> Result<()> {
    names::delete(tx, dir, name, &Dirent { ino: rec.ino, kind: rec.kind, cookie })?;
    names::counted(tx, dir, -1, -i64::from(rec.is_dir()))?;
    if rec.is_dir() { Ok(()) } else { names::drop_link(tx, rec, dir, cookie) }
}

fn add_name(tx: &mut Tx<'_>, rec: &mut InodeRec, dir: Ino, name: &[u8]) -> Result<()> {
    let taken = tx.w.get_for_update(&keys::entry(dir, rec.ino.0))?.is_some();
    let cookie = if taken { open::reserve_ids(tx, 1)? } else { rec.ino.0 };
    names::put(tx, dir, name, &Dirent { ino: rec.ino, kind: rec.kind, cookie })?;
    names::counted(tx, dir, 1, 0)?;
    names::add_link(tx, rec, dir, cookie)
}

/// Takes out a directory that is there only because something lay in it, and those above it, if nothing lies in it any more.
pub fn prune(tx: &mut Tx<'_>, mut dir: Ino) -> Result<()> {
    while dir != Ino::ROOT {
        let Some(rec) = tx.try_load(dir)?.filter(InodeRec::is_dir) else { break };
        if !is_for_others(tx, &rec)? || !is_empty(tx, &rec)? {
            break;
        }
        unlink(tx, &rec)?;
        remove::take_out(tx, &rec)?;
        dir = rec.link.0;
    }
    Ok(())
}

/// Whether a directory was made up, or is known from indexes that told of something in it, and from nothing else.
fn is_for_others(tx: &Tx<'_>, dir: &InodeRec) -> Result<bool> {
    if junction::find(tx.view(), dir.ino)?.is_some() {
        return Ok(false);
    }
    match &dir.file {
        None => Ok(true),
        Some(f) => Ok(f.heard && !f.known && !version::any_ended(tx.view(), dir.ino)?),
    }
}
