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
use catalog::Part;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tape::Load;
use types::*;
use wire::{DepotFile, MAX_DIGESTS};

/// So long bytes go through this node after targets did not answer at the other host.
const SHUNNED: Duration = Duration::from_secs(300);

/// Memory at the drive's host, and what has come there.
pub struct There {
    depot: Depot,
    name: String,
    /// Until then nothing is read there.
    shunned: Mutex<Option<Moment>>,
    /// Bytes that came straight from movers ...
    straight: AtomicU64,
    /// ... and from here.
    through: AtomicU64,
}

impl From<DepotError> for Skip {
    fn from(e: DepotError) -> Self {
        let (DepotError::Gone(why) | DepotError::Failed(why)) = e;
        Self::Later(why)
    }
}

impl There {
    /// Of a worker's drive; None: it is at no other host, or that makes no depots (then bytes go there with the commands).
    pub fn of(worker: &Worker, bytes: u64) -> Option<Arc<Self>> {
        let node = &worker.node;
        let address = node.hardware(worker.library)?;
        let address = address.elsewhere((worker.no.0 - node.first_drive(worker.library)).into())?;
        match Depot::open(&node.config.state_dir, address, bytes) {
            Ok(depot) => Some(Arc::new(Self {
                depot,
                name: address.to_string(),
                shunned: Mutex::default(),
                straight: AtomicU64::default(),
                through: AtomicU64::default(),
            })),
            Err(DepotError::Gone(why) | DepotError::Failed(why)) => {
                tracing::warn!("{address}: bytes go to this drive through this node: {why}");
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
        self.depot.put(at, bytes)?;
        self.through.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// What lies at a place of the stream; it passes through here.
    pub fn get(&self, at: u64, bytes: usize) -> Result<Vec<u8>, String> {
        let found = self.depot.get(at, bytes).map_err(|e| match e {
            DepotError::Gone(why) | DepotError::Failed(why) => why,
        })?;
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
        self.shunned.lock().is_some_and(|until| Moment::now() < until)
    }

    fn shun(&self, why: &str) {
        tracing::warn!(
            "{}: its host does not get at what is to be written ({why}): that goes through this node for {SHUNNED:?}",
            self.name
        );
        *self.shunned.lock() = Some(Moment::now() + SHUNNED);
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
}

impl Far {
    /// From now on a file is read there, with digests of these parts of it; None: it is read here.
    pub fn begin(
        node: &Node,
        there: &Arc<There>,
        (ino, origin): (Ino, &Origin),
        parts: &[Part],
    ) -> Option<Self> {
        if !origin.far || there.shuns() || parts.len() > MAX_DIGESTS {
            return None;
        }
        let (object, size) = (origin.object, origin.stamp.size);
        let lent = node.lend_to_depot(ino, object, size, there.depot.number()).ok()??;
        let again = Moment::now() + Node::lent_again_after(&lent);
        match there.depot.file(DepotFile { lent, parts: parts.to_vec() }) {
            Ok(()) => Some(Self { there: there.clone(), ino, object, size, again }),
            Err(DepotError::Failed(why)) => {
                there.shun(&why);
                None
            }
            Err(DepotError::Gone(_)) => None,
        }
    }

    /// Has bytes brought to a place of the stream, or only into the digests; how many, never 0.
    pub fn fetch(&mut self, node: &Node, at: Option<u64>, offset: u64, most: usize) -> Result<usize, Skip> {
        if self.again <= Moment::now() {
            self.renew(node)?;
        }
        let fetched = match self.there.depot.fetch(at, offset, most) {
            // Rights end when something moves the file's columns, too.
            Err(DepotError::Failed(why)) => {
                tracing::debug!("inode {}: {why}", self.ino);
                self.renew(node)?;
                self.there.depot.fetch(at, offset, most)
            }
            fetched => fetched,
        };
        if let Err(DepotError::Failed(why)) = &fetched {
            self.there.shun(why);
        }
        let got = fetched?;
        if got == 0 {
            return Err(Skip::Later("it became shorter while it was read".into()));
        }
        if at.is_some() {
            self.there.straight.fetch_add(got as u64, Ordering::Relaxed);
        }
        Ok(got)
    }

    fn renew(&mut self, node: &Node) -> Result<(), Skip> {
        let lent = node.lend_to_depot(self.ino, self.object, self.size, self.there.depot.number());
        let lent = lent.map_err(|e| Skip::Later(format!("its targets: {e}")))?;
        let lent = lent.ok_or_else(|| Skip::Later("its targets are not to be read elsewhere now".into()))?;
        self.again = Moment::now() + Node::lent_again_after(&lent);
        self.there.depot.rights(lent).map_err(|e| {
            if let DepotError::Failed(why) = &e {
                self.there.shun(why);
            }
            Skip::from(e)
        })
    }
}

/// A file that comes back from tape, written at the drive's host straight to its targets.
pub struct Back {
    there: Arc<There>,
    ino: Ino,
    object: ObjectId,
    size: u64,
    file: Arc<FarFile>,
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
    pub fn begin(node: &Node, there: &Arc<There>, staging: &Staging, content: &Content) -> Option<Self> {
        let Content::Far(file) = content else { return None };
        if there.shuns() {
            return None;
        }
        let (ino, object, size) = (staging.ino, staging.object()?.object, staging.size);
        let lent = node.let_depot_write(ino, object, size, there.depot.number()).ok()??;
        let again = Moment::now() + Node::lent_again_after(&lent);
        match there.depot.back(DepotFile { lent, parts: Vec::new() }) {
            Ok(()) => Some(Self { there: there.clone(), ino, object, size, file: file.clone(), again }),
            Err(DepotError::Failed(why)) => {
                there.shun(&why);
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
            Err(DepotError::Failed(why)) => {
                tracing::debug!("inode {}: {why}", self.ino);
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
        let lent = node.let_depot_write(self.ino, self.object, self.size, self.there.depot.number());
        let lent = lent.ok().flatten().ok_or_else(|| DepotError::Failed("there is no new right".into()))?;
        self.again = Moment::now() + Node::lent_again_after(&lent);
        self.there.depot.rights(lent)
    }

    /// Digest of what was written, of a file of that length.
    pub fn digest(self, size: u64) -> Option<Digest> {
        self.there.depot.digests(size).ok()?.whole
    }
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
    /// What was read of a file ends before the file does: digests of its parts only.
    pub fn end(self) -> Result<Vec<(Part, Digest)>, Skip> {
        match self {
            // What others hash of the file goes on.
            Self::Here(mut hash) => Ok(hash.take_parts()),
            Self::There(far) => {
                let size = far.size;
                Ok(Self::There(far).finish(size)?.parts)
            }
        }
    }

    /// All of a file of that length was read that is to be.
    pub fn finish(self, size: u64) -> Result<Found, Skip> {
        match self {
            Self::Here(mut hash) => {
                let parts = hash.take_parts();
                Ok(Found { whole: hash.try_finish(size), parts })
            }
            Self::There(far) => {
                let found = far.there.depot.digests(size)?;
                let parts = found.parts.into_iter().map(|(at, length, digest)| ((at, length), digest));
                Ok(Found { whole: Ok(found.whole), parts: parts.collect() })
            }
        }
    }
}
