//! Big-endian fields of replies, without panics.

/// A reply ends before, or contradicts, what its format promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: field at byte {at} of {len} bytes is missing or impossible")]
pub struct DecodeError {
    /// Which structure.
    pub what: &'static str,
    /// Offset of the first byte that is missing or wrong.
    pub at: usize,
    /// Length of the reply.
    pub len: usize,
}

/// Bounds-checked view of a reply.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    what: &'static str,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes }
    }

    pub(crate) fn bad(&self, at: usize) -> DecodeError {
        DecodeError { what: self.what, at, len: self.bytes.len() }
    }

    pub(crate) fn slice(&self, at: usize, len: usize) -> Result<&'a [u8], DecodeError> {
        at.checked_add(len).and_then(|end| self.bytes.get(at..end)).ok_or_else(|| self.bad(at))
    }

    /// Big-endian number of `width` (1 to 8) bytes.
    pub(crate) fn uint(&self, at: usize, width: usize) -> Result<u64, DecodeError> {
        Ok(uint(self.slice(at, width)?))
    }

    pub(crate) fn u8(&self, at: usize) -> Result<u8, DecodeError> {
        Ok(self.slice(at, 1)?[0])
    }

    pub(crate) fn u16(&self, at: usize) -> Result<u16, DecodeError> {
        Ok(self.uint(at, 2)? as u16)
    }

    pub(crate) fn u32(&self, at: usize) -> Result<u32, DecodeError> {
        Ok(self.uint(at, 4)? as u32)
    }

    pub(crate) fn u64(&self, at: usize) -> Result<u64, DecodeError> {
        self.uint(at, 8)
    }
}

/// Big-endian number of at most eight bytes (only the last eight count).
pub(crate) fn uint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, b| (n << 8) | u64::from(*b))
}

/// ASCII without the padding (spaces and NULs) at both ends; other bytes become `?`.
pub(crate) fn text(bytes: &[u8]) -> String {
    let s: String = bytes
        .iter()
        .map(|b| if b.is_ascii_graphic() || *b == b' ' || *b == 0 { *b as char } else { '?' })
        .collect();
    s.trim_matches(|c| c == ' ' || c == '\0').to_string()
}
