//! Worlds side by side: each has a clock and a place of its own, so as many run at once as there are processors.

use crate::world::{self, Outcome};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Which worlds, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Many {
    /// Seed of the first; the next world has the next one.
    pub first: u64,
    /// Worlds at most.
    pub worlds: u64,
    /// None is begun after so long.
    pub time: Duration,
    /// Worlds that run at once.
    pub side_by_side: usize,
    /// None is begun after one has failed.
    pub keep_going: bool,
    /// Keep everything that happens.
    pub whole_trace: bool,
}

/// What they came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Worlds.
    pub worlds: u64,
    /// Faults that really happened, kills of the node among them.
    pub faults: u64,
    /// Kills.
    pub kills: u64,
    /// Jobs done by drives.
    pub jobs: u64,
    /// Simulated time, of all together.
    pub time: Duration,
    /// Real time.
    pub took: Duration,
    /// Seeds of the worlds that failed.
    pub failed: Vec<u64>,
}

impl Tally {
    /// Faults in a minute of real time.
    pub fn faults_a_minute(&self) -> f64 {
        self.faults as f64 * 60.0 / self.took.as_secs_f64().max(1e-3)
    }

    fn add(&mut self, outcome: &Outcome) {
        self.worlds += 1;
        self.faults += outcome.faults;
        self.kills += outcome.kills;
        self.jobs += outcome.jobs;
        self.time += outcome.time;
        self.failed.extend(outcome.failed.is_some().then_some(outcome.seed));
    }
}

/// Processors that this program may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// Runs them; `ended` hears of each.
///
/// # Errors
/// The machine gives no room for a world.
pub fn run(many: &Many, ended: &(dyn Fn(&Outcome) + Sync)) -> anyhow::Result<Tally> {
    let (begun, next, enough) = (Instant::now(), AtomicU64::new(0), AtomicBool::new(false));
    let tally = Mutex::new(Tally::default());
    let one_after_the_other = || -> anyhow::Result<()> {
        while !enough.load(Ordering::Relaxed) && begun.elapsed() < many.time {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= many.worlds {
                break;
            }
            let outcome = world::run(many.first.wrapping_add(n), many.whole_trace)?;
            ended(&outcome);
            tally.lock().add(&outcome);
            if outcome.failed.is_some() && !many.keep_going {
                enough.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..many.side_by_side.max(1)).map(|_| scope.spawn(one_after_the_other)).collect();
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a world's thread has panicked")))
        });
        ended.collect::<Vec<_>>().into_iter().collect::<anyhow::Result<()>>()
    })?;
    let mut tally = tally.into_inner();
    tally.took = begun.elapsed();
    tally.failed.sort_unstable();
    Ok(tally)
}
