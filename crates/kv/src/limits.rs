//! Limits of keys and values, and the arithmetic of counters, the same for every engine.

use crate::{KvError, MAX_KEY, MAX_VALUE, Result};

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY { Err(KvError::KeyTooLong { len: key.len() }) } else { Ok(()) }
}

pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > MAX_VALUE { Err(KvError::ValueTooLong { len: value.len() }) } else { Ok(()) }
}

/// Decodes a counter; absent counts as `default`.
pub(crate) fn counter(stored: Option<&[u8]>, default: i64) -> Result<i64> {
    match stored {
        None => Ok(default),
        Some(v) => v.try_into().map(i64::from_le_bytes).map_err(|_| KvError::NotACounter { len: v.len() }),
    }
}
