//! Movers with one target each, on sockets of this machine, and files over them.
#![allow(dead_code)]

use data::frame::Op;
use data::{Ask, Capability, Channel, Incoming, Link, Outgoing, Rights, TargetSecret, Terms};
use layout::{Component, Layout, Redundancy};
use mover::{Mover, Secrets, Target};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use stripe::{Column, Columns, Striped};
use types::{Ino, ObjectId, TargetId, Time};

pub const CLUSTER: [u8; 16] = *b"cluster of tests";
pub const PATIENCE: Duration = Duration::from_secs(180);
pub const UNIT: u32 = 4096;

/// Movers with one target each.
pub struct Cluster {
    pub movers: Vec<(Arc<Mover>, SocketAddr)>,
    pub targets: Vec<Arc<Target>>,
    pub dirs: Vec<tempfile::TempDir>,
    objects: AtomicU64,
    channels: AtomicU64,
}

/// How columns are opened.
#[derive(Clone)]
pub struct Terms1 {
    pub patience: Duration,
    pub generation: u64,
    /// What may still be sent before the client dies; for ever without.
    pub budget: Option<Arc<AtomicI64>>,
    /// What has been sent, in order, where there is a budget.
    pub sent: Arc<Mutex<Vec<(Op, ObjectId)>>>,
    /// An object to which writes are damaged on their way, so many times, where there is a budget: its mover answers, and refuses them.
    pub damaged: Arc<Mutex<(ObjectId, usize)>>,
    /// A machine that loses power.
    pub power: Option<Arc<Power>>,
}

/// A machine that loses power when it is asked for something for the first time, and is back at once.
pub struct Power {
    pub target: u32,
    pub at: (Op, ObjectId),
    /// Files, with what is on its disk of them. Empty: it has not happened, or has.
    pub files: Mutex<Vec<(std::path::PathBuf, Vec<u8>)>>,
    pub starts: AtomicU64,
}

impl Default for Terms1 {
    fn default() -> Self {
        let damaged = Arc::new(Mutex::new((ObjectId(0), 0)));
        Self { patience: PATIENCE, generation: 1, budget: None, sent: Arc::default(), damaged, power: None }
    }
}

/// A directory where syncs cost nothing, if there is one.
fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.unwrap()
}

impl Cluster {
    pub fn new(count: u32) -> Self {
        let dirs: Vec<_> = (0..count).map(|_| scratch()).collect();
        let (mut movers, mut targets) = (Vec::new(), Vec::new());
        for (number, dir) in (1..=count).zip(&dirs) {
            let (mover, target) = serve(number, dir.path());
            movers.push(mover);
            targets.push(target);
        }
        Self { movers, targets, dirs, objects: AtomicU64::new(1), channels: AtomicU64::new(1) }
    }

    /// Starts a mover that was stopped, with what its target has, under another address.
    pub fn restart(&mut self, number: u32) {
        let n = number as usize - 1;
        // It is told of its end by a connection, and leaves its target.
        drop(TcpStream::connect(self.movers[n].1));
        let nothing = tempfile::tempdir().unwrap();
        let (away, target) = serve(number, nothing.path());
        let (old, old_target) =
            (std::mem::replace(&mut self.movers[n], away), std::mem::replace(&mut self.targets[n], target));
        let until = std::time::Instant::now() + PATIENCE;
        while Arc::strong_count(&old.0) > 1 {
            assert!(std::time::Instant::now() < until, "the mover does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop((old, old_target));
        (self.movers[n], self.targets[n]) = serve(number, self.dirs[n].path());
    }

    /// The host of a target is back, with another disk.
    pub fn change_disk(&mut self, number: u32) {
        let n = number as usize - 1;
        self.movers[n].0.stop().unwrap();
        drop(TcpStream::connect(self.movers[n].1));
        self.dirs[n] = scratch();
        (self.movers[n], self.targets[n]) = serve(100 + number, self.dirs[n].path());
    }

    /// Object numbers for a new component.
    fn base(&self, objects: u64) -> ObjectId {
        ObjectId(self.objects.fetch_add(objects, Ordering::Relaxed))
    }

    pub fn component(
        &self,
        range: std::ops::Range<u64>,
        unit_bytes: u32,
        redundancy: Redundancy,
        columns: u32,
    ) -> Component {
        let targets = (1..=columns).map(TargetId).collect();
        let mut component = Component { range, unit_bytes, redundancy, base: ObjectId(1), targets };
        component.base = self.base(component.objects());
        component
    }

    /// A file of one coded component.
    pub fn coded(&self, unit_bytes: u32, data: u8, parity: u8) -> Layout {
        let columns = u32::from(data) + u32::from(parity);
        let redundancy = Redundancy::Coded { data, parity };
        let component = self.component(0..u64::MAX, unit_bytes, redundancy, columns);
        Layout { generation: 1, components: vec![component] }
    }

    pub fn column(&self, component: &Component, target: TargetId, terms: &Terms1) -> Column {
        let address = self.movers[target.0 as usize - 1].1;
        let (budget, sent, damaged) = (terms.budget.clone(), terms.sent.clone(), terms.damaged.clone());
        let patience = terms.patience;
        let power = terms.power.clone().filter(|power| power.target == target.0);
        let terms = Terms1 { ..terms.clone() };
        let channel_terms = Terms {
            mover: address.to_string(),
            client: 1,
            channel: self.channels.fetch_add(1, Ordering::Relaxed),
            cluster: CLUSTER,
            patience,
            window_bytes: 4 << 20,
        };
        let dial = move || {
            if budget.as_ref().is_some_and(|left| left.load(Ordering::SeqCst) <= 0) {
                return Err(std::io::Error::other("this client is dead"));
            }
            let mut link = Link::tcp(TcpStream::connect(address)?)?;
            if let Some(left) = budget.clone() {
                link.outgoing = Box::new(Mortal {
                    left,
                    sent: sent.clone(),
                    damaged: damaged.clone(),
                    out: link.outgoing,
                });
            }
            if let Some(power) = power.clone() {
                link.incoming = Box::new(Started { power: power.clone(), incoming: link.incoming });
                link.outgoing = Box::new(Powered { power, out: link.outgoing });
            }
            Ok(link)
        };
        let channel = Channel::open(Box::new(dial), channel_terms).unwrap();
        let capability = Capability {
            epoch: 1,
            cluster: CLUSTER,
            target,
            file: Ino(5),
            objects: component.base.0..component.base.0 + component.objects(),
            generation: terms.generation,
            rights: Rights::READ.and(Rights::WRITE).and(Rights::MANAGE),
            range: 0..u64::MAX,
            user: 0,
            client: 1,
            issued: now(),
            expires: now().plus(Duration::from_secs(3600)),
        };
        let slot = channel.attach(&capability, secret(target.0).key(&capability.encode())).unwrap();
        Column { channel: Arc::new(channel), slot, target }
    }

    /// Asks for something of every object of a layout that lies on these targets.
    pub fn every_object(&self, layout: &Layout, op: Op, offset: u64, length: u64, but: &BTreeSet<u32>) {
        for component in &layout.components {
            for (object, column) in component.places() {
                let target = component.targets[usize::from(column)];
                if but.contains(&target.0) {
                    continue;
                }
                let column = self.column(component, target, &Terms1::default());
                let ask = Ask { op, flags: 0, object: object.0, offset, length };
                column.channel.call(&column.slot, ask, vec![]).unwrap();
            }
        }
    }

    /// Makes the objects of a new file and opens it.
    pub fn make(&self, layout: Layout) -> Striped {
        self.every_object(&layout, Op::Create, 0, 1, &BTreeSet::new());
        self.open(layout)
    }

    pub fn open(&self, layout: Layout) -> Striped {
        self.open_but(layout, &BTreeSet::new(), &Terms1::default())
    }

    /// Opens a file of which what lies on some targets does not count.
    pub fn open_but(&self, layout: Layout, but: &BTreeSet<u32>, terms: &Terms1) -> Striped {
        let columns = self.columns(&layout, but, terms);
        Striped::open_with(layout, columns, None).unwrap()
    }

    pub fn columns(&self, layout: &Layout, but: &BTreeSet<u32>, terms: &Terms1) -> Columns {
        let columns = layout.components.iter().map(|component| {
            let targets = component.targets.iter();
            targets
                .map(|target| (!but.contains(&target.0)).then(|| self.column(component, *target, terms)))
                .collect()
        });
        columns.collect()
    }

    /// Where a mover keeps an object, and its sums.
    pub fn files(&self, target: u32, object: u64) -> [std::path::PathBuf; 2] {
        let dir = self.dirs[target as usize - 1].path();
        ["objects", "sums"].map(|kind| dir.join(format!("{kind}/{:02x}/{object:016x}", (object >> 8) as u8)))
    }

    /// Where a mover keeps an object.
    pub fn path(&self, target: u32, object: u64) -> std::path::PathBuf {
        let [object, _] = self.files(target, object);
        object
    }
}

/// Serves a target.
fn serve(number: u32, dir: &std::path::Path) -> ((Arc<Mover>, SocketAddr), Arc<Target>) {
    let secrets = Secrets::from([(1, secret(number))]);
    let target = Arc::new(Target::open(TargetId(number), CLUSTER, dir, secrets).unwrap());
    let mover = Mover::new(CLUSTER, [target.clone()], Box::new(now)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = mover.clone();
    std::thread::spawn(move || serving.listen_tcp(&listener));
    ((mover, address), target)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (mover, address) in &self.movers {
            let _ = mover.stop();
            drop(TcpStream::connect(address));
        }
    }
}

/// Sends until the client is dead.
struct Mortal {
    left: Arc<AtomicI64>,
    sent: Arc<Mutex<Vec<(Op, ObjectId)>>>,
    damaged: Arc<Mutex<(ObjectId, usize)>>,
    out: Box<dyn Outgoing>,
}

impl Outgoing for Mortal {
    fn send(&mut self, parts: &[&[u8]], more: bool) -> std::io::Result<()> {
        // Greetings and capabilities do not count, so that each step is one that matters.
        if parts.len() == 3 && self.left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(std::io::Error::other("this client is dead"));
        }
        if let ([header, _, _], Some(op)) = (parts, parts[0].first()) {
            let object = ObjectId(u64::from_le_bytes(header[16..24].try_into().unwrap()));
            let op = Op::try_from(*op).unwrap();
            self.sent.lock().unwrap().push((op, object));
            let mut damaged = self.damaged.lock().unwrap();
            if (op, object) == (Op::Write, damaged.0) && damaged.1 > 0 {
                damaged.1 -= 1;
                let other: Vec<u8> = parts[2].iter().map(|byte| !byte).collect();
                return self.out.send(&[parts[0], parts[1], &other], more);
            }
        }
        self.out.send(parts, more)
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> std::io::Result<()> {
        self.out.send_file(file, offset, length)
    }

    fn pass(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> std::io::Result<()> {
        self.out.pass(bytes, descriptor)
    }

    fn finish(&mut self) {
        self.out.finish();
    }

    fn is_local(&self) -> bool {
        false
    }
}

/// Sends until power is lost.
struct Powered {
    power: Arc<Power>,
    out: Box<dyn Outgoing>,
}

impl Outgoing for Powered {
    fn send(&mut self, parts: &[&[u8]], more: bool) -> std::io::Result<()> {
        if let ([header, _, _], Some(op)) = (parts, parts[0].first()) {
            let object = ObjectId(u64::from_le_bytes(header[16..24].try_into().unwrap()));
            let mut files = self.power.files.lock().unwrap();
            if (Op::try_from(*op).unwrap(), object) == self.power.at && !files.is_empty() {
                for (path, bytes) in files.drain(..) {
                    std::fs::write(path, bytes).unwrap();
                }
                self.power.starts.fetch_add(1, Ordering::SeqCst);
                return Err(std::io::Error::other("this machine has lost power"));
            }
        }
        self.out.send(parts, more)
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> std::io::Result<()> {
        self.out.send_file(file, offset, length)
    }

    fn pass(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> std::io::Result<()> {
        self.out.pass(bytes, descriptor)
    }

    fn finish(&mut self) {
        self.out.finish();
    }

    fn is_local(&self) -> bool {
        false
    }
}

/// Says how often the machine was started.
struct Started {
    power: Arc<Power>,
    incoming: Box<dyn Incoming>,
}

impl Incoming for Started {
    fn receive(&mut self, into: &mut [u8]) -> std::io::Result<()> {
        self.incoming.receive(into)?;
        if into.len() == data::hello::HELLO_LEN && into.starts_with(b"THERMOD") {
            let boot = u64::from_le_bytes(into[16..24].try_into().unwrap());
            let boot = boot.wrapping_add(self.power.starts.load(Ordering::SeqCst));
            into[16..24].copy_from_slice(&boot.to_le_bytes());
        }
        Ok(())
    }

    fn descriptor(&mut self) -> Option<std::os::fd::OwnedFd> {
        self.incoming.descriptor()
    }

    fn has_ended(&mut self) -> bool {
        self.incoming.has_ended()
    }

    fn set_patience(&mut self, patience: Option<Duration>) -> std::io::Result<()> {
        self.incoming.set_patience(patience)
    }
}

pub fn secret(target: u32) -> TargetSecret {
    TargetSecret::new(&[target as u8; 32])
}

pub fn now() -> Time {
    SystemTime::now().into()
}

#[derive(Clone, Debug)]
pub enum Step {
    Write { offset: usize, length: usize, seed: u8 },
    SetLength(usize),
    Read { offset: usize, length: usize },
    Fold,
    Reopen,
    Lose(u32),
}

/// Steps of a file; those of coded ones among them.
pub fn steps(coded: bool) -> impl Strategy<Value = Vec<Step>> {
    let place = || prop_oneof![0_usize..150_000, (0_usize..40).prop_map(|n| n * UNIT as usize)];
    let length =
        || prop_oneof![0_usize..100, Just(UNIT as usize), Just(16 * UNIT as usize), 1_usize..100_000];
    let weight = u32::from(coded);
    let step = prop_oneof![
        5 => (place(), length(), any::<u8>()).prop_map(|(offset, length, seed)| Step::Write { offset, length, seed }),
        1 => place().prop_map(Step::SetLength),
        4 => (place(), length()).prop_map(|(offset, length)| Step::Read { offset, length }),
        weight => Just(Step::Fold),
        weight => Just(Step::Reopen),
        weight => any::<u32>().prop_map(Step::Lose),
    ];
    proptest::collection::vec(step, 1..20)
}

pub fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n as u8).wrapping_mul(37).wrapping_add(seed) ^ (n >> 8) as u8).collect()
}

pub fn read(file: &Striped, offset: usize, length: usize) -> Vec<u8> {
    // What was there before must not be taken for what was read.
    let mut buffer = vec![0xee; length];
    let got = file.read_at(offset as u64, &mut buffer).unwrap();
    buffer.truncate(got);
    buffer
}

/// Does a step with a plain model.
pub fn model_step(model: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write { offset, length, seed } if *length > 0 => {
            model.resize(model.len().max(offset + length), 0);
            model[*offset..offset + length].copy_from_slice(&bytes(*length, *seed));
        }
        Step::SetLength(length) => model.resize(*length, 0),
        _ => {}
    }
}

/// Does a step with a file, and compares what it reads with the model.
pub fn file_step(file: &Striped, model: &[u8], step: &Step) -> Result<(), stripe::StripeError> {
    match step {
        Step::Write { offset, length, seed } => file.write_at(*offset as u64, &bytes(*length, *seed)),
        Step::SetLength(length) => file.set_length(*length as u64),
        Step::Fold => file.fold(),
        Step::Read { offset, length } => {
            let expected = &model[(*offset).min(model.len())..(offset + length).min(model.len())];
            assert!(read(file, *offset, *length) == expected, "{step:?}");
            Ok(())
        }
        Step::Reopen | Step::Lose(_) => Ok(()),
    }
}
