//! Records whose bytes lie at the drive's host already, where they came without passing through this one.

use crate::head::{Head, Wrote};
use crate::protect::SUM;
use crate::{Result, SPARE};
use scsi::There;

const _: () = assert!(SPARE == SUM, "the spare bytes of a load take the sum");

/// Bytes for a drive.
pub enum Load<'a> {
    /// In memory here. The last [`SPARE`] bytes are no data: the bytes behind a record hold its sum while it is written.
    Here(&'a mut [u8]),
    /// In memory at the drive's host.
    There(There),
}

impl Load<'_> {
    /// Bytes of data.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Here(room) => room.len().saturating_sub(SPARE),
            Self::There(there) => there.bytes,
        }
    }

    /// Writes them as one record.
    pub(crate) fn write(&mut self, head: &mut Head) -> Result<Wrote> {
        match self {
            Self::Here(room) => head.write_in_place(room),
            Self::There(there) => head.write_there(*there),
        }
    }
}

/// A record that is being filled.
pub(crate) enum Record {
    /// Here.
    Here(Vec<u8>),
    /// There; never without bytes.
    There(There),
}

impl Record {
    /// Nothing, for records of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self::Here(Vec::with_capacity(size + SUM))
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len(),
            Self::There(there) => there.bytes,
        }
    }

    /// Takes what fits of bytes here behind it, until it has `size` bytes; how many. None: what is there lies elsewhere.
    pub fn gather(&mut self, data: &[u8], size: usize) -> Option<usize> {
        let n = data.len().min(size - self.bytes());
        let Self::Here(bytes) = self else { return None };
        bytes.extend_from_slice(&data[..n]);
        Some(n)
    }

    /// The same of bytes there. None: they do not lie behind what is there.
    pub fn gather_there(&mut self, data: There, size: usize) -> Option<usize> {
        let n = data.bytes.min(size - self.bytes());
        match self {
            Self::Here(bytes) if bytes.is_empty() => *self = Self::There(There { bytes: n, ..data }),
            Self::There(have) if (have.depot, have.at + have.bytes as u64) == (data.depot, data.at) => {
                have.bytes += n;
            }
            _ => return None,
        }
        Some(n)
    }

    /// Has it written as a load, and is empty then.
    pub fn put<T>(&mut self, write: impl FnOnce(&mut Load<'_>) -> T) -> T {
        match self {
            Self::Here(bytes) => {
                bytes.extend_from_slice(&[0; SUM]);
                let done = write(&mut Load::Here(bytes));
                bytes.clear();
                done
            }
            Self::There(there) => {
                let done = write(&mut Load::There(*there));
                *self = Self::Here(Vec::new());
                done
            }
        }
    }

    /// Forgets what it has.
    pub fn clear(&mut self) {
        match self {
            Self::Here(bytes) => bytes.clear(),
            Self::There(_) => *self = Self::Here(Vec::new()),
        }
    }
}

/// Bytes of a stream from here on, where they lie there.
pub(crate) fn rest(data: There, from: usize) -> There {
    There { at: data.at + from as u64, bytes: data.bytes - from, ..data }
}

/// What is wrong where a record would have bytes of two places.
pub(crate) const TWO_PLACES: &str = "a record of which one part is here and another at the drive's host";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_run_of_bytes_at_one_place() {
        let there = |depot, at, bytes| There { depot, at, bytes, sealed: false };
        let mut record = Record::new(10);
        assert_eq!(record.gather_there(there(1, 5, 7), 10), Some(7));
        assert_eq!(record.gather(b"here", 10), None);
        assert_eq!(record.gather_there(there(1, 13, 1), 10), None, "not where it goes on");
        assert_eq!(record.gather_there(there(2, 12, 1), 10), None, "in other memory");
        assert_eq!(record.gather_there(there(1, 12, 9), 10), Some(3));
        let put = record.put(|load| match load {
            Load::There(there) => Some(*there),
            Load::Here(_) => None,
        });
        assert_eq!((put, record.bytes()), (Some(there(1, 5, 10)), 0));
        assert_eq!(record.gather(b"0123456789ab", 10), Some(10));
        assert_eq!(record.gather_there(there(1, 0, 1), 20), None);
        assert_eq!(record.put(|load| load.bytes()), 10);
        assert_eq!(rest(there(1, 5, 7), 3), there(1, 8, 4));
    }
}
