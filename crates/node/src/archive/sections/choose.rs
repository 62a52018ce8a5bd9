//! Which files go into a section, as far as room and limits allow: decided before anything of it is written.

use super::super::buffers::Buffers;
use super::super::hand::{InHand, Ticket};
use super::super::source::{Origin, Skip, Source, dataless};
use super::super::worker::Worker;
use super::END_REACHED;
use catalog::NewSegment;
use format::tar::BLOCK;
use policy::MigrateItem;
use types::*;

/// What headers, list and digests, and the file's line in the index of the volume take at most, besides its names (bytes).
const OVERHEAD: u64 = 8 << 10;
/// A file is split over two volumes if it is larger than this share of what the volume holds ...
const SPLIT_SHARE: u64 = 4;
/// ... or if otherwise more than this share of the volume would stay empty.
const WASTE_SHARE: u64 = 16;

/// How much goes into one section and one volume.
pub struct Limits {
    /// Files that the volume still takes ...
    pub files: u64,
    /// ... and bytes.
    pub room: u64,
    /// Bytes of data of a section.
    pub section_bytes: u64,
    /// Files of a section.
    pub section_files: u32,
    /// Bytes until an index is due.
    pub until_index: u64,
}

/// A file, or a part of one, that goes into the section.
pub struct Chosen {
    pub ticket: Ticket,
    pub item: MigrateItem,
    pub origin: Origin,
    /// As the section's list tells of it; extents without places.
    pub file: TapeFile,
    /// Room that it takes (bytes).
    pub cost: u64,
}

/// Files for one section.
pub struct Batch {
    pub files: Vec<Chosen>,
    /// Why the volume takes no more behind it.
    pub full: Option<&'static str>,
}

/// What was decided about a file.
enum Choice {
    Take(Box<Chosen>),
    /// The first part of it; the rest goes to another volume.
    Part(Box<Chosen>),
    /// It goes to another volume.
    Leave,
}

/// Chooses files from a pool's backlog.
pub struct Chooser<'t> {
    pub worker: &'t Worker,
    pub hand: &'t InHand<'t>,
    /// Where what is chosen goes.
    pub buffers: &'t Buffers,
    pub limits: Limits,
    pub volume: Barcode,
    pub capacity: u64,
    /// Uid of the next file.
    pub next_uid: u64,
}

impl Chooser<'_> {
    /// Files for the next section; none when the backlog is empty or the volume takes no more.
    pub fn batch(&mut self) -> Batch {
        let (mut batch, mut bytes) = (Batch { files: Vec::new(), full: None }, 0);
        while (batch.files.len() as u64) < u64::from(self.limits.section_files)
            && bytes < self.limits.section_bytes
        {
            if self.limits.files == 0 {
                batch.full = Some("it holds as many files as tape.max_files_per_volume allows");
                break;
            }
            if self.worker.node.archive.halted() {
                break;
            }
            let Some((ticket, item)) = self.hand.pop() else { break };
            let chosen = match self.choose(ticket, item) {
                Ok(Choice::Take(chosen)) => chosen,
                Ok(Choice::Part(chosen)) => {
                    batch.full = Some(END_REACHED);
                    chosen
                }
                Ok(Choice::Leave) => {
                    // It stays in hand until the turn ends.
                    batch.full = Some(END_REACHED);
                    break;
                }
                Err(why) => {
                    self.hand.hold(ticket, false, crate::now());
                    skipped(self.worker, item.ino, why);
                    continue;
                }
            };
            bytes += chosen.cost;
            self.limits.room = self.limits.room.saturating_sub(chosen.cost);
            self.limits.until_index = self.limits.until_index.saturating_sub(chosen.cost);
            self.limits.files -= 1;
            self.next_uid += 1;
            batch.files.push(*chosen);
            if batch.full.is_some() {
                break;
            }
        }
        batch
    }

    fn choose(&self, ticket: Ticket, item: MigrateItem) -> Result<Choice, Skip> {
        if let Some(moves) = dataless(self.worker, &item)? {
            return self.choose_node(ticket, item, moves);
        }
        let (node, source) = (&self.worker.node, Source::open(self.worker, &item)?);
        node.takes_off(&item, source.from);
        if node.writes.was_wasteful(&item) {
            // Look at all that is needed before it costs more space in vain.
            source.verify(self.worker, item.ino, self.buffers)?;
        }
        let mut extents = Vec::new();
        for range in source.ranges(self.worker) {
            let range = range?;
            let (from, end) = (range.start.max(source.from), range.end.min(source.to));
            if from < end {
                let byte_count = end - from;
                extents.push(Extent { file_offset: from, start_block: 0, byte_offset: 0, byte_count });
            }
        }
        let (from, size) = (source.from, source.size());
        let segment = NewSegment {
            ino: item.ino,
            version: item.version,
            copy: item.copy,
            file_offset: from,
            length: source.to.saturating_sub(from),
            extents,
            size,
            digest: source.known(),
            uid: self.next_uid,
            told: None,
        };
        let file = node.catalog.tape_file(&segment, crate::now())?;
        let data: u64 = file.extents.iter().map(|extent| extent.byte_count).sum();
        let cost = data + overhead(&file);
        if cost <= self.limits.room {
            return Ok(Choice::Take(Box::new(Chosen { ticket, item, origin: source.origin, file, cost })));
        }
        if source.moves {
            return match node.does_not_move(self.hand.pool(), data) {
                Some(why) => Err(Skip::Never(why)),
                None => Ok(Choice::Leave),
            };
        }
        if let Some(why) = node.does_not_fit(self.hand.pool(), &item) {
            return Err(Skip::Never(why));
        }
        let held = self.capacity.saturating_sub(self.limits.room);
        let split = size > held / SPLIT_SHARE
            || self.limits.room > self.capacity / WASTE_SHARE
            || !node.takes_whole(self.hand.pool(), &self.volume, size - from.min(size));
        match cut(file, self.limits.room).filter(|_| split) {
            Some(file) => {
                let cost = self.limits.room;
                Ok(Choice::Part(Box::new(Chosen { ticket, item, origin: source.origin, file, cost })))
            }
            None => Ok(Choice::Leave),
        }
    }
}

impl Chooser<'_> {
    /// A node without data takes a header and a line.
    fn choose_node(&self, ticket: Ticket, item: MigrateItem, moves: bool) -> Result<Choice, Skip> {
        let node = &self.worker.node;
        let segment = NewSegment {
            ino: item.ino,
            version: item.version,
            copy: item.copy,
            file_offset: 0,
            length: 0,
            extents: Vec::new(),
            size: 0,
            digest: None,
            uid: self.next_uid,
            told: None,
        };
        let file = node.catalog.tape_file(&segment, crate::now())?;
        let cost = overhead(&file);
        if cost > self.limits.room {
            let why = if moves { node.does_not_move(self.hand.pool(), cost) } else { None };
            return why.map_or(Ok(Choice::Leave), |why| Err(Skip::Never(why)));
        }
        Ok(Choice::Take(Box::new(Chosen { ticket, item, origin: Origin::NONE, file, cost })))
    }
}

/// Room that a file takes besides its data (bytes).
fn overhead(file: &TapeFile) -> u64 {
    let names: usize = file.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    OVERHEAD + 4 * (file.path.len() + names) as u64 + 64 * file.extents.len() as u64
}

/// The first part of a segment that takes no more than `room`; None where that is nothing.
fn cut(mut file: TapeFile, room: u64) -> Option<TapeFile> {
    let mut left = room.checked_sub(overhead(&file))? / BLOCK * BLOCK;
    let mut kept = Vec::new();
    for extent in &file.extents {
        let byte_count = extent.byte_count.min(left);
        if byte_count == 0 {
            break;
        }
        left -= byte_count;
        kept.push(Extent { byte_count, ..*extent });
    }
    let last = kept.last()?;
    file.segment_length = last.file_offset + last.byte_count - file.segment_offset;
    let part = file.segment_offset + file.segment_length < file.file_size;
    part.then_some(TapeFile { extents: kept, ..file })
}

/// A file is not copied now, or not before somebody has mended something.
pub fn skipped(worker: &Worker, ino: Ino, why: Skip) {
    let node = &worker.node;
    match why {
        Skip::Later(why) => {
            tracing::debug!("inode {ino} is not migrated now: {why}");
            node.finish_migrated(ino);
            node.migrate_again(ino);
        }
        Skip::Never(why) => node.cannot_migrate(ino, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_a_file_fills_what_is_left() {
        let extent =
            |file_offset, byte_count| Extent { file_offset, start_block: 0, byte_offset: 0, byte_count };
        let file = TapeFile {
            uid: 2,
            ino: Ino(3),
            version: Version(1),
            copy: CopyNo(1),
            file_size: 100_000,
            segment_offset: 10_000,
            segment_length: 90_000,
            extents: vec![extent(20_000, 30_000), extent(60_000, 40_000)],
            path: b"/f".to_vec(),
            mode: 0o100_644,
            uid_owner: 0,
            gid_owner: 0,
            times: [Time::default(); 4],
            digest: None,
            xattrs: Vec::new(),
            class: "c".into(),
            written: Time::default(),
            live: true,
            node: NodeFacts::default(),
        };
        let spare = overhead(&file);
        let part = cut(file.clone(), spare + 40_000).unwrap();
        assert_eq!(part.extents, [extent(20_000, 30_000), extent(60_000, 40_000 / 512 * 512 - 30_000)]);
        assert_eq!(part.segment_offset + part.segment_length, 60_000 + 40_000 / 512 * 512 - 30_000);
        assert_eq!(cut(file.clone(), spare + 511), None, "nothing of it");
        assert_eq!(cut(file, spare + 80_000), None, "all of it");
    }
}
