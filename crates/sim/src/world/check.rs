//! What must always be true, looked at from outside: each checker knows only what users were told, the catalogue, and the
//! files of the cartridges.

use super::users::{Content, Names};
use crate::dice::content;
use node::Stepped;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use types::api::FileApi;
use types::*;

/// Copies that the class of service requires.
pub const COPIES: usize = 2;
/// Queue items per cartridge, file or pool that nothing can need more of.
const MOST_WRITES: usize = 2_000;

/// Names and sizes as the node lists them.
pub fn listing(node: &Stepped) -> Result<BTreeMap<String, u64>, String> {
    let cx = Cx::admin(Time::new(super::hub::BEGIN_S, 0));
    let page = node.node().readdir_plus(&cx, Ino::ROOT, 0, 10_000);
    let page = page.map_err(|e| format!("the root cannot be listed: {e:?}"))?;
    let name = |e: &DirEntry| String::from_utf8_lossy(&e.name).into_owned();
    Ok(page.iter().map(|(e, attr)| (name(e), attr.size)).collect())
}

/// Block at which the data of a cartridge end that survive a power failure.
fn end_of_data(cartridge: &Path) -> Option<u64> {
    let names = std::fs::read_dir(cartridge).ok()?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    names.filter_map(|n| n.strip_prefix("1_")?.strip_suffix("_E")?.parse().ok()).max()
}

/// Reads a segment from the files of its cartridge, without any code of ours.
fn segment(cartridge: &Path, segment: &Segment, into: &mut [u8]) -> Result<(), String> {
    let end = end_of_data(cartridge).ok_or("it has no end of data")?;
    for e in &segment.extents {
        let (mut block, mut skip) = (e.start_block, e.byte_offset as usize);
        let (mut at, mut left) = (e.file_offset as usize, e.byte_count as usize);
        while left > 0 {
            if block >= end {
                return Err(format!("block {block} is not flushed, the data end at {end}"));
            }
            let record = std::fs::read(cartridge.join(format!("1_{block}_R")));
            let record = record.map_err(|e| format!("block {block}: {e}"))?;
            let piece = record.get(skip..).unwrap_or(&[]);
            let n = piece.len().min(left);
            if n == 0 || into.len() < at + n {
                return Err(format!("block {block} does not fit"));
            }
            into[at..at + n].copy_from_slice(&piece[..n]);
            (at, left, block, skip) = (at + n, left - n, block + 1, 0);
        }
    }
    Ok(())
}

/// What a file was looked at for: not again before something of it changes. When its copies were recorded tells of moves.
pub type Seen = BTreeSet<(Ino, Version, Vec<Time>, bool)>;

/// Looks at all files.
pub struct Copies<'w> {
    /// The node.
    pub node: &'w Stepped,
    /// Directory of the cartridges.
    pub cartridges: &'w Path,
    /// Cartridges that were damaged on purpose.
    pub spoilt: &'w BTreeSet<String>,
}

impl Copies<'_> {
    /// Nothing has left the disk before all its copies were on cartridges, and every copy that counts is there, byte by
    /// byte and flushed.
    pub fn check(&self, names: &Names, seen: &mut Seen) -> Result<(), String> {
        for (name, content) in names {
            let catalog = self.node.catalog();
            let cx = Cx::admin(Time::new(super::hub::BEGIN_S, 0));
            let attr = self.node.node().lookup(&cx, Ino::ROOT, name.as_bytes());
            let ino = attr.map_err(|e| format!("{name} is lost: {e:?}"))?.ino;
            let inode = catalog.inode(ino).map_err(|e| format!("{name}: {e}"))?;
            let Some(file) = inode.file else { return Err(format!("{name} is no file")) };
            let resident = file.object.is_some();
            let copies = catalog.version_copies(ino, file.version).map_err(|e| format!("{name}: {e}"))?;
            let counted: Vec<CopyRecord> =
                copies.into_iter().filter(|c| file.copies.contains(&c.copy)).collect();
            let recorded = counted.iter().map(|c| c.recorded).collect();
            if !seen.insert((ino, file.version, recorded, resident)) {
                continue;
            }
            // One whose copy was found damaged may come back for another.
            let mends = || catalog.to_mend(Ino(ino.0 - 1), 1).is_ok_and(|next| next.first() == Some(&ino));
            if !resident && file.copies.len() < COPIES && !mends() {
                return Err(format!("{name} has left the disk with {} copies", file.copies.len()));
            }
            for copy in &counted {
                self.copy(name, *content, copy)?;
            }
        }
        Ok(())
    }

    fn copy(&self, name: &str, (number, size): Content, copy: &CopyRecord) -> Result<(), String> {
        let mut found = vec![0; size];
        for part in &copy.segments {
            if self.spoilt.contains(part.volume.as_str()) {
                return Ok(());
            }
            let read = segment(&self.cartridges.join(part.volume.as_str()), part, &mut found);
            read.map_err(|why| format!("{name}: copy {} on volume {}: {why}", copy.copy, part.volume))?;
        }
        if found == content(number, size) {
            return Ok(());
        }
        Err(format!("{name}: copy {} is not what was written", copy.copy))
    }
}

/// Queues are bounded by what there is to do.
pub fn queues(node: &Stepped, files: usize, cartridges: usize) -> Result<(), String> {
    let (queues, writes) = node.queues();
    let most = 4 * files + 64;
    let too_long = [
        ("files on their way back", queues.files, most),
        ("segments that wait for a drive", queues.segments, 4 * most),
        ("segments that wait for room", queues.parked, 4 * most),
        ("labels, indexes and checks", queues.maintenance, 4 * cartridges + 8),
        ("copies to be written", writes, MOST_WRITES),
    ];
    match too_long.into_iter().find(|(_, length, most)| length > most) {
        Some((what, length, most)) => Err(format!("{length} {what}, at most {most} make sense")),
        None => Ok(()),
    }
}

/// What the catalogue says of itself.
pub fn catalogue(node: &Stepped) -> Result<(), String> {
    match catalog::check::verify(node.catalog()).first() {
        Some(wrong) => Err(format!("the catalogue contradicts itself: {wrong}")),
        None => Ok(()),
    }
}
