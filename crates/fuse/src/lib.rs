//! Mounts a [`FileApi`](types::api::FileApi) as a Linux file system through FUSE.
//!
//! Files that are wholly on disk are handed to the kernel (FUSE passthrough): their reads, writes and mappings never
//! enter this process. Files that are not are served through the interface; whoever reads them waits, nobody else does.
//! The room owns no durable state.
//!
//! Threads: *session threads* read requests and never wait for tape (of several that wait for a network, no more
//! than are needed read at a time); a pool for syncs; a pool for changes that may wait;
//! one that looks for signals of waiting readers; one that tells the kernel what to forget.
#![forbid(unsafe_code)]

mod attr;
mod config;
mod errno;
mod error;
mod few;
mod follow;
mod gateway;
mod io;
mod known;
mod locks;
mod mount;
mod notify;
mod ops;
mod place;
mod pool;
mod readers;
mod signals;
mod table;
mod tree;
mod waits;

pub use config::MountOptions;
pub use error::MountError;
pub use mount::{Mount, mount, mount_at};
pub use place::Place;
