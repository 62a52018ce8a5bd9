use super::*;
use crate::files::{Outcome, StagingTable};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

fn at(secs: i64) -> Time {
    Time::new(1_000_000 + secs, 0)
}

fn view(id: u32, free: u64) -> TargetView {
    let target = Target {
        id: TargetId(id),
        uuid: String::new(),
        node: NodeId(1),
        data: Vec::new(),
        domain: String::new(),
        draining: false,
        lost: false,
        capacity: 1000 * MIB,
        free: free * MIB,
        seen: at(0),
    };
    TargetView { target, state: TargetState::Up, pools: Vec::new() }
}

fn shares<const N: usize>(each: [(u32, u64); N]) -> Shares {
    each.into_iter().map(|(id, mib)| (TargetId(id), mib * MIB)).collect()
}

fn recall(table: &StagingTable, ino: u64, mib: u64) -> Arc<Staging> {
    table.join(Ino(ino), Version(1), mib * MIB).0
}

#[test]
fn what_others_still_bring_is_not_free() {
    let (short, table) = (Short::default(), StagingTable::default());
    let views = [view(1, 100), view(2, 100)];
    let (first, second) = (recall(&table, 1, 100), recall(&table, 2, 100));
    let without = |needs: Shares| short.without_room(&second, &short.room(&views), &needs);
    let promise = |one: &Arc<Staging>, mib| short.promise(one, &views, shares([(1, mib)]));
    assert!(without(shares([(1, 100), (2, 60)])).is_empty());
    assert!(promise(&first, 100).is_empty());
    assert_eq!(promise(&second, 60), shares([(1, 60)]), "and it is promised nothing");
    assert_eq!(without(shares([(1, 60), (2, 60)])), shares([(1, 60)]));
    assert!(
        short.without_room(&first, &short.room(&views), &shares([(1, 60)])).is_empty(),
        "that is its own"
    );
    drop(first.arrive(0, 50 * MIB));
    assert_eq!(without(shares([(1, 1)])), shares([(1, 1)]), "that is used by now, though not told yet");
    let own = |mib| short.without_room(&first, &short.room(&views), &shares([(1, mib)]));
    assert!(own(50).is_empty() && own(51) == shares([(1, 51)]), "what it has brought is used, too");
    short.reported(TargetId(2));
    assert_eq!(without(shares([(1, 1)])), shares([(1, 1)]), "another one has told");
    short.reported(TargetId(1));
    assert!(own(100).is_empty(), "what is free is so without what has come");
    assert_eq!(without(shares([(1, 51)])), shares([(1, 51)]));
    assert!(without(shares([(1, 50)])).is_empty());
    assert_eq!(short.needed_by(&first), shares([(1, 50)]), "what it has brought has its room");
    drop(first.arrive(50 * MIB, 100 * MIB));
    drop(table.end(&first, Outcome::Whole));
    assert_eq!(without(shares([(1, 51)])), shares([(1, 51)]), "it is over, and its room is taken");
    short.reported(TargetId(1));
    assert!(without(shares([(1, 100)])).is_empty());
    assert!(promise(&second, 60).is_empty());
    drop(table.end(&second, Outcome::Dropped));
    let (second, third) = (recall(&table, 2, 100), recall(&table, 3, 100));
    let without = |needs: Shares| short.without_room(&second, &short.room(&views), &needs);
    assert_eq!(without(shares([(1, 50)])), shares([(1, 50)]));
    short.wanted(&views, at(0));
    short.wanted(&views, at(15));
    assert!(without(shares([(1, 100)])).is_empty(), "one that never reports keeps it no longer");
    // Of two that wait one is called: the room is his.
    let lacks = |one| short.lacks(one, shares([(1, 60)]), &short.room(&[]), false, (at(15), PATIENCE));
    assert_eq!((lacks(&second), lacks(&third)), (Hope::Wait, Hope::Wait));
    short.call(&third, &mut short.room(&views), at(15));
    assert_eq!(without(shares([(1, 60)])), shares([(1, 60)]));
    assert!(short.without_room(&third, &short.room(&views), &shares([(1, 60)])).is_empty());
    assert_eq!(short.wanted(&views, at(16)), shares([(1, 20)]), "for the other one");
    short.wanted(&views, at(75));
    assert!(without(shares([(1, 60)])).is_empty(), "his drive does not come");
    assert_eq!(without(shares([(3, 1)])), shares([(3, 1)]), "nobody knows it");
}

#[test]
fn what_recalls_lack_is_released_once() {
    let (short, table) = (Short::default(), StagingTable::default());
    let (first, second) = (recall(&table, 1, 30), recall(&table, 2, 10));
    let views = [view(1, 10), view(2, 10)];
    assert!(short.wanted(&views, at(0)).is_empty());
    let lacks = |one, needs, secs| short.lacks(one, needs, &short.room(&[]), false, (at(secs), PATIENCE));
    assert_eq!(lacks(&first, shares([(1, 30)]), 0), Hope::Wait);
    assert_eq!(lacks(&second, shares([(1, 5), (2, 5)]), 0), Hope::Wait);
    assert_eq!(short.lacked(&first), Some(shares([(1, 30)])));
    assert_eq!(short.wanted(&views, at(0)), shares([(1, 25)]));
    short.released(&shares([(1, 20), (3, 4)]), at(0));
    assert_eq!(short.wanted(&views, at(1)), shares([(1, 5)]), "the rest of it");
    assert_eq!(short.wanted(&views, at(15)), shares([(1, 25)]), "it should have been reported by then");
    assert!(!short.has_given_up(&second));
    short.gives_up(&second);
    assert!(short.has_given_up(&second) && !short.has_given_up(&first));
    assert_eq!(short.wanted(&views, at(15)), shares([(1, 20)]));
    short.tried_again(&first);
    assert!(short.wanted(&views, at(15)).is_empty() && short.lacked(&first).is_none());
    assert_eq!(lacks(&first, shares([(1, 30)]), 16), Hope::Wait);
    let third = recall(&table, 3, 8);
    assert!(short.promise(&third, &views, shares([(1, 8)])).is_empty());
    assert_eq!(short.wanted(&views, at(16)), shares([(1, 28)]), "what another one brings is not free");
    drop(table.end(&first, Outcome::Dropped));
    assert!(short.wanted(&views, at(16)).is_empty(), "it is over");
    assert_eq!(lacks(&second, shares([(1, 30)]), 17), Hope::Wait);
    assert!(short.wanted(&views, at(77)).is_empty(), "nobody asks any more");
}

#[test]
fn of_two_that_have_begun_and_wait_the_first_one_goes_on() {
    let (short, table) = (Short::default(), StagingTable::default());
    let (first, second) = (recall(&table, 1, 60), recall(&table, 2, 60));
    let full = [view(1, 200)];
    for one in [&first, &second] {
        assert!(short.promise(one, &full, shares([(1, 60)])).is_empty());
        assert_eq!(
            short.lacks(one, shares([(1, 60)]), &short.room(&[]), false, (at(0), PATIENCE)),
            Hope::Wait
        );
    }
    let has_room = |one| short.without_room(one, &short.room(&[view(1, 100)]), &shares([(1, 60)])).is_empty();
    assert!(has_room(&first) && !has_room(&second));
    short.tried_again(&first);
    assert!(!has_room(&second));
}

#[test]
fn a_recall_waits_as_long_as_something_can_make_room() {
    let (short, table) = (Short::default(), StagingTable::default());
    let one = recall(&table, 1, 30);
    let lacks =
        |secs, comes| short.lacks(&one, shares([(1, 30)]), &short.room(&[]), comes, (at(secs), PATIENCE));
    let round = |secs, unmet: &Shares| short.round_over(&shares([(1, 30)]), unmet, at(secs));
    assert_eq!(lacks(0, false), Hope::Wait);
    round(4, &shares([(1, 1)]));
    assert_eq!(lacks(5, true), Hope::Wait, "copies are being written");
    short.released(&shares([(1, 3)]), at(5));
    assert_eq!(lacks(6, false), Hope::Wait, "what was released is not reported yet");
    assert_eq!(lacks(20, false), Hope::None, "it is by now");
    assert!(short.wanted(&[view(1, 0)], at(18)).is_empty(), "all was looked at a moment ago");
    assert_eq!(short.wanted(&[view(1, 0)], at(20)), shares([(1, 30)]));
    round(20, &Shares::new());
    assert_eq!(lacks(21, false), Hope::Wait);
    let third = recall(&table, 3, 30);
    let new = |secs| short.lacks(&third, shares([(1, 30)]), &short.room(&[]), false, (at(secs), PATIENCE));
    round(22, &shares([(1, 1)]));
    assert_eq!(new(26), Hope::None, "it would find nothing either");
    let other = recall(&table, 2, 1);
    assert!(short.promise(&other, &[view(1, 1)], shares([(1, 1)])).is_empty());
    assert_eq!(new(27), Hope::Wait, "another one ends before long");
    // Recalls that wait themselves make no room.
    assert_eq!(
        short.lacks(&other, shares([(1, 1)]), &short.room(&[]), false, (at(27), PATIENCE)),
        Hope::Wait
    );
    assert_eq!(new(28), Hope::None);
}

#[test]
fn a_recall_waits_for_room_no_longer_than_it_is_to_after_more_of_it_came() {
    let (short, table) = (Short::default(), StagingTable::default());
    let (new, begun) = (recall(&table, 1, 30), recall(&table, 2, 30));
    assert!(short.promise(&begun, &[view(1, 30)], shares([(1, 30)])).is_empty());
    let lacks = |one, secs| short.lacks(one, shares([(1, 30)]), &short.room(&[]), true, (at(secs), PATIENCE));
    for secs in (0..120).step_by(2) {
        assert_eq!((lacks(&new, secs), lacks(&begun, secs)), (Hope::Wait, Hope::Wait));
    }
    drop(begun.arrive(0, MIB));
    assert_eq!((lacks(&new, 120), lacks(&begun, 120)), (Hope::None, Hope::Wait), "it comes on");
    // That its drive comes late is no waiting for room, and the rest of it is not forgotten.
    short.wanted(&[view(1, 0)], at(400));
    assert!(short.lacked(&begun).is_some());
    for secs in (1..24).map(|n| 120 + n * 1000) {
        assert_eq!(lacks(&begun, secs), Hope::Wait, "{secs}");
    }
    assert_eq!(lacks(&begun, 24_120), Hope::None);
}

#[test]
fn a_recall_is_not_read_again_and_again_where_targets_tell_of_room_that_is_not_there() {
    let (short, table) = (Short::default(), StagingTable::default());
    let begun = recall(&table, 1, 30);
    assert!(short.promise(&begun, &[view(1, 30)], shares([(1, 30)])).is_empty());
    let mut reads = 1;
    while short.lacks(&begun, shares([(1, 30)]), &short.room(&[]), true, (at(i64::from(reads)), PATIENCE))
        == Hope::Wait
    {
        drop(begun.arrive(0, u64::from(reads)));
        short.tried_again(&begun);
        reads += 1;
    }
    assert_eq!(reads, 1 + AGAIN_MOST + 1);
}

#[test]
fn holes_that_have_come_leave_no_room_for_what_follows() {
    let (short, table) = (Short::default(), StagingTable::default());
    let sparse = recall(&table, 1, 100);
    sparse.set_data_bytes(10 * MIB);
    assert!(short.promise(&sparse, &[view(1, 30)], shares([(1, 10)])).is_empty());
    drop(sparse.arrive(0, 90 * MIB));
    assert_eq!(short.needed_by(&sparse), shares([(1, 10)]));
    drop(sparse.arrive(90 * MIB, 95 * MIB));
    assert_eq!(short.needed_by(&sparse), shares([(1, 5)]));
}
