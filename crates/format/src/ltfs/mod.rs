//! LTFS (ISO/IEC 20919, format 2.4): what a volume carries, byte by byte. See `docs/formats/ltfs.md`.

pub mod file;
pub mod index;
pub mod label;
pub mod mam;
pub mod name;
pub mod origin;
pub mod time;
pub mod vol1;
mod xml;

use std::fmt;

/// Format version that we write into labels, indexes and cartridge memory.
pub const VERSION: &str = "2.4.0";

/// A partition by its LTFS letter, `a` to `z` (LTFS 2.4 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partition(u8);

impl Partition {
    /// The index partition of our volumes (partition 0 of the medium).
    pub const INDEX: Self = Self(b'a');
    /// The data partition of our volumes (partition 1 of the medium).
    pub const DATA: Self = Self(b'b');

    /// The partition of a letter `a` to `z`.
    pub fn from_letter(letter: char) -> Option<Self> {
        letter.is_ascii_lowercase().then_some(Self(letter as u8))
    }

    /// Its letter.
    pub fn letter(self) -> char {
        char::from(self.0)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.letter().fmt(f)
    }
}

/// Whether a reader of ours may read this format version: 1.0.0 to 2.99.99, and the legacy `1.0`.
pub fn readable_version(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| {
        let digits = !part.is_empty() && part.len() <= 9 && part.bytes().all(|b| b.is_ascii_digit());
        if digits { part.parse::<u32>().ok() } else { None }
    });
    let triple = (parts.next().flatten(), parts.next().flatten(), parts.next().flatten(), parts.next());
    match triple {
        (Some(1 | 2), Some(minor), Some(patch), None) => minor <= 99 && patch <= 99,
        _ => version == "1.0",
    }
}

/// Whether `text` is a uuid in its usual form: 36 characters, lower or upper case hex in groups of 8-4-4-4-12.
pub fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}
