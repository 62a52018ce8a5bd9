//! Whose files are written next: shares, limits, priorities, and that nobody starves.

use proptest::prelude::*;
use sched::*;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::Time;

const GIB: u64 = 1 << 30;
const STARVE: Duration = Duration::from_secs(1800);

fn at(s: i64) -> Time {
    Time::new(1_000_000 + s, 0)
}

/// Account n belongs to owner n.
fn accounts(weights: &[f64], caps: &[(u32, &[u32])]) -> Accounts {
    let account = |(n, weight): (usize, &f64)| {
        let of = |(cap, (_, members)): (usize, &(u32, &[u32]))| members.contains(&(n as u32)).then_some(cap);
        Account { owner: n as u32, weight: *weight, caps: caps.iter().enumerate().filter_map(of).collect() }
    };
    Accounts {
        list: weights.iter().enumerate().map(account).collect(),
        caps: caps.iter().map(|(drives, _)| Cap { name: String::new(), drives: *drives }).collect(),
        ..Accounts::default()
    }
}

fn file(what: u64, account: u32, bytes: u64) -> Waiting<u64> {
    Waiting { what, bytes, account: AccountId(account), priority: 5, since: at(0) }
}

#[test]
fn without_accounts_files_come_in_their_order_and_go_back_to_where_they_were() {
    let (none, mut queue) = (Accounts::default(), FairQueue::default());
    (0..5).for_each(|n| queue.push(&none, file(n, 0, n)));
    let pop = |queue: &mut FairQueue<u64>| queue.pop(&none, at(0), STARVE, |_| true);
    let taken = [pop(&mut queue).unwrap(), pop(&mut queue).unwrap()];
    assert_eq!((queue.len(), queue.bytes()), (3, 9));
    taken.into_iter().rev().for_each(|item| queue.put_back(&none, item));
    let order: Vec<u64> = std::iter::from_fn(|| Some(pop(&mut queue)?.what)).collect();
    assert_eq!((order, queue.is_empty(), queue.bytes()), (vec![0, 1, 2, 3, 4], true, 0));
    assert_eq!(queue.limited(&none, &Holds::default(), 1), None);
}

#[test]
fn files_of_one_owner_are_written_together_for_a_stint() {
    let (two, mut queue) = (accounts(&[1.0, 1.0], &[]), FairQueue::default());
    (0..40).for_each(|n| queue.push(&two, file(n, (n % 2) as u32, GIB)));
    let order: Vec<u32> =
        std::iter::from_fn(|| Some(queue.pop(&two, at(0), STARVE, |_| true)?.account.0)).collect();
    let changes = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((4..=10).contains(&changes), "{order:?}");
}

#[test]
fn the_more_urgent_come_first_until_others_starve_and_then_they_share() {
    let (two, mut queue) = (accounts(&[1.0, 1.0], &[]), FairQueue::default());
    (0..1000).for_each(|n| queue.push(&two, file(n, 0, GIB)));
    let mut low_at = Vec::new();
    for s in 0..2000 {
        queue.push(&two, Waiting { priority: 8, since: at(s), ..file(5000 + s as u64, 1, GIB) });
        if queue.pop(&two, at(s), STARVE, |_| true).unwrap().account.0 == 0 {
            low_at.push(s);
        }
    }
    let first = *low_at.first().unwrap();
    assert!((1800..1800 + 10).contains(&first), "{first}");
    // What was passed over is not made up for: from then on it is as if both had come just now.
    assert!((90..=110).contains(&low_at.len()), "{}", low_at.len());
}

#[test]
fn what_is_handed_over_with_the_first_priority_goes_before_what_starves() {
    let (two, mut queue) = (accounts(&[1.0, 1.0], &[(1, &[0])]), FairQueue::default());
    (0..6).for_each(|n| queue.push(&two, file(n, (n % 2) as u32, GIB)));
    let nobody = AccountId(u32::MAX);
    assert!(!queue.has(nobody));
    queue.hand_over(&two, |n| *n == 5, (nobody, FIRST));
    queue.hand_over(&two, |n| [0, 2, 4].contains(n), (nobody, FIRST));
    assert!(queue.has(nobody) && !queue.has(AccountId(0)));
    assert_eq!((queue.len(), queue.bytes()), (6, 6 * GIB));
    let late = at(10 * 1800);
    let order: Vec<u64> =
        std::iter::from_fn(|| Some(queue.pop(&two, late, STARVE, |_| true)?.what)).collect();
    assert_eq!((order, queue.len(), queue.bytes()), (vec![5, 0, 2, 4, 1, 3], 0, 0));
    (0..4).for_each(|n| queue.push(&two, file(n, (n % 2) as u32, GIB)));
    let all: Vec<u64> = queue.take_all().into_iter().map(|item| item.what).collect();
    assert_eq!((all, queue.len(), queue.bytes()), (vec![0, 2, 1, 3], 0, 0));
}

#[test]
fn whoever_comes_back_has_saved_nothing_up_and_got_nothing_twice() {
    let (two, mut queue) = (accounts(&[1.0, 1.0], &[]), FairQueue::default());
    (0..300).for_each(|n| queue.push(&two, file(n, 0, GIB)));
    let pop = |queue: &mut FairQueue<u64>| queue.pop(&two, at(0), STARVE, |_| true).unwrap().account.0;
    (0..100).for_each(|_| assert_eq!(pop(&mut queue), 0));
    (300..500).for_each(|n| queue.push(&two, file(n, 1, GIB)));
    let of_new = (0..100).filter(|_| pop(&mut queue) == 1).count();
    assert!((45..=55).contains(&of_new), "{of_new}");
    // Who had some before and comes back has no claim either.
    let mut queue = FairQueue::default();
    (0..400).for_each(|n| queue.push(&two, file(n, 0, GIB)));
    queue.push(&two, file(500, 1, GIB));
    assert_eq!((0..101).filter(|_| pop(&mut queue) == 1).count(), 1);
    (501..700).for_each(|n| queue.push(&two, file(n, 1, GIB)));
    let of_back = (0..100).filter(|_| pop(&mut queue) == 1).count();
    assert!((45..=55).contains(&of_back), "{of_back}");
    // Nor has whose file was taken and comes back unwritten.
    let mut queue = FairQueue::default();
    queue.push(&two, file(500, 1, 100 * GIB));
    let large = queue.pop(&two, at(0), STARVE, |_| true).unwrap();
    (0..400).for_each(|n| queue.push(&two, file(n, 0, GIB)));
    (501..700).for_each(|n| queue.push(&two, file(n, 1, GIB)));
    assert!((0..200).any(|_| pop(&mut queue) == 1));
    queue.put_back(&two, large);
    assert_eq!(queue.pop(&two, at(0), STARVE, |_| true).unwrap().what, 500);
    let of_other = (0..50).filter(|_| pop(&mut queue) == 0).count();
    assert!(of_other >= 45, "{of_other}");
    // One large file at a time is no way to get more than half either.
    let mut queue = FairQueue::default();
    (0..400).for_each(|n| queue.push(&two, file(n, 0, GIB)));
    let mut large = 0;
    queue.push(&two, file(1000, 1, 20 * GIB));
    let mut small = 0;
    while small < 200 {
        match pop(&mut queue) {
            0 => small += 1,
            _ => {
                large += 1;
                queue.push(&two, file(1000 + large, 1, 20 * GIB));
            }
        }
    }
    assert!((8..=11).contains(&large), "{large}");
}

#[test]
fn a_cap_leaves_drives_to_others_and_says_how_many_are_of_use() {
    // Account 1 may have one drive.
    let (two, mut queue, mut holds) =
        (accounts(&[1.0, 1.0], &[(1, &[1])]), FairQueue::default(), Holds::default());
    (0..10).for_each(|n| queue.push(&two, file(n, 1, GIB)));
    let limited = |queue: &FairQueue<u64>, holds: &Holds| queue.limited(&two, holds, GIB);
    assert_eq!(limited(&queue, &holds), Some(Limited { drives: 1, open: 10 * GIB }));
    let pop = |queue: &mut FairQueue<u64>, holds: &mut Holds, drive| {
        let item = queue.pop(&two, at(0), STARVE, |account| holds.allows(&two, account, Some(drive)))?;
        holds.take(&two, item.account, drive);
        Some(item)
    };
    let first = pop(&mut queue, &mut holds, 7).unwrap();
    assert!(pop(&mut queue, &mut holds, 8).is_none() && pop(&mut queue, &mut holds, 7).is_some());
    assert_eq!(limited(&queue, &holds), Some(Limited { drives: 1, open: 0 }));
    queue.push(&two, file(20, 0, 2 * GIB));
    assert_eq!(limited(&queue, &holds), Some(Limited { drives: 3, open: 2 * GIB }));
    assert_eq!(pop(&mut queue, &mut holds, 8).unwrap().what, 20);
    holds.settle(&two, first.account, 7);
    assert_eq!(holds.drives(0), 1, "one more is in hand");
    holds.settle(&two, first.account, 7);
    assert!(pop(&mut queue, &mut holds, 8).is_some(), "it is another's turn now");
}

#[test]
fn whoever_was_held_back_by_a_limit_keeps_his_drive_and_does_not_keep_others_waiting_afterwards() {
    // Account 1 may have one drive; accounts 0 and 2 as many as there are.
    let (three, mut queue, mut holds) =
        (accounts(&[1.0, 1.0, 1.0], &[(1, &[1])]), FairQueue::default(), Holds::default());
    (0..2000).for_each(|n| queue.push(&three, file(n, (n % 2) as u32, GIB)));
    let mut pop = |queue: &mut FairQueue<u64>, drive| {
        let item = queue.pop(&three, at(0), STARVE, |account| holds.allows(&three, account, Some(drive)));
        let account = item.unwrap().account;
        holds.take(&three, account, drive);
        account.0
    };
    // Four drives: one of them is less than his part.
    let of_one = (0..400).filter(|n| pop(&mut queue, n % 4) == 1).count();
    assert!((95..=105).contains(&of_one), "{of_one}");
    // Then there is one drive only, the one that writes for him, and somebody else comes.
    (0..100).for_each(|n| queue.push(&three, file(5000 + n, 2, GIB)));
    let at_once = (0..30).filter(|_| pop(&mut queue, 0) == 2).count();
    assert!(at_once >= 5, "{at_once}");
}

/// What drives do at random.
#[derive(Clone, Debug)]
enum Step {
    Push(u32, u64),
    Pop(u64),
    PutBack(u64),
    Done(u64),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let drive = 0..4u64;
    prop_oneof![
        4 => (0..5u32, 0..8 * GIB).prop_map(|(account, bytes)| Step::Push(account, bytes)),
        4 => drive.clone().prop_map(Step::Pop),
        1 => drive.clone().prop_map(Step::PutBack),
        2 => drive.prop_map(Step::Done),
        1 => (0..2000u16).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn bytes_are_shared_by_weight(
        weights in prop::collection::vec(0.25..4.0f64, 2..6),
        sizes in prop::collection::vec(0..GIB, 1..50),
        pops in 100..600usize,
    ) {
        let (accounts, mut queue) = (accounts(&weights, &[]), FairQueue::default());
        let mut had = vec![0.0; weights.len()];
        let mut sizes = sizes.iter().cycle();
        let mut next = 0;
        let mut fill = |queue: &mut FairQueue<u64>, n: usize| {
            next += 1;
            queue.push(&accounts, file(next, n as u32, (*sizes.next().unwrap()).max(1 << 20)));
        };
        (0..weights.len()).for_each(|n| (0..2).for_each(|_| fill(&mut queue, n)));
        for _ in 0..pops {
            let item = queue.pop(&accounts, at(0), STARVE, |_| true).unwrap();
            let n = item.account.0 as usize;
            had[n] += item.bytes as f64 / weights[n];
            fill(&mut queue, n);
        }
        let most = had.iter().copied().fold(0.0, f64::max);
        let least = had.iter().copied().fold(f64::MAX, f64::min);
        prop_assert!(most - least <= STINT as f64 + 4.0 * GIB as f64 + 1.0, "{had:?}");
    }

    #[test]
    fn each_file_is_taken_once_in_its_order_within_the_caps_and_none_for_ever_kept_out(
        steps in prop::collection::vec(step(), 1..300),
        caps in (1..3u32, 1..3u32),
    ) {
        let accounts = accounts(&[1.0, 2.0, 0.5, 1.0, 1.0], &[(caps.0, &[1, 2]), (caps.1, &[2, 3])]);
        let (mut queue, mut holds, mut now, mut next) = (FairQueue::default(), Holds::default(), 0, 0);
        let mut waits: BTreeMap<AccountId, VecDeque<u64>> = BTreeMap::new();
        let mut in_hand: BTreeMap<u64, Vec<Waiting<u64>>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Push(account, bytes) => {
                    next += 1;
                    let priority = 3 + account as u8 % 2;
                    queue.push(&accounts, Waiting { priority, since: at(now), ..file(next, account, bytes) });
                    waits.entry(AccountId(account)).or_default().push_back(next);
                }
                Step::Pop(drive) => {
                    let may = |account| holds.allows(&accounts, account, Some(drive));
                    let some = waits.iter().any(|(account, files)| !files.is_empty() && may(*account));
                    let item = queue.pop(&accounts, at(now), STARVE, may);
                    prop_assert_eq!(item.is_some(), some, "what may be taken is found");
                    let Some(item) = item else { continue };
                    prop_assert_eq!(waits.get_mut(&item.account).unwrap().pop_front(), Some(item.what));
                    holds.take(&accounts, item.account, drive);
                    in_hand.entry(drive).or_default().push(item);
                }
                Step::PutBack(drive) => {
                    for item in in_hand.remove(&drive).unwrap_or_default().into_iter().rev() {
                        holds.settle(&accounts, item.account, drive);
                        queue.put_back(&accounts, item);
                        waits.get_mut(&item.account).unwrap().push_front(item.what);
                    }
                }
                Step::Done(drive) => {
                    if let Some(item) = in_hand.get_mut(&drive).and_then(Vec::pop) {
                        holds.settle(&accounts, item.account, drive);
                    }
                }
                Step::Wait(s) => now += i64::from(s),
            }
            for (cap, most) in accounts.caps.iter().enumerate() {
                prop_assert!(holds.drives(cap) <= most.drives as usize);
            }
            let files: usize = waits.values().map(VecDeque::len).sum();
            prop_assert_eq!(queue.len(), files);
            let limited = queue.limited(&accounts, &holds, GIB);
            let capped = waits.iter().any(|(id, files)| id.0 % 4 != 0 && !files.is_empty());
            prop_assert_eq!(limited.is_some(), capped);
            if let Some(limited) = limited {
                let open = |(id, files): (&AccountId, &VecDeque<u64>)| {
                    !files.is_empty() && holds.allows(&accounts, *id, None)
                };
                prop_assert_eq!(limited.open > 0, waits.iter().any(open));
                prop_assert!(limited.drives > 0);
            }
        }
        // As soon as nobody holds anything all is open again.
        let nobody = Holds::default();
        if let Some(limited) = queue.limited(&accounts, &nobody, GIB) {
            prop_assert!(limited.open >= queue.bytes());
        }
    }

    #[test]
    fn nobody_starves_whatever_the_others_ask_for(
        weights in prop::collection::vec(0.25..4.0f64, 3),
        priorities in prop::collection::vec(1..10u8, 3),
        sizes in prop::collection::vec(1..GIB, 1..30),
    ) {
        let (accounts, mut queue) = (accounts(&weights, &[]), FairQueue::default());
        queue.push(&accounts, Waiting { priority: priorities[0], ..file(0, 0, sizes[0]) });
        let mut sizes = sizes.iter().cycle();
        let mut written = 0.0;
        for n in 1..100_000u64 {
            for account in 1..3 {
                let since = at(1800 + n as i64);
                let bytes = *sizes.next().unwrap();
                let priority = priorities[account as usize];
                queue.push(&accounts, Waiting { priority, since, ..file(n, account, bytes) });
            }
            let item = queue.pop(&accounts, at(1800 + n as i64), STARVE, |_| true).unwrap();
            if item.account.0 == 0 {
                // Two stints of others, and what they had begun.
                let bound = 2.0 * 4.0 * (STINT as f64 + 4.0 * GIB as f64);
                prop_assert!(written <= bound, "{written}");
                return Ok(());
            }
            written += item.bytes as f64;
        }
        prop_assert!(false, "it was never taken");
    }
}
