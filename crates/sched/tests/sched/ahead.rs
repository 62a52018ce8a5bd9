//! The next volume is brought before the present one is full, and never at the cost of anybody who waits.

use crate::world::*;
use sched::*;
use types::*;

const GIB: u64 = 1 << 30;

/// Drive 0 writes to volume 0, which still takes so many bytes of 1 TiB; volume 1 is the other one of the pool.
fn writing(drives: u16, left: u64) -> World {
    let mut world = World::new(drives);
    for n in 0..2 {
        world.tape(n, VolumeState::Filling, Some("a"));
    }
    world.limits.ahead_bytes = 50 * GIB;
    world.backlog("a", 100, 200 * GIB);
    let want = Some(Want::Write("a".into()));
    let busy = Busy { want, room: Some(left), ..Busy::new(volume(0), Work::Migrate) };
    world.drives[0].state = DriveState::Busy(busy);
    world
}

fn jobs(world: &World) -> Vec<Job> {
    world.plan().actions.into_iter().map(|action| action.job).collect()
}

fn mount(n: u32) -> Job {
    Job::Mount { volume: volume(n) }
}

#[test]
fn the_next_volume_is_brought_when_the_present_one_will_be_full_soon() {
    let world = writing(2, 40 * GIB);
    let plan = world.plan();
    assert_eq!(plan.actions.len(), 1, "{plan:?}");
    assert_eq!((&plan.actions[0].job, plan.actions[0].drive), (&mount(1), DriveNo(1)));
    assert_eq!(plan.actions[0].why, Why::NextVolume { pool: "a".into() });
    assert!(plan.actions[0].why.to_string().contains("pool a that is written will be full soon"));
    // Not yet, or never.
    assert_eq!(jobs(&writing(2, 60 * GIB)), []);
    let mut off = writing(2, 40 * GIB);
    off.limits.ahead_bytes = 0;
    assert_eq!(jobs(&off), []);
}

#[test]
fn the_last_part_of_a_small_volume_only_counts_as_its_end() {
    let mut world = writing(2, 40 * GIB);
    world.tapes.get_mut(&volume(0)).unwrap().free = 100 * GIB;
    assert_eq!(jobs(&world), [], "40 of 100 GiB are left");
    if let DriveState::Busy(busy) = &mut world.drives[0].state {
        busy.room = Some(20 * GIB);
    }
    assert_eq!(jobs(&world), [mount(1)]);
    // What a session does not say is known from the catalogue.
    if let DriveState::Busy(busy) = &mut world.drives[0].state {
        busy.room = None;
    }
    assert_eq!(jobs(&world), []);
}

#[test]
fn nothing_is_brought_for_what_has_room() {
    let mut world = writing(2, 40 * GIB);
    world.backlog("a", 10, 30 * GIB);
    assert_eq!(jobs(&world), []);
    // One file that is being written and goes on on the next volume: nothing waits in the queue.
    world.backlog("a", 0, 0);
    assert_eq!(jobs(&world), []);
    world.writes.get_mut(&PoolName::from("a")).unwrap().in_hand = 41 * GIB;
    assert_eq!(jobs(&world), [mount(1)]);
}

#[test]
fn one_next_volume_is_brought_for_each_that_is_soon_full_and_no_more() {
    let mut world = writing(4, 40 * GIB);
    world.tape(2, VolumeState::Scratch, None);
    let plan = world.plan();
    world.drives[1].state = DriveState::Busy(plan.actions[0].busy(None));
    assert_eq!(jobs(&world), [], "it is on its way");
    world.load(1, 1, false);
    assert_eq!(jobs(&world), [], "it is there");
    world.now += 10 * world.limits.unmount_idle.as_secs();
    assert_eq!(jobs(&world), [], "and stays there");
    // The other drive writes too, and its volume will be full as soon.
    world.limits.bytes_per_writer = 100 * GIB;
    let want = Some(Want::Write("a".into()));
    let busy = Busy { want, room: Some(GIB), ..Busy::new(volume(1), Work::Migrate) };
    world.drives[1].state = DriveState::Busy(busy);
    assert_eq!(jobs(&world), [mount(2)]);
}

#[test]
fn it_is_written_at_once_when_the_other_is_full_and_goes_when_there_is_nothing_more() {
    let mut world = writing(2, 40 * GIB);
    world.load(1, 1, false);
    world.tapes.get_mut(&volume(0)).unwrap().state = VolumeState::Full;
    // The drive still gives the full one its index: it works for nobody.
    if let DriveState::Busy(busy) = &mut world.drives[0].state {
        busy.want = None;
    }
    assert_eq!(jobs(&world), [Job::Migrate { volume: volume(1), pool: "a".into() }]);
    let mut world = writing(2, 40 * GIB);
    world.load(1, 1, false);
    world.writes.clear();
    world.now += world.limits.unmount_idle.as_secs();
    assert_eq!(jobs(&world), [Job::Unmount { volume: volume(1) }]);
}

#[test]
fn an_empty_volume_is_labelled_ahead() {
    let mut world = writing(2, 40 * GIB);
    world.tapes.remove(&volume(1));
    world.tape(2, VolumeState::Blank, None);
    assert_eq!(jobs(&world), [mount(2)]);
    world.load(1, 2, false);
    assert_eq!(jobs(&world), [Job::Label { volume: volume(2), id: None, pool: Some("a".into()) }]);
    // None is there: the pool takes data all the same, as long as it does.
    world.tapes.remove(&volume(2));
    world.drives[1].state = DriveState::Empty;
    let plan = world.plan();
    assert!(plan.actions.is_empty() && plan.blocked.is_empty(), "{plan:?}");
}

#[test]
fn nobody_waits_for_it() {
    // No drive is free.
    let mut world = writing(2, 40 * GIB);
    world.tape(5, VolumeState::Full, Some("b"));
    world.load(1, 5, false);
    world.want(5, item(1, 0, world.now));
    assert!(matches!(jobs(&world)[..], [Job::Recall { .. }]));
    // Somebody wants the drive that it would have had, or has.
    let mut world = writing(2, 40 * GIB);
    world.tape(5, VolumeState::Full, Some("b"));
    world.want(5, item(1, 0, world.now));
    assert_eq!(jobs(&world), [mount(5)]);
    world.load(1, 1, false);
    assert_eq!(jobs(&world), [Job::Unmount { volume: volume(1) }]);
    // Even what can wait for as long as anything else wants the drive.
    let mut world = writing(2, 40 * GIB);
    world.tape(5, VolumeState::Full, Some("b"));
    let (kind, since) = (MaintenanceKind::Verify, at(world.now));
    world.jobs.push(Maintenance { id: 7, kind, volume: volume(5), since });
    assert_eq!(jobs(&world), [mount(5)]);
    // Nor are drives taken that are kept for reading.
    let mut world = writing(2, 40 * GIB);
    world.limits.drives_for_recall = 1;
    assert_eq!(jobs(&world), []);
}
