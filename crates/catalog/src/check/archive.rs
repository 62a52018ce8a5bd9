//! Volumes and their trees against versions and copies.

use super::Check;
use crate::keys;
use crate::ops::tape_tree::{self, data_bytes};
use crate::ops::{version, volume};
use crate::rec::{self, TapeEntry};
use crate::{CatalogError, Result};
use std::collections::BTreeMap;
use types::*;

/// Sums of a volume against its tree, and live files against the copies that need them.
pub(super) fn volumes(c: &mut Check<'_>) -> Result<()> {
    let all = c.read(volume::volumes)?;
    for (barcode, e) in all.damaged {
        c.find(format!("volume {barcode} is out of use: {e}"));
    }
    for v in all.found {
        let stored = c.read(|view| volume::load(view.r, &v.barcode))?;
        let tree = stored.ok_or_else(|| CatalogError::missing("volume", &v.barcode))?.tree;
        let (mut sums, mut uids) = ([0u64; 4], Numbers::default());
        c.table(&keys::tape_tree(tree), |c, (key, value)| {
            let dir = TapeDir(keys::number_at(&key, 9).unwrap_or(0));
            let name = String::from_utf8_lossy(key.get(17..).unwrap_or_default()).into_owned();
            let TapeEntry::File(file) = tape_tree::decode(&key, &value)? else { return Ok(()) };
            let bytes = data_bytes(&file.extents);
            let live = u64::from(file.live);
            for (sum, n) in sums.iter_mut().zip([bytes, 1, bytes * live, live]) {
                *sum += n;
            }
            uids.insert(file.uid);
            file_of(c, &v.barcode, (dir, &name), &file)
        })?;
        let is = [v.written, v.files, v.live, v.live_files];
        c.expect(is == sums, || {
            format!(
                "volume {} has written, files, live, live files {is:?}, its tree makes {sums:?}",
                v.barcode
            )
        });
        c.expect(!uids.twice, || format!("volume {} has file uids twice", v.barcode));
        c.expect(uids.highest < v.next_uid.max(1), || {
            format!("volume {} has uids from its future", v.barcode)
        });
    }
    Ok(())
}

/// A set of numbers most of which follow each other: a bit for each.
#[derive(Default)]
struct Numbers {
    words: BTreeMap<u64, u64>,
    highest: u64,
    twice: bool,
}

impl Numbers {
    fn insert(&mut self, n: u64) {
        let (word, bit) = (self.words.entry(n / 64).or_default(), 1 << (n % 64));
        self.twice |= *word & bit != 0;
        *word |= bit;
        self.highest = self.highest.max(n);
    }
}

fn file_of(c: &mut Check<'_>, barcode: &Barcode, place: (TapeDir, &str), file: &TapeFile) -> Result<()> {
    let copies = c.read(|v| version::copies(v, file.ino, file.version))?;
    let mut segments = copies.iter().flat_map(|copy| copy.segments.iter().map(move |s| (copy.copy, s)));
    let found =
        segments.find(|(_, s)| (&s.volume, s.tape_dir, s.tape_name.as_str()) == (barcode, place.0, place.1));
    let present = c.read(|v| v.trace(file.ino))?.and_then(|r| r.file).filter(|f| f.version == file.version);
    let current = present.as_ref().is_some_and(|f| f.known);
    // What says that a node is gone is needed by nobody who asks whether the volume is.
    let needed = current && found.is_some() && present.is_some_and(|f| !f.gone || file.live);
    c.expect(needed == file.live, || {
        format!("{} on {barcode} is live: {}, needed: {needed}", place.1, file.live)
    });
    if let Some((copy, segment)) = found {
        let same = copy == file.copy
            && segment.extents == file.extents
            && segment.file_offset == file.segment_offset;
        c.expect(same, || format!("{} on {barcode} differs from the copy that it belongs to", place.1));
    }
    Ok(())
}

/// Copies against the trees, and ended versions against inodes.
pub(super) fn versions(c: &mut Check<'_>) -> Result<()> {
    c.table(&[keys::VERSION], |c, (key, value)| {
        let ino = Ino(keys::number_at(&key, 1).unwrap_or(0));
        let number = key.get(9..13).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
        let current = c.read(|v| v.trace(ino))?;
        let now = current.as_ref().and_then(|r| r.file.as_ref()).map(|f| f.version);
        if key.len() == 13 {
            let ended = now.is_none_or(|v| v.0 > number) || current.is_some_and(|r| r.nlink == 0);
            c.expect(ended, || format!("version {number} of inode {ino} is kept as ended, but is current"));
            return Ok(());
        }
        let copy: CopyRecord = rec::decode("copy", ino, &value)?;
        let head = c.has(&keys::version(ino, Version(number)))?;
        c.expect(head || now == Some(Version(number)), || {
            format!("copy of unknown version {number} of inode {ino}")
        });
        for s in &copy.segments {
            segment(c, ino, Version(number), s)?;
        }
        Ok(())
    })
}

/// Digests of parts are of versions that something of is on tape.
pub(super) fn parts(c: &mut Check<'_>) -> Result<()> {
    c.table(&[keys::PART], |c, (key, value)| {
        let ino = Ino(keys::number_at(&key, 1).unwrap_or(0));
        let number = key.get(9..13).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
        let current = c.read(|v| v.trace(ino))?.and_then(|r| r.file).filter(|f| f.known);
        let known = current.is_some_and(|f| f.version == Version(number))
            || c.has(&keys::version(ino, Version(number)))?;
        c.expect(known && key.len() == 29 && value.len() == 32, || {
            format!("a digest of a part of version {number} of inode {ino}, of which nothing is on tape")
        });
        Ok(())
    })
}

fn segment(c: &mut Check<'_>, ino: Ino, number: Version, s: &Segment) -> Result<()> {
    let found = c.read(|v| tape_tree::find(v, s))?;
    let right = found.is_some_and(|f| (f.ino, f.version) == (ino, number) && f.extents == s.extents);
    c.expect(right, || {
        format!("inode {ino} version {number}: {} is not on volume {}", s.tape_name, s.volume)
    });
    Ok(())
}
