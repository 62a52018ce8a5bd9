//! One pass of a copy: a walker makes directories and hands entries to workers; hard links and the attributes of
//! directories come last. Memory grows with the number of directories and of entries with several names, not of files.

use super::finish::{Batch, Entry};
use super::tree::{Item, Seed, Sink, Source};
use super::worker::{Job, LinkKey, Shared, Worker, copy_xattrs};
use super::{Event, Options, Summary, Watch};
use crate::ClientError;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashSet;
use types::{ErrorClass, FileKind};

type Done<T> = Result<T, ClientError>;
type Make<'a, T> = &'a (dyn Fn() -> Done<T> + Sync);

/// Entries that wait for a worker.
const QUEUE: usize = 256;

/// Copies what the seeds name, once. Entries that fail are reported and the rest goes on.
///
/// # Errors
/// One of the trees cannot be opened at all.
pub fn copy_trees<S: Source, D: Sink>(
    source: Make<'_, S>,
    sink: Make<'_, D>,
    seeds: Vec<Seed<S::Place, D::Place>>,
    options: &Options,
    watch: Watch<'_>,
) -> Done<Summary> {
    let shared = Shared::new(options, watch);
    let (jobs, queue) = bounded(QUEUE);
    let mut walker = Walker {
        source: source()?,
        sink: sink()?,
        shared: &shared,
        jobs: Some(jobs),
        seen: HashSet::new(),
        links: Vec::new(),
        directories: Vec::new(),
    };
    std::thread::scope(|scope| {
        for _ in 0..options.workers.max(1) {
            let (queue, shared) = (queue.clone(), &shared);
            scope.spawn(move || work(source, sink, &queue, shared));
        }
        drop(queue);
        for seed in seeds {
            walker.seed(seed);
        }
        walker.jobs = None;
    });
    walker.end();
    Ok(shared.summary.into_inner())
}

fn work<S: Source, D: Sink>(
    source: Make<'_, S>,
    sink: Make<'_, D>,
    queue: &Receiver<Job<S::Place, D::Place>>,
    shared: &Shared<'_, D::Place>,
) {
    let trees = source().and_then(|source| Ok((source, sink()?)));
    let (source, sink) = match trees {
        Ok(trees) => trees,
        Err(e) => {
            shared.fatal(e);
            queue.iter().for_each(drop);
            return;
        }
    };
    let mut worker = Worker { source, sink, shared, batch: Batch::default() };
    for job in queue {
        worker.handle(&job);
    }
    worker.batch.flush(&mut worker.sink, shared);
}

struct Link<D> {
    key: LinkKey,
    parent: D,
    name: Vec<u8>,
    path: Vec<u8>,
}

struct Walker<'a, S: Source, D: Sink> {
    source: S,
    sink: D,
    shared: &'a Shared<'a, D::Place>,
    jobs: Option<Sender<Job<S::Place, D::Place>>>,
    seen: HashSet<LinkKey>,
    links: Vec<Link<D::Place>>,
    directories: Vec<Entry<D::Place>>,
}

/// A directory to be walked: source, copy and path.
type Pending<S, D> = (<S as Source>::Place, <D as Sink>::Place, Vec<u8>);

impl<S: Source, D: Sink> Walker<'_, S, D> {
    fn seed(&mut self, seed: Seed<S::Place, D::Place>) {
        let Seed { item, path, parent, name } = seed;
        let mut pending = Vec::new();
        match name {
            Some(name) => self.entry(item, path, &parent, name, &mut pending),
            None => pending.push((item.place, parent, path)),
        }
        while let Some((from, to, path)) = pending.pop() {
            if self.shared.stopped() {
                return;
            }
            self.directory(&from, &to, &path, &mut pending);
        }
    }

    fn directory(&mut self, from: &S::Place, to: &D::Place, path: &[u8], pending: &mut Vec<Pending<S, D>>) {
        // Subdirectories are only noted here: a listing is not interrupted by calls on the same connection.
        let mut below = Vec::new();
        let Self { source, shared, jobs, seen, links, .. } = self;
        let listed = source.children(from, &mut |name, found| {
            let path = crate::join(path, &name);
            match found {
                Err(e) => shared.failed(&path, e),
                Ok(item) if item.attr.kind == FileKind::Directory => below.push((item, path, name)),
                Ok(item) => hand_out(jobs, shared, seen, links, Job { item, path, parent: to.clone(), name }),
            }
            !shared.stopped()
        });
        if let Err(e) = listed {
            self.shared.failed(path, e);
        }
        for (item, path, name) in below {
            self.entry(item, path, to, name, pending);
        }
    }

    fn entry(
        &mut self,
        item: Item<S::Place>,
        path: Vec<u8>,
        parent: &D::Place,
        name: Vec<u8>,
        pending: &mut Vec<Pending<S, D>>,
    ) {
        if item.attr.kind != FileKind::Directory {
            let job = Job { item, path, parent: parent.clone(), name };
            return hand_out(&self.jobs, self.shared, &mut self.seen, &mut self.links, job);
        }
        match self.make_directory(&item, parent, &name, &path) {
            Ok(place) => {
                pending.push((item.place, place.clone(), path.clone()));
                self.directories.push(Entry { place, attr: item.attr, path });
            }
            Err(e) => self.shared.failed(&path, e),
        }
    }

    fn make_directory(
        &mut self,
        item: &Item<S::Place>,
        parent: &D::Place,
        name: &[u8],
        path: &[u8],
    ) -> Done<D::Place> {
        let place = match self.sink.lookup(parent, name)? {
            Some(old) if old.attr.kind == FileKind::Directory => old.place,
            Some(_) => {
                let problem =
                    "the destination has something of that name that is no directory; move it away first";
                return Err(ClientError::tree(path, ErrorClass::Namespace, problem));
            }
            None => self.sink.mkdir(parent, name)?,
        };
        copy_xattrs(&mut self.source, &mut self.sink, self.shared, (&item.place, &place), path)?;
        Ok(place)
    }

    /// When all files are there: hard links, then directories from the deepest up, then one sync for all of it.
    fn end(&mut self) {
        for link in std::mem::take(&mut self.links) {
            if self.shared.stopped() {
                return;
            }
            match self.link(&link) {
                Ok(()) => (self.shared.watch)(Event::Done { path: &link.path }),
                Err(e) => self.shared.failed(&link.path, e),
            }
        }
        for entry in std::mem::take(&mut self.directories).into_iter().rev() {
            if self.shared.stopped() {
                return;
            }
            let finished = self.sink.finish(&entry.place, &entry.attr, self.shared.options.owner);
            self.shared.complete(&entry, finished);
        }
        if let Err(e) = self.sink.sync() {
            self.shared.fatal(e);
        }
    }

    fn link(&mut self, link: &Link<D::Place>) -> Done<()> {
        let first = self.shared.linked.lock().get(&link.key).cloned();
        let first = first.ok_or_else(|| {
            let problem = "is a hard link to a file that could not be copied; see its error";
            ClientError::tree(&link.path, ErrorClass::NotFound, problem)
        })?;
        match self.sink.lookup(&link.parent, &link.name)? {
            Some(old) if (old.dev, old.attr.ino) == (first.dev, first.attr.ino) => return Ok(()),
            Some(_) => self.sink.remove(&link.parent, &link.name)?,
            None => {}
        }
        self.sink.link(&first.place, &link.parent, &link.name)?;
        self.shared.summary.lock().others += 1;
        Ok(())
    }
}

/// Gives an entry to the workers, or notes it as a further name of one that they already got.
fn hand_out<S, D>(
    jobs: &Option<Sender<Job<S, D>>>,
    shared: &Shared<'_, D>,
    seen: &mut HashSet<LinkKey>,
    links: &mut Vec<Link<D>>,
    job: Job<S, D>,
) {
    let key = (job.item.dev, job.item.attr.ino.0);
    if job.item.attr.nlink > 1 && !seen.insert(key) {
        links.push(Link { key, parent: job.parent, name: job.name, path: job.path });
        return;
    }
    let bytes = if job.item.attr.kind == FileKind::File { job.item.attr.size } else { 0 };
    (shared.watch)(Event::Found { bytes });
    if let Some(jobs) = jobs {
        // Fails only when all workers are gone, and then the pass has a fatal error already.
        let _ = jobs.send(job);
    }
}
