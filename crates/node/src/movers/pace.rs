//! A pace that several keep together: the next step of any of them begins when what others have begun has had its time. Time in which nobody does
//! anything saves up nothing.

use crate::clock::Moment;
use parking_lot::Mutex;
use std::time::Duration;

/// When the next step may begin; none: nothing was begun yet, or not at this rate.
#[derive(Default)]
pub(super) struct Pace(Mutex<(u64, Option<Moment>)>);

/// A step that was begun.
#[derive(Debug)]
pub(super) struct Step {
    begun: Moment,
    /// When it has had its time.
    end: Moment,
    expected: u64,
}

/// How long so many bytes take at a rate (bytes per second; 0: as fast as they can).
fn time_of(bytes: u64, rate: u64) -> Duration {
    match rate {
        0 => Duration::ZERO,
        rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
    }
}

impl Pace {
    /// Begins a step of about so many bytes; or how long it is until one may begin, unless another one that was begun turns out to be smaller.
    pub(super) fn begin(&self, rate: u64, expected: u64) -> Result<Step, Duration> {
        let mut state = self.0.lock();
        if state.0 != rate {
            // Another rate counts from now on.
            *state = (rate, None);
        }
        let next = &mut state.1;
        let begun = Moment::now();
        if let Some(next) = next.filter(|next| rate > 0 && *next > begun) {
            return Err(next - begun);
        }
        let end = begun + time_of(expected, rate);
        *next = Some(end);
        Ok(Step { begun, end, expected })
    }

    /// A step had so many bytes. One that fails has had its time, whatever it did.
    pub(super) fn end(&self, step: &Step, rate: u64, bytes: u64) {
        let mut state = self.0.lock();
        if state.0 != rate {
            return;
        }
        let next = &mut state.1;
        if *next == Some(step.end) {
            *next = Some(step.begun + time_of(bytes, rate));
            return;
        }
        // Others have begun since: what it had more than it was given time for comes behind them.
        let more = time_of(bytes.saturating_sub(step.expected), rate);
        *next = (*next).max(Some(Moment::now())).map(|next| next + more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::tests::Jumps;
    use crate::clock::{give, sleep};
    use std::sync::Arc;

    const RATE: u64 = 1_000;

    /// With a clock that only goes on when somebody sleeps.
    fn timed(test: impl FnOnce(&Pace)) {
        give(Some(Arc::new(Jumps::default())));
        test(&Pace::default());
        give(None);
    }

    /// Waits as whoever does a step.
    fn wait(pace: &Pace, expected: u64) -> Step {
        loop {
            match pace.begin(RATE, expected) {
                Ok(step) => return step,
                Err(time) => sleep(time),
            }
        }
    }

    #[test]
    fn however_many_files_begin_and_end_all_together_keep_the_rate() {
        timed(|pace| {
            let (begun, mut done) = (Moment::now(), 0);
            for n in 0..200 {
                // Files of one step and of many, by one to eight at once, some of which take long for theirs.
                let expected = [400, 400, 100, 7][n % 4];
                let steps: Vec<Step> = (0..=n % 8).map(|_| wait(pace, expected)).collect();
                sleep(Duration::from_millis([0, 90, 1_500][n % 3]));
                for step in steps {
                    pace.end(&step, RATE, expected);
                    done += expected;
                }
                let allowed = begun.elapsed().as_secs_f64() * RATE as f64;
                assert!(done as f64 <= allowed + 400.1, "{done} bytes, {allowed} allowed");
            }
        });
    }

    #[test]
    fn as_many_as_there_are_use_all_of_the_rate_and_not_more_after_a_pause() {
        timed(|pace| {
            for _ in 0..2 {
                let begun = Moment::now();
                for _ in 0..80 {
                    let step = wait(pace, 100);
                    pace.end(&step, RATE, 100);
                }
                let took = begun.elapsed().as_secs_f64();
                assert!((7.89..8.01).contains(&took), "8000 bytes took {took} s");
                sleep(Duration::from_secs(3_600));
            }
        });
    }

    #[test]
    fn what_a_step_has_less_is_given_back_while_it_is_its_time_and_what_it_has_more_is_paid() {
        timed(|pace| {
            let small = wait(pace, 4_000);
            assert_eq!(pace.begin(RATE, 1).unwrap_err(), Duration::from_secs(4));
            pace.end(&small, RATE, 500);
            assert_eq!(pace.begin(RATE, 1).unwrap_err(), Duration::from_millis(500));
            // One that does not answer keeps nobody from going on once it has had its time, and gives back nothing then.
            let stuck = wait(pace, 2_000);
            sleep(Duration::from_secs(60));
            let other = wait(pace, 1_000);
            pace.end(&stuck, RATE, 0);
            assert_eq!(pace.begin(RATE, 1).unwrap_err(), Duration::from_secs(1));
            pace.end(&other, RATE, 3_000);
            assert_eq!(pace.begin(RATE, 1).unwrap_err(), Duration::from_secs(3));
            let first = wait(pace, 1_000);
            let _second = wait(pace, 1_000);
            pace.end(&first, RATE, 1_500);
            assert_eq!(pace.begin(RATE, 1).unwrap_err(), Duration::from_millis(1_500));
        });
    }

    #[test]
    fn another_rate_counts_at_once() {
        timed(|pace| {
            let slow = pace.begin(1, 4_000).unwrap();
            assert_eq!(pace.begin(1, 1).unwrap_err(), Duration::from_secs(4_000));
            let _fast = pace.begin(RATE, 1_000).unwrap();
            pace.end(&slow, 1, 4_000);
            assert_eq!(pace.begin(RATE, 1).unwrap_err(), Duration::from_secs(1));
        });
    }

    #[test]
    fn without_a_rate_nobody_waits() {
        timed(|pace| {
            let steps: Vec<Step> = (0..8).map(|_| pace.begin(0, u64::MAX).unwrap()).collect();
            steps.iter().for_each(|step| pace.end(step, 0, u64::MAX));
            assert!(pace.begin(0, 1).is_ok());
        });
    }
}
