//! All pairs of an engine: copied into another one in the order of their keys, and their digest.

use kv::{Durability, Engine, KvError, MAX_KEY, Reader, write};
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;

/// Bytes of keys and values that are held before they are written.
const BATCH: usize = 4 << 20;
/// Behind all keys.
const END: [u8; MAX_KEY + 1] = [255; MAX_KEY + 1];

/// What an engine holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) pairs: u64,
    /// Of keys and values.
    pub(super) bytes: u64,
    /// SHA-256 over length of key (4 bytes, little-endian), key, length of value, value, for each pair in the order of keys.
    pub(super) digest: [u8; 32],
}

#[derive(Default)]
struct Counted {
    pairs: u64,
    bytes: u64,
    hash: Sha256,
}

impl Counted {
    fn take(&mut self, key: &[u8], value: &[u8]) {
        self.pairs += 1;
        self.bytes += (key.len() + value.len()) as u64;
        for part in [key, value] {
            // Keys and values are far below 4 GiB.
            self.hash.update((part.len() as u32).to_le_bytes());
            self.hash.update(part);
        }
    }

    fn content(self) -> Content {
        Content { pairs: self.pairs, bytes: self.bytes, digest: self.hash.finalize().into() }
    }
}

/// Reads everything.
pub(super) fn content(of: &dyn Engine) -> Result<Content, KvError> {
    let mut counted = Counted::default();
    of.read_dyn(&mut |r| {
        counted = Counted::default(); // a closure may run again
        r.scan(&[], &END, &mut |k, v| {
            counted.take(k, v);
            ControlFlow::Continue(())
        })
    })?;
    Ok(counted.content())
}

/// Copies everything, on stable storage, and tells how many pairs are there from time to time; what was read.
pub(super) fn copy(
    from: &dyn Engine,
    to: &dyn Engine,
    told: &mut dyn FnMut(u64, u64),
) -> Result<Content, KvError> {
    let mut counted = Counted::default();
    from.read_dyn(&mut |r| {
        counted = Counted::default(); // what was copied before is copied again
        copy_snapshot(r, to, &mut counted, told)
    })?;
    to.sync()?;
    Ok(counted.content())
}

fn copy_snapshot(
    r: &dyn Reader,
    to: &dyn Engine,
    counted: &mut Counted,
    told: &mut dyn FnMut(u64, u64),
) -> Result<(), KvError> {
    let (mut batch, mut bytes, mut failed) = (Vec::new(), 0, None);
    r.scan(&[], &END, &mut |k, v| {
        counted.take(k, v);
        bytes += k.len() + v.len();
        batch.push((k.to_vec(), v.to_vec()));
        if bytes < BATCH {
            return ControlFlow::Continue(());
        }
        bytes = 0;
        match put(to, &std::mem::take(&mut batch)) {
            Ok(()) => {
                told(counted.pairs, counted.bytes);
                ControlFlow::Continue(())
            }
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    put(to, &batch)?;
    told(counted.pairs, counted.bytes);
    Ok(())
}

fn put(to: &dyn Engine, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), KvError> {
    write::<_, KvError>(to, Durability::Relaxed, |w| pairs.iter().try_for_each(|(k, v)| w.put(k, v)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::MemoryEngine;

    #[test]
    fn a_copy_has_the_digest_of_its_original_and_every_change_shows() {
        let (from, to) = (MemoryEngine::new(), MemoryEngine::new());
        let large = vec![7; BATCH - 1];
        let pairs: Vec<_> = (0..5u8).map(|n| (vec![n + 1], large.clone())).collect();
        put(&from, &pairs).unwrap();
        let mut told = Vec::new();
        let read = copy(&from, &to, &mut |pairs, _| told.push(pairs)).unwrap();
        assert_eq!((read.pairs, read.bytes, told), (5, 5 * BATCH as u64, vec![1, 2, 3, 4, 5, 5]));
        assert_eq!(content(&to).unwrap(), read);
        put(&to, &[(vec![1], vec![])]).unwrap();
        assert_ne!(content(&to).unwrap(), read);
        // The same bytes in all, cut elsewhere between key and value.
        let (a, b) = (MemoryEngine::new(), MemoryEngine::new());
        put(&a, &[(b"k".into(), b"ab".into())]).unwrap();
        put(&b, &[(b"ka".into(), b"b".into())]).unwrap();
        assert_ne!(content(&a).unwrap().digest, content(&b).unwrap().digest);
    }
}
