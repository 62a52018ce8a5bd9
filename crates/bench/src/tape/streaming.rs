//! How much of the time drives stream while large files are written: by a node, and by the least that anybody could do.

use super::{SPARE, warm_up};
use crate::bare::{self, Bare};
use crate::bed::{self, Bed};
use crate::shelf::Shelf;
use crate::{Figure, Plan, Target, place};
use anyhow::{Context, Result};
use node::Size;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vtl::{DriveStats, Mechanics, VtlConfig};
use wire::Call;

/// Rates of a drive (bytes per second): that of LTO-9, and half of it.
const RATES: [u64; 2] = [400_000_000, 200_000_000];
/// How often the drives are looked at.
const LOOK: Duration = Duration::from_millis(1);
/// Files between two flushes.
const FLUSH_FILES: u64 = 4;

/// What is written to each drive.
#[derive(Clone, Copy)]
struct Load {
    files: u64,
    size: u64,
    rate: u64,
}

/// Two copies of large files at once, at each rate.
pub(super) fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for rate in RATES {
        let load = Load { files: plan.amount(4, 10), size: plan.amount(16 << 20, 128 << 20), rate };
        figures.extend(at_rate(plan, load, told)?);
    }
    let mut disk = Figure::new("  the disk of the files: write + fsync", "MB/s", Target::None);
    let (size, path) = (plan.amount(64 << 20, 512 << 20), place::make(&plan.dir, 1 << 30)?);
    for _ in 0..plan.rounds {
        disk.values.push(place::write_rate(&path.path().join("written"), size)? / 1e6);
    }
    figures.push(disk);
    Ok(figures)
}

fn at_rate(plan: &Plan, load: Load, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let Load { files, size, rate } = load;
    let (mib, mb) = (size >> 20, rate / 1_000_000);
    let name =
        format!("tape: share of time each drive streams at {mb} MB/s, two copies of files of {mib} MiB");
    let mut node = Figure::new(name, "", Target::AtLeast(0.95));
    let mut floor = Figure::new(format!("  the same by a bare loop at {mb} MB/s"), "", Target::None);
    let mut ratio = Figure::new(format!("  of the bare loop at {mb} MB/s"), "", Target::AtLeast(0.95));
    let mut work = ["the node", "the bare loop"].map(|who| {
        Figure::new(format!("  processors that {who} takes for both drives at {mb} MB/s"), "", Target::None)
    });
    for round in 0..plan.rounds {
        told(&format!("tape: {files} files of {mib} MiB to two drives of {mb} MB/s, round {}", round + 1));
        let place = place::make(&plan.dir, (files + 1) * size + SPARE)?;
        let mut sides = [Outcome::default(); 2];
        // Each first by turns.
        for side in [round % 2, (round + 1) % 2] {
            let shelf = Shelf::new(&plan.dir, 2 * files * size)?;
            sides[side] = match side {
                0 => by_node(&place.path().join("state"), shelf, load)?,
                _ => by_loop(&place.path().join("file"), shelf, load)?,
            };
        }
        node.values.push(sides[0].share);
        floor.values.push(sides[1].share);
        ratio.values.push(sides[0].share / sides[1].share.max(1e-9));
        work.iter_mut().zip(sides).for_each(|(figure, side)| figure.values.push(side.processors));
    }
    node.note = format!(
        "of the drive that streams less, from its first record to its last, flushed after every {FLUSH_FILES} files; \
         cartridges in memory that they have already: the disk here does not carry 800 MB/s besides its own work"
    );
    floor.note = "one thread per drive reads a file from memory, hashes it and gives it to the drive, flushed as often".into();
    Ok([node, floor, ratio].into_iter().chain(work).collect())
}

/// What one side reaches.
#[derive(Clone, Copy, Default)]
struct Outcome {
    /// Streaming share of the drive that streams less.
    share: f64,
    /// Processor time of everything that was done, per second that both drives stream.
    processors: f64,
}

fn outcome(
    drives: &(dyn Fn() -> Vec<DriveStats> + Sync),
    Load { files, size, rate }: Load,
    work: impl FnOnce() -> Result<()>,
) -> Result<Outcome> {
    let before = place::processor_time();
    let shares = watch(drives, work)?;
    let used = place::processor_time().saturating_sub(before);
    let share = shares.into_iter().reduce(f64::min).context("no drive has moved data")?;
    Ok(Outcome { share, processors: used.as_secs_f64() * rate as f64 / (files * size) as f64 })
}

/// By a node.
fn by_node(state: &Path, mut shelf: Shelf, load: Load) -> Result<Outcome> {
    let Load { files, size, rate } = load;
    let mut config = bed::config(state, &["primary", "second"]);
    config.library.drive_rate = Size(rate);
    config.library.path = Some(shelf.library());
    config.tape.flush_every = Size(FLUSH_FILES * size);
    shelf.load(2 * files * size)?;
    let library = shelf.open(&config)?;
    let bed = Bed::start_with(config, library)?;
    warm_up(&bed)?;
    let names: Vec<String> = (0..files).map(|n| format!("large-{n}")).collect();
    names.iter().try_for_each(|n| bed.put(n, size))?;
    outcome(&|| bed.all_stats(), load, || bed.act(Call::Migrate, &names))
}

/// By a loop without anything else, with as many bytes in memory.
fn by_loop(path: &Path, mut shelf: Shelf, load: Load) -> Result<Outcome> {
    let Load { files, size, rate } = load;
    let (dir, mechanics) = (shelf.library(), Mechanics::streaming(rate));
    let config = VtlConfig { capacity_bytes: 2 * files * size, mechanics, ..VtlConfig::new(dir) };
    let bare = Bare::new(path, config, bare::Load { files, size, flush_files: FLUSH_FILES })?;
    shelf.load(2 * files * size)?;
    shelf.lend(&bare.library)?;
    let stats = || (0..2).map(|n| bare.library.stats(n).unwrap_or_default()).collect();
    outcome(&stats, load, || bare.run())
}

/// Streaming share of every drive that moved data while `work` ran, from the first byte that it moved.
pub(super) fn watch(
    drives: &(dyn Fn() -> Vec<DriveStats> + Sync),
    work: impl FnOnce() -> Result<()>,
) -> Result<Vec<f64>> {
    let done = AtomicBool::new(false);
    let before = drives();
    let begun = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut begun: Vec<Option<DriveStats>> = before.iter().map(|_| None).collect();
            while !done.load(Ordering::Acquire) {
                for ((begun, before), now) in begun.iter_mut().zip(&before).zip(drives()) {
                    let moved =
                        (now.bytes_written, now.bytes_read) != (before.bytes_written, before.bytes_read);
                    if begun.is_none() && moved {
                        *begun = Some(now);
                    }
                }
                std::thread::sleep(LOOK);
            }
            begun
        });
        let result = work();
        done.store(true, Ordering::Release);
        let begun =
            watcher.join().map_err(|_| anyhow::anyhow!("the thread that watches the drives panicked"))?;
        result.map(|()| begun)
    })?;
    let share = |(begun, end): (Option<DriveStats>, DriveStats)| {
        let begun = begun?;
        let streamed = end.streaming.saturating_sub(begun.streaming).as_secs_f64();
        let stood = end.standing.saturating_sub(begun.standing).as_secs_f64();
        Some(streamed / (streamed + stood).max(1e-9))
    };
    Ok(begun.into_iter().zip(drives()).filter_map(share).collect())
}
