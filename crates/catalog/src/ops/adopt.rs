//! Enters what the index of a volume lists into the catalogue: how a lost catalogue comes back from tapes alone.
//!
//! Volumes come in any order, and their indexes are of different age. So of two statements the later one counts: a
//! higher version of an inode, or the segment of the same version that was written later. Whoever comes second to a path
//! that a later file has is kept in `/lost+found`. Adopting a volume twice changes nothing.

use super::adopt_words::Word;
use super::record_copies::{covers, overlap};
use super::tape_tree::Planter;
use super::{names, open, path, remove, site, tape_tree, version, volume, words, xattr};
use crate::dirent::Dirent;
use crate::keys;
use crate::perm;
use crate::rec::{FileRec, InodeRec, KnownVersion, TapeEntry};
use crate::store::Tx;
use crate::{Adoption, CatalogError, ListedDir, ListedFile, Result};
use format::ltfs::name::tape_name;
use format::record;
use std::collections::BTreeMap;
use types::*;

/// Directory of the root for files whose path is taken, or is none.
pub const LOST_FOUND: &[u8] = b"lost+found";

/// Whether an object is no longer on disk.
pub type Gone<'a> = &'a dyn Fn(ObjectId) -> bool;

/// Records of the classes by name, made before the transaction.
pub type ClassIds = BTreeMap<ClassName, u32>;

/// See [`Catalog::begin_adoption`](crate::Catalog::begin_adoption).
pub fn begin(tx: &mut Tx<'_>, fresh: &Volume) -> Result<()> {
    let Some(old) = volume::load(&*tx.w, &fresh.barcode)? else { return volume::put(tx, fresh) };
    if old.volume.uuid == fresh.uuid {
        return Ok(());
    }
    if old.volume.uuid.is_empty() && old.volume.files == 0 {
        return volume::put(tx, fresh);
    }
    volume::relabel(tx, &fresh.barcode, fresh)
}

/// See [`Catalog::adopt`](crate::Catalog::adopt).
pub fn adopt(
    tx: &mut Tx<'_>,
    barcode: &Barcode,
    as_of: Time,
    classes: &ClassIds,
    listed: &[ListedFile],
    gone: Gone<'_>,
) -> Result<(Vec<Adoption>, bool)> {
    let mut volume = volume::load_for_update(tx, barcode)?;
    let highest = listed.iter().map(|l| l.file.uid).max().unwrap_or(0);
    volume.volume.next_uid = volume.volume.next_uid.max(highest.saturating_add(1));
    let mut planter = Planter::new(&mut volume, as_of);
    let mut outcomes = Vec::with_capacity(listed.len());
    let told = listed.iter().flat_map(|one| one.dirs.iter().filter_map(node_of).chain([&one.file]));
    let highest = told.filter(|file| impossible(file).is_none()).flat_map(numbers).max();
    let skipped = highest.map_or(Ok(false), |ino| site::skip_inode(tx, ino))?;
    for one in listed {
        if let Some(why) = impossible(&one.file) {
            outcomes.push(Adoption::Contradicts { why });
            continue;
        }
        let dir = planter.listed_dir(tx, &one.dirs)?;
        outcomes.push(match free_name(tx, &mut planter, dir, one)? {
            None => Adoption::Known,
            Some(name) => {
                let namespace = Namespace { as_of, classes, is_gone: gone };
                enter(tx, &mut planter, (dir, name), one, &namespace)?
            }
        });
    }
    volume::store(tx, &volume)?;
    Ok((outcomes, skipped))
}

/// Inodes that an entry tells of, without those that are not told.
fn numbers(file: &TapeFile) -> impl Iterator<Item = Ino> {
    let parents = file.node.names.iter().map(|(dir, _)| *dir).chain([file.node.parent]);
    parents.chain([file.ino.told_of()]).filter(|ino| *ino != Ino(0))
}

/// Why nothing can be what an entry says, if so.
fn impossible(file: &TapeFile) -> Option<String> {
    let damaged = |what: &str| Some(format!("inode {} version {}: {what}", file.ino, file.version));
    let ino = file.ino.told_of();
    if !site::is_ino(ino) || !numbers(file).all(site::is_ino) {
        return damaged("no inode has such a number");
    }
    if !(Version(1)..site::HIGHEST_VERSION).contains(&file.version)
        || file.node.beside >= site::HIGHEST_VERSION
    {
        return damaged("no version has such a number");
    }
    let in_itself = file.ino != Ino::ROOT && numbers(file).filter(|named| *named == ino).count() > 1;
    if in_itself || (ino == Ino::ROOT && (file.node.gone || file.ino.is_word())) {
        return damaged("that cannot be said of it");
    }
    None
}

/// Name under which a segment is entered, which is free then; None: it is known.
fn free_name(
    tx: &mut Tx<'_>,
    planter: &mut Planter<'_>,
    dir: TapeDir,
    one: &ListedFile,
) -> Result<Option<String>> {
    let mut name = one.name.clone();
    for number in 2.. {
        match planter.entry(tx, dir, &name)? {
            None => return Ok(Some(name)),
            Some(TapeEntry::File(known)) if same_segment(&known, &one.file) => return Ok(None),
            // It was made another file since. If the one that is known needs the bytes, it keeps them.
            Some(TapeEntry::File(known)) if same_bytes(&known, &one.file) && known.live => return Ok(None),
            Some(TapeEntry::File(known)) if same_bytes(&known, &one.file) => {
                version::forget_segment(tx, &known, planter.barcode(), (dir, &name))?;
                planter.take_out(tx, dir, &name, &known)?;
                return Ok(Some(name));
            }
            // Sections tell of each time that it was written.
            Some(_) if one.file.is_dir() => name = tape_tree::again(&one.name, number),
            Some(_) => break,
        }
    }
    let why = format!("its index lists {name:?} twice, or differently than before");
    Err(CatalogError::refused(format!("volume {}", planter.barcode()), why))
}

fn same_segment(a: &TapeFile, b: &TapeFile) -> bool {
    (a.uid, a.ino, a.version) == (b.uid, b.ino, b.version) && a.extents == b.extents
}

/// Whether two statements are of one piece of data on the volume, whichever files they give it to.
fn same_bytes(a: &TapeFile, b: &TapeFile) -> bool {
    let part = |f: &TapeFile| (f.uid, f.segment_offset, f.segment_length, f.file_size);
    part(a) == part(b) && a.extents == b.extents && a.has_data() && b.has_data()
}

fn enter(
    tx: &mut Tx<'_>,
    planter: &mut Planter<'_>,
    (dir, name): (TapeDir, String),
    one: &ListedFile,
    namespace: &Namespace<'_>,
) -> Result<Adoption> {
    let standing = standing(tx, &one.file, namespace.is_gone)?;
    // What says that a node is gone keeps no volume from being emptied.
    let needed = !one.file.node.gone;
    let live = needed
        && matches!(standing, Standing::New | Standing::Newer(_) | Standing::Same(_) | Standing::Again(..));
    let segment = planter.enter(tx, dir, name, TapeFile { live, ..one.file.clone() })?;
    let old = match standing {
        Standing::New => {
            forget_from(tx, &one.file)?;
            None
        }
        Standing::Newer(rec) => {
            forget_from(tx, &one.file)?;
            version::end(tx, &rec, None)?;
            Some(*rec)
        }
        Standing::Same(rec) => Some(*rec),
        Standing::Again(rec, earlier) => {
            give_up(tx, &one.file, &earlier)?;
            Some(*rec)
        }
        Standing::Older => {
            remember(tx, &one.file, segment)?;
            return Ok(Adoption::Dead);
        }
        Standing::Dead => return Ok(Adoption::Dead),
        Standing::Contradicts(why) => return Ok(Adoption::Contradicts { why }),
    };
    if one.file.ino.is_word() {
        namespace.word(tx, old, one, segment)?;
        return Ok(Adoption::Live);
    }
    let (rec, at) = match one.file.has_data() {
        true => namespace.inode(tx, old, one)?,
        false => namespace.node(tx, old, one)?,
    };
    attach(tx, rec, &one.file, segment)?;
    let path = &one.file.path;
    // It may also lie in a directory that was renamed since.
    let lost = at != *path && at.strip_prefix(b"/").is_some_and(|at| at.starts_with(LOST_FOUND));
    Ok(if lost { Adoption::Displaced { path: path.clone(), at } } else { Adoption::Live })
}

/// What a segment is to what is known of its inode.
enum Standing {
    New,
    Newer(Box<InodeRec>),
    Same(Box<InodeRec>),
    /// The same part of the same copy as one that is known, written later: its volume was emptied, or it was lost.
    Again(Box<InodeRec>, Segment),
    Older,
    Dead,
    Contradicts(String),
}

fn standing(tx: &mut Tx<'_>, file: &TapeFile, gone: Gone<'_>) -> Result<Standing> {
    if let Err(e) = version::check_copy(file.copy) {
        return Ok(Standing::Contradicts(e.to_string()));
    }
    let no = |why: String| Ok(Standing::Contradicts(format!("inode {}: {why}", file.ino)));
    let Some(kind) = file.kind() else { return no(format!("mode {:o} is that of no node", file.mode)) };
    let live = file.live || file.node.gone;
    let Some(rec) = tx.trace(file.ino)? else {
        // Unless it was written after that: it was on disk still.
        let over = |word: &InodeRec| word.is_gone() && words::version_of(Some(word)) >= file.node.beside;
        let removed = file.has_data() && tx.gone(file.ino.word())?.as_ref().is_some_and(over);
        return Ok(if live && !removed { Standing::New } else { Standing::Older });
    };
    if rec.kind != kind {
        return no(format!("it is {kind:?} there, {:?} here", rec.kind));
    }
    // A directory without versions was made up because something lay in it.
    let f = &rec.file.clone().unwrap_or_default();
    if file.version < f.version {
        return Ok(Standing::Older);
    }
    if file.version == f.version && file.node.gone != rec.is_gone() {
        return no(format!("version {} was removed there: {}", f.version, file.node.gone));
    }
    if !live {
        return Ok(Standing::Dead);
    }
    if file.version > f.version {
        if f.object.is_some_and(|object| !gone(object)) {
            return no(format!("version {} is on tape, older bytes are on disk", file.version));
        }
        return Ok(Standing::Newer(Box::new(rec)));
    }
    let size = rec.data_size();
    if size != file.file_size {
        return no(format!("version {} has {size} bytes here, {} there", f.version, file.file_size));
    }
    if f.digest.zip(file.digest).is_some_and(|(a, b)| a != b) {
        return no(format!("version {} has another digest there", f.version));
    }
    let parts = version::copy(tx, file.ino, file.version, file.copy)?.map_or_else(Vec::new, |c| c.segments);
    let part = |s: &Segment| (s.file_offset, s.length);
    let here = (file.segment_offset, file.segment_length);
    let probe = Segment {
        volume: Barcode::default(),
        file_offset: here.0,
        length: here.1,
        extents: Vec::new(),
        tape_dir: TapeDir(0),
        tape_name: String::new(),
    };
    match parts.iter().find(|s| overlap(s, &probe)) {
        Some(twin) if part(twin) == here => {
            let known = tape_tree::find(tx.view(), twin)?;
            let later = known.is_none_or(|known| known.written < file.written);
            Ok(if later { Standing::Again(Box::new(rec), twin.clone()) } else { Standing::Dead })
        }
        Some(other) => no(format!("copy {} has its bytes on volume {} too", file.copy, other.volume)),
        None => Ok(Standing::Same(Box::new(rec))),
    }
}

/// A dead segment without an inode was taken for one of a version that ended. It was not if that version, or an earlier
/// one, is current: then it is a copy that nobody needs.
fn forget_from(tx: &mut Tx<'_>, file: &TapeFile) -> Result<()> {
    for known in version::versions(tx.view(), file.ino)? {
        if known.current || known.version < file.version {
            continue;
        }
        for copy in known.copies {
            tx.w.delete(&keys::copy(file.ino, known.version, copy.copy))?;
        }
        tx.w.delete(&keys::version(file.ino, known.version))?;
        super::parts::forget(tx, file.ino, known.version)?;
    }
    Ok(())
}

/// A version that ended stays known as long as a segment of it is on tape.
fn remember(tx: &mut Tx<'_>, file: &TapeFile, segment: Segment) -> Result<()> {
    let known = version::ended(tx.view(), file.ino, file.version)?;
    let fresh = KnownVersion::new(file.file_size, file.times[1], file.digest);
    let mut copy = version::copy(tx, file.ino, file.version, file.copy)?.unwrap_or_else(|| new_copy(file));
    let differs = known.as_ref().is_some_and(|known| known.size != fresh.size);
    if differs || copy.segments.iter().any(|have| overlap(have, &segment)) {
        return Ok(());
    }
    copy.segments.push(segment);
    copy.segments.sort_by_key(|part| part.file_offset);
    tx.w.put(&keys::version(file.ino, file.version), &record::encode(&known.unwrap_or(fresh)))?;
    version::put_copy(tx, file.ino, file.version, &copy)
}

fn new_copy(file: &TapeFile) -> CopyRecord {
    CopyRecord { copy: file.copy, segments: Vec::new(), recorded: file.written }
}

/// Another segment takes the place of this one.
fn give_up(tx: &mut Tx<'_>, file: &TapeFile, earlier: &Segment) -> Result<()> {
    tape_tree::kill(tx, file.ino, file.version, earlier)?;
    let Some(mut copy) = version::copy(tx, file.ino, file.version, file.copy)? else { return Ok(()) };
    copy.segments.retain(|have| have != earlier);
    version::put_copy(tx, file.ino, file.version, &copy)
}

/// Makes the segment part of its copy; with the last one the copy counts.
pub fn attach(tx: &mut Tx<'_>, old: InodeRec, file: &TapeFile, segment: Segment) -> Result<()> {
    let mut copy = version::copy(tx, file.ino, file.version, file.copy)?.unwrap_or_else(|| new_copy(file));
    copy.segments.push(segment);
    copy.segments.sort_by_key(|part| part.file_offset);
    copy.recorded = copy.recorded.max(file.written);
    version::put_copy(tx, file.ino, file.version, &copy)?;
    let mut rec = old.clone();
    let size = rec.data_size();
    if let Some(f) = &mut rec.file {
        f.known = true;
        f.digest = f.digest.or(file.digest);
        if covers(&copy.segments, size) {
            f.copies |= 1 << (file.copy.0 - 1);
        }
    }
    let class = tx.class(rec.class)?;
    rec.settle(&class, file.written);
    tx.replace(Some(&old), Some(&rec))
}

/// The namespace as the index of one volume tells of it.
pub struct Namespace<'a> {
    pub as_of: Time,
    classes: &'a ClassIds,
    pub is_gone: Gone<'a>,
}

impl Namespace<'_> {
    pub fn class(&self, name: &ClassName) -> Result<u32> {
        self.classes.get(name).copied().ok_or_else(|| CatalogError::missing("class", name))
    }

    /// The inode of a live segment, brought to what the segment says if that is later; and its path.
    fn inode(&self, tx: &mut Tx<'_>, old: Option<InodeRec>, one: &ListedFile) -> Result<(InodeRec, Vec<u8>)> {
        let (file, word) = (&one.file, Word::on(tx, &one.file)?);
        let version = old.as_ref().and_then(|rec| rec.file.as_ref()).map(|f| f.version);
        if let Some(old) = old.as_ref().filter(|_| version == Some(file.version))
            && (word.is_later() || evidence(tx, old)? >= file.written)
        {
            // What is there was said later.
            return Ok((old.clone(), file.path.clone()));
        }
        let mut rec = self.record(&word.over(file))?;
        (rec.nlink, rec.link) = old.as_ref().map_or((0, rec.link), |old| (old.nlink, old.link));
        rec.xattrs = old.as_ref().map_or(0, |old| old.xattrs);
        if let (Some(to), Some(from)) = (&mut rec.file, old.as_ref().and_then(|old| old.file.as_ref()))
            && from.version == to.version
        {
            (to.copies, to.digest, to.known) = (from.copies, from.digest.or(to.digest), from.known);
            to.mend = from.mend;
        }
        let places = match word.says() {
            Some(said) => self.told_places(tx, said)?,
            None => self.listed_place(tx, one)?.into_iter().collect(),
        };
        let rec = self.set_names(tx, rec, places, word.says().unwrap_or(file))?;
        let rec = put_xattrs(tx, rec, &word.over(file).xattrs)?;
        tx.replace(old.as_ref(), Some(&rec))?;
        self.note_word(tx, &rec, file)?;
        let at = path::path_of(tx.view(), rec.ino)?;
        Ok((rec, at))
    }

    pub fn record(&self, file: &TapeFile) -> Result<InodeRec> {
        Ok(InodeRec {
            ino: file.ino,
            kind: FileKind::File,
            mode: file.mode & 0o7777,
            nlink: 1,
            uid: file.uid_owner,
            gid: file.gid_owner,
            rdev: 0,
            class: self.class(&file.class)?,
            size: file.file_size,
            atime: file.times[0],
            mtime: file.times[1],
            ctime: file.times[2],
            btime: file.times[3],
            link: (Ino::ROOT, file.ino.0),
            xattrs: 0,
            file: Some(FileRec {
                version: file.version,
                sealed: true,
                digest: file.digest,
                used: file.times[0].secs,
                ..FileRec::default()
            }),
        })
    }

    /// Where the segment says that the file is named: its directory is the one of which it has the number, or one that the
    /// volume's directories tell of.
    fn listed_place(&self, tx: &mut Tx<'_>, one: &ListedFile) -> Result<Option<(Ino, Vec<u8>)>> {
        if one.file.node.parent != Ino(0) {
            return self.place(tx, one);
        }
        let Some((dirs, name)) = split(&one.file.path) else { return Ok(None) };
        Ok(self.dirs(tx, &dirs, one)?.map(|dir| (dir, name.to_vec())))
    }

    pub fn lose(&self, tx: &mut Tx<'_>, rec: InodeRec, name: &[u8]) -> Result<InodeRec> {
        let root = tx.load(Ino::ROOT)?;
        let dir = match names::find_for_update(tx, Ino::ROOT, LOST_FOUND)? {
            Some(found) if found.kind == FileKind::Directory => found.ino,
            Some(_) => {
                let why = "it is no directory; rename it";
                return Err(CatalogError::refused("/lost+found", why));
            }
            None => {
                let rec = self.made_up(tx, &root, (0o700, root.uid, root.gid, root.class))?;
                self.make_dir(tx, rec, LOST_FOUND)?
            }
        };
        let mut kept = format!("{}~", rec.ino).into_bytes();
        kept.extend_from_slice(name);
        kept.truncate(perm::MAX_NAME);
        name_it(tx, InodeRec { nlink: 1, ..rec }, dir, &kept)
    }

    /// The directory of a path, made if need be; None if something else is in the way.
    pub fn dirs(&self, tx: &mut Tx<'_>, path: &[&[u8]], one: &ListedFile) -> Result<Option<Ino>> {
        // The volume's directories tell of those that they mirror: all of them, unless names had to be changed.
        let mirrors = |(name, listed): (&&[u8], &ListedDir)| tape_name(name) == listed.name;
        let told = path.len() <= one.dirs.len() && path.iter().zip(one.dirs.iter()).all(mirrors);
        let known =
            path.len() <= one.dirs.len() && one.dirs[..path.len()].iter().all(|d| node_of(d).is_some());
        let mut dir = Ino::ROOT;
        for (depth, name) in path.iter().enumerate() {
            if let Some(node) = one.dirs.get(depth).filter(|_| known).and_then(node_of)
                && let Some(found) = self.known_dir(tx, node)?
            {
                dir = found;
                continue;
            }
            let facts = one.dirs.get(depth).filter(|_| told).and_then(|d| d.facts.as_ref());
            let class = facts.map(|f| self.class(&f.class)).transpose()?;
            let rec = tx.load(dir)?;
            dir = match names::find_for_update(tx, dir, name)? {
                Some(found) if found.kind == FileKind::Directory => {
                    if let Some(facts) = facts {
                        self.refresh(tx, found.ino, facts)?;
                    }
                    found.ino
                }
                Some(_) => return Ok(None),
                // Without word of it, it belongs to the first file that is found in it.
                None => {
                    let owner = (0o755, one.file.uid_owner, one.file.gid_owner, rec.class);
                    let told = facts.map(|f| (f.mode, f.uid, f.gid, class.unwrap_or(rec.class)));
                    let made_up = self.made_up(tx, &rec, told.unwrap_or(owner))?;
                    let last = depth + 1 == path.len();
                    let number = if last { one.file.node.parent } else { Ino(0) };
                    let own = number != Ino(0) && tx.trace(number)?.is_none();
                    let ino = if own { number } else { made_up.ino };
                    self.make_dir(tx, InodeRec { ino, ..made_up }, name)?
                }
            };
        }
        Ok(Some(dir))
    }

    /// A directory of which nothing is known but mode, owner, group and class.
    pub fn made_up(
        &self,
        tx: &mut Tx<'_>,
        parent: &InodeRec,
        (mode, uid, gid, class): (u32, u32, u32, u32),
    ) -> Result<InodeRec> {
        let ino = Ino(open::reserve_ids(tx, 1)?);
        Ok(InodeRec {
            ino,
            kind: FileKind::Directory,
            mode,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            class,
            size: 0,
            atime: self.as_of,
            mtime: self.as_of,
            ctime: self.as_of,
            btime: self.as_of,
            link: (parent.ino, ino.0),
            xattrs: 0,
            file: None,
        })
    }

    pub fn make_dir(&self, tx: &mut Tx<'_>, rec: InodeRec, name: &[u8]) -> Result<Ino> {
        let parent = rec.link.0;
        let rec = name_it(tx, rec, parent, name)?;
        tx.replace(None, Some(&rec))?;
        Ok(rec.ino)
    }
}

/// All that an index tells of a directory.
fn node_of(dir: &ListedDir) -> Option<&TapeFile> {
    dir.facts.as_ref()?.node.as_deref().filter(|node| impossible(node).is_none())
}

pub fn is_empty(tx: &Tx<'_>, dir: &InodeRec) -> Result<bool> {
    match remove::check_empty(tx.view(), dir.ino) {
        Err(CatalogError::Fs(FsError::NotEmpty)) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Until when an inode is known to have been what it is: when the newest segment of its version was written, of a file the
/// word on it, and of a node without data when an index told of it.
pub fn evidence(tx: &mut Tx<'_>, rec: &InodeRec) -> Result<Time> {
    let Some(f) = &rec.file else { return Ok(Time::new(i64::MIN, 0)) };
    let copies = version::copies(tx.view(), rec.ino, f.version)?;
    let told = |f: &FileRec| Time::from_nanos(f.used);
    let told = match rec.has_data() {
        true => tx.gone(rec.ino.word())?.and_then(|w| w.file).map_or(Time::new(i64::MIN, 0), |f| told(&f)),
        false => told(f),
    };
    Ok(copies.iter().map(|c| c.recorded).max().map_or(told, |written| written.max(told)))
}

pub fn name_it(tx: &mut Tx<'_>, mut rec: InodeRec, dir: Ino, name: &[u8]) -> Result<InodeRec> {
    let entry = Dirent { ino: rec.ino, kind: rec.kind, cookie: rec.ino.0 };
    names::put(tx, dir, name, &entry)?;
    names::counted(tx, dir, 1, i64::from(rec.is_dir()))?;
    rec.link = (dir, entry.cookie);
    Ok(rec)
}

/// Takes away the one name of a file that was adopted; the caller gives it another.
pub fn unlink(tx: &mut Tx<'_>, rec: &InodeRec) -> Result<()> {
    let name = path::name_of(tx.view(), rec)?;
    let entry = Dirent { ino: rec.ino, kind: rec.kind, cookie: rec.link.1 };
    names::delete(tx, rec.link.0, &name, &entry)?;
    names::counted(tx, rec.link.0, -1, -i64::from(rec.is_dir()))
}

pub fn put_xattrs(tx: &mut Tx<'_>, mut rec: InodeRec, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<InodeRec> {
    for (name, _) in xattr::all(tx.view(), &rec)? {
        tx.w.delete(&keys::xattr(rec.ino, &name))?;
    }
    let fits = |name: &[u8]| (1..=255).contains(&name.len());
    let taken: BTreeMap<_, _> = xattrs.iter().filter(|(name, _)| fits(name)).map(|(n, v)| (n, v)).collect();
    rec.xattrs = taken.keys().map(|name| name.len() as u32 + 1).sum();
    for (name, value) in taken {
        tx.w.put(&keys::xattr(rec.ino, name), value)?;
    }
    Ok(rec)
}

/// Directories and name of an absolute path; None if it is not one that a file can have.
pub fn split(path: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let rest = path.strip_prefix(b"/")?;
    let mut parts: Vec<&[u8]> = rest.split(|b| *b == b'/').collect();
    if !parts.iter().all(|part| perm::check_name(part).is_ok()) {
        return None;
    }
    let name = parts.pop()?;
    Some((parts, name))
}
