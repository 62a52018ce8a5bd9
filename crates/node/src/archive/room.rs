//! Whether a file fits into a pool at all: one that does not is refused before anything of it is written.

use super::family::pool_of;
use crate::Node;
use policy::{MigrateBatch, MigrateItem};
use std::cmp::Reverse;
use types::*;

/// Space kept for the two indexes that follow the data, per file on the volume and at least (bytes).
const INDEX_BYTES_PER_FILE: u64 = 4096;
const INDEX_BYTES_MIN: u64 = 2 << 20;
/// A part of a file that must not be split is not begun unless a volume takes more than it, by one in so many of its bytes and what
/// is kept for the indexes once more: what a volume takes is an estimate until it is full, and each attempt that fails costs a
/// volume.
const ESTIMATE_SHARE: u64 = 32;

/// What a volume has to take by estimate, so that a part of so many bytes is sure to lie on it whole.
pub fn for_one_piece(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / ESTIMATE_SHARE + INDEX_BYTES_MIN)
}

/// Bytes of a volume that are kept free for its indexes.
pub fn index_reserve(volume: &Volume) -> u64 {
    INDEX_BYTES_MIN.min(volume.capacity / 8) + volume.files * INDEX_BYTES_PER_FILE
}

/// Bytes of data that a labelled volume still takes.
pub fn free_on(volume: &Volume) -> u64 {
    volume.capacity.saturating_sub(volume.written).saturating_sub(index_reserve(volume))
}

/// What a pool can still take (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// All volumes together.
    all: u64,
    /// The one that takes most.
    one: u64,
}

/// What the volumes of a pool, and those that may still join it, can take. None: a cartridge may join whose capacity
/// nobody knows yet.
fn pool_room(
    pool: &Pool,
    volumes: &[Volume],
    auto_label: bool,
    here: impl Fn(&Barcode) -> bool,
) -> Option<Room> {
    let largest = volumes.iter().max_by_key(|v| v.capacity).filter(|v| v.capacity > 0);
    let largest = largest.map(|v| free_on(&Volume { written: 0, files: 0, ..v.clone() }));
    let (mut members, mut blank_unknown) = (0u32, false);
    let (mut takes_data, mut joining) = (Vec::new(), Vec::new());
    for v in volumes {
        if v.pool.as_ref() == Some(&pool.name) {
            members += 1;
        }
        if !here(&v.barcode) {
            continue;
        }
        let unlabelled = auto_label && matches!(v.state, VolumeState::Blank | VolumeState::Unknown);
        let free = if unlabelled { largest } else { Some(free_on(v)) };
        let takes = unlabelled || matches!(v.state, VolumeState::Filling | VolumeState::Scratch);
        match (&v.pool, free) {
            (Some(owner), _) if *owner != pool.name => {}
            _ if !takes || (v.pool.is_none() && v.worm != pool.worm) => {}
            (Some(_), Some(free)) => takes_data.push(free),
            (None, Some(free)) => joining.push(Reverse(free)),
            (_, None) => blank_unknown = true,
        }
    }
    let may_join = if pool.max_volumes == 0 { u32::MAX } else { pool.max_volumes.saturating_sub(members) };
    if blank_unknown && may_join > 0 {
        return None;
    }
    joining.sort();
    takes_data.extend(joining.iter().take(may_join as usize).map(|Reverse(free)| free));
    let all = takes_data.iter().fold(0u64, |sum, free| sum.saturating_add(*free));
    Some(Room { all, one: takes_data.into_iter().max().unwrap_or(0) })
}

impl Node {
    /// Bytes that a pool may still take by its own limit; None without one.
    pub(super) fn allowed_to(&self, pool: &PoolName) -> Option<u64> {
        let pool = &pool_of(pool);
        let pools = self.catalog.pools().ok()?;
        let limit = pools.iter().find(|p| p.name == *pool).map(|p| p.max_bytes).filter(|most| *most > 0)?;
        let volumes = self.volumes_lately()?;
        let live: u64 = volumes.iter().filter(|v| v.pool.as_ref() == Some(pool)).map(|v| v.live).sum();
        Some(limit.saturating_sub(live))
    }

    /// What a pool could take a moment ago, leaving one volume out; None if that is not known.
    fn room_of(&self, pool: &PoolName, without: Option<&Barcode>) -> Option<Room> {
        self.room_on(pool, without, &self.volumes_lately()?)
    }

    /// What it can take now: before anything is refused for want of room.
    fn room_now(&self, pool: &PoolName) -> Option<Room> {
        self.room_on(pool, None, &self.catalog.volumes().ok()?)
    }

    fn room_on(&self, pool: &PoolName, without: Option<&Barcode>, volumes: &[Volume]) -> Option<Room> {
        let pool = &pool_of(pool);
        let pools = self.catalog.pools().ok()?;
        let pool = pools.iter().find(|p| p.name == *pool)?;
        let state = self.archive.state.lock();
        let present = state.present();
        let bound = self.bound_to(pool);
        let here = |barcode: &Barcode| {
            let library = present.get(barcode);
            without != Some(barcode) && library.is_some_and(|no| bound.is_none_or(|bound| bound == *no))
        };
        pool_room(pool, volumes, self.settings().tape.auto_label, here)
    }

    /// Whether some other volume may take so many bytes as a whole.
    pub(super) fn takes_whole(&self, pool: &PoolName, without: &Barcode, bytes: u64) -> bool {
        self.room_of(pool, Some(without)).is_none_or(|room| room.one >= bytes)
    }

    /// Why so many bytes that are to leave their volume in one piece cannot; None if some volume takes them.
    pub(super) fn does_not_move(&self, pool: &PoolName, bytes: u64) -> Option<String> {
        let needs = for_one_piece(bytes);
        let takes = |room: Option<Room>| room.is_none_or(|room| room.one >= needs);
        let moves = takes(self.room_of(pool, None)) || takes(self.room_now(pool));
        (!moves).then(|| {
            format!(
                "no volume of pool {pool} takes the {bytes} bytes of it that are to leave their volume in one piece"
            )
        })
    }

    /// Takes the files out of a batch that their pool cannot hold, and tells whoever should know.
    pub(crate) fn leave_out_too_large(&self, batch: &mut MigrateBatch) {
        let largest = batch.items.iter().map(|i| i.size).max().unwrap_or(0);
        let short = |room: Option<Room>| room.map(|room| room.all).filter(|room| *room < largest);
        if short(self.room_of(&batch.pool, None)).is_none() {
            return;
        }
        let Some(room) = short(self.room_now(&batch.pool)) else { return };
        let pool = batch.pool.clone();
        batch.items.retain(|item| match self.too_large(&pool, item, room) {
            Some(why) => {
                self.cannot_migrate(item.ino, why);
                false
            }
            None => true,
        });
    }

    /// Why a file, or what of it is not on tape yet, cannot be written to a pool; None if it can.
    pub(super) fn does_not_fit(&self, pool: &PoolName, item: &MigrateItem) -> Option<String> {
        let short = self.room_of(pool, None).is_some_and(|room| item.size > room.all);
        if short { self.room_now(pool).and_then(|room| self.too_large(pool, item, room.all)) } else { None }
    }

    fn too_large(&self, pool: &PoolName, item: &MigrateItem, room: u64) -> Option<String> {
        // Whatever cannot be looked at now shows when it is read.
        let left = if item.size > room { self.left_to_write(item)? } else { return None };
        (left > room).then(|| {
            format!(
                "copy {} needs {left} more bytes, but the volumes of pool {pool} take only {room}, so they are kept for \
                 others: import cartridges, raise its limit of volumes if it has one (`thermo pool set {pool} --max-volumes N`), or \
                 give the file a class with a larger pool",
                item.copy
            )
        })
    }

    /// Bytes of data of a file behind those that lie on volumes already.
    fn left_to_write(&self, item: &MigrateItem) -> Option<u64> {
        let copies = self.catalog.version_copies(item.ino, item.version).ok()?;
        let part = copies.iter().find(|c| c.copy == item.copy && !super::recalls::covers(c, item.size));
        let written = part.and_then(|c| c.segments.last());
        let from = written.map_or(0, |s| s.file_offset + s.length);
        let file = self.catalog.inode(item.ino).ok()?.file?;
        let object = file.object?;
        if file.far {
            return Some(item.size.saturating_sub(from)); // holes are not known there
        }
        let fd = self.disk.open_object(object, false).ok()?;
        let mut left = 0;
        for range in self.disk.data_ranges(&fd, item.size) {
            let range = range.ok()?;
            left += range.end.saturating_sub(range.start.max(from));
        }
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(barcode: &str, pool: Option<&str>, state: VolumeState, capacity: u64, written: u64) -> Volume {
        let pool = pool.map(PoolName::from);
        Volume { pool, state, capacity, written, ..Volume::new(Barcode::from(barcode), Time::default()) }
    }

    #[test]
    fn a_pools_room_is_what_its_volumes_and_those_that_may_join_can_take() {
        const GIB: u64 = 1 << 30;
        let volumes = [
            volume("A", Some("p"), VolumeState::Filling, 6 * GIB, 2 * GIB),
            volume("B", Some("p"), VolumeState::Full, 6 * GIB, GIB),
            volume("C", Some("q"), VolumeState::Filling, 6 * GIB, 0),
            volume("D", None, VolumeState::Scratch, 3 * GIB, 0),
            volume("E", None, VolumeState::Blank, 0, 0),
            volume("F", None, VolumeState::Blank, 0, 0),
        ];
        let room = |max_volumes, auto_label, volumes: &[Volume]| {
            let pool = Pool { max_volumes, ..Pool::new("p".into()) };
            let room = pool_room(&pool, volumes, auto_label, |b| b.as_str() != "F");
            room.map(|room| (room.all.div_ceil(GIB), room.one.div_ceil(GIB)))
        };
        assert_eq!(room(0, true, &volumes), Some((4 + 3 + 6, 6)), "an absent cartridge does not count");
        assert_eq!(room(0, false, &volumes), Some((4 + 3, 4)));
        assert_eq!(room(3, true, &volumes), Some((4 + 6, 6)), "one more may join: the largest");
        assert_eq!(room(2, true, &volumes), Some((4, 4)));
        assert_eq!(room(0, true, &volumes[4..]), None, "nobody knows the capacity of any");
        assert_eq!(room(0, true, &[]), Some((0, 0)));
    }
}
