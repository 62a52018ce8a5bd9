//! Who may use a target: whoever has a right of the turn that it has heard of last. What was begun is counted, so that a later turn begins when it is done.

use crate::sidecar::FileError;
use data::TargetSecret;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks whether what was begun is done.
const LOOK: Duration = Duration::from_millis(1);

/// Capabilities that were given out before the secret of their epoch was replaced have ended after this time: those of clients live for ten minutes, those
/// that a node uses itself for twelve hours.
const LIFE: Duration = Duration::from_secs(13 * 3600);

/// The secrets that a target shares with the metadata service of a turn.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The namespace whose they are: a target that belongs to another one takes them for nothing. Empty: one that may still get another name.
    pub site: String,
    /// Whose they are: raised when another node comes to serve the namespace.
    pub turn: u64,
    /// By epoch ([`data::epoch`]).
    pub keys: BTreeMap<u32, TargetSecret>,
}

impl Secrets {
    fn are(&self, others: &Self) -> bool {
        (self.turn, self.keys.len()) == (others.turn, others.keys.len())
            && self.keys.keys().all(|epoch| others.have(*epoch, self))
    }

    /// Whether those of others count on in an epoch.
    fn have(&self, epoch: u32, others: &Self) -> bool {
        self.keys.get(&epoch).zip(others.keys.get(&epoch)).is_some_and(|(own, other)| own.is(other))
    }
}

/// Of a service that takes turns with nobody.
impl<const N: usize> From<[(u32, TargetSecret); N]> for Secrets {
    fn from(keys: [(u32, TargetSecret); N]) -> Self {
        Self { site: String::new(), turn: 0, keys: keys.into() }
    }
}

/// Held by what is done with a right, until it is done.
#[derive(Clone, Default)]
pub(crate) struct Begun {
    count: Arc<()>,
}

impl Begun {
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.count) > 1
    }
}

/// Why a target has not taken secrets.
pub(crate) enum Refused {
    /// It has heard of this turn, which is a later one.
    Over(u64),
    /// What was begun does not end.
    InUse,
    /// The disk fails.
    Disk(FileError),
}

pub(crate) struct Admission {
    now: RwLock<Admits>,
    /// Held by who waits for what was begun, or writes down a turn.
    taking: Mutex<()>,
}

struct Admits {
    secrets: Secrets,
    /// The latest turn that it was told of. If it is not that of the secrets, it is not durable yet: nothing of it is taken, and nothing begins of those before.
    heard: u64,
    /// Whoever told something last did not know of that.
    contested: bool,
    /// When a secret was replaced by another one of the same epoch.
    replaced: Option<Instant>,
    /// What was begun, by epoch.
    begun: BTreeMap<u32, Begun>,
    /// What was begun with secrets that do not count any more.
    parting: Vec<Begun>,
}

impl Admission {
    /// Of a target that has heard of this turn, and was not told its secrets.
    pub(crate) fn of(turn: u64) -> Self {
        let now = Admits {
            secrets: Secrets { turn, ..Secrets::default() },
            heard: turn,
            contested: false,
            replaced: None,
            begun: BTreeMap::new(),
            parting: Vec::new(),
        };
        Self { now: RwLock::new(now), taking: Mutex::default() }
    }

    /// The turn that it has written down.
    pub(crate) fn turn(&self) -> u64 {
        self.now.read().secrets.turn
    }

    /// What to tell of it: the turn that it has written down. To whoever told it an earlier one than somebody before him the later one, which he has to get above.
    pub(crate) fn reported(&self) -> u64 {
        let now = self.now.read();
        if now.contested { now.heard } else { now.secrets.turn }
    }

    /// What a secret gives, if it counts.
    pub(crate) fn with<T>(&self, epoch: u32, f: impl FnOnce(&TargetSecret) -> T) -> Option<T> {
        let now = self.now.read();
        now.secrets.keys.get(&epoch).filter(|_| now.is_settled()).map(f)
    }

    /// Whether an honest bearer may have a key that counts no more, though its epoch does: the service lost what its secrets follow from.
    pub(crate) fn is_changing(&self, now: Instant) -> bool {
        self.now.read().replaced.is_some_and(|at| now.saturating_duration_since(at) < LIFE)
    }

    /// Begins something with a right of this epoch, if it counts.
    pub(crate) fn begin(&self, epoch: u32) -> Option<Begun> {
        let now = self.now.read();
        now.begun.get(&epoch).filter(|_| now.is_settled()).cloned()
    }

    /// Whether something that was begun is not done.
    pub(crate) fn is_in_use(&self) -> bool {
        self.now.read().is_in_use()
    }

    /// Takes secrets. Those of a later turn end whatever is of an earlier one: nothing of it begins from now on, also if this fails, and when what was begun is done
    /// the turn is written down durably by `write`; only then they count.
    pub(crate) fn take(
        &self,
        secrets: Secrets,
        patience: Duration,
        write: impl FnOnce(u64) -> Result<(), FileError>,
    ) -> Result<(), Refused> {
        let end = Instant::now() + patience;
        if self.now.write().hears(&secrets)? {
            return Ok(()); // nobody is held up
        }
        let _alone = self.taking.try_lock_until(end).ok_or(Refused::InUse)?;
        if self.now.write().hears(&secrets)? {
            return Ok(());
        }
        self.wait(end)?;
        if secrets.turn > self.turn() {
            write(secrets.turn).map_err(Refused::Disk)?;
            self.now.write().replace(secrets);
        }
        Ok(())
    }

    /// Until what was begun with what does not count any more is done; that only gets less.
    fn wait(&self, end: Instant) -> Result<(), Refused> {
        loop {
            {
                let mut now = self.now.write();
                now.parting.retain(Begun::is_held);
                let waits = if now.is_settled() { !now.parting.is_empty() } else { now.is_in_use() };
                if !waits {
                    return Ok(());
                }
            }
            if Instant::now() >= end {
                return Err(Refused::InUse);
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Admits {
    /// Whether no later turn was heard of than the one that is written down.
    fn is_settled(&self) -> bool {
        self.heard == self.secrets.turn
    }

    fn is_in_use(&self) -> bool {
        self.begun.values().chain(&self.parting).any(Begun::is_held)
    }

    /// Somebody tells secrets; true: that is all there is to do. What of them needs nothing to be written counts at once.
    fn hears(&mut self, secrets: &Secrets) -> Result<bool, Refused> {
        self.contested = secrets.turn < self.heard;
        if self.contested {
            return Err(Refused::Over(self.heard));
        }
        self.heard = secrets.turn;
        if !self.is_settled() {
            return Ok(false);
        }
        if !self.secrets.are(secrets) {
            self.replace(secrets.clone());
        }
        self.parting.retain(Begun::is_held);
        Ok(self.parting.is_empty())
    }

    fn replace(&mut self, secrets: Secrets) {
        let is_other =
            |epoch: &u32| self.secrets.keys.contains_key(epoch) && !secrets.have(*epoch, &self.secrets);
        if secrets.keys.keys().any(is_other) {
            self.replaced = Some(Instant::now());
        }
        let before = std::mem::take(&mut self.begun);
        let (kept, over): (BTreeMap<_, _>, BTreeMap<_, _>) =
            before.into_iter().partition(|(epoch, _)| secrets.have(*epoch, &self.secrets));
        self.parting.extend(over.into_values());
        self.begun = kept;
        for epoch in secrets.keys.keys() {
            self.begun.entry(*epoch).or_default();
        }
        self.secrets = secrets;
    }
}
