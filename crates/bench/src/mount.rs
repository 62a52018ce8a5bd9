//! Files through the mount against the same calls in a directory beside it, on the same file system and by turns.

use crate::bed::{self, Bed};
use crate::place::{self, Scatter, timed};
use crate::{Figure, MountFn, Plan, Target};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

const BLOCK: usize = 1 << 20;

/// The two directories that are compared.
struct Pair {
    native: PathBuf,
    ours: PathBuf,
}

/// Work in a directory: its rate.
type Work<'a> = &'a dyn Fn(&Path) -> Result<f64>;

impl Pair {
    /// Does `work` in both, each first by turns, and gives (ours, native).
    fn rates(&self, round: usize, work: Work<'_>) -> Result<(f64, f64)> {
        let native = || work(&self.native).context("in the directory beside the mount");
        let ours = || work(&self.ours).context("through the mount");
        if round.is_multiple_of(2) {
            let native = native()?;
            return Ok((ours()?, native));
        }
        let ours = ours()?;
        Ok((ours, native()?))
    }
}

/// Measures the group; says so if this user cannot mount.
pub fn measure(plan: &Plan, mount: MountFn<'_>, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        told("mount: left out, it needs root and /dev/fuse");
        return Ok(Vec::new());
    }
    let bytes = plan.amount(256 << 20, 1 << 30);
    let place = place::make(&plan.dir, 3 * bytes)?;
    let pair = Pair { native: place.path().join("native"), ours: place.path().join("mount") };
    fs::create_dir(&pair.native)?;
    fs::create_dir(&pair.ours)?;
    let bed = Bed::start(bed::config(&place.path().join("state"), &["primary"]))?;
    let mount = || mount(Arc::clone(&bed.node), &pair.ours);
    let mut mounted = mount()?;
    let mut figures = data(plan, &pair, bytes, told)?;
    figures.extend(creates(plan, &pair, told)?);
    let entries = plan.amount(20_000, 100_000);
    told(&format!("mount: making {entries} files on both sides"));
    pair.rates(0, &|dir| populate(dir, entries))?;
    figures.push(listing(plan, &pair, entries, told)?);
    let mut uncached = ratio("mount: stat of files that the kernel has forgotten", 0.2);
    let mut cached = ratio("mount: stat of files that the kernel knows", 0.9);
    let times = entries.min(20_000);
    for round in 0..plan.rounds {
        told(&format!("mount: stat, round {}", round + 1));
        drop(mounted);
        forget()?;
        mounted = mount()?;
        for figure in [&mut uncached, &mut cached] {
            let (ours, native) = pair.rates(round, &|dir| stats(dir, times))?;
            figure.values.push(ours / native);
        }
    }
    drop(mounted);
    uncached.note =
        "native too: the kernel's names and inodes were dropped (/proc/sys/vm/drop_caches), pages were not"
            .into();
    figures.extend([uncached, cached]);
    Ok(figures)
}

fn ratio(name: &str, target: f64) -> Figure {
    Figure::new(name, "x native", Target::AtLeast(target))
}

/// Drops the kernel's caches of names and inodes.
fn forget() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "2").context("dropping the kernel's caches of names and inodes")
}

fn data(plan: &Plan, pair: &Pair, bytes: u64, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let mut write = ratio("mount: sequential write and fsync", 0.95);
    let mut read = ratio("mount: sequential read", 0.95);
    let mut random = ratio("mount: random read of 4 KiB", 0.85);
    let reads = plan.amount(50_000, 200_000);
    for round in 0..plan.rounds {
        told(&format!("mount: reading and writing {} MiB, round {}", bytes >> 20, round + 1));
        let works: [(&mut Figure, Work<'_>); 3] = [
            (&mut write, &|dir| sequential_write(&dir.join("data"), bytes)),
            (&mut read, &|dir| sequential_read(&dir.join("data"))),
            (&mut random, &|dir| random_read(&dir.join("data"), bytes, reads)),
        ];
        for (figure, work) in works {
            let (ours, native) = pair.rates(round, work)?;
            figure.values.push(ours / native);
        }
        pair.rates(round, &|dir| Ok(fs::remove_file(dir.join("data")).map(|()| 1.0)?))?;
    }
    read.note = "of pages in memory; both sides share the page cache of the file below".into();
    Ok(vec![write, read, random])
}

fn sequential_write(path: &Path, bytes: u64) -> Result<f64> {
    let block = vec![0xa5; BLOCK];
    let mut file = File::create(path)?;
    let (secs, ()) = timed(|| {
        for _ in 0..bytes / BLOCK as u64 {
            file.write_all(&block)?;
        }
        Ok(file.sync_all()?)
    })?;
    Ok(bytes as f64 / secs)
}

fn sequential_read(path: &Path) -> Result<f64> {
    let mut block = vec![0; BLOCK];
    let mut file = File::open(path)?;
    let (secs, bytes) = timed(|| {
        let mut bytes = 0;
        loop {
            match file.read(&mut block)? {
                0 => return Ok(bytes),
                n => bytes += n,
            }
        }
    })?;
    ensure!(bytes > 0, "{} is empty", path.display());
    Ok(bytes as f64 / secs)
}

fn random_read(path: &Path, bytes: u64, times: u64) -> Result<f64> {
    let file = File::open(path)?;
    let mut scatter = Scatter(bytes);
    let mut block = [0; 4096];
    let (secs, ()) = timed(|| {
        for _ in 0..times {
            file.read_exact_at(&mut block, scatter.below(bytes / 4096) * 4096)?;
        }
        Ok(())
    })?;
    Ok(times as f64 / secs)
}

fn creates(plan: &Plan, pair: &Pair, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let mut rate = Figure::new("mount: create + write + close, 1 thread", "/s", Target::AtLeast(12_000.0));
    let mut share = ratio("  the same (one of the two is to be met)", 0.35);
    let files = plan.amount(3_000, 20_000);
    for round in 0..plan.rounds {
        told(&format!("mount: creating {files} small files, round {}", round + 1));
        let (ours, native) = pair.rates(round, &|dir| {
            let dir = dir.join(format!("created-{round}"));
            fs::create_dir(&dir)?;
            populate(&dir, files)
        })?;
        rate.values.push(ours);
        share.values.push(ours / native);
        pair.rates(
            round,
            &|dir| Ok(fs::remove_dir_all(dir.join(format!("created-{round}"))).map(|()| 1.0)?),
        )?;
    }
    Ok(vec![rate, share])
}

fn name(n: u64) -> String {
    format!("file-{n:07}")
}

fn populate(dir: &Path, files: u64) -> Result<f64> {
    let (secs, ()) = timed(|| {
        (0..files).try_for_each(|n| Ok(File::create(dir.join(name(n)))?.write_all(b"small files are small")?))
    })?;
    Ok(files as f64 / secs)
}

fn stats(dir: &Path, times: u64) -> Result<f64> {
    let (secs, ()) = timed(|| {
        (0..times).try_for_each(|n| {
            fs::symlink_metadata(dir.join(name(n)))?;
            Ok(())
        })
    })?;
    Ok(times as f64 / secs)
}

fn listing(plan: &Plan, pair: &Pair, entries: u64, told: &dyn Fn(&str)) -> Result<Figure> {
    let mut figure =
        Figure::new(format!("mount: time of ls -l, {entries} entries"), "x native", Target::AtMost(2.5));
    for round in 0..plan.rounds {
        told(&format!("mount: ls -l, round {}", round + 1));
        let (ours, native) = pair.rates(round, &|dir| {
            let (secs, status) =
                timed(|| Ok(Command::new("ls").arg("-l").arg(dir).stdout(Stdio::null()).status()?))?;
            ensure!(status.success(), "ls -l {} failed", dir.display());
            Ok(entries as f64 / secs)
        })?;
        figure.values.push(native / ours);
    }
    Ok(figure)
}
