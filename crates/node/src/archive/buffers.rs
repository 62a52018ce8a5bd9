//! Memory for bytes on their way between disk and tape: a fixed number of buffers that are used again and again, so that
//! whoever is faster waits for the other.

use crate::config::Config;
use crossbeam_channel::{Receiver, Sender};

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
}

impl Buffers {
    /// A drive's share of `tape.buffers`, in buffers of whole records of `record` bytes.
    pub fn of_drive(config: &Config, record: usize) -> Self {
        let record = record.max(1);
        if crate::clock::alone() {
            return Self { grows: true, ..Self::new(0, record) };
        }
        let size = record * SMALLEST.div_ceil(record);
        let share = config.tape.buffers.0 / config.drives().max(1) as u64;
        Self::new(usize::try_from(share).unwrap_or(usize::MAX) / size, size)
    }

    fn new(count: usize, size: usize) -> Self {
        let (home, free) = crossbeam_channel::unbounded();
        for _ in 0..count.max(FEWEST) {
            let _ = home.send(Vec::new());
        }
        Self { free, home, size, grows: false }
    }

    /// An empty buffer; waits until there is one.
    pub fn take(&self) -> Buffer {
        // `self` holds the other end, so this does not fail.
        let mut bytes = match self.grows {
            true => self.free.try_recv().unwrap_or_default(),
            false => self.free.recv().unwrap_or_default(),
        };
        bytes.resize(self.size + tape::SPARE, 0);
        Buffer { bytes, used: 0, home: self.home.clone() }
    }
}

/// A buffer and how much of it is filled. Goes back where it came from when dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    used: usize,
    home: Sender<Vec<u8>>,
}

impl Buffer {
    /// What has been filled.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// What is still empty; [`Buffer::fill`] says how much of it is to be kept.
    pub fn room(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - tape::SPARE;
        &mut self.bytes[self.used..end]
    }

    /// The first `n` bytes, with as many behind them as the drive wants.
    pub fn lent(&mut self, n: usize) -> &mut [u8] {
        &mut self.bytes[..n.min(self.used) + tape::SPARE]
    }

    /// Keeps `n` bytes more.
    pub fn fill(&mut self, n: usize) {
        self.used = (self.used + n).min(self.bytes.len() - tape::SPARE);
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
            assert_eq!(taken[0].room().len(), size);
            taken.pop();
            assert_eq!(buffers.free.len(), 1, "it came back");
        }
    }
}
