//! What is known of machines after this and that.

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// A machine that can be started anew: the numbers of the starts of its connections, 0 while there is none.
struct Fake(RefCell<Vec<u64>>);

type Started = Rc<Fake>;

impl Fake {
    fn new(boot: u64) -> Self {
        Self(RefCell::new(vec![boot]))
    }

    fn set(&self, boot: u64) {
        self.0.borrow_mut().push(boot);
    }

    fn made(&self) -> Vec<u64> {
        self.0.borrow().iter().copied().filter(|boot| *boot != 0).collect()
    }
}

impl Boots for Started {
    fn boot(&self) -> Option<u64> {
        self.0.borrow().last().copied().filter(|boot| *boot != 0)
    }

    fn connections(&self) -> u64 {
        self.made().len() as u64
    }

    fn boot_of(&self, connection: u64) -> Option<u64> {
        self.made().get(connection as usize).copied()
    }

    fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(self, other)
    }
}

/// A file with columns on these machines, target n + 1 on machine n.
fn see(known: &mut Known<Started>, machines: &[Started], columns: &[Option<usize>]) -> Vec<(usize, u16)> {
    let present = (0..).zip(columns).filter_map(|(column, n)| Some(((0, column), (*n)?)));
    let ways = present.map(|(place, n)| (place, (TargetId(n as u32 + 1), machines[n].clone())));
    known.see((0..columns.len() as u16).map(|column| (0, column)).collect(), ways.collect())
}

fn new() -> (Known<Started>, [Started; 3]) {
    (Known::new(), [10, 20, 30].map(|boot| Rc::new(Fake::new(boot))))
}

#[test]
fn what_moved_is_where_it_went_and_its_old_machine_does_not_matter_any_more() {
    let (mut known, machines) = new();
    see(&mut known, &machines, &[Some(0), Some(1)]);
    assert!(see(&mut known, &machines, &[Some(0), Some(2)]).is_empty());
    machines[1].set(21);
    assert!(see(&mut known, &machines, &[Some(0), Some(2)]).is_empty());
    machines[2].set(31);
    assert_eq!(see(&mut known, &machines, &[Some(0), Some(2)]), [(0, 1)], "it is seen where it lies now");
}

#[test]
fn what_a_machine_lost_before_its_column_moved_stays_lost() {
    let (mut known, machines) = new();
    see(&mut known, &machines, &[Some(0), Some(1)]);
    machines[1].set(21);
    for _ in 0..2 {
        assert_eq!(see(&mut known, &machines, &[Some(0), Some(2)]), [(0, 1)]);
    }
}

#[test]
fn a_machine_behind_a_column_that_was_rebuilt_is_seen_too() {
    let (mut known, machines) = new();
    see(&mut known, &machines, &[Some(0), None]);
    assert!(see(&mut known, &machines, &[Some(0), Some(1)]).is_empty());
    machines[1].set(21);
    assert_eq!(see(&mut known, &machines, &[Some(0), Some(1)]), [(0, 1)]);
    assert!(see(&mut known, &machines, &[Some(0), None]).is_empty(), "out of date: it is made anew");
}

#[test]
fn where_the_node_has_written_is_told_by_column_beside_what_was_written_here() {
    let (mut known, machines) = new();
    known.served(&[10, 20]);
    assert_eq!(known.told(), [10, 20], "nothing was written here");
    // A column is moved, with all that was written there; what that node does not know says nothing.
    known.served(&[10, 40]);
    known.served(&[0, 20]);
    assert_eq!(known.told(), [10, 20]);
    // The node is started anew, and the second machine, and the file gets another column.
    known.another();
    known.served(&[10, 21, 30]);
    assert_eq!(known.told(), [10, 20, 30, 21], "whoever compares that finds it");
    machines[1].set(21);
    see(&mut known, &machines, &[Some(0), Some(1)]);
    assert_eq!(known.told(), [10, 21, 30, 20]);
    known.served(&[50]);
    assert_eq!(known.told(), [10, 21, 20, 50], "in another layout there are fewer");
    known.forget();
    assert_eq!(known.told(), [0, 0]);
}

#[test]
fn a_column_that_is_out_of_date_has_lost_nothing_and_others_keep_their_places() {
    let (mut known, machines) = new();
    see(&mut known, &machines, &[None, Some(1), Some(2)]);
    assert_eq!(known.columns(), [0, 20, 30]);
    assert!(known.heard(&[9, 20, 30]) && known.lost.is_empty());
    assert!(!known.heard(&[9, 20, 29]) && known.lost == BTreeSet::from([(0, 2)]) && !known.adrift);
}

#[test]
fn what_was_written_in_a_layout_with_more_columns_is_told() {
    let (mut known, machines) = new();
    see(&mut known, &machines, &[Some(0), Some(1)]);
    see(&mut known, &machines, &[Some(2)]);
    assert_eq!(known.left, BTreeSet::from([((0, 0), 10), ((0, 1), 20)]));
    assert!(known.heard(&[30, 10, 20]) && !known.heard(&[0, 21]));
}

#[test]
fn another_client_may_have_written_where_a_column_was_and_to_no_other_machine() {
    let (mut known, machines) = new();
    see(&mut known, &machines, &[Some(0), Some(1)]);
    see(&mut known, &machines, &[Some(0), Some(2)]);
    assert!(known.heard(&[10, 20]), "it wrote before the column moved");
    assert!(known.heard(&[0, 30, 20]), "and here after that");
    assert!(known.lost.is_empty());
    assert!(!known.heard(&[9]), "a machine that was started anew since");
    assert!(!known.heard(&[0, 0, 19]), "the same where it was before");
    let (mut known, machines) = new();
    machines[0].set(0);
    see(&mut known, &machines, &[Some(0)]);
    assert!(known.heard(&[10]), "nothing is known of a machine that is not connected");
    machines[0].set(11);
    assert_eq!(see(&mut known, &machines, &[Some(0)]), [(0, 0)], "until it is");
}

#[test]
fn a_machine_that_a_column_has_left_counts_for_others_and_once_it_is_back() {
    // All are durable; then the second machine loses power.
    let lose = |known: &mut Known<Started>, machines: &[Started], columns: &[Option<usize>]| {
        known.columns.values_mut().for_each(|machine| machine.boot = None);
        machines[1].set(21);
        assert!(see(known, machines, columns).is_empty());
    };
    let (mut known, machines) = new();
    for there in [1, 2, 1] {
        see(&mut known, &machines, &[Some(0), Some(there)]);
    }
    lose(&mut known, &machines, &[Some(0), Some(1)]);
    assert!(!known.heard(&[0, 20]), "another client wrote there after the column had come back");
    let (mut known, machines) = new();
    see(&mut known, &machines, &[Some(1), Some(1)]);
    see(&mut known, &machines, &[Some(0), Some(1)]);
    lose(&mut known, &machines, &[Some(0), Some(1)]);
    assert!(known.heard(&[20]), "what left is elsewhere");
    assert!(!known.heard(&[0, 20]), "what stayed is not");
}
/// Another client wrote to the only column at first, on the second machine, which has lost power since, before anybody here noted it. Now there are
/// two copies on others.
#[test]
fn what_was_lost_where_a_file_lay_at_first_is_not_in_any_copy_that_was_made_later() {
    let (mut known, machines) = new();
    machines[1].set(21);
    see(&mut known, &machines, &[Some(1)]);
    for forgotten in [false, true] {
        known.leave_all();
        see(&mut known, &machines, &[Some(0), Some(2)]);
        if forgotten {
            known.forget();
        }
        assert!(known.heard(&[21]), "it is there still");
        assert!(!known.heard(&[20]) && known.adrift);
        assert!(see(&mut known, &machines, &[Some(0), Some(2)]).is_empty(), "no copy is worse than another");
        known.forget();
        assert!(!known.adrift && known.heard(&[10, 30]), "what is written from now on");
    }
    machines[2].set(31);
    assert_eq!(see(&mut known, &machines, &[Some(0), Some(2)]), [(0, 1)]);
}

#[test]
fn a_machine_that_keeps_one_of_fewer_columns_is_not_one_that_was_left() {
    let (mut known, machines) = new();
    see(&mut known, &machines, &[Some(0), Some(1)]);
    known.leave_all();
    see(&mut known, &machines, &[Some(1)]);
    assert!(known.heard(&[10, 20]), "all of that was copied");
    known.forget();
    machines[1].set(21);
    see(&mut known, &machines, &[Some(1)]);
    assert!(!known.heard(&[20]), "written there by somebody else before it lost power");
}

#[test]
fn who_wrote_before_a_file_grew_tells_of_fewer_columns_and_of_machines_that_one_of_them_has_left() {
    let (mut known, machines) = new();
    see(&mut known, &machines, &[Some(0)]);
    known.widen();
    see(&mut known, &machines, &[Some(0), Some(1), Some(2)]);
    // Behind the only column that there was stands a machine that it had left for the first one, and not one of the second column.
    assert!(known.heard(&[10, 30]) && known.heard(&[10]));
    assert!(known.lost.is_empty() && !known.adrift);
    assert!(!known.heard(&[10, 29]), "it was started anew since");
}

#[test]
fn who_wrote_to_a_column_of_a_later_part_before_it_moved_has_lost_nothing() {
    let second = |known: &mut Known<Started>, machines: &[Started], there: usize| {
        let ways = [((0, 0), 0), ((1, 0), there)];
        let ways = ways.map(|(place, n)| (place, (TargetId(n as u32 + 1), machines[n].clone())));
        known.see(ways.iter().map(|(place, _)| *place).collect(), ways.into())
    };
    for widened in [false, true] {
        let (mut known, machines) = new();
        see(&mut known, &machines, &[Some(0)]);
        if widened {
            known.widen();
        }
        second(&mut known, &machines, 1);
        assert!(second(&mut known, &machines, 2).is_empty());
        assert!(known.heard(&[10, 20]) && known.heard(&[0, 20]), "written before it moved");
        assert!(known.lost.is_empty() && !known.adrift);
        assert!(!known.heard(&[0, 19]), "what was started anew before that");
    }
}

/// The write that is to be noted makes the first connection, or one after another was lost.
#[test]
fn a_machine_that_is_started_anew_within_the_first_write_over_a_new_connection_may_have_lost_it() {
    for before in [false, true] {
        let (mut known, machines) = new();
        let machines: [Started; 3] = if before { machines } else { [0; 3].map(|_| Rc::new(Fake::new(0))) };
        let mut note = || see(&mut known, &machines, &[Some(0), Some(1)]);
        machines.iter().for_each(|machine| machine.set(0));
        assert!(note().is_empty());
        machines[0].set(11);
        machines[1].set(21);
        machines[1].set(0);
        machines[1].set(22);
        assert_eq!(note(), [(0, 1)], "its first pieces were answered by the start before");
        known.forget();
        // Nothing is written meanwhile.
        [0, 23, 0, 24, 0].iter().for_each(|boot| machines[1].set(*boot));
        let mut note = || see(&mut known, &machines, &[Some(0), Some(1)]);
        assert!(note().is_empty());
        machines[1].set(25);
        assert!(note().is_empty() && note().is_empty());
        machines[1].set(26);
        assert_eq!(note(), [(0, 1)]);
    }
}

/// It was lost before the note that follows the write, and is not there yet.
#[test]
fn a_connection_that_came_and_went_within_a_write_is_known() {
    let (mut known, machines) = new();
    machines[0].set(0);
    assert!(see(&mut known, &machines, &[Some(0)]).is_empty());
    machines[0].set(11);
    machines[0].set(0);
    assert!(see(&mut known, &machines, &[Some(0)]).is_empty());
    assert_eq!(known.columns(), [11]);
    machines[0].set(12);
    assert_eq!(see(&mut known, &machines, &[Some(0)]), [(0, 0)]);
}

/// The node was started anew, and gives out another number: connections to the same target are counted anew, too.
#[test]
fn connections_of_another_channel_are_not_taken_for_those_of_the_one_before() {
    let (mut known, mut machines) = new();
    machines[0].set(0);
    assert!(see(&mut known, &machines, &[Some(0)]).is_empty());
    machines[0] = Rc::new(Fake::new(0));
    assert!(see(&mut known, &machines, &[Some(0)]).is_empty());
    [11, 0, 12].iter().for_each(|boot| machines[0].set(*boot));
    assert_eq!(see(&mut known, &machines, &[Some(0)]), [(0, 0)], "the first one of the new channel");
    // Nothing was asked over the first one.
    let (mut known, mut machines) = new();
    machines[0] = Rc::new(Fake::new(0));
    assert!(see(&mut known, &machines, &[Some(0)]).is_empty());
    machines[0] = Rc::new(Fake::new(5));
    [6, 0].iter().for_each(|boot| machines[0].set(*boot));
    assert!(see(&mut known, &machines, &[Some(0)]).is_empty());
    machines[0].set(7);
    assert!(
        see(&mut known, &machines, &[Some(0)]).is_empty(),
        "what it was connected to before does not matter"
    );
}
