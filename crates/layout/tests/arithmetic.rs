//! Every byte has one place, every place one byte.

use layout::{Component, Layout, LayoutError, Redundancy};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::{ObjectId, TargetId};

const UNIT: u32 = 4096;

fn component(range: std::ops::Range<u64>, redundancy: Redundancy, targets: u32) -> Component {
    let targets = (0..targets).map(TargetId).collect();
    Component { range, unit_bytes: UNIT, redundancy, base: ObjectId(1000), targets }
}

fn redundancy() -> impl Strategy<Value = (Redundancy, u32)> {
    prop_oneof![
        (1..9_u32).prop_map(|w| (Redundancy::None, w)),
        (2..4_u8, 1..5_u32).prop_map(|(copies, w)| (Redundancy::Mirror { copies }, w * u32::from(copies))),
        (2..9_u8, 1..4_u8).prop_map(|(data, parity)| {
            (Redundancy::Coded { data, parity }, u32::from(data) + u32::from(parity))
        }),
    ]
}

/// One to three components.
fn layouts() -> impl Strategy<Value = Layout> {
    prop::collection::vec((redundancy(), 1..200_000_u64), 1..4).prop_map(|parts| {
        let last = parts.len() - 1;
        let mut start = 0;
        let components = parts.into_iter().enumerate().map(|(index, ((redundancy, targets), length))| {
            let end = if index == last { u64::MAX } else { start + length };
            let made = component(start..end, redundancy, targets);
            start = end;
            made
        });
        Layout { generation: 1, components: components.collect() }
    })
}

proptest! {
    #[test]
    fn pieces_cover_a_range_once_and_lead_back(layout in layouts(), start in 0..500_000_u64, length in 0..300_000_u64) {
        prop_assert_eq!(layout.check(), Ok(()));
        let mut at = start;
        let mut places: BTreeMap<(usize, u16), Vec<(u64, u64)>> = BTreeMap::new();
        for piece in layout.pieces(start..start + length) {
            let component = &layout.components[piece.component];
            prop_assert_eq!(piece.file_offset, at);
            prop_assert!(piece.length > 0);
            at += piece.length;
            for byte in [0, piece.length / 2, piece.length - 1] {
                prop_assert_eq!(component.file_offset(piece.column, piece.object_offset + byte), Some(piece.file_offset + byte));
            }
            places.entry((piece.component, piece.column)).or_default().push((piece.object_offset, piece.length));
        }
        prop_assert_eq!(at, start + length);
        for used in places.values_mut() {
            used.sort_unstable();
            prop_assert!(used.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "two bytes in one place");
        }
    }

    #[test]
    fn objects_are_as_long_as_their_last_byte(layout in layouts(), size in 0..600_000_u64) {
        let mut ends: BTreeMap<(usize, u16), u64> = BTreeMap::new();
        for piece in layout.pieces(0..size) {
            let component = &layout.components[piece.component];
            for column in component.replicas(piece.column) {
                let end = ends.entry((piece.component, column)).or_default();
                *end = (*end).max(piece.object_offset + piece.length);
            }
            if let Some(stripe) = component.stripe(piece.file_offset) {
                let first = stripe.file_offset;
                let longest = size.min(component.range.end).saturating_sub(first).min(u64::from(UNIT));
                for column in stripe.parity {
                    let end = ends.entry((piece.component, column)).or_default();
                    *end = (*end).max(stripe.object_offset + longest);
                }
            }
        }
        for (index, component) in layout.components.iter().enumerate() {
            for column in 0..component.targets.len() as u16 {
                let expected = ends.get(&(index, column)).copied().unwrap_or_default();
                prop_assert_eq!(component.object_length(column, size), expected, "component {} column {}", index, column);
            }
        }
    }

    #[test]
    fn a_stripe_takes_one_unit_of_each_column(data in 2..12_u8, parity in 1..5_u8, at in 0..10_000_000_u64) {
        let n = u32::from(data) + u32::from(parity);
        let component = component(0..u64::MAX, Redundancy::Coded { data, parity }, n);
        let stripe = component.stripe(at).unwrap();
        let columns: BTreeSet<u16> = stripe.data.iter().chain(&stripe.parity).copied().collect();
        prop_assert_eq!(columns.len(), n as usize);
        let unit = u64::from(UNIT);
        for (d, column) in stripe.data.iter().enumerate() {
            let found = component.file_offset(*column, stripe.object_offset);
            prop_assert_eq!(found, Some(stripe.file_offset + d as u64 * unit));
        }
        for column in &stripe.parity {
            prop_assert_eq!(component.file_offset(*column, stripe.object_offset), None);
        }
    }

    #[test]
    fn nothing_overflows_at_the_end_of_all_files(layout in layouts(), back in 1..100_000_u64) {
        let pieces: Vec<_> = layout.pieces(u64::MAX - back..u64::MAX).collect();
        prop_assert_eq!(pieces.iter().map(|p| p.length).sum::<u64>(), back);
        for component in &layout.components {
            component.object_length(0, u64::MAX);
            component.file_offset(0, u64::MAX);
        }
    }
}

#[test]
fn behind_the_end_of_what_a_file_has_there_is_nothing() {
    let parts = [component(0..10_000, Redundancy::None, 1), component(10_000..50_000, Redundancy::None, 3)];
    let layout = Layout { generation: 1, components: parts.to_vec() };
    assert_eq!((layout.check(), layout.end()), (Ok(()), 50_000));
    let pieces: Vec<_> = layout.pieces(0..u64::MAX).collect();
    assert_eq!(pieces.iter().map(|p| p.length).sum::<u64>(), 50_000);
    assert_eq!(layout.pieces(50_000..60_000).count(), 0);
    let ends: u64 = (0..3).map(|column| layout.components[1].object_length(column, u64::MAX)).sum();
    assert_eq!(ends, 40_000);
}

#[test]
fn reads_of_coded_files_go_round_all_columns() {
    let coded = component(0..u64::MAX, Redundancy::Coded { data: 4, parity: 2 }, 6);
    let columns: Vec<u16> = coded.pieces(0..12 * u64::from(UNIT)).map(|p| p.column).collect();
    assert_eq!(columns, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]);
    let stripe = coded.stripe(4 * u64::from(UNIT)).unwrap();
    assert_eq!((stripe.data, stripe.parity), (vec![4, 5, 0, 1], vec![2, 3]));
}

#[test]
fn one_column_is_one_piece() {
    let single = Layout::single(TargetId(1), ObjectId(5));
    let pieces: Vec<_> = single.pieces(10..10_000_000_000).collect();
    assert_eq!(pieces.len(), 1);
    assert_eq!((pieces[0].object_offset, pieces[0].length), (10, 9_999_999_990));
}

#[test]
fn what_the_arithmetic_cannot_do_is_refused_by_name() {
    let good = component(0..u64::MAX, Redundancy::None, 2);
    let check = |components: Vec<Component>| Layout { generation: 1, components }.check();
    assert_eq!(check(vec![good.clone()]), Ok(()));
    assert_eq!(check(vec![]), Err(LayoutError::Ends { found: 0 }));
    let short = Component { range: 0..100, ..good.clone() };
    assert_eq!(check(vec![short.clone()]), Ok(()), "a file that is to get more as it grows");
    let empty = Component { range: 100..100, ..good.clone() };
    assert_eq!(check(vec![short.clone(), empty]), Err(LayoutError::Ends { found: 100 }));
    let later = Component { range: 101..u64::MAX, ..good.clone() };
    assert_eq!(check(vec![short, later]), Err(LayoutError::Gap { index: 1, found: 101, expected: 100 }));
    assert_eq!(check(vec![Component { unit_bytes: 100, ..good.clone() }]), Err(LayoutError::Unit(100)));
    let twice = Component { targets: vec![TargetId(3), TargetId(3)], ..good.clone() };
    assert_eq!(check(vec![twice]), Err(LayoutError::Twice(TargetId(3))));
    for redundancy in [
        Redundancy::Mirror { copies: 1 },
        Redundancy::Mirror { copies: 3 },
        Redundancy::Coded { data: 1, parity: 1 },
        Redundancy::Coded { data: 4, parity: 2 },
    ] {
        let error = check(vec![Component { redundancy, ..good.clone() }]).unwrap_err();
        assert!(matches!(error, LayoutError::Targets { targets: 2, .. }), "{error}");
    }
}
