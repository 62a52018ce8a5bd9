//! Drives and media of several generations, and several libraries: who can read or write what.

use crate::world::*;
use Generation::*;
use proptest::prelude::*;
use sched::*;
use std::collections::BTreeSet;
use types::*;

/// Drives of these generations, in the first library.
fn mixed(drives: &[Generation]) -> World {
    let mut world = World::new(drives.len() as u16);
    for (drive, generation) in world.drives.iter_mut().zip(drives) {
        drive.reach = Reach::of(*generation);
    }
    world
}

fn add(world: &mut World, n: u32, medium: Generation, state: VolumeState, pool: Option<&str>) -> Barcode {
    let volume = world.tape(n, state, pool);
    world.tapes.get_mut(&volume).unwrap().generation = Some(medium);
    volume
}

fn mounts(plan: &Plan) -> Vec<(u16, &str)> {
    fn mount(a: &Action) -> Option<(u16, &str)> {
        match &a.job {
            Job::Mount { volume } => Some((a.drive.0, &volume.as_str()[4..6])),
            _ => None,
        }
    }
    plan.actions.iter().filter_map(mount).collect()
}

fn ask(world: &mut World, n: u32) {
    let wanted = item(u64::from(n), 1, world.now);
    world.want(n, wanted);
}

#[test]
fn a_volume_goes_to_a_drive_that_reads_it_the_oldest_first() {
    for (medium, drive) in [(Lto5, 0), (Lto6, 0), (Lto7, 0), (Lto7M8, 1), (Lto8, 1), (Lto9, 2), (Lto10, 3)] {
        let mut world = mixed(&[Lto7, Lto8, Lto9, Lto10]);
        add(&mut world, 1, medium, VolumeState::Full, None);
        ask(&mut world, 1);
        assert_eq!(mounts(&world.plan()), [(drive, "01")], "{medium}");
    }
}

#[test]
fn what_no_drive_reads_is_said_at_once_with_what_it_takes() {
    let mut world = mixed(&[Lto8, Lto9]);
    let volume = add(&mut world, 1, Lto6, VolumeState::Full, None);
    ask(&mut world, 1);
    let plan = world.plan();
    assert!(plan.actions.is_empty());
    let why = plan.blocked[0].why.to_string();
    assert_eq!(
        plan.blocked[0].why,
        BlockedWhy::NoDriveFor { volume: volume.clone(), medium: Some(Lto6), access: Access::Read }
    );
    assert!(why.contains("reads LTO-6; it takes a drive of LTO-6 or LTO-7 ("), "{why}");
    let place = |copy, volume: &Barcode| CopyPlace { copy: CopyNo(copy), volumes: vec![volume.clone()] };
    let other = add(&mut world, 2, Lto9, VolumeState::Full, None);
    let chosen = world.with_view(|view| {
        choose_copy(view, &[place(1, &volume), place(2, &other)], &BTreeSet::new()).map(|c| c.index)
    });
    assert_eq!(chosen, Some(1), "the copy that a drive reads");
    let times = Calibration::default();
    world.with_view(|view| {
        assert_eq!(view.reached(&volume, &view.volumes[&volume], Access::Read), Reached::Never);
        assert!(Forecast::new(view, &times).of(view, &times, &volume).is_empty(), "no estimate");
    });
}

#[test]
fn drives_that_are_out_of_use_are_named_as_the_reason() {
    let mut world = mixed(&[Lto7, Lto9]);
    add(&mut world, 1, Lto6, VolumeState::Full, None);
    ask(&mut world, 1);
    world.drives[0].usable = false;
    assert_eq!(world.plan().blocked[0].why, BlockedWhy::DrivesDown(Some(Lto6)));
    world.drives[1].usable = false;
    assert_eq!(world.plan().blocked[0].why, BlockedWhy::NoDrive);
}

#[test]
fn an_old_volume_is_read_by_newer_drives_and_written_by_none() {
    let mut world = mixed(&[Lto7]);
    let old = add(&mut world, 1, Lto5, VolumeState::Filling, Some("p"));
    world.backlog("p", 10, 10 << 20);
    assert_eq!(
        world.plan().blocked[0].why,
        BlockedWhy::NoWriter { pool: PoolName::from("p"), volume: old.clone(), medium: Some(Lto5) }
    );
    let said = world.plan().blocked[0].why.to_string();
    assert!(said.contains("a drive of LTO-5 or LTO-6; import blank"), "{said}");
    ask(&mut world, 1);
    assert_eq!(mounts(&world.plan()), [(0, "01")]);
    // Another volume of the pool takes the data.
    world.recalls.clear();
    add(&mut world, 2, Lto6, VolumeState::Filling, Some("p"));
    assert_eq!(mounts(&world.plan()), [(0, "02")]);
}

#[test]
fn a_volume_in_a_drive_that_only_reads_it_moves_to_one_that_writes_it() {
    let mut world = mixed(&[Lto7, Lto6]);
    let volume = add(&mut world, 1, Lto5, VolumeState::Filling, Some("p"));
    world.load(0, 1, false);
    world.backlog("p", 10, 10 << 20);
    let plan = world.plan();
    assert_eq!(
        (plan.actions[0].drive, &plan.actions[0].job),
        (DriveNo(0), &Job::Unmount { volume: volume.clone() })
    );
    world.run(1000);
    assert!(world.drained());
    let wrote = |(_, a): &&(u64, Action)| matches!(a.job, Job::Migrate { .. });
    assert_eq!(world.log.iter().find(wrote).map(|(_, a)| a.drive), Some(DriveNo(1)));
    // A label too is written where it can be.
    let mut world = mixed(&[Lto7, Lto6]);
    let volume = add(&mut world, 1, Lto5, VolumeState::Blank, None);
    world.jobs.push(Maintenance { id: 1, kind: MaintenanceKind::Label, volume, since: at(world.now) });
    assert_eq!(mounts(&world.plan()), [(1, "01")]);
}

#[test]
fn writers_take_the_media_for_which_there_is_a_drive_and_new_media_first() {
    let mut world = mixed(&[Lto8, Lto9]);
    add(&mut world, 1, Lto8, VolumeState::Scratch, None);
    add(&mut world, 2, Lto9, VolumeState::Scratch, None);
    add(&mut world, 3, Lto7, VolumeState::Scratch, None);
    world.backlog("p", 10, 10 << 20);
    assert_eq!(mounts(&world.plan()), [(1, "02")], "both drives are free: the newest medium");
    world.drives[1].state = DriveState::Busy(Busy::new(volume(9), Work::Recall));
    assert_eq!(mounts(&world.plan()), [(0, "01")], "one writer need not wait for the other drive");
    world.limits.given_up = Some(Lto8);
    assert!(world.plan().actions.is_empty(), "LTO-8 is being emptied");
    assert_eq!(world.plan().blocked[0].why, BlockedWhy::DrivesBusy);
}

#[test]
fn a_pair_that_did_not_work_is_not_tried_again_and_others_are() {
    let mut world = mixed(&[Lto9, Lto9]);
    let bad = add(&mut world, 1, Lto9, VolumeState::Full, None);
    world.drives[0].refused.insert(bad.clone(), Access::Read);
    world.load(0, 1, false);
    ask(&mut world, 1);
    let plan = world.plan();
    assert_eq!(
        (plan.actions[0].drive, &plan.actions[0].job),
        (DriveNo(0), &Job::Unmount { volume: bad.clone() })
    );
    world.run(100);
    let read = |(_, a): &&(u64, Action)| matches!(a.job, Job::Recall { .. });
    assert_eq!(world.log.iter().find(read).map(|(_, a)| a.drive), Some(DriveNo(1)));
    // Others of the same medium are.
    add(&mut world, 2, Lto9, VolumeState::Full, None);
    (world.drives[1].usable, world.drives[1].state) = (false, DriveState::Empty);
    ask(&mut world, 1);
    ask(&mut world, 2);
    let plan = world.plan();
    assert_eq!(mounts(&plan), [(0, "02")]);
    assert_eq!(plan.blocked[0].why, BlockedWhy::DrivesDown(Some(Lto9)));
    world.drives[1].refused.insert(bad.clone(), Access::Write);
    world.drives[1].usable = true;
    assert_eq!(mounts(&world.plan()), [(1, "01")], "what it cannot write it may read");
}

#[test]
fn a_volume_that_a_drive_refused_does_not_keep_others_of_its_kind_from_it() {
    let mut world = mixed(&[Lto9, Lto9]);
    let bad = add(&mut world, 1, Lto9, VolumeState::Filling, Some("p"));
    add(&mut world, 2, Lto9, VolumeState::Scratch, None);
    world.drives[0].refused.insert(bad, Access::Write);
    world.drives[1].usable = false;
    world.backlog("p", 1, 1);
    assert_eq!(mounts(&world.plan()), [(0, "02")]);
}

#[test]
fn libraries_have_their_own_drives_and_robots() {
    let mut world = World::new(3);
    world.drives[1].library = LibraryNo(1);
    world.drives[2].library = LibraryNo(1);
    for n in 1..=4 {
        let volume = world.tape(n, VolumeState::Full, None);
        world.tapes.get_mut(&volume).unwrap().place = Place::Library(LibraryNo(u16::from(n > 1)));
        ask(&mut world, n);
    }
    let plan = world.plan();
    let mut begun = mounts(&plan);
    begun.sort_unstable();
    assert_eq!(begun, [(0, "01"), (1, "02")], "both robots move at once, each once");
    let why: Vec<_> = plan.blocked.iter().map(|b| b.why.clone()).collect();
    assert_eq!(why, [BlockedWhy::RobotBusy, BlockedWhy::DrivesBusy]);
    // All drives of one library fail: the other goes on.
    world.drives[1].usable = false;
    world.drives[2].usable = false;
    let plan = world.plan();
    assert_eq!(mounts(&plan), [(0, "01")]);
    assert!(plan.blocked.iter().all(|b| b.why == BlockedWhy::DrivesDown(None)), "{plan:?}");
}

#[test]
fn a_copy_in_another_library_is_preferred_while_a_robot_fails() {
    let mut world = World::new(2);
    world.drives[1].library = LibraryNo(1);
    for n in 1..=2 {
        let volume = world.tape(n, VolumeState::Full, None);
        world.tapes.get_mut(&volume).unwrap().place = Place::Library(LibraryNo(n as u16 - 1));
    }
    let place = |copy: u8| CopyPlace { copy: CopyNo(copy), volumes: vec![volume(copy.into())] };
    let chosen = |world: &World| {
        let places = [place(1), place(2)];
        world.with_view(|view| choose_copy(view, &places, &BTreeSet::new()).map(|c| c.index))
    };
    assert_eq!(chosen(&world), Some(0));
    world.robots_troubled.insert(LibraryNo(0));
    assert_eq!(chosen(&world), Some(1));
    world.load(0, 1, false);
    assert_eq!(chosen(&world), Some(0), "what is in a drive needs no robot");
}

#[test]
fn a_pool_that_is_bound_to_a_library_is_written_there_only() {
    let mut world = World::new(2);
    world.drives[1].library = LibraryNo(1);
    for n in 1..=2 {
        let volume = world.tape(n, VolumeState::Filling, Some("p"));
        world.tapes.get_mut(&volume).unwrap().place = Place::Library(LibraryNo(n as u16 - 1));
    }
    world.backlog("p", 10, 1 << 50);
    assert_eq!(mounts(&world.plan()).len(), 2);
    world.writes.get_mut(&PoolName::from("p")).unwrap().library = Some(LibraryNo(1));
    assert_eq!(mounts(&world.plan()), [(1, "02")]);
    world.writes.get_mut(&PoolName::from("p")).unwrap().library = Some(LibraryNo(7));
    assert_eq!(world.plan().blocked[0].why, BlockedWhy::NoVolume(PoolName::from("p")));
}

#[test]
fn while_a_robot_fails_files_are_written_in_another_library() {
    let mut world = World::new(2);
    world.drives[1].library = LibraryNo(1);
    world.tape(1, VolumeState::Filling, Some("p"));
    let empty = world.tape(2, VolumeState::Scratch, None);
    world.tapes.get_mut(&empty).unwrap().place = Place::Library(LibraryNo(1));
    world.backlog("p", 10, 10 << 20);
    assert_eq!(mounts(&world.plan()), [(0, "01")], "the one that is begun");
    world.robots_troubled.insert(LibraryNo(0));
    assert_eq!(mounts(&world.plan()), [(1, "02")]);
    world.writes.get_mut(&PoolName::from("p")).unwrap().library = Some(LibraryNo(0));
    assert_eq!(world.plan().blocked[0].why, BlockedWhy::RobotBusy);
    world.load(0, 1, false);
    let plan = world.plan();
    assert!(
        matches!(plan.actions[0].job, Job::Migrate { .. }),
        "what is in a drive needs no robot: {plan:?}"
    );
}

fn medium() -> impl Strategy<Value = Generation> {
    (4..11usize).prop_map(|n| Generation::ALL[n])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever drives, media and libraries there are, all work gets done for which there are drives, by drives that can do
    /// it (`World::check`), and the rest is blocked for the right reason.
    #[test]
    fn all_work_gets_done_that_can_be(
        drives in prop::collection::vec((medium(), 0..2u16, 0..8u8), 1..5),
        tapes in prop::collection::vec((medium(), 0..2u16, 0..4u8), 4..12),
        files in prop::collection::vec((0..12u32, 0..1000u64), 0..40),
        refusals in prop::collection::vec((0..5usize, 0..12u32, any::<bool>()), 0..4),
        backlog in 0..500u64,
    ) {
        let mut world = World::new(drives.len() as u16);
        for (drive, (generation, library, fate)) in world.drives.iter_mut().zip(&drives) {
            (drive.reach, drive.library) = (Reach::of(*generation), LibraryNo(*library));
            drive.usable = *fate > 0;
        }
        for (n, (medium, library, state)) in (0..).zip(&tapes) {
            let state = [VolumeState::Filling, VolumeState::Full, VolumeState::Scratch, VolumeState::Blank][usize::from(*state)];
            let pool = matches!(state, VolumeState::Filling | VolumeState::Full).then_some("p");
            let volume = add(&mut world, n, *medium, state, pool);
            world.tapes.get_mut(&volume).unwrap().place = Place::Library(LibraryNo(*library));
        }
        for (drive, n, reads) in refusals {
            let access = if reads { Access::Read } else { Access::Write };
            if let Some(drive) = world.drives.get_mut(drive) {
                drive.refused.insert(volume(n), access);
            }
        }
        for (id, (n, block)) in (0..).zip(files) {
            if world.tapes.get(&volume(n)).is_some_and(Tape::readable) {
                let wanted = item(id, block, world.now);
                world.want(n, wanted);
            }
        }
        world.backlog("p", backlog, backlog << 20);
        world.run(3000);
        let plan = world.plan();
        world.with_view(|view| {
            let reached = |v: &Barcode, access| view.reached(v, &view.volumes[v], access);
            for (volume, queue) in view.recalls {
                let left = !queue.is_empty();
                prop_assert_eq!(left, reached(volume, Access::Read) != Reached::Yes && left, "{} is left", volume);
            }
            let takes = |t: &Tape| t.takes_data_of(&PoolName::from("p")) || matches!(t.state, VolumeState::Scratch | VolumeState::Blank);
            let writable = view.volumes.iter().any(|(v, t)| takes(t) && reached(v, Access::Write) == Reached::Yes);
            let left = view.writes.values().any(|b| b.files > 0);
            prop_assert!(!(left && writable), "not written: {:?}", plan);
            Ok(())
        })?;
        for blocked in &plan.blocked {
            let said = matches!(blocked.why,
                BlockedWhy::NoDriveFor { .. } | BlockedWhy::DrivesDown(_) | BlockedWhy::NoDrive | BlockedWhy::NoWriter { .. }
                | BlockedWhy::NoVolume(_));
            prop_assert!(said, "{:?}", blocked);
        }
    }
}

#[test]
fn of_drives_that_are_alike_one_is_taken_whose_data_path_has_least_to_carry() {
    let mut world = World::new(6);
    for (drive, path) in world.drives.iter_mut().zip([0, 0, 0, 1, 1, 2]) {
        drive.path = PathNo(path);
    }
    world.drives[5].usable = false;
    let mut taken = Vec::new();
    for n in 1..=5 {
        world.tape(n, VolumeState::Full, None);
        ask(&mut world, n);
        let plan = world.plan();
        let [(drive, _)] = mounts(&plan)[..] else { panic!("{plan:?}") };
        world.load(usize::from(drive), n, false);
        world.recalls.clear();
        taken.push(drive);
    }
    // A drive that is out of use carries nothing and takes nothing; the other paths get their drives in turn.
    assert_eq!(taken, [0, 3, 1, 4, 2]);
}
