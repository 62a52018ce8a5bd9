//! Points in time as data; clocks are read only at the edges and passed in.

use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Wall-clock time: seconds and nanoseconds (0..1e9) since 1970-01-01 UTC; seconds may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since the epoch, rounded towards minus infinity.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

impl Time {
    /// Builds a time; `nanos` must be below 1e9.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        Self { secs, nanos }
    }

    /// Nanoseconds since the epoch (saturating; good until the year 2262).
    pub fn as_nanos(self) -> i64 {
        self.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(self.nanos))
    }

    /// The inverse of [`Time::as_nanos`].
    pub fn from_nanos(nanos: i64) -> Self {
        Self { secs: nanos.div_euclid(1_000_000_000), nanos: nanos.rem_euclid(1_000_000_000) as u32 }
    }

    /// Time elapsed since `earlier`, zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()).max(0) as u64)
    }

    /// This time plus `delta`.
    pub fn plus(self, delta: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(i64::try_from(delta.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl From<SystemTime> for Time {
    fn from(t: SystemTime) -> Self {
        match t.duration_since(UNIX_EPOCH) {
            Ok(d) => Self { secs: d.as_secs() as i64, nanos: d.subsec_nanos() },
            Err(e) => Self::from_nanos(-(i64::try_from(e.duration().as_nanos()).unwrap_or(i64::MAX))),
        }
    }
}
