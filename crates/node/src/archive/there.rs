//! A drive at another host: the stream that it writes is put together in memory there (a depot). What lies on disk targets is read there, straight from
//! their movers, and hashed there; this node gives the rights, and puts in what it has itself.

use super::bytes::FileHash;
use super::digests::Differs;
use super::source::{Origin, Skip};
use super::worker::Worker;
use crate::Node;
use crate::clock::Moment;
use crate::devices::{Depot, DepotError};
use crate::files::{Content, FarFile, Staging};
use crate::movers::Writable;
use catalog::Part;
use parking_lot::Mutex;
use scsi::Address;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tape::{Fault, Load, TapeError};
use types::*;
use wire::{DepotFile, MAX_DIGESTS};

/// So long bytes go through this node after targets did not answer at the other host, or depots there were lost again and again.
const SHUNNED: Duration = Duration::from_secs(300);
/// The log says of each file of so many bytes or more that it was not read there.
const WORTH_A_LINE: u64 = 1 << 20;
/// So long a file is read here that cannot be read there at the moment.
const AWHILE: Duration = Duration::from_secs(5);

/// What is known of the ways of bytes to and from a drive at another host.
#[derive(Default)]
pub struct Ways {
    /// Until then nothing is read or written at targets there.
    shunned: Option<Moment>,
    /// The file for which that failed last, and when: it may be at fault itself.
    failed: Option<(Ino, Moment)>,
    /// When a depot was lost last.
    lost: Option<Moment>,
    /// Until then none is made.
    closed: Option<Moment>,
}

fn lasts(until: Option<Moment>) -> bool {
    until.is_some_and(|until| Moment::now() < until)
}

/// Memory at the drive's host, and what has come there.
pub struct There {
    depot: Depot,
    name: String,
    ways: Arc<Mutex<Ways>>,
    /// Bytes that went straight between it and movers ...
    straight: AtomicU64,
    /// ... and through here.
    through: AtomicU64,
}

impl From<DepotError> for Skip {
    fn from(e: DepotError) -> Self {
        Self::Later(e.why())
    }
}

impl There {
    /// Of a worker's drive; None: it is at no other host, or no depot is to be had there (then bytes go there with the commands).
    pub fn of(worker: &Worker, bytes: u64) -> Option<Arc<Self>> {
        let node = &worker.node;
        let Address::Node(address) = node.device_of(worker.library, worker.no)? else { return None };
        if lasts(worker.ways.lock().closed) {
            return None;
        }
        match Depot::open(&node.config.state_dir, &address, bytes) {
            Ok(depot) => Some(Arc::new(Self {
                depot,
                name: address.to_string(),
                ways: worker.ways.clone(),
                straight: AtomicU64::default(),
                through: AtomicU64::default(),
            })),
            Err(e) => {
                tracing::warn!("{address}: bytes of this drive go through this node: {}", e.why());
                None
            }
        }
    }

    /// Whether it is gone.
    pub fn is_gone(&self) -> bool {
        self.depot.is_gone()
    }

    /// Puts bytes at a place of the stream.
    pub fn put(&self, at: u64, bytes: &[u8]) -> Result<(), Skip> {
        self.put_of(Some(at), None, bytes)
    }

    fn put_of(&self, at: Option<u64>, offset: Option<u64>, bytes: &[u8]) -> Result<(), Skip> {
        self.depot.put(at, offset, bytes)?;
        self.through.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// What lies at a place of the stream; it passes through here.
    pub fn get(&self, at: u64, bytes: usize) -> Result<Vec<u8>, String> {
        let found = self.depot.get(at, bytes).map_err(DepotError::why)?;
        self.through.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(found)
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.depot.number()
    }

    /// What lies at a place of the stream.
    pub fn load(&self, at: u64, bytes: usize) -> Load<'static> {
        Load::There(scsi::There { depot: self.depot.number(), at, bytes, sealed: false })
    }

    fn shuns(&self) -> bool {
        lasts(self.ways.lock().shunned)
    }

    /// A file was not to be read or written at its targets there.
    fn shun(&self, ino: Ino, why: &str) {
        let (mut ways, now) = (self.ways.lock(), Moment::now());
        tracing::warn!(
            "{}: its host does not get at the targets of inode {ino}, which go on here: {why}",
            self.name
        );
        if ways.failed.is_some_and(|(other, at)| other != ino && now < at + SHUNNED) {
            tracing::warn!("{}: what lies on targets goes through this node for {SHUNNED:?}", self.name);
            ways.shunned = Some(now + SHUNNED);
        }
        ways.failed = Some((ino, now));
    }

    /// A command of its drive was not sent for want of it, though that was not told here: it is as good as gone.
    pub fn has_failed(&self, error: &TapeError) -> bool {
        let failed = error.fault == Fault::NotSent;
        if failed {
            tracing::warn!("{}: what was under way goes again: {error}", self.name);
            self.depot.give_up();
        }
        failed
    }
}

impl Drop for There {
    fn drop(&mut self) {
        let (straight, through) = (*self.straight.get_mut(), *self.through.get_mut());
        if straight + through > 0 {
            tracing::info!(
                "{}: {straight} bytes straight from or to movers, {through} through this node",
                self.name
            );
        }
        if self.depot.is_gone() {
            tracing::warn!(
                "{}: the connection for its bytes was lost; what was under way goes again",
                self.name
            );
            let (mut ways, now) = (self.ways.lock(), Moment::now());
            if ways.lost.is_some_and(|lost| now < lost + SHUNNED) {
                ways.closed = Some(now + SHUNNED);
            }
            ways.lost = Some(now);
        }
    }
}

/// A file that is read at the drive's host.
pub struct Far {
    there: Arc<There>,
    ino: Ino,
    object: ObjectId,
    size: u64,
    /// When its rights are to be given again.
    again: Moment,
    /// Until then it is read here.
    here: Option<Moment>,
}

impl Far {
    /// From now on a file is read there, with the digests that are needed; None: it is read here.
    pub fn begin(
        node: &Node,
        there: &Arc<There>,
        (ino, origin): (Ino, &Origin),
        need: &Need,
    ) -> Option<Self> {
        if !origin.far || there.shuns() || need.parts.len() > MAX_DIGESTS {
            return None;
        }
        let (object, size) = (origin.object, origin.stamp.size);
        let lent = match node.lend_to_depot(ino, object, size, there.depot.number()) {
            Ok(Some(lent)) => lent,
            none => {
                if size >= WORTH_A_LINE {
                    let why =
                        none.err().map_or("its targets may not be read there now".into(), |e| e.to_string());
                    tracing::info!("{}: inode {ino} is read through this node: {why}", there.name);
                }
                return None;
            }
        };
        let again = Moment::now() + lent.term() / 2;
        match there.depot.file(DepotFile { lent, whole: need.whole, parts: need.parts.clone() }) {
            Ok(()) => Some(Self { there: there.clone(), ino, object, size, again, here: None }),
            Err(DepotError::Failed(_, why)) => {
                there.shun(ino, &why);
                None
            }
            Err(DepotError::Gone(_)) => None,
        }
    }

    /// Has bytes brought to a place of the stream, or only into the digests; how many, never 0. None: they are to be read here for the moment, and to go
    /// there by [`Far::put`].
    pub fn fetch(
        &mut self,
        node: &Node,
        at: Option<u64>,
        offset: u64,
        most: usize,
    ) -> Result<Option<usize>, Skip> {
        if self.there.shuns() || lasts(self.here) {
            return Ok(None);
        }
        if self.again <= Moment::now() && !self.renew(node)? {
            // Something moves its columns just now: what it has is good until that says otherwise.
            self.again = Moment::now() + AWHILE;
        }
        let mut fetched = self.there.depot.fetch(at, offset, most);
        if let Err(DepotError::Failed(_, why)) = &fetched {
            tracing::debug!("inode {}: {why}", self.ino);
            if !self.renew(node)? {
                self.here = Some(Moment::now() + AWHILE);
                return Ok(None);
            }
            fetched = self.there.depot.fetch(at, offset, most);
        }
        if let Err(DepotError::Failed(_, why)) = &fetched {
            self.there.shun(self.ino, why);
            self.here = Some(Moment::now() + SHUNNED);
            return Ok(None);
        }
        let got = fetched?;
        if got == 0 {
            return Err(Skip::Later("it became shorter while it was read".into()));
        }
        if at.is_some() {
            self.there.straight.fetch_add(got as u64, Ordering::Relaxed);
        }
        Ok(Some(got))
    }

    /// Puts bytes of the file, which were read here, at a place of the stream, and into the digests.
    pub fn put(&self, at: Option<u64>, offset: u64, bytes: &[u8]) -> Result<(), Skip> {
        self.there.put_of(at, Some(offset), bytes)
    }

    /// Gives rights anew; false: nobody is to have any at the moment.
    fn renew(&mut self, node: &Node) -> Result<bool, Skip> {
        let lent = node.lend_to_depot(self.ino, self.object, self.size, self.there.depot.number());
        let Some(lent) = lent.ok().flatten() else { return Ok(false) };
        let again = Moment::now() + lent.term() / 2;
        match self.there.depot.rights(lent) {
            Ok(()) => self.again = again,
            Err(DepotError::Failed(..)) => return Ok(false),
            Err(gone) => return Err(gone.into()),
        }
        Ok(true)
    }
}

/// A file that comes back from tape, written at the drive's host straight to its targets.
pub struct Back {
    there: Arc<There>,
    ino: Ino,
    object: ObjectId,
    size: u64,
    file: Arc<FarFile>,
    /// Of the right, and until when it counts, for certain: what was in force before that is only then to go on.
    generation: u32,
    ends: Moment,
    again: Moment,
}

/// Why bytes did not go straight to targets.
pub enum Unsent {
    /// The depot is gone with them.
    Gone(String),
    /// They are to be written by the node; nothing of the attempt comes behind that.
    Here(String),
    /// What was tried may come later still.
    Unknown(String),
}

impl Back {
    /// From now on a file is written there; None: it is written by the node.
    /// `whole`: all of it comes this way, and its digest is wanted.
    pub fn begin(
        node: &Node,
        there: &Arc<There>,
        (staging, content): (&Staging, &Content),
        whole: bool,
    ) -> Option<Self> {
        let Content::Far(file) = content else { return None };
        if there.shuns() {
            return None;
        }
        let (ino, object, size) = (staging.ino, staging.object()?.object, staging.size);
        let asked = Moment::now();
        let may = node.let_depot_write((ino, object, file), size, there.depot.number(), None);
        let Writable { lent, generation } = may.ok()??;
        let (again, ends) = (asked + lent.term() / 2, asked + lent.term());
        let (there, file) = (there.clone(), file.clone());
        match there.depot.back(DepotFile { lent, whole, parts: Vec::new() }) {
            Ok(()) => Some(Self { there, ino, object, size, file, generation, ends, again }),
            Err(DepotError::Failed(_, why)) => {
                there.shun(ino, &why);
                None
            }
            Err(DepotError::Gone(_)) => None,
        }
    }

    /// Has bytes of the stream written at this offset.
    pub fn store(&mut self, node: &Node, (at, bytes): (u64, usize), offset: u64) -> Result<(), Unsent> {
        let cuts = self.file.cuts();
        let sent = self.renew(node).and_then(|()| self.there.depot.store(at, bytes, offset));
        let machines = match sent {
            Ok(machines) => machines,
            Err(DepotError::Gone(why)) => return Err(self.ended(node, Unsent::Gone(why))),
            Err(DepotError::Failed(class, why)) => {
                if class == ErrorClass::Retry {
                    self.there.shun(self.ino, &why);
                }
                return Err(self.ended(node, Unsent::Here(why)));
            }
        };
        let end = offset + bytes as u64;
        let noted = self.file.written_elsewhere(end, &machines, cuts, || ());
        noted.map_err(|e| Unsent::Here(format!("its targets: {e}")))?;
        self.there.straight.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Has the node's rights to it ended, so that nothing comes late.
    fn ended(&self, node: &Node, why: Unsent) -> Unsent {
        self.file.doubt();
        match node.fence_far(self.object) {
            Ok(()) => why,
            Err(e) => Unsent::Unknown(e.message),
        }
    }

    fn renew(&mut self, node: &Node) -> Result<(), DepotError> {
        if Moment::now() < self.again {
            return Ok(());
        }
        let asked = Moment::now();
        let (file, depot) = ((self.ino, self.object, &*self.file), self.there.depot.number());
        // Of one that has ended nobody knows who has written since.
        let before = (asked < self.ends).then_some(self.generation);
        let lent = node.let_depot_write(file, self.size, depot, before);
        let none = || DepotError::Failed(ErrorClass::Busy, "there is no new right".into());
        let Writable { lent, generation } = lent.ok().flatten().ok_or_else(none)?;
        self.generation = generation;
        (self.again, self.ends) = (asked + lent.term() / 2, asked + lent.term());
        self.there.depot.rights(lent)
    }

    /// Digest of what was written.
    pub fn digest(self) -> Option<Digest> {
        self.there.depot.digests().ok()?.whole
    }
}

/// Which digests are needed of a file that is read.
pub struct Need {
    /// Of all of it.
    pub whole: bool,
    /// Of parts.
    pub parts: Vec<Part>,
}

/// The digests of a file that is read: made where its bytes are.
pub enum Sums {
    /// Here.
    Here(FileHash),
    /// At the drive's host.
    There(Far),
}

/// What has come of them.
pub struct Found {
    /// Of all of it; None: not all came, in order.
    pub whole: Result<Option<Digest>, Differs>,
    /// Of parts.
    pub parts: Vec<(Part, Digest)>,
}

impl Sums {
    /// All of a file of that length was read that is to be.
    pub fn finish(self, size: u64) -> Result<Found, Skip> {
        match self {
            Self::Here(mut hash) => {
                let parts = hash.take_parts();
                Ok(Found { whole: hash.try_finish(size), parts })
            }
            Self::There(far) => {
                let found = far.there.depot.digests()?;
                let parts = found.parts.into_iter().map(|(at, length, digest)| ((at, length), digest));
                Ok(Found { whole: Ok(found.whole), parts: parts.collect() })
            }
        }
    }
}
