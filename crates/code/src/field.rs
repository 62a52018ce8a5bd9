//! The field GF(2^8) with the polynomial 0x11d: sums are XOR, products are looked up.

/// Lower eight bits of the polynomial.
pub(crate) const POLYNOMIAL: u8 = 0x1d;

const fn doubled(x: u8) -> u8 {
    (x << 1) ^ if x & 0x80 != 0 { POLYNOMIAL } else { 0 }
}

/// Powers of 2, twice over, so that a sum of two logarithms needs no remainder.
const POWERS: [u8; 510] = {
    let mut powers = [0; 510];
    let (mut n, mut x) = (0, 1);
    while n < 510 {
        powers[n] = x;
        x = doubled(x);
        n += 1;
    }
    powers
};

/// Logarithms to the base 2; that of 0 is never asked for.
const LOGARITHMS: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut n = 0;
    while n < 255 {
        logarithms[POWERS[n] as usize] = n as u8;
        n += 1;
    }
    logarithms
};

/// The product.
pub(crate) const fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// The number whose product with `a` (not 0) is 1.
pub(crate) const fn inverse(a: u8) -> u8 {
    POWERS[255 - LOGARITHMS[a as usize] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Product by the definition: of polynomials, less multiples of 0x11d.
    fn slow(a: u8, b: u8) -> u8 {
        (0..8).rev().fold(0, |sum, bit| doubled(sum) ^ if b >> bit & 1 == 1 { a } else { 0 })
    }

    #[test]
    fn the_tables_are_the_field() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(product(a, b), slow(a, b));
            }
            assert!(a == 0 || product(a, inverse(a)) == 1);
        }
    }
}
