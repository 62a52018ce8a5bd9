//! Reading extents: forward in one stream where they follow each other.

use crate::head::{Item, Place};
use crate::{LabelState, Mounted, Result};
use std::ops::ControlFlow;
use types::Extent;

const DOING: &str = "reading data";

impl Mounted<'_> {
    /// Reads an extent of the data partition (of a volume without partitions: of that) and hands it to `sink` in pieces, each with its offset in the file; the
    /// slice is valid during the call. `sink` may stop with `Break`, which is returned. The tape moves only if the
    /// extent does not begin in the record read last or the one behind it.
    ///
    /// # Errors
    /// [`crate::Fault::NotLtfs`]; [`crate::Fault::BadRecord`] when the records are not as long as the extent needs;
    /// medium and drive errors. Bytes handed out before an error are as they were on the medium.
    pub fn read(
        &mut self,
        extent: &Extent,
        sink: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if matches!(self.label, LabelState::Tar(_)) {
            return self.read_tar(extent, sink);
        }
        let (partition, block_size) = self.data(DOING)?;
        let (mut block, mut skip) = (extent.start_block, extent.byte_offset as usize);
        let (mut offset, mut left) = (extent.file_offset, extent.byte_count);
        while left > 0 {
            self.load_record(Place { partition, block }, block_size)?;
            let wanted = usize::try_from(left).unwrap_or(usize::MAX);
            let end = block_size.min(skip.saturating_add(wanted));
            let Some(piece) = self.record.get(skip..end).filter(|piece| !piece.is_empty()) else {
                return Err(self.short_record(block, end));
            };
            if sink(offset, piece).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            offset += piece.len() as u64;
            left -= piece.len() as u64;
            (block, skip) = (block + 1, 0);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Has the record at a place in `self.record`.
    fn load_record(&mut self, at: Place, block_size: usize) -> Result<()> {
        let block = at.block;
        if self.record_block == Some(block) {
            return Ok(());
        }
        self.record_block = None;
        self.drive.head.locate(at)?;
        self.record.resize(block_size, 0);
        match self.drive.head.read(&mut self.record)? {
            Item::Record(n) => self.record.truncate(n),
            Item::Filemark => {
                let what = format!("block {block} is a filemark where a record was recorded");
                return Err(self.head().bad_record(DOING, what));
            }
            Item::EndOfData => {
                let what = format!("the data ends before block {block}");
                return Err(self.head().bad_record(DOING, what));
            }
        }
        self.record_block = Some(block);
        Ok(())
    }

    fn short_record(&mut self, block: u64, needed: usize) -> crate::TapeError {
        let what = format!("block {block} has {} bytes where {needed} were recorded", self.record.len());
        self.record_block = None;
        self.head().bad_record(DOING, what)
    }
}
