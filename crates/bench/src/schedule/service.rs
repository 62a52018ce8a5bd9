//! What a node's archive service costs in a very large system: a whole look around (volumes and pools of the catalogue, queues, drives, the
//! scheduler's plan, the orders that follow), and a request from the call until its file is in a queue. The drives get their orders and
//! never carry them out; what they answer is made up.

use crate::catalogue::mkdir;
use crate::memory::{archive, volume};
use crate::place::{self, timed};
use crate::{Figure, Plan, Target, bed};
use anyhow::{Result, anyhow, bail, ensure};
use kv::{LmdbEngine, LmdbOptions};
use node::{Clock, OrderKind, Stepped};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use types::{Barcode, DriveNo, Estimate, Ino, Time};
use wire::{Call, Reply, Selection};

/// Looks that are measured.
const LOOKS: u64 = 5;
/// Requests are made once more, before the first: by then nobody has wanted to know when any ends.
const ROUNDS: u64 = LOOKS + 1;
/// Requests for each of them.
const PLACED: u64 = 200;
/// Time that passes before them: what was worked out is no longer true.
const BETWEEN: Duration = Duration::from_secs(10);
/// Of the files that these want, so many lie on one volume.
const TOGETHER: u64 = 20;
/// Files of a request.
const PER_REQUEST: u64 = 10_000;
/// File system in memory, where catalogue and cartridges lie if there is room.
const MEMORY: &str = "/dev/shm";
/// What catalogue and cartridges take there, generously (bytes): of each file, and of each cartridge.
const PER_FILE: u64 = 3_000;
const PER_CARTRIDGE: u64 = 40_000;

/// How large it is; drives and cartridges are those of each library.
#[derive(Clone, Copy)]
struct Size {
    libraries: u8,
    drives: u16,
    cartridges: u16,
    files: u64,
}

impl Size {
    fn of(plan: &Plan) -> Self {
        Self {
            libraries: plan.amount(4, 20) as u8,
            drives: plan.amount(6, 50) as u16,
            cartridges: plan.amount(50, 2_500) as u16,
            files: plan.amount(2_000, 1_000_000),
        }
    }

    fn drives(self) -> u64 {
        u64::from(self.libraries) * u64::from(self.drives)
    }

    fn volumes(self) -> u64 {
        u64::from(self.libraries) * u64::from(self.cartridges)
    }
}

/// Measures it on a thread of its own, which keeps the clock that the node is given.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    told("schedule: a node with a very large system");
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| on_its_clock(plan));
        measured.join().map_err(|_| anyhow!("the thread that measures the archive service panicked"))?
    })
}

fn on_its_clock(plan: &Plan) -> Result<Vec<Figure>> {
    let size = Size::of(plan);
    let need = size.files * PER_FILE + size.volumes() * PER_CARTRIDGE;
    let place = place::make(Path::new(MEMORY), need).or_else(|_| place::make(&plan.dir, need))?;
    let mut centre = Centre::new(place.path(), size)?;
    let figures = centre.figures();
    centre.node.kill();
    figures
}

/// A clock that goes on when somebody waits.
struct Still(Mutex<Duration>);

impl Clock for Still {
    fn now(&self) -> Time {
        Time::new(1_800_000_000, 0).plus(self.elapsed())
    }

    fn elapsed(&self) -> Duration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep(&self, time: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }

    fn at_rest(&self) {}
}

/// A node with so many drives and volumes.
struct Centre {
    node: Stepped,
    size: Size,
    clock: Arc<Still>,
    /// Requests made so far for files that nobody had asked for before.
    placed: u64,
}

/// What a request costs (seconds).
#[derive(Clone, Copy, Default)]
struct Cost {
    /// Until it is answered.
    asked: f64,
    /// Until its files are in their queues.
    placed: f64,
    /// To be shown then.
    shown: f64,
}

impl Cost {
    fn max(self, other: Self) -> Self {
        Self {
            asked: self.asked.max(other.asked),
            placed: self.placed.max(other.placed),
            shown: self.shown.max(other.shown),
        }
    }
}

impl Centre {
    fn new(dir: &Path, size: Size) -> Result<Self> {
        let mut config = bed::config(&dir.join("state"), &["primary", "second"]);
        let library = &mut config.library;
        library.path = Some(dir.join("library"));
        (library.count, library.drives) = (size.libraries, size.drives);
        (library.slots, library.cartridges) = (size.cartridges, size.cartridges);
        let engine = Arc::new(LmdbEngine::open(&dir.join("catalogue"), LmdbOptions::default())?);
        let clock = Arc::new(Still(Mutex::new(Duration::ZERO)));
        let node = Stepped::open_virtual(config, engine, clock.clone())
            .map_err(|e| anyhow!("starting a node with {} drives: {}", size.drives(), e.message))?;
        let centre = Self { node, size, clock, placed: 0 };
        centre.fill(centre.clock.now())?;
        Ok(centre)
    }

    /// Volumes are full of files, of which each has a copy on two in different libraries.
    fn fill(&self, now: Time) -> Result<()> {
        let (catalog, size) = (self.node.catalog(), self.size);
        // Of two equal copies the first is read: half of those are in each library.
        let pairs: Vec<[Barcode; 2]> = (0..size.libraries / 2)
            .flat_map(|pair| (0..size.cartridges).map(move |n| (2 * pair, 2 * pair + 1, n)))
            .map(|(one, other, n)| if n % 2 == 0 { (one, other, n) } else { (other, one, n) })
            .map(|(one, other, n)| [barcode(one, n), barcode(other, n)])
            .collect();
        for pair in &pairs {
            for (on, pool) in pair.iter().zip(["primary", "second"]) {
                catalog.put_volume(&types::Volume { pool: Some(pool.into()), ..volume(on, now) })?;
            }
        }
        let late = mkdir(catalog, "late")?;
        let (mut parent, mut next, each) = (Ino::ROOT, 0, size.files / pairs.len() as u64);
        for [one, other] in &pairs {
            if next % PER_REQUEST < each {
                parent = mkdir(catalog, &format!("d{}", next / PER_REQUEST))?;
            }
            archive(catalog, &[one, other], parent, next..next + each, now)?;
            next += each;
        }
        for (n, [one, other]) in (0..ROUNDS * PLACED).step_by(TOGETHER as usize).zip(pairs.iter().cycle()) {
            archive(catalog, &[one, other], late, n..n + TOGETHER, now)?;
        }
        Ok(catalog.sync()?)
    }

    fn figures(&mut self) -> Result<Vec<Figure>> {
        let Size { files, .. } = self.size;
        let what = format!(
            "schedule: a node with {} drives, {} volumes, {files} files wanted",
            self.size.drives(),
            self.size.volumes()
        );
        let figure = |of: &str, unit, target| Figure::new(format!("{what}: {of}"), unit, target);
        let mut each = figure("each file of large requests, until it is in its queue", "µs", Target::None);
        let mut pass = figure("a pass with all orders", "ms", Target::AtMost(100.0));
        pass.note = "volumes and pools of the catalogue, queues and drives as the scheduler sees them, its plan, and an order for every \
            drive that gets one: about a third of them; the catalogue lies in memory, drives carry nothing out"
            .into();
        let mut idle = figure("a pass in which nothing has changed", "ms", Target::None);
        let mut answer = figure("what a drive answers taken in", "ms", Target::None);
        let mut placed = figure("the file of a new request placed", "ms", Target::AtMost(1.0));
        placed.note = format!("in the queue of one of two volumes; the longest of {PLACED}");
        let mut asked = figure("a new request answered", "ms", Target::None);
        asked.note = format!(
            "entered in the catalogue, and told with an estimate as far as there is one; the longest of {PLACED}"
        );
        let mut expected = figure("all estimates made anew", "ms", Target::None);
        expected.note = "when each volume gets a drive and is done with; after a pass, a twentieth of the time at most, and only if somebody \
            asks for requests or looks at them"
            .into();
        let mut shown = figure("a request shown", "ms", Target::None);
        shown.note = format!("when it begins and ends, and what it waits for; the longest of {PLACED}");
        let (secs, ()) = timed(|| self.ask_for_all())?;
        each.values.push(secs * 1e6 / files as f64);
        self.load()?;
        self.place()?;
        for n in 0..LOOKS {
            let (secs, answers) = timed(|| self.rest(n))?;
            answer.values.push(secs * 1e3 / answers as f64);
            let before = self.node.orders().len();
            pass.values.push(self.decide()? * 1e3);
            let orders = self.node.orders().len() - before;
            ensure!(orders as u64 >= self.size.drives() / 5, "{orders} orders were given in a pass");
            idle.values.push(self.decide()? * 1e3);
            self.clock.sleep(BETWEEN);
            let cost = self.place()?;
            expected.values.push(self.expect()? * 1e3);
            asked.values.push(cost.asked * 1e3);
            placed.values.push(cost.placed * 1e3);
            shown.values.push(cost.shown * 1e3);
        }
        Ok(vec![pass, idle, placed, asked, shown, expected, each, answer])
    }

    /// Asks for files, has them queued, and looks at the request.
    fn stage(&mut self, path: String) -> Result<(Cost, Option<Estimate>)> {
        let call = Call::Stage(Selection { paths: vec![path.into_bytes()], recursive: true });
        let node = self.node.node().clone();
        let (asked, answer) = timed(|| Ok(node.call(&bed::cx(), &mut node::Session::default(), call)?))?;
        let Reply::Request(request) = answer.reply else { bail!("the node answered {:?}", answer.reply) };
        let (placed, ()) = timed(|| {
            self.node.take();
            Ok(())
        })?;
        let call = Call::Request(request.request.id);
        let (shown, answer) = timed(|| Ok(node.call(&bed::cx(), &mut node::Session::default(), call)?))?;
        let Reply::Request(request) = answer.reply else { bail!("the node answered {:?}", answer.reply) };
        Ok((Cost { asked, placed, shown }, request.estimate))
    }

    fn ask_for_all(&mut self) -> Result<()> {
        for n in 0..self.size.files.div_ceil(PER_REQUEST) {
            self.stage(format!("/d{n}"))?;
        }
        let queued = self.node.queues().0.segments as u64;
        ensure!(queued == self.size.files, "{queued} of {} files are queued", self.size.files);
        Ok(())
    }

    /// Five of six drives get volumes, and begin to read.
    fn load(&mut self) -> Result<()> {
        for _ in 0..self.size.drives * 5 / 6 {
            self.node.decide();
            self.answer(OrderKind::Mount, |_| true);
        }
        self.node.decide();
        let reading =
            self.node.orders().iter().filter(|order| order.kind == OrderKind::Recall).count() as u64;
        ensure!(reading >= self.size.drives() * 2 / 3, "{reading} of {} drives read", self.size.drives());
        Ok(())
    }

    /// Seconds of a pass.
    fn decide(&mut self) -> Result<f64> {
        let (secs, ()) = timed(|| {
            self.node.decide();
            Ok(())
        })?;
        Ok(secs)
    }

    /// Seconds of working out when requests end.
    fn expect(&mut self) -> Result<f64> {
        let (secs, ()) = timed(|| {
            self.node.expect();
            Ok(())
        })?;
        Ok(secs)
    }

    /// What drives have to say of orders of this kind; how many.
    fn answer(&mut self, kind: OrderKind, which: impl Fn(DriveNo) -> bool) -> usize {
        let all = self.node.orders().into_iter();
        let drives: Vec<DriveNo> =
            all.filter(|order| order.kind == kind && which(order.drive)).map(|order| order.drive).collect();
        drives.iter().for_each(|drive| self.node.pretend(*drive));
        self.node.take();
        drives.len()
    }

    /// A third of the drives come to rest with more to read, and the robots with what they moved.
    fn rest(&mut self, round: u64) -> Result<usize> {
        let answers = self.answer(OrderKind::Recall, |drive| u64::from(drive.0) % 3 == round % 3)
            + self.answer(OrderKind::Mount, |_| true)
            + self.answer(OrderKind::Unmount, |_| true);
        ensure!(answers > 0, "no drive had anything to say");
        Ok(answers)
    }

    /// The longest that a request for one file takes.
    fn place(&mut self) -> Result<Cost> {
        let mut longest = Cost::default();
        for _ in 0..PLACED {
            // Of one volume after the other.
            let volumes = ROUNDS * PLACED / TOGETHER;
            let n = self.placed % volumes * TOGETHER + self.placed / volumes;
            let path = format!("/late/file-{n:08}.dat");
            self.placed += 1;
            let (cost, estimate) = self.stage(path)?;
            ensure!(estimate.is_some(), "nobody knows when a request ends");
            longest = longest.max(cost);
        }
        let queues = self.node.queues().0;
        ensure!(queues.segments > 0, "nothing is queued");
        Ok(longest)
    }
}

/// As the virtual libraries name them.
fn barcode(library: u8, n: u16) -> Barcode {
    Barcode::from(format!("T{}{:04}L9", char::from(b'C' + library), n + 1).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_give_orders_and_requests_are_queued() {
        let dir = tempfile::tempdir().unwrap();
        let size = Size { libraries: 2, drives: 6, cartridges: 20, files: 400 };
        let work = || {
            let mut centre = Centre::new(dir.path(), size)?;
            let figures = centre.figures();
            centre.node.kill();
            figures
        };
        let figures = std::thread::scope(|scope| scope.spawn(work).join()).unwrap().unwrap();
        assert_eq!(figures.len(), 8);
        assert!(figures.iter().flat_map(|figure| &figure.values).all(|value| *value > 0.0));
    }
}
