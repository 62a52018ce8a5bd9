//! Counters: what is added to a value, or raises it, without reading it.

use crate::Result;
use crate::limits::counter;

/// What may be added to the value of a key apart from it (PostgreSQL: what `kv_delta` may hold, column `c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Plain = 0,
    /// Numbers to be added.
    Adds = 1,
    /// Numbers of which the greatest counts.
    Raises = 2,
}

/// Changes of one counter by one transaction, taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    Add(i64),
    Raise(i64),
}

impl Delta {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Add(_) => Kind::Adds,
            Self::Raise(_) => Kind::Raises,
        }
    }

    pub(crate) fn number(self) -> i64 {
        let (Self::Add(n) | Self::Raise(n)) = self;
        n
    }

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

/// The value with what was added to it.
pub(crate) fn merged(value: Vec<u8>, kind: i16, deltas: Option<Vec<i64>>) -> Result<Vec<u8>> {
    let deltas = match deltas {
        Some(deltas) if !deltas.is_empty() => deltas,
        _ => return Ok(value),
    };
    let all = deltas.into_iter().map(if kind == Kind::Adds as i16 { Delta::Add } else { Delta::Raise });
    all.reduce(|a, b| a.join(b).unwrap_or(b)).map_or(Ok(value.clone()), |delta| delta.apply(Some(&value)))
}
