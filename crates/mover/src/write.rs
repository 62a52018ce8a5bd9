//! Writing bytes and setting the length, with their sums, exactly once.

use crate::object::Object;
use crate::read::is_all_there_is;
use crate::sidecar::{Done, Sidecar};
use crate::target::{Target, refused};
use data::Refusal;
use data::sum::{self, BLOCK, BlockPiece};
use rustix::fs;
use rustix::io::Errno;
use types::ObjectId;

impl Target {
    /// Writes `bytes` at `offset` of an object; `parts` are those of the bytes ([`sum::parts`]). Gives the length of the object.
    /// What the channel has done before is not done again.
    ///
    /// # Errors
    /// `Sums`: nothing was written. `Missing`, `Corrupt`, `NoSpace`, `Disk`: some of the bytes may be written, with true sums.
    pub(crate) fn write(
        &self,
        id: ObjectId,
        generation: u64,
        offset: u64,
        bytes: &[u8],
        parts: &[u32],
        done: Done,
    ) -> Result<u64, Refusal> {
        if sum::parts(offset, bytes) != parts {
            return Err(Refusal::Sums);
        }
        let object = self.object(id)?;
        let _passed = object.gate.read();
        object.admits(generation)?;
        if object.done_by(done) >= Some(done.sequence) {
            return object.length();
        }
        if !bytes.is_empty() {
            object.begin(&self.intents, offset, bytes.len() as u64)?;
            let _blocks = object.lock(offset, bytes.len());
            object.put(offset, bytes, parts)?;
        }
        object.note(done)?;
        object.length()
    }

    /// Sets the length of an object; what is new is zeros.
    ///
    /// # Errors
    /// As [`Target::write`].
    pub(crate) fn set_length(
        &self,
        id: ObjectId,
        generation: u64,
        length: u64,
        done: Done,
    ) -> Result<u64, Refusal> {
        let object = self.object(id)?;
        let _all = object.gate.write();
        object.admits(generation)?;
        if object.done_by(done) >= Some(done.sequence) {
            return object.length();
        }
        object.begin_to_the_end(&self.intents, length)?;
        if length < object.length()? {
            object.cut_sums(length)?;
            object.gave_back(length);
        }
        fs::ftruncate(&object.file, length).map_err(|e| object.failed("setting the length of", e))?;
        object.note(done)?;
        object.length()
    }
}

impl Object {
    /// Writes bytes and the sums of their blocks, whose locks are held.
    fn put(&self, offset: u64, bytes: &[u8], parts: &[u32]) -> Result<(), Refusal> {
        let Some(sidecar) = self.summed() else {
            return self.put_bytes(offset, bytes).1;
        };
        let pieces: Vec<BlockPiece> = sum::pieces(offset, bytes.len()).collect();
        let first = offset / BLOCK as u64;
        let length = self.length()?;
        let mut sums = sidecar.sums(first, pieces.len()).map_err(refused)?;
        for ((piece, sum), part) in pieces.iter().zip(&mut sums).zip(parts) {
            *sum = match is_all_there_is(piece, length) {
                true => *part,
                // The rest of the block is neither read nor trusted.
                false => *sum ^ self.old_part(piece)? ^ part,
            };
        }
        let (written, outcome) = self.put_bytes(offset, bytes);
        if outcome.is_err() {
            // What is there now is a part of the new bytes and a part of the old ones.
            let touched = sum::touched(offset, written as u64) as usize;
            for (piece, sum) in pieces[..touched].iter().zip(&mut sums) {
                if piece.from + piece.length > written {
                    *sum = sum::part(0, &self.block(piece.block)?);
                }
            }
            sums.truncate(touched);
        }
        sidecar.write_sums(first, &sums).map_err(refused)?;
        outcome
    }

    /// The part of the bytes that lie now where a piece is to be written.
    fn old_part(&self, piece: &BlockPiece) -> Result<u32, Refusal> {
        let mut old = vec![0; piece.length];
        let got = self.get_bytes(piece.block * BLOCK as u64 + piece.at as u64, &mut old)?;
        Ok(sum::part(piece.at, &old[..got]))
    }

    /// A block as the disk has it; shorter at the end of the object.
    pub(crate) fn block(&self, number: u64) -> Result<Vec<u8>, Refusal> {
        let mut bytes = vec![0; BLOCK];
        let got = self.get_bytes(number * BLOCK as u64, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Makes the sums those of an object that ends at `length`, before it does.
    fn cut_sums(&self, length: u64) -> Result<(), Refusal> {
        let Some(sidecar) = self.summed() else { return Ok(()) };
        let (block, at) = (length / BLOCK as u64, (length % BLOCK as u64) as usize);
        if at == 0 {
            return sidecar.cut(block).map_err(refused);
        }
        let gone = BlockPiece { block, at, from: 0, length: BLOCK - at };
        let sum = self.sum_of(sidecar, block)? ^ self.old_part(&gone)?;
        sidecar.write_sums(block, &[sum]).and_then(|()| sidecar.cut(block + 1)).map_err(refused)
    }

    pub(crate) fn sum_of(&self, sidecar: &Sidecar, block: u64) -> Result<u32, Refusal> {
        Ok(sidecar.sums(block, 1).map_err(refused)?[0])
    }

    /// Writes; says how many bytes it could.
    fn put_bytes(&self, offset: u64, bytes: &[u8]) -> (usize, Result<(), Refusal>) {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.file, &bytes[done..], offset + done as u64) {
                Ok(0) => return (done, Err(self.failed("writing", Errno::IO))),
                Ok(sent) => done += sent,
                Err(Errno::INTR) => {}
                Err(e) => return (done, Err(self.failed("writing", e))),
            }
        }
        (done, Ok(()))
    }

    /// Reads until `into` is full or the object ends; says how much it got.
    pub(crate) fn get_bytes(&self, offset: u64, into: &mut [u8]) -> Result<usize, Refusal> {
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.file, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.failed("reading", e)),
            }
        }
        Ok(done)
    }
}
