//! Bytes of a journal: heads and records. Pure; `docs/design/0011-coded.md` has the tables.

use crate::coded::shape::HALF;

/// Length of a head (bytes).
pub(crate) const HEAD_LEN: usize = 52;
/// Length of what comes before the bytes of a record.
pub(crate) const RECORD_LEN: usize = 40;
/// Most bytes of one record of data.
pub(crate) const MAX_RECORD: usize = 1 << 20;
const MAGIC: [u8; 8] = *b"THERMOJL";
const VERSION: u32 = 1;

/// What of the log counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Counts the heads that were written: the greatest is the one in force.
    pub count: u64,
    /// What is appended now is of this epoch; it lies in half `epoch mod 2`.
    pub epoch: u64,
    /// What was appended in epochs up to this one is in the columns.
    pub folded: u64,
    /// Records of folds with lower numbers are void.
    pub turn: u64,
}

impl Head {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        for (n, field) in [self.count, self.epoch, self.folded, self.turn].into_iter().enumerate() {
            bytes[16 + 8 * n..24 + 8 * n].copy_from_slice(&field.to_le_bytes());
        }
        let check = crc32c::crc32c(&bytes[..48]);
        bytes[48..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Inverse of [`Head::encode`]; `None` for what is not a head, a torn one, or one that makes no sense.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEAD_LEN] = bytes.first_chunk()?;
        let head = Self {
            count: long(bytes, 16),
            epoch: long(bytes, 24),
            folded: long(bytes, 32),
            turn: long(bytes, 40),
        };
        (head.folded <= head.epoch && head.encode() == *bytes).then_some(head)
    }
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Bytes of the file; `at` is where they lie in it.
    Data = 1,
    /// Parity and seal of row `at`, from byte `within` of each unit on, as they will be.
    Redo = 2,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is about.
    pub kind: Kind,
    /// The epoch, or the number of the fold.
    pub epoch: u64,
    /// Where in the file, or which row.
    pub at: u64,
    /// Where in each unit.
    pub within: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Record {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RECORD_LEN + self.bytes.len());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(self.kind as u32).to_le_bytes());
        for field in [self.epoch, self.at, self.within, self.bytes.len() as u64] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&self.bytes);
        let check = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&check.to_le_bytes());
        bytes
    }
}

/// What the beginning of a log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A record, and its length.
    Record(Record, usize),
    /// So many bytes are needed to say.
    More(usize),
    /// Nothing follows.
    End,
}

/// The record that `bytes` begin with.
pub fn next(bytes: &[u8]) -> Next {
    let Some(header) = bytes.first_chunk::<RECORD_LEN>() else { return Next::More(RECORD_LEN) };
    let kind = match u32::from_le_bytes([header[4], header[5], header[6], header[7]]) {
        1 => Kind::Data,
        2 => Kind::Redo,
        _ => return Next::End,
    };
    let length = long(header, 32);
    if length > HALF - RECORD_LEN as u64 {
        return Next::End;
    }
    let whole = RECORD_LEN + length as usize;
    let Some(record) = bytes.get(..whole) else { return Next::More(whole) };
    let check = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    if crc32c::crc32c(&record[4..]) != check {
        return Next::End;
    }
    let (epoch, at, within) = (long(header, 8), long(header, 16), long(header, 24));
    Next::Record(Record { kind, epoch, at, within, bytes: record[RECORD_LEN..].to_vec() }, whole)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
