//! Object store of one local disk target: every object is one plain file, so that the kernel can read and write it
//! directly (passthrough) and any tool can look at it.
//!
//! Layout: `<dir>/target` (marker: format and uuid), `<dir>/objects/<2 hex>/<16 hex>`. The two digits are bits 8 to 15
//! of the object id: a batch of consecutive ids touches one directory per 256 objects, and the directories still fill
//! evenly.
//!
//! Crash discipline (proved by `tests/power_loss.rs` on a real file system):
//! 1. [`DiskTarget::precreate`] and [`DiskTarget::create`] return only when the directory entries are on the disk, so a
//!    later [`DiskTarget::sync`] of the object is all that its data needs.
//! 2. [`DiskTarget::sync`] makes data and length durable but not times; [`DiskTarget::sync_all`] also times. Use the
//!    second before a stamp is recorded durably, or the stamp may look changed after a power failure.
//! 3. The reverse can happen too: a crash may keep overwritten bytes but not the newer times. An object that was open
//!    for writing at a crash must therefore count as changed, whatever its stamp says.
//! 4. [`DiskTarget::remove`] is not synced: after a power failure the object may be back. Who keeps a record of what is
//!    to be removed drops it only after [`DiskTarget::sync_entries`].
//!
//! This room keeps no accounts of space and knows no path of the namespace: the catalogue does.
#![deny(unsafe_code)]

mod content;
mod early;
mod error;
mod listing;
mod marker;
mod space;
mod target;
mod writer;

pub use content::DataRanges;
pub use early::begin_sync;
pub use error::{DiskError, Result};
pub use listing::Found;
pub use space::FsSpace;
pub use target::DiskTarget;
pub use writer::Writers;
