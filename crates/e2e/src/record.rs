//! Records of a file that several programs write at once.

use crate::noise;

/// Bytes of each: they begin and end anywhere in stripes.
pub const RECORD: u64 = 47_008;
/// How many each rank has.
pub const RECORDS: u64 = 32;
/// A rank syncs when it has written so many.
pub const SYNC: u64 = 8;

/// What record `n` is when it is written for the time `pass` (from 0).
pub fn bytes(n: u64, pass: u64) -> Vec<u8> {
    noise(n.wrapping_mul(1_000_003).wrapping_add(pass), RECORD as usize)
}

/// How often (from 0) record `k` of a rank was written last, when it has written so many.
pub fn last_pass(k: u64, written: u64) -> Option<u64> {
    let passes = written / RECORDS;
    if k < written % RECORDS { Some(passes) } else { passes.checked_sub(1) }
}
