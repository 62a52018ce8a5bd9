//! What a move does while changes are held back: a thread of its own asks the engines, so that a server that takes what it is sent, and does not answer, ends
//! the move and nothing else.

use super::moving::bring;
use super::plan::{Plan, surely};
use super::{Opened, pending};
use crate::error::failure;
use crate::startup::io;
use kv::Aside;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use types::ErrorClass;
use wire::Failure;

/// For so long, in all, changes under way and servers are waited for while changes are held back.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Servers are asked.
    Asks,
    /// They took too long: the source goes on.
    GivenUp,
    /// Only this machine's disk is asked from here on.
    Decides,
}

/// Both engines of a move, which hold the same but for the last keys.
pub(super) struct Switch {
    pub(super) plan: Plan,
    pub(super) source: Arc<Opened>,
    pub(super) copy: Arc<Opened>,
    /// Number of the move.
    pub(super) id: String,
}

pub(super) fn slow() -> Failure {
    let message = format!(
        "the move was given up, because one of its engines did not answer for {} s while changes were held back: the catalogue stays where it is and goes \
         on, and the copy is not used; see that the server and the way to it work, then try again",
        PAUSE.as_secs()
    );
    failure(ErrorClass::Busy, message)
}

impl Switch {
    /// Brings the last keys over, and decides; how many they were. From when this succeeds the copy is the engine that counts. If it fails, the source is, as
    /// before, and what was written is undone as soon as the engines answer. The caller holds changes back meanwhile.
    pub(super) fn within(
        self,
        until: Instant,
        last: Option<BTreeSet<Vec<u8>>>,
        left: Aside,
    ) -> Result<u64, Failure> {
        let stage = Arc::new(Mutex::new(Stage::Asks));
        let (told, tells) = sync_channel(1);
        let its_stage = stage.clone();
        crate::startup::spawn(None, "engine-switch", move || self.run(&its_stage, last, &left, &told))?;
        outcome(&stage, &tells, until)
    }

    fn run(
        &self,
        stage: &Mutex<Stage>,
        last: Option<BTreeSet<Vec<u8>>>,
        left: &Aside,
        told: &SyncSender<Result<u64, Failure>>,
    ) {
        let asked = self.ask(stage, last, left);
        let decided = asked.and_then(|changed| {
            advance(stage, Stage::Decides).map_err(|_| slow())?;
            self.decide().map(|()| changed)
        });
        let undo = decided.is_err();
        let _ = told.send(decided); // nobody listens where it was given up
        if undo && let Err(e) = self.undo() {
            tracing::error!(
                "a move of the catalogue has failed, and what it had written cannot be undone: {}; the next start does that",
                e.message
            );
        }
    }

    fn ask(
        &self,
        stage: &Mutex<Stage>,
        last: Option<BTreeSet<Vec<u8>>>,
        left: &Aside,
    ) -> Result<u64, Failure> {
        let state = &self.plan.config.state_dir;
        let goes_on = || match *stage.lock() {
            Stage::GivenUp => ControlFlow::Break(()),
            Stage::Asks | Stage::Decides => ControlFlow::Continue(()),
        };
        // From here on to the end of undoing no other move begins.
        pending::choose(state, &self.id, self.plan.kinds().0).map_err(|e| io(state, &e))?;
        let changed = bring(last, &self.source, &self.copy, &mut || goes_on())?;
        if goes_on().is_break() {
            return Err(slow());
        }
        self.source.set_aside(Some(left))?;
        Ok(changed)
    }

    /// Nobody is asked but this machine's disk. After an error the note says that the source counts.
    fn decide(&self) -> Result<(), Failure> {
        let state = &self.plan.config.state_dir;
        let decided = pending::write(state, &self.id).map_err(|e| io(state, &e));
        let decided = decided.and_then(|()| self.plan.decide());
        if decided.is_err() {
            surely("the note of the move", || pending::choose(state, &self.id, self.plan.kinds().0));
        }
        decided
    }

    /// As a start of the node would: the mark of the source goes, then the note.
    fn undo(&self) -> Result<(), Failure> {
        let state = &self.plan.config.state_dir;
        self.source.set_aside(None)?;
        pending::remove(state).map_err(|e| io(state, &e))
    }
}

/// From `Asks` on to another stage; the one that it is in if that is another one.
fn advance(stage: &Mutex<Stage>, to: Stage) -> Result<(), Stage> {
    let mut stage = stage.lock();
    if *stage != Stage::Asks {
        return Err(*stage);
    }
    *stage = to;
    Ok(())
}

/// Waits for the end, until that moment while servers are asked.
fn outcome<T>(
    stage: &Mutex<Stage>,
    tells: &Receiver<Result<T, Failure>>,
    until: Instant,
) -> Result<T, Failure> {
    match tells.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok(outcome) => return outcome,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
    }
    if advance(stage, Stage::GivenUp).is_ok() {
        return Err(slow());
    }
    tells.recv().unwrap_or_else(|_| {
        tracing::error!(
            "the thread that moves the catalogue has ended while it decided which engine counts; this process ends: start the node again"
        );
        std::process::abort();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_up_while_servers_are_asked_and_not_while_it_decides() {
        let stage = Mutex::new(Stage::Asks);
        let (told, tells) = sync_channel::<Result<u64, Failure>>(1);
        let past = Instant::now();
        assert!(outcome(&stage, &tells, past).unwrap_err().message.contains("did not answer"));
        assert_eq!(advance(&stage, Stage::Decides), Err(Stage::GivenUp), "it cannot be decided any more");
        let stage = Mutex::new(Stage::Asks);
        assert_eq!(advance(&stage, Stage::Decides), Ok(()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                told.send(Ok(7)).unwrap();
            });
            assert_eq!(outcome(&stage, &tells, past).unwrap(), 7, "it is waited for");
        });
    }
}
