//! The native library: files of the namespace for programs, without a mount. Where the node is on the same host it hands out the
//! descriptor of a file's object, and bytes do not pass through it; elsewhere, and while a file comes back from tape, they travel over several
//! connections at once, with read-ahead and write-behind.
//!
//! ```no_run
//! use client::native::{OpenOptions, Session};
//! let session = Session::connect("/var/lib/thermo/control.sock".as_ref())?;
//! let file = session.open("/runs/42/field.dat", OpenOptions::new().read(true).write(true).create(0o644))?;
//! file.write_at(b"abc", 0)?;
//! file.sync()?;
//! file.close()?;
//! # Ok::<(), client::ClientError>(())
//! ```
//!
//! What others see: bytes that were written are seen by everybody after [`File::flush`] or [`File::close`], and survive a power failure after
//! [`File::sync`]. Bytes read ahead are at most [`ahead::FRESH`] old. A file that was opened twice is two files to this library: what the
//! one holds back the other does not see before a flush.
//!
//! Who shares a file with others at the same time takes turns with them by [`File::lock`]: what one wrote before he gave a lock back, the next who gets
//! it reads.

mod ahead;
mod behind;
mod copies;
mod direct;
mod file;
mod lanes;
mod locks;
mod names;
mod port;
mod served;
mod session;
mod spares;
mod stride;
mod told;

pub use file::{File, Pending};
pub use locks::Region;
pub use session::{OpenOptions, Options, Session};
pub use stride::Stride;
pub use types::{LockHeld, LockKind};

use crate::ClientError;

type Done<T> = Result<T, ClientError>;

/// Most bytes that travel in one call.
const PIECE: usize = wire::frame::MAX_IO;
