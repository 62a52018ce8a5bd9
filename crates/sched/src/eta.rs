//! When a file will be back, and what a request would cost.

use crate::calibration::{Calibration, Span, Timed};
use crate::demand::{InHand, Need, demands};
use crate::slots::{At, Held, Slots, later};
use crate::turns::for_whom;
use crate::volumes::Volumes;
use crate::{
    AccountId, DriveState, Layout, Mechanics, RecallItem, RecallQueue, SchedView, Work, recall_order,
};
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
    /// What limits leave of them then.
    slots: Slots,
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

/// When each of these items is begun and there, read in this order by a drive that stands at block `from` now: with the way to
/// each, its bytes, and what goes by from one file to the next.
pub fn along(
    times: &Calibration,
    drive: DriveNo,
    model: &Mechanics,
    from: u64,
    order: &[RecallItem],
) -> Vec<(Span, Span)> {
    let (mut clock, mut at) = (Span::default(), from);
    let item = |(before, item): (f64, &RecallItem)| {
        clock += times.span(drive, Timed::Locate, model.locate(at, item.block));
        let start = clock + times.span(drive, Timed::File, before);
        clock += times.span(drive, Timed::Read, model.transfer(item.bytes));
        at = model.last_block(item.block, item.byte, item.bytes);
        (start, clock + times.span(drive, Timed::File, before + 1.0))
    };
    let count = (0u32..).map(f64::from);
    count.zip(order).map(item).collect()
}

/// What the recall of these files would take, queued behind everything that waits now, with the limits of those for whom it is.
/// None when no drive is usable. What no usable drive can read does not count.
pub fn quote(
    view: &SchedView<'_>,
    times: &Calibration,
    wanted: &BTreeMap<Barcode, Vec<RecallItem>>,
) -> Option<Quote> {
    let mut forecast = Forecast::new(view, times);
    let mut quote = Quote::default();
    for (volume, items) in wanted {
        let Some(first) = items.first() else { continue };
        let Some(end) = forecast.add(view, times, volume, (first.account, items), &mut quote) else {
            continue;
        };
        quote.volumes += 1;
        quote.files += items.len() as u64;
        quote.bytes += items.iter().map(|item| item.bytes).sum::<u64>();
        if end.p90_s() > quote.time.p90_s() {
            quote.time = end;
        }
    }
    Some(quote).filter(|_| view.drives.iter().any(|drive| drive.usable) || wanted.values().all(Vec::is_empty))
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
    /// Gives drives to volumes in the order of demands (list scheduling), as far as limits allow.
    pub fn new(view: &SchedView<'_>, times: &Calibration) -> Self {
        let hand = InHand::new(view);
        let (turns, after, slots) = (HashMap::new(), Servers::default(), Slots::new(view));
        let mut forecast = Self { turns, after, slots };
        forecast.begin(view, times, &hand);
        let (mut held, mut ahead) = (Held::default(), 0);
        let volumes = Volumes::new(view, &hand);
        for demand in demands(view, &hand, &volumes) {
            let Need::Recall(volume) = demand.need else { continue };
            let stuck = demand.drive.is_some_and(|drive| !drive.usable);
            if stuck || forecast.turns.contains_key(volume) {
                continue;
            }
            // Whoever has as many drives as he may lets others pass until he has one less.
            while let Some((account, volume)) = held.next(view, &forecast.slots)
                && forecast.place(view, times, (volume, account), false, &mut ahead)
            {
                held.pop(account);
            }
            let account = demand.account;
            if held.has(account) || !forecast.place(view, times, (volume, account), false, &mut ahead) {
                held.push(account, volume);
            }
        }
        while let Some((account, volume)) = held.next(view, &forecast.slots) {
            held.pop(account);
            forecast.place(view, times, (volume, account), true, &mut ahead);
        }
        forecast
    }

    /// What is in drives now, first what limits count already.
    fn begin<'v>(&mut self, view: &SchedView<'v>, times: &Calibration, hand: &InHand<'v>) {
        let mut now = servers_now(view);
        now.sort_by_key(|(_, _, charge)| charge.is_none());
        for (mut server, volume, charge) in now {
            if let Some(volume) = volume {
                let waits = view.recalls.get(volume).and_then(|queue| for_whom(view, hand, queue));
                let account = charge.or(waits.map(|share| share.account));
                let open = account.filter(|_| charge.is_none()).and_then(|a| self.slots.open(view, a));
                let ready = open.map_or(server.free, |open| later(server.free, open));
                let Server { drive, block, .. } = server;
                self.turns.insert(volume.clone(), Turn { ready, drive, block, ahead: 0 });
                server.free = ready + guess(view, times, drive, volume);
                if let Some(account) = account {
                    self.slots.take(view, account, server.free);
                }
            }
            self.after.push(server);
        }
    }

    /// Gives a volume the drive that is free first. False if limits allow its account none then, unless `wait`.
    fn place(
        &mut self,
        view: &SchedView<'_>,
        times: &Calibration,
        (volume, account): (&Barcode, AccountId),
        wait: bool,
        ahead: &mut u64,
    ) -> bool {
        let Some(open) = self.slots.open(view, account) else { return true };
        let Some(mut server) = self.after.pop(view, volume) else { return true };
        if At(open) > At(server.free) && !wait {
            self.after.push(server);
            return false;
        }
        let exchange = server.exchange(times, &view.mechanics_of(volume));
        let ready = later(server.free, open) + exchange;
        self.turns.insert(volume.clone(), Turn { ready, drive: server.drive, block: 0, ahead: *ahead });
        *ahead += 1;
        server.free = ready + guess(view, times, server.drive, volume);
        self.slots.take(view, account, server.free);
        self.after.push(server);
        true
    }

    /// More files of a volume, behind everything: when they are there. None when no drive may read them.
    fn add(
        &mut self,
        view: &SchedView<'_>,
        times: &Calibration,
        volume: &Barcode,
        (account, items): (AccountId, &[RecallItem]),
        quote: &mut Quote,
    ) -> Option<Span> {
        let model = view.mechanics_of(volume);
        let open = self.slots.open(view, account)?;
        let end = if let Some(turn) = self.turns.get(volume).copied() {
            let way = way(times, &model, turn.drive, turn.block, items);
            quote.drives += way;
            later(turn.ready + guess(view, times, turn.drive, volume), open) + way
        } else {
            let mut server = self.after.pop(view, volume)?;
            let exchange = server.exchange(times, &model);
            let way = way(times, &model, server.drive, 0, items);
            quote.mounts += 1;
            quote.drives += exchange + way;
            server.free = later(server.free, open) + exchange + way;
            self.after.push(server);
            server.free
        };
        self.slots.take(view, account, end);
        Some(end)
    }

    /// Volumes that get a drive, or have one.
    pub fn volumes(&self) -> usize {
        self.turns.len()
    }

    /// Whether this volume is one of them.
    pub fn knows(&self, volume: &Barcode) -> bool {
        self.turns.contains_key(volume)
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

/// The usable drives, what is in them, and whose limits they count for now.
fn servers_now<'v>(view: &SchedView<'v>) -> Vec<(Server, Option<&'v Barcode>, Option<AccountId>)> {
    let seconds = |until: Option<Time>| until.map_or(0.0, |until| until.since(view.now).as_secs_f64());
    let usable = view.drives.iter().filter(|drive| drive.usable);
    let server = |drive: &'v crate::Drive| {
        let (free_s, volume, block, charge) = match &drive.state {
            DriveState::Empty => (0.0, None, 0, None),
            DriveState::Loaded(loaded) => (0.0, Some(&loaded.volume), loaded.position, None),
            DriveState::Busy(busy) => {
                let volume = Some(&busy.volume).filter(|_| busy.work != Work::Unmount);
                (seconds(busy.until), volume, 0, busy.charge)
            }
        };
        let (make, full) = ((drive.library, drive.reach), volume.is_some());
        (Server { free: Span::exactly(free_s), drive: drive.id, make, full, block }, volume, charge)
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
    locates + transfers + times.span(drive, Timed::File, count)
}
