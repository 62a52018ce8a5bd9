//! Reading as long as nobody changes anything.

use crate::common::{Cluster, Terms1, UNIT, bytes, read};
use layout::{Layout, Redundancy};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use stripe::Striped;

const LENGTH: usize = 700_000;

/// Files of four columns of which something is in rows and, where there is one, something in the log; what is in them.
fn written(cluster: &Cluster) -> (Vec<Layout>, Vec<u8>) {
    let mirror = cluster.component(0..u64::MAX, 3 * UNIT, Redundancy::Mirror { copies: 2 }, 4);
    let layouts = vec![
        Layout { generation: 1, components: vec![mirror] },
        cluster.coded(3 * UNIT, 3, 1),
        cluster.coded(65_536, 2, 2),
    ];
    let mut model = bytes(LENGTH, 1);
    let late = bytes(50_000, 2);
    for layout in &layouts {
        let file = cluster.make(layout.clone());
        file.write_at(0, &model).unwrap();
        file.fold().unwrap();
        file.write_at(100_001, &late).unwrap();
        file.sync().unwrap();
    }
    model[100_001..150_001].copy_from_slice(&late);
    (layouts, model)
}

fn quiet(cluster: &Cluster, layout: &Layout, terms: &Terms1, but: &[u32]) -> Striped {
    cluster.open_but(layout.clone(), &but.iter().copied().collect(), terms).quiet()
}

#[test]
fn the_log_is_read_once_by_who_is_told_that_nobody_writes() {
    let cluster = Cluster::new(4);
    let (layouts, model) = written(&cluster);
    for layout in &layouts {
        for but in [&[][..], &[2]] {
            let budget = Some(Arc::new(AtomicI64::new(i64::MAX)));
            let terms = Terms1 { budget, ..Terms1::default() };
            let reader = quiet(&cluster, layout, &terms, but);
            assert!(read(&reader, 0, LENGTH + 10) == model, "without {but:?}");
            let first = std::mem::take(&mut *terms.sent.lock().unwrap()).len();
            assert!(read(&reader, 0, LENGTH) == model, "without {but:?}");
            let component = &layout.components[0];
            let columns = component.base.0..component.base.0 + component.targets.len() as u64;
            let sent = terms.sent.lock().unwrap();
            let to_journals = sent.iter().filter(|(_, object)| !columns.contains(&object.0)).count();
            assert!(!sent.is_empty() && sent.len() <= first);
            if but.is_empty() {
                assert_eq!(to_journals, 0, "the log is asked for again");
            }
        }
    }
}

#[test]
fn a_mover_that_was_waited_for_in_vain_is_not_asked_again() {
    let cluster = Cluster::new(4);
    let (layouts, model) = written(&cluster);
    let terms = Terms1 { patience: Duration::from_millis(300), ..Terms1::default() };
    let open = |layout: &Layout| cluster.open_but(layout.clone(), &BTreeSet::new(), &terms);
    let all: Vec<[Striped; 2]> = layouts.iter().map(|layout| [open(layout).quiet(), open(layout)]).collect();
    // One has looked before, the others have not.
    assert!(read(&all[1][0], 0, LENGTH) == model);
    cluster.movers[0].0.stop().unwrap();
    drop(std::net::TcpStream::connect(cluster.movers[0].1));
    for [reader, other] in &all {
        assert!(read(reader, 0, LENGTH) == model && read(other, 0, 20_000) == model[..20_000]);
        assert!(!reader.is_whole(), "it is asked again and again");
        assert!(other.is_whole(), "somebody may write there");
        assert!(read(reader, 90_000, 70_000) == model[90_000..160_000]);
    }
    // Too few are left to read without another one: who asks is told so each time.
    cluster.movers[1].0.stop().unwrap();
    drop(std::net::TcpStream::connect(cluster.movers[1].1));
    let [reader, _] = &all[1];
    let mut buffer = vec![0; LENGTH];
    for _ in 0..2 {
        assert!(reader.read_at(0, &mut buffer).is_err());
    }
}
