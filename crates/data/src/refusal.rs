//! Why a mover does not do what it is asked.

use types::ErrorClass;

/// Longest message that travels with a refusal (bytes).
pub const MAX_MESSAGE: usize = 1024;

/// A refusal of a mover, or of the end that reads its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is not as the protocol has it; the connection ends.
    #[error("request not understood: {0}; both ends must be of neighbouring releases of Thermocline")]
    Malformed(&'static str),
    /// A signature is wrong; the connection ends.
    #[error(
        "the signature is wrong: whoever asked does not have the key of the capability, or bytes were changed on the way"
    )]
    Signature,
    /// The capability is not enough for the request.
    #[error("the capability does not allow this: {0}; ask the metadata service for another one")]
    Capability(&'static str),
    /// The capability has ended.
    #[error("the capability has expired; ask the metadata service to renew it")]
    Expired,
    /// Another layout of the file is in force, or the client was shut out.
    #[error("the capability was revoked; ask the metadata service where the file's bytes are now")]
    Fenced,
    /// The bytes do not have the sums that came with them; nothing was written.
    #[error("the bytes do not match their sums; they were damaged on the way and have to be sent again")]
    Sums,
    /// What is stored is not what was written.
    #[error("{0}")]
    Corrupt(String),
    /// There is no such object.
    #[error("{0}")]
    Missing(String),
    /// An object that was to be made is there already.
    #[error("{0}")]
    Exists(String),
    /// The disk of the target is full.
    #[error("{0}")]
    NoSpace(String),
    /// The disk of the target fails.
    #[error("{0}")]
    Disk(String),
    /// The mover ends, or has too much to do.
    #[error("{0}")]
    Busy(String),
    /// The target is not served there, or not any more: it is as far away as one whose mover does not answer.
    #[error("{0}")]
    Elsewhere(String),
}

impl Refusal {
    /// The number that stands for it on the wire.
    pub fn code(&self) -> u8 {
        match self {
            Self::Malformed(_) => 1,
            Self::Signature => 2,
            Self::Capability(_) => 3,
            Self::Expired => 4,
            Self::Fenced => 5,
            Self::Sums => 6,
            Self::Corrupt(_) => 7,
            Self::Missing(_) => 8,
            Self::Exists(_) => 9,
            Self::NoSpace(_) => 10,
            Self::Disk(_) => 11,
            Self::Busy(_) => 12,
            Self::Elsewhere(_) => 13,
        }
    }

    /// What the error means for a caller.
    pub fn class(&self) -> ErrorClass {
        class_of(self.code())
    }

    /// Whether the connection ends with it: what follows can no longer be told apart, or comes from somebody who lies.
    pub fn ends_connection(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::Signature)
    }
}

/// The error class of a code; codes of newer releases are transient errors.
pub fn class_of(code: u8) -> ErrorClass {
    match code {
        1 => ErrorClass::Invalid,
        2..=5 => ErrorClass::Denied,
        7 | 11 => ErrorClass::Corrupt,
        8 => ErrorClass::NotFound,
        9 => ErrorClass::Exists,
        10 => ErrorClass::NoSpace,
        _ => ErrorClass::Retry,
    }
}
