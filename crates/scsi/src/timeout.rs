//! How long commands may take on real drives and libraries. LTO-9 locates take minutes, the first load of its media
//! calibrates for up to two hours, and attributes or log pages may wait behind a load; vendors recommend these orders.

use std::time::Duration;

/// Commands that move nothing (they may still wait for one that does).
pub const SHORT: Duration = Duration::from_secs(10 * 60);
/// One READ, WRITE or WRITE FILEMARKS, retries included.
pub const TRANSFER: Duration = Duration::from_secs(40 * 60);
/// LOCATE, SPACE, REWIND.
pub const POSITION: Duration = Duration::from_secs(60 * 60);
/// LOAD, with calibration of new media.
pub const LOAD: Duration = Duration::from_secs(3 * 60 * 60);
/// UNLOAD, with flush and rewind.
pub const UNLOAD: Duration = Duration::from_secs(60 * 60);
/// FORMAT MEDIUM and SET CAPACITY.
pub const FORMAT: Duration = Duration::from_secs(4 * 60 * 60);
/// ERASE of the whole medium.
pub const ERASE: Duration = Duration::from_secs(30 * 60 * 60);
/// INITIALIZE ELEMENT STATUS: the robot looks at every slot of a library that may have thousands.
pub const AUDIT: Duration = Duration::from_secs(4 * 60 * 60);
/// One move of the robot; some libraries answer only when the drive has threaded the tape.
pub const MOVE: Duration = Duration::from_secs(30 * 60);
