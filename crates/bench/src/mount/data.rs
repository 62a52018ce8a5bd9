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

/// Bytes of a sequential call, and of a scattered one.
const BLOCK: u64 = 1 << 20;
const PAGE: u64 = 4096;
const FILE: &str = "data";
const CONTENT: u8 = 0xa5;
/// Pieces in which the file is written.
const WRITTEN: u64 = 4;

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
    /// Pieces that each side does by turns; a divisor of `calls`.
    pieces: u64,
    /// Read from the floor too.
    floor: bool,
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
        pieces: plan.amount(4, 64),
        floor: false,
    };
    let mut cached = reading("sequential read, from memory", "MB/s", sequential);
    cached.calls = plan.amount(2, 6) * whole; // several passes: one is over before it can be measured
    let mut cold = reading("sequential read, from the disk", "MB/s", sequential);
    cold.cold = true;
    cold.comparison.note = "the kernel's page cache is dropped before".into();
    let mut direct = reading("sequential read, O_DIRECT", "MB/s", sequential);
    direct.direct = true;
    let mut random_cached = reading("random read of 4 KiB, from memory", "/s", random);
    (random_cached.calls, random_cached.floor) = (plan.amount(5_000, 1_280_000), true);
    let mut random_direct = reading("random read of 4 KiB, O_DIRECT", "/s", random);
    (random_direct.calls, random_direct.direct) = (plan.amount(100, 6_400), true);
    vec![cached, cold, direct, random_cached, random_direct]
}

/// Measures the group. The disk may be shared and change its speed from one second to the next: so the sides that are
/// compared work by turns, in pieces of milliseconds. The floor's files share their bytes, which is enough for reading them.
pub fn measure(plan: &Plan, sides: &Sides, told: &dyn Fn(&str)) -> Result<Vec<Comparison>> {
    let name = format!("sequential write, fsync every {} MiB", (bytes(plan) / WRITTEN) >> 20);
    let mut write = Comparison::rate(name, "MB/s", Target::AtLeast(0.95));
    let mut readings = readings(plan);
    for round in 0..=plan.rounds {
        match round {
            0 => told("data: a first round that is not counted"),
            n => told(&format!("data: round {n} of {}", plan.rounds)),
        }
        for base in sides.bases() {
            let live = sides.of(base);
            let rates = written(plan, sides, &live, round)?;
            for (live, rate) in live.iter().zip(rates).filter(|(live, _)| round > 0 && keeps_bytes(live)) {
                write.push(live.side, rate);
            }
            for reading in readings.iter_mut().filter(|_| round > 0) {
                let wanted: Vec<&Live> =
                    live.iter().copied().filter(|live| reading.floor || keeps_bytes(live)).collect();
                let rates = read(plan, &wanted, reading, round)?;
                wanted.iter().zip(rates).for_each(|(live, rate)| reading.comparison.push(live.side, rate));
            }
        }
    }
    Ok(std::iter::once(write).chain(readings.into_iter().map(|r| r.comparison)).collect())
}

fn keeps_bytes(live: &Live) -> bool {
    live.side.kind != Kind::Floor
}

/// Does every piece of some work on each of so many sides, each first by turns; seconds that each took.
fn by_turns(
    sides: usize,
    pieces: u64,
    round: usize,
    mut work: impl FnMut(usize, u64) -> Result<()>,
) -> Result<Vec<f64>> {
    let mut seconds = vec![0.0; sides];
    for piece in 0..pieces {
        for n in 0..sides {
            let side = (n + piece as usize + round) % sides;
            seconds[side] += timed(|| work(side, piece))?.0;
        }
    }
    Ok(seconds)
}

/// Writes a new file on each side, a piece at a time, and makes each piece durable; bytes per second / 10^6.
fn written(plan: &Plan, sides: &Sides, live: &[&Live], round: usize) -> Result<Vec<f64>> {
    let bytes = bytes(plan);
    let open = |live: &&Live| {
        let path = live.dir.join(FILE);
        if round > 0 {
            fs::remove_file(&path)?;
        }
        Ok(File::options().write(true).create_new(true).open(path)?)
    };
    let mut files = live.iter().map(open).collect::<Result<Vec<File>>>()?;
    sides.settle()?;
    let block = vec![CONTENT; BLOCK as usize];
    let seconds = by_turns(live.len(), WRITTEN, round, |side, _| {
        for _ in 0..bytes / WRITTEN / BLOCK {
            files[side].write_all(&block)?;
        }
        Ok(files[side].sync_all()?)
    })?;
    Ok(seconds.into_iter().map(|secs| bytes as f64 / secs / 1e6).collect())
}

/// Reads as asked on each side; in the unit of the comparison.
fn read(plan: &Plan, live: &[&Live], how: &Reading, round: usize) -> Result<Vec<f64>> {
    let bytes = bytes(plan);
    let direct = if how.direct { OFlags::DIRECT } else { OFlags::empty() };
    let open = |live: &&Live| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | direct;
        Ok(File::from(openat(CWD, live.dir.join(FILE), flags, Mode::empty())?))
    };
    let files = live.iter().map(open).collect::<Result<Vec<File>>>()?;
    if how.cold {
        forget(Cache::Pages)?;
    } else if !how.direct {
        files.iter().try_for_each(|file| warm(file, bytes))?;
    }
    let mut memory = vec![0; (how.block + PAGE) as usize];
    // O_DIRECT wants memory at a multiple of a block.
    let start = memory.as_ptr().align_offset(PAGE as usize);
    let block = &mut memory[start..start + how.block as usize];
    let (places, each) = (bytes / how.block, how.calls / how.pieces);
    let seconds = by_turns(live.len(), how.pieces, round, |side, piece| {
        let mut scatter = Scatter(bytes + piece);
        for n in piece * each..(piece + 1) * each {
            let place = if how.scattered { scatter.below(places) } else { n % places };
            files[side].read_exact_at(block, place * how.block)?;
        }
        ensure!(block.iter().all(|&b| b == CONTENT), "{:?} does not hold what was written", live[side].side);
        Ok(())
    })?;
    let done = (each * how.pieces) as f64 * if how.scattered { 1.0 } else { how.block as f64 / 1e6 };
    Ok(seconds.into_iter().map(|secs| done / secs).collect())
}

/// Brings the whole file to memory.
fn warm(file: &File, bytes: u64) -> Result<()> {
    let mut block = vec![0; BLOCK as usize];
    for n in 0..bytes / BLOCK {
        file.read_exact_at(&mut block, n * BLOCK)?;
    }
    Ok(())
}
