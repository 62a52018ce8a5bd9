//! One large file: written, read from memory, read from the disk.

use crate::compare::{Comparison, Kind};
use crate::place::{Scatter, timed};
use crate::sides::{Cache, Live, Sides, forget};
use crate::{Plan, Target};
use anyhow::{Result, ensure};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a sequential call, and of a scattered one.
const BLOCK: u64 = 1 << 20;
const PAGE: u64 = 4096;
const FILE: &str = "data";

/// Bytes written on each side.
pub fn bytes(plan: &Plan) -> u64 {
    plan.amount(16 << 20, 512 << 20)
}

/// A way of reading the file.
struct Reading {
    comparison: Comparison,
    /// Bytes of one call.
    block: u64,
    /// Calls.
    calls: u64,
    /// In no order.
    scattered: bool,
    /// Past the page cache.
    direct: bool,
    /// The page cache is dropped first.
    cold: bool,
}

fn readings(plan: &Plan) -> Vec<Reading> {
    let [sequential, random] = [0.95, 0.85].map(Target::AtLeast);
    let whole = bytes(plan) / BLOCK;
    let reading = |name: &str, unit, target| Reading {
        comparison: Comparison::rate(name, unit, target),
        block: if unit == "MB/s" { BLOCK } else { PAGE },
        calls: whole,
        scattered: unit == "/s",
        direct: false,
        cold: false,
    };
    let mut cached = reading("sequential read, from memory", "MB/s", sequential);
    cached.calls = plan.amount(2, 6) * whole; // several passes: one is over before it can be measured
    let mut cold = reading("sequential read, from the disk", "MB/s", sequential);
    cold.cold = true;
    cold.comparison.note = "the kernel's page cache is dropped before each".into();
    let mut direct = reading("sequential read, O_DIRECT", "MB/s", sequential);
    direct.direct = true;
    let mut random_cached = reading("random read of 4 KiB, from memory", "/s", random);
    random_cached.calls = plan.amount(5_000, 400_000);
    let mut random_direct = reading("random read of 4 KiB, O_DIRECT", "/s", random);
    (random_direct.calls, random_direct.direct) = (plan.amount(100, 5_000), true);
    vec![cached, cold, direct, random_cached, random_direct]
}

/// Measures the group. The floor keeps no bytes and is left out.
pub fn measure(plan: &Plan, sides: &Sides, told: &dyn Fn(&str)) -> Result<Vec<Comparison>> {
    let bytes = bytes(plan);
    let name = format!("sequential write of {} MiB and fsync", bytes >> 20);
    let mut write = Comparison::rate(name, "MB/s", Target::AtLeast(0.95));
    let mut readings = readings(plan);
    told("data: a first round that is not counted");
    each(sides, 0, |live| written(sides, &live.dir.join(FILE), bytes), |_, _| ())?;
    for round in 0..plan.rounds {
        told(&format!("data: round {} of {}", round + 1, plan.rounds));
        each(sides, round, |live| Ok(fs::remove_file(live.dir.join(FILE))?), |(), _| ())?;
        each(
            sides,
            round,
            |live| written(sides, &live.dir.join(FILE), bytes),
            |rate, live| write.push(live.side, rate),
        )?;
        for reading in &mut readings {
            let mut rates = Vec::new();
            each(
                sides,
                round,
                |live| read(&live.dir.join(FILE), bytes, reading),
                |rate, live| rates.push((live.side, rate)),
            )?;
            rates.into_iter().for_each(|(side, rate)| reading.comparison.push(side, rate));
        }
    }
    Ok(std::iter::once(write).chain(readings.into_iter().map(|r| r.comparison)).collect())
}

/// On every side that keeps bytes.
fn each<T>(
    sides: &Sides,
    round: usize,
    work: impl Fn(&Live) -> Result<T>,
    mut take: impl FnMut(T, &Live),
) -> Result<()> {
    sides.each(round, |live| live.side.kind != Kind::Floor, work, |live, result| take(result, live))
}

/// Writes and makes durable a new file; bytes per second / 10^6.
fn written(sides: &Sides, path: &Path, bytes: u64) -> Result<f64> {
    sides.settle()?;
    let block = vec![0xa5; BLOCK as usize];
    let mut file = File::options().write(true).create_new(true).open(path)?;
    let (secs, ()) = timed(|| {
        for _ in 0..bytes / BLOCK {
            file.write_all(&block)?;
        }
        Ok(file.sync_all()?)
    })?;
    Ok(bytes as f64 / secs / 1e6)
}

/// Reads as asked; in the unit of the comparison.
fn read(path: &Path, bytes: u64, how: &Reading) -> Result<f64> {
    let direct = if how.direct { OFlags::DIRECT } else { OFlags::empty() };
    let file = File::from(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC | direct, Mode::empty())?);
    if how.cold {
        forget(Cache::Pages)?;
    } else if !how.direct {
        warm(&file, bytes)?;
    }
    let mut memory = vec![0; (how.block + PAGE) as usize];
    // O_DIRECT wants memory at a multiple of a block.
    let start = memory.as_ptr().align_offset(PAGE as usize);
    let block = &mut memory[start..start + how.block as usize];
    let places = bytes / how.block;
    let mut scatter = Scatter(bytes);
    let (secs, ()) = timed(|| {
        for n in 0..how.calls {
            let place = if how.scattered { scatter.below(places) } else { n % places };
            file.read_exact_at(block, place * how.block)?;
        }
        Ok(())
    })?;
    ensure!(block.iter().all(|&b| b == 0xa5), "{} does not hold what was written", path.display());
    Ok(how.calls as f64 / secs * if how.scattered { 1.0 } else { how.block as f64 / 1e6 })
}

/// Brings the whole file to memory.
fn warm(file: &File, bytes: u64) -> Result<()> {
    let mut block = vec![0; BLOCK as usize];
    for n in 0..bytes / BLOCK {
        file.read_exact_at(&mut block, n * BLOCK)?;
    }
    Ok(())
}
