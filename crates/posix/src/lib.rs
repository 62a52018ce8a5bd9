//! What programs expect of a file system, as tables of calls that run on any directory: on a file system of ours, and on
//! ext4 beside it, which shows whether the expectations are right. For tests only.

mod calls;
mod differences;
mod errors;
pub mod fsx;
mod mapped;
pub mod parts;
pub mod random;
mod raw;
mod script;
mod suite;
pub mod twins;
mod users;
mod world;

pub use differences::{HOST, MOUNT, NODE};
pub use suite::{Exception, Failure, Part, Report, run};
pub use users::{User, is_root};
pub use world::{Host, Tape, World};
