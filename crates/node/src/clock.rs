//! The clock of the node: the machine's, or one that a simulator gives to the threads it runs.
//!
//! Whatever the services do by time goes through here: the time of day, pauses, waits with an end. A clock belongs to a
//! thread, and [`crate::startup::spawn`] hands it on to the threads that it starts; so dozens of functions need no clock
//! passed through them, two simulations in one process do not see each other's time, and a node without a simulator
//! pays one look at a thread-local cell. Downside: a thread started in another way has the machine's clock.

use parking_lot::{Condvar, MutexGuard};
use std::cell::RefCell;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use types::Time;

/// Between two looks at what a simulated thread waits for: nobody wakes it.
const LOOK: Duration = Duration::from_millis(100);

/// Time that somebody else makes pass.
pub trait Clock: Send + Sync {
    /// Time of day.
    fn now(&self) -> Time;
    /// Time since an arbitrary beginning; never goes back.
    fn elapsed(&self) -> Duration;
    /// Returns when so much time has passed.
    fn sleep(&self, time: Duration);
    /// A drive's thread has done its job and waits for the next.
    fn at_rest(&self);
}

thread_local! {
    static GIVEN: RefCell<Option<Arc<dyn Clock>>> = const { RefCell::new(None) };
}

/// The clock that was given to this thread, if any.
pub(crate) fn given() -> Option<Arc<dyn Clock>> {
    GIVEN.with_borrow(Clone::clone)
}

/// A simulator runs this thread: what helpers would do beside it, it does itself, one thing after the other.
pub(crate) fn alone() -> bool {
    GIVEN.with_borrow(Option::is_some)
}

/// Gives this thread a clock, or takes it away again.
pub(crate) fn give(clock: Option<Arc<dyn Clock>>) {
    GIVEN.set(clock);
}

/// Time of day.
pub(crate) fn now() -> Time {
    given().map_or_else(|| std::time::SystemTime::now().into(), |clock| clock.now())
}

/// Waits.
pub(crate) fn sleep(time: Duration) {
    match given() {
        Some(clock) => clock.sleep(time),
        None => std::thread::sleep(time),
    }
}

/// This thread, of a drive, waits for its next job.
pub(crate) fn at_rest() {
    if let Some(clock) = given() {
        clock.at_rest();
    }
}

/// Waits for a condition no longer than until then; true: that time has come.
pub(crate) fn wait_until<T>(condition: &Condvar, guard: &mut MutexGuard<'_, T>, end: Moment) -> bool {
    let left = end.0.saturating_sub(Moment::now().0);
    match given() {
        Some(clock) => {
            MutexGuard::unlocked(guard, || clock.sleep(left.min(LOOK)));
            Moment::now() >= end
        }
        None => condition.wait_for(guard, left).timed_out(),
    }
}

/// A moment on the clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// Now.
    pub(crate) fn now() -> Self {
        static START: OnceLock<Instant> = OnceLock::new();
        Self(match given() {
            Some(clock) => clock.elapsed(),
            None => START.get_or_init(Instant::now).elapsed(),
        })
    }

    /// Time since then.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// Jumps.
    #[derive(Default)]
    pub(crate) struct Jumps(Mutex<Duration>);

    impl Clock for Jumps {
        fn now(&self) -> Time {
            Time::new(1_000, 0).plus(self.elapsed())
        }

        fn elapsed(&self) -> Duration {
            *self.0.lock()
        }

        fn sleep(&self, time: Duration) {
            *self.0.lock() += time;
        }

        fn at_rest(&self) {}
    }

    #[test]
    fn a_given_clock_is_that_of_its_thread_and_of_those_it_starts() {
        let begun = Moment::now();
        give(Some(Arc::new(Jumps::default())));
        let (said, heard) = crossbeam_channel::bounded(1);
        let report = move || {
            sleep(Duration::from_secs(5));
            let _ = said.send(now());
        };
        let thread = crate::startup::spawn(None, "t", report).unwrap();
        assert_eq!(heard.recv().unwrap(), Time::new(1_005, 0));
        thread.unwrap().join().unwrap();
        let end = Moment::now() + Duration::from_secs(3600);
        let (condition, mutex) = (Condvar::new(), Mutex::new(()));
        let mut guard = mutex.lock();
        while !wait_until(&condition, &mut guard, end) {}
        assert_eq!(now(), Time::new(1_005 + 3_600, 0));
        drop(guard);
        give(None);
        assert!(now().secs > 1_000_000_000 && begun.elapsed() < Duration::from_secs(3600));
        assert!(wait_until(&condition, &mut mutex.lock(), begun), "that moment is over");
    }
}
