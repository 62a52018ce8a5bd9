//! Messages between a client and a node: versioned, framed, postcard-encoded. No business rules.
//!
//! [`frame`] cuts a byte stream into frames, [`Channel`] puts typed messages and descriptors into them over a unix
//! socket, [`serve_connection`] answers calls one after another. The bytes are described in `docs/formats/wire.md`.
#![deny(unsafe_code)]

mod acts;
mod channel;
mod devices;
mod error;
mod files;
pub mod frame;
mod held;
mod layouts;
mod message;
mod orders;
mod overview;
mod peer;
mod reply;
mod serve;
mod standby;
mod subsystem;
mod turns;
mod version;

pub use acts::{Act, ActOrder, Acted, LeftOut, MAX_PATHS, Outcome};
pub use channel::{Channel, Inbound, Stream};
pub use devices::*;
pub use error::WireError;
pub use files::{Alone, FileCall, FileOrder, LeasedReply, LockEvent, Look, Seen, Speaks};
pub use held::{QuotaChangeV4, QuotaV4, QuotaViewV4, UsageV4};
pub use layouts::{ColumnAccess, CopiesLayout, FileLayout, LentLayout, LentPart, PartAccess, Spare};
pub use message::*;
pub use orders::*;
pub use overview::{ClusterStatus, MemberReport, MemberState, MemberStatus, OutOfDate};
pub use peer::{Peer, peer};
pub use reply::*;
pub use serve::{Answer, serve_channel, serve_connection};
pub use standby::{KeptFile, MAX_PART, StandbyAnswer, StandbyPromise, StandbyStep, StandbyView};
pub use subsystem::SubsystemView;
pub use turns::{TurnNode, TurnState, TurnsView};
pub use version::{SPOKEN, VERSION};
