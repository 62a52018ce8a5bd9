//! Encoding and decoding of everything that lasts: LTFS labels, indexes and cartridge memory (`docs/formats/ltfs.md`),
//! ANSI labels and sections of pax tar (`docs/formats/ansi-tar.md`), and the values of the catalogue (`docs/formats/records.md`). Pure functions: no IO of its own, no clocks, and no
//! input, however damaged, makes a decoder panic.
#![forbid(unsafe_code)]

pub mod ansi;
pub mod ltfs;
pub mod record;
pub mod tar;
