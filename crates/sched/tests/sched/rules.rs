//! The rules one by one.

use crate::world::*;
use sched::*;
use std::collections::BTreeSet;
use std::time::Duration;
use types::*;

fn jobs(plan: &Plan) -> Vec<&Job> {
    plan.actions.iter().map(|action| &action.job).collect()
}

fn mount(n: u32) -> Job {
    Job::Mount { volume: volume(n) }
}

/// Two filling volumes, one per pool, and four full ones.
fn library(drives: u16) -> World {
    let mut world = World::new(drives);
    world.tape(0, VolumeState::Filling, Some("a"));
    world.tape(1, VolumeState::Filling, Some("b"));
    (2..6).for_each(|n| drop(world.tape(n, VolumeState::Full, Some("a"))));
    world
}

#[test]
fn both_pools_are_written_in_parallel() {
    let mut world = library(2);
    world.limits.bytes_per_writer = 1 << 30;
    world.backlog("a", 1000, 10 << 30);
    world.backlog("b", 1000, 10 << 30);
    world.run(100);
    let both = world.drives.iter().filter(|d| d.volume().is_some()).count();
    assert_eq!((both, world.mounts), (2, 2), "each pool kept one drive: {:?}", world.log);
    assert!(world.drained());
}

#[test]
fn spare_drives_get_a_second_writer() {
    let mut world = library(4);
    world.tape(9, VolumeState::Scratch, None);
    world.limits.bytes_per_writer = 1 << 30;
    world.backlog("a", 1000, 2 << 30);
    world.run(100);
    let wrote: BTreeSet<_> = world
        .log
        .iter()
        .filter(|(_, a)| matches!(a.job, Job::Migrate { .. }))
        .map(|(_, a)| a.drive)
        .collect();
    assert_eq!(wrote.len(), 2);
}

#[test]
fn pools_with_equal_backlogs_get_equally_many_drives() {
    let mut world = World::new(4);
    world.limits.bytes_per_writer = 1 << 30;
    for n in 0..4 {
        world.tape(n, VolumeState::Scratch, None);
        world.load(n as usize, n, false);
    }
    world.backlog("a", 1000, 8 << 30);
    world.backlog("b", 1000, 8 << 30);
    let plan = world.plan();
    let pools = plan.actions.iter().filter_map(|action| match &action.job {
        Job::Migrate { pool, .. } => Some(pool.as_str()),
        _ => None,
    });
    let mut pools: Vec<&str> = pools.collect();
    pools.sort_unstable();
    assert_eq!(pools, ["a", "a", "b", "b"], "{plan:?}");
}

#[test]
fn recalls_go_before_writes_unless_the_disk_is_under_pressure() {
    let mut world = library(1);
    world.backlog("a", 10, 10);
    let wanted = item(1, 5, world.now);
    world.want(2, wanted);
    assert_eq!(jobs(&world.plan()), [&mount(2)]);
    world.pressure = true;
    assert_eq!(jobs(&world.plan()), [&mount(0)]);
}

#[test]
fn background_work_takes_a_drive_only_if_nothing_else_wants_it() {
    let mut world = library(1);
    world.now = 100_000;
    world.want(2, RecallItem { priority: BACKGROUND, ..item(1, 5, 0) });
    let kind = MaintenanceKind::Verify;
    world.jobs.push(Maintenance { id: 7, kind, volume: volume(3), since: Time::default() });
    assert_eq!(jobs(&world.plan()), [&mount(2)], "files that are to move before those that are only read");
    world.backlog("a", 10, 10);
    assert_eq!(jobs(&world.plan()), [&mount(0)], "however long it has waited");
    world.want(4, item(2, 5, world.now));
    assert_eq!(jobs(&world.plan()), [&mount(4)]);
}

#[test]
fn copies_of_files_that_have_only_one_left_go_before_other_writes_and_behind_readers() {
    let mut world = library(1);
    world.backlog("a", 10, 10);
    world.now += 60;
    world.backlog("b", 10, 10);
    let kind = MaintenanceKind::Label;
    world.jobs.push(Maintenance { id: 7, kind, volume: volume(3), since: at(world.now) });
    assert_eq!(jobs(&world.plan()), [&mount(0)], "who came first");
    world.writes.get_mut(&PoolName::from("b")).expect("there").rescue = true;
    let first = world.plan();
    let [Job::Mount { volume: chosen }] = jobs(&first)[..] else { panic!("{first:?}") };
    assert_eq!(world.tapes[chosen].pool, Some("b".into()));
    let wanted = item(1, 5, world.now);
    world.want(2, wanted);
    assert_eq!(jobs(&world.plan()), [&mount(2)]);
}

#[test]
fn old_backlog_goes_before_recalls() {
    let mut world = library(1);
    world.backlog("a", 10, 10);
    world.now += world.limits.starve_after.as_secs();
    let wanted = item(1, 5, world.now);
    world.want(2, wanted);
    let plan = world.plan();
    assert_eq!(jobs(&plan), [&mount(0)]);
    assert!(matches!(plan.actions[0].why, Why::Starving { .. }), "{:?}", plan.actions[0].why);
}

#[test]
fn one_pass_forward_even_in_batches() {
    let mut world = library(2);
    world.limits.recall_batch = 100;
    for id in 0..5000u64 {
        let wanted = item(id, (id * 7919) % 1_000_003, world.now);
        world.want(2, wanted);
    }
    world.run(1000);
    assert_eq!((world.read.len(), world.backward, world.mounts), (5000, 0, 1));
}

#[test]
fn files_that_share_blocks_are_read_in_the_order_in_which_they_lie_there() {
    let mut world = library(1);
    world.limits.recall_batch = 3;
    // Asked for in reverse order: the last of a block goes on in the next one, so reading it first would mean to come back.
    for id in 0..20u64 {
        let place = 19 - id;
        let wanted = RecallItem { byte: (place % 4) as u32 * 1000, ..item(id, place / 4, world.now) };
        world.want(2, wanted);
    }
    world.run(1000);
    assert_eq!((&world.read, world.backward), (&(0..20).rev().collect(), 0));
}

#[test]
fn a_recall_ends_after_enough_bytes() {
    let mut world = library(1);
    world.limits.recall_bytes = 5 << 20;
    world.load(0, 2, false);
    for id in 0..12 {
        let wanted = item(id, id, world.now);
        world.want(2, wanted);
    }
    world.run(100);
    let batches = world.log.iter().filter_map(|(_, action)| match &action.job {
        Job::Recall { order, .. } => Some(order.len()),
        _ => None,
    });
    assert_eq!(batches.collect::<Vec<_>>(), [5, 5, 2]);
}

#[test]
fn what_lies_behind_is_read_in_a_second_pass() {
    let mut world = library(1);
    world.load(0, 2, false);
    let DriveState::Loaded(loaded) = &mut world.drives[0].state else { panic!() };
    loaded.position = 50;
    for (id, block) in [(1, 10), (2, 60), (3, 50), (4, 40)] {
        let wanted = item(id, block, world.now);
        world.want(2, wanted);
    }
    world.run(100);
    assert_eq!(world.read, [3, 2, 1, 4]);
}

#[test]
fn a_mounted_volume_keeps_its_drive_while_it_has_work() {
    let mut world = library(1);
    world.limits.recall_batch = 1;
    world.load(0, 2, false);
    for id in 0..10 {
        let wanted = item(id, id, world.now + 1);
        world.want(2, wanted);
    }
    let older = item(100, 0, world.now);
    world.want(3, older);
    world.run(100);
    assert_eq!(world.read, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100]);
    assert_eq!(world.mounts, 1);
}

#[test]
fn a_dirty_volume_gets_its_index_before_it_leaves() {
    let mut world = library(1);
    world.load(0, 0, true);
    let wanted = item(1, 0, world.now);
    world.want(2, wanted);
    world.run(100);
    let order: Vec<_> = world.log.iter().map(|(_, action)| action.job.clone()).collect();
    assert_eq!(
        order,
        [
            Job::WriteIndex { volume: volume(0), id: None },
            Job::Unmount { volume: volume(0) },
            mount(2),
            Job::Recall { volume: volume(2), order: vec![1] },
        ]
    );
    // A suspect one takes no index: it must not be tried for ever.
    let mut world = library(1);
    world.load(0, 0, true);
    world.tapes.get_mut(&volume(0)).unwrap().state = VolumeState::Suspect;
    let wanted = item(1, 0, world.now);
    world.want(2, wanted);
    let plan = world.with_view(plan);
    assert_eq!(jobs(&plan), [&Job::Unmount { volume: volume(0) }]);
}

#[test]
fn idle_volumes_are_put_away_after_their_time() {
    let mut world = library(2);
    world.load(0, 2, false);
    assert_eq!(world.plan().actions, []);
    world.now += world.limits.unmount_idle.as_secs();
    assert_eq!(jobs(&world.plan()), [&Job::Unmount { volume: volume(2) }]);
}

#[test]
fn a_volume_that_is_out_of_use_is_put_away_at_once() {
    for state in [VolumeState::Exported, VolumeState::Retired, VolumeState::Broken] {
        let mut world = library(2);
        world.load(0, 2, false);
        world.tapes.get_mut(&volume(2)).unwrap().state = state;
        assert_eq!(jobs(&world.plan()), [&Job::Unmount { volume: volume(2) }], "{state}");
    }
}

#[test]
fn the_robot_moves_one_thing_at_a_time() {
    let mut world = library(3);
    for n in 2..5 {
        let wanted = item(u64::from(n), 0, world.now);
        world.want(n, wanted);
    }
    let plan = world.plan();
    assert_eq!(jobs(&plan), [&mount(2)]);
    assert_eq!(plan.blocked.iter().filter(|b| b.why == BlockedWhy::RobotBusy).count(), 2);
}

#[test]
fn a_second_drive_is_not_cleared_for_the_same_want() {
    let mut world = library(2);
    world.load(0, 4, false);
    world.load(1, 5, false);
    let wanted = item(1, 0, world.now);
    world.want(2, wanted);
    let plan = world.plan();
    assert_eq!(jobs(&plan), [&Job::Unmount { volume: volume(4) }]);
    world.drives[0].state = DriveState::Busy(plan.actions[0].busy(None));
    assert_eq!(world.plan().actions, [], "the other drive stays as it is");
}

#[test]
fn suspect_drives_are_left_alone_and_what_is_in_them_is_out_of_reach() {
    let mut world = library(2);
    world.load(0, 2, false);
    world.drives[0].usable = false;
    let wanted = item(1, 0, world.now);
    world.want(2, wanted);
    let plan = world.plan();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.blocked[0].why, BlockedWhy::StuckInDrive(DriveNo(0)));
}

#[test]
fn volumes_for_writing_in_order_of_preference() {
    let mut world = World::new(1);
    world.tape(1, VolumeState::Blank, None);
    world.backlog("a", 1, 1);
    let pick = |world: &World| jobs(&world.plan()).first().map(|job| (*job).clone());
    assert_eq!(pick(&world), Some(mount(1)));
    world.limits.label_blank = false;
    assert_eq!(world.plan().blocked[0].why, BlockedWhy::NoVolume("a".into()));
    world.limits.label_blank = true;
    world.tape(2, VolumeState::Scratch, None);
    assert_eq!(pick(&world), Some(mount(2)));
    world.tape(3, VolumeState::Filling, Some("a"));
    assert_eq!(pick(&world), Some(mount(3)));
    world.tape(4, VolumeState::Filling, Some("a"));
    world.tapes.get_mut(&volume(4)).unwrap().written = 10;
    assert_eq!(pick(&world), Some(mount(4)));
    world.load(0, 3, false);
    assert_eq!(pick(&world), Some(Job::Migrate { volume: volume(3), pool: "a".into() }));
    // Other pools' volumes, full ones and absent ones are never written.
    let mut world = World::new(1);
    world.backlog("a", 1, 1);
    world.tape(1, VolumeState::Filling, Some("b"));
    world.tape(2, VolumeState::Full, Some("a"));
    world.tape(3, VolumeState::Foreign, None);
    world.tape(4, VolumeState::Filling, Some("a"));
    world.tapes.get_mut(&volume(4)).unwrap().place = Place::Absent;
    assert_eq!(pick(&world), None);
}

#[test]
fn a_pool_does_not_outgrow_its_limit() {
    let mut world = World::new(2);
    world.tape(1, VolumeState::Full, Some("a"));
    world.tape(2, VolumeState::Scratch, None);
    world.backlog("a", 1, 1);
    world.writes.get_mut(&PoolName::from("a")).unwrap().max_volumes = 1;
    assert_eq!(world.plan().blocked[0].why, BlockedWhy::PoolFull("a".into()));
    world.writes.get_mut(&PoolName::from("a")).unwrap().max_volumes = 2;
    assert_eq!(jobs(&world.plan()), [&mount(2)]);
}

#[test]
fn two_writers_that_begin_at_once_do_not_outgrow_a_pool() {
    let mut world = World::new(2);
    world.limits.bytes_per_writer = 1;
    for n in 0..2 {
        world.tape(n, VolumeState::Scratch, None);
        world.load(n as usize, n, false);
    }
    world.backlog("a", 2, 2);
    world.writes.get_mut(&PoolName::from("a")).unwrap().max_volumes = 1;
    let plan = world.plan();
    assert_eq!(plan.actions.len(), 1, "{plan:?}");
    assert_eq!(plan.blocked[0].why, BlockedWhy::PoolFull("a".into()));
}

#[test]
fn a_pool_whose_volume_is_in_use_is_not_said_to_be_full() {
    let mut world = World::new(2);
    world.limits.bytes_per_writer = 1;
    world.tape(1, VolumeState::Filling, Some("a"));
    world.backlog("a", 2, 2);
    world.writes.get_mut(&PoolName::from("a")).unwrap().max_volumes = 1;
    let plan = world.plan();
    assert_eq!(plan.actions.len(), 1, "{plan:?}");
    assert_eq!(plan.blocked[0].why, BlockedWhy::DrivesBusy);
    world.drives[1].state = DriveState::Busy(Busy::new(volume(1), Work::Recall));
    assert_eq!(world.plan().blocked[0].why, BlockedWhy::VolumeBusy(DriveNo(1)));
    world.drives[1].usable = false;
    assert_eq!(
        world.plan().blocked[0].why,
        BlockedWhy::PoolFull("a".into()),
        "it does not come back by itself"
    );
}

#[test]
fn blank_volumes_are_labelled_then_written() {
    let mut world = World::new(1);
    world.tape(1, VolumeState::Blank, None);
    world.backlog("a", 1, 1);
    world.run(100);
    assert!(matches!(world.log[1].1.job, Job::Label { id: None, pool: Some(_), .. }), "{:?}", world.log);
    assert!(matches!(world.log[2].1.job, Job::Migrate { .. }));
}

#[test]
fn reasons_read_well() {
    let mut world = library(1);
    let wanted = item(1, 5, world.now - 60);
    world.want(2, wanted);
    let text = world.plan().actions[0].why.to_string();
    assert_eq!(text, "wanted from it: 1 file (1048576 bytes), the first for 60 s");
}

#[test]
fn copies_are_chosen_by_what_is_at_hand() {
    let mut world = library(2);
    let copies = [
        CopyPlace { copy: CopyNo(1), volumes: vec![volume(2)] },
        CopyPlace { copy: CopyNo(2), volumes: vec![volume(3)] },
    ];
    let choose = |world: &World, avoid: &[u32]| {
        let avoid = avoid.iter().map(|n| volume(*n)).collect();
        world.with_view(|view| choose_copy(view, &copies, &avoid)).map(|c| (c.index, c.why))
    };
    assert_eq!(choose(&world, &[]), Some((0, CopyWhy::First)));
    assert_eq!(choose(&world, &[2]), Some((1, CopyWhy::First)));
    assert_eq!(choose(&world, &[2, 3]), None);
    let wanted = item(1, 0, world.now);
    world.want(3, wanted);
    assert_eq!(choose(&world, &[]), Some((1, CopyWhy::Shared)));
    world.load(0, 2, false);
    assert_eq!(choose(&world, &[]), Some((0, CopyWhy::Mounted)));
    // Being written: rather the other copy.
    let migrate = Job::Migrate { volume: volume(2), pool: "a".into() };
    let action = Action { drive: DriveNo(0), job: migrate, want: None, charge: None, why: Why::Asked };
    world.drives[0].state = DriveState::Busy(action.busy(None));
    assert_eq!(choose(&world, &[]), Some((1, CopyWhy::Shared)));
    // In a suspect drive: out of reach. On a suspect volume: only for want of a better one.
    world.load(0, 2, false);
    world.drives[0].usable = false;
    assert_eq!(choose(&world, &[]), Some((1, CopyWhy::Shared)));
    world.drives[0].usable = true;
    world.tapes.get_mut(&volume(2)).unwrap().state = VolumeState::Suspect;
    assert_eq!(choose(&world, &[]), Some((1, CopyWhy::Shared)));
    world.tapes.get_mut(&volume(3)).unwrap().state = VolumeState::Broken;
    assert_eq!(choose(&world, &[]), Some((0, CopyWhy::Remaining)));
}

#[test]
fn estimates_grow_with_what_lies_ahead() {
    let mut world = library(1);
    for (n, id, block) in [(2, 1, 1000), (2, 2, 2000), (3, 3, 10)] {
        let wanted = RecallItem { bytes: 400_000_000, ..item(id, block, world.now + u64::from(n)) };
        world.want(n, wanted);
    }
    let eta = |world: &World, n, id| world.with_view(|view| estimate(view, &volume(n), id)).unwrap();
    let (first, second, other) = (eta(&world, 2, 1), eta(&world, 2, 2), eta(&world, 3, 3));
    let (start, finish) = (first.start.p50_s(), first.finish.p50_s());
    // Mount 26 s, then to block 1000 by reading over it (1.3 s is quicker than a locate), then one second of data.
    assert!((start - 27.31).abs() < 0.01 && (finish - start - 1.0).abs() < 1e-9, "{first:?}");
    assert!(first.finish.p90_s() > finish, "{first:?}");
    assert_eq!((first.position, second.position, second.volumes_ahead), (1, 2, 0));
    assert!(second.start.p50_s() > finish);
    assert_eq!((other.position, other.volumes_ahead), (1, 1));
    assert!(other.start.p50_s() > second.finish.p50_s() + Mechanics::default().unmount_s());
    world.load(0, 2, false);
    assert!(eta(&world, 2, 1).start.p50_s() < 2.0);
    world.drives[0].usable = false;
    assert_eq!(world.with_view(|view| estimate(view, &volume(2), 1)), None);
}

#[test]
fn long_queues_cost_a_plan_nothing() {
    let mut world = library(1);
    world.load(0, 2, false);
    for id in 0..200_000 {
        let wanted = item(id, id * 3, world.now);
        world.want(2, wanted);
    }
    let begun = std::time::Instant::now();
    (0..100).for_each(|_| drop(world.with_view(plan)));
    assert!(begun.elapsed() < Duration::from_secs(2), "100 plans took {:?}", begun.elapsed());
}

#[test]
fn pools_get_media_of_their_kind_only() {
    let mut world = library(1);
    world.tapes.clear();
    for (n, state, worm) in [(7, VolumeState::Scratch, true), (8, VolumeState::Blank, false)] {
        world.tape(n, state, None);
        world.tapes.get_mut(&volume(n)).unwrap().worm = worm;
    }
    let mounted = |world: &World| {
        let jobs = world.with_view(plan).actions.into_iter().map(|action| action.job);
        let of = |job| if let Job::Mount { volume } = job { Some(volume) } else { None };
        jobs.filter_map(of).collect::<Vec<_>>()
    };
    world.backlog("a", 1, 100);
    assert_eq!(mounted(&world), [volume(8)]);
    world.writes.values_mut().for_each(|backlog| backlog.worm = true);
    assert_eq!(mounted(&world), [volume(7)]);
    world.tapes.remove(&volume(7));
    let blocked = world.with_view(plan).blocked;
    assert!(matches!(blocked[0].why, BlockedWhy::NoVolume(_)), "{blocked:?}");
}
