//! Estimates against what then happens, in a library whose real times the model does not know.

mod world;

use sched::*;
use std::collections::{BTreeMap, HashMap};
use types::*;
use world::*;

struct Chance(u64);

impl Chance {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }

    /// About normal: mean 1 and this spread.
    fn around_one(&mut self, spread: f64) -> f64 {
        let sum: f64 = (0..12).map(|_| self.share()).sum();
        (1.0 + (sum - 6.0) * spread).max(0.05)
    }
}

/// What things really take, as a factor of the model: the second drive is slow, and everything scatters.
fn real(chance: &mut Chance, drive: DriveNo, what: Timed) -> f64 {
    let (mean, spread) = match what {
        Timed::Move | Timed::Load => (1.5, 0.2),
        Timed::Unload => (1.1, 0.1),
        Timed::Locate => (if drive.0 == 1 { 1.4 } else { 0.9 }, 0.3),
        Timed::Read | Timed::Write => (if drive.0 == 1 { 1.3 } else { 1.05 }, 0.1),
        Timed::File => (1.5, 0.3),
    };
    mean * chance.around_one(spread)
}

/// Two drives and seven volumes with thirty files each, asked for one after the other.
fn library(chance: &mut Chance) -> World {
    let mut world = World::new(2);
    for n in 0..7 {
        world.tape(n, VolumeState::Full, None);
        for id in 0..30 {
            let bytes = (chance.share() * 4e9) as u64;
            let wanted = RecallItem {
                bytes,
                ..item(u64::from(n) * 100 + id, (chance.share() * 3e7) as u64, world.now + u64::from(n))
            };
            world.want(n, wanted);
        }
    }
    world
}

/// Reads everything in the order of the scheduler, taking what things really take; when each file is there.
fn run(world: &mut World, times: &mut Calibration, chance: &mut Chance) -> HashMap<u64, f64> {
    let (model, mut clock) = (Mechanics::default(), [0.0; 2]);
    let mut there = HashMap::new();
    let mut took = |times: &mut Calibration, drive, what, expected: f64| {
        let took = expected * real(chance, drive, what);
        times.note(drive, what, expected, took);
        took
    };
    // Volumes go to whichever drive is free first, as they were asked for: no robot is in the way.
    for n in 0..7 {
        let drive = usize::from(clock[1] < clock[0]);
        let no = DriveNo(drive as u16);
        if n > 1 {
            clock[drive] += took(times, no, Timed::Unload, model.unload_s);
            clock[drive] += took(times, no, Timed::Move, model.move_s);
        }
        clock[drive] += took(times, no, Timed::Move, model.move_s);
        clock[drive] += took(times, no, Timed::Load, model.load_s);
        let mut at = 0;
        for item in world.recalls[&volume(n)].pass(0) {
            clock[drive] += took(times, no, Timed::Locate, model.locate(at, item.block));
            clock[drive] += took(times, no, Timed::Read, model.transfer(item.bytes));
            clock[drive] += took(times, no, Timed::File, 1.0);
            at = model.last_block(item.block, item.byte, item.bytes);
            there.insert(item.id, clock[drive]);
        }
    }
    world.recalls.clear();
    there
}

#[test]
fn nine_of_ten_files_are_there_by_their_p90_and_half_by_their_p50() {
    let mut chance = Chance(20261121);
    let mut times = Calibration::default();
    let (mut p50, mut p90, mut all) = (0, 0, 0);
    for round in 0..300 {
        let mut world = library(&mut chance);
        let known = times.clone();
        let expected: HashMap<u64, Eta> = world.with_view(|view| {
            let forecast = Forecast::new(view, &known);
            (0..7).flat_map(|n| forecast.of(view, &known, &volume(n))).collect()
        });
        assert_eq!(expected.len(), 210, "an estimate for each file");
        let there = run(&mut world, &mut times, &mut chance);
        // Some rounds to learn in.
        if round >= 20 {
            for (id, eta) in &expected {
                p50 += u32::from(there[id] <= eta.finish.p50_s());
                p90 += u32::from(there[id] <= eta.finish.p90_s());
                all += 1;
            }
        }
    }
    let share = |n: u32| f64::from(n) / f64::from(all);
    let (p50, p90) = (share(p50), share(p90));
    println!("by p50 {p50:.3}, by p90 {p90:.3}");
    assert!((0.4..0.65).contains(&p50) && (0.85..0.96).contains(&p90), "by p50 {p50:.3}, by p90 {p90:.3}");
}

/// A list for each volume, and its quote in a world where nothing else waits.
fn quoted(world: &World, wanted: &BTreeMap<Barcode, Vec<RecallItem>>) -> Quote {
    world.with_view(|view| quote(view, &Calibration::default(), wanted)).unwrap()
}

#[test]
fn a_quote_names_mounts_drive_time_and_the_end() {
    let mut world = World::new(2);
    (0..3).for_each(|n| drop(world.tape(n, VolumeState::Full, None)));
    let read = |id| RecallItem { bytes: 400_000_000, ..item(id, 0, 0) };
    let wanted: BTreeMap<_, _> = (0..3).map(|n| (volume(n), vec![read(u64::from(n))])).collect();
    let all = quoted(&world, &wanted);
    assert_eq!((all.files, all.bytes, all.volumes, all.mounts), (3, 1_200_000_000, 3, 3));
    // Three mounts of 26 s and one second of data each; the third waits until a cartridge is taken out (66 s).
    assert!((all.drives.p50_s() - (3.0 * 27.0 + 66.0)).abs() < 1e-6, "{all:?}");
    assert!((all.time.p50_s() - (27.0 + 66.0 + 27.0)).abs() < 1e-6, "{all:?}");
    assert!(all.time.p90_s() > all.time.p50_s());
    // One of them is mounted and another is asked for already: one mount is left.
    world.load(0, 0, false);
    let waiting = item(9, 0, world.now);
    world.want(1, waiting);
    assert_eq!(quoted(&world, &wanted).mounts, 1);
    world.drives.iter_mut().for_each(|drive| drive.usable = false);
    assert_eq!(world.with_view(|view| quote(view, &Calibration::default(), &wanted)), None);
}

#[test]
fn what_is_guessed_of_a_whole_queue_of_a_tape_with_wraps_is_near_its_best_order() {
    for count in [1, 3, 10, 30, 100, 300] {
        let mut world = World::new(1);
        (0..2).for_each(|n| drop(world.tape(n, VolumeState::Full, None)));
        world.tapes.values_mut().for_each(|t| (t.generation, t.wraps) = (Some(Generation::Lto9), true));
        let mut chance = Chance(count);
        for id in 0..count {
            let first = RecallItem { bytes: 1, ..item(id, (chance.share() * 17e6) as u64, world.now) };
            world.want(0, RecallItem { block: first.block * 2, ..first });
        }
        let next = item(9999, 0, world.now + 1);
        world.want(1, next);
        let (last, guessed) = world.with_view(|view| {
            let times = Calibration::default();
            let forecast = Forecast::new(view, &times);
            let last = forecast
                .of(view, &times, &volume(0))
                .values()
                .map(|eta| eta.finish.p50_s())
                .fold(0.0, f64::max);
            (last, forecast.of(view, &times, &volume(1))[&9999].start.p50_s())
        });
        let (mount, exchange) = (26.0, 92.0);
        let (real, guess) = (last - mount, guessed - exchange - mount);
        assert!((guess / real - 1.0).abs() < 0.4, "{count} files: guessed {guess:.0} s, ordered {real:.0} s");
        println!("{count} files: guessed {guess:.0} s, ordered {real:.0} s");
    }
}
