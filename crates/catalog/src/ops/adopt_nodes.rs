//! Nodes without data come back: directories, symlinks, devices, pipes and sockets, and the word that one was removed. A
//! higher version says more than a lower one, wherever it lies. What a node was named in is told by its inode, so it is found
//! there also if that was renamed later.

use super::adopt::{Namespace, is_empty, name_it, put_xattrs, split, unlink};
use super::adopt_names::{prune, take_names};
use super::{names, nodes, path, remove, setattr, version};
use crate::Result;
use crate::dirent::Dirent;
use crate::keys::{self, part};
use crate::rec::{FileRec, InodeRec};
use crate::store::Tx;
use crate::{CatalogError, ListedFile};
use format::ltfs::origin::DirFacts;
use std::ops::ControlFlow;
use types::*;

impl Namespace<'_> {
    /// The node of an entry that counts, brought to what the entry says; and its path.
    pub fn node(
        &self,
        tx: &mut Tx<'_>,
        old: Option<InodeRec>,
        one: &ListedFile,
    ) -> Result<(InodeRec, Vec<u8>)> {
        let file = &one.file;
        if file.node.gone {
            return Ok((self.gone(tx, old, file)?, file.path.clone()));
        }
        let known = old.as_ref().and_then(|rec| rec.file.as_ref()).map(|f| f.version);
        let mut rec = match &old {
            Some(old) if known == Some(file.version) => old.clone(),
            Some(old) => {
                let fresh = self.node_record(file)?;
                InodeRec { link: old.link, xattrs: old.xattrs, nlink: old.nlink, ..fresh }
            }
            None => InodeRec { nlink: 0, ..self.node_record(file)? },
        };
        if rec.is_dir() && file.ino != Ino::ROOT {
            rec = self.put_in_place(tx, old.as_ref(), InodeRec { nlink: 1, ..rec }, one)?;
        } else if !rec.is_dir() {
            let mut places = Vec::from_iter(self.place(tx, one)?);
            places.extend(self.further_places(tx, file)?);
            rec = self.set_names(tx, rec, places, file)?;
        }
        if known != Some(file.version) {
            rec = self.put_parts(tx, rec, file)?;
            rec.settle(&tx.class(rec.class)?.clone(), self.as_of);
        }
        tx.replace(old.as_ref(), Some(&rec))?;
        let at = path::path_of(tx.view(), rec.ino)?;
        Ok((rec, at))
    }

    /// Names a directory where its entry says, or in `/lost+found`.
    fn put_in_place(
        &self,
        tx: &mut Tx<'_>,
        old: Option<&InodeRec>,
        rec: InodeRec,
        one: &ListedFile,
    ) -> Result<InodeRec> {
        let mut place = self.place(tx, one)?;
        if let Some((dir, _)) = &place
            && lies_in(tx, *dir, rec.ino)?
        {
            place = None;
        }
        if let Some(old) = old {
            let here = (old.link.0, path::name_of(tx.view(), old)?);
            if place.as_ref() == Some(&here) {
                return Ok(rec);
            }
            unlink(tx, old)?;
        }
        let name = one.file.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let there = match &place {
            Some((dir, name)) => names::find_for_update(tx, *dir, name)?,
            None => None,
        };
        let free = place.is_some()
            && match there {
                None => true,
                Some(there) => {
                    let other = tx.load(there.ino)?;
                    if other.is_dir() && other.file.is_none() {
                        self.absorb(tx, &other, rec.ino)?;
                        true
                    } else {
                        let (dir, name) = place.as_ref().map_or((Ino(0), &[][..]), |(d, n)| (*d, n));
                        self.contest(tx, (dir, name), there, &one.file)?
                    }
                }
            };
        let rec = match place.filter(|_| free) {
            Some((dir, name)) => name_it(tx, rec, dir, &name)?,
            None => self.lose(tx, rec, name)?,
        };
        old.map_or(Ok(()), |old| prune(tx, old.link.0))?;
        Ok(rec)
    }

    /// Directory and name of a node. Its directory is known by its number, or made where the path says; where that is another
    /// one by now, it is made in `/lost+found` until its own entry says where it belongs.
    pub fn place(&self, tx: &mut Tx<'_>, one: &ListedFile) -> Result<Option<(Ino, Vec<u8>)>> {
        let Some((dirs, name)) = split(&one.file.path) else { return Ok(None) };
        let (parent, name) = (one.file.node.parent, name.to_vec());
        if tx.try_load(parent)?.is_some_and(|rec| rec.is_dir()) {
            return Ok(Some((parent, name)));
        }
        let found = self.dirs(tx, &dirs, one)?;
        if found == Some(parent) || parent == Ino(0) || tx.trace(parent)?.is_some() {
            return Ok(found.map(|dir| (dir, name)));
        }
        if let Some(dir) = found
            && tx.load(dir)?.file.is_none()
            && dir != Ino::ROOT
        {
            return Ok(Some((dir, name)));
        }
        let root = tx.load(Ino::ROOT)?;
        let (mode, class) = (0o755, self.class(&one.file.class)?);
        let made_up = self.made_up(tx, &root, (mode, one.file.uid_owner, one.file.gid_owner, class))?;
        let made_up = InodeRec { ino: parent, ..made_up };
        let dir_name = dirs.last().copied().unwrap_or_default();
        let made_up = self.lose(tx, made_up, dir_name)?;
        tx.replace(None, Some(&made_up))?;
        Ok(Some((parent, name)))
    }

    /// A directory was made up where this one belongs, because something lay in it: all that is in it goes to the true one.
    fn absorb(&self, tx: &mut Tx<'_>, made_up: &InodeRec, into: Ino) -> Result<()> {
        self.move_all(tx, made_up.ino, into)?;
        unlink(tx, made_up)?;
        remove::take_out(tx, made_up)
    }

    /// All that is named in one directory is named in another.
    fn move_all(&self, tx: &mut Tx<'_>, from: Ino, into: Ino) -> Result<()> {
        let mut children = Vec::new();
        let prefix = keys::names(from);
        tx.w.scan(&prefix, &keys::end(&prefix), &mut |k, v| {
            children.push((k[prefix.len()..].to_vec(), v.to_vec()));
            ControlFlow::Continue(())
        })?;
        for (name, value) in children {
            let entry = Dirent::from_name(from, &value)?;
            let old = tx.load(entry.ino)?;
            let subdirs = i64::from(old.is_dir());
            names::delete(tx, from, &name, &entry)?;
            names::counted(tx, from, -1, -subdirs)?;
            let mut rec = old.clone();
            if names::find_for_update(tx, into, &name)?.is_none() {
                names::put(tx, into, &name, &entry)?;
                names::counted(tx, into, 1, subdirs)?;
                names::move_link(tx, &mut rec, (from, entry.cookie), (into, entry.cookie))?;
            } else {
                if !rec.is_dir() {
                    names::drop_link(tx, &mut rec, from, entry.cookie)?;
                }
                if rec.is_dir() || rec.nlink == 0 {
                    rec = self.lose(tx, rec, &name)?;
                }
            }
            tx.replace(Some(&old), Some(&rec))?;
        }
        Ok(())
    }

    fn node_record(&self, file: &TapeFile) -> Result<InodeRec> {
        let kind = file.kind().ok_or_else(|| {
            CatalogError::corrupt("entry of a volume", file.ino, format!("mode {:o}", file.mode))
        })?;
        let version = FileRec { version: file.version, gone: file.node.gone, ..nodes::fresh(file.written) };
        let size = file.node.target.len() as u64;
        let rdev = file.node.rdev;
        Ok(InodeRec { kind, size, rdev, file: Some(version), ..self.record(file)? })
    }

    /// Target, attributes and times of a node, beside its record.
    fn put_parts(&self, tx: &mut Tx<'_>, rec: InodeRec, file: &TapeFile) -> Result<InodeRec> {
        let mut rec = put_xattrs(tx, rec, &file.xattrs)?;
        if rec.kind == FileKind::Symlink {
            tx.w.put(&keys::inode(rec.ino, part::TARGET), &file.node.target)?;
        }
        if rec.is_dir() {
            setattr::forget_change_time(tx, &mut rec)?;
            rec.ctime = file.times[2];
        }
        Ok(rec)
    }

    /// A node that was removed, and what is left of it.
    fn gone(&self, tx: &mut Tx<'_>, old: Option<InodeRec>, file: &TapeFile) -> Result<InodeRec> {
        let rec = InodeRec { nlink: 0, ..self.node_record(file)? };
        match &old {
            Some(same) if same.is_gone() => {
                let copies = same.file.clone().filter(|f| f.version == file.version);
                let rec = InodeRec { file: copies.or(rec.file.clone()), ..rec };
                tx.replace(Some(same), Some(&rec))?;
                return Ok(rec);
            }
            Some(old) if old.is_dir() => self.leave(tx, old)?,
            Some(old) => {
                let left = take_names(tx, old)?;
                remove::take_out(tx, old)?;
                left.into_iter().try_for_each(|dir| prune(tx, dir))?;
            }
            None => {}
        }
        tx.replace(None, Some(&rec))?;
        Ok(rec)
    }

    /// Takes out a directory that was removed. Until it is known where that is now which still lies in it, it lies in one made
    /// up.
    fn leave(&self, tx: &mut Tx<'_>, old: &InodeRec) -> Result<()> {
        let (name, dir) = (path::name_of(tx.view(), old)?, tx.load(old.link.0)?);
        unlink(tx, old)?;
        if !is_empty(tx, old)? {
            let made_up = self.made_up(tx, &dir, (old.mode, old.uid, old.gid, old.class))?;
            let made_up = self.make_dir(tx, made_up, &name)?;
            self.move_all(tx, old.ino, made_up)?;
        }
        remove::take_out(tx, old)?;
        prune(tx, dir.ino)
    }

    /// The directory that an index tells all about, brought to that if it is later than what is known, or made; None if it
    /// was removed since.
    pub fn known_dir(&self, tx: &mut Tx<'_>, node: &TapeFile) -> Result<Option<Ino>> {
        let old = tx.trace(node.ino)?;
        let one = ListedFile { dirs: [].into(), name: String::new(), file: node.clone() };
        let Some(old) = old else {
            return self.heard_of(tx, None, &one);
        };
        if !old.is_dir() || old.is_gone() {
            return Ok(None);
        }
        let version = old.file.as_ref().map(|f| f.version);
        if version < Some(node.version) {
            version::end(tx, &old, None)?;
            return self.heard_of(tx, Some(old), &one);
        }
        if version == Some(node.version) {
            self.touch(tx, &old, node)?;
        }
        Ok(Some(node.ino))
    }

    /// The directory is what an index tells of it, and stays so only as long as something lies in it until its own entry comes: if it
    /// was removed before that was written nothing else says so.
    fn heard_of(&self, tx: &mut Tx<'_>, old: Option<InodeRec>, one: &ListedFile) -> Result<Option<Ino>> {
        let (rec, _) = self.node(tx, old, one)?;
        let mut heard = rec.clone();
        if let Some(f) = &mut heard.file {
            f.heard = true;
        }
        tx.replace(Some(&rec), Some(&heard))?;
        Ok(Some(rec.ino))
    }

    /// Times of a directory go on while its version stays.
    fn touch(&self, tx: &mut Tx<'_>, old: &InodeRec, node: &TapeFile) -> Result<()> {
        let now = tx.inode(old)?.attr;
        let mut rec = old.clone();
        if let Some(f) = &mut rec.file {
            f.used = f.used.max(node.written.as_nanos());
        }
        if node.times[1] > now.mtime || node.times[2] > now.ctime {
            setattr::forget_change_time(tx, &mut rec)?;
            (rec.mtime, rec.ctime) = (now.mtime.max(node.times[1]), now.ctime.max(node.times[2]));
        }
        tx.replace(Some(old), Some(&rec))
    }

    /// An index of an earlier release tells of a directory: what is known of it by its versions is better.
    pub fn refresh(&self, tx: &mut Tx<'_>, ino: Ino, facts: &DirFacts) -> Result<()> {
        let old = tx.load(ino)?;
        if old.file.is_some() || self.as_of <= old.ctime {
            return Ok(());
        }
        let class = self.class(&facts.class)?;
        let new = InodeRec { mode: facts.mode, uid: facts.uid, gid: facts.gid, class, ..old.clone() };
        tx.replace(Some(&old), Some(&InodeRec { ctime: self.as_of, ..new }))
    }
}

/// Whether directory `at` is `above` or lies below it.
fn lies_in(tx: &mut Tx<'_>, mut at: Ino, above: Ino) -> Result<bool> {
    while at != above {
        if at == Ino::ROOT {
            return Ok(false);
        }
        at = tx.load(at)?.link.0;
    }
    Ok(true)
}
