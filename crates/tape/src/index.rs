//! Writing an index: onto the data partition while a volume is being filled, onto both when it is closed or leaves the drive.

use crate::coherency::IndexAt;
use crate::head::{Head, Place, Wrote};
use crate::layout::{DATA_PARTITION, FIRST_INDEX_MARK, INDEX_PARTITION};
use crate::records::RecordSink;
use crate::{AppendPoint, Blame, Fault, Mounted, Result, TapeError, coherency};
use format::ltfs::Partition;
use format::ltfs::index::{IndexHeader, IndexWriter, Location};
use std::error::Error;
use std::io::Write;
use types::Time;

const DOING: &str = "writing the index";

/// Puts the tree into an index: `enter_dir` of the root to its `leave_dir`, without `begin` and `finish`. It is called
/// once per partition and must give the same tree each time.
pub type Fill<'f> =
    dyn FnMut(&mut IndexWriter<&mut dyn Write>) -> std::result::Result<(), Box<dyn Error + Send + Sync>> + 'f;

/// What goes into the head of an index.
#[derive(Clone, Debug)]
pub struct IndexSpec<'a> {
    /// End of the volume as recorded; the index goes there.
    pub point: &'a AppendPoint,
    /// Program that writes it.
    pub creator: &'a str,
    /// Highest file uid ever used on the volume.
    pub highest_uid: u64,
    /// Time now.
    pub now: Time,
    /// Where it goes.
    pub onto: Onto,
}

/// Partitions that get an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onto {
    /// The data partition, at whose end the head stands: the index partition keeps an older one, which its coherency
    /// attribute says, until the next index goes onto both. Spares a physical drive the way to its first wraps and back.
    Data,
    /// Both.
    Both,
}

/// An index that is on the volume, flushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// Its generation.
    pub generation: u64,
    /// Where the newest index of the data partition starts.
    pub index_block: u64,
    /// Data partition: where the next record goes.
    pub append_block: u64,
    /// Volume change reference after it.
    pub vcr: u64,
    /// The data partition had no room for it (the reserve was too small): it is on the index partition only, where
    /// every LTFS reader looks first. Nothing more may be appended.
    pub data_partition_full: bool,
    /// The index partition has it too.
    pub on_both: bool,
}

impl Mounted<'_> {
    /// Writes a new index: first at the end of the data partition, then, if `spec` says so or the data partition has no room
    /// for it, over the old one of the index partition, then the coherency attributes. Each step is on the medium before the next begins, so a power failure at any command
    /// leaves a whole index that describes all data recorded before: the old ones until the one on the data partition
    /// is whole, that one until the index partition is whole again. A writer that comes back with the old
    /// [`AppendPoint`] finds a whole index behind it and goes on behind that.
    ///
    /// # Errors
    /// As [`Mounted::appender`]; [`Fault::Full`] when the index partition has no room for it; an error of `fill`
    /// (`Blame::Us`). Nothing recorded before is lost by any of them.
    pub fn write_index(&mut self, spec: &IndexSpec<'_>, fill: &mut Fill<'_>) -> Result<Indexed> {
        self.verify_tail(spec.point)?;
        let done = self.put_indexes(spec, fill);
        if done.is_err() {
            self.distrust();
        }
        done
    }

    fn put_indexes(&mut self, spec: &IndexSpec<'_>, fill: &mut Fill<'_>) -> Result<Indexed> {
        let block_size = self.ltfs(DOING)?.block_size as usize;
        self.open_session()?;
        let Some(mut tail) = self.tail.clone() else { return Err(unverified(self.head())) };
        let generation = tail.data.generation.max(tail.index.generation).max(spec.point.generation) + 1;
        let index_block = tail.block + 1;
        let mut header = IndexHeader {
            creator: spec.creator.to_owned(),
            comment: None,
            volume_uuid: tail.uuid.clone(),
            generation,
            update_time: spec.now,
            location: Location { partition: Partition::DATA, block: index_block },
            previous: Some(Location { partition: Partition::DATA, block: tail.data.block }),
            allow_policy_update: true,
            highest_file_uid: spec.highest_uid,
            unknown: Vec::new(),
        };
        let at = Place { partition: DATA_PARTITION, block: tail.block };
        let data_partition_full = match put(self.head(), at, block_size, &header, fill) {
            Ok(end) => {
                (tail.block, tail.data) = (end, IndexAt { generation, block: index_block });
                header.previous = Some(header.location);
                false
            }
            Err(error) if error.fault == Fault::Full => true,
            Err(error) => return Err(error),
        };
        let on_both = spec.onto == Onto::Both || data_partition_full;
        if on_both {
            header.location = Location { partition: Partition::INDEX, block: FIRST_INDEX_MARK + 1 };
            // From here until it is whole again nobody may rely on the index partition.
            coherency::write(self.head(), INDEX_PARTITION, &tail.uuid, 0, tail.index)?;
            put(self.head(), INDEX_MARK, block_size, &header, fill)?;
            (tail.index, tail.index_stale) = (IndexAt { generation, block: FIRST_INDEX_MARK + 1 }, false);
        }
        let (index_block, append_block) = (tail.data.block, tail.block);
        self.tail = Some(tail);
        let vcr = self.record_vcr(true)?;
        Ok(Indexed { generation, index_block, append_block, vcr, data_partition_full, on_both })
    }
}

/// The filemark before the index of the index partition.
const INDEX_MARK: Place = Place { partition: INDEX_PARTITION, block: FIRST_INDEX_MARK };

/// Writes filemark, index, filemark at a verified place, the last filemark not immediate; returns the block behind it.
pub(crate) fn put(
    head: &mut Head,
    at: Place,
    block_size: usize,
    header: &IndexHeader,
    fill: &mut Fill<'_>,
) -> Result<u64> {
    head.locate(at)?;
    head.verify(DOING, at)?;
    head.allow_replacing(at)?;
    mark(head, true)?;
    let mut sink = RecordSink::new(head, block_size);
    let written = stream(&mut sink, header, fill);
    let (error, is_full) = (sink.error.take(), sink.full);
    match (written, error) {
        _ if is_full => return Err(full(head)),
        (_, Some(error)) => return Err(error),
        (Err(error), None) => {
            let advice = "report this; the volume keeps its previous index";
            return Err(head.error(Fault::Misuse, Blame::Us, DOING, error.to_string(), advice));
        }
        (Ok(()), None) => {}
    }
    mark(head, false)?;
    let Some(end) = head.at() else { return Err(unverified(head)) };
    head.verify(DOING, end)?;
    Ok(end.block)
}

fn stream(
    sink: &mut RecordSink<'_>,
    header: &IndexHeader,
    fill: &mut Fill<'_>,
) -> std::result::Result<(), Box<dyn Error + Send + Sync>> {
    let out: &mut dyn Write = sink;
    let mut writer = IndexWriter::new(out);
    writer.begin(header)?;
    fill(&mut writer)?;
    writer.finish()?;
    sink.end_record()?;
    Ok(())
}

fn mark(head: &mut Head, immediate: bool) -> Result<()> {
    match head.filemarks(1, immediate)? {
        Wrote::Good | Wrote::EarlyWarning => Ok(()),
        Wrote::Overflow => Err(full(head)),
    }
}

fn full(head: &Head) -> TapeError {
    let advice = "the data on it is safe and the previous index is whole; keep a larger index reserve";
    head.error(Fault::Full, Blame::Medium, DOING, "the partition has no room for the index", advice)
}

fn unverified(head: &Head) -> TapeError {
    head.error(Fault::Misuse, Blame::Us, DOING, "the end of the volume is not verified", "report this")
}
