//! Sections: tar archives in the pax format (POSIX.1-2001) that any tar reads, with a list of their members at the front,
//! the byte at which each begins, and all that the catalogue knows of each file. See `docs/formats/ansi-tar.md`.
//!
//! Written by hand and not with the `tar` crate: that writes GNU long names instead of pax records, no sparse members, and
//! tells no offsets before it has written.

pub mod foreign;
pub mod header;
pub mod index;
pub mod member;
pub mod name;
mod node;
pub mod pax;
pub mod plan;
pub mod read;
pub mod time;
pub mod volume;

/// Length of a tar block (bytes): headers are one, data is padded to a multiple.
pub const BLOCK: u64 = 512;

/// Why a section could not be made or understood.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// It is not what this format says.
    #[error("at byte {offset} of the section: {what}")]
    Damaged {
        /// Byte of the section.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A file that cannot be put into a section.
    #[error("file {name:?}: {what}")]
    Unfit {
        /// Its path, for people.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// The bytes could not be read.
    #[error("reading a section: {0}")]
    Io(#[from] std::io::Error),
}

/// Bytes of padding behind `length` bytes of data.
pub const fn padding(length: u64) -> u64 {
    (BLOCK - length % BLOCK) % BLOCK
}
