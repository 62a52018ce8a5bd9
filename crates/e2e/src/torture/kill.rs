//! Trials in which the node is killed.

use super::content::Crash;
use super::dice::Dice;
use super::history::Clock;
use super::judge::{self, Case, Judge};
use super::load;
use super::rig::Rig;
use rustix::process::{Signal, kill_process};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How many trials, from which seed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Trials.
    pub trials: u64,
    /// Repeats the run as far as threads can be repeated.
    pub seed: u64,
    /// Trials on the state that the trials before left, until one begins anew.
    pub fresh: u64,
    /// Longest load before the kill (milliseconds).
    pub load_ms: u64,
}

/// What the trials met, to show that they were not idle.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Trials that passed.
    pub trials: u64,
    /// Kills, those during a start included.
    pub kills: u64,
    /// Calls made by the threads.
    pub calls: u64,
    /// Files read and compared.
    pub files: u64,
    /// Of these, kept on tape only when the node came up again.
    pub offline: u64,
}

/// Runs the trials in `dir`; the first problem ends them.
pub fn run(dir: &Path, plan: Plan, mut told: impl FnMut(&str)) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let dice = Dice::new(plan.seed);
    let mut site: Option<Site> = None;
    for trial in 0..plan.trials {
        if trial % plan.fresh == 0 {
            drop(site.take());
            let place = dir.join(format!("node{}", trial / plan.fresh));
            site = Some(Site::new(&place).map_err(|e| format!("{}: {e}", place.display()))?);
            if trial >= plan.fresh {
                let _ = std::fs::remove_dir_all(dir.join(format!("node{}", trial / plan.fresh - 1)));
            }
        }
        let Some(site) = &mut site else { break };
        let problems = site.trial(dice.fork(trial), plan.load_ms, &mut tally);
        if !problems.is_empty() {
            let head = format!("trial {trial} of seed {} in {}", plan.seed, dir.display());
            return Err(format!("{head}:\n{}\nlog:\n{}", problems.join("\n"), site.rig.log_end()));
        }
        tally.trials += 1;
        told(&format!("trial {trial}: {tally:?}"));
    }
    Ok(tally)
}

/// A node and the histories of its directories.
struct Site {
    rig: Rig,
    cases: Vec<Case>,
    up: bool,
}

impl Site {
    fn new(place: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(place)?;
        let rig = Rig::new(&place.join("state"), place, "96 MiB")?;
        Ok(Self { rig, cases: load::cases(), up: false })
    }

    fn trial(&mut self, mut dice: Dice, load_ms: u64, tally: &mut Tally) -> Vec<String> {
        if !self.up {
            self.kill_during_start(&mut dice, tally);
            if let Err(problem) = self.rig.start() {
                return vec![problem];
            }
            self.up = true;
        }
        let problems = self.load_and_kill(&mut dice, load_ms);
        tally.kills += 1;
        tally.calls += self.cases.iter().map(|c| c.history.events.len() as u64).sum::<u64>();
        if !problems.is_empty() {
            return problems;
        }
        self.kill_during_start(&mut dice, tally);
        if let Err(problem) = self.rig.start() {
            return vec![problem];
        }
        tally.offline += self.rig.settle();
        let judge = Judge { rig: &self.rig, crash: Crash::Kill, cut: u64::MAX };
        let mut problems = judge.judge(&mut self.cases);
        tally.files += self.cases.iter().map(|c| c.history.contents.len() as u64).sum::<u64>();
        problems.extend(judge::check(&self.rig, dice.chance(30)));
        problems
    }

    fn load_and_kill(&mut self, dice: &mut Dice, load_ms: u64) -> Vec<String> {
        if let Err(e) = load::prepare(&self.rig, &self.cases) {
            return vec![format!("the directories of the threads: {e}\n{}", self.rig.log_end())];
        }
        let Some(pid) = self.rig.pid() else { return vec!["the node has no process".into()] };
        let stop = AtomicBool::new(false);
        let moment = Duration::from_micros(dice.below(load_ms * 1000));
        let scratch = self.rig.log().with_file_name("scratch");
        let _ = std::fs::create_dir(&scratch);
        let problems =
            load::run(&self.rig, &mut self.cases, &scratch, dice, &Clock::default(), &stop, || {
                std::thread::sleep(moment);
                stop.store(true, Ordering::SeqCst);
                let _ = kill_process(pid, Signal::KILL);
            });
        self.rig.kill();
        problems
    }

    /// The node is killed while it starts, up to three times.
    fn kill_during_start(&mut self, dice: &mut Dice, tally: &mut Tally) {
        while dice.chance(35) {
            if self.rig.spawn().is_ok() {
                std::thread::sleep(Duration::from_micros(dice.below(250_000)));
                self.rig.kill();
                tally.kills += 1;
            }
        }
    }
}
