//! All pairs of an engine: copied into another one in the order of their keys, and their digest.

use kv::{Durability, Engine, KvError, MAX_KEY, Reader, read, write};
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;

/// Bytes of keys and values that are held before they are written.
const BATCH: usize = 4 << 20;
/// Keys that are brought over, or removed, by one transaction.
const KEYS: usize = 1_000;
/// Behind all keys.
const END: [u8; MAX_KEY + 1] = [255; MAX_KEY + 1];

/// Keys with their values; none: the key is not there.
type Pairs = Vec<(Vec<u8>, Option<Vec<u8>>)>;

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

/// Called with pairs and bytes so far; `Break` gives up.
pub(super) type Told<'t> = &'t mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Reads everything. `Aborted` if it was given up.
pub(super) fn content(of: &dyn Engine, told: Told<'_>) -> Result<Content, KvError> {
    let mut counted = Counted::default();
    of.read_dyn(&mut |r| {
        counted = Counted::default(); // a closure may run again
        let mut next = BATCH as u64;
        let mut on = ControlFlow::Continue(());
        r.scan(&[], &END, &mut |k, v| {
            counted.take(k, v);
            if counted.bytes >= next {
                next = counted.bytes + BATCH as u64;
                on = told(counted.pairs, counted.bytes);
            }
            on
        })?;
        if on.is_break() { Err(KvError::Aborted) } else { Ok(()) }
    })?;
    Ok(counted.content())
}

/// Copies everything, on stable storage, and tells how many pairs are there from time to time; what was read. `Aborted` if it was given up.
pub(super) fn copy(from: &dyn Engine, to: &dyn Engine, told: Told<'_>) -> Result<Content, KvError> {
    let (mut counted, mut again) = (Counted::default(), false);
    from.read_dyn(&mut |r| {
        // A closure may run again, and some keys may be gone by then.
        if std::mem::replace(&mut again, true) {
            remove_all(to)?;
        }
        counted = Counted::default();
        copy_snapshot(r, to, &mut counted, told)
    })?;
    to.sync()?;
    Ok(counted.content())
}

fn copy_snapshot(
    r: &dyn Reader,
    to: &dyn Engine,
    counted: &mut Counted,
    told: Told<'_>,
) -> Result<(), KvError> {
    let (mut batch, mut bytes, mut failed) = (Pairs::new(), 0, None);
    r.scan(&[], &END, &mut |k, v| {
        counted.take(k, v);
        bytes += k.len() + v.len();
        batch.push((k.to_vec(), Some(v.to_vec())));
        if bytes < BATCH {
            return ControlFlow::Continue(());
        }
        bytes = 0;
        let put = put(to, &std::mem::take(&mut batch));
        let on = put.and_then(|()| match told(counted.pairs, counted.bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(KvError::Aborted),
        });
        match on {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    put(to, &batch)?;
    match told(counted.pairs, counted.bytes) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(KvError::Aborted),
    }
}

/// Brings these keys over as they are now, on stable storage, and reads them again; a key that differs then. `Aborted` if it was given up.
pub(super) fn bring(
    keys: &[Vec<u8>],
    from: &dyn Engine,
    to: &dyn Engine,
    goes_on: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Vec<u8>>, KvError> {
    for part in keys.chunks(KEYS) {
        if goes_on().is_break() {
            return Err(KvError::Aborted);
        }
        let now = values(from, part)?;
        put(to, &now)?;
        let there = values(to, part)?;
        if let Some(((key, _), _)) = now.iter().zip(&there).find(|(now, there)| now != there) {
            return Ok(Some(key.clone()));
        }
    }
    to.sync().map(|()| None)
}

fn values(of: &dyn Engine, keys: &[Vec<u8>]) -> Result<Pairs, KvError> {
    read(of, |r| keys.iter().map(|key| Ok((key.clone(), r.get(key)?))).collect())
}

fn put(to: &dyn Engine, pairs: &Pairs) -> Result<(), KvError> {
    write::<_, KvError>(to, Durability::Relaxed, |w| {
        pairs.iter().try_for_each(|(key, value)| match value {
            Some(value) => w.put(key, value),
            None => w.delete(key),
        })
    })
}

fn remove_all(of: &dyn Engine) -> Result<(), KvError> {
    loop {
        let mut found = Pairs::new();
        of.read_dyn(&mut |r| {
            found.clear();
            r.scan(&[], &END, &mut |k, _| {
                found.push((k.to_vec(), None));
                if found.len() < KEYS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        })?;
        if found.is_empty() {
            return Ok(());
        }
        put(of, &found)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::MemoryEngine;

    fn pairs(of: impl IntoIterator<Item = (u8, Vec<u8>)>) -> Pairs {
        of.into_iter().map(|(key, value)| (vec![key], Some(value))).collect()
    }

    fn whole(of: &dyn Engine) -> Content {
        content(of, &mut |_, _| ControlFlow::Continue(())).unwrap()
    }

    #[test]
    fn a_copy_has_the_digest_of_its_original_and_every_change_shows() {
        let (from, to) = (MemoryEngine::new(), MemoryEngine::new());
        let large = vec![7; BATCH - 1];
        put(&from, &pairs((1..6).map(|n| (n, large.clone())))).unwrap();
        let mut told = Vec::new();
        let mut tell = |pairs, _| {
            told.push(pairs);
            ControlFlow::Continue(())
        };
        let read = copy(&from, &to, &mut tell).unwrap();
        assert_eq!((read.pairs, read.bytes, told), (5, 5 * BATCH as u64, vec![1, 2, 3, 4, 5, 5]));
        assert_eq!(whole(&to), read);
        put(&to, &pairs([(1, vec![])])).unwrap();
        assert_ne!(whole(&to), read);
        // The same bytes in all, cut elsewhere between key and value.
        let (a, b) = (MemoryEngine::new(), MemoryEngine::new());
        put(&a, &vec![(b"k".into(), Some(b"ab".into()))]).unwrap();
        put(&b, &vec![(b"ka".into(), Some(b"b".into()))]).unwrap();
        assert_ne!(whole(&a).digest, whole(&b).digest);
    }

    #[test]
    fn a_copy_and_a_comparison_end_when_they_are_given_up() {
        let (from, to) = (MemoryEngine::new(), MemoryEngine::new());
        put(&from, &pairs((1..6).map(|n| (n, vec![7; BATCH])))).unwrap();
        let given_up = copy(&from, &to, &mut |pairs, _| match pairs {
            2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert!(matches!(given_up, Err(KvError::Aborted)) && whole(&to).pairs == 2);
        let compared = content(&from, &mut |_, _| ControlFlow::Break(()));
        assert!(matches!(compared, Err(KvError::Aborted)));
    }

    #[test]
    fn keys_are_brought_over_as_they_are_now() {
        let (from, to) = (MemoryEngine::new(), MemoryEngine::new());
        put(&from, &pairs([(1, b"new".to_vec()), (2, b"made".to_vec())])).unwrap();
        put(&to, &pairs([(1, b"old".to_vec()), (3, b"removed".to_vec())])).unwrap();
        let keys = [vec![1], vec![2], vec![3], vec![4]];
        let mut on = || ControlFlow::Continue(());
        assert_eq!(bring(&keys, &from, &to, &mut on).unwrap(), None);
        let given_up = bring(&keys, &from, &to, &mut || ControlFlow::Break(()));
        assert!(matches!(given_up, Err(KvError::Aborted)));
        assert_eq!(whole(&to), whole(&from));
        remove_all(&to).unwrap();
        assert_eq!(whole(&to).pairs, 0);
    }
}
