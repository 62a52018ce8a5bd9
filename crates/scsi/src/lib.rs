//! SCSI as a tape system speaks it: commands and replies of SPC, SSC and SMC, sense decoding, and the
//! [`Transport`] that carries them.
//!
//! [`Ssc`] is a tape drive, [`Smc`] a medium changer; both own a transport and are a [`Device`], which has the
//! commands common to all (inquiry, mode and log pages, sense). Every decoder is a pure function of the reply's bytes,
//! never panics, and can be called by itself. Standards: SPC-4 (T10/1731-D), SSC-4 (T10/2123-D), SMC-3 (T10/1730-D).
#![deny(unsafe_code)]

pub mod address;
mod asc;
mod bytes;
mod device;
pub mod element;
pub mod encrypt;
mod error;
pub mod inquiry;
pub mod iscsi;
pub mod log;
pub mod mam;
pub mod mode;
pub mod opcode;
pub mod position;
pub mod rao;
pub mod reserve;
pub mod sense;
pub mod sg;
mod smc;
pub mod socket;
mod ssc;
pub mod timeout;

pub use address::{Address, Alone, IscsiAddress, NodeAddress, Peers};
pub use asc::describe;
pub use bytes::DecodeError;
pub use device::Device;
pub use element::{Element, ElementAssignment, ElementType, Range};
pub use error::{Result, ScsiError};
pub use inquiry::Inquiry;
pub use log::TapeCapacity;
pub use mam::Attribute;
pub use position::Position;
pub use reserve::{Registrant, Reservation, ReservationKind};
pub use sense::{Sense, SenseKey};
pub use smc::Smc;
pub use ssc::{
    BlockLimits, Density, FormatKind, ReadOutcome, SpaceOutcome, Ssc, WriteOutcome, decode_block_limits,
    decode_densities,
};

/// Which way data moves, seen from the initiator.
#[derive(Debug)]
pub enum Data<'a> {
    /// No data.
    None,
    /// Device to us: the buffer is filled from its start.
    In(&'a mut [u8]),
    /// Us to the device.
    Out(&'a [u8]),
    /// To the device, from memory at its host: only a transport to a device of another node carries it, others refuse it.
    There(There),
    /// From the device into memory at its host, at most so many bytes; the same holds. With `sealed` the sum behind them is checked there and left out.
    Keep(There),
}

/// Bytes at the host of a device of another node, which do not pass through here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct There {
    /// Which memory.
    pub depot: u64,
    /// Where in the stream of bytes that was put into it.
    pub at: u64,
    /// How many.
    pub bytes: usize,
    /// Their CRC-32C is behind them, as the device knows them.
    pub sealed: bool,
}

/// Bytes of a record's sum.
const SEAL: usize = 4;

impl There {
    /// Bytes that the device gets or gives.
    pub fn len(&self) -> usize {
        self.bytes + if self.sealed { SEAL } else { 0 }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Data<'_> {
    /// Bytes in the buffer.
    pub fn len(&self) -> usize {
        match self {
            Data::None => 0,
            Data::In(room) => room.len(),
            Data::Out(bytes) => bytes.len(),
            Data::There(there) | Data::Keep(there) => there.len(),
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For a transport to a device that is not at another node.
    ///
    /// # Errors
    /// `Refused`: the bytes are at another node's host.
    pub fn must_be_here(&self, device: &str) -> std::result::Result<(), TransportError> {
        if !matches!(self, Data::There(_) | Data::Keep(_)) {
            return Ok(());
        }
        let detail = "its bytes are at another host, and it is not; report this".to_owned();
        Err(TransportError::Refused { device: device.to_owned(), detail })
    }
}

/// Status byte GOOD.
pub const GOOD: u8 = 0x00;
/// Status byte CHECK CONDITION.
pub const CHECK_CONDITION: u8 = 0x02;

/// What a device answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// SCSI status byte.
    pub status: u8,
    /// Bytes actually put into (or taken from) the data buffer.
    pub transferred: usize,
    /// Sense data as delivered (empty unless CHECK CONDITION).
    pub sense: Vec<u8>,
}

/// The way to a device broke (not the device's own answer).
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The device did not answer in time.
    #[error("{device}: no answer within {seconds} s")]
    Timeout {
        /// Device by its name or path.
        device: String,
        /// Time limit.
        seconds: u64,
    },
    /// The path to the device is gone.
    #[error("{device}: {detail}")]
    Lost {
        /// Device by its name or path.
        device: String,
        /// What the system said.
        detail: String,
    },
    /// What the device gave was changed on its way to its host: nothing of it was kept.
    #[error("{device}: a record came without its sum")]
    Garbled {
        /// Device by its name or path.
        device: String,
    },
    /// This machine did not send the command: no permission, too much data, a missing library.
    #[error("{device}: {detail}")]
    Refused {
        /// Device by its name or path.
        device: String,
        /// Why, and what to do.
        detail: String,
    },
}

/// Carries one command at a time to one logical unit.
pub trait Transport: Send {
    /// Executes `cdb`. A CHECK CONDITION is an Ok reply; Err means that nobody answered.
    fn execute(
        &mut self,
        cdb: &[u8],
        data: Data<'_>,
        timeout: std::time::Duration,
    ) -> std::result::Result<Reply, TransportError>;
    /// Name of the device for messages.
    fn name(&self) -> &str;
}

impl Transport for Box<dyn Transport> {
    fn execute(
        &mut self,
        cdb: &[u8],
        data: Data<'_>,
        timeout: std::time::Duration,
    ) -> std::result::Result<Reply, TransportError> {
        (**self).execute(cdb, data, timeout)
    }

    fn name(&self) -> &str {
        (**self).name()
    }
}
