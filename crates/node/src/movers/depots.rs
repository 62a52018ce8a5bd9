//! Rights to read and write a file at its targets for the host of a drive that writes it to tape, or reads it from there: its bytes go there straight.

use super::Grantee;
use super::grants::LIFE;
use super::lent::{ENDED, Noted};
use crate::Node;
use crate::clock::Moment;
use crate::error::fs_error;
use catalog::Far;
use data::Rights;
use layout::Redundancy;
use std::time::Duration;
use types::api::FsResult;
use types::*;
use wire::{LentLayout, LentPart};

/// A file with copies or parity that has fewer bytes is read by the node: to lend it is a durable change of the catalogue.
const LITTLE: u64 = 1 << 20;

impl Node {
    /// Where a file on targets can be read that nobody has open for writing, and the right to do so. None: it is to be read by the node.
    pub(crate) fn lend_to_depot(
        &self,
        ino: Ino,
        object: ObjectId,
        length: u64,
        depot: u64,
    ) -> FsResult<Option<LentLayout>> {
        let grantee = Grantee { client: depot, uid: 0 };
        let read = || self.far_as_recorded(object);
        let (far, open) = self.movers.claims.look(object, false, read);
        let Some(far) = far?.filter(|_| open) else { return Ok(None) };
        if !far.rule().is_redundant() {
            if !far.stale.is_empty() {
                return Ok(None);
            }
            return Ok(self.plain(ino, &far, (Rights::READ, grantee), length));
        }
        if length < LITTLE {
            return Ok(None);
        }
        let (begun, issued, down) = (Moment::now(), crate::now(), self.movers.down());
        let note = || self.movers.lent.note_far(object, begun + ENDED, &down, read);
        let Some((number, new, far)) = self.movers.claims.unless_claimed(object, note).transpose()?.flatten()
        else {
            return Ok(None);
        };
        // Whoever opens it for writing from now on ends what was noted; who had done so before is seen here.
        let written = self.is_being_written(ino) || self.catalog.is_writing(ino).unwrap_or(true);
        if written {
            self.movers.lent.not_given(object, number);
            return Ok(None);
        }
        let noted = Noted { number, new, far, length };
        self.hand_out(ino, object, noted, &down, (Rights::READ, grantee, issued))
    }

    /// Where a file on targets can be written that comes back from tape, which nobody else writes, and the right to do so. None: it is to be written by the
    /// node.
    pub(crate) fn let_depot_write(
        &self,
        ino: Ino,
        object: ObjectId,
        length: u64,
        depot: u64,
    ) -> FsResult<Option<LentLayout>> {
        let read = || self.far_as_recorded(object);
        let (far, open) = self.movers.claims.look(object, true, read);
        let Some(far) = far?.filter(|far| open && far.stale.is_empty()) else { return Ok(None) };
        let grantee = Grantee { client: depot, uid: 0 };
        if far.rule().is_redundant() {
            return self.lend_copies(ino, (object, &far), length, grantee);
        }
        self.movers.given.note(object, Moment::now() + LIFE);
        Ok(self.plain(ino, &far, (Rights::WRITE, grantee), length))
    }

    /// The same of a file with copies, all of which are there: the right is lent, as to a host that writes one alone ([`super::copies`]). Not of coded ones, whose log the
    /// node has begun.
    fn lend_copies(
        &self,
        ino: Ino,
        (object, far): (ObjectId, &Far),
        length: u64,
        grantee: Grantee,
    ) -> FsResult<Option<LentLayout>> {
        let coded = |one: &layout::Component| matches!(one.redundancy, Redundancy::Coded { .. });
        if length < LITTLE || far.layout.components.iter().any(coded) {
            return Ok(None);
        }
        let (begun, issued, down) = (Moment::now(), crate::now(), self.movers.down());
        let whole = |far: &Far| far.stale.is_empty() && far.on(&down).is_empty();
        let read = || self.far_as_recorded(object).map(|far| far.filter(&whole));
        let note = || self.movers.lent.note_far(object, begun + ENDED, &down, read);
        let Some((number, new, far)) = self.movers.claims.unless_claimed(object, note).transpose()?.flatten()
        else {
            return Ok(None);
        };
        self.movers.given.note(object, begun + ENDED);
        let noted = Noted { number, new, far, length };
        self.hand_out(ino, object, noted, &down, (Rights::WRITE, grantee, issued))
    }

    fn far_as_recorded(&self, object: ObjectId) -> FsResult<Option<Far>> {
        self.catalog.far(object).map_err(|e| fs_error("layout", &e))
    }

    /// A file without copies with these rights; None: nobody can be let at its targets.
    fn plain(
        &self,
        ino: Ino,
        far: &Far,
        (rights, grantee): (Rights, Grantee),
        length: u64,
    ) -> Option<LentLayout> {
        let accesses = self.accesses(ino, far, rights, grantee, (crate::now(), LIFE)).ok()?;
        let part = |access| LentPart { access, copies: 1, parity: 0 };
        let parts = accesses.into_iter().map(part).collect();
        Some(LentLayout { length, term_ms: LIFE.as_millis() as u32, parts })
    }

    /// How long what was lent at most stands: half of it may pass before it is lent again.
    pub(crate) fn lent_again_after(lent: &LentLayout) -> Duration {
        Duration::from_millis(lent.term_ms.into()) / 2
    }
}
