//! Content: objects, versions, residency, and the indexes that migration and purge work from.

use super::Catalog;
use crate::keys;
use crate::ops::{
    candidates, class, lookup, new_content, observe, open, purge, remove, residency, set_class, unowned,
    version,
};
use crate::{Candidate, CandidateKey, Listed, PurgeCandidate, PurgeKey, Result};
use kv::Durability;
use std::ops::Range;
use types::*;

impl Catalog {
    /// Reserves `n` object ids that were never used before. Durable.
    pub fn alloc_objects(&self, n: u64) -> Result<Range<u64>> {
        let first = self.durable(|tx| open::reserve_objects(tx, n))?;
        Ok(first..first.saturating_add(n))
    }

    /// Up to `limit` objects after `after` that belong to no inode: allocated but not yet given to one, or given up by
    /// one. Those that nobody is about to use may be removed from disk after [`Catalog::sync`], then forgotten. The answer
    /// is a moment in the past: an object in it may have an owner by the time it is looked at. Who removes must rule out,
    /// from before the listing until the removal, that anybody gives these objects to an inode; or ask `object_owner`
    /// again once nobody can.
    pub fn unowned_objects(&self, after: ObjectId, limit: usize) -> Result<Vec<ObjectId>> {
        self.read(|v| unowned::list(v, after, limit))
    }

    /// These unowned objects are gone from disk. Relaxed: after a crash they are listed again.
    pub fn forget_objects(&self, objects: &[ObjectId]) -> Result<()> {
        self.relaxed(|tx| unowned::forget(tx, objects))
    }

    /// The inode whose current version lies in this object.
    pub fn object_owner(&self, object: ObjectId) -> Result<Option<Ino>> {
        self.read(|v| lookup::object_owner(v, object))
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
        self.write(durability, |tx| observe::observe(tx, cx, ino, object, stamp, closed))
    }

    /// Remembers that a file is open for writing, so that a restart observes it.
    pub fn mark_writing(&self, ino: Ino) -> Result<()> {
        self.relaxed(|tx| observe::mark_writing(tx, ino))
    }

    /// The file is no longer open for writing and has no object to be observed.
    pub fn clear_writing(&self, ino: Ino) -> Result<()> {
        self.relaxed(|tx| Ok(tx.w.delete(&crate::keys::writing(ino))?))
    }

    /// Whether a file is marked as being written.
    pub fn is_writing(&self, ino: Ino) -> Result<bool> {
        self.read(|v| Ok(v.r.get(&keys::writing(ino))?.is_some()))
    }

    /// Files that were being written; cleared by `observe(closed)`.
    pub fn writing(&self) -> Result<Vec<Ino>> {
        self.read(|v| remove::marked(v, keys::WRITING))
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
        self.relaxed(|tx| new_content::new_content(tx, cx, ino, object, stamp))
    }

    /// A recall has filled `object` with the whole of this version. False if that is no longer wanted (the file is gone,
    /// has another version, or is resident): remove the object then. Refused if `stamp.size` is not the file's.
    /// Relaxed: if a crash takes it back the file is offline again and the object unowned. The object's bytes must be on
    /// stable storage before.
    pub fn set_resident(
        &self,
        ino: Ino,
        version: Version,
        object: ObjectId,
        stamp: &ObjectStamp,
        now: Time,
    ) -> Result<bool> {
        self.relaxed(|tx| residency::set_resident(tx, ino, version, object, stamp, now))
    }

    /// Purge: the file gives up its object, which may then be removed. Refused unless the object holds this version
    /// unchanged since it was sealed (`expect` is its stamp now), every copy that the class requires counts, and neither
    /// pin nor class keeps it on disk. Relaxed: the object is unowned from now on and goes only after [`Catalog::sync`].
    pub fn release_object(
        &self,
        ino: Ino,
        version: Version,
        object: ObjectId,
        expect: &ObjectStamp,
    ) -> Result<()> {
        self.relaxed(|tx| residency::release_object(tx, ino, version, object, expect))
    }

    /// The object of a file is gone from the disk. If its content was sealed and any copy of it counts, the file is offline
    /// from here on; returns the version that its copies hold. Refused otherwise: the file then stays as it is recorded.
    pub fn lose_object(&self, ino: Ino, object: ObjectId, now: Time) -> Result<Version> {
        self.relaxed(|tx| residency::lose_object(tx, ino, object, now))
    }

    /// Access time as with `relatime`, and the place in the purge order if the last access is a minute old.
    pub fn touch_access(&self, ino: Ino, now: Time) -> Result<()> {
        if !self.read(|v| residency::touches(v, ino, now))? {
            return Ok(());
        }
        self.relaxed(|tx| residency::touch_access(tx, ino, now))
    }

    /// Pins or unpins a regular file; returns whether that changed anything.
    pub fn pin(&self, ino: Ino, pinned: bool) -> Result<bool> {
        self.relaxed(|tx| set_class::pin(tx, ino, pinned))
    }

    /// Gives a class to a file, or to a directory for what will be made in it. Copies that already lie in a pool of the
    /// new class keep counting for it.
    pub fn set_class(&self, ino: Ino, class: &ClassName, now: Time) -> Result<Inode> {
        self.relaxed(|tx| set_class::set_class(tx, ino, class, now))
    }

    /// Class of any inode (for a directory: what new files in it get).
    pub fn class_of(&self, ino: Ino) -> Result<ClassName> {
        self.read(|v| Ok(v.class(v.load(ino)?.class)?.name.clone()))
    }

    /// Closed files on disk that lack copies and are due before `due_before`, earliest first, at most `limit`.
    pub fn candidates(
        &self,
        due_before: Time,
        after: Option<CandidateKey>,
        limit: usize,
    ) -> Result<Listed<Candidate>> {
        self.read(|v| candidates::candidates(v, due_before, after, limit))
    }

    /// The same for one file, due or not; None if it lacks nothing, is not closed or not on disk.
    pub fn candidate(&self, ino: Ino) -> Result<Option<Candidate>> {
        self.read(|v| candidates::of(v, &v.trace(ino)?.ok_or(FsError::NotFound)?))
    }

    /// Files whose space in the disk tier may be released, least recently used first, at most `limit`.
    pub fn purge_candidates(&self, after: Option<PurgeKey>, limit: usize) -> Result<Listed<PurgeCandidate>> {
        self.read(|v| purge::purge_candidates(v, false, after, limit))
    }

    /// The same of files on disk targets of the cluster.
    pub fn far_purge_candidates(
        &self,
        after: Option<PurgeKey>,
        limit: usize,
    ) -> Result<Listed<PurgeCandidate>> {
        self.read(|v| purge::purge_candidates(v, true, after, limit))
    }

    /// All known versions of an inode, also of a deleted one, newest first, with their copies.
    pub fn versions(&self, ino: Ino) -> Result<Vec<VersionRecord>> {
        self.read(|v| version::versions(v, ino))
    }

    /// Copies of one version, incomplete ones included (an inode's `file.copies` says which count).
    pub fn version_copies(&self, ino: Ino, version: Version) -> Result<Vec<CopyRecord>> {
        self.read(|v| version::copies(v, ino, version))
    }

    /// At most `limit` inodes in order of number, damaged ones included, for `check`.
    pub fn for_each_inode(&self, after: Ino, limit: usize) -> Result<Listed<Inode>> {
        self.read(|v| {
            let Listed { found, mut damaged } = class::inodes(v, after, limit)?;
            let mut inodes = Vec::with_capacity(found.len());
            for rec in &found {
                match v.inode(rec) {
                    Ok(inode) => inodes.push(inode),
                    Err(e) if e.is_damage() => damaged.push((rec.ino, e)),
                    Err(e) => return Err(e),
                }
            }
            Ok(Listed { found: inodes, damaged })
        })
    }
}
