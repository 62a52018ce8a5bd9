//! A drive's way through the files that it was given to read, for whoever asks meanwhile when one of them will be there.

use super::times;
use super::worker::{Wanted, Worker};
use crate::Node;
use crate::clock::Moment;
use parking_lot::Mutex;
use sched::{Calibration, Pass, RecallItem, Span, Stands};
use std::sync::Arc;
use std::time::Duration;
use types::{Barcode, Time};

/// What drives have taught meanwhile counts for the rest of a batch after so long: to work it out anew costs what it costs for all
/// files of the batch.
const RELEARN_EVERY: Duration = Duration::from_secs(2);

/// See the module.
pub struct Passing(Mutex<Inner>);

struct Inner {
    pass: Pass,
    /// The drive began with the way to the present file.
    since: Moment,
    /// Bytes of it that have come.
    came: u64,
    known: Arc<Calibration>,
    learnt: Moment,
}

impl Passing {
    /// A drive that stands at block `from` begins with these.
    pub fn new(worker: &Worker, volume: &Barcode, from: u64, wanted: &[Wanted]) -> Self {
        let item = |one: &Wanted| super::recalls::recall_item(0, &one.queued.segment, 0, Time::default());
        let order: Vec<RecallItem> = wanted.iter().map(item).collect();
        let (known, model) = (worker.node.archive.times.known(), times::mechanics(&worker.node, volume));
        let pass = Pass::new(&known, worker.no, model, from, order);
        let now = Moment::now();
        Self(Mutex::new(Inner { pass, since: now, came: 0, known, learnt: now }))
    }

    /// The drive begins with the way to file `n`.
    pub fn begin(&self, node: &Node, n: usize) {
        let mut inner = self.0.lock();
        (inner.since, inner.came) = (Moment::now(), 0);
        inner.pass.begin(n);
        if inner.learnt.elapsed() >= RELEARN_EVERY {
            inner.known = node.archive.times.known();
            let known = inner.known.clone();
            inner.pass.relearn(&known);
            inner.learnt = Moment::now();
        }
    }

    /// Bytes of the present file have come.
    pub fn came(&self, bytes: usize) {
        self.0.lock().came += bytes as u64;
    }

    /// From now until file `n` begins to come and is there.
    pub fn left(&self, n: usize) -> Option<(Span, Span)> {
        let inner = self.0.lock();
        inner.pass.left(&inner.known, n, inner.stands())
    }

    /// From now until the last file is there, as likely longer as shorter.
    pub fn end(&self) -> Duration {
        let inner = self.0.lock();
        let left_s = inner.pass.end(&inner.known, inner.stands()).p50_s();
        Duration::try_from_secs_f64(left_s).unwrap_or_default()
    }
}

impl Inner {
    fn stands(&self) -> Stands {
        Stands { gone_s: self.since.elapsed().as_secs_f64(), came: self.came }
    }
}
