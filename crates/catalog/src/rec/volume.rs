//! What is stored of a volume, and how it was stored before.

use format::record::{self, Record, RecordError};
use serde::{Deserialize, Serialize};
use types::*;

/// A volume with what only the catalogue needs. `volume.live` and `live_files` are zero here: see their own keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRec {
    pub volume: Volume,
    /// Its tree in the `TAPE` table.
    pub tree: u64,
    /// Next id of a directory in that tree.
    pub next_dir: u64,
    /// What it was before it was closed for its way out, or to be emptied.
    pub before: Option<Before>,
}

/// `VolumeRec` before it said what the volume was before its export.
#[derive(Deserialize)]
struct VolumeRecV3 {
    volume: Volume,
    tree: u64,
    next_dir: u64,
}

impl From<VolumeRecV3> for VolumeRec {
    fn from(old: VolumeRecV3) -> Self {
        let VolumeRecV3 { volume, tree, next_dir } = old;
        Self { volume, tree, next_dir, before: None }
    }
}

impl Record for VolumeRec {
    const NAME: &'static str = "VolumeRec";
    const VERSION: u8 = 4;

    fn upgrade(version: u8, bytes: &[u8]) -> std::result::Result<Self, RecordError> {
        let damaged = |why| RecordError::Damaged { name: Self::NAME, length: bytes.len() + 1, why };
        match version {
            1 => record::body::<VolumeRecV1>(bytes).map(Self::from).map_err(damaged),
            2 => record::body::<VolumeRecV2>(bytes).map(Self::from).map_err(damaged),
            3 => record::body::<VolumeRecV3>(bytes).map(Self::from).map_err(damaged),
            found => Err(RecordError::Unknown { name: Self::NAME, found }),
        }
    }
}

/// `VolumeRec` before it said how far a verification has come, and what is newer.
#[derive(Deserialize)]
struct VolumeRecV2 {
    volume: VolumeV1,
    by: Option<u32>,
    last_verified: Option<Time>,
    tree: u64,
    next_dir: u64,
}

impl From<VolumeRecV2> for VolumeRec {
    fn from(old: VolumeRecV2) -> Self {
        let VolumeRecV2 { volume, by, last_verified, tree, next_dir } = old;
        let first = Self::from(VolumeRecV1 { volume, tree, next_dir });
        Self { volume: Volume { by, last_verified, ..first.volume }, ..first }
    }
}

/// `VolumeRec` before it said who set the state, and when all was verified.
#[derive(Deserialize)]
struct VolumeRecV1 {
    volume: VolumeV1,
    tree: u64,
    next_dir: u64,
}

#[derive(Deserialize)]
struct VolumeV1 {
    barcode: Barcode,
    pool: Option<PoolName>,
    state: VolumeState,
    reason: String,
    since: Time,
    uuid: String,
    labelled: Option<Time>,
    block_size: u32,
    capacity: u64,
    written: u64,
    live: u64,
    files: u64,
    live_files: u64,
    append_block: u64,
    next_uid: u64,
    generation: u64,
    index_block: u64,
    indexed_to: u64,
    vcr: u64,
    mounts: u64,
    errors: u64,
    last_written: Option<Time>,
    last_read: Option<Time>,
}

impl From<VolumeRecV1> for VolumeRec {
    fn from(old: VolumeRecV1) -> Self {
        let v = old.volume;
        let volume = Volume {
            worm: v.barcode.is_worm(),
            barcode: v.barcode,
            pool: v.pool,
            state: v.state,
            reason: v.reason,
            since: v.since,
            uuid: v.uuid,
            labelled: v.labelled,
            block_size: v.block_size,
            capacity: v.capacity,
            written: v.written,
            live: v.live,
            files: v.files,
            live_files: v.live_files,
            append_block: v.append_block,
            next_uid: v.next_uid,
            generation: v.generation,
            index_block: v.index_block,
            indexed_to: v.indexed_to,
            vcr: v.vcr,
            mounts: v.mounts,
            errors: v.errors,
            last_written: v.last_written,
            last_read: v.last_read,
            by: None,
            last_verified: None,
            verified_to: 0,
            family: None,
            key: String::new(),
            format: VolumeFormat::Ltfs,
            imported: false,
        };
        Self { volume, tree: old.tree, next_dir: old.next_dir, before: None }
    }
}
