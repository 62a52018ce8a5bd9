//! Plain data shared by every room: identifiers, units, files, copies, volumes, drives, requests, classes of
//! service and error classes. No IO, no clocks.
#![forbid(unsafe_code)]

mod admin;
pub mod api;
mod archive;
mod asked;
mod barcode;
mod cluster;
mod error;
mod file;
mod ids;
mod junction;
mod layout;
mod locks;
mod lto;
mod quota;
mod targets;
mod text;
mod time;

pub use admin::*;
pub use archive::*;
pub use asked::*;
pub use barcode::*;
pub use cluster::*;
pub use error::*;
pub use file::*;
pub use ids::*;
pub use junction::*;
pub use layout::*;
pub use locks::*;
pub use lto::*;
pub use quota::*;
pub use targets::*;
pub use text::*;
pub use time::*;
