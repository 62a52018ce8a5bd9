//! What a client of a mover gets instead of an answer.

use crate::Refusal;
use crate::refusal::class_of;
use types::ErrorClass;

/// Result of what is asked of a mover.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DataError {
    /// The mover refuses.
    #[error("mover {mover}: {message}")]
    Refused {
        /// Its address.
        mover: String,
        /// What kind of refusal ([`Refusal::code`]).
        code: u8,
        /// What it says.
        message: String,
    },
    /// The mover cannot be reached, or does not prove that it is the one.
    #[error("mover {mover} does not answer: {reason}; see `thermo cluster status`")]
    Unreachable {
        /// Its address.
        mover: String,
        /// What the last attempt said.
        reason: String,
    },
    /// What came is not what the mover has stored, several times in a row.
    #[error(
        "mover {mover}: what it sends of object {object} does not match its sums; the network or its memory damages bytes"
    )]
    Damaged {
        /// Its address.
        mover: String,
        /// The object.
        object: u64,
    },
    /// The channel was closed by this end.
    #[error("the connection to mover {mover} was closed")]
    Closed {
        /// Its address.
        mover: String,
    },
}

impl DataError {
    /// What the error means for a caller.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Refused { code, .. } => class_of(*code),
            Self::Unreachable { .. } => ErrorClass::Retry,
            Self::Damaged { .. } => ErrorClass::Corrupt,
            Self::Closed { .. } => ErrorClass::Bug,
        }
    }

    /// Whether the mover refuses for this reason.
    pub fn is(&self, refusal: &Refusal) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == refusal.code())
    }
}
