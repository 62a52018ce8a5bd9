//! Which files to write to tape.

use crate::{PolicyView, Pressure};
use std::collections::BTreeMap;
use std::fmt;
use types::{ClassName, CopyNo, Ino, PoolName, Time, Version};

/// A sealed file version that lacks copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Inode.
    pub ino: Ino,
    /// Version to be copied.
    pub version: Version,
    /// Its length (bytes).
    pub size: u64,
    /// When its age makes it due.
    pub due: Time,
    /// Class of service.
    pub class: ClassName,
    /// Copies it lacks, with their pools.
    pub missing: Vec<(CopyNo, PoolName)>,
}

/// One copy of one file to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrateItem {
    /// Inode.
    pub ino: Ino,
    /// Version to be copied: skip it if the file has changed since.
    pub version: Version,
    /// Which copy.
    pub copy: CopyNo,
    /// Length (bytes).
    pub size: u64,
    /// When its age makes it due.
    pub due: Time,
}

/// Why files of a class are migrated now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrateWhy {
    /// Files have been left alone for as long as their class asks; only those are taken.
    Age,
    /// This many bytes of the class wait, and its limit is that many; all of them are taken.
    Bytes {
        /// Bytes that wait.
        waiting: u64,
        /// `migrate_bytes` of the class.
        limit: u64,
    },
    /// The disk pool needs space and purging alone does not make it; all files are taken.
    Disk(Pressure),
}

impl fmt::Display for MigrateWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Age => f.write_str("files reached the age at which their class migrates"),
            Self::Bytes { waiting, limit } => {
                write!(f, "{waiting} bytes wait, the class migrates from {limit}")
            }
            Self::Disk(pressure) => write!(f, "{pressure} and purging alone does not help"),
        }
    }
}

/// Copies of files of one class to be written to one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrateBatch {
    /// Class of the files.
    pub class: ClassName,
    /// Pool to write to.
    pub pool: PoolName,
    /// Copies, earliest due first.
    pub items: Vec<MigrateItem>,
    /// Bytes of these.
    pub bytes: u64,
    /// Reason.
    pub why: MigrateWhy,
}

/// Reasons per class; a class that is absent only migrates by age.
fn reasons(view: &PolicyView<'_>, level: Pressure, short: bool) -> BTreeMap<ClassName, MigrateWhy> {
    let mut waiting: BTreeMap<&ClassName, u64> = BTreeMap::new();
    for candidate in view.candidates {
        let sum = waiting.entry(&candidate.class).or_default();
        *sum = sum.saturating_add(candidate.size);
    }
    let mut reasons = BTreeMap::new();
    for (name, class) in view.classes {
        let page = waiting.get(name).copied().unwrap_or(0);
        let waiting = view.waiting.get(name).copied().unwrap_or(0).max(page);
        let limit = class.migrate_bytes;
        if level == Pressure::Hard || short {
            reasons.insert(name.clone(), MigrateWhy::Disk(level));
        } else if limit > 0 && waiting >= limit {
            reasons.insert(name.clone(), MigrateWhy::Bytes { waiting, limit });
        }
    }
    reasons
}

/// Groups what is to be written by class and pool.
pub(crate) fn select(view: &PolicyView<'_>, now: Time, level: Pressure, short: bool) -> Vec<MigrateBatch> {
    let reasons = reasons(view, level, short);
    let mut batches: BTreeMap<(&ClassName, &PoolName), MigrateBatch> = BTreeMap::new();
    for candidate in view.candidates {
        let why = match reasons.get(&candidate.class) {
            Some(why) => *why,
            None if candidate.due <= now => MigrateWhy::Age,
            None => continue,
        };
        let Candidate { ino, version, size, due, .. } = *candidate;
        for (copy, pool) in &candidate.missing {
            let batch = batches.entry((&candidate.class, pool)).or_insert_with(|| MigrateBatch {
                class: candidate.class.clone(),
                pool: pool.clone(),
                items: Vec::new(),
                bytes: 0,
                why,
            });
            batch.items.push(MigrateItem { ino, version, copy: *copy, size, due });
            batch.bytes = batch.bytes.saturating_add(size);
        }
    }
    batches.into_values().collect()
}
