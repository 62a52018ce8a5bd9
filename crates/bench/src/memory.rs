//! The whole node with a large catalogue: its memory, its start, and what its periodic passes cost.

use crate::bed::{self, Bed};
use crate::catalogue::anonymous;
use crate::place::{self, processor_time, timed};
use crate::{Figure, Plan, Target};
use anyhow::{Context, Result, bail, ensure};
use catalog::{Catalog, New, NewSegment, VolumeAppend};
use kv::{Durability, LmdbEngine, LmdbOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use types::api::{FileApi, OpenFlags};
use types::*;
use wire::{Call, Reply};

/// Bytes of store per archived file, generously.
const PER_FILE: u64 = 1500;
/// Files of a directory.
const PER_DIR: u64 = 10_000;
/// Files recorded on tape in one transaction.
const BATCH: u64 = 1_000;
/// Bytes of a file.
const SIZE: u64 = 1_000;
/// Files made through the node, which stay on disk and wait for migration.
const RESIDENT: u64 = 20_000;
const RESIDENT_QUICK: u64 = 1_000;
/// How long the node is watched doing nothing (seconds).
const IDLE_S: u64 = 10;
const IDLE_QUICK_S: u64 = 2;
/// Time between two looks at the memory.
const LOOK: Duration = Duration::from_millis(20);

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let place = place::make(&plan.dir, plan.files * PER_FILE + (256 << 20))?;
    let state = place.path().join("state");
    let config = || bed::config(&state, &["primary"]);
    drop(Bed::start(config())?);
    told(&format!("node: cataloguing {} archived files", plan.files));
    fill(&state.join("catalog"), plan.files)?;
    let peak = Peak::start()?;
    let mut rows = Rows::new(plan.files);
    told("node: starting");
    let (secs, bed) = timed(|| Bed::start(config()))?;
    rows.add("start, its catalogue verified", "s", Target::None, secs);
    told("node: making files");
    resident(&bed, plan.amount(RESIDENT_QUICK, RESIDENT))?;
    let idle = Duration::from_secs(plan.amount(IDLE_QUICK_S, IDLE_S));
    let before = processor_time();
    std::thread::sleep(idle);
    let share = (processor_time() - before).as_secs_f64() / idle.as_secs_f64();
    rows.add("processor time of its periodic passes, idle", "%", Target::AtMost(5.0), share * 100.0);
    told("node: listing everything");
    let (secs, seen) = timed(|| list_all(&*bed.node))?;
    ensure!(seen > plan.files, "the listing gave {seen} files");
    rows.add("ls -lR, without a mount", "files/s", Target::None, seen as f64 / secs);
    told("node: checking everything");
    let (secs, ()) = timed(|| check(&bed))?;
    rows.add("thermo check", "s", Target::None, secs);
    let most = peak.stop();
    rows.add(
        "anonymous memory, at its highest",
        "MiB",
        Target::AtMost(300.0),
        most as f64 / f64::from(1 << 20),
    );
    Ok(rows.figures)
}

/// Makes files through the node.
fn resident(bed: &Bed, files: u64) -> Result<()> {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    for n in 0..files {
        let opened =
            bed.node.create(&bed::cx(), Ino::ROOT, format!("resident-{n}").as_bytes(), 0o644, flags)?;
        bed.node.write(opened.handle, 0, b"resident")?;
        bed.node.release(opened.handle);
    }
    Ok(bed.node.sync_names()?)
}

struct Rows {
    files: u64,
    figures: Vec<Figure>,
}

impl Rows {
    fn new(files: u64) -> Self {
        Self { files, figures: Vec::new() }
    }

    fn add(&mut self, what: &str, unit: &'static str, target: Target, value: f64) {
        let mut figure = Figure::new(format!("node with {} files: {what}", self.files), unit, target);
        figure.values.push(value);
        self.figures.push(figure);
    }
}

/// Writes `files` files into the catalogue in `dir` that are on tape and not on disk.
fn fill(dir: &Path, files: u64) -> Result<()> {
    let now = Time::new(1_700_000_000, 0);
    let c = Catalog::open(Arc::new(LmdbEngine::open(dir, LmdbOptions::default())?), now)?;
    let barcode = Barcode::from("BENCH1L9");
    c.put_volume(&volume(&barcode, now))?;
    let mut parent = Ino::ROOT;
    for first in (0..files).step_by(BATCH as usize) {
        if first.is_multiple_of(PER_DIR) {
            let new = New::node(FileKind::Directory, 0o755);
            parent = c.create(&Cx::admin(now), Ino::ROOT, format!("d{first}").as_bytes(), &new)?.attr.ino;
        }
        archive(&c, &[&barcode], parent, first..(first + BATCH).min(files), now)?;
    }
    Ok(c.sync()?)
}

/// Makes, seals, records (a copy on each of these volumes) and releases files, as clients, the archive and the governor do.
pub(crate) fn archive(
    c: &Catalog,
    on: &[&Barcode],
    parent: Ino,
    files: std::ops::Range<u64>,
    now: Time,
) -> Result<Vec<Ino>> {
    let (cx, stamp) = (Cx::admin(now), ObjectStamp { size: SIZE, allocated: 4096, mtime: now, ctime: now });
    let objects = c.alloc_objects(files.end - files.start)?;
    let mut made = Vec::new();
    for (n, object) in files.zip(objects.clone()) {
        let object = ObjectId(object);
        let new = New { object: Some(object), ..New::node(FileKind::File, 0o644) };
        let ino = c.create(&cx, parent, format!("file-{n:08}.dat").as_bytes(), &new)?.attr.ino;
        let sealed = c.observe(&cx, ino, object, &stamp, true, Durability::Relaxed)?;
        made.push((ino, sealed.file.context("it is a file")?.version, object));
    }
    for (volume, copy) in on.iter().zip(1..) {
        record(c, volume, CopyNo(copy), &made, now)?;
    }
    for (ino, version, object) in &made {
        c.release_object(*ino, *version, *object, &stamp)?;
    }
    c.forget_objects(&objects.map(ObjectId).collect::<Vec<_>>())?;
    Ok(made.into_iter().map(|(ino, ..)| ino).collect())
}

/// Records a copy of files behind the others of a volume.
fn record(
    c: &Catalog,
    on: &Barcode,
    copy: CopyNo,
    files: &[(Ino, Version, ObjectId)],
    now: Time,
) -> Result<()> {
    let volume = c.volume(on)?.context("the volume has vanished")?;
    let segment = |((ino, version, _), uid): (&(Ino, Version, ObjectId), u64)| {
        let extent = Extent {
            file_offset: 0,
            start_block: volume.append_block + uid,
            byte_offset: 0,
            byte_count: SIZE,
        };
        NewSegment {
            ino: *ino,
            version: *version,
            copy,
            file_offset: 0,
            length: SIZE,
            extents: vec![extent],
            size: SIZE,
            digest: Some(Digest([ino.0 as u8; 32])),
            uid,
            told: None,
        }
    };
    let segments: Vec<NewSegment> = files.iter().zip(volume.next_uid..).map(segment).collect();
    let append = VolumeAppend {
        volume: on.clone(),
        append_block: volume.append_block + 10,
        next_uid: volume.next_uid + segments.len() as u64,
        vcr: volume.vcr + 1,
        now,
        section: None,
    };
    c.record_copies(&append, &segments)?;
    Ok(())
}

pub(crate) fn volume(barcode: &Barcode, now: Time) -> Volume {
    Volume {
        pool: Some("primary".into()),
        state: VolumeState::Full,
        uuid: "bench".into(),
        labelled: Some(now),
        block_size: 524_288,
        capacity: 1 << 44,
        append_block: 6,
        generation: 1,
        index_block: 5,
        indexed_to: 6,
        vcr: 1,
        ..Volume::new(barcode.clone(), now)
    }
}

/// Lists the tree with attributes, as ls -lR does through a mount.
fn list_all(api: &dyn FileApi) -> Result<u64> {
    let (mut seen, mut dirs) = (0, vec![Ino::ROOT]);
    while let Some(dir) = dirs.pop() {
        let mut cookie = 0;
        loop {
            let page = api.readdir_plus(&bed::cx(), dir, cookie, 1_000)?;
            let Some((last, _)) = page.last() else { break };
            cookie = last.cookie;
            seen += page.len() as u64;
            dirs.extend(page.iter().filter(|(_, a)| a.kind == FileKind::Directory).map(|(_, a)| a.ino));
        }
    }
    Ok(seen)
}

fn check(bed: &Bed) -> Result<()> {
    let call = Call::Check { tapes: false, deep: false };
    match bed.node.call(&bed::cx(), &mut node::Session::default(), call)?.reply {
        Reply::Check(report) => {
            let serious = report.findings.iter().find(|f| f.is_serious());
            ensure!(serious.is_none(), "thermo check found {serious:?}");
            Ok(())
        }
        other => bail!("the node answered {other:?} where a report was expected"),
    }
}

/// The highest anonymous memory of this process while it runs.
struct Peak {
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Peak {
    fn start() -> Result<Self> {
        let (most, stop) = (Arc::new(AtomicU64::new(anonymous()? as u64)), Arc::new(AtomicBool::new(false)));
        let (seen, ended) = (most.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("memory".into()).spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                seen.fetch_max(anonymous().unwrap_or(0.0) as u64, Ordering::Relaxed);
                std::thread::sleep(LOOK);
            }
        })?;
        Ok(Self { most, stop, thread })
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join(); // it cannot panic
        self.most.load(Ordering::Relaxed)
    }
}
