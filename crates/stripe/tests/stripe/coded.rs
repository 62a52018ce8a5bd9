//! Coded files are what a plain model says, whichever columns are lost and wherever the client dies.

use crate::common::{Cluster, Power, Step, Terms1, UNIT, bytes, file_step, model_step, read, steps};
use data::frame::Op;
use layout::Layout;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use stripe::{StripeError, Striped};
use types::ObjectId;

/// The seals and logs say the same as the columns, for whoever opens the file without some of the targets.
fn without_any(columns: u32, most: usize) -> Vec<BTreeSet<u32>> {
    (0_u32..1 << columns)
        .map(|set| (0..columns).filter(|n| set >> n & 1 == 1).map(|n| n + 1).collect::<BTreeSet<u32>>())
        .filter(|set| set.len() <= most)
        .collect()
}

#[test]
fn a_coded_file_is_what_a_plain_model_says_with_columns_lost() {
    let cluster = Cluster::new(6);
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(choice in 0_usize..4, steps in steps(true))| {
        let (unit, k, m) = [(4096, 2, 1), (4096, 4, 2), (12_288, 3, 3), (131_072, 2, 2)][choice];
        let layout = cluster.coded(unit, k, m);
        let mut file = cluster.make(layout.clone());
        let mut model: Vec<u8> = Vec::new();
        let mut lost = BTreeSet::new();
        for step in steps {
            match &step {
                Step::Lose(n) if lost.len() < usize::from(m) => {
                    lost.insert(n % u32::from(k + m) + 1);
                    file = cluster.open_but(layout.clone(), &lost, &Terms1::default());
                }
                Step::Reopen => file = cluster.open_but(layout.clone(), &lost, &Terms1::default()),
                _ => {}
            }
            file_step(&file, &model, &step).unwrap();
            model_step(&mut model, &step);
            prop_assert_eq!(file.length().unwrap(), model.len() as u64);
        }
        file.sync().unwrap();
        prop_assert!(read(&file, 0, 400_000) == model);
        // A reader beside the writer sees the same.
        let reader = cluster.open_but(layout, &lost, &Terms1::default());
        prop_assert!(read(&reader, 0, 400_000) == model);
    });
}

/// Who reads beside the writer remembers what he has read of the log.
#[test]
fn a_reader_that_stays_open_sees_everything_that_was_answered() {
    let cluster = Cluster::new(4);
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(choice in 0_usize..2, lost in 0_u32..5, steps in steps(true))| {
        let (unit, k, m) = [(4096, 2, 1), (131_072, 2, 2)][choice];
        let layout = cluster.coded(unit, k, m);
        let mut writer = cluster.make(layout.clone());
        let lost = BTreeSet::from_iter((lost > 0).then_some(lost));
        let reader = cluster.open_but(layout.clone(), &lost, &Terms1::default());
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            if matches!(step, Step::Reopen) {
                writer = cluster.open(layout.clone());
            }
            file_step(&writer, &model, &step).unwrap();
            model_step(&mut model, &step);
            prop_assert_eq!(reader.length().unwrap(), model.len() as u64, "{:?}", step);
            prop_assert!(read(&reader, 0, 400_000) == model, "{:?}", step);
        }
    });
}

#[test]
fn readers_of_one_handle_find_what_was_written_before_they_began() {
    let cluster = Cluster::new(3);
    let layout = cluster.coded(4096, 2, 1);
    let writer = cluster.make(layout.clone());
    let reader = cluster.open(layout);
    let done = AtomicI64::new(0);
    let total = 400;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let before = done.load(Ordering::Acquire);
                    let found = read(&reader, 0, 200_000);
                    let there = (0..before).all(|n| found[n as usize * 300..][..300] == bytes(300, n as u8));
                    assert!(there, "{before} writes were answered");
                    if before == total {
                        return;
                    }
                }
            });
        }
        for n in 0..total {
            writer.write_at(n as u64 * 300, &bytes(300, n as u8)).unwrap();
            done.store(n + 1, Ordering::Release);
            if n % 50 == 49 {
                writer.fold().unwrap();
            }
        }
    });
}

/// Steps that fill, fold, overwrite and cut a file of two units of data and one of parity.
const STEPS: [Step; 11] = [
    Step::Write { offset: 0, length: 3 * 8192, seed: 1 },
    Step::Write { offset: 5000, length: 6000, seed: 2 },
    Step::Write { offset: 30_000, length: 100, seed: 3 },
    // A row that is filled in pieces.
    Step::Write { offset: 40_960, length: 5000, seed: 6 },
    Step::Write { offset: 45_960, length: 4000, seed: 7 },
    Step::Fold,
    Step::Write { offset: 100, length: 10_000, seed: 4 },
    // Rows that are there, and all of which changes.
    Step::Write { offset: 8000, length: 17_000, seed: 8 },
    Step::Fold,
    Step::SetLength(9000),
    Step::Write { offset: 20_000, length: 20_000, seed: 5 },
];

/// What a client that died has left: what it was told, and what it was doing.
struct Left {
    budget: i64,
    next: Option<&'static Step>,
    /// What the file is without and with that.
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Left {
    /// A client does the steps until it has sent so much.
    fn by_client(cluster: &Cluster, layout: &Layout, budget: i64) -> Self {
        let left = Arc::new(AtomicI64::new(budget));
        let patience = std::time::Duration::from_millis(50);
        let terms = Terms1 { patience, budget: Some(left.clone()), ..Terms1::default() };
        let file = cluster.open_but(layout.clone(), &BTreeSet::new(), &terms);
        let mut before = Vec::new();
        let next = STEPS.iter().find(|step| {
            let failed = file_step(&file, &before, step).is_err();
            if !failed {
                model_step(&mut before, step);
            }
            failed
        });
        left.store(0, Ordering::SeqCst);
        let mut after = before.clone();
        next.iter().for_each(|step| model_step(&mut after, step));
        Self { budget, next, before, after }
    }

    /// Every byte is what it was or what it was becoming.
    fn check(&self, what: &str, found: &[u8]) {
        let Self { budget, next, before, after } = self;
        let lengths = [before.len(), after.len()];
        let part = matches!(next, Some(Step::Write { .. })) && found.len() <= after.len();
        let cut = matches!(next, Some(Step::SetLength(_)));
        assert!(
            lengths.contains(&found.len()) || part || cut,
            "{budget} {what} {next:?}: {} bytes",
            found.len()
        );
        if matches!(next, Some(Step::SetLength(_))) {
            // Shorter it may be, but nothing within is gone, but for the rest of the row where it is to end.
            let row = after.len()..after.len().next_multiple_of(8192);
            let kept = found
                .iter()
                .enumerate()
                .all(|(n, byte)| *byte == before[n] || (*byte == 0 && row.contains(&n)));
            return assert!(
                kept && found.len() >= after.len(),
                "{budget} {what} {next:?}: {} bytes",
                found.len()
            );
        }
        for (n, byte) in found.iter().enumerate() {
            let of = |content: &[u8]| content.get(n).copied().unwrap_or(0);
            assert!(*byte == of(before) || *byte == of(after), "{budget} {what} {next:?}: byte {n}");
        }
    }
}

/// Of one part, or of two with the border between rows that are written at once.
fn dies_after(cluster: &Cluster, parts: usize, budget: i64) -> bool {
    const BORDER: u64 = 4 * 8192;
    let mut layout = cluster.coded(4096, 2, 1);
    if parts > 1 {
        let behind = cluster.component(BORDER..u64::MAX, 4096, layout.components[0].redundancy, 3);
        layout.components[0].range.end = BORDER;
        layout.components.push(behind);
    }
    drop(cluster.make(layout.clone()));
    let left = Left::by_client(cluster, &layout, budget);
    // Readers see it before anybody has repaired anything, and without any one target.
    left.check("read", &read(&cluster.open(layout.clone()), 0, 100_000));
    for lost in without_any(3, 1) {
        // The same where nobody goes on.
        let quiet = |reader: Striped| if budget % 2 == 0 { reader.quiet() } else { reader };
        let reader = quiet(cluster.open_but(layout.clone(), &lost, &Terms1::default()));
        let mut found = vec![0; 100_000];
        match reader.read_at(0, &mut found) {
            Ok(got) => left.check(&format!("without {lost:?}"), &found[..got]),
            // Rows that were being written for the first time are refused, not made up.
            Err(StripeError::Lost { offset, .. }) => {
                let new = matches!(left.next, Some(Step::Write { .. }))
                    && offset as usize >= left.before.len() / 8192 * 8192;
                assert!(new, "{budget} without {lost:?} {:?}: lost at {offset}", left.next);
                left.check(
                    "before it",
                    &[&read(&reader, 0, offset as usize)[..], &left.before[offset as usize..]].concat(),
                );
            }
            Err(e) => panic!("{budget} without {lost:?}: {e}"),
        }
    }
    // The next writer goes on; then every column can be lost again.
    let writer = cluster.open(layout.clone());
    writer.write_at(0, b"the next one").unwrap();
    // What was being written in a part that he does not write to is decided when that is folded.
    (1..parts).for_each(|_| writer.fold().unwrap());
    let mut now = read(&writer, 0, 100_000);
    writer.fold().unwrap();
    drop(writer);
    for lost in without_any(3, 1) {
        let reader = cluster.open_but(layout.clone(), &lost, &Terms1::default());
        let mut found = vec![0; 100_000];
        match reader.read_at(0, &mut found) {
            Ok(got) => assert!(found[..got] == now, "{budget} without {lost:?} after the next writer"),
            Err(StripeError::Lost { .. }) if matches!(left.next, Some(Step::Write { .. })) => {}
            Err(e) => panic!("{budget} without {lost:?} after the next writer: {e}"),
        }
    }
    if let Some(start) = left.before.get(..12) {
        now[..12].copy_from_slice(start);
    } else {
        return left.next.is_some();
    }
    left.check("the next writer's", &now);
    left.next.is_some()
}

#[test]
fn the_steps_after_which_a_client_dies_lose_nothing_that_was_answered() {
    (1..=2).for_each(dies_after_each);
}

fn dies_after_each(parts: usize) {
    const THREADS: i64 = 4;
    // Of two parts every third request will do.
    let pace = 2 * parts - 1;
    // What is waited for is the patience of clients that are dead.
    let died: i64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|first| {
                scope.spawn(move || {
                    let cluster = Cluster::new(3);
                    (first..)
                        .step_by(THREADS as usize * pace)
                        .take_while(|budget| dies_after(&cluster, parts, *budget))
                        .count() as i64
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(died > 50 / pace as i64, "{died} steps");
}

#[test]
fn a_block_that_rots_is_computed_and_one_too_many_is_named() {
    use std::os::unix::fs::FileExt;
    let cluster = Cluster::new(4);
    let layout = cluster.coded(65_536, 3, 1);
    let file = cluster.make(layout.clone());
    let content = bytes(6 * 65_536, 9);
    file.write_at(0, &content).unwrap();
    let spoil = |target: u32| {
        let object = layout.components[0].base.0 + u64::from(target) - 1;
        let object = std::fs::File::options().write(true).open(cluster.path(target, object)).unwrap();
        object.write_all_at(b"rotten", 70).unwrap();
    };
    spoil(2);
    assert!(read(&file, 0, 500_000) == content);
    spoil(3);
    let error = file.read_at(65_536, &mut [0; 10]).unwrap_err();
    assert!(error.to_string().contains("2 units are there"), "{error}");
    assert_eq!(error.class(), types::ErrorClass::Corrupt);
    // Written whole again it is as good as new.
    assert!(read(&file, 3 * 65_536, 500_000) == content[3 * 65_536..]);
}

/// The log stands for rows while they are overwritten: a row that was synced must not be lost with power when the log is.
#[test]
fn rows_are_folded_over_only_when_the_log_is_durable() {
    let cluster = Cluster::new(3);
    let layout = cluster.coded(crate::common::UNIT, 2, 1);
    let component = layout.components[0].clone();
    let terms = Terms1 { budget: Some(Arc::new(AtomicI64::new(i64::MAX))), ..Terms1::default() };
    cluster.every_object(&layout, data::frame::Op::Create, 0, 1, &BTreeSet::new());
    let file = cluster.open_but(layout, &BTreeSet::new(), &terms);
    let row = bytes(2 * crate::common::UNIT as usize, 3);
    file.write_at(0, &row).unwrap();
    file.sync().unwrap();
    for (n, piece) in row.chunks(1000).enumerate() {
        file.write_at(n as u64 * 1000, piece).unwrap();
    }
    terms.sent.lock().unwrap().clear();
    file.fold().unwrap();
    let sent = terms.sent.lock().unwrap().clone();
    let columns: Vec<_> = (0..3).map(|column| component.object(column)).collect();
    let over = sent.iter().position(|(op, object)| *op == data::frame::Op::Write && columns.contains(object));
    let over = over.expect("the row is written");
    for (journal, _) in component.places().filter(|(object, _)| !columns.contains(object)) {
        let last = sent[..over].iter().rev().find(|(_, object)| *object == journal);
        assert_eq!(last, Some(&(data::frame::Op::Sync, journal)), "{sent:?}");
    }
}

/// Nobody takes note of the machines that a fold writes to: what is written behind its beginning would be synced without it.
#[test]
fn what_a_fold_begins_is_durable_before_anything_goes_on() {
    let cluster = Cluster::new(3);
    let layout = cluster.coded(crate::common::UNIT, 2, 1);
    let component = layout.components[0].clone();
    let terms = || Terms1 { budget: Some(Arc::new(AtomicI64::new(i64::MAX))), ..Terms1::default() };
    cluster.every_object(&layout, Op::Create, 0, 1, &BTreeSet::new());
    let begins = |terms: &Terms1, file: &stripe::Striped| {
        terms.sent.lock().unwrap().clear();
        file.fold().unwrap();
        let sent = terms.sent.lock().unwrap().clone();
        for (journal, _) in component.places().filter(|(object, _)| *object >= component.object(3)) {
            let to =
                sent.iter().filter(|(op, object)| *object == journal && [Op::Write, Op::Sync].contains(op));
            let first: Vec<Op> = to.map(|(op, _)| *op).take(2).collect();
            assert_eq!(first, [Op::Write, Op::Sync], "{sent:?}");
        }
    };
    let own = terms();
    let file = cluster.open_but(layout.clone(), &BTreeSet::new(), &own);
    file.write_at(0, &bytes(2 * crate::common::UNIT as usize, 3)).unwrap();
    file.write_at(100, &bytes(1000, 4)).unwrap();
    file.sync().unwrap();
    begins(&own, &file);
    drop(file);
    // By a fold that takes over.
    let own = terms();
    begins(&own, &cluster.open_but(layout, &BTreeSet::new(), &own));
}

/// A machine with a column loses power between the writes of a fold and its syncs, and is back before anybody misses it.
#[test]
fn a_fold_does_again_what_a_machine_has_lost_before_it_was_durable() {
    let cluster = Cluster::new(3);
    let unit = 65_536;
    let row = 2 * unit;
    // Parts of a row, and all of it.
    for (offset, length) in [(unit / 2, 3000), (0, row)] {
        for target in 1..=3_u32 {
            let layout = cluster.coded(unit as u32, 2, 1);
            let own = layout.components[0].base.0 + u64::from(target) - 1;
            let mut model = bytes(3 * row, 1);
            {
                let before = cluster.make(layout.clone());
                before.write_at(0, &model).unwrap();
                before.fold().unwrap();
                before.sync().unwrap();
            }
            let power = Arc::new(Power {
                target,
                at: (Op::Sync, ObjectId(own)),
                files: Default::default(),
                starts: Default::default(),
            });
            let terms = Terms1 { power: Some(power.clone()), ..Terms1::default() };
            let file = cluster.open_but(layout.clone(), &BTreeSet::new(), &terms);
            let new = bytes(length, 2);
            file.write_at((row + offset) as u64, &new).unwrap();
            model[row + offset..row + offset + length].copy_from_slice(&new);
            file.sync().unwrap();
            let saved = cluster.files(target, own).map(|path| {
                let bytes = std::fs::read(&path).unwrap();
                (path, bytes)
            });
            *power.files.lock().unwrap() = saved.into();
            file.fold().unwrap();
            assert_eq!(power.starts.load(Ordering::SeqCst), 1, "it has lost power");
            for lost in without_any(3, 1) {
                let reader = cluster.open_but(layout.clone(), &lost, &Terms1::default());
                let what = format!("bytes {offset} of {length}, power of {target}, without {lost:?}");
                assert!(read(&reader, 0, model.len()) == model, "{what}");
            }
        }
    }
}

/// A machine lost power and what was not synced, its target says that all is well, and the fold of what others have changed in the row reads it.
#[test]
fn what_a_machine_has_lost_of_a_row_is_not_folded_into_its_parity() {
    let unit = UNIT as usize;
    // Of a unit of data with a small write beside it, of a unit of parity, and of the seal.
    for lost in 0..4 {
        let cluster = Cluster::new(3);
        let layout = cluster.coded(UNIT, 2, 1);
        let component = layout.components[0].clone();
        let file = cluster.make(layout.clone());
        let (object, column) = match lost {
            // The first journal lies on the target of column 0.
            3 => component.places().nth(3).unwrap(),
            lost => component.places().nth(lost).unwrap(),
        };
        let target = component.target(column).unwrap().0;
        file.write_at(0, &bytes(2 * unit, 9)).unwrap();
        file.sync().unwrap();
        let before = cluster.files(target, object.0).map(|path| (path.clone(), std::fs::read(path).unwrap()));
        let mut model = bytes(6 * unit, 1);
        // A row that is new, and one that comes after it.
        file.write_at(2 * unit as u64, &model[..4 * unit]).unwrap();
        before.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        let small = bytes(100, 5);
        file.write_at(3 * unit as u64 + 50, &small).unwrap();
        model[unit + 50..][..100].copy_from_slice(&small);
        file.fold().unwrap();
        drop(file);
        let without = cluster.open_but(layout, &BTreeSet::from([target]), &Terms1::default());
        let found = read(&without, 2 * unit, 4 * unit);
        assert!(found == model[..4 * unit], "without what was lost: {lost}");
    }
}

/// A file that was made longer before it is written, by another writer: rows of 8 KiB, of which the first has bytes, and the last ends within.
fn made_longer(cluster: &Cluster, layout: &Layout) -> Vec<u8> {
    let first = bytes(8192, 1);
    let file = cluster.make(layout.clone());
    file.write_at(0, &first).unwrap();
    file.set_length(10 * 8192 - 5000).unwrap();
    file.sync().unwrap();
    let mut content = first;
    content.resize(10 * 8192 - 5000, 0);
    content
}

#[test]
fn holes_that_another_writer_has_left_are_filled_without_the_log() {
    let cluster = Cluster::new(3);
    let layout = cluster.coded(UNIT, 2, 1);
    let mut model = made_longer(&cluster, &layout);
    let file = cluster.open(layout.clone());
    let ends = [(0, 8192), (8192, 8192), (8191, 8191)].map(|(at, most)| file.row_end(at, most));
    assert_eq!(ends, [Some(8192), Some(2 * 8192), None]);
    let logged = |file: &Striped| file.logged().unwrap();
    let mut write = |file: &Striped, rows: std::ops::Range<usize>, seed| {
        let new = bytes(rows.len() * 8192, seed);
        file.write_at(rows.start as u64 * 8192, &new).unwrap();
        model[rows.start * 8192..rows.end * 8192].copy_from_slice(&new);
        assert!(read(file, 0, 100_000) == model);
        model.clone()
    };
    write(&file, 2..5, 2);
    write(&file, 7..9, 3);
    assert_eq!(logged(&file), 0, "whole rows that were holes");
    write(&file, 3..4, 4);
    assert!(logged(&file) > 8192, "it has bytes");
    drop(file);
    let next = cluster.open(layout.clone());
    write(&next, 4..6, 5);
    let before = logged(&next);
    assert!((8192..2 * 8192).contains(&before), "row 4 has bytes, row 5 is a hole: {before}");
    // What is cut off is a hole again, and so is what was never there.
    next.set_length(4 * 8192).unwrap();
    next.set_length(10 * 8192 - 5000).unwrap();
    let model = [&model[..4 * 8192], &vec![0; 6 * 8192 - 5000][..]].concat();
    drop(next);
    let last = cluster.open(layout.clone());
    let new = bytes(4 * 8192, 6);
    last.write_at(5 * 8192, &new).unwrap();
    assert_eq!(logged(&last), 0);
    last.write_at(8192, &new).unwrap();
    let rows = logged(&last) / 8192;
    assert_eq!(rows, 2, "of rows 1 to 4 two have bytes");
    let mut model = model;
    model[5 * 8192..9 * 8192].copy_from_slice(&new);
    model[8192..5 * 8192].copy_from_slice(&new);
    last.fold().unwrap();
    for lost in without_any(3, 1) {
        let reader = cluster.open_but(layout.clone(), &lost, &Terms1::default());
        assert!(read(&reader, 0, 100_000) == model, "without {lost:?}");
    }
}

#[test]
fn who_dies_while_he_fills_holes_loses_nothing_else_and_the_next_one_fills_them() {
    let cluster = Cluster::new(3);
    for budget in 0.. {
        let layout = cluster.coded(UNIT, 2, 1);
        let before = made_longer(&cluster, &layout);
        let terms = Terms1 {
            patience: std::time::Duration::from_millis(50),
            budget: Some(Arc::new(AtomicI64::new(budget))),
            ..Terms1::default()
        };
        let file = cluster.open_but(layout.clone(), &BTreeSet::new(), &terms);
        let new = bytes(3 * 8192, 2);
        let mut after = before.clone();
        after[3 * 8192..6 * 8192].copy_from_slice(&new);
        let done = file.write_at(3 * 8192, &new).is_ok();
        drop(file);
        for lost in without_any(3, 1) {
            let reader = cluster.open_but(layout.clone(), &lost, &Terms1::default());
            for (row, range) in (0..).zip((0..after.len()).step_by(8192)) {
                let end = (range + 8192).min(after.len());
                let mut found = vec![0xee; end - range];
                match reader.read_at(range as u64, &mut found) {
                    Ok(_) if done => assert!(found == after[range..end], "{budget} without {lost:?}: {row}"),
                    Ok(_) => {
                        let fits = |n: usize| found[n] == before[range + n] || found[n] == after[range + n];
                        assert!((0..found.len()).all(fits), "{budget} without {lost:?}: row {row}");
                    }
                    Err(StripeError::Lost { .. }) => {
                        assert!(!done && (3..6).contains(&row), "{budget} without {lost:?}: row {row} lost");
                    }
                    Err(e) => panic!("{budget} without {lost:?}: {e}"),
                }
            }
        }
        let next = cluster.open(layout.clone());
        next.write_at(3 * 8192, &new).unwrap();
        next.fold().unwrap();
        for lost in without_any(3, 1) {
            let reader = cluster.open_but(layout.clone(), &lost, &Terms1::default());
            assert!(read(&reader, 0, 100_000) == after, "{budget} without {lost:?} after the next writer");
        }
        if done {
            assert!(budget > 10, "{budget} requests");
            return;
        }
    }
}
