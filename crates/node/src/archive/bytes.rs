//! Digest of a file's bytes, holes included, from pieces in ascending order.

use super::digests::{Differs, Joint};
use catalog::Part;
use sha2::{Digest as _, Sha256};
use types::Digest;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// SHA-256 over a file of which only the data is given.
pub struct FileHash {
    sum: Sum,
    at: u64,
    /// False once a piece came out of order: then there is no digest.
    ordered: bool,
    /// The same of parts of the file.
    parts: Vec<(Part, FileHash)>,
}

/// Who hashes.
enum Sum {
    /// This reader alone.
    Own(Sha256),
    /// This one and others that read the same file, each piece one of them.
    Joint(Box<Joint>),
    /// Nobody: only parts are wanted.
    Nobody,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Own(sha) => sha.update(bytes),
            Self::Joint(joint) => joint.add(bytes),
            Self::Nobody => {}
        }
    }
}

impl FileHash {
    /// Nothing hashed.
    pub fn new() -> Self {
        Self { sum: Sum::Own(Sha256::new()), at: 0, ordered: true, parts: Vec::new() }
    }

    /// The same, together with others that read the same file.
    pub fn together(joint: Joint) -> Self {
        Self { sum: Sum::Joint(Box::new(joint)), ..Self::new() }
    }

    /// Of these parts alone.
    pub fn of_parts(parts: impl IntoIterator<Item = Part>) -> Self {
        Self { sum: Sum::Nobody, ..Self::new() }.with_parts(parts)
    }

    /// The same, and of these parts of the file alone, too.
    pub fn with_parts(self, parts: impl IntoIterator<Item = Part>) -> Self {
        Self { parts: parts.into_iter().map(|part| (part, Self::new())).collect(), ..self }
    }

    /// Adds the bytes at `offset`; what lies between is a hole.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        self.skip_to(offset);
        self.sum.add(bytes);
        self.at += bytes.len() as u64;
        let end = offset + bytes.len() as u64;
        for ((start, length), hash) in &mut self.parts {
            let (from, to) = (offset.max(*start), end.min(*start + *length));
            if from < to {
                hash.add(from - *start, &bytes[(from - offset) as usize..(to - offset) as usize]);
            }
        }
    }

    /// Digests of the parts that were asked for, when all has been added.
    pub fn take_parts(&mut self) -> Vec<(Part, Digest)> {
        let parts = std::mem::take(&mut self.parts).into_iter();
        parts.filter_map(|(part, hash)| Some((part, hash.finish(part.1)?))).collect()
    }

    /// How many zeros are hashed at once before bytes at this offset are, for all of it or for a part.
    pub fn gap(&self, offset: u64) -> u64 {
        let own = if matches!(self.sum, Sum::Nobody) { 0 } else { offset.saturating_sub(self.at) };
        let within = |start: u64, length: u64| offset.saturating_sub(start).min(length);
        let parts = self.parts.iter().map(|((start, length), hash)| hash.gap(within(*start, *length)));
        parts.fold(own, u64::saturating_add)
    }

    fn skip_to(&mut self, offset: u64) {
        self.ordered &= offset >= self.at;
        if matches!(self.sum, Sum::Nobody) {
            self.at = self.at.max(offset);
        }
        while self.at < offset {
            let n = (offset - self.at).min(ZEROS.len() as u64);
            self.sum.add(&ZEROS[..n as usize]);
            self.at += n;
        }
    }

    /// Digest of a file of `size` bytes; None if pieces were missing order, or another reader of the same file got other bytes.
    pub fn finish(self, size: u64) -> Option<Digest> {
        self.try_finish(size).ok().flatten()
    }

    /// Digest of a file of `size` bytes; None if pieces were missing order.
    ///
    /// # Errors
    /// Another reader of the same file got other bytes.
    pub fn try_finish(mut self, size: u64) -> Result<Option<Digest>, Differs> {
        self.skip_to(size);
        let whole = self.ordered && self.at == size;
        match self.sum {
            Sum::Own(sha) => Ok(whole.then(|| Digest(sha.finalize().into()))),
            Sum::Joint(joint) => joint.finish().map(|digest| digest.filter(|_| whole)),
            Sum::Nobody => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_counts_as_zeros() {
        let mut sparse = FileHash::new();
        sparse.add(3, b"abc");
        let mut full = FileHash::new();
        full.add(0, b"\0\0\0abc\0\0");
        assert_eq!(sparse.finish(8), full.finish(8));
    }

    #[test]
    fn parts_have_digests_of_their_own() {
        let mut whole = FileHash::new().with_parts([(0, 4), (4, 3), (7, 5)]);
        whole.add(1, b"abcde");
        whole.add(6, b"fg");
        let alone = |bytes: &[u8]| {
            let mut hash = FileHash::new();
            hash.add(0, bytes);
            hash.finish(bytes.len() as u64).unwrap()
        };
        let parts = [((0, 4), alone(b"\0abc")), ((4, 3), alone(b"def")), ((7, 5), alone(b"g\0\0\0\0"))];
        assert_eq!(whole.take_parts(), parts);
        assert_eq!(whole.finish(12), Some(alone(b"\0abcdefg\0\0\0\0")));
    }

    #[test]
    fn of_a_part_alone_nothing_else_is_hashed() {
        let far = 1 << 50;
        let mut part = FileHash::of_parts([(far, 6)]);
        assert_eq!(part.gap(far), 0);
        part.add(far + 1, b"abc");
        let mut alone = FileHash::new();
        alone.add(0, b"\0abc\0\0");
        assert_eq!(alone.gap(10), 4);
        assert_eq!(part.take_parts(), [((far, 6), alone.finish(6).unwrap())]);
        assert_eq!(part.finish(far + 6), None);
    }

    #[test]
    fn pieces_out_of_order_give_no_digest() {
        let mut h = FileHash::new();
        h.add(3, b"abc");
        h.add(0, b"abc");
        assert_eq!(h.finish(6), None);
    }
}
