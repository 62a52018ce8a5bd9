//! The catalogue: namespace, archive records, requests and usage, over any engine of `kv`.
//!
//! One operation per file under `ops/`, each run as one transaction. [`Catalog`] is the thin entrance. No clock is read
//! here: every operation that needs the time gets it. Keys and values are described in `docs/formats/catalogue.md`.
#![forbid(unsafe_code)]

mod api;
mod catalog;
pub mod check;
mod classes;
mod dirent;
mod error;
mod keys;
mod leading;
mod ops;
mod perm;
mod rec;
#[cfg(test)]
mod rec_golden;
mod recorded;
mod store;

pub use api::*;
pub use catalog::{Catalog, FilesPage, TapePlace, VolumeFiles, place_of};
pub use error::{CatalogError, Result};
pub use ops::cluster::Renewed;
pub use ops::keep::Lost;
pub use ops::layouts::Far;
pub use ops::parts::Part;
pub use ops::targets::Reported;
pub use ops::volume::Volumes;
