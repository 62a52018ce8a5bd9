//! Files on disk targets of the cluster.

use super::Catalog;
use crate::Result;
use crate::ops::layouts::{self, Far};
use crate::ops::{open, widen};
use std::collections::BTreeSet;
use types::*;

impl Catalog {
    /// What new files and directories of this directory get; none: objects of the node's disk tier. Durable.
    pub fn set_layout_rule(&self, dir: Ino, rule: Option<LayoutRule>) -> Result<()> {
        self.durable(|tx| layouts::set_rule(tx, dir, rule.clone()))
    }

    /// What new files of a directory get; what an offline file that was on targets gets when it comes back.
    pub fn layout_rule(&self, dir: Ino) -> Result<Option<LayoutRule>> {
        self.read(|v| layouts::rule(v, dir))
    }

    /// Reserves objects for a new file, which nobody had before, and chooses their targets. They are unowned until `create` gives the first
    /// of them to a file. Relaxed: nothing may be made on a target before [`Catalog::sync`], or nobody would know of it after a crash.
    /// With redundancy some of the targets may be `away`: what is to lie there is out of date from the beginning.
    pub fn reserve_far(
        &self,
        rule: &LayoutRule,
        targets: &[layout::Candidate],
        away: &BTreeSet<TargetId>,
    ) -> Result<Far> {
        self.relaxed(|tx| {
            let first = open::reserve_numbers(tx, rule.objects())?;
            layouts::reserve(tx, first, rule, targets, away)
        })
    }

    /// All objects so far have lower numbers than this one.
    pub fn next_object(&self) -> Result<ObjectId> {
        self.read(open::next_object)
    }

    /// Where an object lies, if that is on targets.
    pub fn far(&self, object: ObjectId) -> Result<Option<Far>> {
        self.read(|v| layouts::far(v, object))
    }

    /// Up to `limit` objects after `after` of which something is out of date on some target.
    pub fn stale_far(&self, after: ObjectId, limit: usize) -> Result<Vec<(ObjectId, Far)>> {
        self.read(|v| layouts::stale(v, after, limit))
    }

    /// Up to `limit` objects on targets after `after` that belong to no file; as [`Catalog::unowned_objects`].
    pub fn unowned_far(&self, after: ObjectId, limit: usize) -> Result<Vec<(ObjectId, Far)>> {
        self.read(|v| layouts::unowned(v, after, limit))
    }

    /// All targets have removed what they had of these unowned objects. Relaxed: after a crash they are listed again.
    pub fn forget_far(&self, objects: &[ObjectId]) -> Result<()> {
        self.relaxed(|tx| layouts::forget(tx, objects))
    }

    /// Raises the generation of a layout. Durable.
    pub fn raise_generation(&self, object: ObjectId) -> Result<Far> {
        self.durable(|tx| layouts::raise_generation(tx, object))
    }

    /// Clients may have a right to read an object at its targets from now on. Durable: the node that serves next knows it.
    pub fn lend(&self, object: ObjectId) -> Result<()> {
        self.durable(|tx| layouts::lend(tx, object))
    }

    /// Whether clients may have such a right, as far as that is on record.
    pub fn is_lent(&self, object: ObjectId) -> Result<bool> {
        self.read(|v| Ok(v.r.get(&crate::keys::lent(object))?.is_some()))
    }

    /// Up to `limit` objects after `after` of which that is so.
    pub fn lent(&self, after: ObjectId, limit: usize) -> Result<Vec<ObjectId>> {
        self.read(|v| layouts::lent(v, after, limit))
    }

    /// All such rights to these objects have ended. Relaxed: after a crash they are ended again.
    pub fn end_lending(&self, objects: &[ObjectId]) -> Result<()> {
        self.relaxed(|tx| layouts::end_lending(tx, objects))
    }

    /// Up to `limit` objects on targets after `after`, whether or not they belong to a file.
    pub fn far_objects(&self, after: ObjectId, limit: usize) -> Result<Vec<(ObjectId, Far)>> {
        self.read(|v| layouts::all(v, after, limit))
    }

    /// A column is about to be copied to a target: should nothing come of it, what is made there is a stray. Durable.
    pub fn intend_column(&self, object: ObjectId, column: (u16, u16), to: TargetId) -> Result<()> {
        self.durable(|tx| layouts::intend(tx, object, column, to))
    }

    /// A column lies on another target from now on (`stale`: where it has to be rebuilt), under a new generation; what its old target has is a
    /// stray. Durable.
    pub fn relocate_column(
        &self,
        object: ObjectId,
        column: (u16, u16),
        to: TargetId,
        stale: bool,
    ) -> Result<Far> {
        self.durable(|tx| layouts::relocate(tx, object, column, to, stale))
    }

    /// The bytes of a file lie in the objects of another layout from now on, that were reserved and have all of them; those that it had are unowned.
    /// Its content is the same, so copies of it count as before. Durable.
    pub fn replace_object(&self, ino: Ino, from: ObjectId, to: ObjectId) -> Result<Far> {
        self.durable(|tx| layouts::replace(tx, ino, from, to))
    }

    /// The bytes of a file that is closed lie in objects on targets from now on, that were reserved and have all of them as `stamp` says; its object in
    /// the node's disk tier, which was as `expect` says, is unowned. Its content is the same, so copies of it count as before. Durable.
    pub fn leave_tier(
        &self,
        ino: Ino,
        (from, expect): (ObjectId, &ObjectStamp),
        (to, stamp): (ObjectId, &ObjectStamp),
    ) -> Result<Far> {
        self.durable(|tx| layouts::leave_tier(tx, ino, (from, expect), (to, stamp)))
    }

    /// What a file that is on tape only gets when it comes back. Durable.
    pub fn set_return_rule(&self, ino: Ino, rule: LayoutRule) -> Result<()> {
        self.durable(|tx| layouts::set_return(tx, ino, rule.clone()))
    }

    /// Reserves objects for what a file gets next as it grows, and chooses their targets; gives what it is going to have. They are strays until
    /// [`Catalog::widen`]. `away` as in [`Catalog::reserve_far`]. Durable.
    pub fn reserve_wider(
        &self,
        object: ObjectId,
        targets: &[layout::Candidate],
        away: &BTreeSet<TargetId>,
    ) -> Result<Far> {
        self.durable(|tx| widen::reserve(tx, object, targets, away))
    }

    /// A file has what was reserved for it by [`Catalog::reserve_wider`], and made. `reserved`: its objects belong to no file yet, and nobody
    /// removes them. Durable.
    pub fn widen(&self, object: ObjectId, grown: &Far, reserved: bool) -> Result<Far> {
        self.durable(|tx| widen::add(tx, object, grown, reserved))
    }

    /// Up to `limit` objects after `after` on targets where they do not belong, or are just being copied to.
    pub fn strays(&self, after: (ObjectId, TargetId), limit: usize) -> Result<Vec<(ObjectId, TargetId)>> {
        self.read(|v| layouts::strays(v, after, limit))
    }

    /// Whether an object lies, or is about to, on a target where it does not belong.
    pub fn is_stray(&self, (object, target): (ObjectId, TargetId)) -> Result<bool> {
        self.read(|v| Ok(v.r.get(&crate::keys::stray(object, target))?.is_some()))
    }

    /// Targets have removed these strays. Relaxed: after a crash they are listed again.
    pub fn forget_strays(&self, gone: &[(ObjectId, TargetId)]) -> Result<()> {
        self.relaxed(|tx| layouts::forget_strays(tx, gone))
    }

    /// A column (of a component) does not have everything that was written, or has it again. Durable.
    pub fn set_stale(&self, object: ObjectId, column: (u16, u16), stale: bool) -> Result<Far> {
        self.durable(|tx| layouts::set_stale(tx, object, column, stale))
    }
}
