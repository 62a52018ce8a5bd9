//! Where files lie that come back from tape: in the node's disk tier, or on disk targets if they were there before.

use super::behind::Writer;
use super::open::{Backing, Content};
use crate::Node;
use crate::archive::FileHash;
use crate::error::fs_error;
use std::sync::Arc;
use types::api::FsResult;
use types::*;

/// Read at once (bytes).
const PIECE: usize = 1 << 20;

impl Node {
    /// New objects on targets for a file that was there before, of `size` zeros; None if it belongs in the disk tier, or no target takes it.
    /// They are reserved until [`Node::settle_object`].
    pub(crate) fn far_again(&self, ino: Ino, size: u64) -> FsResult<Option<Backing>> {
        let rule = self.catalog.layout_rule(ino).map_err(|e| fs_error("recall", &e))?;
        let Some(rule) = rule else { return Ok(None) };
        let (object, far) = match self.make_far(&rule) {
            Ok(made) => made,
            Err(e) => {
                tracing::warn!("inode {ino} comes back to the node's own disk tier: {e}");
                return Ok(None);
            }
        };
        let sized = self.far_file_at(ino, object, far, ObjectStamp::default());
        // The parts that it needs behind the first one are made by that.
        match sized.and_then(|file| file.truncate(size).map(|()| file)) {
            Ok(file) => Ok(Some(Backing { object, content: Content::Far(file) })),
            Err(e) => {
                self.movers.settle(object);
                self.movers.wake();
                tracing::warn!("inode {ino} comes back to the node's own disk tier: {e}");
                Ok(None)
            }
        }
    }

    /// An object that was taken for a recall belongs to its file now, or to nobody.
    pub(crate) fn settle_object(&self, object: &Backing) {
        match object.content {
            Content::Local(_) => self.objects.settle(object.object),
            Content::Far(_) => {
                self.movers.settle(object.object);
                self.movers.wake();
            }
        }
    }

    /// An object for a file without bytes.
    pub(crate) fn empty_object(&self, ino: Ino) -> FsResult<Backing> {
        if let Some(far) = self.far_again(ino, 0)? {
            return Ok(far);
        }
        let (object, fd) = self.objects.take(&self.catalog, &self.disk)?;
        Ok(Backing::local(object, Arc::new(fd)))
    }
}

impl Content {
    /// Writes all of `bytes` at `offset`; why not, for the user.
    pub(crate) fn store(&self, node: &Node, bytes: &[u8], offset: u64) -> Result<(), String> {
        match self {
            Self::Local(fd) => node.disk.write_at(fd, bytes, offset).map_err(|e| e.to_string()),
            Self::Far(file) => {
                file.write(offset, bytes, false, Writer::Elsewhere).map(drop).map_err(on_targets)
            }
        }
    }

    /// Makes a range zeros.
    pub(crate) fn clear(&self, node: &Node, start: u64, length: u64) -> Result<(), String> {
        match self {
            Self::Local(fd) => node.disk.punch_hole(fd, start, length).map_err(|e| e.to_string()),
            Self::Far(_) => {
                let zeros = vec![0; PIECE];
                (start..start + length).step_by(PIECE).try_for_each(|at| {
                    let piece = (start + length - at).min(PIECE as u64);
                    self.store(node, &zeros[..piece as usize], at)
                })
            }
        }
    }

    /// Makes all of it durable.
    pub(crate) fn sync(&self, node: &Node) -> Result<(), String> {
        match self {
            Self::Local(fd) => node.disk.sync_all(fd).map_err(|e| e.to_string()),
            Self::Far(file) => file.sync().map_err(on_targets),
        }
    }

    /// SHA-256 of its first `size` bytes, holes included; None if it is shorter or cannot be read.
    pub(crate) fn digest(&self, node: &Node, size: u64) -> Option<Digest> {
        let (mut hash, mut buf, mut at) = (FileHash::new(), vec![0; PIECE], 0);
        while at < size {
            let want = buf.len().min((size - at) as usize);
            let got = match self {
                Self::Local(fd) => node.disk.read_at(fd, &mut buf[..want], at).ok(),
                Self::Far(file) => file.read_into(at, &mut buf[..want]).ok(),
            };
            let got = got.filter(|got| *got > 0)?;
            hash.add(at, &buf[..got]);
            at += got as u64;
        }
        hash.finish(size)
    }
}

fn on_targets(e: FsError) -> String {
    format!("its disk targets: {e}; the log says more, see `thermo target ls`")
}
