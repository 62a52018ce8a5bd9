//! Files go to tape, two copies each, with more and more drives: how much of what the drives could take they get.

use crate::bare::{Bare, Load};
use crate::bed::{self, Bed};
use crate::shelf::Shelf;
use crate::{Figure, Plan, Target, place};
use anyhow::Result;
use node::Size;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vtl::{Mechanics, VtlConfig};
use wire::Call;

/// Rate of a drive (bytes per second).
const RATE: u64 = 100_000_000;
/// Numbers of drives.
const DRIVES: [u16; 4] = [1, 2, 4, 8];
/// Size of a file (bytes).
const FILE: u64 = 16 << 20;
/// Read ahead of each drive (bytes).
const READ_AHEAD: u64 = 32 << 20;
/// Buffer of a drive (bytes), as of an LTO-4 drive, whose rate is about the same. A larger one would take in a good part of the
/// files before they are on tape, so that drives which get more of the processors in the beginning end late.
const DRIVE_BUFFER: u64 = 128 << 20;
/// What is left to labels, indexes and the catalogue (bytes).
const SPARE: u64 = 256 << 20;

const NOTE: &str = "bytes of both copies by the time from the request until both copies of all files are flushed and \
    recorded, with mounts and indexes; labelled volumes, no mechanics but the rate, cartridges in memory that they have \
    already, if there is room; the virtual drives and the files' disk share the machine's processors with the node";

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    // Of each drive; both copies of as many files as there are drives for every two.
    let share = plan.amount(2, 60) * FILE;
    let most = DRIVES.into_iter().max().unwrap_or(1);
    let mut shelf = Shelf::new(&plan.dir, share * u64::from(most))?;
    let mut figures = Vec::new();
    for drives in DRIVES {
        let name = format!(
            "migrate: {drives} drives of {} MB/s, both copies, of what they can take",
            RATE / 1_000_000
        );
        let mut rate = Figure::new(name, "", Target::AtLeast(0.95));
        rate.note = NOTE.into();
        let node = |shelf: &mut Shelf| once(plan, shelf, drives, share);
        figures.extend(rounds(plan, told, rate, (drives, "the node"), share, || node(&mut shelf))?);
    }
    let mut floor = Figure::new(format!("  the same by a bare loop with {most} drives"), "", Target::None);
    floor.note = "one thread per drive reads a file from memory, hashes it and gives it to the drive, flushed in the end".into();
    let bare = || bare(plan, &mut shelf, most, share);
    figures.extend(rounds(plan, told, floor, (most, "the bare loop"), share, bare)?);
    Ok(figures)
}

/// What is reached of what so many drives can take, and processors taken, in all rounds.
fn rounds(
    plan: &Plan,
    told: &dyn Fn(&str),
    mut rate: Figure,
    (drives, who): (u16, &str),
    share: u64,
    mut write: impl FnMut() -> Result<(Duration, Duration)>,
) -> Result<[Figure; 2]> {
    let what = format!("  processors that {who} takes for {drives} drives");
    let mut processors = Figure::new(what, "", Target::None);
    for round in 1..=plan.rounds {
        told(&format!("migrate: {} MiB to each of {drives} drives by {who}, round {round}", share >> 20));
        let (took, used) = write()?;
        rate.values.push(share as f64 / took.as_secs_f64() / RATE as f64);
        processors.values.push(used.as_secs_f64() / took.as_secs_f64());
    }
    Ok([rate, processors])
}

/// Where a library is to be made, with files ready for so many bytes of its records.
fn empty(shelf: &mut Shelf, bytes: u64) -> Result<PathBuf> {
    shelf.take_back()?;
    shelf.load(bytes)?;
    Ok(shelf.library())
}

/// Writes so many bytes to each drive, without a node.
fn bare(plan: &Plan, shelf: &mut Shelf, drives: u16, share: u64) -> Result<(Duration, Duration)> {
    let place = place::make(&plan.dir, FILE + SPARE)?;
    let config = VtlConfig {
        drives,
        slots: 20,
        cartridges: 16,
        capacity_bytes: 2 * share,
        buffer_bytes: DRIVE_BUFFER,
        mechanics: Mechanics::streaming(RATE),
        ..VtlConfig::new(empty(shelf, share * u64::from(drives))?)
    };
    let load = Load { files: share / FILE, size: FILE, flush_files: u64::MAX };
    let bare = Bare::new(&place.path().join("file"), config, load)?;
    shelf.lend(&bare.library)?;
    used(|| bare.run())
}

/// How long it took, and the processor time.
fn used(work: impl FnOnce() -> Result<()>) -> Result<(Duration, Duration)> {
    let (begun, before) = (Instant::now(), place::processor_time());
    work()?;
    Ok((begun.elapsed(), place::processor_time().saturating_sub(before)))
}

/// Writes so many bytes to each drive.
fn once(plan: &Plan, shelf: &mut Shelf, drives: u16, share: u64) -> Result<(Duration, Duration)> {
    let bytes = share * u64::from(drives);
    let place = place::make(&plan.dir, bytes / 2 + SPARE)?;
    let library = empty(shelf, bytes)?;
    let mut config = bed::config(&place.path().join("state"), &["primary", "second"]);
    config.library.path = Some(library);
    (config.library.drives, config.library.slots, config.library.cartridges) = (drives, 20, 16);
    (config.library.drive_rate, config.library.drive_buffer) = (Size(RATE), Size(DRIVE_BUFFER));
    // Little is read ahead of each drive, as of a backlog that is much larger than memory.
    config.tape.buffers = Size(u64::from(drives) * READ_AHEAD);
    // As many writers as there are drives.
    config.tape.bytes_per_drive = Size((share / 2).max(1));
    let library = shelf.open(&config)?;
    let bed = Bed::start_with(config, library)?;
    bed.ask(Call::Label { volumes: Vec::new(), pool: None, force: false, key: None })?;
    let names: Vec<String> = (0..bytes / 2 / FILE).map(|n| format!("file-{n:04}")).collect();
    names.iter().try_for_each(|n| bed.put(n, FILE))?;
    used(|| bed.act(Call::Migrate, &names))
}
