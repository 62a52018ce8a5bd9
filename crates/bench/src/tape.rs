//! Migration and recall with virtual drives.

mod streaming;

use crate::bed::{self, Bed};
use crate::place::{self, Scatter, timed};
use crate::shelf::Shelf;
use crate::{Figure, Plan, Target};
use anyhow::{Context, Result};
use node::{Config, Size};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use streaming::watch;
use types::Ino;
use types::api::FileApi;
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
    let mut figures = streaming::measure(plan, told)?;
    figures.extend(recall_large(plan, told)?);
    figures.extend(small(plan, told)?);
    Ok(figures)
}

/// Size of the large recall: 4 GiB, or what an eighth of the free space holds.
fn recall_bytes(plan: &Plan) -> Result<u64> {
    let wanted = plan.amount(64 << 20, 4 << 30);
    Ok(wanted.min(place::free(&plan.dir)? / 8))
}

/// One large file comes back.
fn recall_large(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let bytes = recall_bytes(plan)?;
    let place = place::make(&plan.dir, 2 * bytes + SPARE)?;
    let mut config = bed::config(&place.path().join("state"), &["primary"]);
    config.library.drive_rate = Size(RATE);
    let bed = Bed::start(config)?;
    warm_up(&bed)?;
    let mib = bytes >> 20;
    let name = format!("tape: first byte of a recall of {mib} MiB after the drive starts");
    let mut latency = Figure::new(name, "s", Target::AtMost(0.5));
    let mut busy = Figure::new("  share of time the drive streams during this recall", "", Target::None);
    let names = ["first".to_owned()];
    bed.put(&names[0], bytes)?;
    bed.act(Call::Migrate, &names)?;
    for round in 0..plan.rounds {
        told(&format!("tape: recalling {mib} MiB, round {}", round + 1));
        bed.act(Call::Purge, &names)?;
        let shares = watch(&|| bed.all_stats(), || {
            latency.values.push(first_byte(&bed, &names[0])?);
            bed.act(Call::Stage, &names)
        })?;
        busy.values.push(shares.into_iter().fold(f64::INFINITY, f64::min));
    }
    latency.note = "looked at every millisecond: 0 is below that".into();
    busy.note = "limited to 400 MB/s; the file goes to the disk that the cartridge is read from".into();
    Ok(vec![latency, busy])
}

/// Labels and mounts: afterwards nothing but files moves.
fn warm_up(bed: &Bed) -> Result<()> {
    bed.put("warm", 1 << 20)?;
    bed.act(Call::Migrate, &["warm".to_owned()])
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

/// Many small files, with one and with two copies; then some of them come back in scattered order.
fn small(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let (files, wanted) = (plan.amount(1_000, 20_000), plan.amount(200, 5_000));
    let place = place::make(&plan.dir, 3 * files * (SMALL + 8192) + SPARE)?;
    let shelf = Shelf::new(&plan.dir, 3 * files * SMALL)?;
    let library = shelf.library();
    let state = place.path().join("state");
    let mut figures = Vec::new();
    // One copy last: that cartridge is read from afterwards.
    for copies in [&["primary", "second"][..], &["primary"]] {
        let name = format!("tape: migrating {files} files of 20 KB, copies: {}", copies.len());
        let mut rate = Figure::new(name, "files/s", Target::AtLeast(5_000.0));
        rate.note = "until the last copy counts; cartridges in memory, files on the disk".into();
        for round in 0..plan.rounds {
            told(&format!(
                "tape: migrating {files} small files, copies: {}, round {}",
                copies.len(),
                round + 1
            ));
            for dir in [&state, &library] {
                if dir.exists() {
                    std::fs::remove_dir_all(dir)?;
                }
            }
            rate.values.push(files as f64 / migrate_small(small_config(&state, &library, copies), files)?);
        }
        figures.push(rate);
    }
    told(&format!("tape: recalling {wanted} of {files} small files in scattered order"));
    let name = format!("tape: backward moves, {wanted} scattered files of one cartridge");
    let mut backward = Figure::new(name, "", Target::AtMost(0.0));
    backward.note =
        "LTO-9 mechanics, a thousand times faster; the head stands at the first file before".into();
    backward.values.push(recall_small(small_config(&state, &library, &["primary"]), files, wanted)?);
    figures.push(backward);
    Ok(figures)
}

fn small_config(state: &Path, library: &Path, copies: &[&str]) -> Config {
    let mut config = bed::config(state, copies);
    config.library.path = Some(library.to_owned());
    config
}

fn migrate_small(config: Config, files: u64) -> Result<f64> {
    let bed = Bed::start(config)?;
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

fn recall_small(mut config: Config, files: u64, wanted: u64) -> Result<f64> {
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
