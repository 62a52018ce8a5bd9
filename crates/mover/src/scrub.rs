//! Scrubbing: blocks are read and compared with their sums, before somebody needs them.

use crate::object::Object;
use crate::target::{Target, disk_refused};
use data::Refusal;
use data::sum::{self, BLOCK};
use rustix::fs;
use rustix::io::Errno;
use std::ops::ControlFlow;
use types::ObjectId;

/// What a part of an object was found to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Blocks of 64 KiB that are not what was written, by their number in the object: to be repaired from redundancy or tape.
    pub bad: Vec<u64>,
    /// How many bytes were read; holes are not.
    pub bytes: u64,
    /// The block with which the object goes on; none at its end.
    pub next: Option<u64>,
}

impl Target {
    /// All objects, in order.
    ///
    /// # Errors
    /// The disk fails.
    pub fn objects(&self) -> Result<Vec<ObjectId>, Refusal> {
        let mut all = Vec::new();
        let listed = self.disk.list(&mut |found| {
            if let disk::Found::Object(id) = found {
                all.push(id);
            }
            ControlFlow::Continue(())
        });
        listed.map_err(disk_refused)?;
        all.sort_unstable();
        Ok(all)
    }

    /// Compares at most `most` blocks of an object, from block `first` on, with their sums. Bytes come from the disk if they have not been read
    /// lately. Who scrubs a whole target calls this again and again, at the pace that he wants, and goes on later where he was.
    ///
    /// An object without sums has nothing to be compared with: it is at its end at once.
    ///
    /// # Errors
    /// `Missing`, `Corrupt` (the file of sums itself), `Disk`: whether it is what was written is not known.
    pub fn scrub(&self, id: ObjectId, first: u64, most: u64) -> Result<Scrubbed, Refusal> {
        let object = self.object(id)?;
        let mut scrubbed = Scrubbed::default();
        let Some(sidecar) = object.summed() else { return Ok(scrubbed) };
        let blocks = object.length()?.div_ceil(BLOCK as u64);
        let end = blocks.min(first.saturating_add(most));
        let mut hole = 0..0;
        for number in first..end {
            if number >= hole.end {
                hole = number..object.data_from(number)?.min(end);
            }
            let _passed = object.gate.read();
            let _block = object.lock(number * BLOCK as u64, 1);
            let stored = object.sum_of(sidecar, number)?;
            // What has a sum may have been written since the hole was seen.
            if hole.contains(&number) && stored == 0 {
                continue;
            }
            let bytes = object.block(number)?;
            scrubbed.bytes += bytes.len() as u64;
            if sum::part(0, &bytes) != stored {
                scrubbed.bad.push(number);
            }
        }
        scrubbed.next = (end < blocks).then_some(end);
        Ok(scrubbed)
    }
}

impl Target {
    /// Compares the blocks of a range with their sums, for a client that wants none of the bytes; how many bytes were read.
    ///
    /// # Errors
    /// `Corrupt` names the first one that is not what was written; `Missing`, `Fenced`, `Disk`.
    pub(crate) fn compare(
        &self,
        id: ObjectId,
        generation: u64,
        offset: u64,
        length: u64,
    ) -> Result<u64, Refusal> {
        let object = self.object(id)?;
        object.admits(generation)?;
        let first = offset / BLOCK as u64;
        let end = offset.saturating_add(length).div_ceil(BLOCK as u64);
        let scrubbed = self.scrub(id, first, end.saturating_sub(first))?;
        match scrubbed.bad.first() {
            Some(block) => Err(object.corrupt(*block, "a block")),
            None => Ok(scrubbed.bytes),
        }
    }
}

impl Object {
    /// The first block from one on of which the disk has something; one behind all if it has nothing there.
    fn data_from(&self, number: u64) -> Result<u64, Refusal> {
        match fs::seek(&self.file, fs::SeekFrom::Data(number * BLOCK as u64)) {
            Ok(at) => Ok(at / BLOCK as u64),
            Err(Errno::NXIO) => Ok(u64::MAX),
            // The file system does not say.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(number),
            Err(e) => Err(self.failed("looking for holes in", e)),
        }
    }
}
