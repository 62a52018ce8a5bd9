//! Random libraries under random load: everything wanted is done, in order, without starving anybody.

use crate::world::*;
use proptest::prelude::*;
use sched::*;
use std::time::Duration;
use types::*;

#[derive(Clone, Debug)]
enum Load {
    Recall { volume: u32, block: u64, priority: u8 },
    Write { pool: usize, files: u64 },
    Check { volume: u32 },
    Pressure(bool),
}

const POOLS: [&str; 2] = ["a", "b"];

fn load() -> impl Strategy<Value = Load> {
    prop_oneof![
        6 => (0..6u32, 0..1000u64, 1..4u8).prop_map(|(volume, block, priority)| Load::Recall { volume, block, priority }),
        3 => (0..2usize, 1..400u64).prop_map(|(pool, files)| Load::Write { pool, files }),
        1 => (0..6u32).prop_map(|volume| Load::Check { volume }),
        1 => any::<bool>().prop_map(Load::Pressure),
    ]
}

/// Volumes 0..6 hold data (two of them still filling), 6..8 are scratch, 8 and 9 blank.
fn library(drives: u16, suspect: u16) -> World {
    let mut world = World::new(drives);
    for n in 0..10 {
        let (state, pool) = match n {
            0 | 1 => (VolumeState::Filling, Some(POOLS[n as usize])),
            2..6 => (VolumeState::Full, Some(POOLS[n as usize % 2])),
            6 | 7 => (VolumeState::Scratch, None),
            _ => (VolumeState::Blank, None),
        };
        world.tape(n, state, pool);
    }
    if suspect > 0 && drives > 1 {
        let drive = usize::from(suspect % drives);
        world.drives[drive].usable = false;
    }
    world
}

fn apply(world: &mut World, id: u64, load: &Load) {
    match load {
        Load::Recall { volume: n, block, priority } => {
            let item = RecallItem { priority: *priority, ..item(id, *block, world.now) };
            world.want(*n, item);
        }
        Load::Write { pool, files } => {
            let name = PoolName::from(POOLS[*pool]);
            let now = at(world.now);
            let fresh = Backlog {
                files: 0,
                bytes: 0,
                in_hand: 0,
                since: now,
                max_volumes: 0,
                library: None,
                worm: false,
                limited: None,
                rescue: false,
            };
            let backlog = world.writes.entry(name).or_insert(fresh);
            if backlog.files == 0 {
                backlog.since = now;
            }
            backlog.files += files;
            backlog.bytes += files << 20;
        }
        Load::Check { volume: n } => {
            let kind = MaintenanceKind::Check;
            world.jobs.push(Maintenance { id, kind, volume: volume(*n), since: at(world.now) });
        }
        Load::Pressure(on) => world.pressure = *on,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Every rule of `World::check` at each step; at the end nothing waits.
    #[test]
    fn all_work_gets_done(
        drives in 1..4u16, suspect in 0..4u16, loads in prop::collection::vec((load(), 0..4usize), 1..80)
    ) {
        let mut world = library(drives, suspect);
        let mut asked = 0;
        for (id, (load, steps)) in loads.iter().enumerate() {
            apply(&mut world, id as u64, load);
            asked += usize::from(matches!(load, Load::Recall { .. }));
            (0..*steps).for_each(|_| { world.step(); });
        }
        world.run(5000);
        prop_assert!(world.drained(), "left over: {:?}", world.plan());
        prop_assert_eq!(world.read.len(), asked, "every file read exactly once");
    }

    /// One drive, a stream of recalls on one volume that never ends, and others that wait.
    #[test]
    fn nobody_starves(volumes in 2..6u32, seed in 0..1000u64) {
        let mut world = library(1, 0);
        world.limits.starve_after = Duration::from_secs(600);
        world.limits.turn = Duration::from_secs(60);
        apply(&mut world, 0, &Load::Write { pool: 0, files: 250 });
        for n in 1..volumes {
            let waiting = item(u64::from(n), seed, world.now);
            world.want(n, waiting);
        }
        for id in 100..1000 {
            // Always something ahead of the head of volume 0.
            let busy = RecallItem { priority: 9, ..item(id, id, world.now) };
            world.want(0, busy);
            world.step();
        }
        let first = |n: u32| world.read.iter().position(|id| *id == u64::from(n));
        for n in 1..volumes {
            prop_assert!(first(n).is_some(), "volume {n} was never read");
        }
        prop_assert_eq!(world.writes.values().map(|b| b.files).sum::<u64>(), 0, "the backlog was never written");
        // Bound of the design note: starve_after + demands * (turn + swap) + running jobs.
        prop_assert!(world.longest_wait <= 600 + 7 * (60 + 130), "somebody waited {} s", world.longest_wait);
    }
}
