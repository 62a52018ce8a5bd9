//! Rights to read and write a file at its targets for the host of a drive that writes it to tape, or reads it from there: its bytes go there straight.

use super::Grantee;
use super::grants::LIFE;
use super::lent::{ENDED, Noted};
use crate::Node;
use crate::clock::Moment;
use crate::error::fs_error;
use crate::files::FarFile;
use catalog::Far;
use data::Rights;
use std::collections::BTreeSet;
use types::api::FsResult;
use types::*;
use wire::{LentLayout, LentPart};

/// A file with copies or parity that has fewer bytes is read by the node: to lend it is a durable change of the catalogue.
const LITTLE: u64 = 1 << 20;

/// The same of one with parity that comes back: its log is taken over by who writes it, and by the node from him.
const LITTLE_CODED: u64 = 16 << 20;

/// How a file can be written at its targets.
pub(crate) struct Writable {
    /// Where, and the rights.
    pub lent: LentLayout,
    /// Of the file, as the rights have it.
    pub generation: u32,
}

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

    /// Where a file on targets can be written that comes back from tape, which nobody else writes, and the right to do so. `before`: the generation of the one that goes
    /// on. None: it is to be written by the node.
    pub(crate) fn let_depot_write(
        &self,
        (ino, object, file): (Ino, ObjectId, &FarFile),
        length: u64,
        depot: u64,
        before: Option<u32>,
    ) -> FsResult<Option<Writable>> {
        let read = || self.far_as_recorded(object);
        let (far, open) = self.movers.claims.look(object, true, read);
        let Some(far) = far?.filter(|far| open && far.stale.is_empty()) else { return Ok(None) };
        let grantee = Grantee { client: depot, uid: 0 };
        if file.striped().is_coded() {
            return self.lend_log((ino, object, file), length, grantee, before);
        }
        if far.rule().is_redundant() {
            return self.lend_copies(ino, object, length, grantee);
        }
        self.movers.given.note(object, Moment::now() + LIFE);
        let lent = self.plain(ino, &far, (Rights::WRITE, grantee), length);
        Ok(lent.map(|lent| Writable { lent, generation: far.layout.generation }))
    }

    /// The same of a file with copies, all of which are there: the right is lent, as to a host that writes one alone ([`super::copies`]).
    fn lend_copies(
        &self,
        ino: Ino,
        object: ObjectId,
        length: u64,
        grantee: Grantee,
    ) -> FsResult<Option<Writable>> {
        if length < LITTLE {
            return Ok(None);
        }
        let (until, issued, down) = (Moment::now() + ENDED, crate::now(), self.movers.down());
        let Some(noted) = self.note_whole(object, (length, until), &down, |_| true)? else { return Ok(None) };
        self.movers.given.note(object, until);
        let generation = noted.far.layout.generation;
        let lent = self.hand_out(ino, object, noted, &down, (Rights::WRITE, grantee, issued))?;
        Ok(lent.map(|lent| Writable { lent, generation }))
    }

    /// The same of a coded file: whoever has the right is the one writer of its log. The node is that no more, and takes over again when it writes; and whoever else
    /// had the right has it no more, as parts of one file may come from two drives at once.
    fn lend_log(
        &self,
        (ino, object, file): (Ino, ObjectId, &FarFile),
        length: u64,
        grantee: Grantee,
        before: Option<u32>,
    ) -> FsResult<Option<Writable>> {
        if length < LITTLE_CODED {
            return Ok(None);
        }
        let is_lent = || self.movers.lent.of(object, Moment::now()).is_some();
        let goes_on = before.is_some() && is_lent();
        if !goes_on {
            let ended = self.end_lending(object).map(drop);
            ended.map_err(|e| {
                tracing::error!("inode {ino}: a right to write it does not end: {}", e.message);
                FsError::Io
            })?;
            // Whoever had one that has ended by itself is to see that this is another: others may have written since.
            self.catalog.raise_generation(object).map_err(|e| fs_error("layout", &e))?;
        }
        let (until, issued) = (Moment::now() + ENDED, crate::now());
        let down = self.movers.down();
        // Nobody notes another one meanwhile.
        let mine = |far: &Far| if goes_on { Some(far.layout.generation) == before } else { !is_lent() };
        let Some(noted) = self.note_whole(object, (length, until), &down, mine)? else { return Ok(None) };
        self.movers.given.note(object, until);
        if !self.hand_over(ino, (object, until), file)? {
            self.movers.lent.not_given(object, noted.number);
            return Ok(None);
        }
        let (generation, rights) = (noted.far.layout.generation, Rights::READ.and(Rights::WRITE));
        let lent = self.hand_out(ino, object, noted, &down, (rights, grantee, issued))?;
        Ok(lent.map(|lent| Writable { lent, generation }))
    }

    /// Notes that somebody is going to write a file that has everything it is to have at its targets, if it is as `may` wants it before that.
    fn note_whole(
        &self,
        object: ObjectId,
        (length, until): (u64, Moment),
        down: &BTreeSet<TargetId>,
        may: impl Fn(&Far) -> bool,
    ) -> FsResult<Option<Noted>> {
        let whole = |far: &Far| far.stale.is_empty() && far.on(down).is_empty();
        let read = || self.far_as_recorded(object).map(|far| far.filter(&whole));
        let note = || match read()?.filter(&may) {
            Some(_) => self.movers.lent.note_far(object, until, down, read),
            None => Ok(None),
        };
        let noted = self.movers.claims.unless_claimed(object, note).transpose()?.flatten();
        Ok(noted.map(|(number, new, far)| Noted { number, new, far, length }))
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
}
