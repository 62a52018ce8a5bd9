//! Nodes without data come back: directories, symlinks, devices, pipes and sockets, and the word that one was removed. A
//! higher version says more than a lower one, wherever it lies. What a node was named in is told by its inode, so it is found
//! there also if that was renamed later.

use super::adopt::{Namespace, name_it, put_xattrs, split, unlink};
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
            None => self.node_record(file)?,
        };
        if file.ino != Ino::ROOT {
            rec = self.put_in_place(tx, old.as_ref(), rec, one)?;
        }
        if known != Some(file.version) {
            rec = self.put_parts(tx, rec, file)?;
            rec.settle(&tx.class(rec.class)?.clone(), self.as_of);
        }
        tx.replace(old.as_ref(), Some(&rec))?;
        let at = path::path_of(tx.view(), rec.ino)?;
        Ok((rec, at))
    }

    /// Names a node where its entry says, or in `/lost+found`.
    fn put_in_place(
        &self,
        tx: &mut Tx<'_>,
        old: Option<&InodeRec>,
        rec: InodeRec,
        one: &ListedFile,
    ) -> Result<InodeRec> {
        let mut place = self.place(tx, one)?;
        if let Some((dir, _)) = &place
            && rec.is_dir()
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
                    if rec.is_dir() && other.is_dir() && other.file.is_none() {
                        self.absorb(tx, &other, rec.ino)?;
                        true
                    } else {
                        self.contest(tx, there, &one.file)?
                    }
                }
            };
        match place.filter(|_| free) {
            Some((dir, name)) => name_it(tx, rec, dir, &name),
            None => self.lose(tx, rec, name),
        }
    }

    /// Directory and name of a node. Its directory is known by its number, or made where the path says.
    fn place(&self, tx: &mut Tx<'_>, one: &ListedFile) -> Result<Option<(Ino, Vec<u8>)>> {
        let Some((dirs, name)) = split(&one.file.path) else { return Ok(None) };
        let parent = one.file.node.parent;
        if tx.try_load(parent)?.is_some_and(|rec| rec.is_dir()) {
            return Ok(Some((parent, name.to_vec())));
        }
        Ok(self.dirs(tx, &dirs, one)?.map(|dir| (dir, name.to_vec())))
    }

    /// A directory was made up where this one belongs, because something lay in it: all that is in it goes to the true one.
    fn absorb(&self, tx: &mut Tx<'_>, made_up: &InodeRec, into: Ino) -> Result<()> {
        let mut children = Vec::new();
        let prefix = keys::names(made_up.ino);
        tx.w.scan(&prefix, &keys::end(&prefix), &mut |k, v| {
            children.push((k[prefix.len()..].to_vec(), v.to_vec()));
            ControlFlow::Continue(())
        })?;
        for (name, value) in children {
            let entry = Dirent::from_name(made_up.ino, &value)?;
            let old = tx.load(entry.ino)?;
            names::delete(tx, made_up.ino, &name, &entry)?;
            let mut rec = old.clone();
            if names::find_for_update(tx, into, &name)?.is_none() {
                names::put(tx, into, &name, &entry)?;
                names::counted(tx, into, 1, i64::from(rec.is_dir()))?;
                names::move_link(tx, &mut rec, (made_up.ino, entry.cookie), (into, entry.cookie))?;
            } else {
                rec = self.lose(tx, rec, &name)?;
            }
            tx.replace(Some(&old), Some(&rec))?;
        }
        unlink(tx, made_up)?;
        remove::take_out(tx, made_up)
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
            Some(old) => {
                unlink(tx, old)?;
                remove::take_out(tx, old)?;
            }
            None => {}
        }
        tx.replace(None, Some(&rec))?;
        Ok(rec)
    }

    /// The directory that an index tells all about, brought to that if it is later than what is known, or made; None if it
    /// was removed since.
    pub fn known_dir(&self, tx: &mut Tx<'_>, node: &TapeFile) -> Result<Option<Ino>> {
        let old = tx.trace(node.ino)?;
        let one = ListedFile { dirs: [].into(), name: String::new(), file: node.clone() };
        let Some(old) = old else {
            let (rec, _) = self.node(tx, None, &one)?;
            return Ok(Some(rec.ino));
        };
        if !old.is_dir() || old.is_gone() {
            return Ok(None);
        }
        let version = old.file.as_ref().map(|f| f.version);
        if version < Some(node.version) {
            version::end(tx, &old, None)?;
            let (rec, _) = self.node(tx, Some(old), &one)?;
            return Ok(Some(rec.ino));
        }
        if version == Some(node.version) {
            self.touch(tx, &old, node)?;
        }
        Ok(Some(node.ino))
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
