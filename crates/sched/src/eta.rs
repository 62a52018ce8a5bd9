//! When a file will be back, and what a request would cost.

use crate::calibration::{Calibration, Span, Timed};
use crate::demand::{InHand, Need, demands};
use crate::volumes::Volumes;
use crate::{DriveState, Layout, Mechanics, RecallItem, RecallQueue, SchedView, Work, recall_order};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use types::{Access, Barcode, DriveNo, LibraryNo, Reach, Time};

/// Longest list whose order is worked out for an estimate.
const WORKED_OUT: usize = 1000;
/// Spread of what is estimated of a queue as a whole, as a share of its locates.
const ROUGH: f64 = 0.1;

/// Estimate for one queued item. Counts from now; a guess that assumes no new work, no writes and no errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eta {
    /// Until its first byte.
    pub start: Span,
    /// Until its last byte.
    pub finish: Span,
    /// Its place in the queue of its volume; 1 is next.
    pub position: u64,
    /// Volumes that get a drive before its own does.
    pub volumes_ahead: u64,
}

/// What the recall of some files would take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quote {
    /// Files, or parts of files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// Volumes.
    pub volumes: u64,
    /// Mounts that would not be made otherwise.
    pub mounts: u64,
    /// Use of drives, with those mounts.
    pub drives: Span,
    /// Until the last file is there.
    pub time: Span,
}

/// When and where a volume stands ready to be read.
#[derive(Clone, Copy, Debug)]
struct Turn {
    ready: Span,
    drive: DriveNo,
    block: u64,
    ahead: u64,
}

/// Which volume gets which drive, and when: worked out once for any number of estimates. It borrows nothing, so that it can
/// be kept for as long as it is true enough.
#[derive(Clone, Debug)]
pub struct Forecast {
    turns: HashMap<Barcode, Turn>,
    /// The drives when everything that waits now is done.
    after: Servers,
}

/// Drives that are alike, the first to be free on top.
#[derive(Clone, Debug, Default)]
struct Servers(BTreeMap<(LibraryNo, Reach), BinaryHeap<Server>>);

impl Servers {
    fn push(&mut self, server: Server) {
        self.0.entry(server.make).or_default().push(server);
    }

    /// The first to be free of those that read a volume.
    fn pop(&mut self, view: &SchedView<'_>, volume: &Barcode) -> Option<Server> {
        let (library, generation) = view.volumes.get(volume)?.class();
        let reads = |(make, servers): (&(LibraryNo, Reach), &BinaryHeap<Server>)| {
            let takes = library == Some(make.0) && make.1.takes(generation, Access::Read);
            servers.peek().copied().filter(|_| takes)
        };
        let first = self.0.iter().filter_map(reads).max()?;
        self.0.get_mut(&first.make)?.pop()
    }
}

/// Estimates when the item `id` in the queue of `volume` will be read, by the model alone. None when it is not queued
/// there, or when no drive is usable.
pub fn estimate(view: &SchedView<'_>, volume: &Barcode, id: u64) -> Option<Eta> {
    let times = Calibration::default();
    Forecast::new(view, &times).of(view, &times, volume).remove(&id)
}

/// When each of these items is begun and there, read in this order by a drive that stands at block `from` now.
pub fn along(
    times: &Calibration,
    drive: DriveNo,
    model: &Mechanics,
    from: u64,
    order: &[RecallItem],
) -> Vec<(Span, Span)> {
    let (mut clock, mut at) = (Span::default(), from);
    let item = |item: &RecallItem| {
        clock += times.span(drive, Timed::Locate, model.locate(at, item.block));
        let start = clock;
        clock += times.span(drive, Timed::Read, model.transfer(item.bytes));
        at = model.last_block(item.block, item.byte, item.bytes);
        (start, clock)
    };
    order.iter().map(item).collect()
}

/// What the recall of these files would take, queued behind everything that waits now. None when no drive is usable.
pub fn quote(
    view: &SchedView<'_>,
    times: &Calibration,
    wanted: &BTreeMap<Barcode, Vec<RecallItem>>,
) -> Option<Quote> {
    let mut forecast = Forecast::new(view, times);
    let mut quote = Quote::default();
    let mut end = Span::default();
    for (volume, items) in wanted.iter().filter(|(_, items)| !items.is_empty()) {
        quote.volumes += 1;
        quote.files += items.len() as u64;
        quote.bytes += items.iter().map(|item| item.bytes).sum::<u64>();
        let model = view.mechanics_of(volume);
        let finish = match forecast.turns.get(volume).copied() {
            Some(turn) => {
                let way = way(times, &model, turn.drive, turn.block, items);
                quote.drives += way;
                turn.ready + guess(view, times, turn.drive, volume) + way
            }
            None => {
                let Some(mut server) = forecast.after.pop(view, volume) else { continue };
                let exchange = server.exchange(times, &model);
                let way = way(times, &model, server.drive, 0, items);
                quote.mounts += 1;
                quote.drives += exchange + way;
                server.free += exchange + way;
                let finish = server.free;
                forecast.after.push(server);
                finish
            }
        };
        if finish.p90_s() > end.p90_s() {
            end = finish;
        }
    }
    quote.time = end;
    Some(quote).filter(|_| quote.volumes == 0 || view.drives.iter().any(|drive| drive.usable))
}

/// Reading these files from a volume that stands at `from`.
fn way(times: &Calibration, model: &Mechanics, drive: DriveNo, from: u64, items: &[RecallItem]) -> Span {
    if items.len() > WORKED_OUT {
        let last = items.iter().map(|item| item.block).max().unwrap_or(0);
        return rough(times, drive, model, items.len(), last, items.iter().map(|item| item.bytes).sum());
    }
    let mut queue = RecallQueue::default();
    items.iter().for_each(|item| queue.insert(*item));
    let order = in_order(model, from, &queue);
    along(times, drive, model, from, &order).last().map_or(Span::default(), |(_, end)| *end)
}

impl Forecast {
    /// Gives drives to volumes in the order of demands (list scheduling).
    pub fn new(view: &SchedView<'_>, times: &Calibration) -> Self {
        let mut turns = HashMap::new();
        let mut servers = Servers::default();
        for (mut server, volume) in servers_now(view) {
            if let Some(volume) = volume {
                let Server { free: ready, drive, block, .. } = server;
                turns.insert(volume.clone(), Turn { ready, drive, block, ahead: 0 });
                server.free += guess(view, times, drive, volume);
            }
            servers.push(server);
        }
        let mut ahead = 0;
        let hand = InHand::new(view);
        for demand in demands(view, &hand, &Volumes::new(view, &hand)) {
            let Need::Recall(volume) = demand.need else { continue };
            if turns.contains_key(volume) {
                continue;
            }
            let Some(mut server) = servers.pop(view, volume) else { continue };
            let model = view.mechanics_of(volume);
            let exchange = server.exchange(times, &model);
            server.free += exchange;
            turns.insert(volume.clone(), Turn { ready: server.free, drive: server.drive, block: 0, ahead });
            ahead += 1;
            server.free += guess(view, times, server.drive, volume);
            servers.push(server);
        }
        Self { turns, after: servers }
    }

    /// Until everything that waits now is read; zero without drives.
    pub fn done(&self) -> Span {
        let all = self.after.0.values().flatten();
        let last = all.max_by(|a, b| a.free.mean_s.total_cmp(&b.free.mean_s));
        last.map_or(Span::default(), |server| server.free)
    }

    /// Estimates for all items in the queue of a volume; none when it gets no drive. They count from the moment of the
    /// forecast.
    pub fn of(&self, view: &SchedView<'_>, times: &Calibration, volume: &Barcode) -> HashMap<u64, Eta> {
        let (Some(turn), Some(queue)) = (self.turns.get(volume), view.recalls.get(volume)) else {
            return HashMap::new();
        };
        let model = view.mechanics_of(volume);
        let order = in_order(&model, turn.block, queue);
        let spans = along(times, turn.drive, &model, turn.block, &order);
        let eta = |(position, (item, (start, finish))): (u64, (&RecallItem, (Span, Span)))| {
            let (start, finish) = (turn.ready + start, turn.ready + finish);
            (item.id, Eta { start, finish, position, volumes_ahead: turn.ahead })
        };
        (1..).zip(order.iter().zip(spans)).map(eta).collect()
    }
}

/// All items of a queue in the order in which they are read.
fn in_order(model: &Mechanics, from: u64, queue: &RecallQueue) -> Vec<RecallItem> {
    match model.layout {
        Layout::Wraps(_) if queue.len() <= WORKED_OUT => {
            recall_order(model, from, &queue.batch_around(from, WORKED_OUT))
        }
        _ => queue.pass(from).collect(),
    }
}

/// A usable drive in the simulated future.
#[derive(Clone, Copy, Debug)]
struct Server {
    free: Span,
    drive: DriveNo,
    make: (LibraryNo, Reach),
    /// A cartridge is in it.
    full: bool,
    block: u64,
}

impl Server {
    /// Takes the cartridge out, if there is one, and brings another.
    fn exchange(&mut self, times: &Calibration, model: &Mechanics) -> Span {
        let out = if self.full { times.unmount(self.drive, model) } else { Span::default() };
        self.full = true;
        out + times.mount(self.drive, model)
    }
}

/// The greatest is free first.
impl Ord for Server {
    fn cmp(&self, other: &Self) -> Ordering {
        other.free.mean_s.total_cmp(&self.free.mean_s).then(other.drive.cmp(&self.drive))
    }
}

impl PartialOrd for Server {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Server {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Server {}

fn servers_now<'v>(view: &'v SchedView<'_>) -> Vec<(Server, Option<&'v Barcode>)> {
    let seconds = |until: Option<Time>| until.map_or(0.0, |until| until.since(view.now).as_secs_f64());
    let usable = view.drives.iter().filter(|drive| drive.usable);
    let server = |drive: &'v crate::Drive| {
        let (free_s, volume, block) = match &drive.state {
            DriveState::Empty => (0.0, None, 0),
            DriveState::Loaded(loaded) => (0.0, Some(&loaded.volume), loaded.position),
            DriveState::Busy(busy) => {
                (seconds(busy.until), Some(&busy.volume).filter(|_| busy.work != Work::Unmount), 0)
            }
        };
        let (make, full) = ((drive.library, drive.reach), volume.is_some());
        (Server { free: Span::exactly(free_s), drive: drive.id, make, full, block }, volume)
    };
    usable.map(server).collect()
}

/// About how long the whole queue of a volume takes, without looking at its items.
fn guess(view: &SchedView<'_>, times: &Calibration, drive: DriveNo, volume: &Barcode) -> Span {
    let queue = view.recalls.get(volume);
    let Some((queue, (_, last))) = queue.and_then(|queue| Some((queue, queue.span()?))) else {
        return Span::default();
    };
    rough(times, drive, &view.mechanics_of(volume), queue.len(), last, queue.bytes())
}

/// About how long so many items take that lie anywhere up to block `last`.
fn rough(
    times: &Calibration,
    drive: DriveNo,
    model: &Mechanics,
    items: usize,
    last: u64,
    bytes: u64,
) -> Span {
    let (count, gap) = (items as f64, last / items.max(1) as u64);
    let locates_s = match &model.layout {
        Layout::Line { .. } => count * model.locate(0, gap),
        Layout::Wraps(wraps) => {
            let forward = count * model.locate(0, gap.min(wraps.wrap_blocks as u64));
            wraps.sweep_s(count, model.locate_s).min(forward)
        }
    };
    let mut locates = times.span(drive, Timed::Locate, locates_s);
    // The variance of a sum of `count` equal parts; and the guess itself is rough.
    locates.variance = locates.variance / count + (ROUGH * locates.mean_s).powi(2);
    let mut transfers = times.span(drive, Timed::Read, model.transfer(bytes));
    transfers.variance /= count;
    locates + transfers
}
