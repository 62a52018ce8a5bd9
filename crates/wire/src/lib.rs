//! Messages between a client and a node: versioned, framed, postcard-encoded. No business rules.

mod message;

pub use message::*;
