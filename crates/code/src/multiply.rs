//! A factor times many bytes: what all the time goes into.
//!
//! The product of a byte is the sum of the products of its two halves, of which there are 16 each: two tables that fit into registers,
//! looked up 16 or 32 bytes at a time with the processor's shuffle (J. Plank, K. Greenan, E. Miller, "Screaming Fast Galois Field
//! Arithmetic Using Intel SIMD Instructions", FAST 2013). Without such instructions, byte by byte from a table of 256.

use crate::field::product;

/// Adds `factor` times `from` to `into`, byte by byte; what one has more than the other is left alone.
pub fn add_multiple(into: &mut [u8], factor: u8, from: &[u8]) {
    run::<true>(into, factor, from);
}

/// Makes `into` `factor` times `from`.
pub(crate) fn set_multiple(into: &mut [u8], factor: u8, from: &[u8]) {
    run::<false>(into, factor, from);
}

fn run<const ADD: bool>(into: &mut [u8], factor: u8, from: &[u8]) {
    let length = into.len().min(from.len());
    let (into, from) = (&mut into[..length], &from[..length]);
    #[cfg(target_arch = "x86_64")]
    let done = x86::run::<ADD>(into, factor, from);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let table: [u8; 256] = std::array::from_fn(|n| product(factor, n as u8));
    for (into, from) in into[done..].iter_mut().zip(&from[done..]) {
        let product = table[usize::from(*from)];
        *into = if ADD { *into ^ product } else { product };
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use crate::field::product;
    use std::arch::x86_64::*;

    /// Does as many bytes as the processor can do at once many times over; says how many.
    pub(super) fn run<const ADD: bool>(into: &mut [u8], factor: u8, from: &[u8]) -> usize {
        if !is_x86_feature_detected!("avx2") {
            return 0;
        }
        // SAFETY: the processor has the instructions.
        unsafe { avx2::<ADD>(into, factor, from) }
    }

    #[target_feature(enable = "avx2")]
    fn avx2<const ADD: bool>(into: &mut [u8], factor: u8, from: &[u8]) -> usize {
        let low: [u8; 16] = std::array::from_fn(|n| product(factor, n as u8));
        let high: [u8; 16] = std::array::from_fn(|n| product(factor, (n << 4) as u8));
        // SAFETY: 16 bytes are read of each table, which has 16.
        let (low, high) = unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast())),
            )
        };
        let mask = _mm256_set1_epi8(0x0f);
        let (into, from) = (into.as_chunks_mut::<32>().0, from.as_chunks::<32>().0);
        for (into, from) in into.iter_mut().zip(from) {
            // SAFETY: 32 bytes are read and written of arrays of 32.
            unsafe {
                let bytes = _mm256_loadu_si256(from.as_ptr().cast());
                let lows = _mm256_and_si256(bytes, mask);
                let highs = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), mask);
                let mut sum =
                    _mm256_xor_si256(_mm256_shuffle_epi8(low, lows), _mm256_shuffle_epi8(high, highs));
                if ADD {
                    sum = _mm256_xor_si256(sum, _mm256_loadu_si256(into.as_ptr().cast()));
                }
                _mm256_storeu_si256(into.as_mut_ptr().cast(), sum);
            }
        }
        into.len().min(from.len()) * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn many_bytes_are_multiplied_as_each_is(
            from in proptest::collection::vec(any::<u8>(), 0..200),
            into in proptest::collection::vec(any::<u8>(), 0..200),
            factor: u8,
        ) {
            let (mut added, mut set) = (into.clone(), into.clone());
            add_multiple(&mut added, factor, &from);
            set_multiple(&mut set, factor, &from);
            for n in 0..into.len() {
                let product = from.get(n).map(|byte| product(factor, *byte));
                prop_assert_eq!(added[n], into[n] ^ product.unwrap_or(0));
                prop_assert_eq!(set[n], product.unwrap_or(into[n]));
            }
        }
    }
}
