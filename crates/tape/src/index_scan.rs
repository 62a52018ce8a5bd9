//! The short way to all that an LTFS volume tells: its newest index, read where the data ends.
//!
//! Whoever has lost all records of a volume must learn where it ends, so the drive goes there in any case. Reading the
//! index partition before would cost the way there and back, longer than the index itself takes.

use crate::head::{Item, Place};
use crate::layout::{DATA_PARTITION, INDEX_PARTITION};
use crate::records::RecordSource;
use crate::{Fault, FoundIndex, Mounted, Result, VolumeEnd, coherency};
use format::ltfs::Partition;
use format::ltfs::index::{IndexEvent, IndexHeader, Location, parse};
use scsi::Ssc;
use std::io::BufRead;
use std::ops::ControlFlow;

const DOING: &str = "reading the index";

impl Mounted<'_> {
    /// Reads the newest index of the data partition and hands its parts to `visit`, where cartridge memory says that both
    /// partitions have it and nothing was written since; with where the volume ends, unless `visit` has stopped before. None,
    /// with nothing handed out, where cartridge memory does not say so or it is not there: then [`Mounted::read_index`]
    /// searches.
    ///
    /// # Errors
    /// The index is damaged, or the drive failed: parts handed out before must not be taken for the whole.
    /// [`Mounted::read_index`] may still find it on the index partition.
    pub fn scan_index(
        &mut self,
        visit: &mut dyn FnMut(IndexEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Option<(FoundIndex, Option<VolumeEnd>)>> {
        let label = self.ltfs(DOING)?;
        let (uuid, size) = (label.uuid.clone(), label.block_size as usize);
        let head = self.head();
        let vcr = coherency::vcr(head)?;
        let index = coherency::read(head, INDEX_PARTITION)?.filter(|c| c.vcr == vcr && c.uuid == uuid);
        let data = coherency::read(head, DATA_PARTITION)?.filter(|c| c.vcr == vcr && c.uuid == uuid);
        let (Some(index), Some(data)) = (index, data) else { return Ok(None) };
        // Another generation: the node died while the volume was filled, or the data partition had no room for the last one.
        if vcr == 0 || index.generation != data.generation {
            return Ok(None);
        }
        match head.locate(Place { partition: DATA_PARTITION, block: data.block }) {
            Err(e) if not_there(e.fault) => return Ok(None),
            other => other?,
        }
        let here = Location { partition: Partition::DATA, block: data.block };
        let mut source = RecordSource::new(head, size);
        let (mut header, mut stopped): (Option<IndexHeader>, bool) = (None, false);
        let parsed = parse(&mut source, &mut |event| {
            if let IndexEvent::Header(found) = &event {
                let right = found.volume_uuid == uuid && found.location == here;
                if !right || found.generation != data.generation {
                    return ControlFlow::Break(());
                }
                header = Some((*found).clone());
            }
            let flow = visit(event);
            stopped = flow.is_break();
            flow
        });
        // The filemark behind it, unless the rest is not wanted.
        let mark = if parsed.is_ok() && !stopped && header.is_some() { drain(&mut source) } else { None };
        let error = source.error.take();
        let Some(header) = header else {
            // Nothing was handed out.
            return error.filter(|e| !not_there(e.fault)).map_or(Ok(None), Err);
        };
        if let Some(error) = error {
            return Err(error);
        }
        if let Err(error) = parsed {
            return Err(self.head().bad_record(DOING, error.to_string()));
        }
        let found = FoundIndex { header, index_partition_stale: false };
        if stopped {
            return Ok(Some((found, None)));
        }
        if mark != Some(Item::Filemark) {
            return Err(self.head().bad_record(DOING, "no filemark follows the index"));
        }
        let head = self.head();
        let append_block = head.ask_position()?.block;
        head.forget_position();
        head.attempt("spacing to the end of data", Ssc::space_to_end_of_data)?;
        let end_of_data = head.ask_position()?.block;
        let end = VolumeEnd { index_block: data.block, append_block, end_of_data, vcr };
        Ok(Some((found, Some(end))))
    }
}

/// The medium has nothing of use there.
pub(crate) fn not_there(fault: Fault) -> bool {
    matches!(fault, Fault::DataMissing | Fault::MediumError | Fault::BadRecord)
}

/// Reads on to what ends the stream.
pub(crate) fn drain(source: &mut RecordSource<'_>) -> Option<Item> {
    while let Ok(bytes) = source.fill_buf() {
        let n = bytes.len();
        if n == 0 {
            break;
        }
        source.consume(n);
    }
    source.ended.take()
}
