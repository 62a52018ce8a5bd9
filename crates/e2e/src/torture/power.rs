//! Trials in which the power of the disk fails under the whole program: state directory, disk objects and cartridges.

use super::content::Crash;
use super::dice::Dice;
use super::disk::{Failures, FileSystem, RecordedDisk};
use super::history::Clock;
use super::judge::{self, Case, Judge};
use super::load;
use super::rig::Rig;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How many failures, from which seed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Power failures tried from one recording.
    pub images: u64,
    /// Repeats the run as far as threads can be repeated.
    pub seed: u64,
    /// How long the load runs (milliseconds).
    pub load_ms: u64,
    /// Below everything.
    pub file_system: FileSystem,
    /// The disk lies: what it keeps is far older than its last flush. The trials must notice.
    pub lies: bool,
}

/// What the trials met, to show that they were not idle.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Power failures survived.
    pub images: u64,
    /// Writes and flushes recorded.
    pub entries: u64,
    /// Of these, flushes.
    pub flushes: u64,
    /// Calls made by the threads.
    pub calls: u64,
    /// Files read and compared.
    pub files: u64,
    /// Of these, kept on tape only when the node came up again.
    pub offline: u64,
}

/// Records one load in the new directory `dir` and tries power failures in it; the first problem ends them.
pub fn run(dir: &Path, plan: Plan, mut told: impl FnMut(&str)) -> Result<Tally, String> {
    let io = |e: io::Error| format!("{}: {e}", dir.display());
    std::fs::create_dir_all(dir).map_err(io)?;
    let mut dice = Dice::new(plan.seed);
    let disk = RecordedDisk::start(dir, plan.file_system).map_err(io)?;
    let mut rig = Rig::new(&disk.path().join("state"), dir, "64 MiB").map_err(io)?;
    let cases = load(&mut rig, dir, plan, &dice, Clock::of_disk(disk.position()))?;
    rig.end();
    let mut failures = disk.finish().map_err(io)?;
    let mut tally = Tally { entries: failures.moments(), flushes: failures.flushes(), ..Tally::default() };
    tally.calls = cases.iter().map(|c| c.history.events.len() as u64).sum();
    for moment in failures.choose(plan.images, &mut dice) {
        let cut = if plan.lies { failures.moments() } else { moment };
        let problems = survive(&mut failures, (moment, cut), &mut dice, &mut rig, &cases, &mut tally);
        if !problems.is_empty() {
            let head = format!("power failure after {moment} entries, {plan:?}, in {}", dir.display());
            return Err(format!("{head}:\n{}\nlog:\n{}", problems.join("\n"), rig.log_end()));
        }
        tally.images += 1;
        told(&format!("after {moment} entries: {tally:?}"));
    }
    Ok(tally)
}

fn load(rig: &mut Rig, dir: &Path, plan: Plan, dice: &Dice, clock: Clock) -> Result<Vec<Case>, String> {
    rig.start()?;
    let mut cases = load::cases();
    let scratch = dir.join("scratch");
    std::fs::create_dir(&scratch).and_then(|()| load::prepare(rig, &cases)).map_err(|e| e.to_string())?;
    let stop = AtomicBool::new(false);
    let problems = load::run(rig, &mut cases, &scratch, dice, &clock, &stop, || {
        std::thread::sleep(Duration::from_millis(plan.load_ms));
        stop.store(true, Ordering::SeqCst);
    });
    if problems.is_empty() {
        Ok(cases)
    } else {
        Err(format!("{}\nlog:\n{}", problems.join("\n"), rig.log_end()))
    }
}

fn survive(
    failures: &mut Failures,
    (moment, cut): (u64, u64),
    dice: &mut Dice,
    rig: &mut Rig,
    cases: &[Case],
    tally: &mut Tally,
) -> Vec<String> {
    let survivor = match failures.at(moment, dice) {
        Ok(survivor) => survivor,
        Err(e) => return vec![format!("the file system below did not survive: {e}")],
    };
    if let Err(problem) = rig.start() {
        return vec![problem];
    }
    tally.offline += rig.settle();
    let mut cases: Vec<Case> =
        cases.iter().map(|c| Case { dir: c.dir.clone(), history: c.history.clone() }).collect();
    let judge = Judge { rig, crash: Crash::Power, cut };
    let mut problems = judge.judge(&mut cases);
    tally.files += cases.iter().map(|c| c.history.contents.len() as u64).sum::<u64>();
    problems.extend(judge::check(rig, dice.chance(50)));
    if problems.is_empty() {
        rig.end();
        problems.extend(survivor.finish().err().map(|e| e.to_string()));
    }
    problems
}
