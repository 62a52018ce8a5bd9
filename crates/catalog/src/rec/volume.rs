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

/// Whether the tape of a volume may hold more than the catalogue lists, as far as records tell that do not say so: the node itself had
/// made it read-only, or it is being emptied, and what it was before is not known.
fn may_hold_more(volume: &Volume, before: Option<&Before>) -> bool {
    let by_node = |state, by: Option<u32>| state == VolumeState::ReadOnly && by.is_none();
    match before {
        Some(before) if by_node(before.state, before.by) => true,
        None if volume.state == VolumeState::Repacking => true,
        _ => by_node(volume.state, volume.by),
    }
}

/// `VolumeRec` before it said whether the tape may hold more than the catalogue lists.
#[derive(Deserialize)]
struct VolumeRecV4 {
    volume: VolumeV3,
    tree: u64,
    next_dir: u64,
    before: Option<Before>,
}

impl From<VolumeRecV4> for VolumeRec {
    fn from(old: VolumeRecV4) -> Self {
        let VolumeRecV4 { volume, tree, next_dir, before } = old;
        let VolumeV3 { first, by, last_verified, verified_to, family, key, format, worm, imported } = volume;
        let first = Volume::from(first);
        let mut volume =
            Volume { by, last_verified, verified_to, family, key, format, worm, imported, ..first };
        volume.holds_more = may_hold_more(&volume, before.as_ref());
        Self { volume, tree, next_dir, before }
    }
}

/// `VolumeRec` before it said what the volume was before its export.
#[derive(Deserialize)]
struct VolumeRecV3 {
    volume: VolumeV3,
    tree: u64,
    next_dir: u64,
}

impl From<VolumeRecV3> for VolumeRec {
    fn from(old: VolumeRecV3) -> Self {
        let VolumeRecV3 { volume, tree, next_dir } = old;
        VolumeRecV4 { volume, tree, next_dir, before: None }.into()
    }
}

/// `Volume` without whether the tape may hold more than the catalogue lists.
#[derive(Deserialize)]
struct VolumeV3 {
    first: VolumeV1,
    by: Option<u32>,
    last_verified: Option<Time>,
    verified_to: u64,
    family: Option<String>,
    key: String,
    format: VolumeFormat,
    worm: bool,
    imported: bool,
}

impl Record for VolumeRec {
    const NAME: &'static str = "VolumeRec";
    const VERSION: u8 = 5;

    fn upgrade(version: u8, bytes: &[u8]) -> std::result::Result<Self, RecordError> {
        let damaged = |why| RecordError::Damaged { name: Self::NAME, length: bytes.len() + 1, why };
        match version {
            1 => record::body::<VolumeRecV1>(bytes).map(Self::from).map_err(damaged),
            2 => record::body::<VolumeRecV2>(bytes).map(Self::from).map_err(damaged),
            3 => record::body::<VolumeRecV3>(bytes).map(Self::from).map_err(damaged),
            4 => record::body::<VolumeRecV4>(bytes).map(Self::from).map_err(damaged),
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
        let mut volume = Volume { by, last_verified, ..volume.into() };
        volume.holds_more = may_hold_more(&volume, None);
        Self { volume, tree, next_dir, before: None }
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
        let VolumeRecV1 { volume, tree, next_dir } = old;
        VolumeRecV2 { volume, by: None, last_verified: None, tree, next_dir }.into()
    }
}

impl From<VolumeV1> for Volume {
    fn from(v: VolumeV1) -> Self {
        Self {
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
            holds_more: false,
        }
    }
}
