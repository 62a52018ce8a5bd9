//! Counters: what is added to a value, or raises it, without reading it.

use crate::Result;
use crate::limits::counter;

/// Changes of one counter by one transaction, taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    Add(i64),
    Raise(i64),
}

impl Delta {
    /// Both, if they are of one kind.
    pub(crate) fn join(self, later: Self) -> Option<Self> {
        match (self, later) {
            (Self::Add(a), Self::Add(b)) => Some(Self::Add(a.wrapping_add(b))),
            (Self::Raise(a), Self::Raise(b)) => Some(Self::Raise(a.max(b))),
            _ => None,
        }
    }

    /// The value of a counter after the change.
    pub(crate) fn apply(self, value: Option<&[u8]>) -> Result<Vec<u8>> {
        let after = match self {
            Self::Add(n) => counter(value, 0)?.wrapping_add(n),
            Self::Raise(n) => counter(value, i64::MIN)?.max(n),
        };
        Ok(after.to_le_bytes().to_vec())
    }
}
