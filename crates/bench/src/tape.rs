//! Migration and recall with virtual drives.

use crate::bed::{self, Bed};
use crate::place::{self, Scatter, timed};
use crate::{Figure, Plan, Target};
use anyhow::{Context, Result};
use node::Size;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use types::Ino;
use types::api::FileApi;
use vtl::DriveStats;
use wire::Call;

/// Rate of a drive (bytes per second).
const RATE: u64 = 400_000_000;
/// How often the drives are looked at.
const LOOK: Duration = Duration::from_millis(1);
/// Size of a small file (bytes).
const SMALL: u64 = 20_000;
/// Files between the one at which the head is brought and the first that may be wanted: more than share a block.
const APART: u64 = 100;
/// What is left to labels, indexes and the catalogue (bytes).
const SPARE: u64 = 256 << 20;

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let mut figures = large(plan, told)?;
    figures.extend(small(plan, told)?);
    Ok(figures)
}

/// Size of the large recall: 4 GiB, or what an eighth of the free space holds.
fn recall_bytes(plan: &Plan) -> Result<u64> {
    let wanted = plan.amount(512 << 20, 4 << 30);
    Ok(wanted.min(place::free(&plan.dir)? / 8))
}

/// Two copies of large files, so that both drives have as much to do; then one of them comes back.
fn large(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let (files, size) = (plan.amount(6, 16), 128 << 20);
    let first = recall_bytes(plan)?;
    let place = place::make(&plan.dir, 3 * files * size * plan.rounds as u64 / 2 + SPARE)?;
    let mut config = bed::config(&place.path().join("state"), &["primary", "second"]);
    config.library.drive_rate = Size(RATE);
    let bed = Bed::start(config)?;
    warm_up(&bed)?;
    let mut busy =
        Figure::new("tape: share of time each drive streams, files of 128 MiB", "", Target::AtLeast(0.95));
    let mut disk =
        Figure::new("  this disk: sequential write + fsync (both drives want 800)", "MB/s", Target::None);
    for round in 0..plan.rounds {
        disk.values.push(place::write_rate(&place.path().join("written"), size * 4)? / 1e6);
        told(&format!("tape: migrating {files} files of 128 MiB twice, round {}", round + 1));
        let names: Vec<String> = (0..files).map(|n| format!("large-{round}-{n}")).collect();
        names.iter().try_for_each(|n| bed.put(n, size))?;
        let shares = watch(&bed, || bed.act(Call::Migrate, &names))?;
        busy.values.push(shares.into_iter().fold(f64::INFINITY, f64::min));
        bed.act(Call::Purge, &names)?;
    }
    busy.note =
        "of the drive that streams less, from its first record to its last; limited to 400 MB/s each".into();
    let name = format!("tape: first byte of a recall of {} MiB after the drive starts", first >> 20);
    let mut latency = Figure::new(name, "s", Target::AtMost(0.5));
    let names = ["first".to_owned()];
    bed.put(&names[0], first)?;
    bed.act(Call::Migrate, &names)?;
    for round in 0..plan.rounds {
        told(&format!("tape: recalling {} MiB, round {}", first >> 20, round + 1));
        bed.act(Call::Purge, &names)?;
        latency.values.push(first_byte(&bed, &names[0])?);
        bed.act(Call::Stage, &names)?;
    }
    latency.note = "looked at every millisecond: 0 is below that".into();
    Ok(vec![busy, disk, latency])
}

/// Labels and mounts: afterwards nothing but files moves.
fn warm_up(bed: &Bed) -> Result<()> {
    bed.put("warm", 1 << 20)?;
    bed.act(Call::Migrate, &["warm".to_owned()])
}

/// Streaming share of every drive that moved data while `work` ran.
fn watch(bed: &Bed, work: impl FnOnce() -> Result<()>) -> Result<Vec<f64>> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| shares(bed, &done));
        let result = work();
        done.store(true, Ordering::Release);
        let shares =
            watcher.join().map_err(|_| anyhow::anyhow!("the thread that watches the drives panicked"))?;
        result.map(|()| shares)
    })
}

fn shares(bed: &Bed, done: &AtomicBool) -> Vec<f64> {
    /// First and last look at which a drive had moved.
    type Span = Option<(Instant, DriveStats, Instant, DriveStats)>;
    let mut last: Vec<DriveStats> = (0..bed.drives()).map(|n| bed.stats(n)).collect();
    let mut spans: Vec<Span> = last.iter().map(|_| None).collect();
    while !done.load(Ordering::Acquire) {
        for (n, span) in spans.iter_mut().enumerate() {
            let now = bed.stats(n as u16);
            if now.bytes_written != last[n].bytes_written {
                let at = Instant::now();
                let (begin, first) =
                    span.take().map_or((at, now.clone()), |(begin, first, ..)| (begin, first));
                *span = Some((begin, first, at, now.clone()));
                last[n] = now;
            }
        }
        std::thread::sleep(LOOK);
    }
    let share = |(begin, first, end, last): (Instant, DriveStats, Instant, DriveStats)| {
        let wall = (end - begin).as_secs_f64().max(1e-9);
        (last.streaming.saturating_sub(first.streaming).as_secs_f64() / wall).min(1.0)
    };
    spans.into_iter().flatten().map(share).collect()
}

/// Seconds from the drive's first record until a reader of the beginning has it.
fn first_byte(bed: &Bed, name: &str) -> Result<f64> {
    let before: Vec<u64> = (0..bed.drives()).map(|n| bed.stats(n).bytes_read).collect();
    let handle = bed.open(name)?;
    let (send, arrived) = mpsc::channel();
    let answer = Box::new(move |data| drop(send.send((Instant::now(), data))));
    bed.node.read(handle, 0, 4096, answer);
    let mut streams: Option<Instant> = None;
    let (at, data) = loop {
        let moved = (0..bed.drives()).any(|n| bed.stats(n).bytes_read > before[usize::from(n)]);
        if moved && streams.is_none() {
            streams = Some(Instant::now());
        }
        match arrived.recv_timeout(LOOK) {
            Ok(answer) => break answer,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(e) => return Err(e).context("the node dropped a read"),
        }
    };
    anyhow::ensure!(data?.len() == 4096, "the read of 4096 bytes was cut short");
    bed.node.release(handle);
    let read = (0..bed.drives()).any(|n| bed.stats(n).bytes_read > before[usize::from(n)]);
    anyhow::ensure!(read, "{name} was read without its tape");
    Ok(streams.map_or(0.0, |begin| at.saturating_duration_since(begin).as_secs_f64()))
}

/// One copy of many small files; then some of them come back in scattered order.
fn small(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let (files, wanted) = (plan.amount(5_000, 20_000), plan.amount(1_000, 5_000));
    let place = place::make(&plan.dir, 3 * files * (SMALL + 8192) + SPARE)?;
    let name = format!("tape: migrating {files} files of 20 KB");
    let mut rate = Figure::new(name, "files/s", Target::AtLeast(5_000.0));
    for round in 0..plan.rounds {
        told(&format!("tape: migrating {files} small files, round {}", round + 1));
        let state = place.path().join("state");
        if round > 0 {
            std::fs::remove_dir_all(&state)?; // the last round's stays for the recall
        }
        rate.values.push(files as f64 / migrate_small(&state, files)?);
    }
    told(&format!("tape: recalling {wanted} of {files} small files in scattered order"));
    let name = format!("tape: backward moves, {wanted} scattered files of one cartridge");
    let mut backward = Figure::new(name, "", Target::AtMost(0.0));
    backward.note =
        "LTO-9 mechanics, a thousand times faster; the head stands at the first file before".into();
    backward.values.push(recall_small(&place.path().join("state"), files, wanted)?);
    Ok(vec![rate, backward])
}

fn migrate_small(state: &Path, files: u64) -> Result<f64> {
    let bed = Bed::start(bed::config(state, &["primary"]))?;
    warm_up(&bed)?;
    let names: Vec<String> = (0..files).map(|n| format!("small-{n:06}")).collect();
    names.iter().try_for_each(|n| put_small(&bed, n))?;
    let (secs, ()) = timed(|| bed.act(Call::Migrate, &names))?;
    bed.act(Call::Purge, &names)?;
    Ok(secs)
}

/// Without waiting for the disk for each of them.
fn put_small(bed: &Bed, name: &str) -> Result<()> {
    let write = types::api::OpenFlags { write: true, ..Default::default() };
    let opened = bed.node.create(&bed::cx(), Ino::ROOT, name.as_bytes(), 0o644, write)?;
    bed.node.write(opened.handle, 0, &[0x77; SMALL as usize])?;
    bed.node.release(opened.handle);
    Ok(())
}

fn recall_small(state: &Path, files: u64, wanted: u64) -> Result<f64> {
    let mut config = bed::config(state, &["primary"]);
    (config.library.mechanics, config.library.speed) = ("lto9".into(), 1000.0);
    let bed = Bed::start(config)?;
    let mut scatter = Scatter(1);
    let mut left: Vec<u64> = (APART..files).collect();
    let mut names = Vec::new();
    while (names.len() as u64) < wanted.min(files - APART) {
        let chosen = left.swap_remove(scatter.below(left.len() as u64) as usize);
        names.push(format!("small-{chosen:06}"));
    }
    bed.act(Call::Stage, &["small-000000".to_owned()])?;
    let backward = |bed: &Bed| (0..bed.drives()).map(|n| bed.stats(n).backward).sum::<u64>();
    let before = backward(&bed);
    bed.act(Call::Stage, &names)?;
    Ok((backward(&bed) - before) as f64)
}
