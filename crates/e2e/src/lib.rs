//! End-to-end tests run the real program as a user does: commands, mounts, signals, cartridges. This library only starts and
//! ends nodes and makes trees; the tests are in `tests/`. It uses nothing of the program's own code.
#![deny(unsafe_code)]

mod bed;
pub mod cluster;
pub mod hosts;
pub mod locker;
pub mod network;
pub mod preloaded;
pub mod record;
mod starter;
pub mod torture;
mod trees;

pub use bed::{Bed, can_mount, thermo};
pub use network::{Network, Way};
pub use starter::Starter;
pub use trees::{digest, digests, make_files, noise, put};
