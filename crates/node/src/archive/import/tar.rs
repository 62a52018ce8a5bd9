//! Tar archives of another program. What is in them is known only when the whole tape was gone over, and that takes long:
//! so it is done once, into a directory that nothing else is in, and what comes later on the tape under the same name
//! is a later version, as if the archives were extracted one after the other.

use super::super::adopt::Label;
use super::super::state::Adopted;
use super::super::trouble::ours;
use super::super::worker::Worker;
use super::enter::Enter;
use super::{Import, begin, there};
use catalog::{CatalogError, ListedDir, ListedFile};
use format::tar::foreign::{self, Member, What};
use std::ops::ControlFlow;
use tape::{Mounted, TapeError, TarEnd, TarTold};
use types::api::XattrMode;
use types::*;

/// Attribute of the directory that an import goes into: which volume. So only the same import goes on there.
const GOES_ON: &[u8] = b"user.thermo.import";

/// Enters the files of a tape with tar archives; goes on where an import of it was interrupted.
pub fn take(
    worker: &Worker,
    mounted: &mut Mounted<'_>,
    barcode: &Barcode,
    order: &Import,
    label: &Label,
    adopted: &mut Adopted,
) -> Result<(), TapeError> {
    let entering = |e: CatalogError| ours(barcode, "entering its files", e);
    adopted.what = "tar archives of another program".into();
    let Some(into) = &order.into else {
        adopted.failed = Some("say below which directory its files go with --into".into());
        return Ok(());
    };
    if let Err(why) = free(worker, into, &label.uuid).map_err(entering)? {
        adopted.failed = Some(why);
        return Ok(());
    }
    begin(worker, mounted, barcode, order, label).map_err(entering)?;
    let known = worker.node.catalog.volume(barcode).map_err(entering)?;
    let mut enter = Enter::new(worker, barcode, order, crate::now(), adopted);
    enter.site = format!("volume:{}", label.uuid);
    let dir = enter.make_dir(into, None).map_err(entering)?;
    let catalog = &worker.node.catalog;
    let marked = catalog.setxattr(&cx(), dir, GOES_ON, label.uuid.as_bytes(), XattrMode::Any);
    let class = marked.and_then(|()| catalog.class_of(dir)).map_err(entering)?;
    let known_uids = known.map_or(0, |v| v.next_uid);
    let mut archives = Archives { enter, class, known_uids, uid: 1, left: 0, cut: false, error: None };
    let end = mounted.scan_tar(&mut |told| archives.told(told))?;
    let Archives { mut enter, left, cut, error, .. } = archives;
    if let Some(e) = error {
        return Err(entering(e));
    }
    enter.flush().map_err(entering)?;
    if cut {
        adopted.failed = Some("the node stopped before all its files were entered; ask again".into());
        return Ok(());
    }
    adopted.what = format!("{} tar archives of another program imported", end.archives);
    if left > 0 {
        adopted.what.push_str(&format!(", {left} things on it not taken"));
    }
    settle(worker, barcode, &end).map_err(entering)?;
    worker.node.catalog.removexattr(&cx(), dir, GOES_ON).map_err(entering)
}

fn cx() -> Cx {
    Cx::admin(crate::now())
}

/// Whether the import may go into this directory: it is new, empty, or this import was interrupted in it.
fn free(worker: &Worker, into: &[u8], uuid: &str) -> catalog::Result<Result<(), String>> {
    let catalog = &worker.node.catalog;
    let at = if into.is_empty() { b"/" } else { into };
    let Some(here) = there(catalog, &cx(), at)? else { return Ok(Ok(())) };
    let shown = types::escape(at);
    if here.attr.kind != FileKind::Directory {
        return Ok(Err(format!("{shown} is no directory; nothing was entered")));
    }
    let marked = match catalog.getxattr(&cx(), here.attr.ino, GOES_ON) {
        Ok(value) => value == uuid.as_bytes(),
        Err(e) if e.fs() == FsError::NoAttribute => false,
        Err(e) => return Err(e),
    };
    let first = catalog.readdir(here.attr.ino, 0, 1)?;
    if marked || (first.found.is_empty() && first.damaged.is_empty()) {
        return Ok(Ok(()));
    }
    Ok(Err(format!(
        "{shown} is not empty, and which names are on a tape without an index is known only at its end; nothing was entered: \
         give a new directory"
    )))
}

/// All files are entered.
fn settle(worker: &Worker, barcode: &Barcode, end: &TarEnd) -> catalog::Result<()> {
    let now = crate::now();
    let recorded = worker.node.catalog.update_volume(barcode, &mut |v| {
        v.becomes(VolumeState::ReadOnly, "tar archives of another program: only read", now);
        v.generation = u64::from(end.archives).max(1);
        v.block_size = end.longest;
        (v.append_block, v.indexed_to) = (end.end_of_data, end.end_of_data);
    });
    recorded.map(drop)
}

/// Enters what a scan tells.
struct Archives<'p> {
    enter: Enter<'p>,
    class: ClassName,
    /// Files below this uid are in the catalogue.
    known_uids: u64,
    /// Of the last file: files are counted in the order of the tape.
    uid: u64,
    /// Things not taken.
    left: u64,
    cut: bool,
    error: Option<CatalogError>,
}

impl Archives<'_> {
    fn told(&mut self, told: TarTold<'_>) -> ControlFlow<()> {
        let done = match told {
            TarTold::Left(why) => self.leave(why),
            TarTold::Member(archive, member, data) => self.member(archive, member, data),
        };
        self.error = done.err();
        self.cut = self.enter.worker.node.archive.halted();
        if self.error.is_none() && !self.cut { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Something is not taken, which ends nothing.
    #[allow(clippy::unnecessary_wraps)]
    fn leave(&mut self, why: String) -> catalog::Result<()> {
        self.left += 1;
        self.enter.adopted.note(format!("not taken: {why}"));
        Ok(())
    }

    fn leave_member(&mut self, member: &Member, why: &str) -> catalog::Result<()> {
        self.leave(format!("{}: {why}", types::escape(&member.name)))
    }

    fn member(&mut self, archive: u32, member: &Member, data: Extent) -> catalog::Result<()> {
        let path = match foreign::path(&member.name) {
            Ok(path) if path.is_empty() => return Ok(()),
            Ok(path) => self.enter.place(&[b"/", &path[..]].concat()),
            Err(why) => {
                return self.leave_member(member, why);
            }
        };
        let entered = match &member.what {
            What::Label => Ok(()),
            What::Other(why) => self.leave_member(member, why),
            What::Dir => self.dir(&path, member),
            What::Symlink(target) => {
                let owner = self.owner(member);
                self.enter.make_link(&path, target.clone(), owner)
            }
            What::Link(target) => self.link(&path, member, target),
            What::File => self.file(archive, path, member, data),
        };
        match entered {
            // Something on the way to it is no directory.
            Err(e) if matches!(e.fs(), FsError::NotADirectory | FsError::Invalid | FsError::NameTooLong) => {
                let why = "its name leads through something that is no directory, or is none";
                self.leave_member(member, why)
            }
            Err(e) if e.fs() == FsError::TooManyLinks => {
                self.leave_member(member, "its file has too many names")
            }
            entered => entered,
        }
    }

    fn owner(&self, member: &Member) -> (u32, u32) {
        member.owner.map_or(self.enter.order.by, |(uid, gid)| self.enter.owner(uid, gid))
    }

    fn dir(&mut self, path: &[u8], member: &Member) -> catalog::Result<()> {
        let ino = self.enter.make_dir(path, None)?;
        if self.enter.worker.node.catalog.inode(ino)?.attr.kind != FileKind::Directory {
            return self.leave_member(member, "a file has its name");
        }
        self.enter.belongs(ino, member.mode, self.owner(member))
    }

    fn file(&mut self, archive: u32, path: Vec<u8>, member: &Member, data: Extent) -> catalog::Result<()> {
        self.uid += 1;
        if self.uid < self.known_uids {
            return Ok(());
        }
        if self.enter.waits(&path) {
            self.enter.flush()?;
        }
        let parent = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        self.enter.make_dir(&path[..parent], None)?;
        // What somebody has read or changed meanwhile stays as it is.
        let at_rest = |here: &Inode| here.file.as_ref().is_some_and(|f| f.object.is_none());
        let (ino, version, own) = match self.of_this_volume(&path)?.filter(at_rest) {
            Some(here) if here.attr.nlink == 1 => {
                let version = here.file.as_ref().map_or(0, |f| f.version.0);
                (here.attr.ino, Version(version + 1), true)
            }
            // Its other names stay with what they were.
            Some(_) => {
                self.unlink(&path)?;
                (Ino(self.uid), Version(1), false)
            }
            None => (Ino(self.uid), Version(1), false),
        };
        let (uid_owner, gid_owner) = self.owner(member);
        let [access, change, creation] = member.others.map(|time| time.unwrap_or(member.mtime));
        let file = TapeFile {
            uid: self.uid,
            ino,
            version,
            copy: CopyNo(1),
            file_size: member.stored,
            segment_offset: 0,
            segment_length: member.stored,
            extents: if member.stored > 0 { vec![data] } else { Vec::new() },
            path,
            mode: 0o100_000 | (member.mode & 0o777),
            uid_owner,
            gid_owner,
            times: [access, member.mtime, change, creation],
            digest: None,
            xattrs: member.xattrs.clone(),
            class: self.class.clone(),
            written: member.mtime,
            live: true,
            node: NodeFacts::default(),
        };
        let dir =
            ListedDir { name: format!("~archive-{archive:04}"), created: self.enter.as_of, facts: None };
        self.enter.file(ListedFile { dirs: [dir].into(), name: self.uid.to_string(), file }, own)
    }

    /// Another name of a file that came before.
    fn link(&mut self, path: &[u8], member: &Member, target: &[u8]) -> catalog::Result<()> {
        if self.uid + 1 < self.known_uids {
            // A file behind it was entered before, so it was made then: by now its file may have another version.
            return Ok(());
        }
        self.enter.flush()?;
        let worker = self.enter.worker;
        let catalog = &worker.node.catalog;
        let to = match foreign::path(target) {
            Ok(to) if !to.is_empty() => self.enter.place(&[b"/", &to[..]].concat()),
            _ => return self.leave_member(member, "it is another name of a file that cannot be taken"),
        };
        let Some(to) = self.of_this_volume(&to)? else {
            let what = format!("it is another name of {}, which was not taken", types::escape(target));
            return self.leave_member(member, &what);
        };
        match there(catalog, &cx(), path)? {
            Some(here) if here.attr.ino == to.attr.ino => return Ok(()),
            Some(_) if self.of_this_volume(path)?.is_some() => self.unlink(path)?,
            Some(_) => return self.leave_member(member, "its name is taken"),
            None => {}
        }
        let (dir, name) = self.parent(path)?;
        catalog.link(&cx(), to.attr.ino, dir, name).map(drop)
    }

    fn parent<'n>(&self, path: &'n [u8]) -> catalog::Result<(Ino, &'n [u8])> {
        let at = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Ok((self.enter.make_dir(&path[..at], None)?, &path[at + 1..]))
    }

    fn unlink(&self, path: &[u8]) -> catalog::Result<()> {
        let (dir, name) = self.parent(path)?;
        let worker = self.enter.worker;
        worker.node.catalog.unlink(&cx(), dir, name, &|_| false).map(drop)
    }

    /// The file at a path, if its present version is one of this volume.
    fn of_this_volume(&self, path: &[u8]) -> catalog::Result<Option<Inode>> {
        let worker = self.enter.worker;
        let catalog = &worker.node.catalog;
        let Some(here) = there(catalog, &cx(), path)? else { return Ok(None) };
        let Some(file) = &here.file else { return Ok(None) };
        let copies = catalog.version_copies(here.attr.ino, file.version)?;
        let mut segments = copies.iter().flat_map(|copy| &copy.segments);
        let ours = segments.any(|segment| segment.volume == *self.enter.barcode);
        Ok(ours.then_some(here))
    }
}

#[cfg(test)]
mod tests;
