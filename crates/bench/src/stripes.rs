//! Files over more and more targets of limited rate: what of that rate reaches a client. And how small writes of many writers into one
//! file compare with large ones.

mod bed;
mod paced;
mod shared;

use crate::place::{Scatter, timed};
use crate::{Figure, Plan, Target};
use anyhow::{Context, Result, ensure};
use bed::Bed;
use layout::Redundancy;
use paced::pace;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stripe::{Room, Striped};

/// Bytes per second of a target.
const RATE: u32 = 100_000_000;
/// Bytes of a unit, of a coded file so many that a row has 1 MiB, as `thermo layout set` makes them.
const UNIT: u32 = 1 << 20;
const CODED_UNIT: u32 = 256 << 10;
/// Bytes that a client asks for at once: as many units as the widest file has columns.
const PIECE: u64 = 8 << 20;
/// Requests of a client at a time.
const AT_ONCE: u64 = 3;
/// Numbers of targets that are measured.
const COUNTS: [u32; 4] = [1, 2, 4, 8];
/// Bytes of a small write: what parallel programs with unaligned records are measured with (IOR and mpi-io-test, Los Alamos).
const RECORD: u64 = 47_008;
/// Bytes of a large write.
const LARGE: u64 = 1 << 20;
/// Who write one file together.
const WRITERS: u64 = 4;
/// Room for what clients keep of coded files until it fills rows, as a node with 4 GiB of memory has it (bytes).
const BEHIND: u64 = 256 << 20;
/// Bytes on top that a measurement may need for journals.
const SPARE: u64 = 512 << 20;

/// Figures of one number of targets.
struct Row {
    targets: u32,
    one: [Figure; 2],
    many: [Figure; 2],
}

impl Row {
    fn new(targets: u32) -> Self {
        let of = |what: &str| {
            let name = format!("stripes: {what} ÷ {targets} x 100 MB/s");
            Figure::new(name, "", Target::AtLeast(0.97))
        };
        Self {
            targets,
            one: [of("one file written and synced"), of("one file read")],
            many: [of("a file on each written and synced"), of("a file on each read")],
        }
    }

    fn measure(&mut self, plan: &Plan) -> Result<()> {
        let each = plan.amount(64 << 20, 256 << 20);
        let total = each * u64::from(self.targets);
        let bed = Bed::start(&plan.dir, self.targets, Some(RATE), 2 * total + SPARE)?;
        let all: Vec<u32> = (1..=self.targets).collect();
        let could = total as f64 / (f64::from(RATE) * f64::from(self.targets));
        let files = [bed.open(&bed.make(&all, UNIT, Redundancy::None)?)?];
        push(&mut self.one, both_ways(&files, total)?, could);
        let alone = |target: &u32| bed.open(&bed.make(&[*target], UNIT, Redundancy::None)?);
        let files = all.iter().map(alone).collect::<Result<Vec<_>>>()?;
        push(&mut self.many, both_ways(&files, each)?, could);
        Ok(())
    }
}

fn push(figures: &mut [Figure; 2], seconds: [f64; 2], could: f64) {
    for (figure, seconds) in figures.iter_mut().zip(seconds) {
        figure.values.push(could / seconds);
    }
}

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let mut rows: Vec<Row> = COUNTS.into_iter().map(Row::new).collect();
    let mut bare = Figure::new("stripes: a bare TCP stream of this rate ÷ 100 MB/s", "", Target::None);
    let raw = "÷ all that the six take";
    let mut coded = [
        Figure::new(format!("stripes: 4+2 coded, written and synced {raw}"), "", Target::AtLeast(0.62)),
        Figure::new(format!("stripes: 4+2 coded, read {raw}"), "", Target::None),
    ];
    let mut mixed = [Mixed::new("over four targets", 4, Redundancy::None), Mixed::new("4+2 coded", 6, CODED)];
    for round in 1..=plan.rounds {
        told(&format!("stripes: files over targets of 100 MB/s, round {round}"));
        bare.values.push(pump(plan.amount(32 << 20, 128 << 20))?);
        rows.iter_mut().try_for_each(|row| row.measure(plan))?;
        push(&mut coded, write_coded(plan)?, 1.0);
        told(&format!("stripes: many writers of one file, round {round}"));
        mixed[0].measure(plan)?;
        mixed[1].measure(plan)?;
    }
    let mut figures = vec![bare];
    for Row { one, many, .. } in rows {
        figures.extend(one.into_iter().chain(many));
    }
    figures.extend(coded);
    figures.extend(mixed.into_iter().flat_map(|mixed| mixed.figures));
    let mut figures = noted(figures);
    figures.extend(shared::measure(plan, told)?);
    Ok(figures)
}

const CODED: Redundancy = Redundancy::Coded { data: 4, parity: 2 };

fn noted(mut figures: Vec<Figure>) -> Vec<Figure> {
    figures[0].note =
        "one connection, paced by the kernel (SO_MAX_PACING_RATE) as those of the targets are".to_owned();
    figures[1].note = format!(
        "stripes of {} MiB, {AT_ONCE} requests of {} MiB at a time, one connection to each target, objects in memory, sums by both ends; \
         the same for all that follow",
        UNIT >> 20,
        PIECE >> 20
    );
    if let Some(last) = figures.last_mut() {
        last.note = format!(
            "targets without a limit of rate; each writer has one write under way, those of a coded file are threads of one client, which \
             gathers rows in memory as a node does for programs of its host; segments: each of the {WRITERS} writes a part of the file of its own"
        );
    }
    figures
}

/// Seconds to write and sync, and to read, so many bytes of each of some files, all at once.
fn both_ways(files: &[Striped], bytes: u64) -> Result<[f64; 2]> {
    let block = noise(PIECE as usize);
    let (written, ()) = timed(|| {
        at_once(files, bytes, &|file, at, length, _| Ok(file.write_at(at, &block[..length])?))?;
        files.iter().try_for_each(|file| Ok(file.sync()?))
    })?;
    let (read, ()) = timed(|| {
        at_once(files, bytes, &|file, at, length, buffer| {
            buffer.resize(length, 0);
            let got = file.read_at(at, buffer)?;
            ensure!(got == length && buffer[..64] == block[..64], "byte {at} came back as something else");
            Ok(())
        })
    })?;
    Ok([written, read])
}

type Step<'a> = &'a (dyn Fn(&Striped, u64, usize, &mut Vec<u8>) -> Result<()> + Sync);

/// Does something to each piece of some files, of each of them some pieces at a time.
fn at_once(files: &[Striped], bytes: u64, step: Step<'_>) -> Result<()> {
    let next: Vec<AtomicU64> = files.iter().map(|_| AtomicU64::new(0)).collect();
    together(files.len() as u64 * AT_ONCE, &|number| {
        let which = (number / AT_ONCE) as usize;
        let mut buffer = Vec::new();
        loop {
            let at = next[which].fetch_add(PIECE, Ordering::Relaxed);
            if at >= bytes {
                return Ok(());
            }
            step(&files[which], at, PIECE.min(bytes - at) as usize, &mut buffer)?;
        }
    })
}

/// Threads that do the same.
fn together(threads: u64, work: &(dyn Fn(u64) -> Result<()> + Sync)) -> Result<()> {
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        all.into_iter().try_for_each(|one| one.join().ok().context("a client ended early")?)
    })
}

/// What of the rate of six targets a coded file takes: bytes of the file, not those of parity.
fn write_coded(plan: &Plan) -> Result<[f64; 2]> {
    let bytes = plan.amount(256 << 20, 1 << 30);
    let bed = Bed::start(&plan.dir, 6, Some(RATE), 2 * bytes + SPARE)?;
    let file = bed.open(&bed.make(&[1, 2, 3, 4, 5, 6], CODED_UNIT, CODED)?)?;
    let could = bytes as f64 / (6.0 * f64::from(RATE));
    Ok(both_ways(&[file], bytes)?.map(|seconds| seconds / could))
}

/// Interleaved by segmented writes of one file, and both.
fn compared(who: &str) -> [Figure; 3] {
    let large = format!("segments in writes of {} MiB", LARGE >> 20);
    let of = |what: &str, unit, target| Figure::new(format!("stripes: one file {who}, {what}"), unit, target);
    [
        of(&format!("interleaved {RECORD} bytes ÷ {large}"), "", Target::AtLeast(0.5)),
        of(&large, "MB/s", Target::None),
        of(&format!("interleaved {RECORD} bytes"), "MB/s", Target::None),
    ]
}

/// Many writers of one file.
struct Mixed {
    targets: u32,
    redundancy: Redundancy,
    figures: [Figure; 3],
}

impl Mixed {
    fn new(over: &str, targets: u32, redundancy: Redundancy) -> Self {
        let figures = compared(&format!("{over}, {WRITERS} writers"));
        Self { targets, redundancy, figures }
    }

    fn measure(&mut self, plan: &Plan) -> Result<()> {
        let bytes = plan.amount(64 << 20, 384 << 20);
        let bed = Bed::start(&plan.dir, self.targets, None, 4 * bytes + SPARE)?;
        let all: Vec<u32> = (1..=self.targets).collect();
        let part = bytes / WRITERS / LARGE * LARGE;
        let segmented = shared(&bed, &all, self.redundancy, LARGE, &|writer, n| {
            let at = n * LARGE;
            (at < part).then_some(writer * part + at)
        })?;
        let records = bytes / WRITERS / RECORD;
        let interleaved = shared(&bed, &all, self.redundancy, RECORD, &|writer, n| {
            (n < records).then_some((n * WRITERS + writer) * RECORD)
        })?;
        let values = [interleaved / segmented, segmented / 1e6, interleaved / 1e6];
        self.figures.iter_mut().zip(values).for_each(|(figure, value)| figure.values.push(value));
        Ok(())
    }
}

/// Bytes per second of writers of one file that is synced in the end; `place` says where the n-th write of a writer goes.
fn shared(
    bed: &Bed,
    targets: &[u32],
    redundancy: Redundancy,
    size: u64,
    place: &(dyn Fn(u64, u64) -> Option<u64> + Sync),
) -> Result<f64> {
    // A coded file has one client that writes.
    let (unit, clients) = match redundancy {
        Redundancy::Coded { .. } => (CODED_UNIT, 1),
        _ => (UNIT, WRITERS),
    };
    let layout = bed.make(targets, unit, redundancy)?;
    let room = Arc::new(Room::new(BEHIND));
    let open = |_| Ok(bed.open(&layout)?.gathering(&room));
    let clients = (0..clients).map(open).collect::<Result<Vec<_>>>()?;
    let (block, written) = (noise(size as usize), AtomicU64::new(0));
    let (seconds, ()) = timed(|| {
        together(WRITERS, &|writer| {
            let client = &clients[writer as usize % clients.len()];
            for n in 0.. {
                let Some(at) = place(writer, n) else { break };
                client.write_behind(at, &block)?;
                written.fetch_add(size, Ordering::Relaxed);
            }
            Ok(())
        })?;
        clients.iter().try_for_each(|client| Ok(client.sync()?))
    })?;
    Ok(written.into_inner() as f64 / seconds)
}

fn noise(length: usize) -> Vec<u8> {
    let mut scatter = Scatter(7);
    (0..length).map(|_| scatter.below(256) as u8).collect()
}

/// What of the rate a bare stream comes to.
fn pump(bytes: u64) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = TcpStream::connect(listener.local_addr()?)?;
    pace(&out, RATE)?;
    let (mut from, _) = listener.accept()?;
    let (seconds, ()) = timed(|| {
        let sink = std::thread::spawn(move || -> std::io::Result<u64> {
            let (mut buffer, mut got) = (vec![0; UNIT as usize], 0);
            while got < bytes {
                got += from.read(&mut buffer)? as u64;
            }
            Ok(got)
        });
        let block = vec![0x5a; UNIT as usize];
        for _ in 0..bytes / u64::from(UNIT) {
            out.write_all(&block)?;
        }
        sink.join().ok().context("the receiving thread ended early")??;
        Ok(())
    })?;
    Ok(bytes as f64 / seconds / f64::from(RATE))
}
