//! When requests will begin and end: worked out for all at once, and kept for a little while, because in a large system it
//! costs as much as a plan.

use super::look::{mechanics, with_view, with_volumes};
use super::passing::Passing;
use super::state::{Recall, State};
use crate::Node;
use crate::clock::Moment;
use parking_lot::Mutex;
use sched::{Calibration, Eta, Forecast, Mechanics, SchedView, Span};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use types::*;

/// A forecast is used for so many times as long as it took to make.
const USED: u32 = 20;

/// Where so many volumes are wanted, the archive service makes the next forecast when somebody has asked: whoever asks would wait
/// for it too long, and what a minute ago was expected in hours has changed little.
const MANY: usize = 2_000;
/// But not for longer than this.
const DOES_FOR: Duration = Duration::from_secs(60);

/// The forecast made last.
#[derive(Default)]
pub struct Outlooks(Mutex<Option<Outlook>>);

struct Outlook {
    made: Moment,
    took: Duration,
    /// Somebody wants to know, and it is old.
    asked: bool,
    times: Arc<Calibration>,
    forecast: Forecast,
    volumes: HashMap<Barcode, HashMap<u64, Eta>>,
}

/// A time from now on.
#[derive(Clone, Copy, Debug, Default)]
struct When {
    p50_s: f64,
    p90_s: f64,
}

impl When {
    fn of(span: Span, made: Moment) -> Self {
        let gone = made.elapsed().as_secs_f64();
        Self { p50_s: (span.p50_s() - gone).max(0.0), p90_s: (span.p90_s() - gone).max(0.0) }
    }

    fn max(self, other: Self) -> Self {
        Self { p50_s: self.p50_s.max(other.p50_s), p90_s: self.p90_s.max(other.p90_s) }
    }

    fn min(self, other: Self) -> Self {
        Self { p50_s: self.p50_s.min(other.p50_s), p90_s: self.p90_s.min(other.p90_s) }
    }
}

/// Estimate of some files, and the best place that one of them has in the queues.
pub struct Expected {
    /// Begin and end.
    pub estimate: Estimate,
    /// Place; 0 when a drive has one of them.
    pub position: u64,
}

/// What is known of files that are being recalled, apart from the forecast.
#[derive(Default)]
struct Known {
    /// Volumes and queue items that wait for a drive.
    waiting: Vec<(Barcode, u64)>,
    /// What drives have, and where on their ways.
    reading: Vec<(Arc<Passing>, usize)>,
    /// One has been read, and is on its way to stable storage.
    read: bool,
}

impl Known {
    fn of(node: &Node, files: &[Ino]) -> Self {
        let state = node.archive.state.lock();
        let mut known = Self::default();
        for recall in files.iter().filter_map(|ino| state.files.get(ino)) {
            known.waiting.extend(waiting(&state, recall).map(|(volume, id)| (volume.clone(), id)));
            known.reading.extend(recall.in_drives());
            known.read |= recall.left == 0;
        }
        known
    }
}

/// Whoever is about to ask for many requests, of these files in all, has what they need looked up at once: the scheduler's view is
/// made once for all of them.
pub fn prepare(node: &Node, files: &[Ino]) {
    let waiting = Known::of(node, files).waiting;
    look_up(node, &mut node.archive.outlook.0.lock(), &waiting);
}

/// Sees to it that there is a forecast that is not too old, and in it these volumes.
fn look_up(node: &Node, kept: &mut Option<Outlook>, waiting: &[(Barcode, u64)]) {
    kept.take_if(|o| {
        o.asked |= o.is_old();
        o.is_old() && !o.does(waiting) || o.lacks(waiting)
    });
    let outlook =
        kept.get_or_insert_with(|| with_view(node, |view, _| Outlook::new(view, node.archive.times.known())));
    let volumes = waiting.iter().map(|(volume, _)| volume);
    let lacking: HashSet<&Barcode> =
        volumes.filter(|volume| !outlook.volumes.contains_key(*volume)).collect();
    if !lacking.is_empty() {
        with_volumes(node, &lacking, |view, _| {
            lacking.iter().for_each(|volume| outlook.look_up(view, volume))
        });
    }
}

/// Makes a new forecast if somebody has asked, and the one that there is was too old for him.
pub fn renew(node: &Node) {
    let kept = &node.archive.outlook.0;
    // Whoever has it in hand makes one himself.
    if kept.try_lock().is_some_and(|kept| kept.as_ref().is_some_and(|o| o.asked)) {
        let new = with_view(node, |view, _| Outlook::new(view, node.archive.times.known()));
        *kept.lock() = Some(new);
    }
}

/// When these files begin to come and are all there; None when nothing can be said. `all`: there are no more of the request
/// than these.
pub fn expected(node: &Node, files: &[Ino], all: bool) -> Option<Expected> {
    let Known { waiting, reading, read } = Known::of(node, files);
    let mut kept = node.archive.outlook.0.lock();
    look_up(node, &mut kept, &waiting);
    let outlook = kept.as_ref()?;
    let mut sum = None::<(When, When, u64)>;
    let mut seen = |start: When, finish: When, at: u64| {
        let joined =
            |(first, last, place): (When, When, u64)| (first.min(start), last.max(finish), place.min(at));
        sum = Some(sum.map_or((start, finish, at), joined));
    };
    for eta in waiting.iter().filter_map(|(volume, id)| outlook.of(volume, *id)) {
        let at = eta.position + eta.volumes_ahead;
        seen(When::of(eta.start, outlook.made), When::of(eta.finish, outlook.made), at);
    }
    let now = Moment::now();
    for (start, finish) in reading.iter().filter_map(|(passing, nth)| passing.left(*nth)) {
        seen(When::of(start, now), When::of(finish, now), 0);
    }
    if read {
        seen(When::default(), When::default(), 0);
    }
    if !all {
        let done = When::of(outlook.forecast.done(), outlook.made);
        seen(done, done, u64::MAX);
    }
    let (first, last, position) = sum?;
    Some(Expected { estimate: estimate(first, last), position })
}

fn estimate(first: When, last: When) -> Estimate {
    let up = |seconds: f64| seconds.ceil() as u64;
    Estimate {
        start_p50_s: up(first.p50_s),
        start_p90_s: up(first.p90_s),
        finish_p50_s: up(last.p50_s),
        finish_p90_s: up(last.p90_s),
    }
}

/// Volumes and queue items of a recall that wait for a drive.
fn waiting<'s>(state: &'s State, recall: &'s Recall) -> impl Iterator<Item = (&'s Barcode, u64)> {
    recall.queued.iter().filter_map(|id| Some((&state.segments.get(id)?.segment.volume, *id)))
}

impl Outlook {
    fn new(view: &SchedView<'_>, times: Arc<Calibration>) -> Self {
        let made = Moment::now();
        let forecast = Forecast::new(view, &times);
        Self { made, took: made.elapsed(), asked: false, times, forecast, volumes: HashMap::new() }
    }

    fn is_old(&self) -> bool {
        self.made.elapsed() > self.took * USED
    }

    /// Whether it does until the next one, although it is old.
    fn does(&self, waiting: &[(Barcode, u64)]) -> bool {
        let knows = || waiting.iter().all(|(volume, _)| self.forecast.knows(volume));
        self.forecast.volumes() >= MANY && self.made.elapsed() <= DOES_FOR && knows()
    }

    /// Whether one of these volumes was not wanted yet when it was made, and nobody has asked for that one since.
    fn lacks(&self, waiting: &[(Barcode, u64)]) -> bool {
        waiting.iter().any(|(volume, _)| !self.forecast.knows(volume) && !self.volumes.contains_key(volume))
    }

    fn look_up(&mut self, view: &SchedView<'_>, volume: &Barcode) {
        if !self.volumes.contains_key(volume) {
            let begun = Moment::now();
            let known = self.forecast.of(view, &self.times, volume);
            self.took += begun.elapsed();
            self.volumes.insert(volume.clone(), known);
        }
    }

    /// What came after the forecast was made is expected at the end of its volume.
    fn of(&self, volume: &Barcode, id: u64) -> Option<Eta> {
        let known = self.volumes.get(volume)?;
        known.get(&id).or_else(|| known.values().max_by_key(|eta| eta.position)).copied()
    }
}

/// A drive's job says how it gets on when it has run for so long (seconds).
const TELLING_S: f64 = 1.0;

/// When so many files and bytes will be on tape that drives write now, or will once they have a volume.
pub fn writing(node: &Node, files: u64, bytes: u64) -> Estimate {
    let (times, model) = (node.archive.times.known(), mechanics(node));
    let state = node.archive.state.lock();
    let busy: Vec<_> = state.drives.values().filter(|d| *d.status == DriveStatus::Migrating).collect();
    let drive = busy.first().copied().or_else(|| state.drives.values().next()).map_or(DriveNo(0), |d| d.no);
    let share = busy.len().max(1) as f64;
    let mut write = times.writing(drive, model.transfer(bytes) / share, files as f64 / share);
    // What the drives do now says more than what they did before.
    let (mut took_s, mut expected_s) = (0.0, 0.0);
    for (job_s, bytes, files) in busy.iter().filter_map(|d| d.progress.moved()) {
        took_s += job_s;
        expected_s += times.writing(drive, model.transfer(bytes), files as f64).mean_s;
    }
    if took_s >= TELLING_S * share && expected_s > 0.0 {
        let scale = took_s / expected_s;
        write = Span { mean_s: write.mean_s * scale, variance: write.variance * scale * scale };
    }
    let start = if busy.is_empty() { times.mount(drive, &model) } else { Span::default() };
    let now = Moment::now();
    estimate(When::of(start, now), When::of(start + write, now))
}

/// Expected length of a robot's and drive's job, for [`sched::Busy::until`].
pub fn job_s(times: &Calibration, model: &Mechanics, drive: DriveNo, work: sched::Work) -> Option<f64> {
    match work {
        sched::Work::Mount => Some(times.mount(drive, model).p50_s()),
        sched::Work::Unmount => Some(times.unmount(drive, model).p50_s()),
        sched::Work::Recall | sched::Work::Migrate | sched::Work::Maintain => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Rig;
    use super::*;
    use sched::{Drive, Limits, Place, RecallItem, RecallQueue, Tape};
    use std::collections::{BTreeMap, BTreeSet};

    fn volume(n: usize) -> Barcode {
        Barcode::from(format!("{n:06}L9").as_str())
    }

    /// A forecast for so many volumes that one drive reads, and which is old at once.
    fn outlook(volumes: usize) -> Outlook {
        let tape = Tape {
            state: VolumeState::Full,
            pool: None,
            place: Place::Library(LibraryNo(0)),
            written: 0,
            free: 0,
            generation: Some(Generation::Lto9),
            wraps: false,
            worm: false,
        };
        let mut queue = RecallQueue::default();
        queue.insert(RecallItem { id: 1, bytes: 1, priority: 5, ..RecallItem::default() });
        let (robots, none) = (BTreeSet::new(), BTreeMap::new());
        let view = SchedView {
            now: crate::now(),
            drives: &[Drive { reach: Reach::of(Generation::Lto9), ..Drive::new(DriveNo(0)) }],
            volumes: &(0..volumes).map(|n| (volume(n), tape.clone())).collect(),
            recalls: &(0..volumes).map(|n| (volume(n), queue.clone())).collect(),
            writes: &none,
            maintenance: &[],
            robots_busy: &robots,
            robots_troubled: &robots,
            disk_pressure: false,
            limits: &Limits::default(),
            mechanics: &Mechanics::default(),
            accounts: &sched::Accounts::default(),
            heat: &sched::Heat::default(),
        };
        let outlook = Outlook::new(&view, Arc::default());
        assert_eq!(outlook.forecast.volumes(), volumes);
        Outlook { took: Duration::ZERO, ..outlook }
    }

    #[test]
    fn where_very_many_volumes_are_wanted_whoever_asks_does_not_wait_for_a_new_forecast() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        // From here on it is made when the test says so; of this node it tells of no volume.
        node.archive.stop(false);
        let asked = |many: usize, waiting: Barcode| {
            let mut kept = node.archive.outlook.0.lock();
            *kept = Some(outlook(many));
            look_up(node, &mut kept, &[(waiting, 1)]);
            kept.as_ref().map(|kept| (kept.forecast.volumes(), kept.asked))
        };
        assert_eq!(asked(MANY - 1, volume(7)), Some((0, false)), "it is made at once");
        assert_eq!(asked(MANY, volume(MANY)), Some((0, false)), "nothing is known of the volume");
        assert_eq!(asked(MANY, volume(7)), Some((MANY, true)), "the old one does");
        let known = || node.archive.outlook.0.lock().as_ref().map(|kept| kept.forecast.volumes());
        renew(node);
        assert_eq!(known(), Some(0));
        *node.archive.outlook.0.lock() = Some(outlook(MANY));
        renew(node);
        assert_eq!(known(), Some(MANY), "nobody has asked");
    }
}
