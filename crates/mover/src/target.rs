//! One disk target as a mover serves it: its objects, who may use them, and what is open.

use crate::admission::{Admission, Begun, Refused, Secrets};
use crate::intents::Intents;
use crate::object::Object;
use crate::revoked::Revoked;
use crate::sidecar::{Done, FileError, Sidecars};
use crate::site::{self, Foreign, Site};
use crate::turns;
use data::{CAPABILITY_LEN, Capability, CapabilityKey, Refusal};
use disk::{DiskError, DiskTarget};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use types::{ObjectId, TargetId, Time};

/// Objects that are kept open at most ...
const OPEN: usize = 4096;
/// ... and that always are, however few descriptors there are.
const OPEN_AT_LEAST: usize = 32;
/// Of those that are kept open the part that is closed at once when there are more.
const CLOSED_AT_ONCE: usize = 16;
/// How often something for which there is no descriptor is tried again, the second time after this and then after as much more each time: a second in all.
const ATTEMPTS: u32 = 7;
const PAUSE: Duration = Duration::from_millis(50);
/// Targets that this process has open: their objects share its descriptors.
static TARGETS: AtomicUsize = AtomicUsize::new(0);

/// So many objects that are made at once are noted as being written when they are made: fewer are, each, when somebody writes to them first.
const TOGETHER: usize = 8;
/// Objects of which is remembered who made them; twice what one request makes.
const MADE: usize = 2 * data::frame::MAX_CREATE as usize;

/// One target.
pub struct Target {
    id: TargetId,
    cluster: [u8; 16],
    pub(crate) disk: DiskTarget,
    pub(crate) sidecars: Sidecars,
    pub(crate) intents: Intents,
    pub(crate) revoked: Revoked,
    site: Site,
    admission: Admission,
    open: Mutex<Open>,
    /// Who made which objects lately.
    made: Mutex<BTreeMap<ObjectId, Done>>,
}

#[derive(Default)]
struct Open {
    objects: BTreeMap<ObjectId, Kept>,
    /// Counts up with every use.
    uses: u64,
}

struct Kept {
    object: Arc<Object>,
    used: u64,
}

/// Why a target cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Its objects.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// What is kept beside them.
    #[error("target {dir}: {reason}; look at the kernel log and at the disk", dir = dir.display())]
    Beside {
        /// Directory of the target.
        dir: std::path::PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It is of another namespace.
    #[error(
        "target {dir} belongs to namespace {of}, and not to {asked}: nothing of it is served to that one", dir = dir.display()
    )]
    Foreign {
        /// Directory of the target.
        dir: std::path::PathBuf,
        /// Whose it is.
        of: String,
        /// Who asks.
        asked: String,
    },
    /// Secrets of somebody whose turn is over.
    #[error(
        "target {target} takes nothing of turn {turn}: it has heard of turn {heard}, in which another node serves"
    )]
    Over {
        /// The target.
        target: TargetId,
        /// Whose secrets they were.
        turn: u64,
        /// What it knows.
        heard: u64,
    },
    /// What somebody does with the secrets that it has does not end.
    #[error(
        "target {target} stays in turn {turn}: something that was begun there with rights that do not count any more has not ended for {patience:?}; if that goes on, its disk hangs: look \
         at the kernel log"
    )]
    InUse {
        /// The target.
        target: TargetId,
        /// What it knows.
        turn: u64,
        /// How long that was waited for.
        patience: Duration,
    },
}

impl Target {
    /// Opens a target and makes the sums true of what was being written when it was last left: what a crash interrupted. If it has heard of a later turn
    /// than that of these secrets, it takes them for nothing. A target of another namespace is left as it is.
    ///
    /// # Errors
    /// The directory is not a target, is in use, or belongs to another namespace; the disk fails.
    pub fn open(id: TargetId, cluster: [u8; 16], dir: &Path, secrets: Secrets) -> Result<Self, TargetError> {
        let disk = DiskTarget::open(dir)?;
        let beside = |reason: String| TargetError::Beside { dir: dir.to_path_buf(), reason };
        let failed = |e: FileError| beside(e.to_string());
        let site = Site::open(dir).map_err(failed)?;
        // Before anything there is changed.
        belong(&site, dir, &secrets.site)?;
        let sidecars = Sidecars::open(dir).map_err(failed)?;
        let boot = crate::start_of_machine().map_err(|e| beside(e.to_string()))?;
        let (intents, found) = Intents::open(dir, boot).map_err(failed)?;
        let revoked = Revoked::open(dir).map_err(failed)?;
        let turn = turns::read(dir).map_err(failed)?;
        let target = Self {
            id,
            cluster,
            disk,
            sidecars,
            intents,
            revoked,
            site,
            admission: Admission::of(turn),
            open: Mutex::default(),
            made: Mutex::default(),
        };
        TARGETS.fetch_add(1, Ordering::Relaxed);
        target.recover(&found).map_err(|refusal| beside(refusal.to_string()))?;
        if turn == 0
            && let Err(e) = turns::write(dir, 0)
        {
            tracing::warn!(target = id.0, "there is no room yet for what another turn needs: {e}");
        }
        match target.set_secrets(secrets, Duration::ZERO) {
            Err(e @ TargetError::Over { .. }) => tracing::warn!("{e}"),
            set => set?,
        }
        Ok(target)
    }

    /// Which namespace has the target in a directory; empty: none yet. Makes nothing.
    ///
    /// # Errors
    /// What says so cannot be read.
    pub fn site_of(dir: &Path) -> Result<String, TargetError> {
        let beside = |e: FileError| TargetError::Beside { dir: dir.to_path_buf(), reason: e.to_string() };
        site::read(dir).map_err(beside)
    }

    /// Its number in the cluster.
    pub fn id(&self) -> TargetId {
        self.id
    }

    /// Replaces the secrets: capabilities of epochs that are left out end at once, and what was begun with them is done when this returns. With the secrets of a
    /// later turn nothing of an earlier one begins from now on, whatever this gives; nothing of the later one is taken until it is durable that this target has
    /// heard of it, when what was begun is done: from then on no earlier one comes back, also after a restart.
    ///
    /// # Errors
    /// `Foreign`: those of another namespace; `Over`: those of an earlier turn; `Beside`: the disk fails; `InUse`: what was begun has not ended in time. Asked again it goes on from there.
    pub fn set_secrets(&self, secrets: Secrets, patience: Duration) -> Result<(), TargetError> {
        let (target, turn, dir) = (self.id, secrets.turn, self.disk.dir());
        belong(&self.site, dir, &secrets.site)?;
        let taken = self.admission.take(secrets, patience, |turn| turns::write(dir, turn));
        taken.map_err(|refused| match refused {
            Refused::Over(heard) => TargetError::Over { target, turn, heard },
            Refused::InUse => TargetError::InUse { target, turn: self.turn(), patience },
            Refused::Disk(e) => TargetError::Beside { dir: dir.to_path_buf(), reason: e.to_string() },
        })
    }

    /// Whether something that was begun there has not ended.
    pub(crate) fn is_in_use(&self) -> bool {
        self.admission.is_in_use()
    }

    /// The last turn that it has heard of, and has written down.
    pub fn turn(&self) -> u64 {
        self.admission.turn()
    }

    /// The turn to report: that one, or, to whoever told it of an earlier turn than it was told of before, that which he has to get above.
    pub fn reported_turn(&self) -> u64 {
        self.admission.reported()
    }

    /// What a capability says, if it is for this target, and its key.
    ///
    /// # Errors
    /// It is for something else, or of an epoch that has ended; `Elsewhere` for one of a turn of which this target has not heard. Whether the bearer has
    /// the key is still to be seen.
    pub fn judge(&self, bytes: &[u8; CAPABILITY_LEN]) -> Result<(Capability, CapabilityKey), Refusal> {
        let capability = Capability::decode(bytes)?;
        if capability.cluster != self.cluster || capability.target != self.id {
            return Err(Refusal::Capability("it is for another target"));
        }
        match self.admission.with(capability.epoch, |secret| secret.key(bytes)) {
            Some(key) => Ok((capability, key)),
            None if data::epoch::is_of_later(capability.epoch, self.turn()) => {
                let id = self.id;
                let why =
                    format!("target {id} has not heard yet that another node serves; its host asks now");
                Err(Refusal::Elsewhere(why))
            }
            None => Err(Refusal::Expired),
        }
    }

    /// Whether a wrong signature may be that of an honest bearer, because secrets were replaced a short while ago.
    pub(crate) fn is_changing_secrets(&self) -> bool {
        self.admission.is_changing(Instant::now())
    }

    /// Whether the bearer of a capability has been shut out, or its epoch has ended since it was presented. As long as what this gives is held, no
    /// later turn begins.
    ///
    /// # Errors
    /// `Fenced`, `Expired`.
    pub(crate) fn admits(&self, capability: &Capability) -> Result<Begun, Refusal> {
        let begun = self.admission.begin(capability.epoch).ok_or(Refusal::Expired)?;
        match self.revoked.since(capability.client) {
            Some(since) if capability.issued < since => Err(Refusal::Fenced),
            _ => Ok(begun),
        }
    }

    /// Refuses capabilities of a client that were given out before `since`, from now on, durably.
    ///
    /// # Errors
    /// The disk fails.
    pub fn revoke(&self, client: u64, since: Time) -> Result<(), Refusal> {
        self.revoked.add(client, since).map_err(refused)
    }

    /// Makes empty objects, durably, with sums; the directories that they fall into are synced once. Those that the same request made
    /// before are left as they are.
    ///
    /// # Errors
    /// `Exists`, `NoSpace`, `Disk`.
    pub(crate) fn create(&self, ids: &[u64], done: Done) -> Result<(), Refusal> {
        let (mut missing, mut present) = (Vec::new(), Vec::new());
        for id in ids.iter().copied().map(ObjectId) {
            if !self.disk.exists(id).map_err(disk_refused)? {
                missing.push(id.0);
            } else if self.has_made(id, done)? {
                present.push(id);
            } else {
                let path = self.disk.path(id);
                return Err(Refusal::Exists(format!("object {id} exists already at {}", path.display())));
            }
        }
        if missing.len() >= TOGETHER {
            self.intents.begin_new(&missing).map_err(refused)?;
        }
        self.with_room(|| self.sidecars.create(&missing, &present).map_err(refused))?;
        self.with_room(|| self.disk.precreate(missing.iter().copied()).map_err(disk_refused))?;
        let mut made = self.made.lock();
        made.extend(missing.into_iter().map(|id| (ObjectId(id), done)));
        while made.len() > MADE {
            made.pop_first();
        }
        drop(made);
        // What was there may have been made by a mover that died before it was durable.
        self.with_room(|| self.disk.sync_entries(&present).map_err(disk_refused))
    }

    /// Whether an object that is there was made by this request. Of what an earlier mover made nobody knows by whom, until something is written
    /// to it: whoever had no answer asks again.
    fn has_made(&self, id: ObjectId, done: Done) -> Result<bool, Refusal> {
        let object = self.object(id)?;
        if object.done_by(done) >= Some(done.sequence) {
            return Ok(true);
        }
        match self.made.lock().get(&id) {
            Some(by) => {
                Ok((by.client, by.channel) == (done.client, done.channel) && by.sequence >= done.sequence)
            }
            None => object.is_as_made(),
        }
    }

    /// Removes objects, durably; one that is not there is gone already.
    ///
    /// # Errors
    /// `Disk`: some of them may be gone.
    pub(crate) fn remove(&self, ids: &[ObjectId]) -> Result<(), Refusal> {
        for id in ids.iter().copied() {
            let kept = self.open.lock().objects.remove(&id);
            self.made.lock().remove(&id);
            match self.disk.remove(id) {
                // Only now: who opens it from here on finds nothing.
                Ok(_) => kept.iter().for_each(|kept| kept.object.give_room_back()),
                Err(DiskError::Missing { .. }) => {}
                Err(e) => return Err(disk_refused(e)),
            }
            self.sidecars.remove(id).map_err(refused)?;
            self.intents.end(id).map_err(refused)?;
        }
        // Who asked forgets the objects: nobody would ever remove them again.
        self.with_room(|| self.disk.sync_entries(ids).map_err(disk_refused))
    }

    /// An object, open.
    pub(crate) fn object(&self, id: ObjectId) -> Result<Arc<Object>, Refusal> {
        self.with_room(|| self.open_object(id))
    }

    /// Does something again if there was no descriptor for it, with fewer objects open: any that nobody uses may be closed.
    pub(crate) fn with_room<T>(&self, what: impl Fn() -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut outcome = what();
        for attempt in 0..ATTEMPTS {
            if !matches!(outcome, Err(Refusal::Busy(_))) {
                break;
            }
            // Others of this process may take what this gives back, or give some back themselves.
            std::thread::sleep(PAUSE * attempt);
            self.make_room();
            self.make_room();
            outcome = what();
        }
        outcome
    }

    fn open_object(&self, id: ObjectId) -> Result<Arc<Object>, Refusal> {
        let mut open = self.open.lock();
        open.uses += 1;
        let used = open.uses;
        if let Some(kept) = open.objects.get_mut(&id) {
            kept.used = used;
            return Ok(kept.object.clone());
        }
        let object = Arc::new(Object::open(self, id)?);
        open.objects.insert(id, Kept { object: object.clone(), used });
        let many = open.objects.len() > most_open();
        drop(open);
        if many {
            self.make_room();
        }
        Ok(object)
    }

    /// Closes some of the objects that nobody uses, and makes others durable, so that they can be closed next.
    fn make_room(&self) {
        let most = most_open();
        let unsettled = self.open.lock().make_room((most / CLOSED_AT_ONCE).max(CLOSED_AT_ONCE));
        for idle in unsettled {
            if let Err(refusal) = idle.settle(&self.intents) {
                // It is noted as being written, and stays open if it is not known to be durable.
                tracing::error!(target = self.id.0, "making an object durable that nobody uses: {refusal}");
            }
        }
    }

    /// Makes everything durable and notes that nothing is being written: after this, opening the target needs no repair.
    ///
    /// # Errors
    /// The disk fails; what could not be made durable is repaired when the target is opened again.
    pub fn close(&self) -> Result<(), Refusal> {
        let open = std::mem::take(&mut self.open.lock().objects);
        let settled: Result<Vec<()>, Refusal> =
            open.into_values().map(|kept| kept.object.settle(&self.intents)).collect();
        self.intents.end_new().map_err(refused)?;
        self.intents.shorten().map_err(refused)?;
        settled.map(drop)
    }
}

impl Open {
    /// Closes so many of the objects that were used least lately and that nobody uses now. Such as have unfinished writes are given back instead:
    /// once they are settled, they can be closed next time.
    fn make_room(&mut self, count: usize) -> Vec<Arc<Object>> {
        let mut idle: Vec<(u64, ObjectId)> = self
            .objects
            .iter()
            .filter(|(_, kept)| Arc::strong_count(&kept.object) == 1 && !kept.object.is_lost())
            .map(|(id, kept)| (kept.used, *id))
            .collect();
        idle.sort_unstable();
        idle.truncate(count);
        let mut unsettled = Vec::new();
        for (_, id) in idle {
            match self.objects.get(&id) {
                Some(kept) if kept.object.is_dirty() => unsettled.push(kept.object.clone()),
                _ => drop(self.objects.remove(&id)),
            }
        }
        unsettled
    }
}

/// Whether a target belongs to a namespace. One that is full cannot say yet whose it is, and is served: only that way there will be room.
fn belong(site: &Site, dir: &Path, to: &str) -> Result<(), TargetError> {
    let dir = || dir.to_path_buf();
    match site.belong(to) {
        Ok(()) => Ok(()),
        Err(Foreign::Of(of)) => Err(TargetError::Foreign { dir: dir(), of, asked: to.to_owned() }),
        Err(Foreign::Unwritten(e)) if matches!(e.source, Errno::NOSPC | Errno::DQUOT) => {
            tracing::warn!("there is no room yet for what says whose a target is: {e}");
            Ok(())
        }
        Err(Foreign::Unwritten(e)) => Err(TargetError::Beside { dir: dir(), reason: e.to_string() }),
    }
}

/// How many objects of a target are kept open: of the descriptors that this process may have, all targets together take half; an object has two.
fn most_open() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let targets = TARGETS.load(Ordering::Relaxed).max(1);
    let share = limit.map_or(OPEN, |limit| usize::try_from(limit / 4).unwrap_or(OPEN) / targets);
    share.clamp(OPEN_AT_LEAST, OPEN)
}

impl Drop for Target {
    fn drop(&mut self) {
        TARGETS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({})", self.id)
    }
}

pub(crate) fn disk_refused(error: DiskError) -> Refusal {
    match error {
        DiskError::Missing { .. } => Refusal::Missing(error.to_string()),
        DiskError::Exists { .. } => Refusal::Exists(error.to_string()),
        DiskError::NoSpace { .. } => Refusal::NoSpace(error.to_string()),
        DiskError::Io { doing, path, source } => {
            failed(doing, &path, Errno::from_io_error(&source).unwrap_or(Errno::IO))
        }
        _ => Refusal::Disk(error.to_string()),
    }
}

pub(crate) fn refused(error: FileError) -> Refusal {
    failed(error.doing, &error.path, error.source)
}

/// What an error of the system means for who asked.
pub(crate) fn failed(doing: &str, path: &Path, errno: Errno) -> Refusal {
    let path = path.display();
    match errno {
        Errno::NOSPC | Errno::DQUOT => Refusal::NoSpace(format!(
            "no space left while {doing} {path}: purge or migrate files, or add targets"
        )),
        Errno::MFILE | Errno::NFILE => Refusal::Busy(format!(
            "{doing} {path}: {errno}; more files are open than the limit allows: raise LimitNOFILE of the service"
        )),
        Errno::NOMEM => Refusal::Busy(format!("{doing} {path}: {errno}; this machine has too little memory")),
        _ => Refusal::Disk(format!("{doing} {path}: {errno}; look at the kernel log and at the disk")),
    }
}
