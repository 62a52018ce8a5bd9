//! The node's own connections to the movers of the cluster, over which it moves the bytes of files that lie on targets.
//!
//! One channel for each target serves all files. The node is trusted: its capability is for all objects of the target, and is renewed long
//! before it ends.

use super::claims::Claims;
use super::folding::Unfolded;
use super::grants::Given;
use super::hurry::Pressed;
use super::keys::{self, MasterKey};
use super::lent::Lent;
use super::mend::{Mending, Unmade};
use super::pool::{Job, Pool};
use super::requested::Pass;
use super::room::Rounds;
use super::short::Short;
use super::stock::Stock;
use super::whose::Strangers;
use crate::Node;
use crate::error::{failure, refused};
use crate::files::{Behind, Closings};
use catalog::Far;
use data::{Capability, Channel, Link, Rights, TargetSecret, Terms};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use stripe::{Column, Columns};
use types::{ErrorClass, Ino, ObjectId, Request, RequestId, TargetId, Time};
use wire::Failure;

/// How long a request waits for a mover that does not answer ...
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// ... and where others can stand in for it: longer than a mover takes to start anew.
const QUICK_PATIENCE: Duration = Duration::from_secs(8);
/// Bytes on their way to one target at once.
const WINDOW: usize = 16 << 20;
/// A capability lives so long ...
const LIFE: Duration = Duration::from_secs(12 * 3600);
/// ... and is renewed when it is so old.
const RENEW_AFTER: Duration = Duration::from_secs(3 * 3600);

type Addresses = Arc<RwLock<BTreeMap<TargetId, Vec<String>>>>;

/// What a target is asked for; each over a channel of its own, so that what waits holds up nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// What only this target can do.
    Needed,
    /// Bytes of files for which others can stand in for it.
    Spared,
    /// To make objects and to remove them.
    Objects,
}

/// What the node has open of the cluster's targets.
pub(crate) struct Movers {
    /// This run of the node: channels of an earlier one are never used again.
    client: u64,
    channels: AtomicU64,
    addresses: Addresses,
    /// Turn of this node: targets that have heard of it take nothing of those who served before.
    turn: AtomicU64,
    /// Targets that have not heard of it by what they report, since when.
    unheard: Mutex<BTreeMap<TargetId, Time>>,
    ways: Mutex<BTreeMap<(TargetId, Purpose), Way>>,
    /// Targets that were down when that was looked at last.
    down: RwLock<Arc<BTreeSet<TargetId>>>,
    /// Files of which a column is being rebuilt or moved.
    pub(super) claims: Claims,
    /// Who may write past the node.
    pub(super) given: Given,
    /// Who may read past the node what is not written.
    pub(super) lent: Lent,
    /// Coded files of which something may be in no row.
    pub(super) unfolded: Unfolded,
    /// Of which something is in memory only.
    pub(crate) behind: Behind,
    /// Files that are closed soon.
    pub(crate) closings: Closings,
    /// Rebuilds that go on.
    pub(super) mending: Mending,
    /// Columns with something that cannot be made.
    pub(super) unmade: Unmade,
    /// Where requests stand.
    underway: Mutex<HashMap<RequestId, Underway>>,
    reserved: Mutex<Reserved>,
    /// Objects that were made for files to come.
    pub(super) stock: Stock,
    jobs: Pool,
    /// For what nobody waits for.
    jobs_behind: Pool,
    /// Held by who lets a target get files again, or takes it out of the list.
    pub(super) listing: Mutex<()>,
    /// Room that was made on targets.
    pub(super) rounds: Rounds,
    /// Targets that stay nearly full all the same.
    pub(super) pressed: Pressed,
    /// Room that recalls have there, or lack.
    pub(crate) short: Short,
    /// Whose these are, for work that outlives a call.
    node: OnceLock<Weak<Node>>,
    /// Targets of other namespaces.
    pub(super) strangers: Strangers,
    /// Objects that were there when they were to be made: they are not this node's to remove.
    others: Mutex<BTreeSet<(TargetId, ObjectId)>>,
    /// Something may be removed, or settled.
    pub(super) wake: (Mutex<bool>, Condvar),
}

struct Way {
    column: Column,
    issued: Time,
    turn: u64,
}

/// Where a request stands.
#[derive(Default)]
struct Underway {
    waits: String,
    /// Copied of each file that is being copied (bytes).
    copied: BTreeMap<Ino, u64>,
    /// What came of going over it the last time.
    last: Pass,
}

/// Unowned objects that are about to be given to a file.
#[derive(Clone)]
pub(super) struct Reserved {
    pub(super) objects: HashSet<ObjectId>,
    /// Those above may be reserved and not be in `objects` yet.
    pub(super) known_to: ObjectId,
}

impl Movers {
    pub(crate) fn new() -> Self {
        Self {
            client: uuid::Uuid::new_v4().as_u64_pair().0,
            channels: AtomicU64::new(1),
            addresses: Addresses::default(),
            turn: AtomicU64::new(0),
            unheard: Mutex::default(),
            ways: Mutex::default(),
            down: RwLock::default(),
            claims: Claims::default(),
            given: Given::default(),
            lent: Lent::default(),
            unfolded: Unfolded::default(),
            behind: Behind::default(),
            closings: Closings::default(),
            mending: Mending::default(),
            unmade: Unmade::default(),
            underway: Mutex::default(),
            // What is unowned when the node starts is left over.
            reserved: Mutex::new(Reserved { objects: HashSet::new(), known_to: ObjectId(0) }),
            stock: Stock::default(),
            jobs: Pool::default(),
            jobs_behind: Pool::default(),
            listing: Mutex::default(),
            rounds: Rounds::default(),
            pressed: Pressed::default(),
            short: Short::default(),
            node: OnceLock::new(),
            strangers: Strangers::default(),
            others: Mutex::default(),
            wake: Default::default(),
        }
    }

    /// The turn of this node.
    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// It is on record that this node's turn is this one.
    pub(crate) fn begin_turn(&self, turn: u64) {
        self.turn.fetch_max(turn, Ordering::AcqRel);
    }

    /// A target reports that it has heard of this turn, or of an earlier one.
    pub(super) fn note_heard(&self, target: TargetId, turn: u64, now: Time) {
        let mut unheard = self.unheard.lock();
        if turn < self.turn() {
            unheard.entry(target).or_insert(now);
        } else {
            unheard.remove(&target);
        }
    }

    /// Since when a target has been reporting that it has not heard of this node's turn, if so.
    pub(super) fn unheard_since(&self, target: TargetId) -> Option<Time> {
        self.unheard.lock().get(&target).copied()
    }

    /// The turn, and the epoch of capabilities that are given out at `now`.
    pub(super) fn epoch(&self, now: Time) -> (u64, u32) {
        let turn = self.turn();
        (turn, keys::epoch(now, turn))
    }

    /// One of these objects was there, so a target has made none of them.
    pub(super) fn note_others(&self, target: TargetId, objects: &[u64]) {
        self.others.lock().extend(objects.iter().map(|object| (target, ObjectId(*object))));
    }

    /// Whether an object on a target was there before this node was to make it.
    pub(super) fn is_others(&self, target: TargetId, object: ObjectId) -> bool {
        self.others.lock().contains(&(target, object))
    }

    /// Where a target is reached now.
    pub(super) fn note_address(&self, target: TargetId, data: &[String]) {
        if self.addresses.read().get(&target).is_none_or(|known| known != data) {
            self.addresses.write().insert(target, data.to_vec());
        }
    }

    /// Whether there are targets at all.
    pub(crate) fn is_used(&self) -> bool {
        !self.addresses.read().is_empty()
    }

    /// What a request waits for (empty: nothing), and how much has been copied of the files that are being copied for it (bytes).
    pub(crate) fn underway(&self, request: RequestId) -> (String, u64) {
        let underway = self.underway.lock();
        underway.get(&request).map(|one| (one.waits.clone(), one.copied.values().sum())).unwrap_or_default()
    }

    /// Takes note of what it waits for.
    pub(super) fn note_wait(&self, request: RequestId, why: String) {
        let mut underway = self.underway.lock();
        let last = std::mem::replace(&mut underway.entry(request).or_default().waits, why.clone());
        if !why.is_empty() && last != why {
            tracing::warn!("request {request}: {why}");
        }
    }

    /// So much of a file has been copied for it (bytes).
    pub(super) fn note_copied(&self, request: RequestId, ino: Ino, bytes: u64) {
        let mut underway = self.underway.lock();
        let copied = &mut underway.entry(request).or_default().copied;
        match bytes {
            0 => drop(copied.remove(&ino)),
            bytes => drop(copied.insert(ino, bytes)),
        }
    }

    /// It was gone over.
    pub(super) fn note_pass(&self, request: RequestId, last: Pass) {
        self.underway.lock().entry(request).or_default().last = last;
    }

    /// What came of that the last time.
    pub(super) fn last_pass(&self, request: RequestId) -> Pass {
        self.underway.lock().get(&request).map(|one| one.last).unwrap_or_default()
    }

    /// These requests are open, and no others.
    pub(super) fn forget_underway(&self, open: &[Request]) {
        self.underway.lock().retain(|id, _| open.iter().any(|request| request.id == *id));
    }

    /// Targets that were down a moment ago.
    pub(crate) fn down(&self) -> Arc<BTreeSet<TargetId>> {
        self.down.read().clone()
    }

    /// Takes note of which are down.
    pub(crate) fn note_down(&self, down: &BTreeSet<TargetId>) {
        if **self.down.read() != *down {
            *self.down.write() = Arc::new(down.clone());
        }
    }

    /// Something was written to a coded file that may be in its log.
    pub(crate) fn note_unfolded(&self, ino: Ino) {
        self.unfolded.note(ino);
    }

    /// Gives work to the threads that may wait for movers.
    pub(crate) fn run(&self, job: Job) {
        self.jobs.run(job);
    }

    /// The same for what is written behind everybody's back: however long that waits for movers, it keeps nobody else waiting.
    pub(crate) fn run_behind(&self, job: Job) {
        self.jobs_behind.run(job);
    }

    /// Whose these are.
    pub(crate) fn belong_to(&self, node: &Arc<Node>) {
        // A node is started once.
        let _ = self.node.set(Arc::downgrade(node));
    }

    /// The node, for work that outlives a call; none while it is taken apart, or in tests that start no services.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.node.get()?.upgrade()
    }

    /// The node stops: nobody waits for a mover any more, but for files that are still open.
    pub(crate) fn close(&self) {
        let ways = std::mem::take(&mut *self.ways.lock());
        drop(ways);
        self.wake();
    }

    /// Wakes whoever removes and settles.
    pub(crate) fn wake(&self) {
        *self.wake.0.lock() = true;
        self.wake.1.notify_all();
    }

    /// Reserves objects in a way that no sweep takes them; `settle` ends that.
    pub(super) fn reserve(
        &self,
        take: impl FnOnce() -> catalog::Result<Far>,
    ) -> catalog::Result<(ObjectId, Far)> {
        let mut reserved = self.reserved.lock();
        let far = take()?;
        let object = far.layout.components[0].base;
        reserved.objects.insert(object);
        reserved.known_to = reserved.known_to.max(object);
        Ok((object, far))
    }

    /// The object belongs to a file now, or is to be removed.
    pub(crate) fn settle(&self, object: ObjectId) {
        self.reserved.lock().objects.remove(&object);
    }

    /// Whether an object is about to be given to a file.
    pub(super) fn is_reserved(&self, object: ObjectId) -> bool {
        self.reserved.lock().objects.contains(&object)
    }

    /// What a sweep that begins now leaves alone.
    pub(super) fn reserved(&self) -> Reserved {
        self.reserved.lock().clone()
    }

    /// Objects up to this one were reserved by an earlier run.
    pub(crate) fn begin_after(&self, object: ObjectId) {
        self.reserved.lock().known_to = object;
    }
}

impl Node {
    /// The ways to all columns of a layout, without those out of date; and where others can stand in for them without those on targets that are
    /// `down` or cannot be reached, which are named: nobody may write before it is on record that these are out of date.
    pub(crate) fn columns(
        &self,
        far: &Far,
        down: &BTreeSet<TargetId>,
    ) -> Result<(Columns, Vec<(u16, u16)>), Failure> {
        let mut away = if far.can_spare(down) { down.clone() } else { BTreeSet::new() };
        let quick = far.rule().is_redundant();
        let mut columns = Columns::new();
        for (n, component) in (0..).zip(&far.layout.components) {
            let mut ways = Vec::new();
            for (c, target) in (0..).zip(&component.targets) {
                let left_out = far.stale.contains(&(n, c)) || away.contains(target);
                ways.push(match left_out {
                    true => None,
                    false => match self.way(*target, quick) {
                        Ok(way) => Some(way),
                        Err(e) => {
                            away.insert(*target);
                            if !far.can_spare(&away) {
                                return Err(e);
                            }
                            None
                        }
                    },
                });
            }
            columns.push(ways);
        }
        let absent = far.on(&away).into_iter().filter(|place| !far.stale.contains(place));
        Ok((columns, absent.collect()))
    }

    /// The way to a target, with a capability for everything there; with little patience where others can stand in for it.
    pub(crate) fn way(&self, target: TargetId, quick: bool) -> Result<Column, Failure> {
        self.way_for(target, if quick { Purpose::Spared } else { Purpose::Needed })
    }

    pub(super) fn way_for(&self, target: TargetId, purpose: Purpose) -> Result<Column, Failure> {
        let now = crate::now();
        let (turn, epoch) = self.movers.epoch(now);
        let mut ways = self.movers.ways.lock();
        let place = (target, purpose);
        if let Some(way) = ways.get(&place)
            && now.since(way.issued) < RENEW_AFTER
            && now >= way.issued
            && way.turn == turn
        {
            return Ok(way.column.clone());
        }
        let told = |e: data::DataError| failure(e.class(), format!("target {target}: {e}"));
        let (capability, key) = self.own_capability(target, epoch, now)?;
        let column = match ways.get(&place) {
            Some(way) => {
                way.column.channel.renew(&way.column.slot, &capability, key);
                way.column.clone()
            }
            None => {
                let patience = if purpose == Purpose::Needed { PATIENCE } else { QUICK_PATIENCE };
                let channel = Arc::new(self.open_channel(target, capability.cluster, patience)?);
                let slot = channel.attach(&capability, key).map_err(told)?;
                Column { channel, slot, target }
            }
        };
        ways.insert(place, Way { column: column.clone(), issued: now, turn });
        Ok(column)
    }

    /// Renews what would end before long, also for files that stay open.
    pub(super) fn renew_ways(&self) {
        let ways: Vec<(TargetId, Purpose)> = self.movers.ways.lock().keys().copied().collect();
        for (target, purpose) in ways {
            if let Err(e) = self.way_for(target, purpose) {
                tracing::warn!("the right to use target {target} is not renewed: {e}; tried again");
            }
        }
    }

    fn own_capability(
        &self,
        target: TargetId,
        epoch: u32,
        now: Time,
    ) -> Result<(Capability, data::CapabilityKey), Failure> {
        let own = self.membership()?.ok_or_else(|| {
            failure(
                ErrorClass::Invalid,
                "this node belongs to no cluster, so it has no targets; see `thermo cluster`",
            )
        })?;
        let capability = Capability {
            epoch,
            cluster: *own.credentials.identity.cluster.as_bytes(),
            target,
            file: Ino(0),
            objects: 0..u64::MAX,
            generation: u64::MAX,
            rights: Rights::READ.and(Rights::WRITE).and(Rights::MANAGE),
            range: 0..u64::MAX,
            user: 0,
            client: self.movers.client,
            issued: now,
            expires: now.plus(LIFE),
        };
        let secret = MasterKey::open(&self.config.state_dir)?.secret(target, epoch);
        let key = TargetSecret::new(&secret).key(&capability.encode());
        Ok((capability, key))
    }

    fn open_channel(
        &self,
        target: TargetId,
        cluster: [u8; 16],
        patience: Duration,
    ) -> Result<Channel, Failure> {
        let all = self.catalog.targets().map_err(|e| refused("the targets", &e))?;
        let found = all.into_iter().find(|known| known.id == target).ok_or_else(|| {
            failure(ErrorClass::NotFound, format!("there is no target {target}; see `thermo target ls`"))
        })?;
        self.movers.note_address(target, &found.data);
        let addresses = self.movers.addresses.clone();
        let dial =
            move || Link::dial(addresses.read().get(&target).map_or(&[][..], Vec::as_slice), |socket| socket);
        let terms = Terms {
            mover: format!("of target {target} ({})", found.data.join(" ")),
            client: self.movers.client,
            channel: self.movers.channels.fetch_add(1, Ordering::Relaxed),
            cluster,
            patience,
            window_bytes: WINDOW,
        };
        let near = stripe::near(Some(&self.config.state_dir), target, |socket| socket);
        Channel::open_near(near, Box::new(dial), terms)
            .map_err(|e| failure(ErrorClass::Retry, format!("target {target}: {e}; try again later")))
    }
}
