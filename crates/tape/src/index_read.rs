//! Finding and reading the newest consistent index of a volume.

use crate::head::{Head, Item, Place};
use crate::layout::{DATA_PARTITION, FIRST_INDEX_MARK, INDEX_PARTITION};
use crate::records::RecordSource;
use crate::{Blame, Fault, Mounted, Result, coherency};
use format::ltfs::Partition;
use format::ltfs::index::{IndexEvent, IndexHeader, Location, parse};
use scsi::Ssc;
use std::ops::ControlFlow;

const DOING: &str = "reading the index";

/// An index that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundIndex {
    /// Its head: generation, where it lies, highest uid ...
    pub header: IndexHeader,
    /// True when the index partition does not hold the newest index (a crash; the next index written repairs it).
    pub index_partition_stale: bool,
}

/// The end of a volume, from the medium alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeEnd {
    /// Block of the newest index on the data partition; 0 if that is not there (it had no room for it).
    pub index_block: u64,
    /// Data partition: the block behind that index, where the next record goes; 0 without it.
    pub append_block: u64,
    /// Data partition: the end of data. Records between the two are listed nowhere.
    pub end_of_data: u64,
    /// Volume change reference.
    pub vcr: u64,
}

impl Mounted<'_> {
    /// Reads the newest whole index and hands its parts to `visit` (which may stop with `Break`). With coherent
    /// cartridge memory that is the one on the index partition; otherwise both partitions are searched from their ends.
    ///
    /// # Errors
    /// [`Fault::NotLtfs`]; [`Fault::NoIndex`] when neither partition ends with an index; [`Fault::BadRecord`] when the
    /// index is damaged: parts handed out before must not be taken for the whole.
    pub fn read_index(
        &mut self,
        visit: &mut dyn FnMut(IndexEvent<'_>) -> ControlFlow<()>,
    ) -> Result<FoundIndex> {
        let (found, partition) = self.newest()?;
        let size = self.ltfs(DOING)?.block_size as usize;
        let head = self.head();
        head.locate(Place { partition, block: found.header.location.block })?;
        let mut source = RecordSource::new(head, size);
        let parsed = parse(&mut source, visit);
        match (parsed, source.error.take()) {
            (_, Some(error)) => Err(error),
            (Err(error), None) => Err(head.bad_record(DOING, error.to_string())),
            (Ok(_), None) => Ok(found),
        }
    }

    /// Where the volume ends as far as its newest index tells, for whoever has lost all other records of it.
    ///
    /// # Errors
    /// The drive or the medium failed.
    pub fn survey(&mut self, found: &FoundIndex) -> Result<VolumeEnd> {
        let header = &found.header;
        let in_data = |at: &&Location| at.partition == Partition::DATA;
        let at = Some(&header.location).filter(in_data).or(header.previous.as_ref().filter(in_data));
        let newest = match at {
            Some(at) => header_at(self, DATA_PARTITION, at.block)?,
            None => None,
        };
        let newest = newest.filter(|data| data.generation == header.generation);
        let behind = match &newest {
            Some(data) => end_of(self, DATA_PARTITION, data.location.block)?.map(|end| (data, end)),
            None => None,
        };
        let (index_block, append_block) = behind.map_or((0, 0), |(data, end)| (data.location.block, end));
        let end_of_data = self.end_of_data(DATA_PARTITION)?;
        let vcr = coherency::vcr(self.head())?;
        Ok(VolumeEnd { index_block, append_block, end_of_data, vcr })
    }

    fn newest(&mut self) -> Result<(FoundIndex, u8)> {
        if let Some(header) = self.coherent_index()? {
            return Ok((FoundIndex { header, index_partition_stale: false }, INDEX_PARTITION));
        }
        let index = self.last_index(INDEX_PARTITION)?;
        let data = self.last_index(DATA_PARTITION)?;
        let generation = |found: &Option<IndexHeader>| found.as_ref().map_or(0, |h| h.generation);
        let index_partition_stale = generation(&data) > generation(&index);
        let (newest, partition) =
            if index_partition_stale { (data, DATA_PARTITION) } else { (index, INDEX_PARTITION) };
        let Some(header) = newest else {
            let advice = "use other copies; label the volume again when nothing on it is needed";
            let what = "no whole index was found on either partition";
            return Err(self.head().error(Fault::NoIndex, Blame::Medium, DOING, what, advice));
        };
        Ok((FoundIndex { header, index_partition_stale }, partition))
    }

    /// The index on the index partition, if cartridge memory says that nothing was written since it was.
    fn coherent_index(&mut self) -> Result<Option<IndexHeader>> {
        let uuid = self.ltfs(DOING)?.uuid.clone();
        let vcr = coherency::vcr(self.head())?;
        let index = coherency::read(self.head(), INDEX_PARTITION)?;
        let data = coherency::read(self.head(), DATA_PARTITION)?;
        let (Some(index), Some(data)) = (index, data) else { return Ok(None) };
        let coherent =
            vcr > 0 && index.vcr == vcr && data.vcr == vcr && index.uuid == uuid && data.uuid == uuid;
        if !coherent || data.generation > index.generation {
            return Ok(None);
        }
        let header = header_at(self, INDEX_PARTITION, index.block)?;
        Ok(header.filter(|h| h.generation == index.generation))
    }

    fn end_of_data(&mut self, partition: u8) -> Result<u64> {
        let head = self.head();
        if head.at().map(|at| at.partition) != Some(partition) && head.ask_position()?.partition != partition
        {
            head.locate(Place { partition, block: 0 })?;
        }
        head.forget_position();
        head.attempt("spacing to the end of data", Ssc::space_to_end_of_data)?;
        Ok(head.ask_position()?.block)
    }

    /// The last index of a partition that has a filemark behind it, searched backwards from the end of data.
    fn last_index(&mut self, partition: u8) -> Result<Option<IndexHeader>> {
        let mut end = self.end_of_data(partition)?;
        let mut behind_mark = false;
        loop {
            let mark = mark_before(self.head(), Place { partition, block: end })?;
            if mark < FIRST_INDEX_MARK {
                return Ok(None);
            }
            if behind_mark && let Some(header) = header_at(self, partition, mark + 1)? {
                return Ok(Some(header));
            }
            (end, behind_mark) = (mark, true);
        }
    }
}

/// Block of the last filemark before `place`; 0 if there is none (block 0 is VOL1).
fn mark_before(head: &mut Head, place: Place) -> Result<u64> {
    head.locate(place)?;
    head.forget_position();
    head.attempt("spacing back over a filemark", |ssc| ssc.space_filemarks(-1).map(|_| ()))?;
    Ok(head.ask_position()?.block)
}

/// The head of an index of this volume that starts at `block` and says so itself; None if there is none.
pub(crate) fn header_at(mounted: &mut Mounted<'_>, partition: u8, block: u64) -> Result<Option<IndexHeader>> {
    let label = mounted.ltfs(DOING)?;
    let (size, uuid) = (label.block_size as usize, label.uuid.clone());
    let letter = if partition == DATA_PARTITION { Partition::DATA } else { Partition::INDEX };
    let head = mounted.head();
    match head.locate(Place { partition, block }) {
        Err(e) if e.fault == Fault::DataMissing => return Ok(None),
        other => other?,
    }
    let mut source = RecordSource::new(head, size);
    let mut found = None;
    let _ = parse(&mut source, &mut |event| {
        if let IndexEvent::Header(header) = event {
            found = Some(header.clone());
        }
        ControlFlow::Break(())
    });
    match source.error.take() {
        Some(e) if !matches!(e.fault, Fault::MediumError | Fault::BadRecord) => return Err(e),
        _ => {}
    }
    let here = Location { partition: letter, block };
    Ok(found.filter(|h| h.volume_uuid == uuid && h.location == here))
}

/// The block behind the filemark that ends the index at `block`; None if there is no such filemark.
pub(crate) fn end_of(mounted: &mut Mounted<'_>, partition: u8, block: u64) -> Result<Option<u64>> {
    let head = mounted.head();
    head.locate(Place { partition, block })?;
    head.forget_position();
    head.attempt("spacing over the index", |ssc| ssc.space_filemarks(1).map(|_| ()))?;
    // Without a filemark the drive stopped at the end of data: see what the last object is.
    let end = head.ask_position()?.block;
    head.locate(Place { partition, block: end.saturating_sub(1) })?;
    match head.read(&mut [0; 1]) {
        Ok(Item::Filemark) => Ok(Some(end)),
        Ok(_) => Ok(None),
        Err(e) if matches!(e.fault, Fault::MediumError | Fault::BadRecord) => Ok(None),
        Err(e) => Err(e),
    }
}
