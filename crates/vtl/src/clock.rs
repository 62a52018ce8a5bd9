//! Time as the mechanics see it. The library never reads a clock itself, so tests and a simulator run hours in
//! milliseconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A monotonic clock that can be waited on.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary beginning.
    fn now(&self) -> Duration;
    /// Returns when `now()` is at least `at`; at once if it already is.
    fn sleep_until(&self, at: Duration);
}

/// The machine's monotonic clock.
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// Starts at zero.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep_until(&self, at: Duration) {
        let left = at.saturating_sub(self.now());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
    }
}

/// Jumps to whatever time somebody waits for: exact for one thread; with several threads each wait moves the time of
/// all, so use it only where one command runs at a time.
#[derive(Default)]
pub struct VirtualClock {
    nanos: AtomicU64,
}

impl VirtualClock {
    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Duration) {
        self.nanos.fetch_max(at.as_nanos() as u64, Ordering::SeqCst);
    }
}
