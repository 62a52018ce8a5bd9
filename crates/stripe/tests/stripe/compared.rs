//! Copies and parity that do not belong together are found, whatever sums say; what is only being written is not taken for that.

use crate::common::{Cluster, Terms1, UNIT, bytes};
use data::Ask;
use data::frame::Op;
use layout::{Layout, Redundancy};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use stripe::Striped;

fn layouts(cluster: &Cluster) -> [Layout; 3] {
    let mirror = cluster.component(0..u64::MAX, UNIT, Redundancy::Mirror { copies: 2 }, 4);
    let plain = cluster.component(0..u64::MAX, UNIT, Redundancy::None, 3);
    let one = |component| Layout { generation: 1, components: vec![component] };
    [one(plain), one(mirror), cluster.coded(3 * UNIT, 3, 2)]
}

fn differences(file: &Striped) -> Vec<String> {
    file.compare(&|| true).unwrap().differences
}

#[test]
fn every_column_is_read_and_nothing_is_wrong_with_what_was_written() {
    let cluster = Cluster::new(5);
    for layout in layouts(&cluster) {
        let file = cluster.make(layout.clone());
        file.write_at(0, &bytes(300_000, 1)).unwrap();
        // A hole, and small writes that lie in the log at first.
        file.write_at(600_000, &bytes(1000, 2)).unwrap();
        let compared = file.compare(&|| true).unwrap();
        assert_eq!(compared.differences, Vec::<String>::new());
        let redundant = !matches!(layout.components[0].redundancy, Redundancy::None);
        assert!(
            compared.bytes >= 601_000 / 3 && (!redundant || compared.bytes > 601_000),
            "{}",
            compared.bytes
        );
        file.fold().unwrap();
        assert_eq!(differences(&cluster.open(layout.clone())), Vec::<String>::new());
    }
    // One that does not count is not asked.
    let files = layouts(&cluster).map(|layout| {
        cluster.make(layout.clone()).write_at(0, &bytes(300_000, 1)).unwrap();
        layout
    });
    cluster.movers[1].0.stop().unwrap();
    for layout in files.into_iter().skip(1) {
        let file = cluster.open_but(layout, &BTreeSet::from([2]), &Terms1::default());
        assert_eq!(differences(&file), Vec::<String>::new());
    }
}

#[test]
fn a_copy_or_parity_that_is_another_one_is_found_although_its_sums_are_right() {
    let cluster = Cluster::new(5);
    for layout in layouts(&cluster).into_iter().skip(1) {
        drop(cluster.make(layout.clone()));
        let component = layout.components[0].clone();
        for (number, target) in component.targets.iter().enumerate() {
            let file = cluster.open(layout.clone());
            file.write_at(0, &bytes(200_000, 3)).unwrap();
            file.fold().unwrap();
            drop(file);
            assert_eq!(differences(&cluster.open(layout.clone())), Vec::<String>::new());
            let column = cluster.column(&component, *target, &Terms1::default());
            let object = component.object(number as u16).0;
            let ask = Ask { op: Op::Write, flags: 0, object, offset: 5000, length: 3 };
            column.channel.call(&column.slot, ask, vec![1, 2, 3]).unwrap();
            let found = differences(&cluster.open(layout.clone()));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].contains(&format!("target {target}")) || found[0].contains("targets "),
                "{found:?}"
            );
        }
    }
}

#[test]
fn a_copy_of_another_length_and_one_that_cannot_be_read_are_found() {
    let cluster = Cluster::new(5);
    let [_, mirror, coded] = layouts(&cluster);
    for layout in [&mirror, &coded] {
        cluster.make(layout.clone()).write_at(0, &bytes(200_000, 3)).unwrap();
    }
    let component = mirror.components[0].clone();
    let column = cluster.column(&component, component.targets[1], &Terms1::default());
    let object = component.object(1).0;
    let ask = Ask { op: Op::SetLength, flags: 0, object, offset: 90_000, length: 0 };
    column.channel.call(&column.slot, ask, vec![]).unwrap();
    let found = differences(&cluster.open(mirror));
    assert!(found.iter().any(|one| one.contains("has 90000 bytes") || one.contains(" 90000")), "{found:?}");
    let component = &coded.components[0];
    let path = cluster.path(component.targets[4].0, component.object(4).0);
    let mut there = std::fs::read(&path).unwrap();
    there[100] ^= 1;
    std::fs::write(&path, there).unwrap();
    let found = differences(&cluster.open(coded));
    assert!(found.iter().any(|one| one.contains("cannot be read") && one.contains("target 5")), "{found:?}");
}

#[test]
fn what_is_written_and_folded_meanwhile_is_no_difference() {
    let cluster = Cluster::new(5);
    for layout in layouts(&cluster) {
        let file = cluster.make(layout.clone());
        file.write_at(0, &bytes(200_000, 3)).unwrap();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    file.write_at(n * 7919 % 190_000, &bytes(5000, n as u8)).unwrap();
                    file.fold().unwrap();
                }
            });
            let beside = cluster.open(layout.clone());
            let found: Vec<_> = (0..5).flat_map(|_| differences(&beside)).collect();
            ends.store(true, Ordering::Relaxed);
            assert_eq!(found, Vec::<String>::new());
        });
    }
}

/// Each copy has a connection of its own, and what is written to one may overtake what is written to the other.
#[test]
fn writers_of_the_same_bytes_leave_equal_copies() {
    let cluster = Cluster::new(2);
    let mirror = cluster.component(0..u64::MAX, UNIT, Redundancy::Mirror { copies: 2 }, 2);
    let file = cluster.make(Layout { generation: 1, components: vec![mirror] });
    for round in 0..30 {
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let file = &file;
                let bytes = vec![(4 * round + writer) as u8; 600_000];
                scope.spawn(move || file.write_at(writer, &bytes).unwrap());
            }
        });
        assert_eq!(differences(&file), Vec::<String>::new(), "round {round}");
    }
}
