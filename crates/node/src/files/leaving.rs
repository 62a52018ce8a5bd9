//! The bytes of a file in the node's disk tier are copied to objects on targets, and lie there from one moment on.
//!
//! A program that has such a file open may have the object itself: the kernel reads and writes it, and the node sees nothing of that. So nobody has it open
//! when its copy begins. Whoever opens it later reads and writes through the node, and a reader goes on with the new objects; a writer ends the attempt.

use super::fresh::{Fresh, Unfinished};
use super::open::{Backing, Content, OpenInode, OpenState};
use crate::Node;
use crate::archive::FileHash;
use crate::clock::Moment;
use crate::error::fs_error;
use catalog::CatalogError;
use disk::{DiskError, Writers};
use kv::Durability;
use rustix::fs::Mode;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use types::api::{FsResult, OpenFlags};
use types::*;

/// Bytes that are copied at once.
const STEP: u64 = 4 << 20;
/// A file this young could change again within the resolution of its times.
const SETTLED_AFTER: Duration = Duration::from_millis(20);
/// How long the last step waits for reads that are under way ...
const PATIENCE: Duration = Duration::from_secs(10);
/// ... between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// So long others wait who want to begin one ...
const HELD: Duration = Duration::from_millis(100);
/// ... while this is waited between two looks.
const BRIEF: Duration = Duration::from_millis(1);
/// Why it is not copied now.
const OPEN: &str = "somebody has it open; it leaves the disk tier when it is closed";
const WRITTEN: &str = "somebody has opened it for writing; it leaves the disk tier when it is closed";
const CHANGED: &str = "it changed while it was copied";
const ELSEWHERE: &str = "it lies elsewhere by now";
const REMOVED: &str = "it was removed while it was copied";
const NO_LEASES: &str = "the file system of the disk tier gives no leases, so it is not known whether a program has it mapped for writing; it stays where it is: \
    set sysctl fs.leases-enable=1, or have the disk tier on ext4 or XFS, and ask again";

/// A file that is about to leave. It is open as long as this lives.
pub(crate) struct Leaving<'a> {
    node: &'a Node,
    ino: Ino,
    object: ObjectId,
    handle: Handle,
    /// To read from.
    fd: OwnedFd,
    /// How it was when that began.
    stamp: ObjectStamp,
    /// What is on record for these bytes.
    known: Option<Digest>,
}

impl<'a> Leaving<'a> {
    /// Opens a file that nobody has open, so that whoever opens it from now on does not get the object itself.
    ///
    /// # Errors
    /// Somebody has it, or it does not lie there any more.
    pub(crate) fn begin(node: &'a Node, ino: Ino, object: ObjectId) -> Result<Self, Unfinished> {
        let (handle, fd) = node.open.with(ino, |entry, state| {
            if state.handles > 0 {
                return later(OPEN);
            }
            let fd = node.disk.open_object(object, false).map_err(|e| node.not_opened(ino, object, &e))?;
            // Closed files can still be mapped.
            may_leave(node.disk.writers(&fd).map_err(|e| Unfinished::Later(e.to_string()))?)?;
            let opened = node.open_served(ino, object, &fd, (entry, state));
            let handle = opened.map_err(|e| Unfinished::Later(e.to_string()))?;
            Ok((handle.ok_or_else(|| Unfinished::Later(ELSEWHERE.to_owned()))?, fd))
        })?;
        let mut leaving = Self { node, ino, object, handle, fd, stamp: ObjectStamp::default(), known: None };
        leaving.stamp = node.disk.stamp(&leaving.fd).map_err(|e| unreadable(&e))?;
        leaving.settle()?;
        let file = leaving.inode()?.file.filter(|file| file.object == Some(object));
        let same = |file: &FileState| file.stamp.is_some_and(|stamp| stamp.same_content(&leaving.stamp));
        leaving.known = file.filter(same).and_then(|file| file.digest);
        Ok(leaving)
    }

    fn inode(&self) -> Result<Inode, Unfinished> {
        self.node.catalog.inode(self.ino).map_err(|e| Unfinished::Later(e.to_string()))
    }

    /// It has a name still.
    pub(crate) fn is_there(&self) -> Result<(), Unfinished> {
        match self.inode()?.attr.nlink {
            0 => later(REMOVED),
            _ => Ok(()),
        }
    }

    /// From now on every change shows in the stamp.
    fn settle(&self) -> Result<(), Unfinished> {
        let now = crate::now();
        // A change time ahead of the clock was set before somebody turned the clock back.
        if self.stamp.ctime <= now && now.since(self.stamp.ctime) < SETTLED_AFTER {
            crate::clock::sleep(SETTLED_AFTER);
        }
        self.is_left_alone()
    }

    /// Its length (bytes).
    pub(crate) fn length(&self) -> u64 {
        self.stamp.size
    }

    /// Nobody has changed it, or is going to.
    pub(crate) fn is_left_alone(&self) -> Result<(), Unfinished> {
        self.is_as_it_was(self.node.is_being_written(self.ino))
    }

    fn is_as_it_was(&self, written: bool) -> Result<(), Unfinished> {
        if written {
            return later(WRITTEN);
        }
        match self.node.disk.stamp(&self.fd) {
            Ok(stamp) if stamp.same_content(&self.stamp) => Ok(()),
            Ok(_) => later(CHANGED),
            Err(e) => Err(unreadable(&e)),
        }
    }

    /// The pieces that hold data; what lies between is zeros. They begin at multiples of their size, so that rows of a code are written whole.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Result<Range<u64>, Unfinished>> {
        let (size, mut next) = (self.stamp.size, 0);
        self.node.disk.data_ranges(&self.fd, size).flat_map(move |range| {
            let (range, failed) = match range {
                Ok(range) => (range, None),
                Err(e) => (0..0, Some(Err(unreadable(&e)))),
            };
            let from = next.max(range.start - range.start % STEP);
            let to = range.end.next_multiple_of(STEP);
            next = next.max(to);
            let piece = move |at: u64| Ok(at..size.min(at + STEP));
            failed.into_iter().chain((from..to).step_by(STEP as usize).map(piece))
        })
    }

    /// Copies a piece, and hashes it where that is compared at the end.
    pub(crate) fn copy(&self, piece: Range<u64>, to: &Fresh, hash: &mut FileHash) -> Result<(), Unfinished> {
        let mut bytes = vec![0; piece.end.saturating_sub(piece.start) as usize];
        let got = self.node.disk.read_at(&self.fd, &mut bytes, piece.start).map_err(|e| unreadable(&e))?;
        if got < bytes.len() {
            return later(CHANGED);
        }
        if self.known.is_some() {
            hash.add(piece.start, &bytes);
        }
        to.write(piece, &bytes, true)?;
        to.is_sound()
    }

    /// What was read is what is on record, if anything is. The object that was read goes afterwards: nobody could tell any more.
    fn is_as_recorded(&self, hash: FileHash) -> Result<(), Unfinished> {
        if self.known.is_none() || self.known == hash.finish(self.stamp.size) {
            return Ok(());
        }
        let path = self.node.catalog.path_of(self.ino).unwrap_or_default();
        Err(Unfinished::Failed(format!(
            "{} (inode {}): the disk gave other bytes than were recorded for it; it stays where it is: run `thermo check --deep`, and look at the disk",
            escape(&path),
            self.ino
        )))
    }

    /// The last step: what was copied is durable, and the file lies there from one transaction on, unless it has changed.
    pub(crate) fn finish(&self, to: &Fresh, new: ObjectId, hash: FileHash) -> Result<(), Unfinished> {
        self.is_as_recorded(hash)?;
        let file = to.finish(self.stamp.size)?;
        let there = Backing { object: new, content: Content::Far(file.clone()) };
        let until = Moment::now() + PATIENCE;
        while !self.node.open.with(self.ino, |_, state| self.switch(state, &there))? {
            if Moment::now() >= until {
                return later("it is being read all the time");
            }
            crate::clock::sleep(LOOK);
        }
        Ok(())
    }

    /// Under the lock of the file; false if somebody reads the object still.
    fn switch(&self, state: &mut OpenState, there: &Backing) -> Result<bool, Unfinished> {
        let fd = state.backing.as_ref().filter(|backing| backing.object == self.object);
        let fd = fd.and_then(Backing::fd).ok_or_else(|| Unfinished::Later(ELSEWHERE.to_owned()))?;
        if !is_let_go(fd) {
            return Ok(false);
        }
        self.is_as_it_was(state.writers > 0)?;
        let stamp = there.far().map(|file| file.stamp()).unwrap_or_default();
        let left = (self.object, &self.stamp);
        let recorded = self.node.catalog.leave_tier(self.ino, left, (there.object, &stamp));
        let unsure = matches!(recorded, Err(CatalogError::Kv(_)));
        let lies_there = self.node.lies_there(self.ino, there.object, recorded);
        // Whoever has looked at the catalogue before looks again.
        self.node.open.sealed(self.ino);
        match &lies_there {
            Ok(()) => state.backing = Some(there.clone()),
            // It may lie there or not: whoever uses it asks the catalogue first.
            Err(_) if unsure && self.node.stops_within(Duration::ZERO) => state.backing = None,
            Err(_) => {}
        }
        lies_there.map(|()| true).map_err(Unfinished::Later)
    }
}

impl Node {
    /// Opens a file that nobody has open, under its lock, in a way that all who open it after this are served by the node; None if it lies elsewhere.
    fn open_served(
        &self,
        ino: Ino,
        object: ObjectId,
        fd: &OwnedFd,
        (entry, state): (&Arc<OpenInode>, &mut OpenState),
    ) -> FsResult<Option<Handle>> {
        let (cx, fail) = (Cx::admin(crate::now()), |e| fs_error("open", &e));
        let inode = self.catalog.inode(ino).map_err(fail)?;
        if inode.file.as_ref().is_none_or(|file| file.far || file.object != Some(object)) {
            return Ok(None);
        }
        if self.catalog.is_writing(ino).map_err(fail)? {
            // When it was closed that could not be recorded. Its bytes may have changed without its times: it counts as changed, as after a crash.
            rustix::fs::fchmod(fd, Mode::from_raw_mode(0o600)).map_err(|e| {
                tracing::error!("the disk object {object} of inode {ino}: {e}");
                FsError::Io
            })?;
            self.observe(&cx, ino, object, self.stamp(fd)?, true, Durability::Relaxed)?;
        }
        let opened = self.open_locked(&cx, ino, OpenFlags::default(), (None, None), (entry, state))?;
        state.direct = false;
        Ok(opened.map(|opened| opened.handle))
    }

    /// The object of a file cannot be opened, whose lock the caller holds.
    fn not_opened(&self, ino: Ino, object: ObjectId, e: &DiskError) -> Unfinished {
        match e {
            DiskError::Missing { .. } => match self.object_lost(ino, object, e) {
                Err(FsError::Io) => Unfinished::Failed(e.to_string()),
                // It is on tape, or has other content.
                _ => Unfinished::Later(e.to_string()),
            },
            _ => Unfinished::Later(e.to_string()),
        }
    }
}

/// The only copy of its bytes moves: that nobody can change them has to be known.
fn may_leave(writers: Writers) -> Result<(), Unfinished> {
    match writers {
        Writers::Nobody => Ok(()),
        Writers::Somebody => later("a program has it mapped for writing"),
        Writers::Unknown => Err(Unfinished::Failed(NO_LEASES.to_owned())),
    }
}

/// Waits until nobody uses the object of a file whose lock is held, so that nobody begins to. Who has got it before may be about to write, by a handle
/// that was closed meanwhile.
fn is_let_go(fd: &Arc<OwnedFd>) -> bool {
    let until = Moment::now() + HELD;
    while Arc::strong_count(fd) > 1 {
        if Moment::now() >= until {
            return false;
        }
        crate::clock::sleep(BRIEF);
    }
    true
}

fn later<T>(why: &str) -> Result<T, Unfinished> {
    Err(Unfinished::Later(why.to_owned()))
}

fn unreadable(e: &DiskError) -> Unfinished {
    Unfinished::Failed(format!("{e}; it stays where it is: look at the disk, and run `thermo check`"))
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.node.close_file(self.handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use types::api::{FileApi, Opened};

    const READS: OpenFlags = OpenFlags {
        read: true,
        write: false,
        truncate: false,
        append: false,
        nonblock: false,
        exclusive: false,
    };
    const WRITES: OpenFlags = OpenFlags { write: true, ..READS };

    struct Site {
        node: Arc<Node>,
        ino: Ino,
        object: ObjectId,
        _dir: tempfile::TempDir,
    }

    impl Site {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
            let cx = Cx::admin(crate::now());
            let made = node.create(&cx, Ino::ROOT, b"file", 0o644, WRITES).unwrap();
            rustix::io::pwrite(made.backing.as_ref().unwrap(), b"some bytes", 0).unwrap();
            node.release(made.handle);
            let ino = made.attr.ino;
            drop(made);
            let object = node.catalog.inode(ino).unwrap().file.unwrap().object.unwrap();
            Self { node, ino, object, _dir: dir }
        }

        fn open(&self, flags: OpenFlags) -> Opened {
            self.node.open(&Cx::admin(crate::now()), self.ino, flags).unwrap()
        }

        fn begin(&self) -> Result<Leaving<'_>, Unfinished> {
            Leaving::begin(&self.node, self.ino, self.object)
        }

        /// A child that another test starts has copies of our descriptors until it executes.
        fn begun(&self) -> Leaving<'_> {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
            loop {
                match self.begin() {
                    Ok(leaving) => return leaving,
                    Err(Unfinished::Later(_)) if std::time::Instant::now() < deadline => {
                        std::thread::sleep(std::time::Duration::from_millis(5));
                    }
                    Err(why) => panic!("{why:?}"),
                }
            }
        }

        fn waits(&self, why: &str) {
            match self.begin() {
                Err(Unfinished::Later(said)) => assert!(said.contains(why), "{said}"),
                other => panic!("{:?}", other.err()),
            }
        }
    }

    #[test]
    fn a_file_that_somebody_has_open_or_mapped_does_not_leave() {
        let site = Site::new();
        for flags in [READS, WRITES] {
            let opened = site.open(flags);
            site.waits("has it open");
            site.node.release(opened.handle);
        }
        // A mapping outlives its descriptor; the kernel sees no difference.
        let mapping = site.open(WRITES);
        site.node.release(mapping.handle);
        site.waits("mapped");
        drop(mapping);
        drop(site.begun());
        site.node.stop(true);
    }

    #[test]
    fn who_opens_a_file_that_leaves_does_not_get_its_object_and_a_writer_keeps_it_there() {
        let site = Site::new();
        let leaving = site.begun();
        assert_eq!(leaving.length(), 10);
        let reader = site.open(READS);
        assert!(reader.backing.is_none() && leaving.is_left_alone().is_ok());
        let writer = site.open(WRITES);
        assert!(writer.backing.is_none());
        let said = leaving.is_left_alone().unwrap_err();
        assert!(matches!(&said, Unfinished::Later(why) if why.contains("writing")), "{said:?}");
        site.node.write(writer.handle, 0, b"other").unwrap();
        site.node.release(writer.handle);
        let said = leaving.is_left_alone().unwrap_err();
        assert!(matches!(&said, Unfinished::Later(why) if why.contains("changed")), "{said:?}");
        drop(leaving);
        site.node.release(reader.handle);
        let opened = site.open(READS);
        assert!(opened.backing.is_some(), "nothing is in its way any more");
        site.node.release(opened.handle);
        site.node.stop(true);
    }

    #[test]
    fn an_object_that_is_read_or_written_at_this_moment_is_waited_for() {
        let site = Site::new();
        let leaving = site.begun();
        let used = site.node.open.with(site.ino, |_, state| state.backing.clone()).unwrap();
        let is_let_go = || {
            site.node
                .open
                .with(site.ino, |_, state| is_let_go(state.backing.as_ref().and_then(Backing::fd).unwrap()))
        };
        assert!(!is_let_go());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(BRIEF);
                drop(used);
            });
            while !is_let_go() {}
        });
        drop(leaving);
        site.node.stop(true);
    }

    #[test]
    fn what_is_copied_of_a_file_with_holes_is_every_piece_with_data_once() {
        let site = Site::new();
        let opened = site.open(WRITES);
        for at in [STEP - 1, STEP + 8192, 6 * STEP + 5] {
            rustix::io::pwrite(opened.backing.as_ref().unwrap(), b"ab", at).unwrap();
        }
        site.node.release(opened.handle);
        drop(opened);
        let leaving = site.begun();
        let pieces: Vec<Range<u64>> = leaving.pieces().map(Result::unwrap).collect();
        assert_eq!(pieces, [0..STEP, STEP..2 * STEP, 6 * STEP..6 * STEP + 7]);
        drop(leaving);
        site.node.stop(true);
    }

    #[test]
    fn a_file_whose_length_is_set_or_that_was_written_when_the_node_died_is_not_taken_for_what_it_was() {
        let site = Site::new();
        let leaving = site.begun();
        site.node.truncate(&Cx::admin(crate::now()), site.ino, 4).unwrap();
        assert!(leaving.is_left_alone().is_err());
        drop(leaving);
        let recorded = |site: &Site| site.node.catalog.inode(site.ino).unwrap().file.unwrap().stamp;
        let before = recorded(&site).unwrap();
        site.node.catalog.mark_writing(site.ino).unwrap();
        let leaving = site.begun();
        assert_eq!(leaving.length(), 4);
        let known = recorded(&site);
        assert!(
            known.is_some_and(|known| known.same_content(&leaving.stamp) && !known.same_content(&before))
        );
        assert!(!site.node.catalog.is_writing(site.ino).unwrap(), "it is closed as it is");
        drop(leaving);
        site.node.stop(true);
    }

    #[test]
    fn where_the_kernel_does_not_say_who_writes_a_file_does_not_leave() {
        assert!(may_leave(Writers::Nobody).is_ok());
        assert!(
            matches!(may_leave(Writers::Somebody), Err(Unfinished::Later(why)) if why.contains("mapped"))
        );
        assert!(
            matches!(may_leave(Writers::Unknown), Err(Unfinished::Failed(why)) if why.contains("leases"))
        );
    }

    #[test]
    fn a_file_that_is_removed_while_it_leaves_is_left_to_go() {
        let site = Site::new();
        let leaving = site.begun();
        assert!(leaving.is_there().is_ok());
        site.node.unlink(&Cx::admin(crate::now()), Ino::ROOT, b"file").unwrap();
        assert!(matches!(leaving.is_there(), Err(Unfinished::Later(why)) if why.contains("removed")));
        drop(leaving);
        assert_eq!(site.node.catalog.inode(site.ino).map_err(|e| e.fs()), Err(FsError::NotFound));
        site.node.stop(true);
    }

    #[test]
    fn a_file_whose_bytes_are_not_those_on_record_stays_where_it_is() {
        let site = Site::new();
        let mut leaving = site.begun();
        let read = |bytes: &[u8]| {
            let mut hash = FileHash::new();
            hash.add(0, bytes);
            hash
        };
        assert!(leaving.known.is_none() && leaving.is_as_recorded(FileHash::new()).is_ok());
        leaving.known = read(b"some bytes").finish(10);
        assert!(leaving.is_as_recorded(read(b"some bytes")).is_ok());
        for wrong in [b"some bites".as_slice(), b"some byte", b""] {
            let said = leaving.is_as_recorded(read(wrong));
            assert!(
                matches!(&said, Err(Unfinished::Failed(why)) if why.contains("/file (inode")),
                "{said:?}"
            );
        }
        drop(leaving);
        site.node.stop(true);
    }
}
