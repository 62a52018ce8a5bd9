//! A virtual tape library: tape drives and a medium changer as real SCSI device servers (SSC-4, SMC-3), whose
//! cartridges are directories in the layout of the LTFS reference implementation's file back end.
//!
//! Reached in the same process ([`Library::drive`], [`Library::changer`]) or over unix sockets ([`serve`]). Mechanics can
//! take no time, that of LTO-9, or anything between, on a [`Clock`] that tests replace. [`Fault`]s can be injected.
//! Formats and semantics: `docs/formats/vtl.md`.
#![forbid(unsafe_code)]

mod cartridge;
mod changer;
mod clock;
mod config;
mod drive;
mod durable;
mod elements;
mod error;
mod fault;
mod identity;
mod library;
mod reserve;
mod serve;
mod stats;
mod transport;
mod unit;

pub use clock::{Clock, RealClock, VirtualClock};
pub use config::{Mechanics, VtlConfig};
pub use error::{Result, VtlError};
pub use fault::{Device, Fault, HostOp};
pub use library::Library;
pub use serve::{Server, serve};
pub use stats::DriveStats;
pub use transport::LibraryTransport;
pub use unit::Host;
