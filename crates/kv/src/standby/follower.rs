//! The other end: an engine that takes what it is sent, and knows exactly how far it is.

use std::ops::ControlFlow;
use std::path::Path;

use super::step::Page;
use super::{Batch, Lineage, OWN_TABLE, State, Step};
use crate::lmdb::batch::whole;
use crate::lmdb::place::io_error;
use crate::{Durability, Engine, KvError, LmdbEngine, LmdbOptions, MAX_KEY, Writer, read, write};

/// The key of what a follower has. It is written with every step, in the same transaction.
const STATE_KEY: [u8; 1] = [OWN_TABLE];
/// Behind all keys.
const END: [u8; MAX_KEY + 1] = [0xff; MAX_KEY + 1];
/// Lineage, number, time, and whether the copy goes on.
const FIXED: usize = 33;
/// Keys that are removed in one transaction.
const PIECE: usize = 10_000;

/// Why a step was not taken.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// It is not what comes next; the follower's state says what does.
    #[error("the standby has batch {has}, and was sent batch {sent}")]
    Order {
        /// The last that it has.
        has: u64,
        /// What came.
        sent: u64,
    },
    /// It holds something else than what it follows: it begins anew.
    #[error(
        "the standby held something else than the node that it follows, behind batch {number}; it begins a new copy. Check the memory and the \
         disks of both"
    )]
    Differs {
        /// Behind which batch that was noticed.
        number: u64,
    },
    /// The engine could not take it.
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// An engine that follows another one.
pub struct Follower {
    engine: LmdbEngine,
    state: State,
}

impl Follower {
    /// Opens the engine of a standby, or makes one. Another engine is refused.
    ///
    /// # Errors
    /// As [`LmdbEngine::open`]; `Corrupt` if it holds something and is no standby's.
    pub fn open(dir: &Path, options: LmdbOptions) -> Result<Self, KvError> {
        // What it holds is compared behind each step.
        let engine = LmdbEngine::open(dir, LmdbOptions { journal: false, ..options })?;
        let state = read::<_, KvError>(&engine, |r| r.get(&STATE_KEY))?;
        let state = match state {
            Some(bytes) => decode(&bytes),
            None if engine.stats().keys == 0 => Some(State::default()),
            None => None,
        };
        let state = state.ok_or_else(|| KvError::Corrupt {
            path: dir.into(),
            detail: "it is not the engine of a standby".into(),
        })?;
        Ok(Self { engine, state })
    }

    /// What it has, on stable storage.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Takes a step; it is on stable storage when this returns. A step that came before is no error.
    ///
    /// # Errors
    /// [`FollowError`]: `Order` and `Kv` change nothing, after `Differs` it waits for a new beginning.
    pub fn take(&mut self, step: &Step) -> Result<(), FollowError> {
        match step {
            Step::Idle => Ok(()),
            Step::Begin { lineage, number } => self.begin(*lineage, *number),
            Step::Batch(lineage, batch) => self.batch(*lineage, batch),
            Step::Page(lineage, page) => self.page(*lineage, page),
        }
    }

    fn begin(&mut self, lineage: Lineage, number: u64) -> Result<(), FollowError> {
        let state = State { lineage, number, time_ms: 0, copied: Some(Vec::new()) };
        self.change(state, |_| Ok(()))
    }

    fn batch(&mut self, lineage: Lineage, batch: &Batch) -> Result<(), FollowError> {
        self.expect(lineage, batch.number, 1)?;
        let changes = whole(&batch.bytes).ok_or_else(|| self.damaged(batch.number))?;
        let mut state = State { number: batch.number, time_ms: changes.time_ms, ..self.state.clone() };
        let beyond = state.copied.clone();
        // What was not copied yet comes with its page.
        let is_here = |key: &[u8]| beyond.as_ref().is_none_or(|copied| key < copied.as_slice());
        state.lineage = lineage;
        self.change(state, |w| {
            changes.changes().flatten().filter(|(key, _)| is_here(key)).try_for_each(|(key, value)| {
                match value {
                    Some(value) => w.put(key, value),
                    None => w.delete(key),
                }
            })
        })?;
        self.compare(batch.content)
    }

    fn page(&mut self, lineage: Lineage, page: &Page) -> Result<(), FollowError> {
        self.expect(lineage, page.number(), 0)?;
        if self.state.copied.as_ref() != Some(&page.from) {
            return Err(FollowError::Order { has: self.state.number, sent: page.number() });
        }
        let pairs = whole(&page.pairs).ok_or_else(|| self.damaged(page.number()))?;
        let state = State { copied: page.to.clone(), ..self.state.clone() };
        let to = page.to.as_deref().unwrap_or(&END);
        let mut old = keys(&self.engine, &page.from, to)?;
        // The last page may have very much behind it that is there no more.
        while old.len() >= PIECE {
            self.change(self.state.clone(), |w| old.iter().try_for_each(|key| w.delete(key)))?;
            old = keys(&self.engine, &page.from, to)?;
        }
        self.change(state, |w| {
            old.iter().try_for_each(|key| w.delete(key))?;
            pairs.changes().flatten().try_for_each(|(key, value)| w.put(key, value.unwrap_or_default()))
        })?;
        self.compare(page.content)
    }

    fn expect(&self, lineage: Lineage, number: u64, step: u64) -> Result<(), FollowError> {
        if self.state.lineage == lineage && self.state.number.checked_add(step) == Some(number) {
            return Ok(());
        }
        Err(FollowError::Order { has: self.state.number, sent: number })
    }

    fn damaged(&self, sent: u64) -> FollowError {
        FollowError::Order { has: self.state.number, sent }
    }

    fn change(
        &mut self,
        state: State,
        f: impl Fn(&mut dyn Writer) -> Result<(), KvError>,
    ) -> Result<(), FollowError> {
        write::<_, KvError>(&self.engine, Durability::Durable, |w| {
            f(w)?;
            w.put(&STATE_KEY, &encode(&state))
        })?;
        self.state = state;
        Ok(())
    }

    /// Once it has everything, it must hold what the other one held with the same batch.
    fn compare(&mut self, content: super::Content) -> Result<(), FollowError> {
        if self.state.copied.is_some() || self.engine.content() == content {
            return Ok(());
        }
        let number = self.state.number;
        self.change(State::default(), |_| Ok(()))?;
        Err(FollowError::Differs { number })
    }

    /// Ends following: the engine is an ordinary one from then on, with all that came.
    ///
    /// # Errors
    /// The engine cannot be written: it is a standby's as before. `Corrupt` if its copy is not complete.
    pub fn promote(self, dir: &Path) -> Result<(), KvError> {
        if !self.state.is_complete() {
            let detail = "its copy of the node that it follows is not complete".into();
            return Err(KvError::Corrupt { path: dir.into(), detail });
        }
        write::<_, KvError>(&self.engine, Durability::Durable, |w| w.delete(&STATE_KEY))?;
        drop(self.engine);
        crate::lmdb::place::sync_dir(dir).map_err(|e| io_error(dir, "syncing the directory", &e))
    }
}

/// Keys of a range, without the own one, and [`PIECE`] at most.
fn keys(engine: &LmdbEngine, from: &[u8], to: &[u8]) -> Result<Vec<Vec<u8>>, KvError> {
    read::<_, KvError>(engine, |r| {
        let mut found = Vec::new();
        r.scan(from, to, &mut |key, _| {
            found.extend((key[0] != OWN_TABLE).then(|| key.to_vec()));
            if found.len() < PIECE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(found)
    })
}

fn encode(state: &State) -> Vec<u8> {
    let mut out = state.lineage.to_vec();
    out.extend(state.number.to_le_bytes());
    out.extend(state.time_ms.to_le_bytes());
    out.push(state.copied.is_some().into());
    out.extend(state.copied.as_deref().unwrap_or_default());
    out
}

fn decode(bytes: &[u8]) -> Option<State> {
    let (fixed, copied) = bytes.split_at_checked(FIXED)?;
    Some(State {
        lineage: fixed[..16].try_into().ok()?,
        number: u64::from_le_bytes(fixed[16..24].try_into().ok()?),
        time_ms: i64::from_le_bytes(fixed[24..32].try_into().ok()?),
        copied: (fixed[32] == 1).then(|| copied.to_vec()),
    })
}
