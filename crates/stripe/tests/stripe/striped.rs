//! Files over several movers are what a plain model says, in every layout.

use crate::common::{Cluster, Step, Terms1, UNIT, bytes, file_step, model_step, read, steps};
use data::frame::Op;
use layout::{Component, Layout, Redundancy};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stripe::{StripeError, Striped};
use types::{ObjectId, TargetId};

fn layouts(cluster: &Cluster, choice: usize) -> Layout {
    let all = 0..u64::MAX;
    let mirror = Redundancy::Mirror { copies: 2 };
    let components = match choice {
        0 => vec![cluster.component(all, UNIT, Redundancy::None, 1)],
        1 => vec![cluster.component(all, UNIT, Redundancy::None, 3)],
        2 => vec![cluster.component(all, 65_536, Redundancy::None, 4)],
        3 => vec![cluster.component(all, UNIT, mirror, 2)],
        4 => vec![cluster.component(all, 3 * UNIT, mirror, 4)],
        _ => vec![
            cluster.component(0..10_000, UNIT, mirror, 2),
            cluster.component(10_000..90_000, 2 * UNIT, Redundancy::None, 2),
            cluster.component(90_000..u64::MAX, UNIT, Redundancy::None, 4),
        ],
    };
    Layout { generation: 1, components }
}

#[test]
fn a_striped_file_is_what_a_plain_model_says() {
    let cluster = Cluster::new(4);
    let config = ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(choice in 0_usize..6, steps in steps(false))| {
        let file = cluster.make(layouts(&cluster, choice));
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            file_step(&file, &model, &step).unwrap();
            model_step(&mut model, &step);
            prop_assert_eq!(file.length().unwrap(), model.len() as u64);
        }
        file.sync().unwrap();
        prop_assert!(read(&file, 0, 400_000) == model);
    });
}

/// What a client does that has fewer components than the file is to have: the objects of the next one are made, and it is opened anew.
fn growing(cluster: &Cluster, all: &Layout, model: &mut Vec<u8>, steps: &[Step]) -> usize {
    let with = |n: usize| Layout { components: all.components[..n].to_vec(), ..all.clone() };
    let mut file = cluster.make(with(1));
    for step in steps {
        loop {
            let has = file.layout().components.len();
            match file_step(&file, model, step) {
                Err(StripeError::Beyond(end)) => {
                    assert_eq!(end, file.layout().end());
                    assert_eq!(file.length().unwrap(), model.len() as u64, "nothing was done");
                    let next = Layout { components: vec![all.components[has].clone()], ..all.clone() };
                    cluster.every_object(&next, Op::Create, 0, 1, &BTreeSet::new());
                    file = cluster.open(with(has + 1));
                }
                done => break done.unwrap(),
            }
        }
        model_step(model, step);
        assert_eq!(file.length().unwrap(), model.len() as u64);
    }
    assert!(read(&file, 0, 400_000) == *model);
    file.layout().components.len()
}

#[test]
fn a_file_that_gets_more_components_as_it_grows_is_what_a_plain_model_says() {
    let cluster = Cluster::new(4);
    let config = ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() };
    let most = std::cell::Cell::new(0);
    proptest!(config, |(mirror in any::<bool>(), steps in steps(false))| {
        let (redundancy, copies) = if mirror { (Redundancy::Mirror { copies: 2 }, 2) } else { (Redundancy::None, 1) };
        let component = |range, unit, stripes: u32| cluster.component(range, unit, redundancy, stripes * copies);
        let components = vec![
            component(0..3 * 4096, UNIT, 1),
            component(3 * 4096..90_112, 2 * UNIT, 1),
            component(90_112..u64::MAX, UNIT, 2),
        ];
        let all = Layout { generation: 1, components };
        most.set(most.get().max(growing(&cluster, &all, &mut Vec::new(), &steps)));
    });
    assert_eq!(most.get(), 3, "none has grown to its last component");
}

#[test]
fn only_columns_that_may_have_changed_are_made_durable() {
    let cluster = Cluster::new(4);
    let unit = u64::from(UNIT);
    let first = cluster.component(0..10 * unit, UNIT, Redundancy::Mirror { copies: 2 }, 2);
    let second = cluster.component(10 * unit..u64::MAX, UNIT, Redundancy::None, 4);
    let (mirrors, stripes) = (first.base.0, second.base.0);
    let layout = Layout { generation: 1, components: vec![first, second] };
    drop(cluster.make(layout.clone()));
    let terms = Terms1 { budget: Some(Arc::new(i64::MAX.into())), ..Terms1::default() };
    let file = cluster.open_but(layout, &BTreeSet::new(), &terms);
    let synced = |end: u64| {
        terms.sent.lock().unwrap().clear();
        file.sync_below(end).unwrap();
        let sent = terms.sent.lock().unwrap().clone();
        let mut synced: Vec<u64> =
            sent.into_iter().filter(|(op, _)| *op == Op::Sync).map(|(_, object)| object.0).collect();
        synced.sort_unstable();
        synced
    };
    let all =
        |count: u64| [mirrors, mirrors + 1].into_iter().chain(stripes..stripes + count).collect::<Vec<_>>();
    assert!(synced(0).is_empty());
    assert_eq!(synced(1), all(0));
    assert_eq!(synced(10 * unit), all(0));
    assert_eq!(synced(10 * unit + 1), all(1));
    assert_eq!(synced(12 * unit + 1), all(3));
    assert_eq!(synced(100 * unit), all(4));
    assert_eq!(synced(u64::MAX), all(4));
}

#[test]
fn mirrors_are_read_while_a_mover_is_away_and_stripes_say_which_one_is() {
    let cluster = Cluster::new(2);
    let mirrored = layouts(&cluster, 3);
    let striped =
        Layout { generation: 1, components: vec![cluster.component(0..u64::MAX, UNIT, Redundancy::None, 2)] };
    let content = bytes(200_000, 3);
    for layout in [&mirrored, &striped] {
        let file = cluster.make(layout.clone());
        file.write_at(0, &content).unwrap();
        file.sync().unwrap();
    }
    cluster.movers[0].0.stop().unwrap();
    let away = Terms1 { patience: Duration::from_millis(200), ..Terms1::default() };
    let file = cluster.open_but(mirrored, &BTreeSet::new(), &away);
    assert!(read(&file, 0, 300_000) == content);
    assert_eq!(file.length().unwrap(), 200_000);
    let file = cluster.open_but(striped, &BTreeSet::new(), &away);
    let error = file.read_at(0, &mut [0; 100]).unwrap_err();
    assert_eq!(error.class(), types::ErrorClass::Retry);
    assert!(error.to_string().contains("target 1"), "{error}");
    assert!(file.write_at(0, b"x").is_err());
    // What lies on the other one can still be had.
    assert!(read(&file, UNIT as usize, 100) == content[UNIT as usize..UNIT as usize + 100]);
}

#[test]
fn writers_of_ranges_that_do_not_overlap_do_not_disturb_each_other() {
    const RECORD: usize = 4700;
    const RECORDS: usize = 80;
    let cluster = Cluster::new(4);
    let layout = layouts(&cluster, 1);
    let made = cluster.make(layout.clone());
    std::thread::scope(|scope| {
        for writer in 0..3_usize {
            let file = cluster.open(layout.clone());
            scope.spawn(move || {
                for record in (writer..RECORDS).step_by(3) {
                    file.write_at((record * RECORD) as u64, &[record as u8; RECORD]).unwrap();
                }
            });
        }
    });
    let all = read(&made, 0, RECORD * RECORDS + 1);
    assert_eq!(all.len(), RECORD * RECORDS);
    for (record, bytes) in all.chunks(RECORD).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == record as u8), "record {record}");
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let coded = Redundancy::Coded { data: 2, parity: 1 };
    let component = |redundancy, columns: u32| Component {
        range: 0..u64::MAX,
        unit_bytes: UNIT,
        redundancy,
        base: ObjectId(1),
        targets: (1..=columns).map(TargetId).collect(),
    };
    let layout = |component| Layout { generation: 1, components: vec![component] };
    let large = Component { unit_bytes: 8 << 20, ..component(coded, 3) };
    let error = Striped::open_with(layout(large), vec![vec![None, None, None]], None).unwrap_err();
    assert!(error.to_string().contains("8388608"), "{error}");
    let error = Striped::open(layout(component(Redundancy::None, 2)), vec![vec![]]).unwrap_err();
    assert!(error.to_string().contains("2 columns"), "{error}");
    let more = vec![vec![None, None], vec![None]];
    let error = Striped::open_with(layout(component(Redundancy::None, 2)), more, None).unwrap_err();
    assert!(error.to_string().contains("component 1"), "{error}");
    let error = Striped::open(Layout { generation: 1, components: vec![] }, vec![]).unwrap_err();
    assert_eq!(error.class(), types::ErrorClass::Invalid);
}
