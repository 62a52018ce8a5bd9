//! A large directory: listed with `ls -l`, its files looked at one by one, with the kernel's names and inodes in memory and without.

use super::{SMALL, name, populate};
use crate::compare::Comparison;
use crate::place::timed;
use crate::sides::{Cache, Sides, forget};
use crate::{Plan, Target};
use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const DIR: &str = "large";

fn entries(plan: &Plan) -> u64 {
    plan.amount(2_000, 100_000)
}

/// Bytes written on each side.
pub fn bytes(plan: &Plan) -> u64 {
    entries(plan) * SMALL
}

/// Measures the group.
pub fn measure(plan: &Plan, sides: &Sides, told: &dyn Fn(&str)) -> Result<Vec<Comparison>> {
    let entries = entries(plan);
    told(&format!("list: making {entries} files on each side"));
    sides.each(
        0,
        |_| true,
        |live| {
            fs::create_dir(live.dir.join(DIR))?;
            populate(&live.dir.join(DIR), entries)
        },
        |_, ()| (),
    )?;
    let slow = Target::AtMost(2.5);
    let mut first = Comparison::seconds(format!("`ls -l` of {entries} entries, forgotten"), slow);
    let mut again = Comparison::seconds(format!("`ls -l` of {entries} entries, known"), slow);
    let mut uncached = Comparison::rate("stat, forgotten", "/s", Target::AtLeast(0.2));
    let mut cached = Comparison::rate("stat, known", "/s", Target::AtLeast(0.9));
    first.note = "the kernel's names and inodes were dropped everywhere just before (/proc/sys/vm/drop_caches); XFS then \
                  reads its inodes from the disk again, ext4 finds them in pages that stay".into();
    again.note = "the same once more".into();
    let stats = entries.min(20_000);
    for round in 0..plan.rounds {
        told(&format!("list: round {} of {}", round + 1, plan.rounds));
        sides.each(
            round,
            |_| true,
            |live| {
                let dir = live.dir.join(DIR);
                forget(Cache::Names)?;
                Ok([listed(&dir)?, listed(&dir)?])
            },
            |live, [a, b]| {
                first.push(live.side, a);
                again.push(live.side, b);
            },
        )?;
        sides.each(
            round,
            |_| true,
            |live| {
                let dir = live.dir.join(DIR);
                forget(Cache::Names)?;
                Ok([looked_at(&dir, stats)?, looked_at(&dir, stats)?])
            },
            |live, [a, b]| {
                uncached.push(live.side, a);
                cached.push(live.side, b);
            },
        )?;
    }
    Ok(vec![first, again, uncached, cached])
}

/// Seconds of a listing with attributes.
fn listed(dir: &Path) -> Result<f64> {
    let (secs, status) =
        timed(|| Ok(Command::new("ls").arg("-l").arg(dir).stdout(Stdio::null()).status()?))?;
    ensure!(status.success(), "ls -l {} failed", dir.display());
    Ok(secs)
}

/// stat(2) calls per second.
fn looked_at(dir: &Path, files: u64) -> Result<f64> {
    let paths: Vec<_> = (0..files).map(|n| dir.join(name(n))).collect();
    let (secs, ()) = timed(|| {
        for path in &paths {
            fs::symlink_metadata(path)?;
        }
        Ok(())
    })?;
    Ok(files as f64 / secs)
}
