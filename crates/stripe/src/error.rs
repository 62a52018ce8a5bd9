//! What can go wrong with a striped file.

use crate::opened::has_ended;
use data::DataError;
use types::{ErrorClass, TargetId};

/// Result of an operation on a striped file.
pub type Result<T, E = StripeError> = std::result::Result<T, E>;

/// An error of a striped file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StripeError {
    /// The layout is not one.
    #[error("{0}; see `thermo layout get`")]
    Layout(#[from] layout::LayoutError),
    /// Units of a coded component that cannot be written at once.
    #[error("units of {0} bytes: those of a coded layout have at most {max}", max = data::frame::MAX_IO)]
    Unit(u32),
    /// The columns that were opened are not those of the layout.
    #[error("component {component} of the layout has {wanted} columns, {found} are open")]
    Columns {
        /// Number of the component, from 0.
        component: usize,
        /// Columns of the layout.
        wanted: usize,
        /// Columns that were given.
        found: usize,
    },
    /// No mover that holds the bytes gives or takes them.
    #[error("target {target}: {source}")]
    Mover {
        /// The target whose mover was asked last.
        target: TargetId,
        /// What it says.
        source: DataError,
    },
    /// A column fails and may not be left out.
    #[error("target {target}: {source}; the file cannot go on without it: {reason}")]
    Authority {
        /// The target.
        target: TargetId,
        /// What its mover says.
        source: DataError,
        /// What the metadata service says.
        reason: String,
    },
    /// Too little of a stripe is as it was written.
    #[error(
        "of the stripe at byte {offset} of the file {found} units are there and as they were written, {needed} are needed{}; write these bytes again, or restore the file from tape",
        last.as_ref().map(|e| format!(" ({e})")).unwrap_or_default()
    )]
    Lost {
        /// Where the stripe begins in the file (bytes).
        offset: u64,
        /// Units that are there.
        found: usize,
        /// Units of data of a stripe.
        needed: usize,
        /// What the last mover that failed said.
        last: Option<DataError>,
    },
    /// What a journal says makes no sense.
    #[error("the journal on target {target} {what}; it is of another release, or damaged")]
    Journal {
        /// The target.
        target: TargetId,
        /// What is wrong.
        what: &'static str,
    },
    /// A write in front of this one in the log of a coded file has failed: nobody would find this one.
    #[error("a write to the same file in front of this one has failed; write again")]
    Interrupted,
    /// The file has no place yet for what lies there: it is to grow first.
    #[error("the file has no targets yet from byte {0} on")]
    Beyond(u64),
    /// The range goes beyond the largest offset.
    #[error("a file ends at byte {}", u64::MAX)]
    TooLong,
}

/// A mover failed; who that is.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) component: usize,
    pub(crate) column: u16,
    pub(crate) source: DataError,
}

impl StripeError {
    /// Whether the same may succeed at once when it is begun anew.
    pub fn may_renew(&self) -> bool {
        match self {
            Self::Interrupted => true,
            Self::Mover { source, .. } => has_ended(source),
            _ => false,
        }
    }

    /// Whether a mover was waited for in vain.
    pub fn is_away(&self) -> bool {
        let source = match self {
            Self::Mover { source, .. } | Self::Authority { source, .. } => Some(source),
            Self::Lost { last, .. } => last.as_ref(),
            _ => None,
        };
        matches!(source, Some(DataError::Unreachable { .. }))
    }

    /// The target whose mover was waited for in vain, if that is all.
    pub fn away(&self) -> Option<TargetId> {
        match self {
            Self::Mover { target, .. } | Self::Authority { target, .. } => self.is_away().then_some(*target),
            _ => None,
        }
    }

    /// What the error means for a caller.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Layout(_) | Self::Unit(_) | Self::TooLong => ErrorClass::Invalid,
            Self::Columns { .. } => ErrorClass::Bug,
            Self::Interrupted | Self::Beyond(_) => ErrorClass::Retry,
            Self::Mover { source, .. } | Self::Authority { source, .. } => source.class(),
            Self::Lost { last: Some(last), .. } => last.class(),
            Self::Lost { .. } | Self::Journal { .. } => ErrorClass::Corrupt,
        }
    }
}
