use super::*;

const FIRST: u64 = 7;
const SECOND: u64 = 3;

/// Why a node gives no answer.
#[derive(Debug, PartialEq, Eq)]
enum Trouble {
    Refused(FsError),
    Lost,
}

type Tried<T> = Result<T, Trouble>;

impl Refusal for Trouble {
    fn refused(&self) -> Option<FsError> {
        if let Self::Refused(fs) = self { Some(*fs) } else { None }
    }

    fn of(fs: FsError) -> Self {
        Self::Refused(fs)
    }
}

/// Of a file that is written through the node all the time.
fn steady() -> (Spares, Arc<Room>) {
    let spares = Spares::default();
    (0..STEADY).for_each(|_| spares.served());
    let brought = spares.bring(Ino(5), FIRST, &mut |_| -> Tried<Reply> { panic!("nothing was kept") });
    assert_eq!(brought, Ok(Came::All));
    (spares, Arc::default())
}

fn enter<'s>(spares: &'s Spares, room: &Arc<Room>, range: Range<u64>) -> Option<Entered<'s>> {
    match spares.enter(&range, room) {
        Entry::Entered(entered) => Some(entered),
        Entry::Plain | Entry::Full => None,
    }
}

fn spare(epoch: u64, number: u64, settled: u64) -> Spare {
    Spare { epoch, number, settled }
}

/// A byte was written at this offset and answered in the first session.
fn wrote(spares: &Spares, room: &Arc<Room>, offset: u64, answer: Spare) {
    let mut entered = enter(spares, room, offset..offset + 1).unwrap();
    assert!(entered.answered(FIRST, answer, offset, b"x"));
}

/// Offsets of what is kept.
fn kept(spares: &Spares) -> Vec<u64> {
    spares.state.lock().kept.values().map(|piece| piece.offset).collect()
}

/// What is said to the node of a session: offsets, or the epoch of which there is no more.
fn returned(
    spares: &Spares,
    begun: u64,
    mut answer: impl FnMut(u64) -> Tried<Reply>,
) -> (Vec<Result<u64, u64>>, Tried<Came>) {
    let mut said = Vec::new();
    let brought = spares.bring(Ino(5), begun, &mut |call| match call {
        FileCall::ReturnSpared { offset, .. } => {
            said.push(Ok(offset));
            answer(offset)
        }
        FileCall::SparedReturned { epoch, .. } => {
            said.push(Err(epoch));
            answer(u64::MAX).map(|_| Reply::Done)
        }
        other => panic!("{other:?}"),
    });
    (said, brought)
}

#[test]
fn what_was_answered_is_returned_in_the_order_of_the_node_and_what_is_under_way_is_not() {
    let (spares, room) = steady();
    let spares = &spares;
    let mut writes = [10, 20, 30].map(|at| enter(spares, &room, at..at + 1).unwrap());
    assert!(writes[1].answered(FIRST, spare(4, 1, 0), 20, b"x"));
    assert!(writes[0].answered(FIRST, spare(4, 2, 0), 10, b"x"));
    let (said, brought) = returned(spares, SECOND, |_| Ok(Reply::Count(1)));
    assert!(brought.is_ok());
    assert_eq!(said, [Ok(20), Ok(10), Err(4)]);
    assert!(spares.is_whole_in(SECOND) && !spares.is_late(SECOND));
    // Its answer is from before that: it is to be made again, and that is kept.
    assert!(!writes[2].answered(FIRST, spare(4, 3, 0), 30, b"x"));
    assert_eq!(kept(spares), [0; 0]);
    assert!(writes[2].answered(SECOND, spare(1, 1, 0), 30, b"xyz"));
    assert_eq!((kept(spares), spares.state.lock().bytes), (vec![30], 3));
    drop(writes);
    assert_eq!(room.0.load(Ordering::Acquire), 1);
}

#[test]
fn what_is_at_the_targets_is_not_kept_in_whatever_order_answers_come() {
    let (spares, room) = steady();
    let spares = &spares;
    (0..4).for_each(|n| wrote(spares, &room, n, spare(4, n, 0)));
    let mut late = enter(spares, &room, 40..41).unwrap();
    let mut older = enter(spares, &room, 41..42).unwrap();
    wrote(spares, &room, 5, spare(4, 5, 2));
    assert_eq!(kept(spares), [2, 3, 5]);
    wrote(spares, &room, 6, spare(4, 6, 5));
    assert!(late.answered(FIRST, spare(4, 4, 1), 40, b"x"));
    assert_eq!(kept(spares), [5, 6], "settled goes only forward");
    wrote(spares, &room, 7, spare(9, 0, 0));
    assert!(older.answered(FIRST, spare(4, 8, 0), 41, b"x"));
    assert_eq!((kept(spares), spares.state.lock().bytes), (vec![7], 1), "another epoch");
}

#[test]
fn who_is_refused_keeps_nothing_of_before_and_keeps_again_later() {
    let (spares, room) = steady();
    let spares = &spares;
    wrote(spares, &room, 1, spare(4, 1, 0));
    let refused = enter(spares, &room, 2..3).unwrap();
    wrote(spares, &room, 3, spare(5, 0, 0));
    refused.refused();
    drop(refused);
    assert_eq!(kept(spares), [3], "it may be of after that");
    assert!(enter(spares, &room, 4..5).is_none());
    let later = Instant::now() + QUIET;
    assert!(matches!(spares.state.lock().enter(later, &(4..5), &room), Entry::Entered(_)));
}

#[test]
fn the_node_hears_of_nothing_less_than_what_may_be_kept() {
    let (spares, room) = steady();
    let spares = &spares;
    let first = enter(spares, &room, 1..2).unwrap();
    assert_eq!(first.keeps(), None);
    wrote(spares, &room, 2, spare(4, 6, 0));
    let second = enter(spares, &room, 3..4).unwrap();
    assert_eq!(
        (first.keeps(), second.keeps()),
        (Some((4, 0)), Some((4, 0))),
        "the first may have any number"
    );
    drop(first);
    assert_eq!(second.keeps(), Some((4, 6)));
    wrote(spares, &room, 4, spare(4, 8, 8));
    assert_eq!(second.keeps(), Some((4, 8)));
    let third = enter(spares, &room, 5..6).unwrap();
    spares.settled_before(spares.moment());
    assert_eq!((second.keeps(), third.keeps()), (Some((4, 8)), Some((4, 8))));
    drop(second);
    assert_eq!(third.keeps(), Some((4, 9)), "it gets no lower number itself");
}

#[test]
fn what_is_kept_has_an_end() {
    let (spares, room) = steady();
    let spares = &spares;
    let full = |len| matches!(spares.enter(&(0..len), &room), Entry::Full);
    let big = enter(spares, &room, 0..MOST - 1).unwrap();
    assert!(full(2) && !full(1));
    drop(big);
    (0..PIECES as u64).for_each(|n| wrote(spares, &room, n, spare(4, n, 0)));
    assert!(full(1));
    let moment = spares.moment();
    assert!(spares.wait().is_some_and(|upto| upto >= moment));
    spares.settled_before(moment);
    assert!(!full(1) && spares.is_empty() && spares.wait().is_none());
    let others = room.take(ROOM - 1).unwrap();
    assert!(full(2) && !full(1));
    drop(others);
    assert_eq!(room.0.load(Ordering::Acquire), 0);
}

#[test]
fn nothing_is_kept_of_a_few_writes_nor_in_the_range_of_what_goes_another_way() {
    let (spares, room) = (Spares::default(), Arc::default());
    let spares = &spares;
    for _ in 0..STEADY {
        assert!(enter(spares, &room, 0..1).is_none());
        spares.served();
    }
    let apart = spares.apart(10..20);
    for (range, may) in [(5..10, true), (5..11, false), (12..13, false), (19..30, false), (20..30, true)] {
        assert_eq!(enter(spares, &room, range.clone()).is_some(), may, "{range:?}");
    }
    drop(apart);
    let entered = enter(spares, &room, 12..13).unwrap();
    let _later = spares.apart(10..20);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| spares.wait());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished(), "it is under way");
        drop(entered);
        assert_eq!(waits.join().unwrap(), None);
    });
}

#[test]
fn what_a_node_has_taken_it_is_not_asked_to_take_again_but_the_next_node_is() {
    let (spares, room) = steady();
    let spares = &spares;
    (1..4).for_each(|n| wrote(spares, &room, n, spare(4, n, 0)));
    let breaks_at = |broken: u64| {
        move |at| match at == broken {
            true => Err(Trouble::Lost),
            false => Ok(Reply::Count(1)),
        }
    };
    let (said, brought) = returned(spares, SECOND, breaks_at(2));
    assert!(matches!(brought, Err(Trouble::Lost)) && spares.is_late(SECOND));
    assert_eq!(said, [Ok(1), Ok(2)]);
    // Here the answer is lost that all of it was taken: others may have written since.
    assert_eq!(returned(spares, SECOND, breaks_at(u64::MAX)).0, [Ok(2), Ok(3), Err(4)]);
    assert_eq!(returned(spares, SECOND, breaks_at(u64::MAX)).0, [Err(4)]);
    let (said, brought) = returned(spares, SECOND + 1, |_| Ok(Reply::Count(0)));
    assert!(brought.is_ok());
    assert_eq!(said, [Ok(1), Ok(2), Ok(3), Err(4)]);
    assert!(spares.is_empty());
    assert_eq!(room.0.load(Ordering::Acquire), 0);
}

#[test]
fn what_comes_too_late_is_lost_and_of_what_is_gone_nobody_is_told() {
    let refused = |e| {
        let (spares, room) = steady();
        wrote(&spares, &room, 1, spare(4, 1, 0));
        let (_, brought) = returned(&spares, SECOND, |_| Err(Trouble::Refused(e)));
        (brought, spares.is_empty())
    };
    assert_eq!(refused(FsError::Stale), (Ok(Came::TooLate), true));
    assert_eq!(refused(FsError::NotFound), (Ok(Came::All), true));
    assert_eq!(refused(FsError::NoSpace), (Err(Trouble::Refused(FsError::NoSpace)), false));
}

/// A connection that has broken without anybody having noticed is of a session that is over.
#[test]
fn who_asks_in_a_session_that_is_over_keeps_nobody_from_going_on_in_the_next() {
    let (spares, room) = steady();
    wrote(&spares, &room, 1, spare(4, 1, 0));
    assert_eq!(returned(&spares, SECOND, |_| Ok(Reply::Count(1))).1, Ok(Came::All));
    let mut entered = enter(&spares, &room, 2..3).unwrap();
    assert!(entered.answered(SECOND, spare(5, 1, 0), 2, b"x"));
    let mut under_way = enter(&spares, &room, 3..4).unwrap();
    assert_eq!(returned(&spares, FIRST, |_| Err(Trouble::Lost)).1, Err(Trouble::Lost));
    assert!(!spares.is_whole_in(FIRST) && !spares.is_whole_in(SECOND), "nobody takes it for done");
    let (said, brought) = returned(&spares, SECOND, |_| Ok(Reply::Count(0)));
    assert_eq!((said, brought), (vec![Ok(2), Err(5)], Ok(Came::All)));
    assert!(under_way.answered(SECOND, spare(5, 2, 0), 3, b"x"));
}
