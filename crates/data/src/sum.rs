//! Sums of the blocks of an object.
//!
//! The sum of a block is its CRC32C (RFC 3720, appendix B.4) over all 64 KiB, with zeros behind the end of the object, less the constant
//! that a block of zeros has. What is left of a CRC without its constant is linear over XOR, and everything else follows from that:
//!
//! * a block of zeros, so also a hole and what lies behind the end, has the sum 0;
//! * growing an object changes no sum;
//! * the sum of a block is the XOR of the [`part`]s of the pieces that it is made of, and a write of a piece changes it by the part of the
//!   bytes that were there and the part of those that come: the rest of the block is neither read nor trusted.

/// Length of a block (bytes).
pub const BLOCK: usize = 64 << 10;

/// What `piece`, lying at `at` in its block, adds to the sum of that block. Both together lie within one block.
pub fn part(at: usize, piece: &[u8]) -> u32 {
    debug_assert!(at + piece.len() <= BLOCK);
    shift(linear(piece), BLOCK - at - piece.len())
}

/// The parts of the pieces into which `bytes`, lying at `offset` in the object, are cut by the borders of blocks: one for each block that
/// they touch, in order.
pub fn parts(offset: u64, bytes: &[u8]) -> Vec<u32> {
    pieces(offset, bytes.len())
        .map(|piece| part(piece.at, &bytes[piece.from..piece.from + piece.length]))
        .collect()
}

/// A piece of a range that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPiece {
    /// Number of the block in the object.
    pub block: u64,
    /// Where it begins in the block (bytes).
    pub at: usize,
    /// Where it begins in the range (bytes).
    pub from: usize,
    /// How long it is (bytes).
    pub length: usize,
}

impl BlockPiece {
    /// Whether it is the whole block.
    pub fn is_whole(&self) -> bool {
        self.length == BLOCK
    }
}

/// The pieces of the range of `length` bytes at `offset`, in order.
pub fn pieces(offset: u64, length: usize) -> impl Iterator<Item = BlockPiece> + Clone {
    let mut from = 0;
    std::iter::from_fn(move || {
        (from < length).then(|| {
            let place = offset + from as u64;
            let at = (place % BLOCK as u64) as usize;
            let piece =
                BlockPiece { block: place / BLOCK as u64, at, from, length: (BLOCK - at).min(length - from) };
            from += piece.length;
            piece
        })
    })
}

/// How many blocks the range touches.
pub fn touched(offset: u64, length: u64) -> u64 {
    match length {
        0 => 0,
        _ => (offset.saturating_add(length) - 1) / BLOCK as u64 - offset / BLOCK as u64 + 1,
    }
}

/// CRC32C with neither start value nor final inversion. [`crc32c::crc32c_append`] inverts what it is given and what it gives.
fn linear(bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!0, bytes)
}

/// What [`linear`] says when `zeros` zero bytes follow, at most a block of them: a CRC is a polynomial modulo that of CRC32C, and each zero byte
/// multiplies it by x^8.
fn shift(value: u32, zeros: usize) -> u32 {
    let [low, high] = &POWERS;
    multiply(multiply(value, low[zeros % 256]), high[zeros / 256])
}

/// The polynomial of CRC32C without its highest power; the lowest bit is that of x^31, as in all sums here.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const ONE: u32 = 1 << 31;

/// x^8 to the power of n, and to that of 256 n.
static POWERS: [[u32; 257]; 2] = {
    let low = powers(ONE >> 8);
    [low, powers(low[256])]
};

const fn powers(of: u32) -> [u32; 257] {
    let (mut powers, mut n) = ([ONE; 257], 1);
    while n < powers.len() {
        powers[n] = multiply(powers[n - 1], of);
        n += 1;
    }
    powers
}

/// The product of two polynomials modulo that of CRC32C.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut n) = (0, 0);
    while n < u32::BITS {
        // All ones where the coefficient is one: no branch that depends on the bytes.
        product ^= b & ((a << n) >> 31).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        n += 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sums_are_the_crc_of_the_padded_block_less_that_of_zeros() {
        let mut block = vec![0_u8; BLOCK];
        assert_eq!(part(0, &block), 0);
        block[..9].copy_from_slice(b"123456789");
        // 0xe3069283 is the check value of CRC32C.
        assert_eq!(crc32c::crc32c(&block[..9]), 0xe306_9283);
        let padded = crc32c::crc32c(&block) ^ crc32c::crc32c(&vec![0; BLOCK]);
        assert_eq!(part(0, &block), padded);
        assert_eq!(part(0, b"123456789"), padded);
    }

    proptest! {
        #[test]
        fn zeros_behind_are_reckoned_as_if_they_were_there(value in any::<u32>(), zeros in 0..=BLOCK) {
            prop_assert_eq!(shift(value, zeros), crc32c::crc32c_combine(value, 0, zeros));
        }

        #[test]
        fn the_sum_of_a_block_is_that_of_its_pieces(
            block in proptest::collection::vec(any::<u8>(), 0..BLOCK + 1),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(block.len() + 1)).collect();
            cuts.extend([0, block.len()]);
            cuts.sort_unstable();
            let sum = cuts.windows(2).fold(0, |sum, cut| sum ^ part(cut[0], &block[cut[0]..cut[1]]));
            prop_assert_eq!(sum, part(0, &block));
        }

        #[test]
        fn a_write_changes_a_sum_by_what_was_there_and_what_comes(
            old in proptest::collection::vec(any::<u8>(), 4000),
            new in proptest::collection::vec(any::<u8>(), 1..2000),
            at in 0_usize..2000,
        ) {
            let mut changed = old.clone();
            changed[at..at + new.len()].copy_from_slice(&new);
            let sum = part(0, &old) ^ part(at, &old[at..at + new.len()]) ^ part(at, &new);
            prop_assert_eq!(sum, part(0, &changed));
        }

        #[test]
        fn pieces_lie_end_to_end_each_in_its_block(offset in 0_u64..1 << 50, length in 0_usize..300_000) {
            let mut at = 0;
            for piece in pieces(offset, length) {
                prop_assert_eq!(piece.from, at);
                prop_assert_eq!(piece.block * BLOCK as u64 + piece.at as u64, offset + at as u64);
                prop_assert!(piece.length > 0 && piece.at + piece.length <= BLOCK);
                at += piece.length;
            }
            prop_assert_eq!(at, length);
            prop_assert_eq!(pieces(offset, length).count() as u64, touched(offset, length as u64));
        }
    }
}
