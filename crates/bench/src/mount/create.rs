//! Making small files: create, write, close, as long as nothing that was deleted stands in the way.
//!
//! Every round makes new directories and nothing is deleted until the end: ext4 does not reuse an inode for up to five minutes
//! after its deletion and walks past all of them at every create, which makes creates ten times slower for minutes.
//! That history would decide the figures of the directory, natively and below Thermocline; the images have none.

use super::{SMALL, populate};
use crate::compare::{Comparison, Side};
use crate::place::timed;
use crate::sides::{Live, Sides};
use crate::{Plan, Target};
use anyhow::{Result, anyhow};
use std::fs;
use std::path::PathBuf;

/// Creates per second that will do, whatever the file system below makes.
const ENOUGH: f64 = 12_000.0;
const SHARE: f64 = 0.35;

fn files(plan: &Plan) -> u64 {
    plan.amount(200, 10_000)
}

/// Bytes written on each side: with one thread and with two, and the round that is not counted.
pub fn bytes(plan: &Plan) -> u64 {
    (plan.rounds as u64 + 1) * 2 * files(plan) * SMALL
}

/// Measures the group.
pub fn measure(plan: &Plan, sides: &Sides, told: &dyn Fn(&str)) -> Result<Vec<Comparison>> {
    let files = files(plan);
    let rate = |threads: &str| {
        Comparison::rate(format!("create + write + close, {threads}"), "/s", Target::AtLeast(SHARE))
    };
    let mut one = rate("1 thread");
    one.or_value = Some(ENOUGH);
    let mut two = rate("2 threads").note("each in a directory of its own");
    let durable =
        Comparison::rate("create + write + close, 1 thread, until all are durable", "/s", Target::None);
    let mut durable = durable.note("ended by a sync of everything, of which most is the time of the disk");
    told(&format!("create: {files} files per side and round; a first round that is not counted"));
    for threads in [1, 2] {
        sides.each(0, |_| true, |live| create(sides, live, "first", threads, files / 4), |_, _| ())?;
    }
    for round in 0..plan.rounds {
        told(&format!("create: round {} of {}", round + 1, plan.rounds));
        let name = format!("round-{round}");
        sides.each(
            round,
            |_| true,
            |live| create(sides, live, &name, 1, files),
            |live, rates| {
                one.push(live.side, rates.calls);
                if live.side != Side::FLOOR {
                    durable.push(live.side, rates.durable);
                }
            },
        )?;
        sides.each(
            round,
            |_| true,
            |live| create(sides, live, &name, 2, files),
            |live, rates| two.push(live.side, rates.calls),
        )?;
    }
    Ok(vec![one, two, durable])
}

/// Files per second.
struct Rates {
    /// While the calls went on.
    calls: f64,
    /// Until everything was on stable storage.
    durable: f64,
}

fn create(sides: &Sides, live: &Live, name: &str, threads: u64, files: u64) -> Result<Rates> {
    let dirs: Vec<PathBuf> = (0..threads).map(|n| live.dir.join(format!("{name}-{threads}-{n}"))).collect();
    dirs.iter().try_for_each(fs::create_dir)?;
    let (calls, ()) = timed(|| {
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                dirs.iter().map(|dir| scope.spawn(move || populate(dir, files / threads))).collect();
            workers.into_iter().try_for_each(|w| w.join().map_err(|_| anyhow!("a thread panicked"))?)
        })
    })?;
    let (sync, ()) = timed(|| sides.settle())?;
    Ok(Rates { calls: files as f64 / calls, durable: files as f64 / (calls + sync) })
}
