//! A half-dead cartridge is emptied: how fast, measured by what its drive could do.

use crate::bed::{self, Bed};
use crate::shelf::Shelf;
use crate::{Figure, Plan, Target, place};
use anyhow::{Context, Result};
use node::{Config, Size};
use std::time::Instant;
use types::api::FileApi;
use types::{Barcode, Ino};
use wire::{Call, VolumeChoice};

/// Rate of each of two drives (bytes per second).
const RATE: u64 = 100_000_000;
/// Size of a file (bytes).
const FILE: u64 = 16 << 20;
/// What is left to labels, indexes, the disk tier's own and the catalogue (bytes).
const SPARE: u64 = 256 << 20;

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let files = plan.amount(4, 48);
    let (mb, live) = (RATE / 1_000_000, (files * FILE) >> 20);
    let name = format!(
        "repack: {live} MiB of a half-dead cartridge, bytes per second ÷ rate of a drive of {mb} MB/s"
    );
    let mut rate = Figure::new(name, "", Target::AtLeast(0.9));
    for round in 0..plan.rounds {
        told(&format!("repack: {files} of {} files of {} MiB, round {}", 2 * files, FILE >> 20, round + 1));
        let place = place::make(&plan.dir, 2 * files * FILE + SPARE)?;
        let cartridges = 3 * files * FILE;
        let mut shelf = Shelf::new(&plan.dir, cartridges)?;
        let mut config = bed::config(&place.path().join("state"), &["primary"]);
        config.library.path = Some(shelf.library());
        let volume = half_dead(config.clone(), files)?;
        config.library.drive_rate = Size(RATE);
        shelf.load(files * FILE)?;
        let seconds = emptied(config, &mut shelf, &volume)?;
        rate.values.push((files * FILE) as f64 / seconds / RATE as f64);
    }
    rate.note = format!(
        "the bytes of its live files, through the disk tier to another cartridge, by the time from the request until the old \
         cartridge has its fresh label; one drive reads while the other writes, at {mb} MB/s each, without mechanics; every other \
         file of it is dead, cartridges in memory if it has room"
    );
    Ok(vec![rate])
}

/// Writes twice as many files to a cartridge, nowhere else, and deletes every other one.
fn half_dead(config: Config, files: u64) -> Result<Barcode> {
    let bed = Bed::start(config)?;
    let names: Vec<String> = (0..2 * files).map(|n| format!("file-{n:04}")).collect();
    names.iter().try_for_each(|n| bed.put(n, FILE))?;
    bed.act(Call::Migrate, &names)?;
    bed.act(Call::Purge, &names)?;
    for name in names.iter().skip(1).step_by(2) {
        bed.node.unlink(&bed::cx(), Ino::ROOT, name.as_bytes())?;
    }
    let volumes = bed.volumes()?;
    let full =
        volumes.into_iter().find(|v| v.live_files == files).context("one cartridge holds all files")?;
    Ok(full.barcode)
}

/// Seconds until it is scratch.
fn emptied(config: Config, shelf: &mut Shelf, volume: &Barcode) -> Result<f64> {
    let library = shelf.open(&config)?;
    let bed = Bed::start_with(config, library)?;
    let begun = Instant::now();
    bed.ask(Call::Repack {
        volumes: VolumeChoice::These(vec![volume.clone()]),
        dead_percent: None,
        generation: None,
    })?;
    Ok(begun.elapsed().as_secs_f64())
}
