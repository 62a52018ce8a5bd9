//! What keeps data on tape in order: lost copies, the live files of a volume in tape order, requests for volumes.

use super::Catalog;
use crate::ops::{self, keep, request_volumes, undelete};
use crate::store::Tx;
use crate::{EndedVersions, Lost, LostCopy, Result, TapeNode};
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use types::*;

/// Place of a segment on its volume: block and byte of its first data, then its uid. Segments without data come first.
pub type TapePlace = (u64, u32, u64);

/// A segment in the order of its place.
struct Placed(TapePlace, Box<TapeFile>);

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Placed {}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// Where a segment lies.
pub fn place_of(file: &TapeFile) -> TapePlace {
    let (block, byte) = file.extents.first().map_or((0, 0), |e| (e.start_block, e.byte_offset));
    (block, byte, file.uid)
}

impl Catalog {
    /// These copies are lost. Unless one is all there is of its file it counts no more, and the file gets another: from disk
    /// if it is there, else it is among [`Catalog::to_mend`]. Until then it stays on record, and can be read for want of a
    /// better one. One transaction, durable.
    pub fn lose_copies(&self, lost: &[LostCopy], now: Time) -> Result<Vec<Lost>> {
        self.durable(|tx| lost.iter().map(|one| keep::lose_copy(tx, one, now)).collect())
    }

    /// Offline files that lost a copy and have to come back to disk for a new one, in order of inode.
    pub fn to_mend(&self, after: Ino, limit: usize) -> Result<Vec<Ino>> {
        self.read(|v| keep::to_mend(v, after, limit))
    }

    /// The segments of a volume that current versions need, the first `limit` at or behind a place, in tape order. Looks at
    /// the whole tree of the volume, in bounded memory.
    pub fn live_segments(&self, barcode: &Barcode, from: TapePlace, limit: usize) -> Result<Vec<TapeFile>> {
        let mut first: BinaryHeap<Placed> = BinaryHeap::new();
        self.walk_volume(barcode, &mut |node| {
            let TapeNode::File { file, .. } = node else { return ControlFlow::Continue(()) };
            let place = place_of(file);
            let wanted = file.live
                && place >= from
                && (first.len() < limit || first.peek().is_some_and(|last| place < last.0));
            if wanted {
                first.push(Placed(place, Box::new(file.clone())));
                if first.len() > limit {
                    first.pop();
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(first.into_sorted_vec().into_iter().map(|placed| *placed.1).collect())
    }

    /// Versions that ended and are still on tape, whose path was at `below` or below it. Looks at a part of all that ended,
    /// at most `limit`; `next` says where to go on.
    pub fn ended_versions(
        &self,
        below: &[u8],
        after: Option<(Ino, Version)>,
        limit: usize,
    ) -> Result<EndedVersions> {
        self.read(|v| undelete::list(v, below, after, limit))
    }

    /// When a version that can be restored ended, if that is known; None if there is no such version.
    pub fn ended_at(&self, ino: Ino, version: Version) -> Result<Option<Option<Time>>> {
        self.read(|v| Ok(ops::version::ended(v, ino, version)?.map(|known| known.ended)))
    }

    /// Who owned a version that ended and is on tape; None if there is no such version.
    pub fn ended_owner(&self, ino: Ino, version: Version) -> Result<Option<u32>> {
        self.read(|v| undelete::owner(v, ino, version))
    }

    /// An ended version is a file of its own from now on, offline, named `to`, with owner, mode, attributes and class as they
    /// went to tape. Nothing is moved: its copies are what they were. Refused if none can be read. Durable.
    pub fn undelete(&self, cx: &Cx, from: (Ino, Version), to: (Ino, &[u8])) -> Result<Inode> {
        let fresh = Ino(self.next_id()?);
        self.durable_volumes(None, |tx| undelete::undelete(tx, cx, from, to, fresh))
    }

    /// Enters a request for volumes, each with its bytes; they all become `state`, if one is given; refused
    /// if one of them is out of use, or taken by another such request. Durable.
    pub fn create_volume_request(
        &self,
        request: &Request,
        volumes: &[(Barcode, u64)],
        state: Option<VolumeState>,
    ) -> Result<Request> {
        self.enter(|entered| {
            let create = |tx: &mut Tx<'_>| request_volumes::create(tx, request, volumes, state);
            self.durable_volumes(None, |tx| create(tx).inspect(&mut *entered))
        })
    }

    /// Volumes of a request in order of barcode: state and bytes.
    pub fn request_volumes(&self, id: RequestId) -> Result<Vec<(Barcode, ItemState, u64)>> {
        self.read(|v| request_volumes::list(v, id))
    }

    /// Ends one volume of a request (again: no effect); with the last one the request is Done or Failed. Durable.
    pub fn finish_volume(
        &self,
        id: RequestId,
        barcode: &Barcode,
        state: &ItemState,
        note: &str,
        now: Time,
    ) -> Result<Request> {
        let told = self.durable(|tx| request_volumes::finish(tx, id, barcode, state, note, now));
        told.inspect(|request| self.note_open(request))
    }
}
