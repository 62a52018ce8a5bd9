//! Everything that works on a node at the same time.

use super::dice::Dice;
use super::history::Clock;
use super::judge::Case;
use super::operator::{self, Operator};
use super::rig::Rig;
use super::worker::Worker;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Threads that change files.
pub const WORKERS: u64 = 3;

/// One case per thread, without a past.
pub fn cases() -> Vec<Case> {
    let dirs = (0..WORKERS).map(|n| format!("w{n}")).chain([operator::DIR.to_owned()]);
    dirs.map(|dir| Case { dir, history: Default::default() }).collect()
}

/// Makes the directories of the threads, durably.
pub fn prepare(rig: &Rig, cases: &[Case]) -> io::Result<()> {
    for case in cases {
        let made = fs::create_dir(rig.mount().join(&case.dir));
        made.or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
    }
    File::open(rig.mount())?.sync_all()
}

/// Lets everybody work until `end` returns, which must set `stop`; returns what should not have happened.
pub fn run(
    rig: &Rig,
    cases: &mut [Case],
    scratch: &Path,
    dice: &Dice,
    clock: &Clock,
    stop: &AtomicBool,
    end: impl FnOnce(),
) -> Vec<String> {
    let mut problems = Vec::new();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, case) in (0u64..).zip(&mut *cases) {
            let (history, dice, clock) = (std::mem::take(&mut case.history), dice.fork(n), clock.clone());
            if case.dir == operator::DIR {
                let operator = Operator::new(rig, scratch, WORKERS, history, dice, clock, stop);
                threads.push(scope.spawn(move || operator.run()));
            } else {
                let worker = Worker::new(rig.mount().join(&case.dir), history, dice, clock, stop);
                threads.push(scope.spawn(move || worker.run()));
            }
        }
        end();
        for (case, thread) in cases.iter_mut().zip(threads) {
            match thread.join() {
                Ok((history, found)) => {
                    case.history = history;
                    problems.extend(found);
                }
                Err(_) => problems.push(format!("the thread of {} panicked", case.dir)),
            }
        }
    });
    problems
}
