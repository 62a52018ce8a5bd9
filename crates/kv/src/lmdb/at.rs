//! How far the store is: the last batch that it holds, and the mark by which the journal that goes on from there is known. Kept in the
//! store, written by every transaction in the transaction itself.

use super::sealed;
use crate::MAX_KEY;

/// Key of the record: behind all keys, and before those of the last flush and of the tables.
pub(super) const AT_KEY: [u8; MAX_KEY + 1] = {
    let mut key = [0xff; MAX_KEY + 1];
    key[MAX_KEY] = 0xfd;
    key
};

/// A state of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct At {
    /// The last batch that it holds.
    pub(super) number: u64,
    /// Mark of the journal's file that goes on from it; 0: none does.
    pub(super) mark: u64,
}

impl At {
    /// The record's value.
    pub(super) fn encode(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.number.to_le_bytes());
        out[8..].copy_from_slice(&self.mark.to_le_bytes());
        out
    }

    /// Reads what is stored at [`AT_KEY`]; None if it is damaged.
    pub(super) fn decode(stored: &[u8]) -> Option<Self> {
        let bytes: &[u8; 16] = sealed::open(&AT_KEY, stored)?.try_into().ok()?;
        let (number, mark) = bytes.split_first_chunk::<8>()?;
        Some(Self { number: u64::from_le_bytes(*number), mark: u64::from_le_bytes(mark.try_into().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_a_damaged_one_does_not() {
        let at = At { number: 7, mark: u64::MAX };
        let mut stored = Vec::new();
        sealed::seal(&AT_KEY, &at.encode(), &mut stored);
        assert_eq!(At::decode(&stored), Some(at));
        assert_eq!(At::decode(&stored[..stored.len() - 1]), None);
        stored[3] ^= 1;
        assert_eq!(At::decode(&stored), None);
        assert!(AT_KEY < super::super::last::LAST_KEY && AT_KEY.as_slice() > &[0xff; MAX_KEY][..]);
    }
}
