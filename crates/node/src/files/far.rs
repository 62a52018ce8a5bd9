//! An open file whose bytes lie on disk targets of the cluster. The node is the only one that writes there, so it knows the file's length and
//! times; what it knew is asked of the targets again after a crash ([`super::learned`]).

use super::behind::Pending;
use super::copied::Copied;
use super::open::{Backing, Content};
use super::spares::Spares;
use crate::Node;
use crate::clock::Moment;
use crate::error::fs_error;
use crate::movers::Decider;
use catalog::Far;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use stripe::{Machines, StripeError, Striped};
use types::api::FsResult;
use types::*;

pub(super) const LOST: &str =
    "something of it that was written last may be lost: it is looked at when it is synced or closed";

/// Allocation is told in blocks of this size (bytes).
const BLOCK: u64 = 512;

/// The file.
#[derive(Debug)]
pub struct FarFile {
    pub(super) ino: Ino,
    /// Taken shared by whoever reads or syncs, so that nothing is removed below him.
    pub(super) place: RwLock<Place>,
    /// As the catalogue is to see it.
    stamp: Mutex<ObjectStamp>,
    /// The greatest length that it has had while it was open (bytes): what lies behind it was not changed.
    reach: AtomicU64,
    /// Passed shared by writers; held alone by who needs the length not to change.
    pub(super) length: RwLock<()>,
    /// Changes so far, and how many of them are durable.
    pub(super) changes: AtomicU64,
    /// Those that are not counted yet.
    pub(super) under_way: AtomicUsize,
    pub(super) synced: AtomicU64,
    pub(super) machines: Machines,
    /// How often the length was set; 0 is what nobody knows.
    pub(super) cuts: AtomicU64,
    /// What has changed since its bytes began to be copied to other objects.
    pub(super) copied: Copied,
    /// What is in memory only.
    pub(super) pending: Pending,
    /// What of that hosts keep.
    pub(super) spares: Spares,
    /// A change failed: some of it may be there, so the targets have to be asked before the content counts.
    pub(super) unsure: AtomicBool,
    /// Machines with its logs have lost what they were sent: what is written behind that would not be found.
    torn: AtomicBool,
    /// How often it was found that something is lost: whoever syncs meanwhile is told too.
    pub(super) losses: AtomicU64,
    /// Until when somebody may have a right to write all copies past the node, or be telling what became of his writes.
    pub(super) written_past: Mutex<Option<Moment>>,
    /// Somebody may have one, so what the node writes ends it first. Taken behind `length`.
    pub(super) handed_over: Mutex<bool>,
}

/// The objects of an open file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(super) striped: Arc<Striped>,
    /// Decides which columns count, where there are more than needed.
    pub(super) decider: Option<Arc<Decider>>,
}

/// Columns with their targets and the starts of the machines there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sources(BTreeMap<(usize, u16), (TargetId, Option<u64>)>);

impl Sources {
    fn of(striped: &Striped) -> Self {
        let one = |(place, way): ((usize, u16), stripe::Column)| (place, (way.target, way.channel.boot()));
        Self(striped.ways().into_iter().map(one).collect())
    }
}

impl Place {
    /// Their columns.
    pub(crate) fn striped(&self) -> &Arc<Striped> {
        &self.striped
    }

    pub(super) fn node(&self) -> Option<Arc<Node>> {
        self.decider.as_ref().and_then(|decider| decider.node())
    }
}

impl FarFile {
    /// A file with objects that nobody else writes.
    pub(super) fn new(ino: Ino, place: Place, stamp: ObjectStamp) -> Self {
        Self {
            ino,
            place: RwLock::new(place),
            stamp: Mutex::new(stamp),
            reach: AtomicU64::new(stamp.size),
            length: RwLock::default(),
            changes: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
            synced: AtomicU64::new(0),
            machines: Machines::default(),
            // What was told of it while it was open before, or to an earlier run of the node, is another number.
            cuts: AtomicU64::new(crate::now().as_nanos().unsigned_abs().max(1)),
            copied: Copied::default(),
            pending: Pending::default(),
            spares: Spares::default(),
            unsure: AtomicBool::new(false),
            torn: AtomicBool::new(false),
            losses: AtomicU64::new(0),
            written_past: Mutex::default(),
            handed_over: Mutex::new(false),
        }
    }

    /// Its columns. They are those of the file as long as whoever asks has claimed it.
    pub fn striped(&self) -> Arc<Striped> {
        self.place().striped
    }

    /// May be asked by who has it already.
    pub(super) fn place(&self) -> Place {
        self.place.read_recursive().clone()
    }

    /// Notes which machines have what was written: before one of its columns is moved, and after.
    pub fn note_machines(&self) {
        self.machines.note(&self.striped());
    }

    /// Which starts of their machines have the columns that count, from before they are read to make others of them.
    pub(crate) fn sources(&self) -> Sources {
        // Asked, so that they are known. If one does not answer, whoever reads it says so.
        let _ = self.length();
        self.note_machines();
        Sources::of(&self.striped())
    }

    /// Nothing that was read since [`FarFile::sources`] was old because its machine had lost what was written last: then others may have that, or
    /// nobody, and an fsync has to say so.
    ///
    /// # Errors
    /// It may have been.
    pub(crate) fn sources_hold(&self, sources: &Sources) -> Result<(), String> {
        let striped = self.striped();
        if !self.machines.note(&striped).is_empty() && !self.is_quiet() {
            return Err(LOST.to_owned());
        }
        let now = Sources::of(&striped).0;
        match sources.0.iter().find(|(place, start)| now.get(place) != Some(start)) {
            None => Ok(()),
            Some((_, (target, _))) => Err(format!(
                "target {target} was started anew or left out while it was read: it is done again"
            )),
        }
    }

    /// The inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Reads without targets that went down since it was opened, if that is possible: each read would wait for them.
    fn avoid_down(&self) {
        let place = self.place();
        let Some(node) = place.node() else { return };
        let down = node.movers.down();
        let mut lost = place.striped.ways();
        lost.retain(|(_, way)| down.contains(&way.target) || way.channel.is_away());
        // Whoever writes decides by himself.
        let Some(_nobody_writes) = self.length.try_write().filter(|_| !lost.is_empty()) else { return };
        if !Arc::ptr_eq(&place.striped, &self.striped()) {
            return;
        }
        for ((component, column), way) in lost {
            let left = if self.is_settled() {
                place.striped.put_aside(component, column)
            } else {
                place.striped.leave_out(component, column, "it is down").is_ok()
            };
            if left {
                tracing::info!("inode {} is read without target {}, which is down", self.ino, way.target);
            }
        }
    }

    /// How it is now.
    pub fn stamp(&self) -> ObjectStamp {
        *self.stamp.lock()
    }

    /// What the targets say of its length (bytes).
    pub fn length(&self) -> stripe::Result<u64> {
        self.place.read().striped.length()
    }

    /// How often the length was set, and the length (bytes); 0 while somebody sets it.
    pub(crate) fn length_now(&self) -> (u64, u64) {
        match self.length.try_read() {
            Some(_nobody) => (self.cuts(), self.stamp().size),
            None => (self.cuts(), 0),
        }
    }

    /// How often it was changed since it was opened.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// All that was changed is durable, and nothing else is there.
    pub fn is_settled(&self) -> bool {
        !self.unsure.load(Ordering::Acquire)
            && self.synced.load(Ordering::Acquire) >= self.changes.load(Ordering::Acquire)
    }

    /// The same, and nobody is changing it.
    fn is_quiet(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0 && self.is_settled()
    }

    /// At most `len` bytes at `offset`; fewer at the end only.
    pub fn read(&self, offset: u64, len: u32) -> FsResult<Vec<u8>> {
        let there = self.stamp().size.saturating_sub(offset).min(len.into());
        let mut bytes = vec![0; there as usize];
        // Behind what the targets have, the file is a hole.
        self.read_there(offset, &mut bytes).map_err(|e| self.failed("reading", &e))?;
        Ok(bytes)
    }

    /// Fills a buffer with what the targets have from `offset` on, zeros behind that.
    pub(super) fn read_there(&self, offset: u64, buf: &mut [u8]) -> stripe::Result<()> {
        self.avoid_down();
        self.avoid_lost();
        let got = self.place.read().striped.read_at(offset, buf)?;
        buf[got..].fill(0);
        Ok(())
    }

    /// The same into memory of the caller; the number of bytes.
    pub fn read_into(&self, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let bytes = self.read(offset, u32::try_from(buf.len()).unwrap_or(u32::MAX))?;
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// Changes something; where a target is full, what the file has there moves to another one.
    pub(super) fn with_room(
        &self,
        place: &Place,
        change: impl Fn() -> stripe::Result<()>,
    ) -> stripe::Result<()> {
        for _ in 0..place.striped.ways().len() {
            let full = match change() {
                Err(StripeError::Mover { target, source }) if source.class() == ErrorClass::NoSpace => target,
                changed => return changed,
            };
            let node = place.decider.as_ref().and_then(|decider| Some((decider.node()?, decider.object())));
            let Some((node, object)) = node else { break };
            if let Err(why) = node.leave_full(self, object, full) {
                tracing::error!("inode {}: target {full} is full: {why}", self.ino);
                break;
            }
        }
        // Whatever it says now is the truth.
        change()
    }

    /// Puts what is in the log of a coded file into its rows. Meanwhile the file does not get other columns: two would write the same rows, each by
    /// what it knows. Each time it is tried it is done by those that the file has then.
    pub(crate) fn fold(&self) -> stripe::Result<()> {
        let place = self.place();
        self.with_room(&place, || self.place.read().striped().fold())
    }

    /// A client on another host has written at the targets, up to `end`; gives how often the length was set. If that is not as often as he
    /// knows, the file may have been cut after he wrote: the targets are asked. `told` is called while nobody cuts it.
    pub fn written_elsewhere(
        &self,
        end: u64,
        machines: &[u64],
        cuts: u64,
        told: impl FnOnce(),
    ) -> FsResult<u64> {
        let _shared = self.length.read();
        told();
        self.going_to(end);
        let now = self.cuts.load(Ordering::Acquire);
        let end = match cuts == now || end <= self.stamp().size {
            true => end,
            false => end.min(self.length().map_err(|e| self.failed("asking for the length of", &e))?),
        };
        // Twice: who syncs meanwhile neither forgets what is heard, nor takes it for synced.
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.machines.note(&self.striped());
        if !self.machines.heard(machines) {
            self.doubt();
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed(|size| size.max(end));
        Ok(now)
    }

    /// How often the length was set.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }

    /// Something may have been written that nobody tells of: the targets are asked when nobody has the file open.
    pub fn doubt(&self) {
        self.unsure.store(true, Ordering::Release);
    }

    /// All of it came back from tape and is durable: what failed on the way was written once more.
    pub(super) fn came_back(&self) {
        self.unsure.store(false, Ordering::Release);
    }

    /// Nothing was lost of its logs since it was opened. Whoever opens it anew, when nobody has it open, reads them from the disks.
    pub(super) fn is_whole(&self) -> FsResult<()> {
        if self.is_torn() { Err(FsError::Io) } else { Ok(()) }
    }

    /// Something of its logs was lost.
    pub(crate) fn is_torn(&self) -> bool {
        self.torn.load(Ordering::Acquire)
    }

    /// Makes everything durable that was written before.
    pub fn sync(&self) -> FsResult<()> {
        self.is_whole()?;
        let losses = self.losses.load(Ordering::Acquire);
        // In this order: of changes that are counted it is known how far they reach.
        let changes = self.changes.load(Ordering::Acquire);
        if self.synced.load(Ordering::Acquire) >= changes {
            return Ok(());
        }
        self.flush()?;
        let place = self.place.read();
        let reach = self.reach.load(Ordering::Acquire);
        place.striped.sync_below(reach).map_err(|e| self.failed("syncing", &e))?;
        let lost = self.machines.note(&place.striped);
        let lost = lost.into_iter().filter(|(component, column)| self.is_lost(*component, *column)).count();
        if lost > 0 || self.machines.adrift() {
            self.unsure.store(true, Ordering::Release);
            let torn = place.striped.is_coded();
            self.torn.fetch_or(torn, Ordering::AcqRel);
            // Who writes its log past the node would go on behind what is lost.
            let _told = if torn { self.end_writing_past() } else { Ok(()) };
            let how = if torn { "close the file everywhere, and " } else { "" };
            tracing::error!(
                "inode {}: a machine with one of its targets was started anew; what was written there since the last fsync may be lost: \
                 {how}write it again",
                self.ino
            );
            // Before it is forgotten: another sync, of what may be lost as well, sees one or the other.
            self.losses.fetch_add(1, Ordering::AcqRel);
            self.machines.forget();
            return Err(FsError::Io);
        }
        if self.losses.load(Ordering::Acquire) != losses {
            return Err(FsError::Io);
        }
        self.synced.fetch_max(changes, Ordering::AcqRel);
        // Who changes it counts that, and notes where it is then; of what is not counted yet some may have come behind the sync.
        let settled =
            || self.under_way.load(Ordering::Acquire) == 0 && self.changes.load(Ordering::Acquire) == changes;
        if self.machines.forget_if(settled) && self.is_written_past() {
            // Who writes past the node tells of these machines.
            self.machines.note(&place.striped);
        }
        Ok(())
    }

    /// Whether something that was written, and is not known to be durable, may be gone. Afterwards it is known which machines have all of it.
    pub(super) fn has_lost(&self) -> bool {
        let lost = self.machines.note(&self.striped());
        if !lost.is_empty() && self.machines.forget_all_if(|| self.is_quiet()) {
            self.note_machines();
            return false;
        }
        self.unsure.load(Ordering::Acquire)
            || lost.into_iter().any(|(component, column)| self.is_lost(component, column))
    }

    /// Whether it matters that a column may have lost what was written: if others have that too, it is rebuilt from them.
    pub(super) fn is_lost(&self, component: usize, column: u16) -> bool {
        // Who writes past the node counts on it, and would go on to.
        self.end_writing_past().is_err()
            || self.striped().leave_out(component, column, "its machine was started anew").is_err()
    }

    /// Something up to `end` is going to be changed, or was by somebody of whose changes only this tells.
    pub(super) fn going_to(&self, end: u64) {
        self.reach.fetch_max(end, Ordering::AcqRel);
    }

    /// Each change is seen, however fast they follow each other.
    pub(super) fn changed(&self, size: impl FnOnce(u64) -> u64) {
        let mut stamp = self.stamp.lock();
        let next = Time::from_nanos(stamp.ctime.as_nanos().saturating_add(1));
        *stamp = stamp_at(size(stamp.size), crate::now().max(next));
    }

    pub(super) fn failed(&self, doing: &str, e: &StripeError) -> FsError {
        tracing::error!("{doing} inode {}: {e}", self.ino);
        match e.class() {
            ErrorClass::NoSpace => FsError::NoSpace,
            _ => FsError::Io,
        }
    }
}

pub(super) fn stamp_at(size: u64, at: Time) -> ObjectStamp {
    ObjectStamp { size, allocated: size.div_ceil(BLOCK) * BLOCK, mtime: at, ctime: at }
}

impl Node {
    /// Reads what lies on targets, on this thread, which may wait for them; None if it lies elsewhere.
    pub(crate) fn read_targets(&self, handle: Handle, offset: u64, len: u32) -> Option<FsResult<Vec<u8>>> {
        let file = self.open.handle(handle).filter(|file| file.flags.read)?;
        let backing = file.inode.state.lock().backing.clone()?;
        backing.far().map(|far| far.read(offset, len))
    }

    /// Opens a file on targets, of which the catalogue knows how it is; asks no target.
    pub(crate) fn far_file(&self, ino: Ino, object: ObjectId, stamp: ObjectStamp) -> FsResult<Arc<FarFile>> {
        let far = self.catalog.far(object).map_err(|e| fs_error("open", &e))?.ok_or(FsError::Stale)?;
        self.far_file_at(ino, object, far, stamp)
    }

    pub(crate) fn far_file_at(
        &self,
        ino: Ino,
        object: ObjectId,
        far: Far,
        stamp: ObjectStamp,
    ) -> FsResult<Arc<FarFile>> {
        let place = self.place_of(ino, object, far).map_err(|e| {
            tracing::error!("opening inode {ino}: {e}");
            FsError::Io
        })?;
        Ok(Arc::new(FarFile::new(ino, place, stamp)))
    }

    /// The ways to the objects of a file.
    pub(crate) fn place_of(&self, ino: Ino, object: ObjectId, far: Far) -> Result<Place, String> {
        let told = |e: &dyn std::fmt::Display| e.to_string();
        let (columns, absent) = self.columns(&far, &self.movers.down()).map_err(|e| told(&e))?;
        let decider = self.movers.node().map(|node| Arc::new(Decider::new(&node, ino, object)));
        let authority = decider.clone().filter(|_| far.rule().is_redundant());
        let authority = authority.map(|decider| decider as Arc<dyn stripe::Authority>);
        let striped = Striped::open_with(far.layout, columns, authority).map_err(|e| told(&e))?;
        let striped = striped.gathering(&self.movers.behind.room);
        for (component, column) in absent {
            striped.put_aside(component.into(), column);
        }
        Ok(Place { striped: Arc::new(striped), decider })
    }

    /// The backing of a file on targets; `learned` if the targets were asked.
    pub(crate) fn far_backing(
        &self,
        inode: &Inode,
        object: ObjectId,
        learned: Option<ObjectStamp>,
    ) -> FsResult<Backing> {
        let stamp = learned.or(inode.observed).unwrap_or_default();
        let file = self.far_file(inode.attr.ino, object, stamp)?;
        Ok(Backing { object, content: Content::Far(file) })
    }
}
