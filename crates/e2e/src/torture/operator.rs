//! A thread that gives orders by command: copies files in, migrates, purges, stages, pins, at random.

use super::dice::Dice;
use super::history::{Change, Clock, Edit, Event, History, What};
use super::names::{Entry, NameOp, Names};
use super::rig::Rig;
use crate::noise;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Its directory.
pub const DIR: &str = "op";
const MOST_FILES: usize = 30;
/// Longest file that is put (bytes).
const LONGEST: u64 = 600 << 10;

/// Gives orders until told to stop.
pub struct Operator<'a> {
    rig: &'a Rig,
    /// Where sources of copies are made.
    scratch: PathBuf,
    workers: u64,
    dice: Dice,
    clock: Clock,
    stop: &'a AtomicBool,
    history: History,
    names: Names,
    problems: Vec<String>,
}

impl<'a> Operator<'a> {
    /// An operator for the directories of so many workers and one of its own.
    pub fn new(
        rig: &'a Rig,
        scratch: &Path,
        workers: u64,
        history: History,
        dice: Dice,
        clock: Clock,
        stop: &'a AtomicBool,
    ) -> Self {
        let names = history.names.clone();
        let (scratch, problems) = (scratch.to_path_buf(), Vec::new());
        Self { rig, scratch, workers, dice, clock, stop, history, names, problems }
    }

    /// Works; returns what was done in its directory, and what went wrong that should not have.
    pub fn run(mut self) -> (History, Vec<String>) {
        while !self.stop.load(Ordering::SeqCst) && self.problems.is_empty() {
            match self.dice.below(10) {
                0..4 => self.put(),
                4 => self.delete(),
                5 => self.archive(),
                _ => self.order(),
            }
            std::thread::sleep(Duration::from_millis(self.dice.below(20)));
        }
        (self.history, self.problems)
    }

    /// Runs a command; true if it succeeded. It is ended when the node is killed.
    fn run_command(&mut self, arguments: &[&str]) -> bool {
        let mut command = self.rig.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return false };
        let mut told = false;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => std::thread::sleep(Duration::from_millis(3)),
                Err(_) => return false,
            }
            if self.stop.load(Ordering::SeqCst) && !told {
                told = true;
                let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            }
        };
        let died = status.code() == Some(101) || (status.signal().is_some() && !told);
        if died || (status.code() == Some(124) && !told) {
            self.problems.push(format!("thermo {arguments:?}: {status}"));
        }
        status.success()
    }

    fn directory(&mut self) -> String {
        match self.dice.below(self.workers + 1) {
            0 => format!("tc:/{DIR}"),
            n => format!("tc:/w{}", n - 1),
        }
    }

    fn order(&mut self) {
        let dir = self.directory();
        // What is pinned is not pinned for long, or the disk tier could release nothing.
        let orders = ["migrate", "purge", "purge", "stage", "pin", "unpin", "unpin", "unpin"];
        let order = orders[self.dice.below(8) as usize];
        let mut arguments = vec![order, "-r", &dir];
        if self.dice.chance(60) && !order.ends_with("pin") {
            arguments.push("--wait");
        }
        self.run_command(&arguments);
    }

    fn put(&mut self) {
        self.history.numbered += 1;
        let (id, name) = (self.history.numbered, format!("put {}", self.history.numbered));
        let (length, seed) = (self.dice.size(LONGEST) as usize, self.dice.next());
        let source = self.scratch.join("source");
        if fs::write(&source, noise(seed, length)).is_err() {
            return;
        }
        let change = Change::Write { at: 0, length, seed };
        let first = self.history.events.len();
        let whats = [
            What::Name(NameOp::Create(name.clone(), id)),
            What::Edit(Edit { file: id, change, loose: false }),
            What::SyncFile(id),
        ];
        let issued = self.clock.now();
        self.history.events.extend(whats.map(|what| Event { what, issued, answered: None }));
        let target = format!("tc:/{DIR}/{name}");
        let source = source.to_string_lossy().into_owned();
        if self.run_command(&["put", "-T", "--patience", "1", &source, &target]) {
            let now = Some(self.clock.now());
            self.history.events[first..].iter_mut().for_each(|e| e.answered = now);
            self.names.apply(&NameOp::Create(name, id));
        } else if !self.stop.load(Ordering::SeqCst) {
            self.gave_up(name);
        }
    }

    /// A copy that failed (no space, say) may have left a part: it goes, so that what follows is certain.
    fn gave_up(&mut self, name: String) {
        let path = self.rig.mount().join(DIR).join(&name);
        let issued = self.clock.now();
        let removed = fs::remove_file(path);
        let answered = removed.is_ok().then(|| self.clock.now());
        if answered.is_some() || self.stop.load(Ordering::SeqCst) {
            self.history.events.push(Event { what: What::Name(NameOp::Unlink(name)), issued, answered });
        }
    }

    fn delete(&mut self) {
        let files = self.names.paths(|e| matches!(e, Entry::File(_)));
        let Some(path) = self.dice.pick(&files).filter(|_| files.len() > MOST_FILES / 3) else { return };
        let what = What::Name(NameOp::Unlink(path.clone()));
        let issued = self.clock.now();
        let result = fs::remove_file(self.rig.mount().join(DIR).join(path));
        let answered = result.is_ok().then(|| self.clock.now());
        if let What::Name(op) = &what {
            self.names.apply(op);
        }
        if answered.is_none() && !self.stop.load(Ordering::SeqCst) {
            self.problems.push(format!("unlink {DIR}/{path}: {result:?}"));
        }
        self.history.events.push(Event { what, issued, answered });
    }

    /// Everything in its own directory gets its copies, confirmed.
    fn archive(&mut self) {
        let issued = self.clock.now();
        let dir = format!("tc:/{DIR}");
        if self.run_command(&["migrate", "--wait", "-r", &dir]) {
            let files = self.names.0.values().filter_map(|e| match e {
                Entry::File(id) => Some(*id),
                _ => None,
            });
            let what = What::Archived(files.collect());
            self.history.events.push(Event { what, issued, answered: Some(self.clock.now()) });
        }
    }
}
