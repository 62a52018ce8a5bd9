//! When a file will be back, and what a request would cost.

use crate::calibration::{Calibration, Span, Timed};
use crate::demand::{InHand, Need, demands};
use crate::{DriveState, Layout, Mechanics, RecallItem, RecallQueue, SchedView, Work, recall_order};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use types::{Barcode, DriveNo, Time};

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

/// Which volume gets which drive, and when: worked out once for any number of estimates.
pub struct Forecast<'v> {
    view: &'v SchedView<'v>,
    times: &'v Calibration,
    turns: HashMap<&'v Barcode, Turn>,
    /// The drives when everything that waits now is done.
    after: BinaryHeap<Server>,
}

/// Estimates when the item `id` in the queue of `volume` will be read, by the model alone. None when it is not queued
/// there, or when no drive is usable.
pub fn estimate(view: &SchedView<'_>, volume: &Barcode, id: u64) -> Option<Eta> {
    let times = Calibration::default();
    Forecast::new(view, &times).of(volume).remove(&id)
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
                let way = forecast.way(&model, turn.drive, turn.block, items);
                quote.drives += way;
                turn.ready + guess(view, times, turn.drive, volume) + way
            }
            None => {
                let mut server = forecast.after.pop()?;
                let exchange = server.exchange(times, &model);
                let way = forecast.way(&model, server.drive, 0, items);
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

impl<'v> Forecast<'v> {
    /// Gives drives to volumes in the order of demands (list scheduling).
    pub fn new(view: &'v SchedView<'v>, times: &'v Calibration) -> Self {
        let mut turns = HashMap::new();
        let mut servers = BinaryHeap::new();
        for (mut server, volume) in servers_now(view) {
            if let Some(volume) = volume {
                let Server { free: ready, drive, block, .. } = server;
                turns.insert(volume, Turn { ready, drive, block, ahead: 0 });
                server.free += guess(view, times, drive, volume);
            }
            servers.push(server);
        }
        let mut ahead = 0;
        for demand in demands(view, &InHand::new(view)) {
            let Need::Recall(volume) = demand.need else { continue };
            if turns.contains_key(volume) {
                continue;
            }
            let Some(mut server) = servers.pop() else { break };
            let model = view.mechanics_of(volume);
            let exchange = server.exchange(times, &model);
            server.free += exchange;
            turns.insert(volume, Turn { ready: server.free, drive: server.drive, block: 0, ahead });
            ahead += 1;
            server.free += guess(view, times, server.drive, volume);
            servers.push(server);
        }
        Self { view, times, turns, after: servers }
    }

    /// Estimates for all items in the queue of a volume; none when it gets no drive.
    pub fn of(&self, volume: &Barcode) -> HashMap<u64, Eta> {
        let mut all = HashMap::new();
        let (Some(turn), Some(queue)) = (self.turns.get(volume), self.view.recalls.get(volume)) else {
            return all;
        };
        let model = self.view.mechanics_of(volume);
        let (mut clock, mut at) = (turn.ready, turn.block);
        for (item, position) in in_order(&model, turn.block, queue).into_iter().zip(1..) {
            clock += self.times.span(turn.drive, Timed::Locate, model.locate(at, item.block));
            let start = clock;
            clock += self.times.span(turn.drive, Timed::Transfer, model.transfer(item.bytes));
            at = model.last_block(item.block, item.byte, item.bytes);
            all.insert(item.id, Eta { start, finish: clock, position, volumes_ahead: turn.ahead });
        }
        all
    }

    /// Reading these files from a volume that stands at `from`.
    fn way(&self, model: &Mechanics, drive: DriveNo, from: u64, items: &[RecallItem]) -> Span {
        let mut queue = RecallQueue::default();
        items.iter().for_each(|item| queue.insert(*item));
        let (mut time, mut at) = (Span::default(), from);
        for item in in_order(model, from, &queue) {
            time += self.times.span(drive, Timed::Locate, model.locate(at, item.block));
            time += self.times.span(drive, Timed::Transfer, model.transfer(item.bytes));
            at = model.last_block(item.block, item.byte, item.bytes);
        }
        time
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
        (Server { free: Span::exactly(free_s), drive: drive.id, full: volume.is_some(), block }, volume)
    };
    usable.map(server).collect()
}

/// About how long the whole queue of a volume takes, without looking at its items.
fn guess(view: &SchedView<'_>, times: &Calibration, drive: DriveNo, volume: &Barcode) -> Span {
    let queue = view.recalls.get(volume);
    let Some((queue, (_, last))) = queue.and_then(|queue| Some((queue, queue.span()?))) else {
        return Span::default();
    };
    let model = view.mechanics_of(volume);
    let (count, gap) = (queue.len() as f64, last / queue.len() as u64);
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
    let mut transfers = times.span(drive, Timed::Transfer, model.transfer(queue.bytes()));
    transfers.variance /= count;
    locates + transfers
}
