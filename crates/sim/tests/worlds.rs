//! Worlds from fixed seeds and from some that nobody has chosen; and worlds that are made wrong on purpose.
//!
//! `cargo run --release -p sim -- --minutes 60` runs very many more; a seed that fails becomes a test here.

use parking_lot::Mutex;
use sim::dice::Dice;
use sim::many::{self, Many};
use sim::world::{self, Outcome, Sabotage, Shape};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Worlds from seeds that nobody has chosen, for each processor.
const UNCHOSEN: u64 = 16;

/// Smaller than those of the long run.
fn shape() -> Shape {
    Shape {
        drives: 2,
        cartridges: 10,
        cartridge_bytes: 8 << 20,
        disk_bytes: 6 << 20,
        acts: 30,
        act_every: Duration::from_secs(60),
        fault_every: Some(Duration::from_secs(90)),
    }
}

fn run(seed: u64, shape: Shape, sabotage: Option<Sabotage>) -> Outcome {
    world::run_shape(seed, shape, Dice::new(seed), false, sabotage).unwrap()
}

/// If it has failed: its seed, why, and what happened last.
fn told(outcome: &Outcome) -> Option<String> {
    let why = outcome.failed.as_ref()?;
    let last = outcome.lines.iter().rev().take(30).rev().cloned().collect::<Vec<_>>().join("\n");
    Some(format!("seed {}: {why}\n{last}", outcome.seed))
}

fn good(outcome: &Outcome) {
    if let Some(told) = told(outcome) {
        panic!("{told}");
    }
}

#[test]
fn fixed_seeds() {
    let mut faults = 0;
    for seed in 1..=4 {
        let outcome = run(seed, shape(), None);
        good(&outcome);
        faults += outcome.faults;
    }
    assert!(faults > 20, "only {faults} faults happened");
}

/// Other ones each time, on all processors; they take about as long as everything else here.
#[test]
fn seeds_that_nobody_has_chosen() {
    let first = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64;
    let seeds = first..first + UNCHOSEN * many::processors() as u64;
    println!("seeds from {} to {}", seeds.start, seeds.end - 1);
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let one_after_the_other = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| seeds.contains(seed))
        {
            let outcome = world::run_shape(seed, shape(), Dice::new(seed), false, None);
            let told = match outcome {
                Ok(outcome) => told(&outcome),
                Err(e) => Some(format!("seed {seed}: {e:#}")),
            };
            failed.lock().extend(told);
        }
    };
    std::thread::scope(|scope| {
        (0..many::processors()).for_each(|_| drop(scope.spawn(one_after_the_other)));
    });
    let failed = failed.into_inner();
    assert!(failed.is_empty(), "{} of these worlds failed:\n{}", failed.len(), failed.join("\n\n"));
}

#[test]
fn a_world_that_failed_is_told_with_its_seed() {
    let quiet = Shape { acts: 12, fault_every: None, ..shape() };
    let (sabotage, says) = Sabotage::ALL[0];
    let told = told(&run(3, quiet.clone(), Some(sabotage))).expect("it has failed");
    assert!(told.starts_with("seed 3: ") && told.contains(says), "{told}");
    assert_eq!(self::told(&run(3, quiet, None)), None);
}

/// A volume whose index could not be written is emptied, and its drive dies before it is scratch: it stays as it is, with nothing on it that anybody misses.
#[test]
fn seed_1796067727_an_index_need_not_list_what_was_moved_away() {
    good(&run(1_796_067_727, shape(), None));
}

/// A file is replaced by one as long, and the node killed before that is durable: the old one is there then, and its copies are right.
#[test]
fn seed_1796077355509499_what_a_crash_has_left_is_not_taken_for_what_came_behind_it() {
    good(&run(1_796_077_355_509_499, shape(), None));
}

/// Drives fail three times while a volume that was emptied gets its fresh label: it is read-only, and what its label was is known.
#[test]
fn seed_1796077509042426_a_label_that_drives_did_not_let_come_to_its_end_is_known_as_one() {
    good(&run(1_796_077_509_042_426, shape(), None));
}

/// The node is killed while a volume that was emptied gets its fresh label, and the robot is stuck afterwards: no index is tried on it, and its medium has not failed.
#[test]
fn seeds_1796077516633240_and_1796077531145580_a_label_that_was_cut_short_is_no_failure_of_the_medium() {
    for seed in [1_796_077_516_633_240, 1_796_077_531_145_580] {
        good(&run(seed, shape(), None));
    }
}

/// A volume that is behind with its index cannot be emptied for want of a drive: it is full again, and lists all that is on it once a drive can write.
#[test]
fn seeds_1796078780082935_and_others_a_volume_that_is_not_emptied_gets_its_index() {
    for seed in [1_796_078_780_082_935, 1_796_078_780_083_084, 1_796_078_787_789_321] {
        good(&run(seed, shape(), None));
    }
}

/// The disk tier is full of files that two drives bring in; the file that a third wants waits until they have come.
#[test]
fn seed_2_a_recall_waits_for_the_room_that_other_recalls_have_been_given() {
    good(&world::run(2, false).unwrap());
}

/// The node is killed while a volume that was emptied gets its fresh label: after the restart it is ours, not foreign.
#[test]
fn seed_1008_a_label_that_was_cut_short_does_not_make_a_volume_foreign() {
    good(&world::run(1008, false).unwrap());
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let [a, b, c] = [7, 7, 8].map(|seed| run(seed, shape(), None));
    assert_eq!((a.trace, a.faults, a.jobs, a.time), (b.trace, b.faults, b.jobs, b.time));
    assert_eq!(a.lines, b.lines);
    assert_ne!(a.trace.1, c.trace.1);
    assert!(a.trace.0 > 1_000, "{} lines", a.trace.0);
}

#[test]
fn worlds_side_by_side_do_not_see_each_other() {
    let seen = Mutex::new(BTreeMap::new());
    let many = Many {
        first: 40,
        worlds: 3,
        time: Duration::MAX,
        side_by_side: 3,
        keep_going: true,
        whole_trace: false,
    };
    let note = |o: &Outcome| seen.lock().extend([(o.seed, (o.trace, o.faults))]);
    let done = many::run(&many, &note).unwrap();
    assert_eq!((done.worlds, &done.failed[..]), (3, &[][..]));
    let seen = seen.into_inner();
    assert_eq!(done.faults, seen.values().map(|(_, faults)| faults).sum::<u64>());
    for (seed, was) in seen {
        let alone = world::run(seed, false).unwrap();
        assert_eq!((alone.trace, alone.faults), was, "seed {seed}");
    }
}

#[test]
fn every_checker_notices_what_is_wrong() {
    let quiet = Shape { acts: 12, fault_every: None, ..shape() };
    good(&run(3, quiet.clone(), None));
    for (sabotage, says) in Sabotage::ALL {
        let outcome = run(3, quiet.clone(), Some(sabotage));
        let said = outcome.failed.unwrap_or_default();
        assert!(said.contains(says), "{sabotage:?}: {said:?} instead of {says:?}");
    }
}

#[test]
fn what_is_on_tape_is_verified_when_it_is_due_and_what_decayed_in_months_is_made_anew() {
    let outcome = world::run_months(1).unwrap();
    good(&outcome);
    assert!(outcome.time > Duration::from_secs(280 * 86_400), "{:?}", outcome.time);
}
