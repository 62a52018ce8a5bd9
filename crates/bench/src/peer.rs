//! Beside GlusterFS: the same calls through its FUSE client and through our mount of another host, over four bricks and four targets on the
//! same disk, by turns. All parts run on this machine.

mod gluster;

use crate::cluster::{Cluster, Wanted};
use crate::place::{self, Scatter, timed};
use crate::sides::{Cache, forget};
use crate::{Figure, Plan, Target};
use anyhow::{Context, Result, ensure};
use gluster::Gluster;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bricks and targets.
const PARTS: u16 = 4;
const BLOCK: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// What is left to the file system and to logs (bytes).
const SPARE: u64 = 512 << 20;

/// How bytes are dealt out to bricks and targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Without redundancy.
    Distributed,
    /// Three parts of data and one of parity.
    Dispersed,
}

impl Shape {
    const ALL: [Self; 2] = [Self::Distributed, Self::Dispersed];

    fn name(self) -> &'static str {
        match self {
            Self::Distributed => "distributed",
            Self::Dispersed => "dispersed 3+1",
        }
    }
}

/// What is measured; each is given a directory of a mount and gives a rate.
type Work = fn(&Amounts, &Path) -> Result<f64>;

/// Name, unit of the rate, and what is done; in the order in which it is done, since some need what others have made.
const WORKS: [(&str, &str, Work); 7] = [
    ("sequential write and fsync", "MB/s", write),
    ("sequential read", "MB/s", read),
    ("random read of 4 KiB", "/s", read_pages),
    ("random write of 4 KiB and fsync", "/s", write_pages),
    ("create + write + close", "/s", create),
    ("stat, forgotten", "/s", stat),
    ("`ls -l`, forgotten", "entries/s", list),
];

/// How much of everything.
struct Amounts {
    bytes: u64,
    pages: u64,
    files: u64,
}

/// A piece of work: our rate, and ours by theirs.
struct Row {
    ahead: Figure,
    rate: Figure,
}

impl Row {
    fn new(shape: Shape, what: &str, unit: &'static str) -> Self {
        let name = format!("peer: {}, {what}", shape.name());
        Self {
            ahead: Figure::new(format!("{name} ÷ GlusterFS"), "", Target::AtLeast(1.0)),
            rate: Figure::new(name, unit, Target::None),
        }
    }
}

/// Measures the group; gives nothing, and says why, where GlusterFS is not installed or this user cannot mount.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        told("peer: left out, it needs root and /dev/fuse");
        return Ok(Vec::new());
    }
    let Some(version) = gluster::version() else {
        told("peer: left out, GlusterFS is not installed (Debian: apt-get install glusterfs-server)");
        return Ok(Vec::new());
    };
    let amounts = Amounts {
        bytes: plan.amount(32 << 20, 512 << 20),
        pages: plan.amount(200, 4000),
        files: plan.amount(100, 2000),
    };
    let place = place::make(&plan.dir, 12 * amounts.bytes + SPARE)?;
    let wanted = Wanted { targets: [PARTS, 0], ..Wanted::default() };
    let ours = Cluster::start(&place.path().join("ours"), &wanted)?;
    let (mount, theirs) = (ours.mount(1)?, Gluster::start(&place.path().join("theirs"))?);
    let mut figures = Vec::new();
    for shape in Shape::ALL {
        told(&format!("peer: {}, beside {version}", shape.name()));
        let dirs = [shaped(&ours, &mount, shape)?, theirs.mounted(shape)?];
        let mut rows = WORKS.map(|(what, unit, _)| Row::new(shape, what, unit));
        for round in 0..plan.rounds {
            let dirs = dirs.each_ref().map(|dir| dir.join(format!("round-{round}")));
            dirs.iter().try_for_each(fs::create_dir)?;
            for (row, (what, _, work)) in rows.iter_mut().zip(WORKS) {
                let [ours, theirs] = by_turns(round, |side| {
                    settle()?;
                    let names = ["this mount", "GlusterFS"];
                    work(&amounts, &dirs[side]).with_context(|| format!("{}: {what}", names[side]))
                })?;
                row.rate.values.push(ours);
                row.ahead.values.push(ours / theirs);
            }
            dirs.iter().try_for_each(fs::remove_dir_all)?;
        }
        figures.extend(rows.into_iter().flat_map(|row| [row.ahead, row.rate]));
    }
    if let Some(first) = figures.first_mut() {
        first.note = format!(
            "{version} of the distribution, {PARTS} bricks, its FUSE client; ours: {PARTS} targets of one node, mounted on a second one; \
             files of the first shape on one target up to 16 MiB and on all four from there on; every process on this machine, bricks and \
             targets on one disk; caches are dropped before each step; a file of {} MiB, {} \
             pages, {} small files",
            amounts.bytes >> 20,
            amounts.pages,
            amounts.files
        );
    }
    Ok(figures)
}

/// A directory of our mount in which files have this shape.
fn shaped(ours: &Cluster, mount: &Path, shape: Shape) -> Result<PathBuf> {
    let (name, layout) = match shape {
        // A small file on one target, as theirs lies on one brick; a large one on all.
        Shape::Distributed => ("distributed", &["--stripes", "1", "--then", "16MiB:4"][..]),
        Shape::Dispersed => ("dispersed", &["--code", "3+1"][..]),
    };
    let dir = mount.join(name);
    fs::create_dir(&dir)?;
    ours.tell(0, &[&["layout", "set", &format!("tc:/{name}")][..], layout].concat())?;
    Ok(dir)
}

/// Both sides, each first by turns.
fn by_turns(round: usize, mut work: impl FnMut(usize) -> Result<f64>) -> Result<[f64; 2]> {
    let mut rates = [0.0; 2];
    for n in 0..2 {
        let side = (n + round) % 2;
        rates[side] = work(side)?;
    }
    Ok(rates)
}

/// Nothing is left to be written, and nothing is remembered.
fn settle() -> Result<()> {
    rustix::fs::sync();
    forget(Cache::Pages)?;
    forget(Cache::Names)
}

fn large(dir: &Path) -> PathBuf {
    dir.join("large")
}

fn write(amounts: &Amounts, dir: &Path) -> Result<f64> {
    let block = vec![0xa5; BLOCK as usize];
    let mut file = File::create_new(large(dir))?;
    let (seconds, ()) = timed(|| {
        for _ in 0..amounts.bytes / BLOCK {
            file.write_all(&block)?;
        }
        Ok(file.sync_all()?)
    })?;
    Ok(amounts.bytes as f64 / seconds / 1e6)
}

fn read(amounts: &Amounts, dir: &Path) -> Result<f64> {
    let (file, mut block) = (File::open(large(dir))?, vec![0; BLOCK as usize]);
    let (seconds, ()) = timed(|| {
        for n in 0..amounts.bytes / BLOCK {
            file.read_exact_at(&mut block, n * BLOCK)?;
            ensure!(block.iter().all(|byte| *byte == 0xa5), "it does not hold what was written");
        }
        Ok(())
    })?;
    Ok(amounts.bytes as f64 / seconds / 1e6)
}

fn read_pages(amounts: &Amounts, dir: &Path) -> Result<f64> {
    let (file, mut page, mut scatter) = (File::open(large(dir))?, vec![0; PAGE as usize], Scatter(1));
    let (seconds, ()) = timed(|| {
        for _ in 0..amounts.pages {
            file.read_exact_at(&mut page, scatter.below(amounts.bytes / PAGE) * PAGE)?;
            ensure!(page.iter().all(|byte| *byte == 0xa5), "it does not hold what was written");
        }
        Ok(())
    })?;
    Ok(amounts.pages as f64 / seconds)
}

fn write_pages(amounts: &Amounts, dir: &Path) -> Result<f64> {
    let file = File::options().write(true).open(large(dir))?;
    let (page, mut scatter) = (vec![0x5a; PAGE as usize], Scatter(2));
    let (seconds, ()) = timed(|| {
        for _ in 0..amounts.pages {
            file.write_all_at(&page, scatter.below(amounts.bytes / PAGE) * PAGE)?;
        }
        Ok(file.sync_all()?)
    })?;
    Ok(amounts.pages as f64 / seconds)
}

fn small(dir: &Path, number: u64) -> PathBuf {
    dir.join("small").join(format!("file-{number:05}"))
}

fn create(amounts: &Amounts, dir: &Path) -> Result<f64> {
    fs::create_dir(dir.join("small"))?;
    let (seconds, ()) = timed(|| {
        for number in 0..amounts.files {
            File::create_new(small(dir, number))?.write_all(b"small files are small")?;
        }
        Ok(())
    })?;
    Ok(amounts.files as f64 / seconds)
}

fn stat(amounts: &Amounts, dir: &Path) -> Result<f64> {
    let (seconds, ()) = timed(|| {
        for number in 0..amounts.files {
            ensure!(fs::symlink_metadata(small(dir, number))?.len() == 21, "a file has another length");
        }
        Ok(())
    })?;
    Ok(amounts.files as f64 / seconds)
}

fn list(amounts: &Amounts, dir: &Path) -> Result<f64> {
    let (seconds, status) =
        timed(|| Ok(Command::new("ls").arg("-l").arg(dir.join("small")).stdout(Stdio::null()).status()?))?;
    ensure!(status.success(), "ls failed");
    Ok(amounts.files as f64 / seconds)
}
