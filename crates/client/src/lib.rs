//! The way to a node: calls over its control socket with typed answers, and restartable parallel copies of trees
//! between a local file system and the namespace, and the native library for programs ([`native`]). `FileApi` for gateways of the same process is
//! re-exported; [`ClusterFiles`] is it for gateways on other hosts.
#![forbid(unsafe_code)]

mod answer;
mod cluster;
mod connection;
mod copies;
pub mod copy;
mod errno;
mod error;
mod length;
mod lent;
pub mod native;
mod path;
mod remote;
mod spares;

pub use answer::{FilesPage, FromReply, VolumeFilesPage};
pub use cluster::{ClusterFiles, Names, Reach, Relay, Relayed};
pub use connection::Connection;
pub use data::Place;
pub use errno::errno;
pub use error::ClientError;
pub use path::join;
pub use remote::{Newcomer, Remote, join_cluster, renew_certificate, renew_if_due};
pub use types::api::*;
pub use types::escape;
