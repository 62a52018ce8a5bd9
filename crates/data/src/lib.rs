//! How clients and movers exchange the bytes of objects: what is signed and summed, how frames look, and the client's end of it.
//!
//! * [`sum`]: sums of blocks, computed where bytes are made and compared where they are used.
//! * [`Capability`]: what a client may do, as a target can check it without asking.
//! * [`epoch`]: of which turn of which metadata service it is.
//! * [`frame`], [`hello`]: bytes on the wire ([format](../../../docs/formats/data.md)).
//! * [`Link`]: a connection; sockets now, shaped for others.
//! * [`Channel`]: many requests on their way at once over one connection, each done exactly once whatever becomes of the connection.
//!
//! The other end is crate `mover`. Nothing here knows a path or a disk.
#![forbid(unsafe_code)]

mod capability;
mod channel;
pub mod epoch;
mod error;
pub mod frame;
pub mod hello;
mod link;
mod refusal;
pub mod sum;

pub use capability::{CAPABILITY_LEN, Capability, CapabilityKey, Rights, SIGNATURE_LEN, TargetSecret};
pub use channel::{Ask, Channel, Dial, Granted, Reply, Slot, Terms, Ticket};
pub use error::{DataError, Result};
pub use link::{HangUp, Incoming, Link, Outgoing, Place};
pub use refusal::{MAX_MESSAGE, Refusal, class_of};
