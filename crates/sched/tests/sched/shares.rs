//! Whose turn it is: shares, limits, deadlines, drives kept for reading, tapes kept warm.

use crate::world::*;
use proptest::prelude::*;
use sched::*;
use std::time::Duration;
use types::*;

fn mount(n: u32) -> Job {
    Job::Mount { volume: volume(n) }
}

fn jobs(plan: &Plan) -> Vec<&Job> {
    plan.actions.iter().map(|action| &action.job).collect()
}

/// Owners 0, 1, ... with these weights, and no caps.
fn owners(weights: &[f64]) -> Accounts {
    let account =
        |(owner, weight): (usize, &f64)| Account { owner: owner as u32, weight: *weight, caps: vec![] };
    Accounts { list: weights.iter().enumerate().map(account).collect(), ..Accounts::default() }
}

fn full(world: &mut World, volumes: u32) {
    (0..volumes).for_each(|n| drop(world.tape(n, VolumeState::Full, None)));
}

fn of(account: u32, item: RecallItem) -> RecallItem {
    RecallItem { account: AccountId(account), ..item }
}

#[test]
fn who_has_used_less_comes_first_and_owners_take_turns() {
    let mut world = World::new(1);
    full(&mut world, 4);
    world.accounts = owners(&[1.0, 1.0]);
    let now = world.now;
    // The first owner asked for three volumes before the other asked for one.
    for n in 0..3 {
        world.want(n, of(0, item(u64::from(n), 0, now - 100)));
    }
    world.want(3, of(1, item(9, 0, now)));
    assert_eq!(jobs(&world.plan()), [&mount(0)], "nobody has used anything: in the order of asking");
    world.accounts.used.charge(0, 3600.0, at(now));
    assert_eq!(jobs(&world.plan()), [&mount(3)], "his turn comes first who had less");
    world.limits.starve_after = Duration::from_secs(60);
    assert_eq!(jobs(&world.plan()), [&mount(0)], "unless somebody starves");
}

#[test]
fn an_owner_that_holds_all_drives_gives_some_to_another_after_a_turn() {
    let mut world = World::new(4);
    full(&mut world, 8);
    world.accounts = owners(&[1.0, 1.0]);
    world.limits.starve_after = Duration::from_secs(1_000_000);
    for n in 0..4 {
        world.load(n as usize, n, false);
        let wanted = of(0, item(u64::from(n), 0, world.now));
        world.want(n, wanted);
    }
    for n in 4..8 {
        let wanted = of(1, item(u64::from(n), 0, world.now));
        world.want(n, wanted);
    }
    let unmounts = |plan: &Plan| plan.actions.iter().filter(|a| matches!(a.job, Job::Unmount { .. })).count();
    assert_eq!(unmounts(&world.plan()), 0, "each mount does some work");
    world.now += world.limits.turn.as_secs();
    assert_eq!(unmounts(&world.plan()), 1, "one move of the robot at a time");
    // Half of the drives are enough.
    (2..4).for_each(|n: usize| {
        world.drives[n].state = DriveState::Busy(Busy {
            charge: Some(AccountId(1)),
            want: Some(Want::Recall(volume(n as u32 + 2))),
            ..Busy::new(volume(n as u32 + 2), Work::Recall)
        });
    });
    assert_eq!(unmounts(&world.plan()), 0);
}

#[test]
fn a_limit_is_named_and_files_of_a_volume_mounted_for_another_are_read_along() {
    let mut world = World::new(3);
    full(&mut world, 3);
    world.accounts = owners(&[1.0, 1.0]);
    world.accounts.caps = vec![Cap { name: "students".into(), drives: 1 }];
    world.accounts.list[0].caps = vec![0];
    for n in 0..3 {
        let wanted = of(0, item(u64::from(n), 5, world.now));
        world.want(n, wanted);
        world.load(n as usize, n, false);
    }
    let plan = world.plan();
    assert_eq!(plan.actions.len(), 1, "{plan:?}");
    let limit = BlockedWhy::Limit { name: "students".into(), drives: 1 };
    assert_eq!(plan.blocked.iter().map(|b| &b.why).collect::<Vec<_>>(), [&limit, &limit]);
    assert!(limit.to_string().contains("students"), "{limit}");
    let others = of(1, item(7, 9, world.now));
    world.want(2, others);
    let plan = world.plan();
    let recall = |n, order: &[u64]| Job::Recall { volume: volume(n), order: order.to_vec() };
    assert_eq!(jobs(&plan), [&recall(0, &[0]), &recall(2, &[2, 7])], "{plan:?}");
    assert_eq!(
        plan.actions.iter().map(|a| a.charge).collect::<Vec<_>>(),
        [Some(AccountId(0)), Some(AccountId(1))]
    );
}

#[test]
fn a_deadline_comes_first_when_it_can_only_just_be_met() {
    let mut world = World::new(1);
    full(&mut world, 3);
    let now = world.now;
    for n in 0..2 {
        world.want(n, item(u64::from(n), 0, now - 10));
    }
    let by = |s: u64| RecallItem { deadline: Some(at(now + s)), ..item(2, 0, now) };
    world.want(2, by(24 * 3600));
    assert_eq!(jobs(&world.plan()), [&mount(0)], "there is time enough");
    world.want(2, by(120));
    assert_eq!(jobs(&world.plan()), [&mount(2)]);
    world.want(0, RecallItem { priority: 2, ..item(0, 0, now - 10) });
    assert_eq!(jobs(&world.plan()), [&mount(0)], "what is more important comes before all the same");
}

#[test]
fn drives_kept_for_reading_are_not_written_on() {
    let mut world = World::new(3);
    for (n, pool) in ["a", "b", "c"].into_iter().enumerate() {
        world.tape(n as u32, VolumeState::Filling, Some(pool));
        world.load(n, n as u32, false);
        world.backlog(pool, 1, 1);
    }
    world.limits.drives_for_recall = 1;
    let plan = world.plan();
    assert_eq!((plan.actions.len(), &plan.blocked[0].why), (2, &BlockedWhy::Reserved(1)), "{plan:?}");
    assert!(plan.blocked[0].why.to_string().contains("drives_for_recall"));
    // If all are kept one is left: nothing may stay unwritten for ever.
    world.limits.drives_for_recall = 5;
    assert_eq!(world.plan().actions.len(), 1);
    // Busy ones count.
    world.drives[0].state =
        DriveState::Busy(Busy { want: Some(Want::Write("a".into())), ..Busy::new(volume(0), Work::Migrate) });
    assert_eq!(world.plan().actions.len(), 0);
}

#[test]
fn a_volume_that_is_wanted_again_and_again_stays_in_its_drive() {
    let mut world = World::new(1);
    full(&mut world, 2);
    world.load(0, 0, false);
    for n in 0..20 {
        world.heat.note(&volume(0), at(world.now + n * 30));
    }
    world.now += 20 * 30 + world.limits.unmount_idle.as_secs();
    assert_eq!(world.plan().actions, [], "it is warm");
    let hot = world.heat.clone();
    (0..60).for_each(|n| world.heat.note(&volume(1), at(world.now - 60 + n)));
    let unmount = Job::Unmount { volume: volume(0) };
    assert_eq!(jobs(&world.plan()), [&unmount], "another is wanted more often");
    world.heat = hot;
    world.now += 4 * 3600;
    assert_eq!(jobs(&world.plan()), [&unmount], "nobody has wanted it for hours");
    world.now -= 4 * 3600;
    world.limits.exchange = Duration::ZERO;
    assert_eq!(jobs(&world.plan()), [&unmount], "it would be back at once");
}

#[test]
fn a_volume_that_is_likely_to_be_wanted_before_it_is_out_keeps_its_drive_for_a_turn() {
    let mut world = World::new(1);
    full(&mut world, 2);
    for n in 0..60 {
        world.heat.note(&volume(0), at(world.now + n * 10));
    }
    world.now += 600;
    world.load(0, 0, false);
    let wanted = item(1, 0, world.now);
    world.want(1, wanted);
    assert_eq!(world.plan().actions, [], "wanted every ten seconds, and an exchange takes 92");
    world.now += world.limits.turn.as_secs();
    assert_eq!(jobs(&world.plan()), [&Job::Unmount { volume: volume(0) }], "not for ever");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Owners who always want more get drives in proportion to their weights.
    #[test]
    fn drives_are_shared_by_weight(drives in 2..6u16, weights in prop::collection::vec(1..4u32, 2..4)) {
        let mut world = World::new(drives);
        let count = weights.len() as u32;
        full(&mut world, count * 12);
        world.accounts = owners(&weights.iter().map(|w| f64::from(*w)).collect::<Vec<_>>());
        world.limits.starve_after = Duration::from_secs(10_000_000);
        world.limits.turn = Duration::from_secs(120);
        world.limits.recall_batch = 40;
        let (mut id, begun) = (0, world.now);
        while world.now < begun + 20_000 {
            for n in 0..count * 12 {
                while world.recalls.get(&volume(n)).is_none_or(|queue| queue.len() < 60) {
                    id += 1;
                    let wanted = of(n % count, item(id, id % 1_000_000, world.now));
                    world.want(n, wanted);
                }
            }
            world.step();
        }
        let (all, sum): (f64, u32) = (world.served.values().sum(), weights.iter().sum());
        for (owner, weight) in weights.iter().enumerate() {
            let fair = f64::from(*weight) / f64::from(sum);
            let got = world.served.get(&(owner as u32)).copied().unwrap_or(0.0) / all;
            prop_assert!((got / fair - 1.0).abs() < 0.3, "owner {owner} of {weights:?} on {drives} drives: {got:.2} of {fair:.2}");
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// With limits, weights, priorities and deadlines: no limit is exceeded (`World::check`), and all work is done.
    #[test]
    fn limits_hold_and_all_work_gets_done(
        drives in 1..5u16,
        caps in prop::collection::vec(1..3u32, 1..3),
        wanted in prop::collection::vec((0..8u32, 0..1000u64, 1..4u8, 0..5u32, any::<bool>(), 0..3usize), 1..120),
    ) {
        let mut world = World::new(drives);
        full(&mut world, 8);
        world.accounts = owners(&[1.0, 2.0, 1.0, 0.0, 5.0]);
        world.accounts.caps = caps.iter().map(|drives| Cap { name: "some".into(), drives: *drives }).collect();
        for (n, account) in world.accounts.list.iter_mut().enumerate() {
            account.caps = (0..caps.len()).filter(|cap| (n + cap) % 2 == 0).collect();
        }
        for (id, (n, block, priority, account, hurry, steps)) in wanted.iter().enumerate() {
            let deadline = hurry.then(|| at(world.now + block));
            let one = RecallItem { priority: *priority, deadline, ..item(id as u64, *block, world.now) };
            world.want(*n, of(*account, one));
            (0..*steps).for_each(|_| { world.step(); });
        }
        world.run(5000);
        prop_assert!(world.drained(), "left over: {:?}", world.plan());
        prop_assert_eq!(world.read.len(), wanted.len(), "every file read exactly once");
    }
}

#[test]
fn a_backlog_gets_as_many_drives_as_the_limits_of_those_whose_files_wait_leave_of_use() {
    let mut world = World::new(4);
    (0..8).for_each(|n| drop(world.tape(n, VolumeState::Filling, Some("primary"))));
    (0..4).for_each(|n| world.load(n as usize, n, false));
    world.limits.bytes_per_writer = 1 << 30;
    world.backlog("primary", 1000, 1000 << 30);
    let mut writers = |limited, running: usize| {
        let pool = PoolName::from("primary");
        world.writes.get_mut(&pool).unwrap().limited = limited;
        for n in 0..4 {
            world.load(n, n as u32, false);
            if n < running {
                let want = Some(Want::Write(pool.clone()));
                let busy = Busy { want, ..Busy::new(volume(n as u32), Work::Migrate) };
                world.drives[n].state = DriveState::Busy(busy);
            }
        }
        let plan = world.plan();
        plan.actions.iter().filter(|action| matches!(action.job, Job::Migrate { .. })).count()
    };
    assert_eq!(writers(None, 0), 4);
    let limited = |drives, open| Some(Limited { drives, open });
    assert_eq!(writers(limited(2, 1000 << 30), 0), 2, "no more at once");
    assert_eq!(writers(limited(1, 1), 0), 1, "however little it is");
    assert_eq!(writers(limited(2, 0), 1), 0, "another would find nothing");
    assert_eq!(writers(limited(2, 0), 0), 0, "also when the one that holds it only writes its index");
    assert_eq!(writers(limited(3, 1 << 30), 1), 1, "there is enough for one more");
    assert_eq!(writers(limited(3, 1 << 20), 1), 0, "so little is written by the one that is there");
}
