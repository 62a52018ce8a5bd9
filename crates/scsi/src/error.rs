//! What can go wrong with a command.

use crate::{DecodeError, Sense, TransportError};

/// Result of a SCSI command.
pub type Result<T> = std::result::Result<T, ScsiError>;

/// A command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ScsiError {
    /// The device answered CHECK CONDITION.
    #[error("{device}: {command}: {sense}")]
    Check {
        /// Device by its name or path.
        device: String,
        /// Command as the standards name it.
        command: &'static str,
        /// Why.
        sense: Sense,
    },
    /// The device answered with another status (08h busy, 18h reservation conflict, 28h task set full ...).
    #[error("{device}: {command}: status {status:02X}h ({})", status_text(*.status))]
    Status {
        /// Device by its name or path.
        device: String,
        /// Command.
        command: &'static str,
        /// SCSI status byte.
        status: u8,
    },
    /// Nobody answered.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The answer makes no sense.
    #[error("{device}: {command}: the reply cannot be understood: {detail}")]
    Malformed {
        /// Device by its name or path.
        device: String,
        /// Command.
        command: &'static str,
        /// What is wrong with it.
        detail: DecodeError,
    },
    /// The drive says that it does not know its logical position (rewind or locate first).
    #[error("{device}: READ POSITION: the drive does not know its logical position")]
    PositionUnknown {
        /// Device by its name or path.
        device: String,
    },
}

impl ScsiError {
    /// Sense of a CHECK CONDITION.
    pub fn sense(&self) -> Option<&Sense> {
        match self {
            Self::Check { sense, .. } => Some(sense),
            _ => None,
        }
    }
}

/// Name of a status byte (SAM-5 table 46).
fn status_text(status: u8) -> &'static str {
    match status {
        0x08 => "busy",
        0x18 => "reservation conflict",
        0x28 => "task set full",
        0x30 => "ACA active",
        0x40 => "task aborted",
        _ => "not expected here",
    }
}
