//! Disk targets of the cluster: which there are, what the movers that serve them need, and the mover of this node.

mod apart;
mod claims;
mod copies;
mod decider;
mod depots;
mod folding;
mod grants;
mod hurry;
mod keys;
mod known;
mod lacks;
mod layouts;
mod leave;
mod lent;
mod mend;
mod moves;
mod near;
mod outcome;
mod pace;
mod places;
mod pool;
mod protect;
mod records;
mod removed;
mod requested;
mod room;
mod scrub;
mod serve;
mod short;
mod stock;
mod target_pools;
mod tend;
mod ways;
mod whose;
mod widen;

pub(crate) use decider::Decider;
pub(crate) use depots::Writable;
pub(crate) use grants::Grantee;
pub(crate) use keys::MasterKey;
pub(crate) use lent::Unlent;
pub(crate) use mend::MENDERS;
pub(crate) use protect::subject as protect_subject;
pub(crate) use records::{down, troubles};
pub use serve::{TargetServer, serve_targets};
pub(crate) use short::{Hope, Room, Shares, with_overhead};
pub(crate) use ways::Movers;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use types::MemberId;

/// Between two reports of a node that serves targets.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// A target whose node has not reported for so long is down.
pub(crate) const DOWN_AFTER: Duration = Duration::from_secs(20);
/// A target that has been reporting for so long that it has not heard of the turn is as good as down: it hears of it in the answer to each report.
const BEHIND_AFTER: Duration = Duration::from_secs(12);
/// Longest text that a node says of a target (bytes).
const NAMES: usize = 255;
/// Files looked at together.
const PAGE: usize = 256;

fn node_of(own: &crate::cluster::Own) -> MemberId {
    crate::cluster::member_id(own.credentials.identity.role)
}

/// An address of this host at which a listener hears.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
