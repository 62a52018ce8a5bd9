//! One interface for every gateway: [`FileApi`], on the node of this process or over the wire.

pub use types::api::*;
