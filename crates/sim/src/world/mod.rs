//! One simulated world: users, operators, a node, a library, and what goes wrong, from a seed to its end.

mod calm;
mod check;
mod devices;
mod faults;
mod hub;
mod months;
mod operators;
mod sabotage;
mod trace;
mod users;

use crate::dice::Dice;
use check::Copies;
use devices::Hardware;
use faults::Hazards;
pub use months::run_months;
pub use sabotage::Sabotage;

use hub::{Hub, Stop};
use kv::CrashingEngine;
use node::{Config, OrderKind, Size, Stepped};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;
use trace::Trace;
use types::*;
use users::Users;

/// A request, or a read, that has not ended after so long starves: by then everything that broke has been mended for hours.
const STARVES: Duration = Duration::from_secs(24 * 3600);
/// In the end, when all is in order, everything must be done after so long.
const CALM: Duration = Duration::from_secs(48 * 3600);
/// The services look around at least this often (simulated): rarely, since each look costs real time.
const LOOK: Duration = Duration::from_secs(20);
/// The governor looks so soon after somebody asks for it.
const GOVERNED_AFTER: Duration = Duration::from_millis(250);
/// A drive's thread may be ahead of the services by so much.
const SEEN_AFTER: Duration = Duration::from_secs(1);

/// What a world consists of.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Drives.
    pub drives: u16,
    /// Cartridges.
    pub cartridges: u16,
    /// Bytes on each.
    pub cartridge_bytes: u64,
    /// Disk tier (bytes).
    pub disk_bytes: u64,
    /// Things that users do, in all.
    pub acts: u32,
    /// Simulated time between two of them, on average.
    pub act_every: Duration,
    /// Simulated time between two faults that are prepared, on average; none: nothing goes wrong.
    pub fault_every: Option<Duration>,
}

impl Shape {
    /// One that the seed gives.
    pub fn of(dice: &mut Dice) -> Self {
        let fault_every = Duration::from_secs(20 + dice.below(300));
        Self {
            drives: 1 + dice.below(4) as u16,
            cartridges: 24,
            cartridge_bytes: (4 + dice.below(8)) << 20,
            disk_bytes: (4 + dice.below(12)) << 20,
            acts: 100,
            act_every: Duration::from_secs(5 + dice.below(180)),
            fault_every: Some(fault_every).filter(|_| !dice.one_in(20)),
        }
    }
}

/// How a world went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What gave it.
    pub seed: u64,
    /// Faults that really happened, kills of the node among them.
    pub faults: u64,
    /// Kills.
    pub kills: u64,
    /// Jobs done by drives.
    pub jobs: u64,
    /// Simulated time.
    pub time: Duration,
    /// Lines of the trace and their sum: the same for the same seed.
    pub trace: (u64, u64),
    /// What was wrong, if anything.
    pub failed: Option<String>,
    /// The end of the trace, or all of it.
    pub lines: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Look,
    Govern,
    GovernSoon,
    User,
    Fault,
    Kill,
    Operator,
}

struct World {
    shape: Shape,
    dice: Dice,
    hub: Arc<Hub>,
    trace: Arc<Trace>,
    engine: Arc<CrashingEngine>,
    hazards: Arc<Hazards>,
    hardware: Arc<Hardware>,
    config: Config,
    node: Option<Stepped>,
    users: Users,
    operators: operators::Operators,
    agenda: BTreeMap<(Duration, u64), Act>,
    next: u64,
    running: BTreeMap<DriveNo, (Barcode, OrderKind)>,
    robot: Option<DriveNo>,
    threads: HashMap<ThreadId, DriveNo>,
    seen: check::Seen,
    spoilt: BTreeSet<String>,
    /// The governor looks soon.
    soon: bool,
    calm: bool,
    sabotage: Option<Sabotage>,
    kills: u64,
    jobs: u64,
    dir: tempfile::TempDir,
}

/// Runs the world of a seed to its end.
///
/// # Errors
/// The machine gives no room for it. Whatever is wrong with the product is in the outcome.
pub fn run(seed: u64, whole_trace: bool) -> anyhow::Result<Outcome> {
    let mut dice = Dice::new(seed);
    let shape = Shape::of(&mut dice);
    run_shape(seed, shape, dice, whole_trace, None)
}

/// The same, of a given shape, and maybe made wrong on purpose.
///
/// # Errors
/// As [`run`].
pub fn run_shape(
    seed: u64,
    shape: Shape,
    dice: Dice,
    whole_trace: bool,
    sabotage: Option<Sabotage>,
) -> anyhow::Result<Outcome> {
    let mut world = World::new(shape, dice, whole_trace, sabotage)?;
    let live = std::panic::AssertUnwindSafe(|| world.live());
    let failed = match std::panic::catch_unwind(live) {
        Ok(lived) => lived.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Some(format!("it panicked: {}", text.unwrap_or_default()))
        }
    };
    Ok(world.ended(seed, failed))
}

fn place() -> anyhow::Result<tempfile::TempDir> {
    let memory = std::path::Path::new("/dev/shm");
    Ok(tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir())?)
}

fn configuration(dir: &std::path::Path, shape: &Shape, dice: &mut Dice) -> Config {
    let mut config = Config { state_dir: dir.join("state"), ..Config::default() };
    config.disk.capacity = Some(Size(shape.disk_bytes));
    config.disk.space_wait_s = 60;
    config.tape.block_size = Size(16 << 10);
    config.tape.flush_files = 3 + dice.below(20) as u32;
    config.tape.flush_every = Size(256 << 10);
    config.tape.index_every = Size((1 + dice.below(4)) << 20);
    config.tape.idle_unmount_s = 30 + dice.below(600) as u32;
    config.tape.drive_retry_s = 30 + dice.below(120) as u32;
    config.classes[0].migrate_after_s = 30 + dice.below(600) as u32;
    config.classes[0].migrate_bytes = Size(1 << 20);
    config
}

impl World {
    fn new(
        shape: Shape,
        mut dice: Dice,
        whole_trace: bool,
        sabotage: Option<Sabotage>,
    ) -> anyhow::Result<Self> {
        let dir = place()?;
        let (hub, trace) = (Arc::new(Hub::new()), Arc::new(Trace::new(whole_trace)));
        let engine = Arc::new(CrashingEngine::new());
        let hazards = Arc::new(Hazards::new(engine.clone(), hub.clone()));
        let library = dir.path().join("library");
        let hardware = Hardware::new(&library, &shape, hub.clone(), trace.clone(), hazards.clone())?;
        let config = configuration(dir.path(), &shape, &mut dice);
        let (users, operators) = (Users::new(dice.fork()), operators::Operators::new(dice.fork()));
        Ok(Self {
            shape,
            dice,
            hub,
            trace,
            engine,
            hazards,
            hardware: Arc::new(hardware),
            config,
            node: None,
            users,
            operators,
            agenda: BTreeMap::new(),
            next: 0,
            running: BTreeMap::new(),
            robot: None,
            threads: HashMap::new(),
            seen: BTreeSet::new(),
            spoilt: BTreeSet::new(),
            soon: false,
            calm: false,
            sabotage,
            kills: 0,
            jobs: 0,
            dir,
        })
    }

    fn at(&mut self, after: Duration, act: Act) {
        self.next += 1;
        self.agenda.insert((self.hub.time() + after, self.next), act);
    }

    fn cartridges(&self) -> PathBuf {
        self.dir.path().join("library").join("cartridges")
    }

    /// From the beginning to the end, and what is wrong if anything is.
    fn live(&mut self) -> Result<(), String> {
        self.start()?;
        for (after, act) in [(1, Act::Look), (1, Act::Govern), (2, Act::User), (600, Act::Operator)] {
            self.at(Duration::from_secs(after), act);
        }
        if let Some(every) = self.shape.fault_every {
            self.at(every, Act::Fault);
            self.at(every * 20, Act::Kill);
        }
        let mut left = self.shape.acts;
        while left > 0 {
            if self.turn()? == Some(Act::User) {
                left -= 1;
            }
        }
        self.become_calm()
    }

    /// Starts the node; one that is killed while it starts is started again.
    fn start(&mut self) -> Result<(), String> {
        for _ in 0..20 {
            let started = Stepped::open(
                self.config.clone(),
                self.engine.clone(),
                self.hardware.clone(),
                self.hub.clone(),
            );
            match started {
                Ok(node) => {
                    self.hub.all_rest(usize::from(self.shape.drives));
                    self.node = Some(node);
                    return Ok(());
                }
                Err(e) if self.hub.is_dead() => self.trace.note(self.hub.time(), format_args!("dies: {e:?}")),
                // The robot does not answer, say: somebody mends it and starts the node again.
                Err(e) => self.trace.note(self.hub.time(), format_args!("does not start: {}", e.message)),
            }
            self.reap();
            self.hub.advance(self.hub.time() + Duration::from_secs(600));
            self.hazards.mend(&self.hardware.library);
        }
        Err("the node does not start".into())
    }

    fn reap(&mut self) {
        self.hub.die();
        if let Some(node) = self.node.take() {
            node.kill();
        }
        self.hub.revive();
        self.engine.kill();
        let relaxed = self.engine.relaxed();
        let keep = self.dice.below(relaxed as u64 + 1) as usize;
        self.engine.restart(keep);
        self.running.clear();
        self.threads.clear();
        self.robot = None;
    }

    /// The node's process ends at once, and is started again.
    fn die(&mut self) -> Result<(), String> {
        self.kills += 1;
        self.trace.note(self.hub.time(), "the node is killed");
        self.reap();
        self.operators.after_crash();
        self.seen.clear();
        let down = Duration::from_secs(1 + self.dice.below(120));
        self.hub.advance(self.hub.time() + down);
        self.start()?;
        if self.calm && self.sabotage == Some(Sabotage::ForgetDurable) {
            self.lose_a_file()?;
        }
        let node = self.node.as_ref().ok_or("no node")?;
        let found = check::listing(node)?;
        self.users.after_crash(&found)?;
        self.users.forget_requests(node);
        self.check()
    }

    fn node(&self) -> Result<&Stepped, String> {
        self.node.as_ref().ok_or_else(|| "there is no node".to_owned())
    }

    /// Whatever is due next happens; says what, if it was on the agenda.
    fn turn(&mut self) -> Result<Option<Act>, String> {
        let due = self.due();
        let hangs = self.calm && self.sabotage == Some(Sabotage::NeverEnd);
        let parked = self.hub.first_parked().filter(|_| !hangs);
        let done = if parked.is_some_and(|at| at <= due) {
            let stop = self.hub.resume(self.horizon());
            self.stopped(stop);
            None
        } else {
            let Some((_, act)) = self.agenda.pop_first() else { return Ok(None) };
            self.hub.advance(due);
            self.act(act)?;
            Some(act)
        };
        self.after()?;
        Ok(done)
    }

    /// When the next act is due.
    fn due(&self) -> Duration {
        self.agenda.first_key_value().map_or(Duration::MAX, |((at, _), _)| *at)
    }

    /// How far a drive may go on without the others: the services are to see soon what it tells them.
    fn horizon(&self) -> Duration {
        self.due().min(self.hub.time() + SEEN_AFTER)
    }

    fn stopped(&mut self, stop: Stop) {
        if !stop.rests {
            return;
        }
        if let Some(drive) = self.threads.get(&stop.thread) {
            self.running.remove(drive);
            self.jobs += 1;
            if self.robot == Some(*drive) {
                self.robot = None;
            }
        }
    }

    /// What follows from what has happened: the archive service looks, drives get their orders.
    fn after(&mut self) -> Result<(), String> {
        loop {
            if self.hub.is_dead() {
                return self.die();
            }
            let Some(node) = &mut self.node else { return Ok(()) };
            if node.has_events() {
                node.step();
            }
            if node.governor_is_poked() && !self.soon {
                self.soon = true;
                self.at(GOVERNED_AFTER, Act::GovernSoon);
            }
            let Some(node) = &mut self.node else { return Ok(()) };
            node.finish_reads();
            let free = |o: &node::Order, w: &Self| {
                !w.running.contains_key(&o.drive) && (!o.kind.moves() || w.robot.is_none())
            };
            let orders = node.orders();
            let Some(order) = orders.into_iter().find(|o| free(o, self)) else { break };
            self.deliver(order)?;
        }
        self.answers()
    }

    fn deliver(&mut self, order: node::Order) -> Result<(), String> {
        if self.calm && self.sabotage == Some(Sabotage::TwoDrives) {
            self.running.insert(DriveNo(99), (order.volume.clone(), OrderKind::Migrate));
        }
        let clash = self.running.iter().find(|(_, (volume, _))| {
            *volume == order.volume && order.kind != OrderKind::Revive && !volume.as_str().is_empty()
        });
        if let Some((other, (_, kind))) = clash.filter(|(_, (_, kind))| *kind != OrderKind::Revive) {
            return Err(format!(
                "drives {other} ({kind:?}) and {} have volume {}",
                order.drive, order.volume
            ));
        }
        let now = self.hub.time();
        self.trace.note(now, format_args!("order {} {:?} {}", order.drive, order.kind, order.volume));
        if order.kind.moves() {
            self.robot = Some(order.drive);
        }
        self.running.insert(order.drive, (order.volume.clone(), order.kind));
        let (due, hub) = (self.horizon(), self.hub.clone());
        let Some(node) = &mut self.node else { return Ok(()) };
        let stop = hub.run(due, || node.deliver(order.drive));
        self.threads.insert(stop.thread, order.drive);
        self.stopped(stop);
        Ok(())
    }

    /// Readers that have got their answers.
    fn answers(&mut self) -> Result<(), String> {
        let Some(node) = &self.node else { return Ok(()) };
        for (name, good) in self.users.ended_reads(node)? {
            self.trace.note(self.hub.time(), format_args!("read of {name}: {good}"));
            if !good && self.calm {
                return Err(format!("{name} cannot be read although everything is in order"));
            }
        }
        Ok(())
    }

    fn act(&mut self, act: Act) -> Result<(), String> {
        let now = self.hub.time();
        self.hazards.mend(&self.hardware.library);
        match act {
            Act::Look => {
                if let Some(node) = &mut self.node {
                    node.step();
                    // A fault of the catalogue: it is tried again with the next look.
                    if let Err(e) = node.keep() {
                        self.trace.note(now, format_args!("keeper: {}", e.message));
                    }
                }
                self.at(LOOK, act);
            }
            Act::Govern => {
                self.govern()?;
                self.at(LOOK, act);
            }
            Act::GovernSoon => {
                self.soon = false;
                self.govern()?;
            }
            Act::User => {
                let node = self.node.as_ref().ok_or("no node")?;
                let did = self.users.act(node, now)?;
                self.trace.note(now, did);
                let wait = self.dice.wait(self.shape.act_every.as_secs_f64());
                self.at(Duration::from_secs_f64(wait), act);
            }
            Act::Fault => {
                let spoil = self.spoilable()?;
                self.hazards.arm(&mut self.dice, &self.shape, spoil.as_deref());
                self.corrupt(spoil.as_deref());
                let every = self.shape.fault_every.unwrap_or(LOOK);
                let wait = self.dice.wait(every.as_secs_f64());
                self.at(Duration::from_secs_f64(wait), act);
            }
            Act::Kill => {
                self.hazards.count();
                self.hazards.kill();
                self.hub.die();
                let every = self.shape.fault_every.unwrap_or(LOOK);
                let wait = self.dice.wait(every.as_secs_f64() * 20.0);
                self.at(Duration::from_secs_f64(wait), act);
            }
            Act::Operator => {
                let node = self.node.as_ref().ok_or("no node")?;
                let robot_rests = self.robot.is_none();
                let did = self.operators.act(node, &self.hardware.library, &self.spoilt, robot_rests);
                if did.1 {
                    self.hazards.count();
                }
                self.trace.note(now, did.0);
                let after = Duration::from_secs(120 + self.dice.below(900));
                self.at(after, act);
            }
        }
        Ok(())
    }

    fn govern(&mut self) -> Result<(), String> {
        let node = self.node()?;
        node.govern().map_err(|e| format!("the governor fails: {e:?}"))?;
        check::queues(node, self.users.now().len().max(20), usize::from(self.shape.cartridges))?;
        let now = self.hub.time();
        let mut ended = Vec::new();
        for (id, since) in &self.users.requests {
            let request = node.catalog().request(*id).map_err(|e| e.to_string())?;
            if request.is_none_or(|r| !matches!(r.state, RequestState::Queued | RequestState::Active)) {
                ended.push(*id);
            } else if now.saturating_sub(*since) > STARVES {
                return Err(format!("request {} has not ended after {:?}", id.0, now - *since));
            }
        }
        self.users.requests.retain(|id, _| !ended.contains(id));
        let starved = self.users.reads.iter().find(|r| now.saturating_sub(r.since) > STARVES);
        if let Some(read) = starved {
            return Err(format!("the read of {} has not ended after {:?}", read.name, now - read.since));
        }
        self.check()
    }

    /// Looks at everything that has changed.
    fn check(&mut self) -> Result<(), String> {
        let node = self.node.as_ref().ok_or("no node")?;
        let cartridges = self.cartridges();
        let copies = Copies { node, cartridges: &cartridges, spoilt: &self.spoilt };
        copies.check(self.users.now(), &mut self.seen)
    }

    /// A cartridge that may be damaged for good: of the second pool, so that the first copy of everything stays.
    fn spoilable(&mut self) -> Result<Option<String>, String> {
        let volumes = self.node()?.catalog().volumes().map_err(|e| e.to_string())?;
        let second = |v: &Volume| v.pool.as_ref().is_some_and(|p| p.as_str() == "second");
        let of_second: Vec<String> =
            volumes.iter().filter(|v| second(v)).map(|v| v.barcode.as_str().to_owned()).collect();
        let pick = self.dice.pick(&of_second).cloned();
        let may = self.spoilt.len() < 4 || pick.as_ref().is_some_and(|p| self.spoilt.contains(p));
        let pick = pick.filter(|_| may);
        self.spoilt.extend(pick.clone());
        Ok(pick)
    }

    /// Now and then a bit of a record decays, and no drive notices.
    fn corrupt(&mut self, spoil: Option<&str>) {
        let Some(barcode) = spoil.filter(|_| self.dice.one_in(4)) else { return };
        let block = 4 + self.dice.below(60);
        let path = self.cartridges().join(barcode).join(format!("1_{block}_R"));
        if let Ok(mut bytes) = std::fs::read(&path) {
            let at = self.dice.below(bytes.len() as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << self.dice.below(8);
            }
            if std::fs::write(&path, bytes).is_ok() {
                self.hazards.count();
                self.trace.note(self.hub.time(), format_args!("fault decay {barcode} {block}"));
            }
        }
    }

    fn ended(mut self, seed: u64, failed: Option<String>) -> Outcome {
        let outcome = Outcome {
            seed,
            faults: self.hazards.begun(),
            kills: self.kills,
            jobs: self.jobs,
            time: self.hub.time(),
            trace: self.trace.sum(),
            failed,
            lines: self.trace.lines(),
        };
        self.hub.die();
        if let Some(node) = self.node.take() {
            node.kill();
        }
        outcome
    }
}
