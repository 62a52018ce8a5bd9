//! What a file of the node's own disk tier may have lost, as hosts tell that have written it through an earlier node: the machine was started anew before it was durable.
//! Who has it open is told once of what was told before, when he syncs; who opens it later, if nobody was told yet.

use super::behind::Writer;
use super::open::{Content, OpenFile};
use crate::Node;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use types::api::FsResult;
use types::{FsError, Handle};

/// Of one inode.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    found: AtomicU64,
    said: AtomicU64,
}

/// Of one handle.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Losses of which its holder was told.
    said: AtomicU64,
    /// Starts of machines that he has told: each is one loss, however often he tells it.
    starts: Mutex<BTreeSet<u64>>,
}

impl Losses {
    /// Of a handle that is opened now.
    pub(super) fn begin(&self) -> Told {
        Told { said: AtomicU64::new(self.said.load(Ordering::Acquire)), ..Told::default() }
    }

    /// By a handle it is told that something was written in this start of a machine, which is over; false: it was before.
    fn find(&self, handle: &Told, start: u64) -> bool {
        let found = handle.starts.lock().insert(start);
        self.found.fetch_add(found.into(), Ordering::AcqRel);
        found
    }

    /// Whoever syncs by a handle is told.
    ///
    /// # Errors
    /// EIO: something may be lost of which he was not told.
    pub(super) fn say(&self, handle: &Told) -> FsResult<()> {
        let found = self.found.load(Ordering::Acquire);
        if handle.said.fetch_max(found, Ordering::AcqRel) >= found {
            return Ok(());
        }
        self.said.fetch_max(found, Ordering::AcqRel);
        Err(FsError::Io)
    }
}

impl Node {
    /// Which starts of machines have what was written through this node by a handle and is not known to be durable, as `LayoutCommit` tells them; none where some of it
    /// is in memory only.
    pub(crate) fn starts_with(&self, handle: Handle, writer: Writer) -> Vec<u64> {
        let content = self.open.handle(handle).and_then(|file| file.inode.state.lock().backing.clone());
        match content.map(|backing| backing.content) {
            Some(Content::Local(_)) => vec![self.start],
            Some(Content::Far(far)) if writer == Writer::Elsewhere || !far.striped().is_coded() => {
                far.machines.columns()
            }
            _ => Vec::new(),
        }
    }

    /// A host tells at which starts of machines something was written of a file of the disk tier.
    pub(crate) fn heard_here(&self, file: &OpenFile, machines: &[u64]) {
        for start in machines.iter().filter(|start| ![0, self.start].contains(start)) {
            if file.inode.losses.find(&file.told, *start) {
                tracing::error!(
                    "inode {}: this machine was started anew; what hosts wrote since their last fsync may be lost: write it again",
                    file.inode.ino
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use types::api::{FileApi, OpenFlags};
    use types::{Cx, Ino};

    #[test]
    fn what_this_machine_may_have_lost_before_it_was_started_is_not_taken_for_synced() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let (cx, flags) = (Cx::admin(crate::now()), OpenFlags { write: true, ..OpenFlags::default() });
        let handle = node.create(&cx, Ino::ROOT, b"file", 0o644, flags).unwrap().handle;
        node.write_file(handle, 0, b"bytes", true, Writer::Elsewhere).unwrap();
        let told = node.starts_with(handle, Writer::Elsewhere);
        assert!(told.len() == 1 && told != [0]);
        let tell = |end, start| node.layout_commit((None, 0), handle, end, &[start], 0);
        for same in [told[0], 0] {
            assert_eq!((tell(0, same), node.sync_file(handle)), (Ok(0), Ok(())));
        }
        for other in [told[0] ^ 1, told[0] ^ 2] {
            assert_eq!((tell(0, other), node.sync_file(handle)), (Ok(0), Err(FsError::Io)));
            assert_eq!((tell(0, other), node.sync_file(handle)), (Ok(0), Ok(())), "it was said");
        }
        assert_eq!(tell(1, told[0]), Err(FsError::Stale), "nobody writes there past the node");
        node.close_file(handle);
        node.stop(true);
    }

    #[test]
    fn each_handle_is_told_once_of_a_loss_and_a_later_one_if_nobody_was() {
        let losses = Losses::default();
        let [first, second] = [losses.begin(), losses.begin()];
        assert_eq!(losses.say(&first), Ok(()));
        assert!(losses.find(&first, 7) && !losses.find(&first, 7));
        let later = losses.begin();
        for handle in [&first, &later, &second] {
            assert_eq!(losses.say(handle), Err(FsError::Io));
            assert_eq!(losses.say(handle), Ok(()));
        }
        let last = losses.begin();
        assert_eq!(losses.say(&last), Ok(()), "it was said before he opened the file");
        losses.find(&second, 7);
        assert_eq!(losses.say(&last), Err(FsError::Io), "another host has lost something, too");
    }
}
