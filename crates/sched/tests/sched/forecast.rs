//! Estimates against what then happens, in a library whose real times the model does not know.

use crate::world::*;
use sched::*;
use std::collections::{BTreeMap, HashMap};
use types::*;

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
        Timed::File | Timed::WrittenFile => (1.5, 0.3),
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

/// Thirty files that a drive reads three times as slowly as its model says.
#[test]
fn what_is_still_to_be_read_is_expected_when_it_can_be_read_and_what_a_late_drive_teaches_counts_at_once() {
    const SLOW: f64 = 3.0;
    let (mut chance, drive, model) = (Chance(7), DriveNo(0), Mechanics::default());
    let order: Vec<RecallItem> = (0..30)
        .map(|id| RecallItem { bytes: 1 << 30, ..item(id, id * 300_000 + (chance.share() * 1e5) as u64, 0) })
        .collect();
    let mut times = Calibration::default();
    let mut pass = Pass::new(&times, drive, model.clone(), 0, order.clone());
    let end = |pass: &Pass, times: &Calibration, stands| pass.end(times, stands).p50_s();
    let promised = end(&pass, &times, Stands::default());
    let took = |from, item: &RecallItem| {
        [(Timed::Locate, model.locate(from, item.block)), (Timed::Read, model.transfer(item.bytes))]
    };
    let (mut from, mut clock) = (0, 0.0);
    let mut there = Vec::new();
    for (n, item) in order.iter().enumerate() {
        pass.begin(n);
        pass.relearn(&times);
        let left: f64 = order[n..].iter().map(|item| model.transfer(item.bytes)).sum();
        for gone_s in [0.0, 5.0, 1e6] {
            let stands = Stands { gone_s, came: 0 };
            let last = pass.left(&times, 29, stands).unwrap().1;
            assert!(
                last.p50_s() >= left - 1e-6 && last.p90_s() >= last.p50_s(),
                "file {n} after {gone_s} s: {last:?}"
            );
            for m in n..30 {
                let (start, finish) = pass.left(&times, m, stands).unwrap();
                let least = order[n..=m].iter().map(|item| model.transfer(item.bytes)).sum::<f64>() - 1e-6;
                assert!(finish.mean_s >= least && finish.mean_s >= start.mean_s, "{n} {m}: {finish:?}");
            }
        }
        let stands = Stands { gone_s: 7.0, came: item.bytes / 4 };
        let (start, finish) = pass.left(&times, n, stands).unwrap();
        assert!(start.mean_s == 0.0 && finish.mean_s >= model.transfer(item.bytes) * 0.74, "it is read now");
        there.push((clock, end(&pass, &times, Stands::default())));
        for (what, expected_s) in took(from, item) {
            times.note(drive, what, expected_s, expected_s * SLOW);
            clock += expected_s * SLOW;
        }
        from = model.last_block(item.block, item.byte, item.bytes);
        assert_eq!(pass.left(&times, 30, stands), None);
    }
    assert!(promised < clock / 2.5, "what was said at first was wrong: {promised:.0} of {clock:.0} s");
    for (at, left) in &there[6..] {
        assert!((left / (clock - at) - 1.0).abs() < 0.05, "at {at:.0} of {clock:.0} s: {left:.0} s more");
    }
    pass.begin(30);
    assert_eq!(pass.left(&times, 29, Stands::default()), Some((Span::default(), Span::default())));
    assert_eq!(end(&pass, &times, Stands::default()), 0.0);
}

/// Batches of few large files, of many small ones, and of both; what a batch really takes, as the model cannot know.
#[test]
fn before_files_are_written_it_is_known_what_goes_by_with_each_of_them() {
    let (mut chance, drive, model) = (Chance(11), DriveNo(0), Mechanics::default());
    let really = |files: u64, bytes: u64| 1.3 * model.transfer(bytes) + 0.012 * files as f64;
    let mut times = Calibration::default();
    let batches =
        [(4, 20_000_000_000_u64), (1000, 20_000_000), (300, 6_000_000_000), (1, 100_000_000), (1000, 0)];
    for n in 0..60 {
        let (files, bytes) = batches[n % batches.len()];
        let bytes = (bytes as f64 * chance.around_one(0.2)) as u64;
        let took_s = really(files, bytes) * chance.around_one(0.1);
        times.note_written(drive, model.transfer(bytes), files, took_s);
    }
    for (files, bytes) in [(10_000, 200_000_000), (10, 50_000_000_000), (5000, 5_000_000_000), (500, 0)] {
        let known = times.writing(drive, model.transfer(bytes), files as f64);
        let real = really(files, bytes);
        assert!(
            (known.p50_s() / real - 1.0).abs() < 0.15,
            "{files} files, {bytes} bytes: {real:.1} s, {known:?}"
        );
        assert!(known.p90_s() > known.p50_s() && known.p90_s() < 2.0 * real, "{known:?}");
        // Of another drive as of all.
        assert_eq!(times.writing(DriveNo(7), model.transfer(bytes), files as f64), known);
    }
    // Nothing written teaches nothing.
    let before = times.clone();
    times.note_written(drive, 0.0, 0, 1.0);
    assert_eq!(times, before);
}
