//! One operation (or a family that shares its rules) per file; each a function over one transaction.

pub mod candidates;
pub mod class;
pub mod create;
pub mod link;
pub mod list;
pub mod lookup;
pub mod names;
pub mod new_content;
pub mod observe;
pub mod open;
pub mod path;
pub mod pool;
pub mod purge;
pub mod record_copies;
pub mod remove;
pub mod rename;
pub mod request;
pub mod residency;
pub mod resolve;
pub mod set_class;
pub mod setattr;
pub mod sums;
pub mod tape_tree;
pub mod version;
pub mod volume;
pub mod xattr;
