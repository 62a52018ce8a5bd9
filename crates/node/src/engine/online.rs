//! A running node moves its catalogue to another engine: a request that says how far it is and can be withdrawn until the switch.

use super::moving::{self, MoveStep, Moved};
use super::plan::Plan;
use super::{EMBEDDED, Opened, class};
use crate::Node;
use crate::archive::Moving;
use crate::error::{failure, refused};
use kv::{Engine, KvError, Movable};
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use types::*;
use wire::Failure;

/// The engine of a node, and its move.
#[derive(Default)]
pub(crate) struct EngineMoves {
    /// Not of a node that a simulator runs.
    engine: OnceLock<Arc<Movable<Opened>>>,
    now: Mutex<Option<Progress>>,
}

/// How far a move is.
struct Progress {
    id: RequestId,
    begun: Instant,
    /// Keys at its beginning (estimate).
    keys: u64,
    copied: u64,
    compared: u64,
    doing: &'static str,
    withdrawn: bool,
    /// It cannot be withdrawn any more.
    decided: bool,
}

impl Progress {
    fn step(&mut self, step: MoveStep) -> ControlFlow<()> {
        self.doing = match step {
            MoveStep::Copied { .. } => "copies",
            MoveStep::Compares { .. } => "compares",
            MoveStep::Follows => "brings over what changed meanwhile",
            MoveStep::Marks | MoveStep::Switched => "switches",
        };
        match step {
            MoveStep::Copied { pairs, .. } => self.copied = pairs,
            MoveStep::Compares { pairs } => self.compared = pairs,
            MoveStep::Marks => self.decided = !self.withdrawn,
            MoveStep::Follows | MoveStep::Switched => {}
        }
        if self.withdrawn { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn show(&self, request: &mut Request) -> Moving {
        request.files_total = self.keys.max(self.copied);
        // Everything is read twice.
        let done = self.copied + self.compared;
        request.files_done = (done / 2).min(request.files_total);
        let left = (2 * request.files_total).saturating_sub(done);
        let spent = self.begun.elapsed().as_secs();
        let estimate = (done > 0).then(|| {
            let finish = (u128::from(spent) * u128::from(left) / u128::from(done)) as u64;
            Estimate {
                start_p50_s: 0,
                start_p90_s: 0,
                finish_p50_s: finish,
                finish_p90_s: finish.saturating_mul(2),
            }
        });
        Moving { estimate, doing: self.doing.into(), ..Moving::default() }
    }
}

impl EngineMoves {
    /// The node uses this engine.
    pub(crate) fn belongs(&self, engine: Arc<Movable<Opened>>) {
        self.engine.get_or_init(|| engine);
    }

    /// Whether this node may go on with its engine: what it reads and changes counts.
    pub(crate) fn is_held(&self) -> Result<(), Failure> {
        let Some(engine) = self.engine.get() else { return Ok(()) };
        engine.engine().is_held().map_err(|e| failure(class(&e), e.to_string()))
    }

    /// Why another node has, or may have, this node's engine, if so.
    pub(crate) fn is_lost(&self) -> Option<Failure> {
        let e = self.engine.get()?.engine().is_held().err()?;
        let lost = matches!(e, KvError::Taken { .. } | KvError::Lapsed { .. });
        lost.then(|| failure(class(&e), e.to_string()))
    }

    /// Whether this node's engine has lost changes.
    pub(crate) fn is_rewound(&self) -> bool {
        let held = self.engine.get().map(|engine| engine.engine().is_held());
        matches!(held, Some(Err(KvError::Rewound { .. })))
    }

    /// How far this node has brought an engine that others can have after it.
    pub(crate) fn reached(&self) -> Option<kv::Reached> {
        self.engine.get()?.engine().reached()
    }

    /// How far the move of this request is.
    pub(crate) fn moving(&self, request: &mut Request) -> Moving {
        let now = self.now.lock();
        let of_this = now.as_ref().filter(|progress| progress.id == request.id);
        of_this.map_or_else(Moving::default, |progress| progress.show(request))
    }

    /// Withdraws the move of this request.
    ///
    /// # Errors
    /// The switch has begun.
    pub(crate) fn withdraw(&self, id: RequestId) -> Result<(), Failure> {
        match self.now.lock().as_mut().filter(|progress| progress.id == id) {
            Some(progress) if progress.decided => {
                let message = format!(
                    "request {id} cannot be withdrawn any more: the catalogue changes over at this moment (`thermo request show {id}`)"
                );
                Err(failure(ErrorClass::Busy, message))
            }
            Some(progress) => {
                progress.withdrawn = true;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Node {
    /// Begins to move the catalogue to the address `to`, or into the state directory; the request tells how far it is.
    ///
    /// # Errors
    /// It is there, or on its way; a standby follows; the configuration does not allow it.
    pub(crate) fn move_engine(self: &Arc<Self>, cx: &Cx, to: Option<&str>) -> Result<Request, Failure> {
        let none = || failure(ErrorClass::Invalid, "this node's engine cannot be moved");
        let engine = self.engine_moves.engine.get().ok_or_else(none)?.clone();
        if self.feeding.get().is_some() {
            let message = "a standby follows this node ([standby] in the configuration), and it follows the embedded engine only: take that section \
                           out, restart the node, then move; the database's own standbys take its place";
            return Err(failure(ErrorClass::Invalid, message));
        }
        let mut slot = self.engine_moves.now.lock();
        if let Some(running) = &*slot {
            let message =
                format!("the catalogue is being moved already: `thermo request show {}`", running.id);
            return Err(failure(ErrorClass::Busy, message));
        }
        let mut config = (*self.settings()).clone();
        config.catalog.engine = engine.engine().address().map(Into::into);
        let subject = subject(&config.state_dir, to)?;
        let plan = Plan::of(&config, to)?;
        let keys = engine.stats().keys;
        let mut request = Request::new(RequestKind::MoveEngine, cx.uid, subject, crate::now());
        (request.state, request.started) = (RequestState::Active, Some(request.created));
        let fail = |e| refused("request", &e);
        let request = self.catalog.create_request(&request, &[]).map_err(fail)?;
        self.catalog.sync().map_err(fail)?;
        let (id, begun, doing) = (request.id, Instant::now(), "begins");
        let (withdrawn, decided) = (false, false);
        *slot = Some(Progress { id, begun, keys, copied: 0, compared: 0, doing, withdrawn, decided });
        drop(slot);
        let node = self.clone();
        let spawned = crate::startup::spawn(Some(self), "move-engine", move || {
            let moved = moving::carry(&engine, &plan, &mut |step| node.engine_step(step));
            node.end_engine_move(id, moved);
        });
        if let Err(e) = spawned {
            self.end_engine_move(id, Err(e.clone()));
            return Err(e);
        }
        Ok(request)
    }

    fn engine_step(&self, step: MoveStep) -> ControlFlow<()> {
        if self.stopping.lock().is_some() {
            return ControlFlow::Break(());
        }
        let mut now = self.engine_moves.now.lock();
        now.as_mut().map_or(ControlFlow::Continue(()), |progress| progress.step(step))
    }

    fn end_engine_move(&self, id: RequestId, moved: Result<Moved, Failure>) {
        match &moved {
            Ok(moved) => tracing::info!("the catalogue was moved to {}: {}", moved.to, told(moved)),
            Err(e) => tracing::warn!("the catalogue was not moved: {}", e.message),
        }
        let updated = self.catalog.update_request(id, &mut |r| {
            if r.state == RequestState::Cancelled {
                return;
            }
            r.finished = Some(crate::now());
            match &moved {
                Ok(moved) => {
                    (r.state, r.message) = (RequestState::Done, told(moved));
                    (r.files_total, r.files_done) = (moved.pairs, moved.pairs);
                    (r.bytes_total, r.bytes_done) = (moved.bytes, moved.bytes);
                }
                Err(e) => (r.state, r.message) = (RequestState::Failed, e.message.clone()),
            }
        });
        if let Err(e) = updated {
            tracing::error!("request {id} cannot be ended: {e}");
        }
        *self.engine_moves.now.lock() = None;
    }

    /// Ends a move that was under way when the last run ended: the engine that counts says how.
    pub(crate) fn resume_engine_move(&self, request: &Request) -> Result<(), Failure> {
        let state = &self.config.state_dir;
        let engine = self.engine_moves.engine.get().map(|engine| engine.engine());
        let at = engine.map(|engine| subject(state, engine.address())).transpose()?;
        let there = at.as_ref() == Some(&request.subject);
        let now = crate::now();
        let end = &mut |r: &mut Request| {
            r.finished = Some(now);
            (r.state, r.message) = match there {
                true => (RequestState::Done, "the node was restarted; the catalogue is there".into()),
                false => {
                    let why = "the node was restarted meanwhile; the catalogue is where it was: ask again";
                    (RequestState::Failed, why.into())
                }
            };
        };
        self.catalog.update_request(request.id, end).map_err(|e| refused("resume requests", &e)).map(drop)
    }
}

/// What a request says of where the catalogue goes.
fn subject(state: &Path, to: Option<&str>) -> Result<String, Failure> {
    let shown = match to {
        None => state.join(EMBEDDED).display().to_string(),
        Some(address) => kv::check_address(address).map_err(|e| failure(class(&e), e.to_string()))?,
    };
    Ok(format!("catalogue to {shown}"))
}

fn told(moved: &Moved) -> String {
    let Moved { pairs, digest, changed, from, .. } = moved;
    format!(
        "{pairs} keys, sha256 {digest}; {changed} that changed meanwhile; changes were held back for {} ms; {from} is kept and does not open any \
         more",
        moved.paused.as_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn progress(seconds: u64) -> Progress {
        let begun = Instant::now() - Duration::from_secs(seconds);
        let (withdrawn, decided) = (false, false);
        Progress {
            id: RequestId(1),
            begun,
            keys: 100,
            copied: 0,
            compared: 0,
            doing: "begins",
            withdrawn,
            decided,
        }
    }

    fn request() -> Request {
        Request::new(RequestKind::MoveEngine, 0, String::new(), Time::from_nanos(0))
    }

    #[test]
    fn a_move_says_how_far_it_is_and_when_it_ends() {
        let (mut progress, mut request) = (progress(60), request());
        assert_eq!(progress.show(&mut request).estimate, None);
        let _ = progress.step(MoveStep::Copied { pairs: 100, bytes: 1 });
        let moving = progress.show(&mut request);
        assert_eq!((request.files_done, request.files_total, moving.doing.as_str()), (50, 100, "copies"));
        let left = moving.estimate.expect("an estimate").finish_p50_s;
        assert!((60..90).contains(&left), "{left}");
        // More keys than were estimated.
        let _ = progress.step(MoveStep::Copied { pairs: 120, bytes: 1 });
        let _ = progress.step(MoveStep::Compares { pairs: 120 });
        let left = progress.show(&mut request).estimate.expect("an estimate").finish_p50_s;
        assert_eq!((request.files_done, request.files_total, left), (120, 120, 0));
    }

    #[test]
    fn a_move_is_withdrawn_until_the_switch_and_not_afterwards() {
        let moves = EngineMoves::default();
        *moves.now.lock() = Some(progress(0));
        let step = |step| moves.now.lock().as_mut().expect("a move").step(step);
        moves.withdraw(RequestId(2)).unwrap();
        assert!(step(MoveStep::Follows).is_continue(), "another request was withdrawn");
        assert!(step(MoveStep::Marks).is_continue());
        assert!(moves.withdraw(RequestId(1)).unwrap_err().message.contains("cannot be withdrawn"));
        *moves.now.lock() = Some(progress(0));
        moves.withdraw(RequestId(1)).unwrap();
        assert!(step(MoveStep::Marks).is_break());
    }
}
