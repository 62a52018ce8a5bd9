//! One batch in a segment: length, sum, then what a flush wrote.

use crate::lmdb::overlay::Overlay;
use std::convert::Infallible;

/// Length and sum.
pub(super) const HEAD: usize = 8;
/// Number, time, and how many changes.
const FIXED: usize = 20;
/// Bytes of a batch besides its changes.
pub(in crate::lmdb) const AROUND: usize = HEAD + FIXED;
/// Memory for batches that is kept from one to the next (bytes): to get and return it each time costs more than it saves.
pub(in crate::lmdb) const KEPT: usize = 1 << 20;
/// Length of a value that says that the key was removed.
const REMOVED: u32 = u32::MAX;

/// A batch as read.
pub(crate) struct Batch<'b> {
    pub(crate) number: u64,
    pub(crate) time_ms: i64,
    changes: u32,
    rest: &'b [u8],
}

/// The bytes of a batch: the newest version of each key.
pub(in crate::lmdb) fn encode(number: u64, time_ms: i64, overlay: &Overlay) -> Vec<u8> {
    let mut writing = Writing::default();
    let all: Result<(), Infallible> = overlay.newest(|key, value| {
        writing.change(key, value);
        Ok(())
    });
    let Ok(()) = all;
    writing.finish(number, time_ms)
}

/// A batch that is being written. A key may come several times: the last one counts.
#[derive(Default)]
pub(crate) struct Writing {
    /// The changes.
    out: Vec<u8>,
    changes: u32,
}

impl Writing {
    /// A key with its new value; None: it is removed.
    pub(crate) fn change(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.changes += 1;
        self.out.extend((key.len() as u16).to_le_bytes());
        self.out.extend(value.map_or(REMOVED, |v| v.len() as u32).to_le_bytes());
        self.out.extend(key);
        self.out.extend(value.unwrap_or_default());
    }

    /// What comes behind it; nothing is left of that.
    pub(in crate::lmdb) fn append(&mut self, later: &mut Self) {
        if self.out.is_empty() {
            return std::mem::swap(self, later);
        }
        self.changes += std::mem::take(&mut later.changes);
        self.out.append(&mut later.out);
    }

    /// Nothing is in it any more; what it held has taken little enough memory to keep that for what comes.
    pub(in crate::lmdb) fn emptied(mut self) -> Self {
        if self.out.capacity() > KEPT {
            return Self::default();
        }
        self.out.clear();
        Self { out: self.out, changes: 0 }
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// The batch, as number `number`, of this time (milliseconds since 1970).
    pub(crate) fn finish(&self, number: u64, time_ms: i64) -> Vec<u8> {
        let mut out = Vec::with_capacity(AROUND + self.out.len());
        out.extend([0; HEAD]);
        out.extend(number.to_le_bytes());
        out.extend(time_ms.to_le_bytes());
        out.extend(self.changes.to_le_bytes());
        out.extend_from_slice(&self.out);
        let length = (out.len() - HEAD) as u32;
        let sum = crc32c::crc32c(&out[HEAD..]);
        out[..4].copy_from_slice(&length.to_le_bytes());
        out[4..HEAD].copy_from_slice(&sum.to_le_bytes());
        out
    }
}

/// The batch that these bytes are, and nothing else.
pub(crate) fn whole(bytes: &[u8]) -> Option<Batch<'_>> {
    let (first, body) = bytes.split_first_chunk::<HEAD>()?;
    let (length, sum) = head(*first);
    let batch = (length as usize == body.len()).then(|| decode(body, sum)).flatten()?;
    batch.changes().all(|change| change.is_some()).then_some(batch)
}

/// Length of the body that a head announces, and its sum.
pub(super) fn head(bytes: [u8; HEAD]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = bytes;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

/// The batch in a body; None if it is not what was written.
pub(super) fn decode(body: &[u8], sum: u32) -> Option<Batch<'_>> {
    if crc32c::crc32c(body) != sum {
        return None;
    }
    let (number, rest) = body.split_first_chunk::<8>()?;
    let (time, rest) = rest.split_first_chunk::<8>()?;
    let (changes, rest) = rest.split_first_chunk::<4>()?;
    let (number, time_ms) = (u64::from_le_bytes(*number), i64::from_le_bytes(*time));
    Some(Batch { number, time_ms, changes: u32::from_le_bytes(*changes), rest })
}

impl<'b> Batch<'b> {
    /// Keys with their new values, None for those removed; an inner None if the batch is damaged.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Option<(&'b [u8], Option<&'b [u8]>)>> + use<'b> {
        let mut rest = self.rest;
        (0..self.changes).map(move |_| {
            let (key, after) = rest.split_first_chunk::<2>()?;
            let (value, after) = after.split_first_chunk::<4>()?;
            let (key, after) = after.split_at_checked(u16::from_le_bytes(*key).into())?;
            let length = u32::from_le_bytes(*value);
            if length == REMOVED {
                rest = after;
                return Some((key, None));
            }
            let (value, after) = after.split_at_checked(length as usize)?;
            rest = after;
            Some((key, Some(value)))
        })
    }
}
