//! Rights that clients on other hosts get to files on targets, so that bytes do not pass through the node, and how they end.
//!
//! A right is for the objects of one file, for minutes; who still needs it asks again. When a session ends that did not give its files back, and
//! before anybody asks the targets how a file is that was being written, the fences of the objects are raised: from then on nothing that was
//! given out before counts.

use super::keys::MasterKey;
use crate::Node;
use crate::clock::Moment;
use crate::error::{failure, fs_error};
use crate::files::Content;
use catalog::Far;
use data::frame::Op;
use data::{Ask, Capability, Rights, TargetSecret};
use layout::{Component, Redundancy};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use types::api::FsResult;
use types::*;
use wire::{ColumnAccess, Failure, FileLayout, JoinSecret, PartAccess};

/// A right lives so long.
pub(super) const LIFE: Duration = Duration::from_secs(600);

/// Before a target that did not answer is asked again.
const RETRY: Duration = Duration::from_secs(2);

/// Entries of [`Given`] between two looks for such as are of no use any more.
const MANY: usize = 4096;

/// Until when clients may have rights to write at the targets of a file: closing it does not end them.
pub(super) struct Given {
    /// What an earlier run of the node has given ends here.
    known_from: Moment,
    until: Mutex<BTreeMap<ObjectId, Moment>>,
}

impl Default for Given {
    fn default() -> Self {
        Self { known_from: Moment::now() + LIFE, until: Mutex::default() }
    }
}

impl Given {
    /// A right is going to be given.
    pub(super) fn note(&self, object: ObjectId, until: Moment) {
        let mut all = self.until.lock();
        if all.len() % MANY == MANY - 1 {
            let now = Moment::now();
            all.retain(|_, until| *until >= now || now < self.known_from);
        }
        all.insert(object, until);
    }

    /// Until when somebody may have a right; None: nobody has.
    fn until(&self, object: ObjectId, now: Moment) -> Option<Moment> {
        let known = self.until.lock().get(&object).copied();
        Some(known.unwrap_or(self.known_from)).filter(|until| now < *until)
    }

    /// All that was given until then has ended, if nothing was since.
    fn ended(&self, object: ObjectId, until: Moment, now: Moment) {
        let mut all = self.until.lock();
        if all.get(&object).is_none_or(|known| *known == until) {
            all.insert(object, now);
        }
    }
}

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
    /// disk tier, those that are coming back from tape, layouts with copies or parity (which are lent to readers), and those of which a column is out of date or moves, or that get more
    /// targets.
    pub(crate) fn layout_get(
        &self,
        (handle, number): (Handle, u64),
        grantee: Grantee,
    ) -> FsResult<Option<FileLayout>> {
        let file = self.open.handle(handle).ok_or(FsError::BadHandle)?;
        let backing = file.inode.state.lock().backing.clone();
        let Some((object, open_far)) = backing.as_ref().and_then(|b| Some((b.object, b.far()?))) else {
            return Ok(None);
        };
        let same = || file.inode.state.lock().backing.as_ref().is_some_and(|now| now.object == object);
        let find = || (same(), self.catalog.far(object));
        let ((same, far), open) = self.movers.claims.look(object, file.flags.write, find);
        if !same {
            // It has just got other objects: he asks again.
            return Ok(None);
        }
        let far = far.map_err(|e| fs_error("layout", &e))?.ok_or(FsError::Stale)?;
        if !open {
            return Ok(None);
        }
        if far.layout.components.iter().any(|one| one.redundancy != Redundancy::None) || !far.stale.is_empty()
        {
            return Ok(None);
        }
        let rights = match (file.flags.read, file.flags.write) {
            (_, false) => Rights::READ,
            (false, true) => Rights::WRITE,
            (true, true) => Rights::READ.and(Rights::WRITE),
        };
        if file.flags.write {
            // Of another layout that it had: what was kept is older than what is written with the right.
            open_far.settle_spares()?;
            self.movers.given.note(object, Moment::now() + LIFE);
        }
        let life = (crate::now(), LIFE);
        let parts = self.accesses(file.inode.ino, &far, rights, grantee, life).map_err(|e| {
            tracing::error!("inode {}: nobody can be let at its targets: {e}", file.inode.ino);
            FsError::Io
        })?;
        if file.flags.write {
            file.inode.lengths.told(grantee.client, number);
        }
        let (cuts, length) = open_far.length_now();
        Ok(Some(FileLayout { length, cuts, parts }))
    }

    /// Takes note of what a session has written at the targets of a file that it has open for writing, or through an earlier node, as it tells by its call of this number; see
    /// `FarFile::written_elsewhere`.
    pub(crate) fn layout_commit(
        &self,
        (session, number): (Option<u64>, u64),
        handle: Handle,
        end: u64,
        machines: &[u64],
        cuts: u64,
    ) -> FsResult<u64> {
        let file = self.open.handle(handle).filter(|f| f.flags.write).ok_or(FsError::BadHandle)?;
        let end = Some(end).filter(|end| *end <= i64::MAX as u64).ok_or(FsError::FileTooLarge)?;
        let backing = file.inode.state.lock().backing.clone();
        let far = match backing.as_ref().map(|backing| &backing.content) {
            Some(Content::Far(far)) => far,
            // Nobody writes that past the node.
            Some(Content::Local(_)) if end == 0 => {
                self.heard_here(&file, machines);
                return Ok(0);
            }
            _ => return Err(FsError::Stale),
        };
        let told = || session.into_iter().for_each(|session| file.inode.lengths.told(session, number));
        far.written_elsewhere(end, machines, cuts, told)
    }

    /// The object of a handle through which a file on targets may be written.
    pub(crate) fn written_far(&self, handle: Handle) -> Option<ObjectId> {
        let file = self.open.handle(handle).filter(|file| file.flags.write)?;
        let backing = file.inode.state.lock().backing.clone()?;
        backing.far().map(|_| backing.object)
    }

    /// Ends all rights to these objects. Who has one may reach a target that does not answer here: then they end by themselves, and this waits for that.
    pub(crate) fn fence_patiently(&self, mut objects: Vec<ObjectId>) {
        let (end, mut said) = (Moment::now() + LIFE, false);
        while !objects.is_empty() && Moment::now() < end {
            objects.retain(|object| match self.fence_far(*object) {
                Ok(()) => false,
                Err(e) if Moment::now() < end => {
                    if !std::mem::replace(&mut said, true) {
                        tracing::warn!(
                            "what a host that is gone held locked goes to others in up to {LIFE:?}: {e}"
                        );
                    }
                    true
                }
                Err(_) => false,
            });
            if !objects.is_empty() && self.stops_within(RETRY) {
                return;
            }
        }
    }

    /// Nobody writes with a right from before any more when this returns, though the file be closed. Nothing is done where nobody has any.
    pub(crate) fn end_rights(&self, object: ObjectId) -> Result<(), Failure> {
        let Some(until) = self.movers.given.until(object, Moment::now()) else { return Ok(()) };
        self.fence_far(object)?;
        self.movers.given.ended(object, until, Moment::now());
        Ok(())
    }

    /// A client that reads or writes at the targets has gone without closing the file, or the node stops.
    pub(crate) fn leave_targets(&self, handle: Handle, stops: bool) {
        let Some(file) = self.open.handle(handle) else { return };
        let backing = file.inode.state.lock().backing.clone();
        let Some(backing) = backing else { return };
        if let Some(far) = backing.far() {
            if file.flags.write {
                far.doubt();
            }
            if file.flags.write && far.is_written_past() && !stops {
                self.copies_may_differ(file.inode.ino, backing.object, far);
            }
            if !stops || file.inode.state.lock().writers == 0 {
                self.fence_far_later(backing.object);
            }
        }
    }

    /// Rights to all columns of a file that are given now and live so long.
    pub(super) fn accesses(
        &self,
        ino: Ino,
        far: &Far,
        rights: Rights,
        grantee: Grantee,
        (now, life): (Time, Duration),
    ) -> Result<Vec<PartAccess>, Failure> {
        let own = self
            .membership()?
            .ok_or_else(|| failure(ErrorClass::Bug, "a file on targets without a cluster"))?;
        let ((_, epoch), master) = (self.movers.epoch(now), MasterKey::open(&self.config.state_dir)?);
        let known = self.catalog.targets().map_err(|e| crate::error::refused("the targets", &e))?;
        let column = |component: &Component, target: &TargetId| {
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
                expires: now.plus(life),
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
        let part = |component: &Component| PartAccess {
            object: component.base,
            end: component.range.end,
            unit_bytes: component.unit_bytes,
            columns: component.targets.iter().map(|target| column(component, target)).collect(),
        };
        Ok(far.layout.components.iter().map(part).collect())
    }

    /// Ends all rights to a file on targets that were given out before, durably. Those to one with copies or parity are lent only, and have ended however many
    /// targets answer.
    pub(crate) fn fence_far(&self, object: ObjectId) -> Result<(), Failure> {
        let told = |e| crate::error::refused("the layout of a file", &e);
        let Some(far) = self.catalog.far(object).map_err(told)? else { return Ok(()) };
        if far.rule().is_redundant() {
            return self.end_lending(object).map(drop);
        }
        let (places, generation) = self.raised(object)?;
        self.fence_objects(places, generation)
    }

    /// Raises the generation of a file on targets, durably: its objects, which are to be fenced then, and the generation.
    pub(crate) fn raised(&self, object: ObjectId) -> Result<(Vec<(ObjectId, TargetId)>, u32), Failure> {
        let told = |e| crate::error::refused("the layout of a file", &e);
        let far = self.catalog.raise_generation(object).map_err(told)?;
        let mut places = Vec::new();
        for component in &far.layout.components {
            places.extend(component.places().filter_map(|(object, c)| Some((object, component.target(c)?))));
        }
        Ok((places, far.layout.generation))
    }

    /// Objects on targets take nothing any more of whoever has a right of a generation before this one.
    pub(crate) fn fence_objects(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_write_is_known_until_his_rights_have_ended() {
        let (object, other) = (ObjectId(1), ObjectId(2));
        let (given, now) = (Given::default(), Moment::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        assert!(given.until(object, now).is_some(), "an earlier run may have given some");
        assert_eq!(given.until(object, later(700)), None);
        given.note(object, later(1000));
        let until = given.until(object, later(700));
        assert_eq!((until, given.until(other, later(700))), (Some(later(1000)), None));
        given.note(object, later(1100));
        given.ended(object, until.unwrap(), later(700));
        assert_eq!(given.until(object, later(701)), Some(later(1100)), "another was given meanwhile");
        given.ended(object, later(1100), later(702));
        assert_eq!(given.until(object, later(703)), None);
        // Of an earlier run.
        given.ended(other, given.until(other, now).unwrap(), now);
        assert_eq!(given.until(other, later(1)), None);
    }
}
