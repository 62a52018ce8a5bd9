//! Rights to write all copies of a file at their targets, or its rows and log, for the only host or program that has it open for writing: so its bytes do not pass through the node.
//!
//! They are lent ([`super::lent`]): whatever is to change at the targets by other hands ends them first, and they end by themselves in seconds. Whoever has one writes the
//! same to every copy before he answers his program. Where that fails he has the right ended ([`Node::copies_end`]) and writes through the node, which decides
//! which copies count. If he is gone instead, what he wrote last may be in one copy and not in another: then one copy counts, and the others are made like it.
//! Of a coded file he is the one writer of its log ([design](../../../../docs/design/0011-coded.md#who-may-write)): the node has ended to be that before, and takes over again from what
//! lies there when the right has ended.

use super::Grantee;
use super::lent::{ENDED, Noted};
use crate::Node;
use crate::clock::Moment;
use crate::error::{fs_error, refused};
use crate::files::{Backing, FarFile, OpenInode};
use data::frame::Op;
use data::{Ask, Rights, Ticket};
use layout::Redundancy;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use types::api::FsResult;
use types::*;
use wire::{CopiesLayout, Failure};

/// Before it is tried again to let one copy count.
const AGAIN: Duration = Duration::from_secs(1);

impl Node {
    /// Lets the holder of a handle write all copies of a file at their targets, if nobody else has it open for writing: `writers` says whether so many handles are all
    /// his, and `trusted` whether he may write what the node reads to know a file (journals). None: the bytes go through the node.
    pub(crate) fn layout_copies(
        &self,
        handle: Handle,
        grantee: Grantee,
        (writers, trusted): (&dyn Fn(Ino, u32) -> bool, bool),
    ) -> FsResult<Option<CopiesLayout>> {
        let file = self.open.handle(handle).filter(|file| file.flags.write).ok_or(FsError::BadHandle)?;
        let backing = file.inode.state.lock().backing.clone();
        let Some((object, far)) = backing.as_ref().and_then(|b| Some((b.object, b.far()?))) else {
            return Ok(None);
        };
        let rights = match far.striped().is_coded() {
            false => Rights::WRITE,
            // What is in a row is read to compute its parity.
            true if trusted => Rights::READ.and(Rights::WRITE),
            true => return Ok(None),
        };
        let writes = file.inode.state.lock().writers;
        if writers(file.inode.ino, writes) {
            // What he has a spare of is older than what he writes with the right.
            far.settle_spares()?;
        }
        let (issued, down) = (crate::now(), self.movers.down());
        let until = Moment::now() + ENDED;
        let note = || self.note_copies(&file.inode, object, (&down, until), writers);
        let Some(noted) = self.movers.claims.unless_claimed(object, note).transpose()?.flatten() else {
            return Ok(None);
        };
        // Before it is given: whoever is to copy the file to tape ends it.
        self.movers.given.note(object, until);
        if !self.hand_over(file.inode.ino, (object, until), far)? {
            self.movers.lent.not_given(object, noted.number);
            return Ok(None);
        }
        let cuts = far.cuts();
        let given = (rights, grantee, issued);
        let lent = self.hand_out(file.inode.ino, object, noted, &down, given)?;
        Ok(lent.map(|lent| CopiesLayout { cuts, lent }))
    }

    /// The node writes nothing of a file any more without ending first what it lends. False: it just does, or something of the file is being moved.
    pub(super) fn hand_over(
        &self,
        ino: Ino,
        (object, until): (ObjectId, Moment),
        far: &FarFile,
    ) -> FsResult<bool> {
        let build = || {
            let found = self.catalog.far(object).map_err(|e| e.to_string())?;
            self.place_of(ino, object, found.ok_or("it has left its targets")?)
        };
        if far.striped().is_coded() {
            self.movers.note_unfolded(ino);
        }
        let handed = self.movers.claims.unless_claimed(object, || far.hand_over((object, until), build));
        handed.unwrap_or(Ok(false)).map_err(|e| {
            tracing::error!("inode {ino}: nobody can be let at its targets: {e}");
            FsError::Io
        })
    }

    /// Notes that all copies of an open file may be written by one who writes it alone, if they can be.
    fn note_copies(
        &self,
        inode: &OpenInode,
        object: ObjectId,
        (down, until): (&BTreeSet<TargetId>, Moment),
        writers: &dyn Fn(Ino, u32) -> bool,
    ) -> FsResult<Option<Noted>> {
        // Who comes to write is counted under this lock, and has ended what was noted before.
        let state = inode.state.lock();
        let backing = state.backing.as_ref().filter(|backing| backing.object == object);
        let Some(open) = backing.and_then(Backing::far) else { return Ok(None) };
        if !writers(inode.ino, state.writers) || open.is_torn() {
            return Ok(None);
        }
        let whole = |far: &catalog::Far| far.stale.is_empty() && far.on(down).is_empty();
        let read = || -> FsResult<_> {
            Ok(self.catalog.far(object).map_err(|e| fs_error("layout", &e))?.filter(&whole))
        };
        if read()?.is_none_or(|far| !far.rule().is_redundant()) {
            return Ok(None);
        }
        if self.movers.lent.of(object, Moment::now()).is_none() {
            // Whoever had one that has ended by itself is to see that this is another: others may have written since.
            self.catalog.raise_generation(object).map_err(|e| fs_error("layout", &e))?;
        }
        let noted = self.movers.lent.note_far(object, until, down, read)?;
        Ok(noted.map(|(number, new, far)| Noted { number, new, far, length: open.stamp().size }))
    }

    /// What was written with a right to all copies may not have come to all of them, or may come late: when this returns nothing comes any more to a copy that counts.
    /// One whose target does not say so is left out, where others have what it has; else its right is waited for. `differ`: nobody writes it anew.
    pub(crate) fn copies_end(&self, handle: Handle, differ: bool) -> FsResult<()> {
        let file = self.open.handle(handle).filter(|file| file.flags.write).ok_or(FsError::BadHandle)?;
        let ino = file.inode.ino;
        let ended = self.while_open(ino, |backing| {
            let Some(far) = backing.far() else { return Ok(()) };
            let ended = self.end_copies(far, backing.object);
            if (differ || ended.is_err()) && far.was_written_past() {
                self.copies_may_differ(ino, backing.object, far);
            }
            ended
        });
        ended.unwrap_or(Ok(())).map_err(|e| {
            tracing::error!("inode {ino}: a right to write its copies does not end: {e}");
            FsError::Io
        })
    }

    fn end_copies(&self, far: &FarFile, object: ObjectId) -> Result<(), Failure> {
        let told = |e| refused("the layout of a file", &e);
        let unlent = self.movers.lent.hold(object);
        let known = self.movers.lent.of(object, Moment::now()).is_some();
        if known && far.lies_in(object) {
            let silent = self.fence_copies(object)?;
            if far.leave_out_all(&silent) {
                self.catalog.end_lending(&[object]).map_err(told)?;
                self.movers.lent.ended(object);
            }
        }
        drop(unlent);
        self.end_lending(object).map(drop)
    }

    /// Fences all objects of a file; the columns that do not say that they have that, and why.
    fn fence_copies(&self, object: ObjectId) -> Result<BTreeMap<(u16, u16), String>, Failure> {
        let raised = self.catalog.raise_generation(object);
        let far = raised.map_err(|e| refused("the layout of a file", &e))?;
        let down = self.movers.down();
        let fence = |object: ObjectId, target: TargetId| -> Result<Ticket, String> {
            if down.contains(&target) {
                return Err("it is down".to_owned());
            }
            let way = self.way(target, true).map_err(|e| e.to_string())?;
            let generation = far.layout.generation.into();
            let ask = Ask { op: Op::Fence, flags: 0, object: object.0, offset: generation, length: 0 };
            way.channel.submit(&way.slot, ask, Vec::new()).map_err(|e| e.to_string())
        };
        let mut asked = Vec::new();
        for (number, component) in (0..).zip(&far.layout.components) {
            for (object, column) in component.places() {
                let place = (number, column);
                let target = component.target(column).filter(|_| !far.stale.contains(&place));
                asked.extend(target.map(|target| (place, fence(object, target))));
            }
        }
        let answered = asked.into_iter().filter_map(|(place, ticket)| {
            let fenced = ticket.and_then(|ticket| ticket.wait().map_err(|e| e.to_string()));
            Some((place, fenced.err()?))
        });
        Ok(answered.collect())
    }

    /// Whether somebody may be writing an open file past the node.
    pub(super) fn is_written_past(&self, ino: Ino) -> bool {
        let Some(entry) = self.open.get(ino) else { return false };
        let state = entry.state.lock();
        let backing = state.backing.as_ref().filter(|_| state.writers > 0);
        backing.is_some_and(|backing| self.movers.lent.of(backing.object, Moment::now()).is_some())
    }

    /// Who had a right to write all copies of an open file has failed, or is gone, and nobody brings to all of them what he wrote last: one counts from now on, and the
    /// others are made like it. Behind the caller's back, as targets may not answer. Once it was closed, whoever opens it next does that.
    pub(crate) fn copies_may_differ(&self, ino: Ino, object: ObjectId, far: &Arc<FarFile>) {
        far.doubt();
        let (Some(node), far) = (self.movers.node(), far.clone()) else { return };
        self.movers.run(Box::new(move || {
            let mut kept = node.keep_one_copy(ino, object, &far);
            while let Err(why) = kept {
                tracing::warn!(
                    "inode {ino}: what a host wrote last may be in one copy only, and that is looked at again: {why}"
                );
                if node.stops_within(AGAIN) {
                    return;
                }
                kept = node.keep_one_copy(ino, object, &far);
            }
        }));
    }

    fn keep_one_copy(&self, ino: Ino, object: ObjectId, far: &Arc<FarFile>) -> Result<(), String> {
        let _unlent = self.end_lending(object).map_err(|e| e.to_string())?;
        let kept = self.while_open(ino, |backing| {
            let same = backing.far().is_some_and(|open| Arc::ptr_eq(open, far)) && far.lies_in(object);
            if same { self.leave_one_copy(far) } else { Ok(()) }
        });
        kept.unwrap_or(Ok(()))
    }

    fn leave_one_copy(&self, far: &FarFile) -> Result<(), String> {
        let striped = far.striped();
        let (down, lacking) = (self.movers.down(), far.lacking());
        let mut ways: Vec<_> = striped.ways();
        // One that answers is kept, whose machine has lost nothing.
        let away = |way: &stripe::Column| down.contains(&way.target) || way.channel.is_away();
        ways.sort_by_key(|(place, way)| (lacking.contains(place), away(way), *place));
        let mut kept = BTreeSet::new();
        for ((number, column), _) in ways {
            let component = &striped.layout().components[number];
            if !matches!(component.redundancy, Redundancy::Mirror { .. }) {
                continue;
            }
            if !kept.insert((number, component.replicas(column).start)) {
                let why = "what a host wrote last may be in another copy only";
                striped.leave_out(number, column, why).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}
