//! Space of the disk tier: who may write how, and releasing objects that are safely on tape.

use crate::Node;
use crate::clock::{self, Moment};
use crate::config::DiskConfig;
use crate::error::fs_error;
use parking_lot::{Condvar, Mutex};
use policy::{DiskMode, DiskUse};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use types::{FsError, Ino, ObjectId, Version};

use policy::Pressure;

/// What is known about the disk tier (bytes).
#[derive(Clone, Copy, Debug, Default)]
pub struct SpaceView {
    /// What it may hold.
    pub capacity: u64,
    /// What it holds, growth of open files included.
    pub used: u64,
    /// What could be released at once.
    pub purgeable: u64,
    /// Free on the file system below.
    pub fs_free: u64,
    /// Purge starts here ...
    pub high: u64,
    /// ... and ends here.
    pub low: u64,
    /// Level of need.
    pub pressure: Pressure,
}

/// What the configuration says of it.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// What it may hold (bytes); None: 90 % of the file system.
    capacity: Option<u64>,
    low_percent: u8,
    high_percent: u8,
    /// How long anybody waits for room.
    wait: Duration,
}

impl Rules {
    fn of(disk: &DiskConfig) -> Self {
        Self {
            capacity: disk.capacity.map(|c| c.0),
            low_percent: disk.low_watermark,
            high_percent: disk.high_watermark,
            wait: Duration::from_secs(u64::from(disk.space_wait_s)),
        }
    }
}

/// Accounts of the disk tier.
pub struct Space {
    rules: Mutex<Rules>,
    view: Mutex<SpaceView>,
    mode: Mutex<DiskMode>,
    changed: Condvar,
    /// Bytes promised since the last look.
    promised: AtomicU64,
    /// Bytes that somebody waits for right now: the policy makes room for them too.
    wanted: AtomicU64,
    /// Nothing can be released and nothing is on its way to tape.
    stuck: AtomicBool,
}

impl Space {
    /// Accounts for a tier as it is configured.
    pub fn new(disk: &DiskConfig) -> Self {
        Self {
            rules: Mutex::new(Rules::of(disk)),
            view: Mutex::default(),
            mode: Mutex::default(),
            changed: Condvar::new(),
            promised: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
        }
    }

    /// From the next look on the configuration is this.
    pub fn configure(&self, disk: &DiskConfig) {
        *self.rules.lock() = Rules::of(disk);
    }

    /// The last look.
    pub fn view(&self) -> SpaceView {
        *self.view.lock()
    }

    /// Writers may have the object itself: the tier has room for what they might write unseen.
    pub fn allows_direct_writes(&self) -> bool {
        self.view.lock().pressure == Pressure::None
    }

    /// Promises `bytes` to a writer or a recall; waits for a purge if they are not there.
    pub fn reserve(&self, node: &Node, bytes: u64) -> Result<(), FsError> {
        self.reserve_within(node, bytes, self.patience())
    }

    /// How long anybody waits for room.
    pub fn patience(&self) -> Duration {
        self.rules.lock().wait
    }

    /// The same as [`Space::reserve`], waiting no longer than `limit`.
    pub fn reserve_within(&self, node: &Node, bytes: u64, limit: Duration) -> Result<(), FsError> {
        if self.promise(&self.view(), bytes) {
            return Ok(());
        }
        self.wanted.fetch_add(bytes, Ordering::Relaxed);
        let waited = self.wait_for(node, bytes, limit.min(self.patience()));
        self.wanted.fetch_sub(bytes, Ordering::Relaxed);
        waited
    }

    fn wait_for(&self, node: &Node, bytes: u64, limit: Duration) -> Result<(), FsError> {
        let deadline = Moment::now() + limit;
        let mut view = self.view.lock();
        // Once: every look wakes all who wait, and each of them must not ask for the next one at once.
        node.governor.wake();
        loop {
            if bytes > view.capacity || node.archive.halted() {
                return Err(FsError::NoSpace);
            }
            let timed_out = clock::wait_until(&self.changed, &mut view, deadline);
            if self.promise(&view, bytes) {
                return Ok(());
            }
            if timed_out || self.stuck.load(Ordering::Relaxed) {
                return Err(FsError::NoSpace);
            }
        }
    }

    fn promise(&self, view: &SpaceView, bytes: u64) -> bool {
        let room = |promised| {
            view.capacity.saturating_sub(view.used + promised).min(view.fs_free.saturating_sub(promised))
        };
        let more = |promised| (bytes <= room(promised)).then_some(promised + bytes);
        self.promised.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl Node {
    /// Looks at the tier anew and returns its use for the policy.
    pub(crate) fn look_at_space(&self) -> Result<DiskUse, FsError> {
        let totals = self.catalog.totals().map_err(|e| fs_error("look at space", &e))?;
        let fs = self.disk.fs_space().map_err(|e| crate::error::disk_error("look at space", &e))?;
        let mut growing = 0;
        for entry in self.open.all() {
            let state = entry.state.lock();
            if state.writers == 0 {
                continue;
            }
            // What lies on targets takes nothing of the tier.
            let fd = state.backing.as_ref().and_then(|b| b.fd());
            let stamp = fd.and_then(|fd| self.disk.stamp(fd).ok());
            growing += stamp.map_or(0, |s| s.allocated.saturating_sub(state.recorded_allocated));
        }
        let wanted = self.space.wanted.load(Ordering::Relaxed);
        // A recall that has begun was promised all its bytes.
        growing += self.staging.all().iter().filter(|s| s.is_local()).map(|s| s.data_bytes()).sum::<u64>();
        let space = &self.space;
        let rules = *space.rules.lock();
        let capacity = rules.capacity.unwrap_or(fs.total / 10 * 9).min(totals.disk_bytes + growing + fs.free);
        let mut usage = DiskUse::with_percent(capacity, rules.low_percent, rules.high_percent);
        usage.used = totals.disk_bytes;
        usage.growing = growing + wanted;
        usage.last = *space.mode.lock();
        let mut view = space.view.lock();
        *view = SpaceView {
            capacity,
            used: totals.disk_bytes + growing,
            purgeable: totals.purgeable,
            fs_free: fs.free,
            high: usage.high,
            low: usage.low,
            pressure: view.pressure,
        };
        space.promised.store(0, Ordering::Relaxed);
        Ok(usage)
    }

    /// Whether files can leave the tier before long without anybody's help: copies are being written or can be, or recalls have
    /// begun, which have their room and end, and then can go again.
    pub(crate) fn room_comes(&self) -> bool {
        self.writes.makes_progress() || self.staging.all().iter().any(|s| s.is_local())
    }

    /// Wakes everybody who waits for space: the node stops.
    pub(crate) fn end_waits(&self) {
        let _view = self.space.view.lock();
        self.space.changed.notify_all();
    }

    /// Takes note of the policy's view of the tier.
    pub(crate) fn set_disk_mode(&self, mode: DiskMode, stuck: bool) {
        *self.space.mode.lock() = mode;
        self.space.view.lock().pressure = mode.pressure;
        self.space.stuck.store(stuck, Ordering::Relaxed);
        self.space.changed.notify_all();
    }

    /// Releases one file's disk space if that is still allowed; otherwise says why not.
    pub(crate) fn purge_file(&self, ino: Ino, version: Version, object: ObjectId) -> Result<(), String> {
        const OPEN: &str = "somebody has it open";
        if self.is_open(ino) {
            return Err(OPEN.to_owned());
        }
        let far = self.catalog.far(object).map_err(|e| e.to_string())?.is_some();
        // Who was lent it by an earlier run has it open no more, and what is written afterwards lies in other objects.
        let unlent = far.then(|| self.end_lending(object)).transpose();
        let _unlent = unlent.map_err(|e| e.to_string())?;
        self.open.with(ino, |_, state| {
            if state.handles > 0 {
                return Err(OPEN.to_owned());
            }
            if far {
                return self.release_far(ino, version, object);
            }
            let fd = match self.disk.open_object(object, false) {
                Ok(fd) => fd,
                Err(disk::DiskError::Missing { .. }) => return self.release_missing(ino, version, object),
                Err(e) => return Err(e.to_string()),
            };
            // Closed files can still be mapped. Once there is no writer the stamp tells of every change.
            if self.disk.has_writer(&fd).map_err(|e| e.to_string())? {
                return Err("a program has it mapped for writing".to_owned());
            }
            let stamp = self.disk.stamp(&fd).map_err(|e| e.to_string())?;
            let inode = self.catalog.inode(ino).map_err(|e| e.to_string())?;
            let recorded = inode.file.as_ref().filter(|f| f.object == Some(object)).and_then(|f| f.stamp);
            if recorded.is_some_and(|r| Self::changed(Some(&r), &stamp)) {
                let cx = types::Cx::admin(crate::now());
                self.observe(&cx, ino, object, stamp, true, kv::Durability::Relaxed)
                    .map_err(|e| e.to_string())?;
                return Err("its content changed; it is copied to tape anew first".to_owned());
            }
            self.catalog.release_object(ino, version, object, &stamp).map_err(|e| e.to_string())
        })?;
        self.attributes_changed(ino);
        Ok(())
    }

    /// Gives up what a file has on targets, if every copy that its class requires counts; they remove it afterwards. Nobody has it open, and
    /// nobody but this node writes there, so that it is as it was when it was closed.
    fn release_far(&self, ino: Ino, version: Version, object: ObjectId) -> Result<(), String> {
        if self.catalog.is_writing(ino).map_err(|e| e.to_string())? {
            return Err("it was being written, and is closed when its targets answer".to_owned());
        }
        let inode = self.catalog.inode(ino).map_err(|e| e.to_string())?;
        let recorded = inode.file.filter(|f| f.object == Some(object)).and_then(|f| f.stamp);
        let stamp = recorded.ok_or("it was not closed yet, or has other content by now")?;
        self.catalog.release_object(ino, version, object, &stamp).map_err(|e| e.to_string())?;
        self.movers.wake();
        Ok(())
    }

    /// The object is gone from the disk; if the copies on tape are all there, the file is offline from here on.
    fn release_missing(&self, ino: Ino, version: Version, object: ObjectId) -> Result<(), String> {
        let inode = self.catalog.inode(ino).map_err(|e| e.to_string())?;
        let recorded = inode.file.filter(|f| f.object == Some(object)).and_then(|f| f.stamp);
        let stamp = recorded.ok_or("its object is missing; run `thermo check`")?;
        self.catalog.release_object(ino, version, object, &stamp).map_err(|e| e.to_string())
    }

    /// Whether somebody has the file open.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.open.get(ino).is_some_and(|e| e.state.lock().handles > 0)
    }

    /// Whether somebody may be writing the file.
    pub(crate) fn is_being_written(&self, ino: Ino) -> bool {
        self.open.get(ino).is_some_and(|e| e.state.lock().writers > 0)
    }
}
