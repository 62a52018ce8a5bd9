//! SCSI commands for a device of another node.

use serde::{Deserialize, Serialize};

/// Most bytes of data in one command.
pub const MAX_SCSI_DATA: usize = 3 << 20;

/// A command for the device that this connection has opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScsiOrder {
    /// The command, 1 to 16 bytes.
    #[serde(with = "serde_bytes")]
    pub cdb: Vec<u8>,
    /// Data for the device.
    #[serde(with = "serde_bytes")]
    pub out: Vec<u8>,
    /// Most bytes of data wanted from it.
    pub room: u32,
    /// Longest wait for its answer (milliseconds).
    pub timeout_ms: u64,
}

/// What the device answered, or why nobody did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScsiResult {
    /// The device's answer.
    Answered {
        /// SCSI status byte.
        status: u8,
        /// Bytes of data taken or given.
        transferred: u32,
        /// Sense data.
        #[serde(with = "serde_bytes")]
        sense: Vec<u8>,
        /// Data from the device.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// It did not answer in time.
    TimedOut,
    /// The way to it is gone.
    Lost(String),
    /// The command was not sent.
    Refused(String),
}
