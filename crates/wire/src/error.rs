//! What can go wrong between two ends of a connection.

use crate::frame::{Kind, MAX_PAYLOAD};
use types::ErrorClass;

/// A connection that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The other end closed the connection between two frames.
    #[error("the connection was closed by the other end")]
    Closed,
    /// The socket failed, or ended in the middle of a frame.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// A frame longer than both sides agreed on, to be sent or announced by the other end.
    #[error("a message of {0} bytes is over the limit of {MAX_PAYLOAD} bytes; ask for less at a time")]
    TooLarge(u64),
    /// A frame kind that version 1 does not know.
    #[error("the other end sent a frame of unknown kind {0}; it is not a Thermocline peer of this version")]
    UnknownKind(u8),
    /// A frame that may not come at this point.
    #[error("the other end sent a {got:?} frame where a {expected} was due")]
    Unexpected {
        /// What was due.
        expected: &'static str,
        /// What came.
        got: Kind,
    },
    /// A payload that does not decode.
    #[error("the other end sent a {kind:?} frame that cannot be decoded: {reason}")]
    Malformed {
        /// Kind of the frame.
        kind: Kind,
        /// Why.
        reason: &'static str,
    },
    /// A message of ours that does not encode: a defect.
    #[error("a message cannot be encoded: {0}")]
    Encode(postcard::Error),
    /// The other end does not begin as Thermocline does.
    #[error("what listens on this socket is not a Thermocline node")]
    NotThermocline,
    /// The other end is of the release before, which does not know the call.
    #[error(
        "the other end ({program}) speaks wire version {speaks}, and that is asked since version {needs}; update it"
    )]
    NotYet {
        /// Version from which on the call is known.
        needs: u32,
        /// Version that is spoken.
        speaks: u32,
        /// What the other end calls itself.
        program: String,
    },
    /// No wire version in common.
    #[error(
        "the other end ({program}) speaks wire version {theirs}, this program {ours}; \
         update the older of the two, then stop the node with its own version and start it again"
    )]
    Version {
        /// Newest version of this program.
        ours: u32,
        /// Newest version of the other end.
        theirs: u32,
        /// What the other end calls itself.
        program: String,
    },
}

impl WireError {
    /// What a caller can do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied => ErrorClass::Denied,
            Self::Closed | Self::Io(_) => ErrorClass::Retry,
            Self::TooLarge(_) | Self::NotThermocline | Self::Version { .. } | Self::NotYet { .. } => {
                ErrorClass::Invalid
            }
            Self::UnknownKind(_) | Self::Unexpected { .. } | Self::Malformed { .. } | Self::Encode(_) => {
                ErrorClass::Bug
            }
        }
    }
}
