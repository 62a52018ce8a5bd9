//! Attached tape libraries: their sections of the configuration, and how these are written.

mod edit;
mod renew;

pub use config::attached::*;
pub use edit::write_library;
pub(crate) use edit::{changing, may_replace, replace};
pub(crate) use renew::{Used, in_force, meet_used};
