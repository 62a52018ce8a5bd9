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

    /// Nanoseconds since the epoch, from the year 1677 to 2262; before and after that the first and the last that there are.
    pub fn as_nanos(self) -> i64 {
        let nanos = i128::from(self.secs) * 1_000_000_000 + i128::from(self.nanos);
        i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_a_time_and_back() {
        let second = 1_000_000_000;
        for n in [i64::MIN, i64::MIN + 1, i64::MIN + second, -second - 1, -1, 0, 1, second, i64::MAX] {
            assert_eq!(Time::from_nanos(n).as_nanos(), n);
        }
        assert_eq!(Time::new(i64::MIN, 0).as_nanos(), i64::MIN);
        assert_eq!(Time::new(i64::MAX, 0).as_nanos(), i64::MAX);
    }
}
