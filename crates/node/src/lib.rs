//! The services of a node: where catalogue, disk, policy, scheduler and tape meet.
//!
//! * [`Node`] owns everything and implements `FileApi`; `Node::call` answers administration.
//! * `files`: open files, reads and writes, recalls, space. `governor`: drives the policy. `archive`: the event loop that
//!   drives the scheduler, one worker per drive. `admin`: calls. `check`: catalogue against disk and cartridges.
#![forbid(unsafe_code)]

mod admin;
mod archive;
pub mod attached;
mod backup_to;
mod check;
mod clock;
mod cluster;
mod counted;
mod devices;
mod engine;
mod error;
mod files;
mod governor;
mod keep;
mod keys;
mod leases;
mod locks;
mod moment;
mod movers;
mod node;
mod restore;
mod server;
mod settings;
mod standby;
mod startup;
mod stepped;
mod tier;
mod turns;

pub use admin::Session;
pub use archive::{Checked, Devices, Queues};
pub use clock::Clock;
pub use cluster::{ClusterKeeper, ClusterServer, keep_cluster, serve_cluster};
pub use config::{self, Config, ConfigError, Size, limits};
pub use devices::{DeviceConfig, NodePeers, devices_at};
pub use engine::{MoveStep, Moved, clear_engine, move_engine};
pub use moment::Source;
pub use movers::{TargetServer, serve_targets};
pub use node::{Mounter, Node, Relayed};
pub use restore::{Restored, restore_catalog};
pub use server::{Server, serve};
pub use standby::{Followed, StandbyConfig, StandbyMode, WhenAway, follow, is_standby};
pub use stepped::{Order, OrderKind, Stepped};
pub use turns::{Turn, Waited, wait_for_turn};

/// The time of day, read only in this room and above.
pub(crate) fn now() -> types::Time {
    clock::now()
}
