//! Values as they lie in the store: followed by a sum that binds them to their key, so that a changed byte, or the
//! value of another key, is noticed whenever it is read.

/// Bytes of the sum behind each value.
pub(crate) const SUM: usize = 4;

/// CRC-32C of the key's length, the key and the value.
pub(super) fn sum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(key.len() as u32, key), value)
}

/// Writes what is stored for `value` into `out`, and returns its sum.
pub(crate) fn seal(key: &[u8], value: &[u8], out: &mut Vec<u8>) -> u32 {
    let sum = sum(key, value);
    out.clear();
    out.extend_from_slice(value);
    out.extend_from_slice(&sum.to_le_bytes());
    sum
}

/// The sum that is stored with a value, if there is room for one.
pub(super) fn stored_sum(sealed: &[u8]) -> Option<u32> {
    sealed.last_chunk().map(|sum| u32::from_le_bytes(*sum))
}

/// The value, if it is the one that was stored at `key`.
pub(crate) fn open<'a>(key: &[u8], sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (value, stored) = sealed.split_last_chunk::<SUM>()?;
    (sum(key, value) == u32::from_le_bytes(*stored)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_changed_bit_or_another_key_is_noticed(
            key in proptest::collection::vec(any::<u8>(), 1..40),
            value in proptest::collection::vec(any::<u8>(), 0..80),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut sealed = Vec::new();
            seal(&key, &value, &mut sealed);
            prop_assert_eq!(open(&key, &sealed), Some(value.as_slice()));
            let bit = bit.index(sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(open(&key, &sealed), None);
            sealed[bit / 8] ^= 1 << (bit % 8);
            let mut other = key.clone();
            other[0] ^= 1;
            prop_assert_eq!(open(&other, &sealed), None);
        }
    }

    #[test]
    fn the_border_between_key_and_value_counts() {
        let mut sealed = Vec::new();
        seal(b"ab", b"c", &mut sealed);
        assert_eq!(open(b"a", &[b"b".as_slice(), &sealed].concat()), None);
        assert_eq!(open(b"", b"abc"), None, "too short for a sum");
    }
}
