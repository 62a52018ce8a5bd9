//! What each worker does with one entry, and what all workers share.

use super::content::{Content, changed};
use super::finish::{Batch, Entry};
use super::tree::{Item, Sink, Source};
use super::{Event, Options, Summary, Watch};
use crate::ClientError;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::{ErrorClass, FileKind};

type Done<T> = Result<T, ClientError>;

/// Attempts for an entry for which the node has no room or no time at the moment.
const ATTEMPTS: u32 = 12;

/// An entry to copy that is not a directory.
pub struct Job<S, D> {
    /// Entry.
    pub item: Item<S>,
    /// Its path.
    pub path: Vec<u8>,
    /// Directory of the copy.
    pub parent: D,
    /// Name of the copy.
    pub name: Vec<u8>,
}

/// Device and inode of an entry with several names.
pub type LinkKey = (u64, u64);

/// State that the workers of one pass share.
pub struct Shared<'a, P> {
    /// How to copy.
    pub options: &'a Options,
    /// Who is told.
    pub watch: Watch<'a>,
    /// Counts so far.
    pub summary: Mutex<Summary>,
    /// Copies of entries with several names.
    pub linked: Mutex<HashMap<LinkKey, Item<P>>>,
    stopped: AtomicBool,
}

impl<'a, P> Shared<'a, P> {
    /// Nothing done yet.
    pub fn new(options: &'a Options, watch: Watch<'a>) -> Self {
        Self {
            options,
            watch,
            summary: Mutex::default(),
            linked: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Whether the pass ends early.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends the pass early; the first reason is kept.
    pub fn fatal(&self, error: ClientError) {
        self.stopped.store(true, Ordering::Relaxed);
        self.summary.lock().fatal.get_or_insert(error);
    }

    /// Counts a failure; one that all others would meet too ends the pass.
    pub fn failed(&self, path: &[u8], error: ClientError) {
        if error.no_node() {
            return self.fatal(error);
        }
        self.refused(path, &error);
        if error.class() == ErrorClass::NoSpace {
            self.fatal(error);
        }
    }

    /// Counts a failure, unless the pass will be repeated anyway.
    pub fn refused(&self, path: &[u8], error: &ClientError) {
        if !error.no_node() {
            self.summary.lock().failed += 1;
            (self.watch)(Event::Failed { path, error });
        }
    }

    /// Counts a loss that is no failure.
    pub fn warn(&self, path: &[u8], problem: &ClientError) {
        self.summary.lock().warnings += 1;
        (self.watch)(Event::Warning { path, problem });
    }

    /// Counts an entry whose last step had this result.
    pub fn complete(&self, entry: &Entry<P>, result: Done<()>) {
        if let Err(e) = result {
            return self.failed(&entry.path, e);
        }
        let mut summary = self.summary.lock();
        match entry.attr.kind {
            FileKind::File => {
                summary.files += 1;
                summary.bytes += entry.attr.size;
            }
            FileKind::Directory => summary.directories += 1,
            _ => summary.others += 1,
        }
        drop(summary);
        (self.watch)(Event::Done { path: &entry.path });
    }
}

/// One worker with its own access to both trees.
pub struct Worker<'a, S: Source, D: Sink> {
    /// Tree to read.
    pub source: S,
    /// Tree to write.
    pub sink: D,
    /// Shared state.
    pub shared: &'a Shared<'a, D::Place>,
    /// Entries to be finished.
    pub batch: Batch<D::Place>,
}

impl<S: Source, D: Sink> Worker<'_, S, D> {
    /// Copies an entry; waits and tries again while the node makes room.
    pub fn handle(&mut self, job: &Job<S::Place, D::Place>) {
        for attempt in 1.. {
            if self.shared.stopped() {
                return;
            }
            let Err(error) = self.copy(job) else { return };
            let passing = match error.class() {
                ErrorClass::NoSpace => self.sink.makes_room(),
                ErrorClass::Retry | ErrorClass::Busy => matches!(error, ClientError::Refused(_)),
                _ => false,
            };
            if !passing || attempt == ATTEMPTS {
                return self.shared.failed(&job.path, error);
            }
            self.batch.flush(&mut self.sink, self.shared);
            std::thread::sleep(Duration::from_millis(250 * u64::from(attempt.min(12))));
        }
    }

    fn copy(&mut self, job: &Job<S::Place, D::Place>) -> Done<()> {
        let existing = self.sink.lookup(&job.parent, &job.name)?;
        if let Some(old) = &existing {
            if old.attr.kind == FileKind::Directory {
                let problem = "there is a directory of that name at the destination; move it away first";
                return Err(ClientError::tree(&job.path, ErrorClass::Namespace, problem));
            }
            if !self.shared.options.overwrite && self.same(job, old)? {
                self.remember(job)?;
                self.shared.summary.lock().skipped += 1;
                (self.shared.watch)(Event::Skipped { path: &job.path, bytes: job.item.attr.size });
                return Ok(());
            }
        }
        let place = match job.item.attr.kind {
            FileKind::File => self.copy_file(job, existing)?,
            _ => self.copy_other(job, existing.is_some())?,
        };
        copy_xattrs(&mut self.source, &mut self.sink, self.shared, (&job.item.place, &place), &job.path)?;
        self.remember(job)?;
        let entry = Entry { place, attr: job.item.attr.clone(), path: job.path.clone() };
        self.batch.add(entry, &mut self.sink, self.shared);
        Ok(())
    }

    fn same(&mut self, job: &Job<S::Place, D::Place>, old: &Item<D::Place>) -> Done<bool> {
        let (a, b) = (&job.item.attr, &old.attr);
        // Where one name was meant, writing would change others.
        let alike = a.kind == b.kind && a.mtime == b.mtime && (a.nlink > 1 || b.nlink == 1);
        Ok(match a.kind {
            FileKind::File | FileKind::Symlink => alike && a.size == b.size,
            _ => alike && a.rdev == b.rdev,
        })
    }

    /// Notes the copy of an entry that has more names.
    fn remember(&mut self, job: &Job<S::Place, D::Place>) -> Done<()> {
        if job.item.attr.nlink < 2 {
            return Ok(());
        }
        let copy = self.sink.lookup(&job.parent, &job.name)?.ok_or_else(|| changed(&job.path))?;
        self.shared.linked.lock().insert((job.item.dev, job.item.attr.ino.0), copy);
        Ok(())
    }

    fn copy_file(
        &mut self,
        job: &Job<S::Place, D::Place>,
        existing: Option<Item<D::Place>>,
    ) -> Done<D::Place> {
        let from = self.source.open(&job.item.place)?;
        let result = self.copy_opened(job, existing, &from);
        let closed = self.source.close(from);
        let place = result?;
        closed?;
        let now = self.source.attr(&job.item.place)?;
        if (now.size, now.mtime) != (job.item.attr.size, job.item.attr.mtime) {
            return Err(changed(&job.path));
        }
        Ok(place)
    }

    fn copy_opened(
        &mut self,
        job: &Job<S::Place, D::Place>,
        existing: Option<Item<D::Place>>,
        from: &super::Open,
    ) -> Done<D::Place> {
        let (place, to) = match existing {
            Some(old) if old.attr.kind == FileKind::File && old.attr.nlink == 1 => {
                let open = self.sink.rewrite(&old.place)?;
                (old.place, open)
            }
            other => {
                if other.is_some() {
                    self.sink.remove(&job.parent, &job.name)?;
                }
                self.sink.create(&job.parent, &job.name)?
            }
        };
        let watch = self.shared.watch;
        let mut content = Content {
            source: &mut self.source,
            from,
            sink: &mut self.sink,
            place: &place,
            to: &to,
            attr: &job.item.attr,
            path: &job.path,
            moved: &|bytes| watch(Event::Bytes(bytes)),
        };
        let copied = content.copy();
        let closed = self.sink.close(to);
        copied.and(closed).map(|()| place)
    }

    fn copy_other(&mut self, job: &Job<S::Place, D::Place>, exists: bool) -> Done<D::Place> {
        if exists {
            self.sink.remove(&job.parent, &job.name)?;
        }
        if job.item.attr.kind == FileKind::Symlink {
            let target = self.source.link_target(&job.item.place)?;
            return self.sink.symlink(&job.parent, &job.name, &target);
        }
        self.sink.mknod(&job.parent, &job.name, &job.item.attr)
    }
}

/// Copies extended attributes. Those that describe residency stay behind; others that the destination refuses are a warning.
pub fn copy_xattrs<S: Source, D: Sink>(
    source: &mut S,
    sink: &mut D,
    shared: &Shared<'_, D::Place>,
    (from, to): (&S::Place, &D::Place),
    path: &[u8],
) -> Done<()> {
    for (name, value) in source.xattrs(from)? {
        if name.starts_with(b"user.thermo.") {
            continue;
        }
        match sink.set_xattr(to, &name, &value) {
            Err(e) if e.no_node() => return Err(e),
            Err(e) => shared.warn(path, &e),
            Ok(()) => {}
        }
    }
    Ok(())
}
