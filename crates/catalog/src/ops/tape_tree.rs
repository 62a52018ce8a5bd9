//! The tree of one volume: directories and file segments by name, as the volume's index shows them.

use super::{names, volume};
use crate::keys;
use crate::rec::{self, FilesPlace, TapeEntry, VolumeRec};
use crate::store::{self, Tx, View};
use crate::{CatalogError, ListedDir, Result, TapeNode};
use format::ltfs::name::{numbered, tape_name};
use format::record;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use types::*;

/// The root of every tree.
pub const ROOT: TapeDir = TapeDir(0);
/// Directory of the root for segments of files that were deleted before they were recorded, so without a path.
const DELETED: &[u8] = b"~deleted";
/// That for words on files: beside the files they would be taken for empty ones.
const WORDS: &[u8] = b"~words";

/// Begins the names of [`dir_entry`].
const DIR_ENTRY: &str = "/";

/// Bytes of file data that extents hold.
pub fn data_bytes(extents: &[Extent]) -> u64 {
    extents.iter().map(|e| e.byte_count).sum()
}

/// An entry of a tree by its key and value. A directory has a higher number than the one that holds it, as it was made
/// later; without that a damaged entry could make the tree a ring, and a walk endless.
pub fn decode(key: &[u8], value: &[u8]) -> Result<TapeEntry> {
    let name = String::from_utf8_lossy(key.get(17..).unwrap_or_default());
    match rec::decode("volume tree", &name, value)? {
        TapeEntry::Dir { id, .. } if keys::number_at(key, 9).is_none_or(|parent| id.0 <= parent) => {
            Err(CatalogError::corrupt("volume tree", name, format!("directory {id} lies below itself")))
        }
        entry => Ok(entry),
    }
}

fn get(tx: &mut Tx<'_>, key: &[u8]) -> Result<Option<TapeEntry>> {
    tx.w.get_for_update(key)?.map(|v| decode(key, &v)).transpose()
}

/// The record of a segment, if its volume has it.
pub fn find(view: View<'_>, segment: &Segment) -> Result<Option<Box<TapeFile>>> {
    let Some(volume) = volume::load(view.r, &segment.volume)? else { return Ok(None) };
    let key = keys::tape(volume.tree, segment.tape_dir, &segment.tape_name);
    let entry = view.r.get(&key)?.map(|v| decode(&key, &v)).transpose()?;
    Ok(entry.and_then(|e| if let TapeEntry::File(file) = e { Some(file) } else { None }))
}

/// Changes the entry of a segment, if it still is one of this version; None: it was there no more.
fn change<T>(
    tx: &mut Tx<'_>,
    ino: Ino,
    version: Version,
    segment: &Segment,
    change: impl FnOnce(&mut TapeFile) -> T,
) -> Result<Option<T>> {
    let Some(volume) = volume::load(&*tx.w, &segment.volume)? else { return Ok(None) };
    let key = keys::tape(volume.tree, segment.tape_dir, &segment.tape_name);
    match get(tx, &key)? {
        Some(TapeEntry::File(mut file)) if (file.ino, file.version) == (ino, version) => {
            let out = change(&mut file);
            tx.w.put(&key, &record::encode(&TapeEntry::File(file)))?;
            Ok(Some(out))
        }
        _ => Ok(None),
    }
}

/// Nobody needs this segment any more. (An entry that is missing cannot die again; `check` reports it.)
pub fn kill(tx: &mut Tx<'_>, ino: Ino, version: Version, segment: &Segment) -> Result<()> {
    let died = change(tx, ino, version, segment, |file| {
        let bytes = data_bytes(&file.extents);
        std::mem::replace(&mut file.live, false).then_some(bytes)
    })?;
    match died.flatten() {
        Some(bytes) => volume::add_live(tx, &segment.volume, -(bytes as i64), -1),
        None => Ok(()),
    }
}

/// The segment of an ended version is one of another file from now on, and needed; its volume gets a new index, if it is ours.
pub fn revive(
    tx: &mut Tx<'_>,
    from: (Ino, Version),
    segment: &Segment,
    to: (Ino, Version),
    path: &[u8],
) -> Result<()> {
    let revived = change(tx, from.0, from.1, segment, |file| {
        (file.ino, file.version) = to;
        file.node = NodeFacts::default();
        file.path = path.to_vec();
        let died = !std::mem::replace(&mut file.live, true);
        died.then(|| data_bytes(&file.extents))
    })?;
    let bytes = revived.flatten().ok_or_else(|| {
        CatalogError::corrupt("volume", &segment.volume, format!("{} is not there", segment.tape_name))
    })?;
    volume::add_live(tx, &segment.volume, bytes as i64, 1)?;
    let mut rec = volume::load_for_update(tx, &segment.volume)?;
    if !rec.volume.imported {
        rec.volume.indexed_to = rec.volume.indexed_to.min(rec.volume.append_block.saturating_sub(1));
    }
    volume::store(tx, &rec)
}

/// The segment belongs to another copy number now.
pub fn renumber(tx: &mut Tx<'_>, ino: Ino, version: Version, segment: &Segment, copy: CopyNo) -> Result<()> {
    change(tx, ino, version, segment, |file| file.copy = copy).map(drop)
}

/// Enters segments into the tree of one volume; remembers the directories it has found.
pub struct Planter<'v> {
    volume: &'v mut VolumeRec,
    created: Time,
    dirs: BTreeMap<Vec<u8>, TapeDir>,
}

impl<'v> Planter<'v> {
    /// Works on this volume, whose record the caller writes afterwards.
    pub fn new(volume: &'v mut VolumeRec, created: Time) -> Self {
        Self { volume, created, dirs: BTreeMap::new() }
    }

    /// Enters a file under a free name, in directories that mirror its path.
    pub fn plant(&mut self, tx: &mut Tx<'_>, file: TapeFile) -> Result<Segment> {
        if file.is_dir() {
            return self.plant_dir(tx, file);
        }
        let aside = if file.ino.is_word() { WORDS } else { DELETED };
        let aside = [b"/".as_slice(), aside, format!("/inode-{}", file.ino.told_of()).as_bytes()].concat();
        let path = if file.path.is_empty() || file.ino.is_word() { &aside } else { &file.path };
        let (parent, name) = split_last(path);
        let dir = self.dir(tx, parent)?;
        let base = tape_name(name);
        let mut name = base.clone();
        let mut number = u64::from(file.version.0);
        while tx.w.get_for_update(&keys::tape(self.volume.tree, dir, &name))?.is_some() {
            name = numbered(&base, number);
            number += 1;
        }
        self.enter(tx, dir, name, file)
    }

    /// Enters what is to be known of a directory into the directory that mirrors it.
    fn plant_dir(&mut self, tx: &mut Tx<'_>, file: TapeFile) -> Result<Segment> {
        let dir = self.dir(tx, &file.path)?;
        let (base, mut name) = (dir_entry(&file), dir_entry(&file));
        for number in 2.. {
            if self.entry(tx, dir, &name)?.is_none() {
                break;
            }
            name = again(&base, number);
        }
        self.enter(tx, dir, name, file)
    }

    /// Enters a file under this name, which is free.
    pub fn enter(&mut self, tx: &mut Tx<'_>, dir: TapeDir, name: String, file: TapeFile) -> Result<Segment> {
        let segment = Segment {
            volume: self.volume.volume.barcode.clone(),
            file_offset: file.segment_offset,
            length: file.segment_length,
            extents: file.extents.clone(),
            tape_dir: dir,
            tape_name: name,
        };
        let bytes = data_bytes(&file.extents);
        self.volume.volume.written += bytes;
        self.volume.volume.files += 1;
        if file.live {
            volume::add_live(tx, &segment.volume, bytes as i64, 1)?;
        }
        let key = keys::tape(self.volume.tree, dir, &segment.tape_name);
        tx.w.put(&key, &record::encode(&TapeEntry::File(Box::new(file))))?;
        Ok(segment)
    }

    /// Takes a segment that nobody needs out of the tree: another is entered in its place.
    pub fn take_out(&mut self, tx: &mut Tx<'_>, dir: TapeDir, name: &str, file: &TapeFile) -> Result<()> {
        let v = &mut self.volume.volume;
        v.written = v.written.saturating_sub(data_bytes(&file.extents));
        v.files = v.files.saturating_sub(1);
        Ok(tx.w.delete(&keys::tape(self.volume.tree, dir, name))?)
    }

    /// The directory that the index of the volume lists under these names, made if need be.
    pub fn listed_dir(&mut self, tx: &mut Tx<'_>, dirs: &[ListedDir]) -> Result<TapeDir> {
        // No name has a '/', so no two places have one key.
        let path =
            dirs.iter().fold(Vec::new(), |path, d| [path.as_slice(), b"/", d.name.as_bytes()].concat());
        if let Some(dir) = self.dirs.get(&path) {
            return Ok(*dir);
        }
        let mut dir = ROOT;
        for listed in dirs {
            dir = self.listed_in(tx, dir, listed)?;
        }
        self.dirs.insert(path, dir);
        Ok(dir)
    }

    /// One of them. A section behind the index tells of directories by their paths, and a file may have had the name before:
    /// then it gets the next name that is free, as it would in the next index.
    fn listed_in(&mut self, tx: &mut Tx<'_>, parent: TapeDir, listed: &ListedDir) -> Result<TapeDir> {
        let mut name = listed.name.clone();
        for number in 1.. {
            let key = keys::tape(self.volume.tree, parent, &name);
            match get(tx, &key)? {
                Some(TapeEntry::Dir { id, .. }) => return Ok(id),
                Some(TapeEntry::File(_)) => name = numbered(&listed.name, number),
                None => {
                    let node = listed.facts.as_ref().and_then(|facts| facts.node.as_ref());
                    return self.new_dir(tx, &key, listed.created, node.map_or(Ino(0), |node| node.ino));
                }
            }
        }
        unreachable!("numbers do not end before names are free")
    }

    /// Whose tree it is.
    pub fn barcode(&self) -> &Barcode {
        &self.volume.volume.barcode
    }

    /// What the tree has under a name.
    pub fn entry(&self, tx: &mut Tx<'_>, dir: TapeDir, name: &str) -> Result<Option<TapeEntry>> {
        get(tx, &keys::tape(self.volume.tree, dir, name))
    }

    fn new_dir(&mut self, tx: &mut Tx<'_>, key: &[u8], created: Time, mirrors: Ino) -> Result<TapeDir> {
        let id = TapeDir(self.volume.next_dir);
        let next = self.volume.next_dir.checked_add(1);
        self.volume.next_dir = next.ok_or_else(|| {
            CatalogError::corrupt("volume", &self.volume.volume.barcode, "no directory number is left")
        })?;
        tx.w.put(key, &record::encode(&TapeEntry::Dir { id, created, mirrors }))?;
        Ok(id)
    }

    fn dir(&mut self, tx: &mut Tx<'_>, path: &[u8]) -> Result<TapeDir> {
        if let Some(dir) = self.dirs.get(path) {
            return Ok(*dir);
        }
        let (mut dir, mut mirrors) = (ROOT, Some(Ino::ROOT));
        for component in path.split(|b| *b == b'/').filter(|c| !c.is_empty()) {
            let found = mirrors.map(|m| names::find(tx.view(), m, component)).transpose()?.flatten();
            mirrors = found.filter(|found| found.kind == FileKind::Directory).map(|found| found.ino);
            dir = self.subdir(tx, dir, component, mirrors.unwrap_or(Ino(0)))?;
        }
        self.dirs.insert(path.to_vec(), dir);
        Ok(dir)
    }

    /// The directory below `parent` for this component; one that mirrors another directory of the namespace, which had
    /// the name before, stays for itself.
    fn subdir(&mut self, tx: &mut Tx<'_>, parent: TapeDir, component: &[u8], is: Ino) -> Result<TapeDir> {
        let base = tape_name(component);
        let mut name = base.clone();
        for number in 1.. {
            let key = keys::tape(self.volume.tree, parent, &name);
            match get(tx, &key)? {
                Some(TapeEntry::Dir { id, mirrors, .. })
                    if mirrors == is || is == Ino(0) || mirrors == Ino(0) =>
                {
                    return Ok(id);
                }
                Some(_) => name = numbered(&base, number),
                None => return self.new_dir(tx, &key, self.created, is),
            }
        }
        unreachable!("numbers do not end before names are free")
    }
}

/// Name under which a volume's tree has what is to be known of a directory, in the directory itself: none that a file can
/// have.
pub fn dir_entry(file: &TapeFile) -> String {
    format!("{DIR_ENTRY}{}.{}.{}", file.ino, file.version, file.copy)
}

/// The same for the `number`th of the same copy: it was written more than once.
pub fn again(dir_entry: &str, number: u32) -> String {
    format!("{dir_entry}.{number}")
}

/// What is to be known of a directory of a volume's tree, if that is a copy which counts.
pub fn dir_node(view: View<'_>, barcode: &Barcode, dir: TapeDir) -> Result<Option<TapeFile>> {
    let Some(volume) = volume::load(view.r, barcode)? else { return Ok(None) };
    let prefix = keys::tape(volume.tree, dir, DIR_ENTRY);
    let mut found = None;
    store::each(view.r, &prefix, &keys::end(&prefix), |k, v| {
        if let TapeEntry::File(file) = decode(k, v)?
            && file.live
        {
            found = Some(*file);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    path.split_at(at)
}

/// One step of a walk, owned.
#[derive(Debug)]
pub enum Step {
    Enter { name: String, dir: TapeDir, created: Time, mirrors: Ino },
    File { name: String, file: Box<TapeFile> },
    Leave,
}

impl Step {
    /// The public shape.
    pub fn node(&self) -> TapeNode<'_> {
        match self {
            Self::Enter { name, dir, created, mirrors } => {
                TapeNode::EnterDir { name, dir: *dir, created: *created, mirrors: *mirrors }
            }
            Self::File { name, file } => TapeNode::File { name, file },
            Self::Leave => TapeNode::LeaveDir,
        }
    }
}

/// Walks a tree depth first in pieces. Keeps one key per level, nothing else.
#[derive(Clone)]
pub struct Walker {
    tree: u64,
    /// Next key and end of each directory that is open, the root first.
    open: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Walker {
    /// Starts at the root of a volume's tree.
    pub fn new(view: View<'_>, barcode: &Barcode) -> Result<Self> {
        let volume =
            volume::load(view.r, barcode)?.ok_or_else(|| CatalogError::missing("volume", barcode))?;
        let mut walker = Self { tree: volume.tree, open: Vec::new() };
        walker.enter(ROOT);
        Ok(walker)
    }

    /// Goes on where [`Walker::place`] was, with the names of the directories that are open.
    pub fn resume(view: View<'_>, barcode: &Barcode, place: &[u8]) -> Result<(Self, Vec<String>)> {
        let volume =
            volume::load(view.r, barcode)?.ok_or_else(|| CatalogError::missing("volume", barcode))?;
        let refused = |why: &str| {
            let why = format!("{why}; ask for its files from the beginning");
            CatalogError::refused(format!("volume {barcode}"), why)
        };
        let FilesPlace { tree, open } =
            record::decode(place).map_err(|e| refused(&format!("that is no place in its list ({e})")))?;
        if tree != volume.tree {
            return Err(refused("it has got another label meanwhile"));
        }
        let (mut walker, mut dirs) = (Self { tree, open: Vec::new() }, Vec::new());
        for (key, name) in open {
            let prefix = key.get(..17).filter(|prefix| prefix.starts_with(&keys::tape_tree(tree)));
            let end = prefix.map(keys::end).ok_or_else(|| refused("that is no place in its list"))?;
            walker.open.push((key, end));
            dirs.push(name);
        }
        // The root has no name.
        dirs.drain(..dirs.len().min(1));
        Ok((walker, dirs))
    }

    /// Where it is, with the names of the directories that are open; None: at the end.
    pub fn place(&self, dirs: &[String]) -> Option<Vec<u8>> {
        let names = std::iter::once(String::new()).chain(dirs.iter().cloned());
        let open = self.open.iter().map(|(key, _)| key.clone()).zip(names).collect::<Vec<_>>();
        (!open.is_empty()).then(|| record::encode(&FilesPlace { tree: self.tree, open }))
    }

    fn enter(&mut self, dir: TapeDir) {
        let prefix = keys::tape_dir(self.tree, dir);
        self.open.push((prefix.to_vec(), keys::end(&prefix)));
    }

    /// There are no more steps.
    pub fn end(&mut self) {
        self.open.clear();
    }

    /// The next steps, about `limit`; none at the end.
    pub fn advance(&mut self, view: View<'_>, limit: usize) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        while steps.len() < limit {
            let Some((from, to)) = self.open.last_mut() else { break };
            let mut child = None;
            let mut failed = None;
            let mut next = None;
            view.r.scan(from, to, &mut |k, v| {
                if steps.len() >= limit {
                    next = Some(k.to_vec());
                    return ControlFlow::Break(());
                }
                let name = String::from_utf8_lossy(&k[17..]).into_owned();
                match decode(k, v) {
                    Ok(TapeEntry::File(file)) => steps.push(Step::File { name, file }),
                    Ok(TapeEntry::Dir { id, created, mirrors }) => {
                        steps.push(Step::Enter { name, dir: id, created, mirrors });
                        (child, next) = (Some(id), Some(keys::after(k)));
                        return ControlFlow::Break(());
                    }
                    Err(e) => {
                        failed = Some(e);
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            })?;
            if let Some(e) = failed {
                return Err(e);
            }
            match next {
                Some(key) => *from = key,
                None => {
                    self.open.pop();
                    if !self.open.is_empty() {
                        steps.push(Step::Leave);
                    }
                }
            }
            child.into_iter().for_each(|dir| self.enter(dir));
        }
        Ok(steps)
    }
}
