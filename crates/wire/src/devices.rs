//! SCSI commands for a device of another node.

use crate::LentLayout;
use serde::{Deserialize, Serialize};
use types::Digest;

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
    /// The data for the device lies in a depot beside it; `out` is empty then.
    pub there: Option<ScsiThere>,
    /// The data from the device go into a depot beside it, at most so many bytes; `room` is 0 then.
    pub keep: Option<ScsiThere>,
}

/// Data for a device, or from it, in a depot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScsiThere {
    /// Number of the depot.
    pub depot: u64,
    /// Where in the stream of bytes that was put into it.
    pub at: u64,
    /// How many.
    pub bytes: u32,
    /// Their CRC-32C is behind them for the device, least significant byte first; that of what comes from it is checked, and left out.
    pub sealed: bool,
}

/// What is asked of a depot: memory beside a device, for one stream of bytes on its way there. It is the connection's that opened it, and
/// ends with that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DepotCall {
    /// Make one, in place of the one that the device had -> `Done`.
    Open {
        /// Name of the device.
        device: String,
        /// Epoch that the caller serves in, as for `OpenDevice`.
        epoch: u64,
        /// Number, chosen by the caller at random.
        depot: u64,
        /// So many of the newest bytes of the stream are kept; at most [`MAX_DEPOT`].
        bytes: u64,
    },
    /// Bytes at a place of the stream, behind what is there or over it: that ends behind them then -> `Done`.
    Put {
        /// Where; None: only into digests.
        at: Option<u64>,
        /// They are what the file that is read has at this offset, and go into its digests; what is read of it ascends.
        offset: Option<u64>,
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// A file is read from its targets from now on -> `Done`.
    File(Box<DepotFile>),
    /// With these rights from now on -> `Done`.
    Rights(Box<LentLayout>),
    /// Bytes of the file go to a place of the stream, as by `Put`, and into its digests -> `Count` of bytes, fewer only where the file ends.
    Fetch {
        /// Where; None: only into the digests.
        at: Option<u64>,
        /// Offset in the file; what is fetched ascends.
        offset: u64,
        /// How many, at most [`MAX_FETCH`].
        bytes: u32,
    },
    /// Bytes of the stream -> `Bytes`.
    Get {
        /// Where.
        at: u64,
        /// How many, at most [`MAX_FETCH`].
        bytes: u32,
    },
    /// A file is written at its targets from now on, by nobody else -> `Done`.
    Back(Box<DepotFile>),
    /// Bytes of the stream go to the file, and into its digests -> `Machines`: those that have what was written.
    Store {
        /// Where.
        at: u64,
        /// How many, at most [`MAX_STORE`].
        bytes: u32,
        /// Offset in the file; what is stored ascends.
        offset: u64,
    },
    /// Digests of what was fetched or stored, what was left out being zeros -> `Digests`. The file ends.
    Digests,
}

/// Most bytes of a depot.
pub const MAX_DEPOT: u64 = 1 << 30;
/// Most bytes of one `Put` or `Fetch`.
pub const MAX_FETCH: usize = MAX_SCSI_DATA;
/// Most bytes of one `Store`.
pub const MAX_STORE: usize = 32 << 20;
/// Most parts of a file of which digests are made.
pub const MAX_DIGESTS: usize = 4096;

/// A file that a depot is filled from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepotFile {
    /// Where it lies, with the right to read it there.
    pub lent: LentLayout,
    /// A digest of all of it is wanted.
    pub whole: bool,
    /// Parts of it (offset and length) that have digests of their own, at most [`MAX_DIGESTS`].
    pub parts: Vec<(u64, u64)>,
}

/// Digests of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepotDigests {
    /// Of all of it; None: not all came, in order.
    pub whole: Option<Digest>,
    /// Of its parts: offset, length and digest of those that are whole.
    pub parts: Vec<(u64, u64, Digest)>,
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
    /// What the device gave has another sum, and was not kept.
    Garbled,
}
