//! The LTFS index (LTFS 2.4 section 9) as a stream in both directions: [`IndexWriter`] and [`parse`] hold one entry at
//! a time, so memory does not grow with the number of files on a volume.

mod read;
mod write;

pub use read::{IndexError, IndexEvent, parse};
pub use write::{IndexWriter, WriteError, xml_letter};

use crate::ltfs::Partition;
use types::{Extent, Time};

/// A block of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Partition.
    pub partition: Partition,
    /// Logical object number within it (filemarks count).
    pub block: u64,
}

/// Everything in an index but its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexHeader {
    /// Program that wrote it (at most 1024 bytes).
    pub creator: String,
    /// Comment of the volume's owner (at most 64 KiB).
    pub comment: Option<String>,
    /// Uuid of the volume, equal to that of its labels.
    pub volume_uuid: String,
    /// Generation; grows with every index of a volume.
    pub generation: u64,
    /// When it was written.
    pub update_time: Time,
    /// Where this index itself starts.
    pub location: Location,
    /// Where the previous generation starts (an index on the index partition points to the data partition's newest).
    pub previous: Option<Location>,
    /// Whether a writer may change the data placement policy.
    pub allow_policy_update: bool,
    /// Highest uid of any file or directory that was ever on the volume; 0 in formats before 2.0.
    pub highest_file_uid: u64,
    /// Elements that this program gives no meaning to, as XML, to be kept on rewrite.
    pub unknown: Vec<String>,
}

/// The five times of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryTimes {
    /// Creation.
    pub creation: Time,
    /// Last change of attributes.
    pub change: Time,
    /// Last change of content.
    pub modify: Time,
    /// Last access.
    pub access: Time,
    /// Last backup; for our files: when the segment was written to tape.
    pub backup: Time,
}

/// A directory without its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirMeta {
    /// Name; the root's is the name of the volume and may be empty.
    pub name: String,
    /// Uid, unique on the volume; the root's is 1. 0 where a format before 2.0 has none.
    pub uid: u64,
    /// Not to be written.
    pub readonly: bool,
    /// Times.
    pub times: EntryTimes,
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
    /// Elements without meaning to this program, as XML.
    pub unknown: Vec<String>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Name.
    pub key: String,
    /// Value; written as text when it is clean text, as base64 otherwise.
    pub value: Vec<u8>,
}

/// A run of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexExtent {
    /// Partition that holds it.
    pub partition: Partition,
    /// Where; `file_offset` is relative to the start of this LTFS file.
    pub extent: Extent,
}

/// What a file entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes in order of file offset; what no extent covers reads as zeros.
    Extents(Vec<IndexExtent>),
    /// A symbolic link and its target.
    Symlink(String),
}

/// A file of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexFile {
    /// Name.
    pub name: String,
    /// Uid, unique on the volume; 0 where a format before 2.0 has none.
    pub uid: u64,
    /// Length (bytes).
    pub length: u64,
    /// Not to be written.
    pub readonly: bool,
    /// Times.
    pub times: EntryTimes,
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
    /// Its bytes or its target.
    pub content: Content,
    /// Elements without meaning to this program, as XML.
    pub unknown: Vec<String>,
}

impl IndexFile {
    /// The value of an extended attribute.
    pub fn xattr(&self, key: &str) -> Option<&[u8]> {
        self.xattrs.iter().find(|x| x.key == key).map(|x| x.value.as_slice())
    }
}
