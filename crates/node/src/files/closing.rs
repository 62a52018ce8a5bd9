//! Closing files on targets that somebody wrote. Each one is made durable first, which nobody waits for; a file system that is told to make
//! one file durable does so for all that changed until then (ext4 and XFS write their journal as a whole), so those that are closed within a
//! moment are made durable together: one by one, they keep the disk from everything else.

use super::open::OpenFile;
use crate::Node;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long those that are closed wait for others.
const GATHER: Duration = Duration::from_millis(20);
/// Who is closed so much later than the one before does not wait.
const ALONE: Duration = Duration::from_millis(100);

/// Files that wait for others.
#[derive(Default)]
pub(crate) struct Closings(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    files: Vec<Arc<OpenFile>>,
    last: Option<Instant>,
}

/// What becomes of one that is closed.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// It goes on at once.
    Now,
    /// It is the first that waits: it takes all after a moment.
    Leads,
    /// Another one takes it along.
    Follows,
}

impl Closings {
    fn enter(&self, file: &Arc<OpenFile>, now: Instant) -> Turn {
        let mut waiting = self.0.lock();
        let before = waiting.last.replace(now);
        if waiting.files.is_empty() && before.is_none_or(|last| now.duration_since(last) > ALONE) {
            return Turn::Now;
        }
        waiting.files.push(file.clone());
        if waiting.files.len() == 1 { Turn::Leads } else { Turn::Follows }
    }

    fn take(&self) -> Vec<Arc<OpenFile>> {
        std::mem::take(&mut self.0.lock().files)
    }
}

impl Node {
    /// Closes a handle that is no longer in the table, once what was written through it is durable. No thread of a gateway waits for that, nor
    /// for a target that may not answer.
    pub(super) fn close_written(self: Arc<Self>, file: Arc<OpenFile>) {
        match self.movers.closings.enter(&file, Instant::now()) {
            Turn::Now => self.close_behind(file),
            Turn::Follows => {}
            Turn::Leads => {
                let node = self.clone();
                self.movers.run(Box::new(move || {
                    node.stops_within(GATHER);
                    node.movers.closings.take().into_iter().for_each(|file| node.close_behind(file));
                }));
            }
        }
    }

    fn close_behind(self: &Arc<Self>, file: Arc<OpenFile>) {
        let node = self.clone();
        self.movers.run(Box::new(move || {
            node.settle_written(&file);
            node.close_removed(&file);
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use types::api::{FileApi, OpenFlags};
    use types::{Cx, Ino};

    #[test]
    fn who_is_closed_alone_waits_for_nobody_and_the_first_of_many_takes_all() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let made = node.create(&Cx::admin(crate::now()), Ino::ROOT, b"file", 0o644, flags).unwrap();
        let file = node.open.handle(made.handle).unwrap();
        let (closings, start) = (Closings::default(), Instant::now());
        let at = |ms| closings.enter(&file, start + Duration::from_millis(ms));
        assert_eq!([at(0), at(101), at(300)], [Turn::Now, Turn::Now, Turn::Now]);
        assert_eq!([at(310), at(311), at(400)], [Turn::Leads, Turn::Follows, Turn::Follows]);
        // However late: the one that leads takes it along.
        assert_eq!(at(600), Turn::Follows);
        assert_eq!(closings.take().len(), 4);
        assert_eq!([at(650), at(760)], [Turn::Leads, Turn::Follows]);
        assert_eq!(closings.take().len(), 2);
        assert_eq!(at(900), Turn::Now);
        drop(file);
        node.release(made.handle);
        node.stop(true);
    }
}
