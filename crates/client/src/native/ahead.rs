//! Read-ahead for who reads in order: pieces are asked for before they are wanted, over all connections of the file.

use super::port::{Port, Ports};
use super::{Done, PIECE};
use crossbeam_channel::{Receiver, bounded};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Longest time for which bytes that came ahead are handed out: others may have changed them since.
pub const FRESH: Duration = Duration::from_secs(1);

type Arrived = (Instant, Done<Vec<u8>>);

#[derive(Debug)]
struct Piece {
    offset: u64,
    len: usize,
    from: Receiver<Arrived>,
}

/// Where a reader is, and what was asked for ahead of him.
#[derive(Debug)]
pub struct Ahead {
    most: usize,
    next: u64,
    in_order: usize,
    asked: VecDeque<Piece>,
    here: Option<(u64, Vec<u8>, Instant)>,
}

impl Ahead {
    /// At most so many bytes ahead.
    pub fn new(most: usize) -> Self {
        Self { most: most / PIECE, next: 0, in_order: 0, asked: VecDeque::new(), here: None }
    }

    /// Whether a read at `offset` goes on where the last ended.
    pub fn continues(&self, offset: u64) -> bool {
        self.most > 0 && offset == self.next
    }

    /// Forgets what came: somebody reads elsewhere, or writes.
    pub fn clear(&mut self, next: u64) {
        *self = Self { next, ..Self::new(self.most * PIECE) };
    }

    /// Reads at the place where the last read ended.
    pub fn read(&mut self, ports: &Ports, buffer: &mut [u8]) -> Done<usize> {
        let start = self.next;
        let mut read = 0;
        self.in_order += 1;
        while read < buffer.len() {
            let copied = self.copy(&mut buffer[read..]);
            if copied > 0 {
                read += copied;
                self.next += copied as u64;
                continue;
            }
            // A first read is answered as it is; who reads on gets more and more ahead.
            let window = if self.in_order > 1 { self.most.min(1 << self.in_order.min(16)) } else { 0 };
            self.ask(ports, window)?;
            let Some(piece) = self.asked.pop_front() else {
                let part = ports.first().read(self.next, buffer.len() - read)?;
                buffer[read..read + part.len()].copy_from_slice(&part);
                self.next += part.len() as u64;
                read += part.len();
                break;
            };
            if !self.take(ports.first(), piece)? {
                break;
            }
        }
        if read == 0 {
            self.clear(start);
        }
        Ok(read)
    }

    fn copy(&mut self, buffer: &mut [u8]) -> usize {
        let Some((offset, bytes, came)) = &self.here else { return 0 };
        let skip = (self.next - offset) as usize;
        if skip >= bytes.len() {
            self.here = None;
            return 0;
        }
        if came.elapsed() > FRESH {
            // What was asked for after it does not begin where the reader is.
            self.here = None;
            self.asked.clear();
            return 0;
        }
        let n = buffer.len().min(bytes.len() - skip);
        buffer[..n].copy_from_slice(&bytes[skip..skip + n]);
        n
    }

    fn ask(&mut self, ports: &Ports, window: usize) -> Done<()> {
        let mut end = self.asked.back().map_or(self.next, |piece| piece.offset + piece.len as u64);
        while self.asked.len() < window {
            let (done, from) = bounded(1);
            let offset = end;
            ports.submit(Box::new(move |port| {
                let result = port.read(offset, PIECE);
                drop(done.send((Instant::now(), result)));
            }))?;
            self.asked.push_back(Piece { offset, len: PIECE, from });
            end += PIECE as u64;
        }
        Ok(())
    }

    /// Waits for a piece; false: the file ends before it.
    fn take(&mut self, first: &Port, piece: Piece) -> Done<bool> {
        let arrived = piece.from.recv().ok();
        let (came, bytes) = match arrived {
            Some((came, Ok(bytes))) if came.elapsed() <= FRESH => (came, bytes),
            Some((_, Err(e))) => {
                self.clear(self.next);
                return Err(e);
            }
            _ => (Instant::now(), first.read(piece.offset, piece.len)?),
        };
        let whole = bytes.len() == piece.len;
        let some = bytes.len() as u64 + piece.offset > self.next;
        if !whole {
            self.asked.clear(); // they are beyond the end
        }
        self.here = Some((piece.offset, bytes, came));
        Ok(some)
    }
}
