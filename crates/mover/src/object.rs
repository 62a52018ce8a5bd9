//! One open object: who may touch it when.
//!
//! * `gate`: everything that reads or writes bytes passes it shared; what concerns the whole object (its length, settling) exclusively.
//! * `shards`: one lock for every 64th block; whoever changes bytes of blocks or compares them with their sums holds theirs, taken in order.
//! * `head`: fence and numbers of channels, in memory as in the sidecar; held shortly, after the others.

use crate::intents::{Intents, REGION, TO_THE_END};
use crate::sidecar::{BLOCKS_PER_PAGE, CHANNELS, Done, Head, Sidecar};
use crate::target::{Target, disk_refused, failed, refused};
use data::{Refusal, sum};
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::fs;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use types::ObjectId;

/// Why an object of which no sums are kept cannot be fenced: nobody has done anything wrong.
pub(crate) const NO_FENCE: &str = "the object was made without a mover and keeps no fence";

const SHARDS: usize = 64;

/// Whether a region has the space for its sums: writing them must not fail once the bytes are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    Taken,
    /// A cut has given it back.
    GivenBack,
}

pub(crate) struct Object {
    pub(crate) id: ObjectId,
    pub(crate) file: OwnedFd,
    /// Where the file is, for messages.
    pub(crate) path: std::path::PathBuf,
    /// None: made without a mover, so without sums.
    pub(crate) sidecar: Option<Sidecar>,
    pub(crate) gate: RwLock<()>,
    shards: [Mutex<()>; SHARDS],
    head: Mutex<Kept>,
    /// Regions that are noted as being written.
    dirty: Mutex<BTreeMap<u32, Space>>,
    /// A sync failed: what was written may be lost, and no later sync shows it.
    lost: AtomicBool,
    /// Somebody may have a descriptor of it.
    lent: AtomicBool,
}

struct Kept {
    head: Head,
    /// Places of `head.channels`, the one used least lately first.
    used: VecDeque<usize>,
}

impl Object {
    pub(crate) fn open(target: &Target, id: ObjectId) -> Result<Self, Refusal> {
        let file = target.disk.open_object(id, true).map_err(disk_refused)?;
        let path = target.disk.path(id);
        let sidecar = target.sidecars.find(id).map_err(refused)?;
        let head = match &sidecar {
            Some(sidecar) => sidecar
                .head()
                .map_err(refused)?
                .map_err(|why| Refusal::Corrupt(format!("the sums of object {id} ({}) are of no use: {why}; it has to be restored from redundancy or tape", path.display())))?,
            None => Head { unsummed: true, ..Head::default() },
        };
        Ok(Self {
            id,
            file,
            path,
            sidecar,
            gate: RwLock::new(()),
            shards: std::array::from_fn(|_| Mutex::new(())),
            head: Mutex::new(Kept::new(head)),
            dirty: Mutex::default(),
            lost: AtomicBool::new(false),
            lent: AtomicBool::new(false),
        })
    }

    /// Length (bytes).
    pub(crate) fn length(&self) -> Result<u64, Refusal> {
        let stat = fs::fstat(&self.file).map_err(|e| self.failed("looking at", e))?;
        Ok(stat.st_size.max(0) as u64)
    }

    /// The sidecar, if its sums say something.
    pub(crate) fn summed(&self) -> Option<&Sidecar> {
        self.sidecar.as_ref().filter(|_| !self.head.lock().head.unsummed)
    }

    /// The locks of the blocks of a range.
    pub(crate) fn lock(&self, offset: u64, length: usize) -> Vec<MutexGuard<'_, ()>> {
        let wanted: BTreeSet<usize> =
            sum::pieces(offset, length).take(SHARDS).map(|piece| piece.block as usize % SHARDS).collect();
        wanted.into_iter().map(|shard| self.shards[shard].lock()).collect()
    }

    /// Notes, durably and once, that regions of a range are being written, and takes space for their sums.
    pub(crate) fn begin(&self, intents: &Intents, offset: u64, length: u64) -> Result<(), Refusal> {
        let Some(sidecar) = &self.sidecar else { return Ok(()) };
        self.begin_sidecar()?;
        let first = region(offset);
        let last = region(offset.saturating_add(length.max(1)) - 1);
        let mut dirty = self.dirty.lock();
        for number in first..=last {
            let known = dirty.get(&number).copied();
            if known == Some(Space::Taken) {
                continue;
            }
            sidecar.reserve(u64::from(number) * BLOCKS_PER_PAGE, 1).map_err(refused)?;
            if known.is_none() {
                intents.begin(self.id, number, number).map_err(refused)?;
            }
            dirty.insert(number, Space::Taken);
        }
        Ok(())
    }

    /// Its sums end with the block that has the byte before `length`: what was taken behind them is free again.
    pub(crate) fn gave_back(&self, length: u64) {
        self.dirty.lock().range_mut(region(length)..).for_each(|(_, space)| *space = Space::GivenBack);
    }

    /// The same for everything from the region of `offset` on.
    pub(crate) fn begin_to_the_end(&self, intents: &Intents, offset: u64) -> Result<(), Refusal> {
        if self.sidecar.is_none() {
            return Ok(());
        }
        self.begin(intents, offset, 1)?;
        intents.begin(self.id, region(offset), TO_THE_END).map_err(refused)
    }

    /// Writes the head of a sidecar that is empty: it is there before anything behind it, also where a crash leaves a part of both.
    pub(crate) fn begin_sidecar(&self) -> Result<(), Refusal> {
        let mut kept = self.head.lock();
        if let Some(sidecar) = self.sidecar.as_ref().filter(|_| kept.head.blank) {
            sidecar.write_head(&kept.head).map_err(refused)?;
            kept.head.blank = false;
        }
        Ok(())
    }

    /// Whether nothing was ever written to it.
    pub(crate) fn is_as_made(&self) -> Result<bool, Refusal> {
        Ok(self.head.lock().head.blank && self.length()? == 0)
    }

    /// The same, and nothing of a write that was begun has reached the disk.
    pub(crate) fn is_untouched(&self) -> Result<bool, Refusal> {
        let empty = self.sidecar.as_ref().map_or(Ok(false), |sidecar| sidecar.is_empty().map_err(refused));
        Ok(empty? && self.length()? == 0)
    }

    /// Somebody is about to be given a descriptor.
    pub(crate) fn lend(&self) {
        self.lent.store(true, Ordering::SeqCst);
    }

    /// It has been removed: whoever has a descriptor keeps it from taking room no longer than that takes.
    pub(crate) fn give_room_back(&self) {
        if self.lent.load(Ordering::SeqCst)
            && let Err(e) = fs::ftruncate(&self.file, 0)
        {
            tracing::warn!(
                "{}: {e}; its room is free when the last descriptor of it is closed",
                self.path.display()
            );
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.lock().is_empty()
    }

    /// Whether it has to stay open: only this knows that a sync failed.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Makes what was written durable, if there is anything. Whoever writes with sums notes before which regions.
    pub(crate) fn sync_written(&self) -> Result<(), Refusal> {
        let untouched = self.summed().is_some() && !self.is_dirty() && !self.is_lost();
        if untouched { Ok(()) } else { self.sync() }
    }

    /// Makes everything durable, with its sums and the numbers of what was done.
    pub(crate) fn sync(&self) -> Result<(), Refusal> {
        if let Some(sidecar) = &self.sidecar {
            sidecar.begin_sync();
        }
        let synced = fs::fdatasync(&self.file)
            .map_err(|e| self.failed("syncing", e))
            .and_then(|()| self.sidecar.as_ref().map_or(Ok(()), |sidecar| sidecar.sync().map_err(refused)));
        if synced.is_err() {
            self.lost.store(true, Ordering::Release);
        }
        synced.and_then(|()| match self.lost.load(Ordering::Acquire) {
            true => Err(Refusal::Disk(format!(
                "an earlier sync of {} failed, so what was written may be lost; write it again to a new file",
                self.path.display()
            ))),
            false => Ok(()),
        })
    }

    /// Makes everything durable and notes that nothing is being written.
    pub(crate) fn settle(&self, intents: &Intents) -> Result<(), Refusal> {
        let _all = self.gate.write();
        let mut dirty = self.dirty.lock();
        if dirty.is_empty() {
            return Ok(());
        }
        self.sync()?;
        // Whatever becomes of the note: who writes next notes it anew, and behind this one.
        dirty.clear();
        intents.end(self.id).map_err(refused)
    }

    /// Whether capabilities of this generation still count.
    pub(crate) fn admits(&self, generation: u64) -> Result<(), Refusal> {
        if generation < self.head.lock().head.fence { Err(Refusal::Fenced) } else { Ok(()) }
    }

    /// Refuses capabilities below `generation` from now on, durably. What was admitted before has ended when this returns.
    pub(crate) fn fence(&self, generation: u64) -> Result<(), Refusal> {
        let _all = self.gate.write();
        let mut kept = self.head.lock();
        if generation <= kept.head.fence {
            return Ok(());
        }
        let Some(sidecar) = &self.sidecar else {
            return Err(Refusal::Capability(NO_FENCE));
        };
        let head = Head { fence: generation, blank: false, ..kept.head.clone() };
        sidecar.write_head(&head).and_then(|()| sidecar.sync()).map_err(refused)?;
        // Only now: asked again after an error, it has to be made durable.
        kept.head = head;
        Ok(())
    }

    /// What the channel did last with this object.
    pub(crate) fn done_by(&self, done: Done) -> Option<u64> {
        let kept = self.head.lock();
        kept.place(done).and_then(|n| kept.head.channels[n]).map(|last| last.sequence)
    }

    /// Notes what a channel has done.
    pub(crate) fn note(&self, done: Done) -> Result<(), Refusal> {
        let mut kept = self.head.lock();
        let place = kept.take_place(done);
        kept.head.channels[place] = Some(done);
        let Some(sidecar) = &self.sidecar else { return Ok(()) };
        if !kept.head.blank {
            return sidecar.write_done(place, done).map_err(refused);
        }
        sidecar.write_head(&kept.head).map_err(refused)?;
        kept.head.blank = false;
        Ok(())
    }

    /// Forgets what channels have done: the machine went down, and what they wrote may be lost while the note of it was kept.
    pub(crate) fn forget_done(&self) -> Result<(), Refusal> {
        let mut kept = self.head.lock();
        *kept = Kept::new(Head { channels: Vec::new(), blank: false, ..kept.head.clone() });
        match &self.sidecar {
            Some(sidecar) => sidecar.write_head(&kept.head).map_err(refused),
            None => Ok(()),
        }
    }

    pub(crate) fn failed(&self, doing: &str, errno: rustix::io::Errno) -> Refusal {
        failed(doing, &self.path, errno)
    }
}

impl Kept {
    fn new(mut head: Head) -> Self {
        head.channels.resize(CHANNELS, None);
        // Free places first.
        let (used, free): (Vec<usize>, Vec<usize>) = (0..CHANNELS).partition(|n| head.channels[*n].is_some());
        Self { head, used: free.into_iter().chain(used).collect() }
    }

    fn place(&self, done: Done) -> Option<usize> {
        let same = |last: &Done| (last.client, last.channel) == (done.client, done.channel);
        self.head.channels.iter().position(|last| last.as_ref().is_some_and(same))
    }

    /// The place of a channel, or the one that was used least lately; it is now the one used last.
    fn take_place(&mut self, done: Done) -> usize {
        let place = self.place(done).or_else(|| self.used.front().copied()).unwrap_or_default();
        self.used.retain(|n| *n != place);
        self.used.push_back(place);
        place
    }
}

fn region(offset: u64) -> u32 {
    u32::try_from(offset / REGION).unwrap_or(TO_THE_END - 1)
}
