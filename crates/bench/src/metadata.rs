//! Names over the network: many clients make durable files at a node that is a process of its own, over the loopback interface and TLS; and
//! how long clients stand still when a node dies and is started again.

use crate::catalogue::{all_durable, mkdir};
use crate::cluster::{Cluster, Wanted};
use crate::place::{self, timed};
use crate::{Figure, Plan, Target, bed};
use anyhow::{Context, Result};
use catalog::Catalog;
use client::ClusterFiles;
use kv::{LmdbEngine, LmdbOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::api::{FileApi, NewNode, OpenFlags};
use types::{FileKind, Ino, Time};

/// Clients at a time, each with connections of its own.
const CLIENTS: u64 = 32;
/// Room for catalogue and logs (bytes).
const ROOM: u64 = 1 << 30;
/// Bytes of a write while a mover dies.
const BLOCK: usize = 64 << 10;
/// Between two calls of one who waits for a node that dies.
const PAUSE: Duration = Duration::from_millis(2);
/// How long all goes well before and after a death.
const CALM: Duration = Duration::from_millis(1500);

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let mut figures = rates(plan, None, told)?;
    let paired = pairs(&plan.databases);
    for address in plan.databases.iter().filter(|address| !paired.as_flattened().contains(&address.as_str()))
    {
        figures.extend(rates(plan, Some(address), told)?);
    }
    for both in paired {
        figures.extend(services(plan, both, told)?);
    }
    figures.extend(pauses(plan, told)?);
    Ok(figures)
}

/// Two empty databases of each kind of which there are as many: a catalogue stays in what was used once.
fn pairs(databases: &[String]) -> Vec<[&str; 2]> {
    let kinds: BTreeSet<&str> = databases.iter().map(|address| crate::database::kind(address)).collect();
    let pair = |kind| {
        let mut of = databases.iter().filter(|address| crate::database::kind(address) == kind);
        Some([of.next()?.as_str(), of.next()?.as_str()])
    };
    kinds.into_iter().filter_map(pair).collect()
}

/// Creates per second of a first node and a subsystem at once, half of the clients at each, beside as many clients at the first node alone.
fn services(plan: &Plan, both: [&str; 2], told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let engine = crate::database::kind(both[0]);
    let figure = |what: &str, unit| Figure::new(format!("metadata: {engine}, {what}"), unit, Target::None);
    let mut one = figure(&format!("one service, durable creates, {CLIENTS} clients"), "/s");
    let mut two = figure(&format!("two services, durable creates, {CLIENTS} clients together"), "/s");
    let mut ratio = figure("two services beside one", "x");
    let place = place::make(&plan.dir, ROOM)?;
    let wanted = Wanted { database: Some(both[0]), subsystem: Some(both[1]), ..Wanted::default() };
    let cluster = Cluster::start(place.path(), &wanted)?;
    let at = |services: u64| {
        (0..CLIENTS)
            .map(move |n| (n % services) as usize)
            .zip(1..)
            .map(|(number, session)| cluster.files_of(number, session + services * CLIENTS))
            .collect::<Result<Vec<_>>>()
    };
    let (alone, shared) = (at(1)?, at(2)?);
    let each = plan.amount(5, 50);
    for round in 0..plan.rounds as u64 {
        told(&format!("metadata: {engine}, two services, round {}", round + 1));
        let dir = |files: &ClusterFiles, name: &str| -> Result<Ino> {
            Ok(files.mkdir(&bed::cx(), Ino::ROOT, format!("{name}-{round}").as_bytes(), 0o755)?.ino)
        };
        let dirs = [dir(&shared[0], "shared")?, dir(&shared[1], "shared")?];
        let lone = dir(&alone[0], "alone")?;
        let (seconds, ()) = timed(|| every(&alone, |n, files| make(files, lone, n, each)))?;
        one.values.push((CLIENTS * each) as f64 / seconds);
        let (seconds, ()) = timed(|| every(&shared, |n, files| make(files, dirs[n as usize % 2], n, each)))?;
        two.values.push((CLIENTS * each) as f64 / seconds);
        ratio.values.push(two.values[round as usize] / one.values[round as usize]);
    }
    two.note = "a first node and a subsystem, each with a catalogue of its own at the same server".into();
    Ok(vec![one, two, ratio])
}

/// Creates and looks per second.
fn rates(plan: &Plan, database: Option<&str>, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let (engine, target) = match database {
        None => ("embedded engine", Target::AtLeast(20_000.0)),
        Some(address) => (crate::database::kind(address), Target::None),
    };
    let figure = |what: &str, target| Figure::new(format!("metadata: {engine}, {what}"), "/s", target);
    let mut made = figure(&format!("durable creates, {CLIENTS} clients"), target);
    let mut opened = figure(&format!("durable creates, opened and closed, {CLIENTS} clients"), Target::None);
    let mut looked = figure(&format!("stat, {CLIENTS} clients"), Target::None);
    let mut shared = Figure::new(
        format!("metadata: {engine}, all clients in one directory ÷ each in its own"),
        "x",
        Target::None,
    );
    let mut inside = Figure::new("  without a network: the catalogue in process", "/s", Target::None);
    let place = place::make(&plan.dir, ROOM)?;
    let cluster = Cluster::start(place.path(), &Wanted { database, ..Wanted::default() })?;
    let clients = (0..CLIENTS).map(|n| cluster.files(n + 1)).collect::<Result<Vec<_>>>()?;
    let each = if database.is_some() { plan.amount(5, 50) } else { plan.amount(20, 1000) };
    for round in 0..plan.rounds as u64 {
        told(&format!("metadata: {engine}, round {}", round + 1));
        let dir = clients[0].mkdir(&bed::cx(), Ino::ROOT, format!("round-{round}").as_bytes(), 0o755)?.ino;
        let (seconds, ()) = timed(|| every(&clients, |n, files| make(files, dir, n, each)))?;
        made.values.push((CLIENTS * each) as f64 / seconds);
        shared.values.push(apart(&clients, round, each)? / seconds);
        let (seconds, ()) = timed(|| every(&clients, |n, files| create(files, dir, CLIENTS + n, each)))?;
        opened.values.push((CLIENTS * each) as f64 / seconds);
        let (seconds, ()) = timed(|| every(&clients, |n, files| look(files, dir, n, each)))?;
        looked.values.push((CLIENTS * each) as f64 / seconds);
        if database.is_none() {
            inside.values.push(in_process(plan, each)?);
        }
    }
    made.note = "one call each (mknod); each survives power loss when the node answers; node and clients share this machine".into();
    opened.note = "two calls each".into();
    let inside = (!inside.values.is_empty()).then_some(inside);
    Ok([Some(made), Some(shared), Some(opened), inside, Some(looked)].into_iter().flatten().collect())
}

/// Seconds that as many creates take where each client makes them in a directory of its own.
fn apart(clients: &[ClusterFiles], round: u64, each: u64) -> Result<f64> {
    let own = |n: usize| {
        let name = format!("round-{round}-of-{n}");
        Ok(clients[n].mkdir(&bed::cx(), Ino::ROOT, name.as_bytes(), 0o755)?.ino)
    };
    let dirs = (0..clients.len()).map(own).collect::<Result<Vec<_>>>()?;
    let (seconds, ()) = timed(|| every(clients, |n, files| make(files, dirs[n as usize], n, each)))?;
    Ok(seconds)
}

/// Durable creates per second of as many threads without node and network.
fn in_process(plan: &Plan, each: u64) -> Result<f64> {
    let place = place::make(&plan.dir, ROOM)?;
    let engine = LmdbEngine::open(&place.path().join("catalogue"), LmdbOptions::default())?;
    let catalog = Catalog::open(Arc::new(engine), Time::new(1_700_000_000, 0))?;
    let dir = mkdir(&catalog, "made")?;
    catalog.sync()?;
    let (seconds, ()) = timed(|| all_durable(&catalog, dir, CLIENTS, each, 0))?;
    Ok((CLIENTS * each) as f64 / seconds)
}

/// Each client by a thread of its own.
fn every(clients: &[ClusterFiles], work: impl Fn(u64, &ClusterFiles) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..).zip(clients).map(|(n, files)| scope.spawn(move || work(n, files))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a client ended early")?)
    })
}

fn name(client: u64, number: u64) -> Vec<u8> {
    format!("file-{client:02}-{number:06}").into_bytes()
}

const MADE: OpenFlags = OpenFlags { exclusive: true, ..WRITTEN };
const WRITTEN: OpenFlags =
    OpenFlags { read: false, write: true, append: false, truncate: false, exclusive: false, nonblock: false };

fn make(files: &ClusterFiles, dir: Ino, client: u64, each: u64) -> Result<()> {
    let file = NewNode { kind: FileKind::File, mode: 0o644, rdev: 0 };
    (0..each).try_for_each(|number| files.mknod(&bed::cx(), dir, &name(client, number), &file).map(drop))?;
    Ok(())
}

fn create(files: &ClusterFiles, dir: Ino, client: u64, each: u64) -> Result<()> {
    (0..each).try_for_each(|number| {
        let opened = files.create(&bed::cx(), dir, &name(client, number), 0o644, MADE)?;
        files.release(opened.handle);
        Ok(())
    })
}

fn look(files: &ClusterFiles, dir: Ino, client: u64, each: u64) -> Result<()> {
    (0..each).try_for_each(|number| files.lookup(&bed::cx(), dir, &name(client, number)).map(drop))?;
    Ok(())
}

/// Longest wait of one who makes names while the first node dies, and of one who writes and syncs while the second one does, which has half of the file.
fn pauses(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let figure = |what| Figure::new(format!("metadata: longest wait when {what}"), "s", Target::AtMost(3.0));
    let mut figures = [
        figure("the node with the names is killed and started again"),
        figure("a mover is killed and started again"),
    ];
    let place = place::make(&plan.dir, ROOM)?;
    let cluster = Cluster::start(place.path(), &Wanted { targets: [1, 1], ..Wanted::default() })?;
    let files = cluster.files(1)?;
    let striped = files.mkdir(&bed::cx(), Ino::ROOT, b"striped", 0o755)?.ino;
    cluster.tell(0, &["layout", "set", "tc:/striped", "--stripes", "2", "--stripe-size", "64KiB"])?;
    let written = files.create(&bed::cx(), striped, b"written", 0o644, MADE)?.handle;
    for round in 0..plan.rounds as u64 {
        told(&format!("metadata: nodes are killed, round {}", round + 1));
        let dir = files.mkdir(&bed::cx(), Ino::ROOT, format!("pause-{round}").as_bytes(), 0o755)?.ino;
        let names = |number| {
            let opened = files.create(&bed::cx(), dir, &name(0, number), 0o644, MADE)?;
            files.release(opened.handle);
            Ok(())
        };
        figures[0].values.push(longest(&cluster, 0, names)?);
        let bytes = vec![0x5a; BLOCK];
        let writes = |number: u64| {
            files.write(written, number % 64 * BLOCK as u64, &bytes)?;
            Ok(files.fsync(written, true)?)
        };
        figures[1].values.push(longest(&cluster, 1, writes)?);
    }
    files.release(written);
    figures[0].note = "kill -9 and `thermo up`; no call fails".into();
    Ok(figures.into())
}

/// Seconds of the longest call of many, while a node is killed and started again.
fn longest(cluster: &Cluster, node: usize, call: impl Fn(u64) -> Result<()> + Sync) -> Result<f64> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| -> Result<f64> {
            let mut longest = Duration::ZERO;
            for number in 0.. {
                if over.load(Ordering::Acquire) {
                    break;
                }
                let begun = Instant::now();
                call(number)?;
                longest = longest.max(begun.elapsed());
                std::thread::sleep(PAUSE);
            }
            Ok(longest.as_secs_f64())
        });
        std::thread::sleep(CALM);
        let killed = cluster.kill(node);
        std::thread::sleep(CALM);
        over.store(true, Ordering::Release);
        let longest = calls.join().ok().context("who made calls ended early")?;
        killed.and(longest)
    })
}
