//! The native library and the preload library, next to the mount, with passthrough and without, and to plain files of the file system
//! below. Everything is in the page cache: it is calls that are compared, not the disk.

use crate::bed::{self, Bed};
use crate::curve::{Curve, Way as Points};
use crate::place::{self, Scatter, timed};
use crate::{Figure, MountFn, Mounted, Plan, Target};
use anyhow::{Context, Result, ensure};
use client::native::{OpenOptions, Options, Session};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use types::api::FileApi;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// What is left to the file system (bytes).
const SPARE: u64 = 512 << 20;
/// Most calls of one length in a curve.
const CALLS: u64 = 4000;
/// How often all is read: once takes some hundredths of a second.
const PASSES: u64 = 8;
/// Name of the file in each place.
const FILE: &str = "data";

type Read = Box<dyn Fn(&mut [u8], u64) -> Result<()>>;
type Write = Box<dyn Fn(&[u8], u64) -> Result<()>>;

/// A way to the bytes of one file of the same length.
struct Way {
    name: &'static str,
    read: Read,
    write: Write,
    /// What was written has arrived.
    flush: Box<dyn Fn() -> Result<()>>,
}

/// All ways, and what they need; ended in this order.
struct Ways {
    all: Vec<Way>,
    /// Directories of the mount without passthrough and of plain files.
    served: Option<PathBuf>,
    plain: PathBuf,
    _mounts: Vec<Mounted>,
    _server: node::Server,
    _bed: Bed,
    _place: tempfile::TempDir,
}

/// Measures the group.
pub fn measure(plan: &Plan, mount: MountFn<'_>, told: &dyn Fn(&str)) -> Result<(Vec<Figure>, Vec<Curve>)> {
    let bytes = plan.amount(16, 512) * MIB;
    let ways = Ways::set_up(plan, bytes, mount, told)?;
    let mut figures = figures(&ways.all[1..]);
    let mut curves = [curve("read", &ways.all, plan), curve("written", &ways.all, plan)];
    let mut dd = Vec::new();
    for round in 0..plan.rounds {
        told(&format!("library: round {} of {}", round + 1, plan.rounds));
        for (kind, figures) in figures.iter_mut().enumerate() {
            for (figure, way) in figures.iter_mut().zip(&ways.all[1..]) {
                figure.values.push(beside(&ways.all[0], way, (kind, round), bytes, plan)?);
            }
        }
        for (write, curve) in curves.iter_mut().enumerate() {
            for (way, points) in ways.all.iter().zip(&mut curve.ways) {
                for &length in &curve.lengths {
                    points.values.push(by_length(way, write == 1, length, bytes, plan)?);
                }
            }
        }
        with_dd(&ways, bytes, &mut dd, told)?;
    }
    Ok((figures.into_iter().flatten().chain(dd).collect(), curves.into()))
}

/// What is done in each way: sequentially written and read, scattered reads and writes.
const KINDS: [&str; 4] = [
    "1 MiB written after the other",
    "1 MiB read after the other",
    "4 KiB read anywhere",
    "4 KiB written anywhere",
];

/// For each kind a figure for each way.
fn figures(ways: &[Way]) -> Vec<Vec<Figure>> {
    let figure = |kind: &str, way: &Way| {
        let target = if way.name == LIBRARY { Target::AtLeast(0.95) } else { Target::None };
        Figure::new(format!("library: {kind}, {} ÷ a plain file", way.name), "", target)
    };
    KINDS.iter().map(|kind| ways.iter().map(|way| figure(kind, way)).collect()).collect()
}

const LIBRARY: &str = "library";

/// Calls per second of a way in relation to plain files, just before or behind it by turns: what the machine does besides, and where its memory lies, changes
/// from second to second.
fn beside(plain: &Way, way: &Way, (kind, round): (usize, usize), bytes: u64, plan: &Plan) -> Result<f64> {
    let both = if round % 2 == 0 { [plain, way] } else { [way, plain] };
    let rates = both.map(|way| {
        rustix::fs::sync(); // what was written before is no burden of this one
        rate(way, kind, bytes, plan)
    });
    let [first, second] = rates;
    let ratio = second? / first?;
    Ok(if round % 2 == 0 { ratio } else { ratio.recip() })
}

/// Calls per second.
fn rate(way: &Way, kind: usize, bytes: u64, plan: &Plan) -> Result<f64> {
    let (block, scattered, write) = match kind {
        0 => (MIB, false, true),
        1 => (MIB, false, false),
        2 => (PAGE, true, false),
        _ => (PAGE, true, true),
    };
    let calls = match (scattered, write) {
        (true, _) => plan.amount(1_000, 100_000),
        (false, true) => bytes / block,
        (false, false) => plan.amount(1, PASSES) * bytes / block,
    };
    let (places, mut scatter, mut buffer) = (bytes / block, Scatter(bytes), vec![0xa5; block as usize]);
    let (seconds, ()) = timed(|| {
        for n in 0..calls {
            let at = block * if scattered { scatter.below(places) } else { n % places };
            if write { (way.write)(&buffer, at)? } else { (way.read)(&mut buffer, at)? }
        }
        (way.flush)()
    })?;
    ensure!(buffer.iter().all(|&b| b == 0xa5), "{} does not hold what was written", way.name);
    Ok(calls as f64 / seconds)
}

fn curve(done: &str, ways: &[Way], plan: &Plan) -> Curve {
    let powers = if plan.quick { 0..9 } else { 0..14 };
    Curve {
        name: format!("library: so many bytes {done} at once, from and to memory"),
        unit: "MB/s".into(),
        lengths: powers.map(|n| 4_u64.pow(n)).filter(|length| *length <= 64 * MIB).collect(),
        ways: ways.iter().map(|way| Points { name: way.name.into(), values: Vec::new() }).collect(),
    }
}

/// Bytes per second / 10^6 with calls of one length, one after the other.
fn by_length(way: &Way, write: bool, length: u64, bytes: u64, plan: &Plan) -> Result<f64> {
    let length = length.min(bytes);
    let calls = (plan.amount(4, 256) * MIB / length).clamp(1, plan.amount(200, CALLS));
    let (places, mut buffer) = (bytes / length, vec![0xa5; length as usize]);
    let (seconds, ()) = timed(|| {
        for n in 0..calls {
            let at = n % places * length;
            if write { (way.write)(&buffer, at)? } else { (way.read)(&mut buffer, at)? }
        }
        (way.flush)()
    })?;
    Ok((calls * length) as f64 / seconds / 1e6)
}

/// dd(1) on a mount without passthrough, with the preload library and without it, and on a plain file.
fn with_dd(ways: &Ways, bytes: u64, figures: &mut Vec<Figure>, told: &dyn Fn(&str)) -> Result<()> {
    let Some(served) = &ways.served else { return Ok(()) };
    let library = std::env::current_exe()?.with_file_name("libthermo_preload.so");
    if !library.exists() {
        told(&format!("library: dd is left out, {} is not built", library.display()));
        return Ok(());
    }
    for (n, (what, write)) in [("written", true), ("read", false)].into_iter().enumerate() {
        let seconds = |dir: &Path, preload: bool| {
            let file = dir.join(FILE).display().to_string();
            let (from, to) = match write {
                true => ("if=/dev/zero".to_owned(), format!("of={file}")),
                false => (format!("if={file}"), "of=/dev/null".to_owned()),
            };
            let mut command = Command::new("dd");
            command.args([&from, &to, "bs=4k", &format!("count={}", bytes / PAGE), "conv=notrunc"]);
            command.stderr(Stdio::null());
            if preload {
                command.env("LD_PRELOAD", &library);
            }
            let (seconds, ended) = timed(|| Ok(command.status()?))?;
            ensure!(ended.success(), "dd has failed");
            Ok(seconds)
        };
        let (plain, with, without) =
            (seconds(&ways.plain, false)?, seconds(served, true)?, seconds(served, false)?);
        for (m, (way, ratio, target)) in [
            ("preload library", plain / with, Target::AtLeast(0.7)),
            ("no library", plain / without, Target::None),
        ]
        .into_iter()
        .enumerate()
        {
            if figures.len() <= 2 * n + m {
                let name = format!(
                    "library: dd, 4 KiB {what} after the other, mount without passthrough, {way} ÷ a plain file"
                );
                figures.push(Figure::new(name, "", target));
            }
            figures[2 * n + m].values.push(ratio);
        }
    }
    Ok(())
}

impl Ways {
    fn set_up(plan: &Plan, bytes: u64, mount: MountFn<'_>, told: &dyn Fn(&str)) -> Result<Self> {
        let place = place::make(&plan.dir, 3 * bytes + SPARE)?;
        let bed = Bed::start(bed::config(&place.path().join("state"), &["primary"]))?;
        let server = node::serve(Arc::clone(&bed.node))?;
        let plain = place.path().join("plain");
        std::fs::create_dir(&plain)?;
        let socket = bed.node.config().socket_path();
        let connections = Options { descriptors: false, ..Options::default() };
        let mut all = vec![of_file("plain file", &plain.join(FILE))?];
        all.push(of_library(LIBRARY, &socket, Options::default())?);
        all.push(of_library("library over connections", &socket, connections)?);
        let (mut mounts, mut served) = (Vec::new(), None);
        if rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists() {
            for (name, passthrough) in [("mount", true), ("mount without passthrough", false)] {
                let dir = place.path().join(name.replace(' ', "-"));
                std::fs::create_dir(&dir)?;
                mounts.push(mount(Arc::clone(&bed.node) as Arc<dyn FileApi>, &dir, passthrough)?);
                all.push(of_file(name, &dir.join(FILE))?);
                served = Some(dir);
            }
        } else {
            told("library: mounts are left out, they need root and /dev/fuse");
        }
        let block = vec![0xa5; MIB as usize];
        for way in &all {
            (0..bytes / MIB).try_for_each(|n| (way.write)(&block, n * MIB))?;
            (way.flush)()?;
        }
        Ok(Self { all, served, plain, _mounts: mounts, _server: server, _bed: bed, _place: place })
    }
}

fn of_file(name: &'static str, path: &Path) -> Result<Way> {
    let to = File::options().write(true).create(true).truncate(false).open(path);
    let to = to.with_context(|| path.display().to_string())?;
    // Of a file that is open for both the kernel remembers no attributes, and asks before each read.
    let from = File::open(path)?;
    Ok(Way {
        name,
        read: Box::new(move |buffer, at| Ok(from.read_exact_at(buffer, at)?)),
        write: Box::new(move |data, at| Ok(to.write_all_at(data, at)?)),
        flush: Box::new(|| Ok(())),
    })
}

fn of_library(name: &'static str, socket: &Path, options: Options) -> Result<Way> {
    let session = Session::connect_with(socket, options)?;
    let both = OpenOptions::new().read(true).write(true).create(0o644);
    // Not the file of the mounts: what is written by descriptors their kernel remembers nothing of.
    let file = Arc::new(session.open("/library", both)?);
    let (writing, flushing) = (file.clone(), file.clone());
    Ok(Way {
        name,
        read: Box::new(move |buffer, at| {
            let read = file.read_at(buffer, at)?;
            ensure!(read == buffer.len(), "{read} bytes instead of {}", buffer.len());
            Ok(())
        }),
        write: Box::new(move |data, at| Ok(writing.write_at(data, at)?)),
        flush: Box::new(move || Ok(flushing.flush()?)),
    })
}
