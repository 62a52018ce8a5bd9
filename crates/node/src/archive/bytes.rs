//! Digest of a file's bytes, holes included, from pieces in ascending order.

use super::digests::{Differs, Joint};
use sha2::{Digest as _, Sha256};
use types::Digest;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// SHA-256 over a file of which only the data is given.
pub struct FileHash {
    sum: Sum,
    at: u64,
    /// False once a piece came out of order: then there is no digest.
    ordered: bool,
}

/// Who hashes.
enum Sum {
    /// This reader alone.
    Own(Sha256),
    /// This one and others that read the same file, each piece one of them.
    Joint(Box<Joint>),
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Own(sha) => sha.update(bytes),
            Self::Joint(joint) => joint.add(bytes),
        }
    }
}

impl FileHash {
    /// Nothing hashed.
    pub fn new() -> Self {
        Self { sum: Sum::Own(Sha256::new()), at: 0, ordered: true }
    }

    /// The same, together with others that read the same file.
    pub fn together(joint: Joint) -> Self {
        Self { sum: Sum::Joint(Box::new(joint)), at: 0, ordered: true }
    }

    /// Adds the bytes at `offset`; what lies between is a hole.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        self.skip_to(offset);
        self.sum.add(bytes);
        self.at += bytes.len() as u64;
    }

    fn skip_to(&mut self, offset: u64) {
        self.ordered &= offset >= self.at;
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
    fn pieces_out_of_order_give_no_digest() {
        let mut h = FileHash::new();
        h.add(3, b"abc");
        h.add(0, b"abc");
        assert_eq!(h.finish(6), None);
    }
}
