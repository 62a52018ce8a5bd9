//! The catalogue in process, over the embedded engine.

use crate::place::{self, timed};
use crate::{Figure, Plan, Target};
use anyhow::{Context, Result};
use catalog::{Catalog, New};
use kv::{LmdbEngine, LmdbOptions};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use types::*;

/// Clients of the durable creates.
const CLIENTS: u64 = 64;
/// Bytes of store per catalogued file, generously.
const PER_FILE: u64 = 1000;
/// Entries of the directory that is listed.
const LISTED: u64 = 1_000_000;
/// Entries of the other directories.
const PER_DIR: u64 = 10_000;

fn cx(n: u64) -> Cx {
    Cx::admin(Time::new(1_700_000_000 + (n / 50_000) as i64, (n % 50_000) as u32 * 20_000))
}

fn create(c: &Catalog, dir: Ino, n: u64) -> Result<()> {
    let new = New { object: Some(ObjectId(n + 1)), ..New::node(FileKind::File, 0o644) };
    c.create(&cx(n), dir, format!("file-{n:08}.dat").as_bytes(), &new)?;
    Ok(())
}

pub(crate) fn mkdir(c: &Catalog, name: &str) -> Result<Ino> {
    let new = New::node(FileKind::Directory, 0o755);
    Ok(c.create(&cx(0), Ino::ROOT, name.as_bytes(), &new)?.attr.ino)
}

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let place = place::make(&plan.dir, plan.files * PER_FILE + (256 << 20))?;
    let engine = Arc::new(LmdbEngine::open(&place.path().join("catalogue"), LmdbOptions::default())?);
    let c = Catalog::open(engine, Time::new(1_700_000_000, 0))?;
    let mut figures = rates(plan, &c, place.path(), told)?;
    figures.extend(full(plan, &c, told)?);
    for address in &plan.databases {
        figures.extend(crate::database::measure(plan, address, told)?);
    }
    Ok(figures)
}

fn rates(plan: &Plan, c: &Catalog, dir: &Path, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let mut relaxed = Figure::new("catalogue: relaxed creates, 1 thread", "/s", Target::AtLeast(100_000.0));
    let name = format!("catalogue: durable creates, {CLIENTS} clients");
    let mut durable = Figure::new(name, "/s", Target::AtLeast(40_000.0));
    let mut syncs = Figure::new("  this disk: append 4 KiB + fdatasync, 1 thread", "/s", Target::None);
    let mut batch = Figure::new("  creates per flush (a flush costs one sync)", "", Target::None);
    let (many, each) = (plan.amount(10_000, 100_000), plan.amount(20, 400));
    for round in 0..plan.rounds as u64 {
        told(&format!("catalogue: creates, round {}", round + 1));
        let base = round * (many + CLIENTS * each);
        let one = mkdir(c, &format!("relaxed-{round}"))?;
        let (secs, ()) = timed(|| (0..many).try_for_each(|n| create(c, one, base + n)))?;
        relaxed.values.push(many as f64 / secs);
        c.sync()?;
        let shared = mkdir(c, &format!("durable-{round}"))?;
        c.sync()?;
        let flushes = c.engine().stats().flushes;
        let (secs, ()) = timed(|| all_durable(c, shared, CLIENTS, each, base + many))?;
        durable.values.push((CLIENTS * each) as f64 / secs);
        let flushes = (c.engine().stats().flushes - flushes).max(1);
        batch.values.push((CLIENTS * each) as f64 / flushes as f64);
        syncs.values.push(sync_rate(&dir.join("appended"), plan.amount(100, 500))?);
    }
    durable.note = "each client creates a file and waits until it survives power loss".into();
    Ok(vec![relaxed, durable, batch, syncs])
}

/// Each client creates a file and waits until it is durable, `each` times.
pub(crate) fn all_durable(c: &Catalog, dir: Ino, clients: u64, each: u64, base: u64) -> Result<()> {
    std::thread::scope(|scope| {
        let client = |client: u64| {
            scope.spawn(move || {
                (0..each).try_for_each(|n| {
                    create(c, dir, base + client * each + n)?;
                    c.sync().context("making a create durable")
                })
            })
        };
        let clients: Vec<_> = (0..clients).map(client).collect();
        clients.into_iter().try_for_each(|c| c.join().map_err(|_| anyhow::anyhow!("a client panicked"))?)
    })
}

/// What the disk gives anybody: records appended and made durable one by one.
fn sync_rate(path: &Path, times: u64) -> Result<f64> {
    let mut file = File::create(path)?;
    let (secs, ()) = timed(|| {
        for _ in 0..times {
            file.write_all(&[0x5a; 4096])?;
            file.sync_data()?;
        }
        Ok(())
    })?;
    Ok(times as f64 / secs)
}

/// Fills the catalogue, lists its largest directory, and looks at the memory of this process.
fn full(plan: &Plan, c: &Catalog, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    told(&format!("catalogue: filling up to {} files", plan.files));
    let listed = plan.files.min(LISTED);
    let large = mkdir(c, "large")?;
    let mut dir = large;
    let base = 1 << 40; // object ids above those of the rounds
    let (secs, ()) = timed(|| {
        for n in 0..plan.files {
            if n >= listed && (n - listed).is_multiple_of(PER_DIR) {
                dir = mkdir(c, &format!("d{n}"))?;
            }
            create(c, dir, base + n)?;
        }
        Ok(c.sync()?)
    })?;
    let name = format!("  sustained: {} files until on the disk", plan.files);
    let mut sustained = Figure::new(name, "/s", Target::None);
    sustained.values.push(plan.files as f64 / secs);
    let name = format!("catalogue: listing {listed} entries of one directory");
    let mut listing = Figure::new(name, "entries/s", Target::AtLeast(1e6));
    for round in 0..plan.rounds {
        told(&format!("catalogue: listing, round {}", round + 1));
        let (secs, seen) = timed(|| list(c, large))?;
        anyhow::ensure!(seen == listed, "the listing gave {seen} of {listed} entries");
        listing.values.push(seen as f64 / secs);
    }
    let name = format!("catalogue: anonymous memory, {} files", plan.files);
    let mut memory =
        Figure::new(name, "MiB", Target::AtMost(300.0)).note("of this whole process, after all of the above");
    memory.values.push(anonymous()? / f64::from(1 << 20));
    Ok(vec![sustained, listing, memory])
}

fn list(c: &Catalog, dir: Ino) -> Result<u64> {
    let (mut cookie, mut seen) = (0, 0);
    loop {
        let page = c.readdir(dir, cookie, 4096)?.found;
        seen += page.len() as u64;
        match page.last() {
            Some(entry) => cookie = entry.cookie,
            None => return Ok(seen),
        }
    }
}

/// RssAnon of this process (bytes), as proc(5) gives it in kB.
pub fn anonymous() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let line =
        status.lines().find_map(|l| l.strip_prefix("RssAnon:")).context("no RssAnon in /proc/self/status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("RssAnon")?;
    Ok(kib * 1024.0)
}
