//! Rights that clients on other hosts get to files on targets, so that bytes do not pass through the node, and how they end.
//!
//! A right is for the objects of one file, for minutes; who still needs it asks again. When a session ends that did not give its files back, and
//! before anybody asks the targets how a file is that was being written, the fences of the objects are raised: from then on nothing that was
//! given out before counts.

use super::keys::{self, MasterKey};
use crate::Node;
use crate::error::{failure, fs_error};
use catalog::Far;
use data::frame::Op;
use data::{Ask, Capability, Rights, TargetSecret};
use layout::Redundancy;
use std::time::Duration;
use types::api::FsResult;
use types::*;
use wire::{ColumnAccess, Failure, FileLayout, JoinSecret};

/// A right lives so long.
const LIFE: Duration = Duration::from_secs(600);

/// For whom a right is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grantee {
    /// Number of the client: that of its session.
    pub(crate) client: u64,
    /// User.
    pub(crate) uid: u32,
}

impl Node {
    /// Where the bytes of an open file lie, and the right to do there what it was opened for. None where bytes go through the node: files of its
    /// disk tier, those that are coming back from tape, layouts with copies, and those of which a column is out of date or moves.
    pub(crate) fn layout_get(&self, handle: Handle, grantee: Grantee) -> FsResult<Option<FileLayout>> {
        let file = self.open.handle(handle).ok_or(FsError::BadHandle)?;
        let backing = file.inode.state.lock().backing.clone();
        let Some((object, far)) = backing.as_ref().and_then(|b| Some((b.object, b.far()?))) else {
            return Ok(None);
        };
        // In this order: if it is set in between, he knows an old count, and is not believed.
        let (cuts, length) = (far.cuts(), far.stamp().size);
        let find = || self.catalog.far(object);
        let (far, open) = self.movers.claims.look(object, file.flags.write, find);
        let far = far.map_err(|e| fs_error("layout", &e))?.ok_or(FsError::Stale)?;
        if !open {
            return Ok(None);
        }
        let [component] = &far.layout.components[..] else { return Ok(None) };
        if component.redundancy != Redundancy::None || !far.stale.is_empty() {
            return Ok(None);
        }
        let rights = match (file.flags.read, file.flags.write) {
            (_, false) => Rights::READ,
            (false, true) => Rights::WRITE,
            (true, true) => Rights::READ.and(Rights::WRITE),
        };
        let columns = self.accesses(file.inode.ino, &far, rights, grantee).map_err(|e| {
            tracing::error!("inode {}: nobody can be let at its targets: {e}", file.inode.ino);
            FsError::Io
        })?;
        Ok(Some(FileLayout { object, unit_bytes: component.unit_bytes, length, cuts, columns }))
    }

    /// Takes note of what a client has written at the targets of a file that he has open for writing; see `FarFile::written_elsewhere`.
    pub(crate) fn layout_commit(
        &self,
        handle: Handle,
        end: u64,
        machines: &[u64],
        cuts: u64,
    ) -> FsResult<u64> {
        let file = self.open.handle(handle).filter(|f| f.flags.write).ok_or(FsError::BadHandle)?;
        let end = Some(end).filter(|end| *end <= i64::MAX as u64).ok_or(FsError::FileTooLarge)?;
        let backing = file.inode.state.lock().backing.clone();
        let far = backing.as_ref().and_then(|backing| backing.far()).ok_or(FsError::Stale)?;
        far.written_elsewhere(end, machines, cuts)
    }

    /// A client that reads or writes at the targets has gone without closing the file.
    pub(crate) fn leave_targets(&self, handle: Handle) {
        let Some(file) = self.open.handle(handle) else { return };
        let backing = file.inode.state.lock().backing.clone();
        let Some(backing) = backing else { return };
        if let Some(far) = backing.far() {
            if file.flags.write {
                far.doubt();
            }
            self.fence_far_later(backing.object);
        }
    }

    fn accesses(
        &self,
        ino: Ino,
        far: &Far,
        rights: Rights,
        grantee: Grantee,
    ) -> Result<Vec<ColumnAccess>, Failure> {
        let now = crate::now();
        let own = self
            .membership()?
            .ok_or_else(|| failure(ErrorClass::Bug, "a file on targets without a cluster"))?;
        let (epoch, master) = (keys::epoch(now), MasterKey::open(&self.config.state_dir)?);
        let known = self.catalog.targets().map_err(|e| crate::error::refused("the targets", &e))?;
        let component = &far.layout.components[0];
        let column = |target: &TargetId| {
            let found = known.iter().find(|one| one.id == *target);
            let capability = Capability {
                epoch,
                cluster: *own.credentials.identity.cluster.as_bytes(),
                target: *target,
                file: ino,
                objects: component.base.0..component.base.0 + component.objects(),
                generation: far.layout.generation.into(),
                rights,
                range: 0..u64::MAX,
                user: grantee.uid,
                client: grantee.client,
                issued: now,
                expires: now.plus(LIFE),
            };
            let capability = capability.encode();
            let key = TargetSecret::new(&master.secret(*target, epoch)).key(&capability);
            let data = found.map_or(Vec::new(), |one| one.data.clone());
            ColumnAccess {
                target: *target,
                data,
                capability: capability.to_vec(),
                key: JoinSecret(key.secret()),
            }
        };
        Ok(component.targets.iter().map(column).collect())
    }

    /// Ends all rights to a file on targets that were given out before, durably. Nobody gets any to one with copies or parity.
    pub(crate) fn fence_far(&self, object: ObjectId) -> Result<(), Failure> {
        let told = |e| crate::error::refused("the layout of a file", &e);
        if self.catalog.far(object).map_err(told)?.is_none_or(|far| far.rule().is_redundant()) {
            return Ok(());
        }
        let far = self.catalog.raise_generation(object).map_err(told)?;
        let mut places = Vec::new();
        for component in &far.layout.components {
            places.extend(component.places().filter_map(|(object, c)| Some((object, component.target(c)?))));
        }
        self.fence_objects(places, far.layout.generation)
    }

    /// Objects on targets take nothing any more of whoever has a right of a generation before this one.
    pub(super) fn fence_objects(
        &self,
        objects: impl IntoIterator<Item = (ObjectId, TargetId)>,
        generation: u32,
    ) -> Result<(), Failure> {
        let fence = |(object, target): (ObjectId, TargetId)| {
            let ask = Ask { op: Op::Fence, flags: 0, object: object.0, offset: generation.into(), length: 0 };
            (target, self.submit_far(target, ask, Vec::new()))
        };
        let asked: Vec<_> = objects.into_iter().map(fence).collect();
        asked.into_iter().try_for_each(|(target, ticket)| {
            let lost = |e: data::DataError| failure(e.class(), format!("target {target}: {e}"));
            ticket?.wait().map(drop).map_err(lost)
        })
    }

    /// The same behind the caller's back; if a target does not answer, the rights end by themselves in minutes.
    pub(crate) fn fence_far_later(&self, object: ObjectId) {
        let Some(node) = self.movers.node() else { return };
        self.movers.run(Box::new(move || {
            if let Err(e) = node.fence_far(object) {
                tracing::warn!("rights of a session that has ended go on for up to {LIFE:?}: {e}");
            }
        }));
    }
}
