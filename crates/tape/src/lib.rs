//! Tape work: library inventory and moves, drive sessions, labels, appending, indexes, reading, and saying who is at
//! fault when something fails. Speaks only SCSI through [`scsi::Transport`]; knows neither paths nor the catalogue.
//!
//! A [`Drive`] mounts what is loaded and gives a [`Mounted`] volume, which borrows the drive: one session per drive.
//! [`Mounted`] formats, appends ([`Appender`]), writes and reads indexes, and reads [`types::Extent`]s. There are no
//! threads and no clocks here: whoever opens a device gives it a [`Sleeper`].
//!
//! What a volume carries is described in `docs/formats/ltfs.md` and, for media without partitions ([`SectionWriter`]),
//! in `docs/formats/ansi-tar.md`; how a session keeps it consistent through a power
//! failure at any command is described at [`Mounted::appender`] and [`Mounted::write_index`].
#![forbid(unsafe_code)]

mod alert;
mod append;
mod append_only;
mod changer;
mod classify;
mod coherency;
pub mod discover;
mod drive;
mod error;
pub mod fence;
mod head;
mod index;
mod index_read;
mod index_scan;
mod keys;
mod label;
mod layout;
mod make;
mod mounted;
mod order;
pub mod policy;
mod protect;
mod reach;
mod read;
mod records;
mod section;
mod section_index;
mod section_scan;
mod tail;
mod tar;
mod there;
mod worm;

pub use alert::Unloaded;
pub use append::{Appender, Flushed, Room, SPARE};
pub use changer::Changer;
pub use drive::{Drive, Settings, SlowLoad, Watcher};
pub use error::{Blame, Fault, Result, TapeError};
pub use fence::Claim;
pub use index::{Fill, IndexSpec, Indexed, Onto};
pub use index_read::{FoundIndex, VolumeEnd};
pub use keys::{Key, KeySource, Keys};
pub use label::LabelState;
pub use make::{Formatted, LabelSpec, Overwrite};
pub use mounted::Mounted;
pub use section::{Section, SectionPoint, SectionWriter};
pub use section_index::{Contents, Told};
pub use tail::AppendPoint;
pub use tar::{TarEnd, TarLabel, TarTold};
pub use there::Load;

/// Waits for the given time. Tests give one that returns at once.
pub type Sleeper = Box<dyn FnMut(std::time::Duration) + Send>;
