//! Moving the catalogue from one engine to another, while a node uses it or not.
//!
//! At every moment one engine opens: the one that the configuration names. Each end is marked before the configuration changes, and a marked
//! engine opens only together with the note of the move ([`pending`]), which whoever opens an engine takes away before he changes
//! anything: he writes into it which one was chosen, takes the mark of that one away, and removes the note. So the other one stays refused from
//! then on, whatever a configuration says.
//!
//! 1. The copy is made of one moment, marked as one from its first moment on, and compared. Keys that change meanwhile are noted ([`kv::Movable`]).
//! 2. The copy stands where it will be looked for. Noted keys are brought over, again and again, until few are left.
//! 3. Nothing changes from here on. The note is written, for the source.
//! 4. The last keys are brought over.
//! 5. The source is marked.
//! 6. The note is written for both.
//! 7. The configuration names the copy: this decides.
//! 8. The note is made one for the copy alone.
//! 9. The copy takes the place of the source in the running node, and changes go on.
//! 10. As a start of the node does it: the mark of the copy goes, then the note.
//!
//! Until 7 an error undoes what was written, and the source goes on. Servers are asked in 4 and 5 only, and not waited for longer than [`switch`] allows.

use super::pairs::{self, Content};
use super::plan::{Plan, surely};
use super::switch::{PAUSE, Switch, slow};
use super::{Opened, class, open_counting, pending};
use crate::Config;
use crate::error::failure;
use crate::startup::{io, patiently, prepare};
use kv::{Aside, KvError, Movable, Noting, Role};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::ErrorClass;
use wire::Failure;

/// Keys that may change while everything is copied and compared (bytes in memory).
const MOST_NOTED: usize = 256 << 20;
/// Changes wait while more keys than this are to be brought over, of half as many in each round, for twice as long ...
const HELD_ABOVE: usize = 1_000;
const HELD: Duration = Duration::from_millis(20);
const HELD_MOST: Duration = Duration::from_secs(1);
/// ... and are held back altogether once it is no more than this, or takes no longer than that.
const FEW: usize = 200;
const SOON: Duration = Duration::from_millis(250);
/// After so many rounds it may take so long; else the move is given up.
const ROUNDS: u32 = 50;
const LATE: Duration = Duration::from_secs(5);

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// So many pairs, of so many bytes in all, are copied.
    Copied {
        /// Keys with their values.
        pairs: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The copy is complete; so many pairs of it are read again.
    Compares {
        /// Keys with their values.
        pairs: u64,
    },
    /// Both are the same, and what changed meanwhile is brought over.
    Follows,
    /// Few changes are left: changes are held back, and the source is set aside. From here on a move is not withdrawn any more.
    Marks,
    /// The configuration names the copy now.
    Switched,
}

/// Told of every step; `Break` gives the move up.
pub(super) type Told<'t> = &'t mut dyn FnMut(MoveStep) -> ControlFlow<()>;

/// What a move did.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Keys with their values, when they were copied.
    pub pairs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Digest of all of them, the same at both ends.
    pub digest: String,
    /// Keys that changed while that was done. Each was read again after it was brought over.
    pub changed: u64,
    /// How long changes were held back.
    pub paused: Duration,
    /// The engine that was left; it is kept.
    pub from: String,
    /// The engine that counts now.
    pub to: String,
}

/// Moves the catalogue of a node that does not run into the database at the address `to`, or into an embedded engine (`None`), and changes its
/// configuration file (made if it is not there). After an error, and after a kill at any moment, the engine that the configuration
/// names is whole and the only one that opens.
///
/// # Errors
/// The node runs; either engine cannot be opened or written; the place is not empty; the copies differ; the configuration cannot be changed.
pub fn move_engine(
    config: &Config,
    to: Option<&str>,
    told: &mut dyn FnMut(MoveStep),
) -> Result<Moved, Failure> {
    let plan = Plan::of(config, to)?;
    let state = &config.state_dir;
    let (_lock, fresh) = patiently(|| prepare(state))?;
    if fresh {
        let message = format!(
            "there is no node in {} yet, so there is nothing to move: write the address into the configuration (catalog.engine) and start it",
            state.display()
        );
        return Err(failure(ErrorClass::NotFound, message));
    }
    let engine = Movable::new(open_counting(config, false, (None, None), None)?);
    carry(&engine, &plan, &mut |step| {
        told(step);
        ControlFlow::Continue(())
    })
}

/// Moves what `engine` holds to where `plan` says, and makes that the engine, while it is used.
pub(super) fn carry(engine: &Movable<Opened>, plan: &Plan, told: Told<'_>) -> Result<Moved, Failure> {
    let state = &plan.config.state_dir;
    if pending::read(state).map_err(|e| io(state, &e))?.is_some() {
        let message = "an earlier move is not quite over (the log says why): restart the node, which ends it, then move";
        return Err(failure(ErrorClass::Busy, message));
    }
    let noting = engine.note(MOST_NOTED, PAUSE).ok_or_else(slow)?;
    let source = engine.engine();
    source.settle()?;
    let from = source.shown(state);
    let id = uuid::Uuid::new_v4().to_string();
    let mark = mark_copy(&id, &from);
    let copy = plan.target(&mark)?;
    let content = transfer(&source, &copy, told)?;
    let copy = Arc::new(plan.place(copy, &mark)?);
    let to = copy.shown(state);
    let mut changed = follow(&noting, &source, &copy, told)?;
    goes_on(told(MoveStep::Marks))?;
    let begun = Instant::now();
    let until = begun + PAUSE;
    let paused = noting.pause(PAUSE).ok_or_else(slow)?;
    let last = paused.take();
    let switch = Switch { plan: plan.clone(), source, copy: copy.clone(), id: id.clone() };
    changed += switch.within(until, last, mark_left(&id, &to))?;
    let _ = told(MoveStep::Switched); // it is decided
    surely("the note of the move", || pending::choose(state, &id, plan.kinds().1));
    paused.replace(copy.clone());
    let pause = begun.elapsed();
    finish(state, &copy).map_err(|e| {
        let message = format!(
            "{}; the catalogue is in {to} now, and the next start of the node goes on from there",
            e.message
        );
        failure(e.class, message)
    })?;
    let digest = content.digest.iter().map(|b| format!("{b:02x}")).collect();
    Ok(Moved { pairs: content.pairs, bytes: content.bytes, digest, changed, paused: pause, from, to })
}

/// Takes the marks of a move away, as the next start would.
fn finish(state: &Path, copy: &Opened) -> Result<(), Failure> {
    copy.set_aside(None)?;
    pending::remove(state).map_err(|e| io(state, &e))
}

fn mark_copy(id: &str, from: &str) -> Aside {
    let why = format!(
        "it is a copy of {from} that `thermo engine move` has not finished: let the configuration (catalog.engine) name that one, or run \
         the command again"
    );
    Aside { role: Role::Copy, id: id.into(), why }
}

fn mark_left(id: &str, to: &str) -> Aside {
    let why = format!(
        "the catalogue was moved to {to}, and this one is older: let the configuration (catalog.engine) name that one (no line for one in \
         the state directory); remove this one when it is not needed any more"
    );
    Aside { role: Role::Left, id: id.into(), why }
}

fn goes_on(on: ControlFlow<()>) -> Result<(), Failure> {
    match on {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(given_up()),
    }
}

fn given_up() -> Failure {
    let message = "the move was given up: the catalogue stays where it is, and the copy is not used";
    failure(ErrorClass::Busy, message)
}

fn failed(e: KvError) -> Failure {
    match e {
        KvError::Aborted => given_up(),
        e => failure(class(&e), e.to_string()),
    }
}

/// Copies what is there at one moment, and compares.
fn transfer(from: &Opened, to: &Opened, told: Told<'_>) -> Result<Content, Failure> {
    let sent = pairs::copy(from, to, &mut |pairs, bytes| told(MoveStep::Copied { pairs, bytes }));
    let sent = sent.map_err(failed)?;
    goes_on(told(MoveStep::Compares { pairs: 0 }))?;
    let stored = pairs::content(to, &mut |pairs, _| told(MoveStep::Compares { pairs })).map_err(failed)?;
    if sent == stored {
        return Ok(sent);
    }
    Err(differs(&format!("{} keys there, {} here", stored.pairs, sent.pairs)))
}

fn differs(how: &str) -> Failure {
    let message = format!(
        "the copy differs from what was read ({how}); nothing was changed but the copy, which is not used: check the memory and \
         the disks of both ends, then try again"
    );
    failure(ErrorClass::Corrupt, message)
}

/// Brings over what changed, until little is left.
fn follow(noting: &Noting<'_, Opened>, from: &Opened, to: &Opened, told: Told<'_>) -> Result<u64, Failure> {
    let mut changed = 0;
    for round in 0..ROUNDS {
        let turn = round.min(9);
        let begun = Instant::now();
        let held = HELD_MOST.min(HELD * (1 << turn));
        noting.hold_above((HELD_ABOVE >> turn).max(FEW / 2), held, begun + PAUSE);
        let few = bring(noting.take(), from, to, &mut || told(MoveStep::Follows))?;
        changed += few;
        let enough = if round + 1 == ROUNDS { LATE } else { SOON };
        if few <= FEW as u64 || begun.elapsed() <= enough {
            goes_on(told(MoveStep::Follows))?;
            return Ok(changed);
        }
    }
    let message = "the catalogue changes faster than its changes are brought over, even while each waits for a second: it stays where it is, and the \
                   copy is not used; try again when fewer files are made and changed, or stop the node for the move";
    Err(failure(ErrorClass::Busy, message))
}

/// Brings keys over; how many.
pub(super) fn bring(
    keys: Option<BTreeSet<Vec<u8>>>,
    from: &Opened,
    to: &Opened,
    on: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<u64, Failure> {
    let Some(keys) = keys else {
        let message = "more of the catalogue changed while it was copied than is kept note of (256 MiB of keys): it stays where it is, and the \
                       copy is not used; try again when fewer files are made and changed, or stop the node for the move";
        return Err(failure(ErrorClass::Busy, message));
    };
    let keys: Vec<Vec<u8>> = keys.into_iter().collect();
    from.settle()?;
    match pairs::bring(&keys, from, to, on).map_err(failed)? {
        None => Ok(keys.len() as u64),
        Some(key) => Err(differs(&format!("key {key:02x?}"))),
    }
}
