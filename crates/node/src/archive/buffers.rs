//! Memory for bytes on their way between disk and tape: a fixed number of buffers that are used again and again, so that
//! whoever is faster waits for the other.

use super::source::{PIECE, Skip};
use super::there::{Far, There};
use super::worker::Worker;
use crate::Node;
use crate::config::Config;
use crossbeam_channel::{Receiver, Sender};
use std::sync::Arc;
use tape::Load;
use wire::MAX_DEPOT;

/// Smallest buffer (bytes): one read of the disk, some records of the tape.
const SMALLEST: usize = 1 << 20;
/// Fewest buffers of a drive: one is filled while another is emptied, and one is on its way.
const FEWEST: usize = 3;

/// The buffers of one drive.
pub struct Buffers {
    /// Memory is made when a buffer is first used.
    free: Receiver<Vec<u8>>,
    home: Sender<Vec<u8>>,
    size: usize,
    /// Nobody empties buffers while another is filled: one more is made.
    grows: bool,
    /// So many may be kept by who empties them.
    keeps: usize,
    /// They are at the drive's host.
    there: Option<Arc<There>>,
}

impl Buffers {
    /// A drive's share of `tape.buffers`, in buffers of whole records of `record` bytes.
    pub fn of_drive(config: &Config, record: usize) -> Self {
        let record = record.max(1);
        if crate::clock::alone() {
            return Self { grows: true, keeps: usize::MAX, ..Self::new(0, record) };
        }
        let (count, size) = Self::share(config, record);
        Self::new(count, size)
    }

    /// The same for what a drive is to write: at its host, if that is another one.
    pub fn to_write(worker: &Worker, record: usize) -> Self {
        let here = Self::of_drive(&worker.node.settings(), record);
        if here.grows {
            return here;
        }
        let (count, size) = Self::share(&worker.node.settings(), record);
        let count = count.min((MAX_DEPOT as usize / size).saturating_sub(1)).max(FEWEST);
        // One more takes what is left of a buffer that was given back: the beginning of a record.
        match There::of(worker, (count as u64 + 1) * size as u64) {
            Some(there) => Self { there: Some(there), ..Self::new(count, size) },
            None => here,
        }
    }

    /// The same for what a drive reads at another host: each is filled by at most one record of `record` bytes there. None: it is at no other host, or that
    /// makes no depots.
    pub fn to_read_there(worker: &Worker, record: usize) -> Option<Self> {
        if crate::clock::alone() {
            return None;
        }
        let (config, record) = (worker.node.settings(), record.max(1));
        let share = config.tape.buffers.0 / config.drives().max(1) as u64;
        let most = (MAX_DEPOT as usize / record).saturating_sub(2);
        let count = (usize::try_from(share).unwrap_or(usize::MAX) / record).min(most).max(FEWEST);
        // Two more: the one that is just read, and the one before, of which the next file may have the beginning.
        let bytes = (count as u64 + 2) * record as u64;
        Some(Self { there: Some(There::of(worker, bytes)?), ..Self::new(count, record) })
    }

    /// A buffer of what lies at a place of the stream there; waits until there may be one more.
    pub fn holding(&self, at: u64, bytes: usize) -> Buffer {
        let mut buffer = self.at(at);
        buffer.used = bytes;
        buffer
    }

    /// Number of buffers, and size of each.
    fn share(config: &Config, record: usize) -> (usize, usize) {
        let record = record.max(1);
        let size = record * SMALLEST.div_ceil(record);
        let share = config.tape.buffers.0 / config.drives().max(1) as u64;
        (usize::try_from(share).unwrap_or(usize::MAX) / size, size)
    }

    fn new(count: usize, size: usize) -> Self {
        let (home, free) = crossbeam_channel::unbounded();
        let count = count.max(FEWEST);
        for _ in 0..count {
            let _ = home.send(Vec::new());
        }
        Self { free, home, size, grows: false, keeps: count / 2, there: None }
    }

    /// The first buffer, empty; waits until there is one.
    pub fn take(&self) -> Buffer {
        self.at(0)
    }

    /// An empty buffer for what follows another one in the stream; waits until there is one.
    pub fn after(&self, before: &Buffer) -> Buffer {
        self.at(before.at + before.used as u64)
    }

    fn at(&self, at: u64) -> Buffer {
        // `self` holds the other end, so this does not fail.
        let mut bytes = match self.grows {
            true => self.free.try_recv().unwrap_or_default(),
            false => self.free.recv().unwrap_or_default(),
        };
        let here = if self.there.is_some() { PIECE } else { self.size + tape::SPARE };
        bytes.resize(here, 0);
        Buffer { bytes, used: 0, size: self.size, at, there: self.there.clone(), home: self.home.clone() }
    }

    /// How many of them may be kept without anything being done with them: who fills them has the others.
    pub fn keeps(&self) -> usize {
        self.keeps
    }

    /// Where they are, if that is another host.
    pub fn there(&self) -> Option<&Arc<There>> {
        self.there.as_ref()
    }

    /// Whether they are at a host that is gone.
    pub fn are_gone(&self) -> bool {
        self.there.as_ref().is_some_and(|there| there.is_gone())
    }
}

/// A buffer and how much of it is filled. Goes back where it came from when dropped.
pub struct Buffer {
    /// Its memory; of one at another host memory for what passes through here.
    bytes: Vec<u8>,
    used: usize,
    size: usize,
    /// Where it begins in the stream.
    at: u64,
    there: Option<Arc<There>>,
    home: Sender<Vec<u8>>,
}

impl Buffer {
    /// Memory for one read of which nothing is kept.
    pub fn scratch() -> Self {
        let (home, _) = crossbeam_channel::unbounded();
        Self { bytes: vec![0; PIECE + tape::SPARE], used: 0, size: PIECE, at: 0, there: None, home }
    }

    /// How many bytes have been filled.
    pub fn len(&self) -> usize {
        self.used
    }

    /// How many are empty.
    pub fn space(&self) -> usize {
        self.size - self.used
    }

    /// What has been filled of one that is here.
    pub fn filled(&self) -> &[u8] {
        if self.there.is_some() { &[] } else { &self.bytes[..self.used] }
    }

    /// Where it lies, if that is at another host.
    pub fn there(&self) -> Option<(u64, usize)> {
        self.there.as_ref().map(|_| (self.at, self.used))
    }

    /// Brings what it holds here, if it is elsewhere.
    pub fn bring(&mut self) -> Result<(), String> {
        if let Some(there) = &self.there {
            self.bytes = there.get(self.at, self.used)?;
            self.bytes.resize(self.size + tape::SPARE, 0);
            self.there = None;
        }
        Ok(())
    }

    /// Takes as many bytes as there is space for; how many.
    pub fn put(&mut self, bytes: &[u8]) -> Result<usize, Skip> {
        let n = self.space().min(bytes.len());
        match &self.there {
            Some(there) => there.put(self.at + self.used as u64, &bytes[..n])?,
            None => self.bytes[self.used..self.used + n].copy_from_slice(&bytes[..n]),
        }
        self.used += n;
        Ok(n)
    }

    /// Takes what `read` puts into memory of at most `most` bytes, if it is to be kept; how many bytes.
    pub fn read(
        &mut self,
        most: usize,
        keep: bool,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Skip>,
    ) -> Result<usize, Skip> {
        let most = most.min(PIECE).min(self.space());
        let start = if self.there.is_some() { 0 } else { self.used };
        let got = read(&mut self.bytes[start..start + most])?;
        if keep {
            if let Some(there) = &self.there {
                there.put(self.at + self.used as u64, &self.bytes[..got])?;
            }
            self.used += got;
        }
        Ok(got)
    }

    /// Takes what a file has, read where this one is, if it is to be kept; how many bytes. `read` reads it here, for the moments in which it cannot be read there.
    pub fn fetch(
        &mut self,
        node: &Node,
        far: &mut Far,
        (offset, most, keep): (u64, usize, bool),
        read: impl FnOnce(&mut [u8]) -> Result<usize, Skip>,
    ) -> Result<usize, Skip> {
        let at = keep.then_some(self.at + self.used as u64);
        let most = if keep { most.min(self.space()) } else { most };
        let got = match far.fetch(node, at, offset, most)? {
            Some(got) => got,
            None => {
                let mut bytes = vec![0; most.min(PIECE)];
                let got = read(&mut bytes)?;
                far.put(at, offset, &bytes[..got])?;
                got
            }
        };
        if keep {
            self.used += got;
        }
        Ok(got)
    }

    /// The first `n` bytes, as the drive is to have them.
    pub fn load(&mut self, n: usize) -> Load<'_> {
        let n = n.min(self.used);
        match &self.there {
            Some(there) => there.load(self.at, n),
            None => Load::Here(&mut self.bytes[..n + tape::SPARE]),
        }
    }

    /// Keeps only the first `n` bytes.
    pub fn truncate(&mut self, n: usize) {
        self.used = self.used.min(n);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let _ = self.home.send(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_hold_whole_records_and_no_more_than_their_share() {
        let mut config = Config::default();
        config.library.drives = 2;
        config.tape.buffers = crate::Size::mib(20);
        for (record, size, count) in [(512 << 10, 1 << 20, 10), (3 << 19, 3 << 19, 6), (8 << 20, 8 << 20, 3)]
        {
            let buffers = Buffers::of_drive(&config, record);
            let mut taken: Vec<Buffer> = (0..count).map(|_| buffers.take()).collect();
            assert!(buffers.free.is_empty(), "{record}");
            assert_eq!(taken[0].space(), size);
            taken.pop();
            assert_eq!(buffers.free.len(), 1, "it came back");
        }
    }
}
