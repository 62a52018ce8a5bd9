//! Which disk copies to release.

use crate::PolicyView;
use std::collections::BTreeMap;
use std::fmt;
use types::{Class, ClassName, CopyNo, Ino, ObjectId, Time, Version, plural};

/// A file that occupies disk space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeCandidate {
    /// Inode.
    pub ino: Ino,
    /// Its current version.
    pub version: Version,
    /// Object that holds it.
    pub object: ObjectId,
    /// Bytes that it occupies.
    pub allocated: u64,
    /// When it was last used.
    pub last_access: Time,
    /// Class of service.
    pub class: ClassName,
    /// Copies of this version that count.
    pub copies: Vec<CopyNo>,
    /// Somebody has it open, or it is being read for migration.
    pub open: bool,
    /// Pinned by a user.
    pub pinned: bool,
}

/// Why a file may not be purged. The first reason that applies, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Held {
    /// Not every copy that the class requires is on tape.
    Incomplete,
    /// Its class has no copies on tape at all.
    NoCopies,
    /// Its class is not known.
    UnknownClass,
    /// Pinned.
    Pinned,
    /// Its class keeps files on disk.
    KeptByClass,
    /// Open.
    Open,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Incomplete => "not yet fully on tape",
            Self::NoCopies => "of a class without copies on tape",
            Self::UnknownClass => "of an unknown class",
            Self::Pinned => "pinned",
            Self::KeptByClass => "kept on disk by their class",
            Self::Open => "open",
        })
    }
}

/// A file whose disk space is to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeItem {
    /// Inode.
    pub ino: Ino,
    /// Version that was looked at: release nothing if it has changed.
    pub version: Version,
    /// Its object.
    pub object: ObjectId,
    /// Bytes expected to become free.
    pub allocated: u64,
}

/// What to release, and why not more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// Files, least recently used first.
    pub items: Vec<PurgeItem>,
    /// Bytes of these.
    pub bytes: u64,
    /// Files and bytes passed over, by reason.
    pub held: BTreeMap<Held, (u64, u64)>,
    /// Bytes that still lie above the low watermark after all files were considered; 0 while there are more pages.
    pub short: u64,
}

impl Purge {
    /// One line for log and status: what is released and what is in the way.
    pub fn explain(&self) -> String {
        let mut text = format!(
            "release {} bytes of {}, least recently used first",
            self.bytes,
            plural(self.items.len(), "file")
        );
        for (held, (files, bytes)) in &self.held {
            text.push_str(&format!("; {held}: {} ({bytes} bytes)", plural(*files, "file")));
        }
        if self.short > 0 {
            text.push_str(&format!("; {} bytes above the low watermark remain", self.short));
        }
        text
    }
}

/// Why `file` may not be purged, if so.
pub fn held(classes: &BTreeMap<ClassName, Class>, file: &PurgeCandidate) -> Option<Held> {
    let Some(class) = classes.get(&file.class) else { return Some(Held::UnknownClass) };
    if class.copies.is_empty() {
        return Some(Held::NoCopies);
    }
    let required = class.copies.len();
    let counted = (1..=required).filter(|n| file.copies.iter().any(|c| usize::from(c.0) == *n)).count();
    if counted < required {
        Some(Held::Incomplete)
    } else if file.pinned {
        Some(Held::Pinned)
    } else if class.keep_on_disk {
        Some(Held::KeptByClass)
    } else if file.open {
        Some(Held::Open)
    } else {
        None
    }
}

/// Chooses files from the least recently used on until the low watermark is reached.
pub(crate) fn select(view: &PolicyView<'_>, purging: bool) -> Purge {
    let mut purge = Purge::default();
    if !purging {
        return purge;
    }
    let excess = view.disk.load().saturating_sub(view.disk.marks().0);
    for file in view.purgeable {
        if purge.bytes >= excess {
            break;
        }
        if file.allocated == 0 {
            continue;
        }
        if let Some(held) = held(view.classes, file) {
            let sum = purge.held.entry(held).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(file.allocated));
            continue;
        }
        let PurgeCandidate { ino, version, object, allocated, .. } = *file;
        purge.items.push(PurgeItem { ino, version, object, allocated });
        purge.bytes = purge.bytes.saturating_add(allocated);
    }
    if view.purgeable_complete {
        purge.short = excess.saturating_sub(purge.bytes);
    }
    purge
}
