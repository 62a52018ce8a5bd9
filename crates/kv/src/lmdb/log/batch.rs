//! One batch in a segment: length, sum, then what a flush wrote.

use crate::lmdb::overlay::Overlay;
use std::convert::Infallible;

/// Length and sum.
pub(super) const HEAD: usize = 8;
/// Number, time, and how many changes.
const FIXED: usize = 20;
/// Length of a value that says that the key was removed.
const REMOVED: u32 = u32::MAX;

/// A batch as read.
pub(super) struct Batch<'b> {
    pub number: u64,
    pub time_ms: i64,
    changes: u32,
    rest: &'b [u8],
}

/// The bytes of a batch.
pub(super) fn encode(number: u64, time_ms: i64, overlay: &Overlay) -> Vec<u8> {
    let mut out = vec![0; HEAD];
    out.extend(number.to_le_bytes());
    out.extend(time_ms.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    let mut changes = 0u32;
    let all: Result<(), Infallible> = overlay.newest(|key, value| {
        changes += 1;
        out.extend((key.len() as u16).to_le_bytes());
        out.extend(value.map_or(REMOVED, |v| v.len() as u32).to_le_bytes());
        out.extend(key);
        out.extend(value.unwrap_or_default());
        Ok(())
    });
    let Ok(()) = all;
    out[HEAD + FIXED - 4..HEAD + FIXED].copy_from_slice(&changes.to_le_bytes());
    let length = (out.len() - HEAD) as u32;
    let sum = crc32c::crc32c(&out[HEAD..]);
    out[..4].copy_from_slice(&length.to_le_bytes());
    out[4..HEAD].copy_from_slice(&sum.to_le_bytes());
    out
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
    pub(super) fn changes(&self) -> impl Iterator<Item = Option<(&'b [u8], Option<&'b [u8]>)>> + use<'b> {
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
