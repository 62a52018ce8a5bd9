//! Counters for benchmarks and tests.

use std::time::Duration;

/// What a drive has done since the library was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriveStats {
    /// Bytes of records written.
    pub bytes_written: u64,
    /// Bytes of records read.
    pub bytes_read: u64,
    /// Records written.
    pub records_written: u64,
    /// Records read.
    pub records_read: u64,
    /// Filemarks written.
    pub filemarks: u64,
    /// Synchronous flushes.
    pub flushes: u64,
    /// Time spent in flushes by the host's file system and the mechanics.
    pub flush_time: Duration,
    /// Time during which the tape has streamed; what is in the buffer is yet to come.
    pub streaming: Duration,
    /// Time during which the tape stood still between two transfers because the host was not fast enough.
    pub idle: Duration,
    /// Times that happened.
    pub gaps: u64,
    /// Time between two transfers of one cartridge during which no data moved, for whatever reason: `idle`, and locates
    /// with the pauses around them.
    pub standing: Duration,
    /// Locates, spaces and rewinds that moved the tape.
    pub repositions: u64,
    /// Of these, how many went backwards.
    pub backward: u64,
    /// Time spent with them.
    pub positioning: Duration,
    /// Cartridges loaded.
    pub loads: u64,
    /// Last failure of the host's file system below the cartridges.
    pub host_error: Option<String>,
}
