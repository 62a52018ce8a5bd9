//! Columns move to other targets while the file is used, and nothing of it is lost.

use crate::common::{Cluster, Terms1, UNIT, bytes, read};
use data::Ask;
use data::frame::Op;
use layout::{Layout, Redundancy};
use std::collections::BTreeSet;
use stripe::{Mended, Striped};
use types::TargetId;

fn layouts(cluster: &Cluster) -> Vec<Layout> {
    let one = |redundancy, columns| {
        let component = cluster.component(0..u64::MAX, 2 * UNIT, redundancy, columns);
        Layout { generation: 1, components: vec![component] }
    };
    vec![one(Redundancy::None, 3), one(Redundancy::Mirror { copies: 2 }, 2), cluster.coded(2 * UNIT, 2, 1)]
}

fn lies_on(file: &Striped, target: TargetId) -> bool {
    file.ways().iter().any(|(place, way)| (*place, way.target) == ((0, 1), target))
}

/// Moves column 1 to target 4, with writes between the steps, and after them if `late`.
fn relocate(cluster: &Cluster, file: &Striped, layout: &mut Layout, model: &mut [u8], late: bool) {
    let mut to = layout.clone();
    to.components[0].targets[1] = TargetId(4);
    let others: BTreeSet<u32> = [1, 2, 3].into();
    cluster.every_object(&to, Op::Create, 0, 1, &others);
    let column = cluster.column(&to.components[0], TargetId(4), &Terms1::default());
    let moved = Mended { component: 0, column: 1, to: &column };
    let mut next = Some(0);
    while let Some(at) = next {
        next = file.copy_column(moved, at).unwrap().next;
    }
    if late {
        let late = bytes(40_000, 77);
        file.write_at(120_000, &late).unwrap();
        model[120_000..160_000].copy_from_slice(&late);
    }
    let columns = cluster.columns(&to, &BTreeSet::new(), &Terms1::default());
    file.finish_moving(moved, || Ok(columns)).unwrap();
    *layout = to;
}

#[test]
fn a_column_moves_while_the_file_is_written_and_everything_is_at_its_new_place() {
    for late in [false, true] {
        let cluster = Cluster::new(4);
        for mut layout in layouts(&cluster) {
            let file = cluster.make(layout.clone());
            let mut model = bytes(300_000, 9);
            file.write_at(0, &model).unwrap();
            relocate(&cluster, &file, &mut layout, &mut model, late);
            assert!(lies_on(&file, TargetId(4)));
            // What the old target has is of no use any more.
            let old = layout.components[0].base.0 + 1;
            std::fs::write(cluster.path(2, old), b"gone").unwrap();
            let more = bytes(10_000, 3);
            file.write_at(50_000, &more).unwrap();
            model[50_000..60_000].copy_from_slice(&more);
            assert!(read(&file, 0, 400_000) == model, "{layout:?}");
            drop(file);
            assert!(read(&cluster.open(layout.clone()), 0, 400_000) == model, "opened anew: {layout:?}");
            if layout.components[0].redundancy == Redundancy::None {
                continue;
            }
            let without = cluster.open_but(layout.clone(), &BTreeSet::from([1]), &Terms1::default());
            assert!(read(&without, 0, 400_000) == model, "the moved one stands in for another: {layout:?}");
        }
    }
}

/// A model of the file that is written, cut and lengthened while the column is copied.
#[test]
fn what_changes_while_a_column_is_copied_is_copied_again_and_nothing_else() {
    const STEP: usize = 4 << 20;
    let cluster = Cluster::new(4);
    let component = cluster.component(0..u64::MAX, 64 * UNIT, Redundancy::None, 2);
    let layout = Layout { generation: 1, components: vec![component] };
    let file = cluster.make(layout.clone());
    let mut model = bytes(8 * STEP, 9);
    file.write_at(0, &model).unwrap();
    let mut to = layout.clone();
    to.components[0].targets[1] = TargetId(4);
    cluster.every_object(&to, Op::Create, 0, 1, &[1, 2, 3].into());
    let column = cluster.column(&to.components[0], TargetId(4), &Terms1::default());
    let moved = Mended { component: 0, column: 1, to: &column };
    let mut next = Some(0);
    while let Some(at) = next {
        next = file.copy_column(moved, at).unwrap().next;
    }
    assert_eq!(file.behind(), 0);
    let unit = 64 * UNIT as usize;
    let mut write = |at: usize, length: usize, seed| {
        let bytes = bytes(length, seed);
        file.write_at(at as u64, &bytes).unwrap();
        model.resize(model.len().max(at + length), 0);
        model[at..at + length].copy_from_slice(&bytes);
    };
    // On the other column, and on this one in its second and third step.
    write(0, unit, 1);
    assert_eq!(file.behind(), 0, "the other column");
    write(2 * STEP + unit, 10, 2);
    write(4 * STEP, 2 * unit, 3);
    assert_eq!(file.behind(), 2 * STEP as u64);
    assert_eq!(file.catch_up(moved).unwrap(), 2 * STEP as u64);
    assert_eq!(file.behind(), 0);
    write(2 * STEP + unit, 20, 4);
    // What was cut off is zeros when the file gets longer again.
    for length in [5 * STEP, 7 * STEP] {
        file.set_length(length as u64).unwrap();
        model.resize(length, 0);
    }
    // Where nothing has changed the copy is not even looked at: what is wrong there stays.
    let copy = cluster.path(4, layout.components[0].base.0 + 1);
    let byte = std::fs::read(&copy).unwrap()[100];
    let spoiled = std::fs::OpenOptions::new().write(true).open(&copy).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&spoiled, &[!byte], 100).unwrap();
    let columns = cluster.columns(&to, &BTreeSet::new(), &Terms1::default());
    file.finish_moving(moved, || Ok(columns)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&spoiled, &[byte], 100).unwrap();
    assert!(read(&file, 0, 9 * STEP) == model);
    assert!(read(&cluster.open(to), 0, 9 * STEP) == model, "opened anew");
}

#[test]
fn a_column_that_cannot_be_moved_stays_where_it_is() {
    let cluster = Cluster::new(4);
    for layout in layouts(&cluster) {
        let file = cluster.make(layout.clone());
        let model = bytes(100_000, 9);
        file.write_at(0, &model).unwrap();
        let mut to = layout.clone();
        to.components[0].targets[1] = TargetId(4);
        let column = cluster.column(&to.components[0], TargetId(4), &Terms1::default());
        let moved = Mended { component: 0, column: 1, to: &column };
        // Nobody has made its objects there.
        assert!(file.copy_column(moved, 0).is_err());
        cluster.every_object(&to, Op::Create, 0, 1, &[1, 2, 3].into());
        file.copy_column(moved, 0).unwrap();
        assert!(file.finish_moving(moved, || Err("the catalogue is full".to_owned())).is_err());
        assert!(lies_on(&file, TargetId(2)));
        file.write_at(0, &bytes(5, 1)).unwrap();
        assert!(read(&file, 0, 5) == bytes(5, 1) && read(&file, 5, 200_000) == model[5..]);
    }
}

fn write(file: &Striped, model: &mut Vec<u8>, at: usize, length: usize) {
    let bytes = bytes(length, at as u8);
    file.write_at(at as u64, &bytes).unwrap();
    model.resize(model.len().max(at + length), 0);
    model[at..at + length].copy_from_slice(&bytes);
}

/// With what is in no row yet, and over what an attempt before has left.
#[test]
fn a_column_of_a_coded_file_is_carried_as_it_is_with_its_journal() {
    for number in 0..3_u16 {
        let cluster = Cluster::new(4);
        let layout = cluster.coded(2 * UNIT, 2, 1);
        let file = cluster.make(layout.clone());
        let mut model = Vec::new();
        write(&file, &mut model, 0, 300_000);
        file.fold().unwrap();
        write(&file, &mut model, 300_000, 5_000);
        let mut to = layout.clone();
        to.components[0].targets[usize::from(number)] = TargetId(4);
        cluster.every_object(&to, Op::Create, 0, 1, &[1, 2, 3].into());
        let column = cluster.column(&to.components[0], TargetId(4), &Terms1::default());
        let moved = Mended { component: 0, column: number, to: &column };
        assert!(file.carry(moved, || Err("the catalogue is full".to_owned())).is_err());
        file.fold().unwrap();
        write(&file, &mut model, 1_000, 30_000);
        file.set_length(200_000).unwrap();
        model.truncate(200_000);
        write(&file, &mut model, 199_000, 4_000);
        let logged = file.logged().unwrap();
        let columns = cluster.columns(&to, &BTreeSet::new(), &Terms1::default());
        file.carry(moved, || Ok(columns)).unwrap();
        assert!(logged > 0 && file.logged().unwrap() == logged, "nothing was folded");
        // What the old target has is of no use any more.
        for (object, _) in layout.components[0].places().filter(|(_, column)| *column == number) {
            std::fs::write(cluster.path(u32::from(number) + 1, object.0), b"gone").unwrap();
        }
        write(&file, &mut model, 150_000, 60_000);
        assert!(read(&file, 0, 400_000) == model, "column {number}");
        drop(file);
        for away in (1..=4).filter(|target| *target != u32::from(number) + 1) {
            let without = cluster.open_but(to.clone(), &BTreeSet::from([away]), &Terms1::default());
            assert!(read(&without, 0, 400_000) == model, "column {number}, without target {away}");
        }
        let file = cluster.open(to);
        file.fold().unwrap();
        assert!(read(&file, 0, 400_000) == model, "column {number}, folded");
    }
}

#[test]
fn holes_of_a_column_that_is_carried_are_holes_whatever_an_attempt_before_has_left() {
    const FAR: usize = 17 << 20;
    let cluster = Cluster::new(4);
    let layout = cluster.coded(2 * UNIT, 2, 1);
    let file = cluster.make(layout.clone());
    for at in [0, FAR] {
        file.write_at(at as u64, &bytes(50_000, 7)).unwrap();
    }
    file.fold().unwrap();
    let mut to = layout.clone();
    to.components[0].targets[1] = TargetId(4);
    cluster.every_object(&to, Op::Create, 0, 1, &[1, 2, 3].into());
    let column = cluster.column(&to.components[0], TargetId(4), &Terms1::default());
    let (left, object) = (bytes(100_000, 3), layout.components[0].base.0 + 1);
    let ask = Ask { op: Op::Write, flags: 0, object, offset: 5 << 20, length: left.len() as u64 };
    column.channel.call(&column.slot, ask, left).unwrap();
    let columns = cluster.columns(&to, &BTreeSet::new(), &Terms1::default());
    file.carry(Mended { component: 0, column: 1, to: &column }, || Ok(columns)).unwrap();
    drop(file);
    let copy = std::fs::read(cluster.path(4, object)).unwrap();
    assert!(copy == std::fs::read(cluster.path(2, object)).unwrap(), "it is what the old target has");
    assert!(read(&cluster.open(to), FAR, 60_000) == bytes(50_000, 7));
}

/// The journals lie on the first two columns: with the first one away, the second has the only one.
#[test]
fn the_only_journal_that_is_there_moves_with_its_column() {
    let cluster = Cluster::new(4);
    let layout = cluster.coded(2 * UNIT, 2, 1);
    let model = bytes(300_000, 9);
    cluster.make(layout.clone()).write_at(0, &model).unwrap();
    let away = BTreeSet::from([1]);
    let file = cluster.open_but(layout.clone(), &away, &Terms1::default());
    let mut to = layout;
    to.components[0].targets[1] = TargetId(4);
    cluster.every_object(&to, Op::Create, 0, 1, &[1, 2, 3].into());
    let column = cluster.column(&to.components[0], TargetId(4), &Terms1::default());
    let moved = Mended { component: 0, column: 1, to: &column };
    let mut next = Some(0);
    while let Some(at) = next {
        next = file.copy_column(moved, at).unwrap().next;
    }
    let columns = cluster.columns(&to, &away, &Terms1::default());
    file.finish_moving(moved, || Ok(columns)).unwrap();
    drop(file);
    assert!(read(&cluster.open_but(to, &away, &Terms1::default()), 0, 400_000) == model, "opened anew");
}
