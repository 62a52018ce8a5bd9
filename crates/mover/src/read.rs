//! Reading bytes with the sums that were stored when they were written.

use crate::object::Object;
use crate::sidecar::Sidecar;
use crate::target::{Target, disk_refused, refused};
use data::Refusal;
use data::sum::{self, BLOCK, BlockPiece};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use types::ObjectId;

/// What is answered to a read.
pub struct Content {
    /// Length of the object (bytes).
    pub object_length: u64,
    /// How many bytes there are: fewer than asked for at the end of the object.
    pub length: usize,
    /// For each block that is touched, the part of the bytes in it.
    pub parts: Vec<u32>,
    /// Where the bytes are.
    pub source: Source,
}

/// Where bytes that were read are.
pub enum Source {
    /// In the file of the object, from this offset on: sent without being looked at. Whoever gets them compares.
    File(Arc<dyn std::os::fd::AsFd + Send + Sync>, u64),
    /// Here, compared with their sums.
    Memory(Vec<u8>),
}

impl Content {
    /// How many bytes are sent.
    pub(crate) fn available(&self) -> usize {
        match &self.source {
            Source::File(..) => self.length,
            Source::Memory(bytes) => bytes.len(),
        }
    }
}

impl std::os::fd::AsFd for Object {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Target {
    /// Reads at most `length` bytes at `offset` of an object. With `settled` they are compared with their sums while nobody writes.
    ///
    /// # Errors
    /// `Missing`, `Corrupt`, `Disk`.
    pub(crate) fn read(
        &self,
        id: ObjectId,
        generation: u64,
        offset: u64,
        length: usize,
        settled: bool,
    ) -> Result<Content, Refusal> {
        let object = self.object(id)?;
        let passed = object.gate.read();
        object.admits(generation)?;
        if settled && let Some(sidecar) = object.summed() {
            return object.settled(sidecar, offset, length);
        }
        let object_length = object.length()?;
        let length = length.min(available(object_length, offset));
        let (parts, source) = match object.summed() {
            None => {
                let bytes = object.get_exactly(offset, length)?;
                (sum::parts(offset, &bytes), Source::Memory(bytes))
            }
            Some(sidecar) => {
                let parts = object.true_parts(sidecar, offset, length, object_length, false)?;
                drop(passed);
                (parts, Source::File(object, offset))
            }
        };
        Ok(Content { object_length, length, parts, source })
    }

    /// A descriptor of an object, by which it can be read and nothing else, and the object's length (bytes).
    ///
    /// # Errors
    /// `Missing`, `Fenced`, `Busy`, `Disk`.
    pub(crate) fn descriptor(&self, id: ObjectId, generation: u64) -> Result<(u64, OwnedFd), Refusal> {
        let object = self.object(id)?;
        let _passed = object.gate.read();
        object.admits(generation)?;
        object.lend();
        let descriptor = self.with_room(|| self.disk.open_object(id, false).map_err(disk_refused))?;
        Ok((object.length()?, descriptor))
    }
}

/// Bytes that an object of a length has from an offset on.
fn available(object_length: u64, offset: u64) -> usize {
    usize::try_from(object_length.saturating_sub(offset)).unwrap_or(usize::MAX)
}

impl Object {
    /// A range while nobody writes it.
    fn settled(&self, sidecar: &Sidecar, offset: u64, length: usize) -> Result<Content, Refusal> {
        let _blocks = self.lock(offset, length);
        // Only now: who makes it longer changes of what the sum of its last block is.
        let object_length = self.length()?;
        let length = length.min(available(object_length, offset));
        let parts = self.true_parts(sidecar, offset, length, object_length, true)?;
        let bytes = self.get_exactly(offset, length)?;
        if sum::parts(offset, &bytes) != parts {
            return Err(self.corrupt(offset / BLOCK as u64, "a block"));
        }
        Ok(Content { object_length, length, parts, source: Source::Memory(bytes) })
    }

    /// For each block of a range the part of the bytes in it: of a whole block the sum that is stored; of a piece, once the block has
    /// been found to have its sum, what is computed. `locked`: the caller has the locks of the blocks.
    fn true_parts(
        &self,
        sidecar: &Sidecar,
        offset: u64,
        length: usize,
        object_length: u64,
        locked: bool,
    ) -> Result<Vec<u32>, Refusal> {
        let touched = sum::touched(offset, length as u64) as usize;
        let mut parts = sidecar.sums(offset / BLOCK as u64, touched).map_err(refused)?;
        for (piece, part) in sum::pieces(offset, length).zip(&mut parts) {
            if !is_all_there_is(&piece, object_length) {
                let _block = (!locked).then(|| self.lock(piece.block * BLOCK as u64, 1));
                *part = self.part_of_checked(sidecar, &piece)?;
            }
        }
        Ok(parts)
    }

    fn part_of_checked(&self, sidecar: &Sidecar, piece: &BlockPiece) -> Result<u32, Refusal> {
        let block = self.block(piece.block)?;
        if sum::part(0, &block) != self.sum_of(sidecar, piece.block)? {
            return Err(self.corrupt(piece.block, "block"));
        }
        let end = (piece.at + piece.length).min(block.len());
        Ok(sum::part(piece.at, &block[piece.at.min(end)..end]))
    }

    fn get_exactly(&self, offset: u64, length: usize) -> Result<Vec<u8>, Refusal> {
        let mut bytes = vec![0; length];
        let got = self.get_bytes(offset, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    pub(crate) fn corrupt(&self, block: u64, what: &str) -> Refusal {
        Refusal::Corrupt(format!(
            "{what} {block} (64 KiB each) of object {} ({}) is not what was written; it has to be restored from redundancy or tape",
            self.id,
            self.path.display()
        ))
    }
}

/// Whether a piece is its whole block, or all of it that there is before the end of the object: then its part is the sum of the block.
pub(crate) fn is_all_there_is(piece: &BlockPiece, object_length: u64) -> bool {
    piece.at == 0 && (piece.is_whole() || piece.block * BLOCK as u64 + piece.length as u64 >= object_length)
}
