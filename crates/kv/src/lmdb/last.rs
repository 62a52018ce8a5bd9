//! Which keys the last flush changed. Kept in the store, in the same transaction, while a standby follows: after a restart that batch can be sent
//! again, since the values are those of the store.

use crate::MAX_KEY;

/// Key of the record: behind all keys, and before the record of the tables, which must be the last.
pub(super) const LAST_KEY: [u8; MAX_KEY + 1] = {
    let mut key = [0xff; MAX_KEY + 1];
    key[MAX_KEY] = 0xfe;
    key
};

/// The last flush.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Last {
    /// Its transaction.
    pub(super) number: u64,
    /// When it was (milliseconds since 1970).
    pub(super) time_ms: i64,
    /// What it changed.
    pub(super) keys: Vec<Vec<u8>>,
}

/// What goes before the keys.
pub(super) fn head(number: u64, time_ms: i64) -> Vec<u8> {
    [number.to_le_bytes(), time_ms.to_le_bytes()].concat()
}

/// Adds a key.
pub(super) fn push(out: &mut Vec<u8>, key: &[u8]) {
    out.extend((key.len() as u16).to_le_bytes());
    out.extend(key);
}

/// What these bytes say; None if they are no such record.
pub(super) fn decode(bytes: &[u8]) -> Option<Last> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    let (time, mut rest) = rest.split_first_chunk::<8>()?;
    let mut keys = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (key, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
        keys.push(key.to_vec());
        rest = after;
    }
    rest.is_empty().then(|| Last {
        number: u64::from_le_bytes(*number),
        time_ms: i64::from_le_bytes(*time),
        keys,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_a_cut_one_does_not() {
        let mut bytes = head(7, -1);
        push(&mut bytes, b"a");
        push(&mut bytes, b"bcd");
        let keys = vec![b"a".to_vec(), b"bcd".to_vec()];
        assert_eq!(decode(&bytes), Some(Last { number: 7, time_ms: -1, keys }));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode(&bytes[..15]), None);
        assert!(LAST_KEY < super::super::tables::RECORD_KEY && LAST_KEY.as_slice() > &[0xff; MAX_KEY][..]);
    }
}
