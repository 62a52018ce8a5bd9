//! What can go wrong with a striped file.

use data::DataError;
use types::{ErrorClass, TargetId};

/// Result of an operation on a striped file.
pub type Result<T, E = StripeError> = std::result::Result<T, E>;

/// An error of a striped file.
#[derive(Debug, thiserror::Error)]
pub enum StripeError {
    /// The layout is not one.
    #[error("{0}; see `thermo layout get`")]
    Layout(#[from] layout::LayoutError),
    /// The layout asks for something that is not built yet.
    #[error("layouts with coded redundancy cannot be used yet: choose stripes or mirrors")]
    Coded,
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
    /// The range goes beyond the largest offset.
    #[error("a file ends at byte {}", u64::MAX)]
    TooLong,
}

impl StripeError {
    /// What the error means for a caller.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Layout(_) | Self::Coded | Self::TooLong => ErrorClass::Invalid,
            Self::Columns { .. } => ErrorClass::Bug,
            Self::Mover { source, .. } => source.class(),
        }
    }
}
