//! Records of a file that several programs write at once.

use crate::noise;

/// Bytes of each: they begin and end anywhere in stripes.
pub const RECORD: u64 = 47_008;
/// How many each rank has.
pub const RECORDS: u64 = 32;

/// What record `n` is when it is written for the time `pass` (from 0).
pub fn bytes(n: u64, pass: u64) -> Vec<u8> {
    noise(n.wrapping_mul(1_000_003).wrapping_add(pass), RECORD as usize)
}
