//! Files go to tape, two copies each, with more and more drives: how much of what the drives could take they get.

use crate::bed::{self, Bed};
use crate::{Figure, Plan, Target, place};
use anyhow::Result;
use node::Size;
use std::path::Path;
use std::time::{Duration, Instant};
use wire::Call;

/// Rate of a drive (bytes per second).
const RATE: u64 = 100_000_000;
/// Numbers of drives.
const DRIVES: [u16; 4] = [1, 2, 4, 8];
/// Size of a file (bytes).
const FILE: u64 = 16 << 20;
/// Read ahead of each drive (bytes).
const READ_AHEAD: u64 = 32 << 20;
/// What is left to labels, indexes and the catalogue (bytes).
const SPARE: u64 = 256 << 20;
/// File system in memory, where the cartridges lie if there is room.
const MEMORY: &str = "/dev/shm";

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    // Of each drive; both copies of as many files as there are drives for every two.
    let share = plan.amount(2, 60) * FILE;
    let mut figures = Vec::new();
    for drives in DRIVES {
        let name = format!(
            "migrate: {drives} drives of {} MB/s, both copies, of what they can take",
            RATE / 1_000_000
        );
        let mut rate = Figure::new(name, "", Target::AtLeast(0.95));
        let what = format!("  processors that the node takes for {drives} drives");
        let mut processors = Figure::new(what, "", Target::None);
        for round in 0..plan.rounds {
            told(&format!("migrate: {} MiB to each of {drives} drives, round {}", share >> 20, round + 1));
            let (took, used) = once(plan, drives, share)?;
            let could = RATE as f64 * f64::from(drives);
            rate.values.push((share * u64::from(drives)) as f64 / took.as_secs_f64() / could);
            processors.values.push(used.as_secs_f64() / took.as_secs_f64());
        }
        rate.note = "bytes of both copies by the time from the request until both copies of all files are flushed and \
                     recorded, with mounts and indexes; labelled volumes, no mechanics but the rate, cartridges in memory if \
                     it has room; the virtual drives and the files' disk share the machine's processors with the node"
            .into();
        figures.extend([rate, processors]);
    }
    Ok(figures)
}

/// Writes so many bytes to each drive; how long it took, and the processor time.
fn once(plan: &Plan, drives: u16, share: u64) -> Result<(Duration, Duration)> {
    let bytes = share * u64::from(drives);
    let place = place::make(&plan.dir, bytes / 2 + SPARE)?;
    let shelf =
        place::make(Path::new(MEMORY), bytes + SPARE).or_else(|_| place::make(&plan.dir, bytes + SPARE))?;
    let mut config = bed::config(&place.path().join("state"), &["primary", "second"]);
    config.library.path = Some(shelf.path().join("library"));
    (config.library.drives, config.library.slots, config.library.cartridges) = (drives, 20, 16);
    config.library.drive_rate = Size(RATE);
    // Little is read ahead of each drive, as of a backlog that is much larger than memory.
    config.tape.buffers = Size(u64::from(drives) * READ_AHEAD);
    // As many writers as there are drives.
    config.tape.bytes_per_drive = Size((share / 2).max(1));
    let bed = Bed::start(config)?;
    bed.ask(Call::Label { volumes: Vec::new(), pool: None, force: false, key: None })?;
    let names: Vec<String> = (0..bytes / 2 / FILE).map(|n| format!("file-{n:04}")).collect();
    names.iter().try_for_each(|n| bed.put(n, FILE))?;
    let (begun, before) = (Instant::now(), place::processor_time());
    bed.act(Call::Migrate, &names)?;
    Ok((begun.elapsed(), place::processor_time().saturating_sub(before)))
}
