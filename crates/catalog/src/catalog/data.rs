//! Content: objects, versions, residency, and the indexes that migration and purge work from.

use super::Catalog;
use crate::{Candidate, CandidateKey, PurgeCandidate, PurgeKey, Result};
use kv::Durability;
use std::ops::Range;
use types::*;

impl Catalog {
    /// Reserves `n` object ids that were never used before. Durable.
    pub fn alloc_objects(&self, n: u64) -> Result<Range<u64>> {
        todo!()
    }

    /// The inode whose current version lies in this object.
    pub fn object_owner(&self, object: ObjectId) -> Result<Option<Ino>> {
        todo!()
    }

    /// Takes note of what `fstat` said of the file's object. If size, mtime or ctime differ from the stamp recorded, the
    /// content changed: size and times follow, and a version that was sealed (or is known on tape) ends. `closed` seals
    /// the content and enters it among the migration candidates. `FsError::Stale` if the file has another object by now.
    pub fn observe(
        &self,
        cx: &Cx,
        ino: Ino,
        object: ObjectId,
        stamp: &ObjectStamp,
        closed: bool,
        durability: Durability,
    ) -> Result<Inode> {
        todo!()
    }

    /// Remembers that a file is open for writing, so that a restart observes it.
    pub fn mark_writing(&self, ino: Ino) -> Result<()> {
        todo!()
    }

    /// Files that were being written; cleared by `observe(closed)`.
    pub fn writing(&self) -> Result<Vec<Ino>> {
        todo!()
    }

    /// Truncation to zero without the old content: the file gets the new, empty object and a new version. Returns the old
    /// object, free to be removed once durable (see [`Removed`](crate::Removed)).
    pub fn new_content(
        &self,
        cx: &Cx,
        ino: Ino,
        object: ObjectId,
        stamp: &ObjectStamp,
    ) -> Result<(Inode, Option<ObjectId>)> {
        todo!()
    }

    /// A recall has filled `object` with the whole of this version. False if that is no longer wanted (the file is gone,
    /// has another version, or is resident): remove the object then. Refused if `stamp.size` is not the file's. Durable.
    pub fn set_resident(
        &self,
        ino: Ino,
        version: Version,
        object: ObjectId,
        stamp: &ObjectStamp,
        now: Time,
    ) -> Result<bool> {
        todo!()
    }

    /// Purge: the file gives up its object, which may then be removed. Refused unless the object holds this version
    /// unchanged since it was sealed (`expect` is its stamp now), every copy that the class requires counts, and neither
    /// pin nor class keeps it on disk. Durable.
    pub fn release_object(
        &self,
        ino: Ino,
        version: Version,
        object: ObjectId,
        expect: &ObjectStamp,
    ) -> Result<()> {
        todo!()
    }

    /// Access time as with `relatime`, and the place in the purge order if the last access is a minute old.
    pub fn touch_access(&self, ino: Ino, now: Time) -> Result<()> {
        todo!()
    }

    /// Pins or unpins a regular file; returns whether that changed anything.
    pub fn pin(&self, ino: Ino, pinned: bool) -> Result<bool> {
        todo!()
    }

    /// Gives a class to a file, or to a directory for what will be made in it. Copies that already lie in a pool of the
    /// new class keep counting for it.
    pub fn set_class(&self, ino: Ino, class: &ClassName, now: Time) -> Result<Inode> {
        todo!()
    }

    /// Class of any inode (for a directory: what new files in it get).
    pub fn class_of(&self, ino: Ino) -> Result<ClassName> {
        todo!()
    }

    /// Closed files that lack copies and are due before `due_before`, earliest first, at most `limit`.
    pub fn candidates(
        &self,
        due_before: Time,
        after: Option<CandidateKey>,
        limit: usize,
    ) -> Result<Vec<Candidate>> {
        todo!()
    }

    /// The same for one file, due or not; None if it lacks nothing or is not closed.
    pub fn candidate(&self, ino: Ino) -> Result<Option<Candidate>> {
        todo!()
    }

    /// Files whose disk space may be released, least recently used first, at most `limit`.
    pub fn purge_candidates(&self, after: Option<PurgeKey>, limit: usize) -> Result<Vec<PurgeCandidate>> {
        todo!()
    }

    /// All known versions of an inode, also of a deleted one, newest first, with their copies.
    pub fn versions(&self, ino: Ino) -> Result<Vec<VersionRecord>> {
        todo!()
    }

    /// Copies of one version, incomplete ones included (an inode's `file.copies` says which count).
    pub fn version_copies(&self, ino: Ino, version: Version) -> Result<Vec<CopyRecord>> {
        todo!()
    }

    /// Inodes in order of number, for `check`.
    pub fn for_each_inode(&self, after: Ino, limit: usize) -> Result<Vec<Inode>> {
        todo!()
    }
}
