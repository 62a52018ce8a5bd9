//! The order in which a tape with wraps is read.

use crate::world::*;
use proptest::prelude::*;
use sched::*;
use std::collections::BTreeSet;
use types::{Generation, VolumeState};

const BLOCK: u64 = 1 << 20;

fn lto(generation: Generation) -> Mechanics {
    Mechanics::of(generation, BLOCK)
}

/// Blocks that a medium of this generation holds.
fn blocks(generation: Generation) -> u64 {
    (Facts::of(generation).unwrap().capacity / BLOCK as f64) as u64
}

/// Items at these shares of the tape, in order of blocks.
fn items(generation: Generation, wanted: &[(f64, u64)]) -> Vec<RecallItem> {
    let end = blocks(generation) as f64;
    let at = |(id, (share, bytes)): (usize, &(f64, u64))| RecallItem {
        bytes: *bytes,
        ..item(id as u64, (share * end) as u64, 0)
    };
    let mut items: Vec<RecallItem> = wanted.iter().enumerate().map(at).collect();
    items.sort_by_key(|item| (item.block, item.id));
    items
}

/// Scattered evenly, always in the same way.
fn scattered(count: usize) -> Vec<(f64, u64)> {
    (0..count).map(|n| ((n as f64 * 0.618_033_988_749_895) % 1.0, 1 << 20)).collect()
}

fn wanted() -> impl Strategy<Value = Vec<(f64, u64)>> {
    // Few, many, in heaps, larger than a wrap.
    let anywhere = (0.0..1.0f64, 0..2_000_000_000u64);
    let heap = (0.3..0.301f64, 0..1_000_000u64);
    let huge = (0.0..1.0f64, 0..200_000_000_000u64);
    prop::collection::vec(prop_oneof![6 => anywhere, 3 => heap, 1 => huge], 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_item_comes_once_and_no_later_than_in_order_of_blocks(
        wanted in wanted(), generation in 0..7usize, from in 0.0..1.0f64
    ) {
        let generation = Generation::ALL[4 + generation];
        let (mechanics, items) = (lto(generation), items(generation, &wanted));
        let from = (from * blocks(generation) as f64) as u64;
        let order = recall_order(&mechanics, from, &items);
        let ids = |items: &[RecallItem]| items.iter().map(|item| item.id).collect::<BTreeSet<_>>();
        prop_assert_eq!(order.len(), items.len());
        prop_assert_eq!(ids(&order), ids(&items));
        let (ours, forward) = (way_s(&mechanics, from, &order), way_s(&mechanics, from, &items));
        prop_assert!(ours <= forward, "{ours} s, in order of blocks {forward} s");
        prop_assert_eq!(&order, &recall_order(&mechanics, from, &items), "another order the second time");
    }
}

/// The best order of few items, by trying all.
fn best(mechanics: &Mechanics, from: u64, left: &[RecallItem]) -> f64 {
    let after = |n: usize| {
        let (first, rest) = (left[n], [&left[..n], &left[n + 1..]].concat());
        let end = mechanics.last_block(first.block, first.byte, first.bytes);
        way_s(mechanics, from, &[first]) + best(mechanics, end, &rest)
    };
    if left.is_empty() { 0.0 } else { (0..left.len()).map(after).fold(f64::INFINITY, f64::min) }
}

#[test]
fn seven_files_come_in_the_best_order_of_all() {
    for first in 0..10 {
        let wanted: Vec<_> = scattered(7 * 10)[7 * first..7 * first + 7].to_vec();
        let (mechanics, items) = (lto(Generation::Lto9), items(Generation::Lto9, &wanted));
        let (ours, best) =
            (way_s(&mechanics, 0, &recall_order(&mechanics, 0, &items)), best(&mechanics, 0, &items));
        assert!(ours < best + 0.1, "{ours} s, possible are {best} s");
    }
}

#[test]
fn a_hundred_scattered_files_take_less_than_half_as_long_as_in_order_of_blocks() {
    for generation in Generation::ALL.into_iter().skip(4) {
        let (mechanics, items) = (lto(generation), items(generation, &scattered(100)));
        let order = recall_order(&mechanics, 0, &items);
        let (ours, forward) = (way_s(&mechanics, 0, &order), way_s(&mechanics, 0, &items));
        assert!(ours * 2.0 < forward, "{generation}: {ours} s, in order of blocks {forward} s");
    }
}

#[test]
fn a_line_is_read_forward() {
    let items = items(Generation::Lto9, &scattered(500));
    assert_eq!(recall_order(&Mechanics::default(), 123, &items), items);
}

#[test]
fn more_than_are_ordered_together_all_come() {
    let (mechanics, items) = (lto(Generation::Lto9), items(Generation::Lto9, &scattered(1100)));
    let order = recall_order(&mechanics, 0, &items);
    let ids: BTreeSet<u64> = order.iter().map(|item| item.id).collect();
    assert_eq!((order.len(), ids.len()), (1100, 1100));
    assert!(way_s(&mechanics, 0, &order) <= way_s(&mechanics, 0, &items));
}

#[test]
fn on_wraps_a_batch_takes_what_lies_behind_too() {
    let mut world = World::new(1);
    world.tape(2, VolumeState::Full, None);
    let tape = world.tapes.get_mut(&volume(2)).unwrap();
    (tape.generation, tape.wraps) = (Some(Generation::Lto9), true);
    world.load(0, 2, false);
    let DriveState::Loaded(loaded) = &mut world.drives[0].state else { panic!() };
    loaded.position = 50;
    for (id, block) in [(1, 10), (2, 60), (3, 50), (4, 40)] {
        let wanted = item(id, block, world.now);
        world.want(2, wanted);
    }
    let order = |plan: &Plan| match &plan.actions[0].job {
        Job::Recall { order, .. } => order.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(order(&world.with_view(plan)), [1, 4, 3, 2]);
    world.limits.recall_batch = 2;
    assert_eq!(order(&world.with_view(plan)), [3, 2], "what lies ahead first");
    world.tapes.get_mut(&volume(2)).unwrap().generation = None;
    world.limits.recall_batch = 100;
    assert_eq!(order(&world.with_view(plan)), [3, 2], "a line goes forward");
}
