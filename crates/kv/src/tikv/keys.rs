//! How keys and values are stored in a cluster: `docs/formats/engine.md`.

use crate::lmdb::sealed;
use crate::{KvError, Result};

use super::address::Address;

/// Most bytes of a stored value: TiKV refuses entries of more than 6 MiB, and answers shall stay small.
pub(super) const PIECE: usize = 64 << 10;

/// First byte of a stored value.
const WHOLE: u8 = 0;
const IN_PIECES: u8 = 1;

/// Where the version is (8 bytes) before which a cluster may have forgotten what was changed or removed; for all engines in it. Nothing in an
/// engine has this name.
pub(super) fn collected() -> Vec<u8> {
    b"Thermocline collected".to_vec()
}

/// A number as it is stored; 0 for what is none.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

/// Names of keys in the cluster.
pub(super) struct Names {
    prefix: Vec<u8>,
}

impl Names {
    pub(super) fn new(address: &Address) -> Self {
        Self { prefix: format!("Thermocline/{}/", address.name).into_bytes() }
    }

    fn name(&self, kind: u8, rest: &[&[u8]]) -> Vec<u8> {
        [&self.prefix[..], &[kind], &rest.concat()].concat()
    }

    /// Where `key` is. Bounds of scans keep their order.
    pub(super) fn data(&self, key: &[u8]) -> Vec<u8> {
        self.name(b'd', &[&key[..key.len().min(crate::MAX_KEY + 1)]])
    }

    /// The key at this place.
    pub(super) fn key<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        name.strip_prefix(&self.prefix[..])?.strip_prefix(b"d")
    }

    /// Where piece `n` of the value of `key` is.
    pub(super) fn piece(&self, key: &[u8], n: u32) -> Vec<u8> {
        // Keys have at most 480 bytes.
        self.name(b'p', &[&(key.len() as u16).to_be_bytes(), key, &n.to_be_bytes()])
    }

    /// All pieces.
    pub(super) fn pieces(&self) -> (Vec<u8>, Vec<u8>) {
        (self.name(b'p', &[]), self.name(b'q', &[]))
    }

    /// Who the owner is.
    pub(super) fn owner(&self) -> Vec<u8> {
        self.name(b's', &[b"owner"])
    }

    /// Until when he counts as living.
    pub(super) fn lease(&self) -> Vec<u8> {
        self.name(b's', &[b"lease"])
    }

    /// What a node that takes turns has told.
    pub(super) fn told(&self, name: &str) -> Vec<u8> {
        self.name(b't', &[name.as_bytes()])
    }

    /// Name of the node that told what stands at this place.
    pub(super) fn teller<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        name.strip_prefix(&self.prefix[..])?.strip_prefix(b"t")
    }

    /// All that was told.
    pub(super) fn all_told(&self) -> (Vec<u8>, Vec<u8>) {
        (self.name(b't', &[]), self.name(b'u', &[]))
    }

    /// Number of the owner's last transaction.
    pub(super) fn mark(&self) -> Vec<u8> {
        self.name(b's', &[b"mark"])
    }
}

/// A value as it is stored.
pub(super) struct Stored {
    pub(super) value: Vec<u8>,
    pub(super) pieces: Vec<Vec<u8>>,
}

/// What is stored for `value`.
pub(super) fn store(key: &[u8], value: &[u8]) -> Stored {
    let mut sealed = Vec::with_capacity(value.len() + sealed::SUM);
    sealed::seal(key, value, &mut sealed);
    if sealed.len() < PIECE {
        sealed.insert(0, WHOLE);
        return Stored { value: sealed, pieces: Vec::new() };
    }
    let pieces: Vec<_> = sealed.chunks(PIECE).map(<[u8]>::to_vec).collect();
    // Values have at most 16 MiB.
    let count = (pieces.len() as u32).to_be_bytes();
    Stored { value: [&[IN_PIECES][..], &count].concat(), pieces }
}

/// How many pieces a stored value has; `None` if it is no stored value.
pub(super) fn pieces(stored: &[u8]) -> Option<u32> {
    match stored.split_first()? {
        (&WHOLE, _) => Some(0),
        (&IN_PIECES, count) => Some(u32::from_be_bytes(count.try_into().ok()?)),
        _ => None,
    }
}

/// The value of `key`; `piece` gives the rest of a large one.
pub(super) fn value<E: From<KvError>>(
    key: &[u8],
    stored: &[u8],
    bad: impl Fn() -> KvError,
    rest: impl FnOnce(u32) -> Result<Vec<u8>, E>,
) -> Result<Vec<u8>, E> {
    let gathered;
    let sealed = match pieces(stored) {
        Some(0) => &stored[1..],
        Some(count) => {
            gathered = rest(count)?;
            &gathered
        }
        None => return Err(bad().into()),
    };
    Ok(sealed::open(key, sealed).ok_or_else(bad)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_any_size_come_back_and_damage_is_noticed() {
        let bad = || KvError::BadValue { path: "x".into(), key: b"k".to_vec() };
        for len in [0, 1, PIECE - 5, PIECE - 4, PIECE, 3 * PIECE - 4, 3 * PIECE] {
            let value: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let stored = store(b"k", &value);
            assert!(stored.value.len() <= PIECE && stored.pieces.iter().all(|p| p.len() <= PIECE));
            assert_eq!(pieces(&stored.value), Some(stored.pieces.len() as u32));
            let gather = |_| Ok::<_, KvError>(stored.pieces.concat());
            assert_eq!(super::value(b"k", &stored.value, bad, gather).unwrap(), value);
            assert!(super::value(b"l", &stored.value, bad, gather).is_err(), "of another key");
            let torn = |_| Ok::<_, KvError>(stored.pieces[1..].concat());
            assert!(stored.pieces.is_empty() || super::value(b"k", &stored.value, bad, torn).is_err());
        }
        assert!([&[][..], &[7], &[IN_PIECES, 0]].iter().all(|bytes| pieces(bytes).is_none()));
    }

    #[test]
    fn names_of_pieces_are_no_names_of_others() {
        let names = Names::new(&Address::parse("tikv://a:1/x").unwrap());
        assert_ne!(names.piece(b"a", 0x6261_6161), names.piece(b"abaaa", 0));
        assert_eq!(names.key(&names.data(b"k")), Some(&b"k"[..]));
        assert_eq!(names.key(&names.owner()), None);
        let (from, to) = names.pieces();
        assert!(from < names.piece(b"", 0) && names.piece(&[255; 480], u32::MAX) < to);
    }
}
