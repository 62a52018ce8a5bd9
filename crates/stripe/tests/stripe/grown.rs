//! Files with parity that have got more targets as they grew: what lies before and behind a border is what a plain model says, whichever columns are
//! lost, and what was in memory when they grew.

use crate::common::{Cluster, Step, Terms1, bytes, file_step, model_step, read, steps};
use layout::{Layout, Redundancy};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use stripe::{Room, StripeError, Striped};

/// Parts of a file: where each begins, its units of data, and their size (bytes); and how much parity they have.
type Parts = (&'static [(u64, u8, u32)], u8);

/// Borders at the end of a row, within one, and of parts that are shorter than one.
const CHOICES: [Parts; 4] = [
    (&[(0, 2, 4096), (40_960, 3, 4096)], 1),
    (&[(0, 2, 4096), (45_056, 4, 4096), (98_304, 2, 12_288)], 2),
    (&[(0, 2, 16_384), (4096, 3, 8192), (12_288, 3, 4096)], 3),
    (&[(0, 3, 12_288), (100_000, 2, 131_072)], 2),
];

fn layout(cluster: &Cluster, (parts, parity): Parts) -> Layout {
    let ends = parts.iter().skip(1).map(|part| part.0).chain([u64::MAX]);
    let components = parts.iter().zip(ends).map(|(&(from, data, unit), end)| {
        let redundancy = Redundancy::Coded { data, parity };
        cluster.component(from..end, unit, redundancy, u32::from(data) + u32::from(parity))
    });
    Layout { generation: 1, components: components.collect() }
}

/// The first parts.
fn head(whole: &Layout, parts: usize) -> Layout {
    Layout { components: whole.components[..parts].to_vec(), ..whole.clone() }
}

/// What the file has to reach to do this.
fn end(step: &Step) -> u64 {
    match step {
        Step::Write { offset, length, .. } if *length > 0 => (offset + length) as u64,
        Step::SetLength(length) => *length as u64,
        _ => 0,
    }
}

struct Grows<'a> {
    cluster: &'a Cluster,
    whole: Layout,
    /// Parts that it has.
    has: usize,
    lost: BTreeSet<u32>,
    room: Arc<Room>,
    file: Striped,
}

impl<'a> Grows<'a> {
    fn new(cluster: &'a Cluster, parts: Parts, room: u64) -> Self {
        let whole = layout(cluster, parts);
        let room = Arc::new(Room::new(room));
        let file = cluster.make(head(&whole, 1)).gathering(&room);
        Self { cluster, whole, has: 1, lost: BTreeSet::new(), room, file }
    }

    fn open(&self) -> Striped {
        self.cluster.open_but(head(&self.whole, self.has), &self.lost, &Terms1::default())
    }

    /// Gets its next part, as the node does it: nothing is in memory any more, the objects are made, and the file is opened with them.
    fn grow(&mut self) {
        self.file.flush().unwrap();
        let next = Layout { components: vec![self.whole.components[self.has].clone()], ..self.whole.clone() };
        self.cluster.every_object(&next, data::frame::Op::Create, 0, 1, &BTreeSet::new());
        self.has += 1;
        self.file = self.open().gathering(&self.room);
    }

    fn does(&mut self, model: &[u8], step: &Step, behind: bool) {
        loop {
            let done = match step {
                Step::Write { offset, length, seed } if behind => {
                    self.file.write_behind(*offset as u64, &bytes(*length, *seed))
                }
                step => file_step(&self.file, model, step),
            };
            match done {
                Err(StripeError::Beyond(there)) => {
                    assert!(there < end(step) && there == self.file.layout().end(), "{step:?}: {there}");
                    // It is as it was.
                    assert_eq!(self.file.length().unwrap(), model.len() as u64);
                    self.grow();
                }
                done => return done.unwrap(),
            }
        }
    }
}

#[test]
fn a_coded_file_that_grows_is_what_a_plain_model_says_with_columns_lost() {
    let cluster = Cluster::new(6);
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(choice in 0_usize..4, room in 0_usize..3, through in 0_u8..3, steps in steps(true))| {
        let parts = CHOICES[choice];
        let mut grows = Grows::new(&cluster, parts, [0, 50_000, 1 << 30][room]);
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            match &step {
                Step::Lose(n) if grows.lost.len() < usize::from(parts.1) => {
                    grows.file.sync().unwrap();
                    grows.lost.insert(n % 6 + 1);
                    grows.file = grows.open().gathering(&grows.room);
                }
                Step::Reopen => {
                    grows.file.flush().unwrap();
                    prop_assert!(read(&grows.open(), 0, 400_000) == model, "a reader elsewhere");
                    grows.file = grows.open().gathering(&grows.room);
                }
                _ => {}
            }
            let behind = !matches!(&step, Step::Write { seed, .. } if seed % 3 == through);
            grows.does(&model, &step, behind);
            model_step(&mut model, &step);
            prop_assert_eq!(grows.file.length().unwrap(), model.len() as u64, "{:?}", step);
            prop_assert!(read(&grows.file, 0, 400_000) == model, "{:?}", step);
        }
        grows.file.sync().unwrap();
        prop_assert!(read(&grows.open(), 0, 400_000) == model);
    });
}
