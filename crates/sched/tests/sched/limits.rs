//! Quotes and forecasts know limits of drives, drives out of use, and what goes by from one small file to the next.

use crate::world::*;
use sched::*;
use std::collections::BTreeMap;
use types::*;

const CAPPED: AccountId = AccountId(1);
const OTHER: AccountId = AccountId(2);

/// Full volumes, and an account for which one drive may work at once.
fn library(drives: u16, volumes: u32) -> World {
    let mut world = World::new(drives);
    (0..volumes).for_each(|n| drop(world.tape(n, VolumeState::Full, None)));
    let account = |owner, caps| Account { owner, caps, ..Account::default() };
    world.accounts.list = vec![account(0, vec![]), account(1, vec![0]), account(2, vec![])];
    world.accounts.caps = vec![Cap { name: "one at a time".into(), drives: 1 }];
    world
}

fn of(account: AccountId, id: u64, since: u64) -> RecallItem {
    RecallItem { bytes: 400_000_000, account, ..item(id, 0, since) }
}

fn quoted(world: &World, account: AccountId, volumes: u32) -> Quote {
    let wanted: BTreeMap<_, _> = (0..volumes).map(|n| (volume(n), vec![of(account, n.into(), 0)])).collect();
    world.with_view(|view| quote(view, &Calibration::default(), &wanted)).unwrap()
}

const MOUNT_S: f64 = 26.0;
const EXCHANGE_S: f64 = 66.0 + MOUNT_S;

#[test]
fn a_quote_knows_limits_of_drives() {
    let end = |world: &World, account| quoted(world, account, 2).time.p50_s();
    let mut world = library(2, 4);
    assert!((end(&world, OTHER) - (MOUNT_S + 1.0)).abs() < 1e-6, "two drives at once");
    // The other drive is free, but may not be had before the first volume is done.
    assert!((end(&world, CAPPED) - 2.0 * (MOUNT_S + 1.0)).abs() < 1e-6, "{}", end(&world, CAPPED));
    // What the same limit allowed before counts: a drive that works for it now, and what waits for it.
    let mut busy = Busy::new(volume(3), Work::Recall);
    (busy.charge, busy.until) = (Some(CAPPED), Some(at(world.now + 100)));
    world.drives[0].state = DriveState::Busy(busy);
    let waits = of(CAPPED, 9, world.now);
    world.want(2, waits);
    // It works 100 s more; then the volume that waits, then both of the quote, for which a cartridge goes first.
    let end = end(&world, CAPPED);
    assert!((end - (100.0 + MOUNT_S + 1.0 + 2.0 * (EXCHANGE_S + 1.0))).abs() < 1e-6, "{end}");
}

#[test]
fn who_has_as_many_drives_as_he_may_lets_others_pass_in_a_forecast() {
    let mut world = library(2, 3);
    for (n, account) in [(0, CAPPED), (1, CAPPED), (2, OTHER)] {
        let wanted = of(account, n.into(), world.now + u64::from(n));
        world.want(n, wanted);
    }
    let start = world.with_view(|view| {
        let times = Calibration::default();
        let forecast = Forecast::new(view, &times);
        [0, 1, 2].map(|n| forecast.of(view, &times, &volume(n))[&u64::from(n)].start.p50_s())
    });
    let second = MOUNT_S + 1.0 + EXCHANGE_S;
    assert!(start[0] == MOUNT_S && start[2] == MOUNT_S && (start[1] - second).abs() < 1e-6, "{start:?}");
}

#[test]
fn what_goes_by_from_one_file_to_the_next_is_learnt_and_counts() {
    let world = library(1, 1);
    let mut times = Calibration::default();
    let end = |times: &Calibration, files: u64| {
        let small = |id| RecallItem { bytes: 100, ..item(id, id, 0) };
        let wanted = BTreeMap::from([(volume(0), (0..files).map(small).collect())]);
        world.with_view(|view| quote(view, times, &wanted)).unwrap().time
    };
    // Of up to a thousand files the order is worked out, of more it is guessed.
    let unknown = [500, 4000].map(|files| end(&times, files));
    assert!(unknown[0].p50_s() < 60.0, "{unknown:?}");
    // A batch of a thousand files took 23 s more than tape and bytes.
    times.note(DriveNo(0), Timed::File, 1000.0, 23.0);
    for (files, before) in [500, 4000].into_iter().zip(unknown) {
        let more = end(&times, files).p50_s() - before.p50_s();
        assert!((more / (0.023 * files as f64) - 1.0).abs() < 0.01, "{files} files: {more} s more");
    }
    // A forecast of what is asked for knows it too, file by file.
    let mut world = library(1, 1);
    for id in 0..100 {
        let wanted = RecallItem { bytes: 100, ..item(id, id, world.now) };
        world.want(0, wanted);
    }
    let known = world.with_view(|view| Forecast::new(view, &times).of(view, &times, &volume(0)));
    let steps = known[&99].finish.p50_s() - known[&0].finish.p50_s();
    assert!((steps - 99.0 * 0.023).abs() < 0.15, "{steps}");
    // One file alone says little; a few more are believed.
    let mut times = Calibration::default();
    let mean = |times: &Calibration| times.span(DriveNo(0), Timed::File, 1.0).p50_s();
    times.note(DriveNo(0), Timed::File, 1.0, 0.5);
    assert_eq!(mean(&times), 0.0);
    times.note(DriveNo(0), Timed::File, 7.0, 7.0 * 0.5);
    assert!((mean(&times) - 0.5).abs() < 1e-9);
}

#[test]
fn a_volume_that_only_drives_out_of_use_read_is_not_in_a_quote() {
    let mut world = library(2, 2);
    let old = Reach::of(Generation::Lto7);
    world.drives[0].reach = old;
    world.drives[0].usable = false;
    world.drives[1].reach = Reach::of(Generation::Lto9);
    for (n, generation) in [(0, Generation::Lto6), (1, Generation::Lto9)] {
        world.tapes.get_mut(&volume(n)).unwrap().generation = Some(generation);
    }
    let told = quoted(&world, OTHER, 2);
    assert_eq!((told.volumes, told.files, told.mounts), (1, 1, 1), "{told:?}");
}

#[test]
fn nothing_is_foretold_of_a_volume_in_a_drive_that_is_out_of_use() {
    let mut world = library(2, 1);
    world.load(0, 0, false);
    let wanted = of(OTHER, 1, world.now);
    world.want(0, wanted);
    let known = |world: &World| {
        let times = Calibration::default();
        world.with_view(|view| Forecast::new(view, &times).of(view, &times, &volume(0))).len()
    };
    assert_eq!(known(&world), 1);
    world.drives[0].usable = false;
    assert_eq!(known(&world), 0);
}
