//! Files over several movers are what a plain model says, in every layout.

use data::frame::Op;
use data::{Ask, Capability, Channel, Link, Rights, TargetSecret, Terms};
use layout::{Component, Layout, Redundancy};
use mover::{Mover, Secrets, Target};
use proptest::prelude::*;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use stripe::{Column, Striped};
use types::{Ino, ObjectId, TargetId, Time};

const CLUSTER: [u8; 16] = *b"cluster of tests";
const PATIENCE: Duration = Duration::from_secs(180);
const UNIT: u32 = 4096;

/// Movers with one target each.
struct Cluster {
    movers: Vec<(Arc<Mover>, SocketAddr)>,
    _dirs: Vec<tempfile::TempDir>,
    objects: AtomicU64,
    channels: AtomicU64,
}

impl Cluster {
    fn new(count: u32) -> Self {
        let dirs: Vec<_> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let movers = (1..=count)
            .zip(&dirs)
            .map(|(number, dir)| {
                let secrets = Secrets::from([(1, secret(number))]);
                let target = Target::open(TargetId(number), CLUSTER, dir.path(), secrets).unwrap();
                let mover = Mover::new(CLUSTER, [Arc::new(target)], Box::new(now)).unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let serving = mover.clone();
                std::thread::spawn(move || serving.listen_tcp(&listener));
                (mover, address)
            })
            .collect();
        Self { movers, _dirs: dirs, objects: AtomicU64::new(1), channels: AtomicU64::new(1) }
    }

    /// Object numbers for a new component.
    fn base(&self, columns: usize) -> ObjectId {
        ObjectId(self.objects.fetch_add(columns as u64, Ordering::Relaxed))
    }

    fn column(&self, target: TargetId, object: ObjectId, patience: Duration) -> Column {
        let address = self.movers[target.0 as usize - 1].1;
        let terms = Terms {
            mover: address.to_string(),
            client: 1,
            channel: self.channels.fetch_add(1, Ordering::Relaxed),
            cluster: CLUSTER,
            patience,
            window_bytes: 4 << 20,
        };
        let channel =
            Channel::open(Box::new(move || Link::tcp(TcpStream::connect(address)?)), terms).unwrap();
        let capability = Capability {
            epoch: 1,
            cluster: CLUSTER,
            target,
            file: Ino(5),
            objects: object.0..object.0 + 1,
            generation: 1,
            rights: Rights::READ.and(Rights::WRITE).and(Rights::MANAGE),
            range: 0..u64::MAX,
            user: 0,
            client: 1,
            issued: now(),
            expires: now().plus(Duration::from_secs(3600)),
        };
        let slot = channel.attach(&capability, secret(target.0).key(&capability.encode())).unwrap();
        Column { channel: Arc::new(channel), slot }
    }

    /// Makes the objects of a new file and opens it.
    fn make(&self, layout: Layout) -> Striped {
        let striped = self.open(layout, &|_| PATIENCE);
        for component in &striped.layout().components {
            for (number, target) in component.targets.iter().enumerate() {
                let object = component.object(number as u16);
                let ask = Ask { op: Op::Create, flags: 0, object: object.0, offset: 0, length: 1 };
                let column = self.column(*target, object, PATIENCE);
                column.channel.call(&column.slot, ask, vec![]).unwrap();
            }
        }
        striped
    }

    fn open(&self, layout: Layout, patience: &dyn Fn(TargetId) -> Duration) -> Striped {
        let columns = layout
            .components
            .iter()
            .map(|component| {
                let numbered = component.targets.iter().enumerate();
                numbered
                    .map(|(n, target)| self.column(*target, component.object(n as u16), patience(*target)))
                    .collect()
            })
            .collect();
        Striped::open(layout, columns).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (mover, address) in &self.movers {
            let _ = mover.stop();
            drop(TcpStream::connect(address));
        }
    }
}

fn secret(target: u32) -> TargetSecret {
    TargetSecret::new(&[target as u8; 32])
}

fn now() -> Time {
    SystemTime::now().into()
}

fn component(
    cluster: &Cluster,
    range: std::ops::Range<u64>,
    unit_bytes: u32,
    redundancy: Redundancy,
    columns: u32,
) -> Component {
    let base = cluster.base(columns as usize);
    Component { range, unit_bytes, redundancy, base, targets: (1..=columns).map(TargetId).collect() }
}

fn layouts(cluster: &Cluster, choice: usize) -> Layout {
    let all = 0..u64::MAX;
    let mirror = Redundancy::Mirror { copies: 2 };
    let components = match choice {
        0 => vec![component(cluster, all, UNIT, Redundancy::None, 1)],
        1 => vec![component(cluster, all, UNIT, Redundancy::None, 3)],
        2 => vec![component(cluster, all, 65_536, Redundancy::None, 4)],
        3 => vec![component(cluster, all, UNIT, mirror, 2)],
        4 => vec![component(cluster, all, 3 * UNIT, mirror, 4)],
        _ => vec![
            component(cluster, 0..10_000, UNIT, mirror, 2),
            component(cluster, 10_000..90_000, 2 * UNIT, Redundancy::None, 2),
            component(cluster, 90_000..u64::MAX, UNIT, Redundancy::None, 4),
        ],
    };
    Layout { generation: 1, components }
}

#[derive(Clone, Debug)]
enum Step {
    Write { offset: usize, length: usize, seed: u8 },
    SetLength(usize),
    Read { offset: usize, length: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || prop_oneof![0_usize..150_000, (0_usize..40).prop_map(|n| n * UNIT as usize)];
    let length = || prop_oneof![0_usize..100, Just(UNIT as usize), 1_usize..100_000];
    let step = prop_oneof![
        4 => (place(), length(), any::<u8>()).prop_map(|(offset, length, seed)| Step::Write { offset, length, seed }),
        1 => place().prop_map(Step::SetLength),
        4 => (place(), length()).prop_map(|(offset, length)| Step::Read { offset, length }),
    ];
    proptest::collection::vec(step, 1..20)
}

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n as u8).wrapping_mul(37).wrapping_add(seed) ^ (n >> 8) as u8).collect()
}

fn read(file: &Striped, offset: usize, length: usize) -> Vec<u8> {
    // What was there before must not be taken for what was read.
    let mut buffer = vec![0xee; length];
    let got = file.read_at(offset as u64, &mut buffer).unwrap();
    buffer.truncate(got);
    buffer
}

#[test]
fn a_striped_file_is_what_a_plain_model_says() {
    let cluster = Cluster::new(4);
    let config = ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(choice in 0_usize..6, steps in steps())| {
        let file = cluster.make(layouts(&cluster, choice));
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            match step {
                Step::Write { offset, length, seed } => {
                    let new = bytes(length, seed);
                    file.write_at(offset as u64, &new).unwrap();
                    if length > 0 {
                        model.resize(model.len().max(offset + length), 0);
                        model[offset..offset + length].copy_from_slice(&new);
                    }
                }
                Step::SetLength(length) => {
                    file.set_length(length as u64).unwrap();
                    model.resize(length, 0);
                }
                Step::Read { offset, length } => {
                    let expected = &model[offset.min(model.len())..(offset + length).min(model.len())];
                    prop_assert!(read(&file, offset, length) == expected);
                }
            }
            prop_assert_eq!(file.length().unwrap(), model.len() as u64);
        }
        file.sync().unwrap();
        prop_assert!(read(&file, 0, 400_000) == model);
    });
}

#[test]
fn mirrors_are_read_while_a_mover_is_away_and_stripes_say_which_one_is() {
    let cluster = Cluster::new(2);
    let mirrored = layouts(&cluster, 3);
    let striped = Layout {
        generation: 1,
        components: vec![component(&cluster, 0..u64::MAX, UNIT, Redundancy::None, 2)],
    };
    let content = bytes(200_000, 3);
    for layout in [&mirrored, &striped] {
        let file = cluster.make(layout.clone());
        file.write_at(0, &content).unwrap();
        file.sync().unwrap();
    }
    cluster.movers[0].0.stop().unwrap();
    let patience = |target: TargetId| if target.0 == 1 { Duration::from_millis(200) } else { PATIENCE };
    let file = cluster.open(mirrored, &patience);
    assert!(read(&file, 0, 300_000) == content);
    assert_eq!(file.length().unwrap(), 200_000);
    let file = cluster.open(striped, &patience);
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
            let file = cluster.open(layout.clone(), &|_| PATIENCE);
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
    let error = Striped::open(layout(component(coded, 3)), vec![vec![]]).unwrap_err();
    assert!(error.to_string().contains("coded"), "{error}");
    let error = Striped::open(layout(component(Redundancy::None, 2)), vec![vec![]]).unwrap_err();
    assert!(error.to_string().contains("2 columns"), "{error}");
    let error = Striped::open(Layout { generation: 1, components: vec![] }, vec![]).unwrap_err();
    assert_eq!(error.class(), types::ErrorClass::Invalid);
}
