//! A key as the maps in memory hold it: short ones without an allocation, and cheap to compare.

use std::cmp::Ordering;
use std::fmt;

/// Bytes held in place.
const SHORT: usize = 32;

/// A key. Its first bytes are compared as numbers; most keys differ within them.
#[derive(Clone)]
pub(crate) struct Key {
    /// The first bytes, filled up with zeros.
    head: [u8; SHORT],
    len: u16,
    /// The whole key if it is longer than `head`.
    long: Option<Box<[u8]>>,
}

impl Key {
    /// `bytes` are no longer than [`crate::MAX_KEY`], or a bound of a scan: cut to one byte more than that, which lies
    /// between the same keys.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let bytes = &bytes[..bytes.len().min(crate::MAX_KEY + 1)];
        let mut head = [0; SHORT];
        let short = bytes.len().min(SHORT);
        head[..short].copy_from_slice(&bytes[..short]);
        let long = (bytes.len() > SHORT).then(|| bytes.into());
        Self { head, len: bytes.len() as u16, long }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.long {
            Some(long) => long,
            None => &self.head[..usize::from(self.len)],
        }
    }

    /// The `n`th eight bytes as a number of the same order.
    #[inline(always)]
    fn word(&self, n: usize) -> u64 {
        u64::from_be_bytes(self.head[n * 8..n * 8 + 8].try_into().expect("a word has 8 bytes"))
    }

    /// The order of keys that differ nowhere in their heads.
    #[inline(never)]
    fn cmp_tails(&self, other: &Self) -> Ordering {
        match (&self.long, &other.long) {
            (Some(a), Some(b)) => a.cmp(b),
            _ => self.len.cmp(&other.len), // both begin with the same bytes, so the shorter comes first
        }
    }
}

impl Ord for Key {
    /// The order of the bytes. Where heads differ, zeros behind the end of the shorter key are below any byte that
    /// differs from them; where they are equal, the keys themselves decide.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        for n in 0..SHORT / 8 {
            let (a, b) = (self.word(n), other.word(n));
            if a != b {
                return if a < b { Ordering::Less } else { Ordering::Greater };
            }
        }
        self.cmp_tails(other)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys that share beginnings, zeros at the end, and lengths around the border.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        (0usize..40, proptest::collection::vec(0u8..3, 0..6)).prop_map(|(zeros, tail)| {
            let mut key = vec![0; zeros];
            key.extend(tail);
            key
        })
    }

    proptest! {
        #[test]
        fn keys_have_the_order_and_the_bytes_of_slices(a in bytes(), b in bytes()) {
            prop_assert_eq!(Key::new(&a).cmp(&Key::new(&b)), a.cmp(&b));
            prop_assert_eq!(Key::new(&a).bytes().to_vec(), a);
        }

        #[test]
        fn any_keys_have_the_order_of_slices(
            a in proptest::collection::vec(any::<u8>(), 0..64),
            b in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            prop_assert_eq!(Key::new(&a).cmp(&Key::new(&b)), a.cmp(&b));
        }
    }
}
