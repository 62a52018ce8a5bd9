//! A file of which several copies are written at about the same time is hashed once: each piece by the drive's reader that comes
//! to it first. The others compare a CRC-32C of what they read with that of the bytes that were hashed, at a tenth of the cost. So
//! each copy has a digest that its own bytes were checked against, and no reader depends on another: one that is faster goes on
//! alone, one that fails leaves what it has hashed, one that stands still is waited for a few milliseconds.
//!
//! Abandoned: to hand the same buffers to all drives. The slowest drive would hold up the others or buffers without bound, and a drive
//! writes its sums into the buffers.

use super::source::Origin;
use crate::clock::{self, Moment};
use parking_lot::{Condvar, Mutex};
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use types::{Digest, Ino, Version};

/// Length of a piece (bytes), counted from the beginning of the file.
const PIECE: usize = 256 << 10;
/// How long a reader waits for another that hashes the piece to which it has come.
const PATIENCE: Duration = Duration::from_millis(5);
/// Files of which sums are kept, and pieces of all of them: the oldest go first.
const MOST_FILES: usize = 20_000;
const MOST_PIECES: usize = 1 << 20;

/// Which content.
type Key = (Ino, Version);

/// Another reader got other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs;

/// What was hashed lately.
#[derive(Default)]
pub struct Digests {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    files: HashMap<Key, (Origin, Arc<Common>)>,
    /// Oldest first.
    order: VecDeque<Key>,
    /// Of all files, when they are whole.
    pieces: usize,
}

/// What the readers of a file have found.
#[derive(Default)]
struct Common {
    state: Mutex<State>,
    /// A piece is hashed, or given up.
    turned: Condvar,
}

#[derive(Default)]
struct State {
    /// Of all pieces up to here.
    sha: Sha256,
    /// CRC-32C of each of them.
    sums: Vec<u32>,
    /// Somebody hashes the next.
    busy: bool,
}

/// A reader's part in the digest of a file. Takes the bytes from the beginning without gaps.
pub struct Joint {
    common: Arc<Common>,
    at: usize,
    /// CRC-32C of the present piece so far ...
    sum: u32,
    /// ... and the hash, if nobody else has hashed it.
    own: Option<Sha256>,
    differs: bool,
    #[cfg(test)]
    hashed: usize,
}

fn pieces(size: u64) -> usize {
    usize::try_from(size.div_ceil(PIECE as u64)).unwrap_or(usize::MAX)
}

impl Digests {
    /// Takes part in the digest of a file; None if nobody else does and `others` says that nobody will.
    pub fn join(&self, file: Key, origin: Origin, others: impl FnOnce() -> bool) -> Option<Joint> {
        let mut inner = self.inner.lock();
        if inner.files.get(&file).is_some_and(|(known, _)| *known != origin) {
            inner.forget(file);
        }
        if let Some((_, common)) = inner.files.get(&file) {
            return Some(Joint::new(common.clone()));
        }
        let pieces = pieces(origin.stamp.size);
        if pieces > MOST_PIECES || !others() {
            return None;
        }
        while inner.files.len() >= MOST_FILES || inner.pieces + pieces > MOST_PIECES {
            let oldest = inner.order.pop_front()?;
            inner.remove(oldest);
        }
        let common = Arc::<Common>::default();
        inner.files.insert(file, (origin, common.clone()));
        inner.order.push_back(file);
        inner.pieces += pieces;
        Some(Joint::new(common))
    }

    /// Nobody relies any more on what was found of a file.
    pub fn forget(&self, file: Key) {
        self.inner.lock().forget(file);
    }
}

impl Inner {
    fn forget(&mut self, file: Key) {
        self.remove(file);
        self.order.retain(|one| *one != file);
    }

    fn remove(&mut self, file: Key) {
        if let Some((origin, _)) = self.files.remove(&file) {
            self.pieces -= pieces(origin.stamp.size);
        }
    }
}

impl Joint {
    fn new(common: Arc<Common>) -> Self {
        Self {
            common,
            at: 0,
            sum: 0,
            own: None,
            differs: false,
            #[cfg(test)]
            hashed: 0,
        }
    }

    /// The bytes that follow.
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let within = self.at % PIECE;
            if within == 0 {
                self.begin();
            }
            let (now, rest) = bytes.split_at(bytes.len().min(PIECE - within));
            self.sum = crc32c::crc32c_append(self.sum, now);
            if let Some(sha) = &mut self.own {
                sha.update(now);
                #[cfg(test)]
                (self.hashed += now.len());
            }
            self.at += now.len();
            if self.at.is_multiple_of(PIECE) {
                self.end();
            }
            bytes = rest;
        }
    }

    /// A piece begins: it is hashed unless another reader has done so, or is about to.
    fn begin(&mut self) {
        (self.sum, self.own) = (0, None);
        let piece = self.at / PIECE;
        let mut state = self.common.state.lock();
        let end = Moment::now() + PATIENCE;
        while state.busy && state.sums.len() <= piece && !clock::alone() {
            if clock::wait_until(&self.common.turned, &mut state, end) {
                break;
            }
        }
        if state.sums.len() == piece && !self.differs {
            state.busy = true;
            self.own = Some(state.sha.clone());
        }
    }

    /// A piece is complete, or the file ends within it.
    fn end(&mut self) {
        let own = self.own.take();
        let mut state = self.common.state.lock();
        match (state.sums.get(self.at.div_ceil(PIECE) - 1), own) {
            (Some(sum), _) => self.differs |= *sum != self.sum,
            (None, Some(sha)) => {
                state.sums.push(self.sum);
                (state.sha, state.busy) = (sha, false);
                self.common.turned.notify_all();
            }
            // It has met other bytes before.
            (None, None) => self.differs = true,
        }
    }

    /// The digest of the file, which ends here.
    ///
    /// # Errors
    /// Other readers got other bytes.
    pub fn finish(mut self) -> Result<Option<Digest>, Differs> {
        if !self.at.is_multiple_of(PIECE) {
            self.end();
        }
        let state = self.common.state.lock();
        match self.differs || state.sums.len() != self.at.div_ceil(PIECE) {
            true => Err(Differs),
            false => Ok(Some(Digest(state.sha.clone().finalize().into()))),
        }
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        // What it was about to hash is left to others.
        if self.own.is_some() {
            self.common.state.lock().busy = false;
            self.common.turned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::FileHash;
    use super::*;
    use types::{ObjectId, ObjectStamp};

    const FILE: Key = (Ino(7), Version(1));
    const SIZE: usize = 3 * PIECE + 1000;

    fn origin(object: u64) -> Origin {
        let stamp = ObjectStamp { size: SIZE as u64, ..ObjectStamp::default() };
        Origin { object: ObjectId(object), stamp, far: false }
    }

    fn content() -> Vec<u8> {
        (0..SIZE).map(|n| (n / 7 * 31) as u8).collect()
    }

    fn alone(content: &[u8]) -> Option<Digest> {
        let mut hash = FileHash::new();
        hash.add(0, content);
        hash.finish(content.len() as u64)
    }

    fn pair(digests: &Digests) -> [Joint; 2] {
        [0, 1].map(|_| digests.join(FILE, origin(1), || true).unwrap())
    }

    #[test]
    fn readers_by_turns_have_the_same_digest_and_one_ahead_hashes_for_both() {
        let (content, whole) = (content(), alone(&content()));
        // Lengths of what each reads at a time: the first is ahead, behind, or both by turns.
        for (one, other) in [(PIECE, 1000), (1000, PIECE), (100_001, 77_777), (SIZE, SIZE), (10, 300_000)] {
            let mut readers = pair(&Digests::default()).map(|reader| (reader, 0));
            while readers.iter().any(|(_, at)| *at < SIZE) {
                for ((reader, at), step) in readers.iter_mut().zip([one, other]) {
                    let end = SIZE.min(*at + step);
                    reader.add(&content[*at..end]);
                    *at = end;
                }
            }
            // Where one is ahead of the other by a piece.
            if [one, other].contains(&PIECE) {
                let hashed: usize = readers.iter().map(|(reader, _)| reader.hashed).sum();
                assert!(hashed < SIZE + PIECE + 2000, "{hashed} of {SIZE} bytes were hashed");
            }
            for (reader, _) in readers {
                assert_eq!(reader.finish(), Ok(whole), "{one} {other}");
            }
        }
    }

    #[test]
    fn one_behind_the_other_hashes_nothing() {
        let (content, digests) = (content(), Digests::default());
        let [mut first, mut second] = pair(&digests);
        first.add(&content);
        assert_eq!(first.hashed, SIZE);
        assert_eq!(first.finish(), Ok(alone(&content)));
        second.add(&content);
        assert_eq!(second.hashed, 0);
        assert_eq!(second.finish(), Ok(alone(&content)));
    }

    #[test]
    fn one_that_reads_other_bytes_is_told_wherever_they_are() {
        let content = content();
        for at in [0, PIECE - 1, PIECE, SIZE - 1] {
            let mut other = content.clone();
            other[at] ^= 1;
            let [mut first, mut second] = pair(&Digests::default());
            first.add(&content);
            second.add(&other);
            assert_eq!(first.finish(), Ok(alone(&content)));
            assert_eq!(second.finish(), Err(Differs), "byte {at}");
        }
        let [mut first, mut second] = pair(&Digests::default());
        first.add(&content);
        assert_eq!(first.finish(), Ok(alone(&content)));
        second.add(&content[..PIECE]);
        assert_eq!(second.finish(), Err(Differs), "it is shorter");
    }

    #[test]
    fn one_that_stands_still_or_fails_within_a_piece_keeps_nobody() {
        let content = content();
        let [mut first, mut second] = pair(&Digests::default());
        first.add(&content[..PIECE + 5]);
        let begun = std::time::Instant::now();
        second.add(&content);
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert_eq!(second.finish(), Ok(alone(&content)));
        first.add(&content[PIECE + 5..]);
        assert_eq!(first.finish(), Ok(alone(&content)), "it goes on where it stood");
        let [mut first, mut second] = pair(&Digests::default());
        first.add(&content[..PIECE + 5]);
        drop(first);
        assert!(!second.common.state.lock().busy, "it is not waited for");
        second.add(&content);
        assert_eq!((second.hashed, second.finish()), (SIZE - PIECE, Ok(alone(&content))));
    }

    #[test]
    fn readers_at_once_have_the_digest_of_one() {
        let (content, digests) = (content(), Digests::default());
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|n| {
                    let mut reader = digests.join(FILE, origin(1), || true).unwrap();
                    let content = &content;
                    scope.spawn(move || {
                        content.chunks(10_000 + n * 7_000).for_each(|bytes| reader.add(bytes));
                        reader.finish()
                    })
                })
                .collect();
            for reader in readers {
                assert_eq!(reader.join().unwrap(), Ok(alone(&content)));
            }
        });
    }

    #[test]
    fn only_readers_of_the_same_content_join_and_the_oldest_are_forgotten() {
        let digests = Digests::default();
        assert!(digests.join(FILE, origin(1), || false).is_none(), "nobody else reads it");
        let common = |joint: Option<Joint>| joint.unwrap().common.clone();
        let first = common(digests.join(FILE, origin(1), || true));
        assert!(Arc::ptr_eq(&first, &common(digests.join(FILE, origin(1), || false))));
        let other = common(digests.join(FILE, origin(2), || true));
        assert!(!Arc::ptr_eq(&first, &other), "another object");
        for n in 0..MOST_FILES as u64 {
            digests.join((Ino(100 + n), Version(1)), origin(n), || true).unwrap();
        }
        let inner = digests.inner.lock();
        assert!(!inner.files.contains_key(&FILE));
        assert_eq!((inner.files.len(), inner.order.len()), (MOST_FILES, MOST_FILES));
        assert_eq!(inner.pieces, MOST_FILES * pieces(SIZE as u64));
        drop(inner);
        let large = ObjectStamp { size: u64::MAX, ..ObjectStamp::default() };
        assert!(digests.join(FILE, Origin { stamp: large, ..origin(1) }, || true).is_none());
    }
}
