//! A byte stream cut into records, and records as a byte stream: how an index lies on tape.

use crate::TapeError;
use crate::head::{Head, Item, Wrote};
use crate::protect::SUM;
use std::io::{self, BufRead, Read, Write};

/// Cuts a stream into records of equal size, the last one shorter.
pub(crate) struct RecordSink<'h> {
    head: &'h mut Head,
    buffer: Vec<u8>,
    size: usize,
    /// Why a write failed; the stream's user sees only an IO error.
    pub error: Option<TapeError>,
    /// The partition is full.
    pub full: bool,
}

impl<'h> RecordSink<'h> {
    pub fn new(head: &'h mut Head, size: usize) -> Self {
        Self { head, buffer: Vec::with_capacity(size + SUM), size, error: None, full: false }
    }

    /// Writes what is gathered as one record.
    pub fn end_record(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        match self.head.write_buffer(&mut self.buffer) {
            Ok(Wrote::Good | Wrote::EarlyWarning) => {
                self.buffer.clear();
                return Ok(());
            }
            Ok(Wrote::Overflow) => self.full = true,
            Err(e) => self.error = Some(e),
        }
        Err(io::Error::other("the record could not be written"))
    }
}

impl Write for RecordSink<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = data.len().min(self.size - self.buffer.len());
        self.buffer.extend_from_slice(&data[..taken]);
        if self.buffer.len() == self.size {
            self.end_record()?;
        }
        Ok(taken)
    }

    /// Does nothing: a record is written when it is full or ended.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads records as a stream up to the next filemark or the end of data.
pub(crate) struct RecordSource<'h> {
    head: &'h mut Head,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// What ended the stream.
    pub ended: Option<Item>,
    /// Why a read failed; the stream's user sees only an IO error.
    pub error: Option<TapeError>,
}

impl<'h> RecordSource<'h> {
    pub fn new(head: &'h mut Head, size: usize) -> Self {
        Self { head, buffer: vec![0; size], start: 0, end: 0, ended: None, error: None }
    }
}

impl BufRead for RecordSource<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.start == self.end && self.ended.is_none() {
            match self.head.read(&mut self.buffer) {
                Ok(Item::Record(n)) => (self.start, self.end) = (0, n),
                Ok(mark) => self.ended = Some(mark),
                Err(e) => {
                    self.error = Some(e);
                    return Err(io::Error::other("the record could not be read"));
                }
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }
}

impl Read for RecordSource<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(out)?;
        self.consume(n);
        Ok(n)
    }
}
