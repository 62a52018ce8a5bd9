//! Reading extents: forward in one stream where they follow each other.

use crate::head::{Item, Place};
use crate::{LabelState, Mounted, Result};
use scsi::There;
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
                return Err(self.short_record((block, self.record.len()), end));
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

    /// The same into a depot at the drive's host, where records follow each other from `next` on: `sink` is told where the bytes of a piece lie there. Not
    /// of archives of other programs.
    ///
    /// # Errors
    /// As [`Mounted::read`].
    pub fn read_there(
        &mut self,
        extent: &Extent,
        (depot, next): (u64, &mut u64),
        sink: &mut dyn FnMut(u64, There) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let (partition, block_size) = self.data(DOING)?;
        let (mut block, mut skip) = (extent.start_block, extent.byte_offset as usize);
        let (mut offset, mut left) = (extent.file_offset, extent.byte_count);
        while left > 0 {
            let place = There { depot, at: *next, bytes: block_size, sealed: false };
            let record = self.load_record_there(Place { partition, block }, place)?;
            let wanted = usize::try_from(left).unwrap_or(usize::MAX);
            let end = block_size.min(skip.saturating_add(wanted));
            if skip >= end || end > record.bytes {
                return Err(self.short_record((block, record.bytes), end));
            }
            *next = record.at + record.bytes as u64;
            let piece = There { at: record.at + skip as u64, bytes: end - skip, ..record };
            if sink(offset, piece).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            offset += piece.bytes as u64;
            left -= piece.bytes as u64;
            (block, skip) = (block + 1, 0);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Has the record of a block in a depot, at this place if it is not there already; where.
    fn load_record_there(&mut self, at: Place, place: There) -> Result<There> {
        let known = self.record_there.filter(|known| known.depot == place.depot);
        if let Some(known) = known.filter(|_| self.record_block == Some(at.block)) {
            return Ok(known);
        }
        (self.record_block, self.record_there) = (None, None);
        self.drive.head.locate(at)?;
        let item = self.drive.head.read_there(place)?;
        let record = There { bytes: self.is_record(item, at.block)?, ..place };
        (self.record_block, self.record_there) = (Some(at.block), Some(record));
        Ok(record)
    }

    /// Has the record at a place in `self.record`.
    fn load_record(&mut self, at: Place, block_size: usize) -> Result<()> {
        let block = at.block;
        if self.record_block == Some(block) && self.record_there.is_none() {
            return Ok(());
        }
        (self.record_block, self.record_there) = (None, None);
        self.drive.head.locate(at)?;
        self.record.resize(block_size, 0);
        let item = self.drive.head.read(&mut self.record)?;
        let n = self.is_record(item, block)?;
        self.record.truncate(n);
        self.record_block = Some(block);
        Ok(())
    }

    /// Bytes of the record that a block has to be.
    fn is_record(&mut self, item: Item, block: u64) -> Result<usize> {
        match item {
            Item::Record(n) => Ok(n),
            Item::Filemark => {
                let what = format!("block {block} is a filemark where a record was recorded");
                Err(self.head().bad_record(DOING, what))
            }
            Item::EndOfData => {
                let what = format!("the data ends before block {block}");
                Err(self.head().bad_record(DOING, what))
            }
        }
    }

    fn short_record(&mut self, (block, found): (u64, usize), needed: usize) -> crate::TapeError {
        let what = format!("block {block} has {found} bytes where {needed} were recorded");
        self.record_block = None;
        self.head().bad_record(DOING, what)
    }
}
