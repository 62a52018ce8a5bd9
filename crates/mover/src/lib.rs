//! A mover: serves the objects of disk targets to clients that show a capability, over the protocol of crate `data`.
//!
//! * [`Target`]: objects with sums of their blocks, fences and the numbers of what was done, kept beside the data, and what makes all that
//!   true again after a crash. Start reading at `object.rs`.
//! * [`Mover`]: connections, one thread each; checks every request before anything is done.
//!
//! Nothing here knows a path of the namespace: a metadata service gives out capabilities, and nobody else is believed.
#![forbid(unsafe_code)]

mod admission;
mod boot;
mod intents;
mod object;
mod read;
mod recover;
mod revoked;
mod scrub;
mod serve;
mod sidecar;
mod site;
mod target;
mod turns;
mod write;

pub use admission::Secrets;
pub use boot::start_of_machine;
pub use read::{Content, Source};
pub use scrub::Scrubbed;
pub use serve::{Mover, Peer, Served};
pub use site::SITE_FILE;
pub use target::{Target, TargetError};
