//! Tests of open files over machines that lose power: what an fsync says of what was sent before, and what becomes of what is written behind that.

use super::behind::Writer;
use super::far::{FarFile, Place};
use data::{Capability, Channel, Incoming, Link, Outgoing, Rights, TargetSecret, Terms};
use layout::{Component, Layout, Redundancy};
use mover::{Mover, Secrets, Target};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stripe::{Column, Room, Striped};
use types::api::FsResult;
use types::*;

const CLUSTER: [u8; 16] = *b"cluster of tests";
const UNIT: usize = 4096;
const ROW: usize = 2 * UNIT;
/// Bytes of a write.
const LENGTH: usize = 1000;

/// Counts how often a machine was started: connections from before are dead, which is noticed when something is sent.
type Starts = Arc<AtomicU64>;

/// A connection to a machine as it was started.
struct Wire {
    starts: Starts,
    then: u64,
    link: Link,
}

impl Wire {
    fn cut(self) -> Link {
        let Link { incoming, outgoing, hang_up } = self.link;
        let outgoing = Box::new(Sends { starts: self.starts, then: self.then, out: outgoing });
        Link { incoming: Box::new(Says { then: self.then, incoming }), outgoing, hang_up }
    }
}

struct Sends {
    starts: Starts,
    then: u64,
    out: Box<dyn Outgoing>,
}

impl Outgoing for Sends {
    fn send(&mut self, parts: &[&[u8]], more: bool) -> std::io::Result<()> {
        match self.starts.load(Ordering::SeqCst) == self.then {
            true => self.out.send(parts, more),
            false => Err(std::io::Error::other("the machine was started anew")),
        }
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> std::io::Result<()> {
        self.out.send_file(file, offset, length)
    }

    fn pass(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> std::io::Result<()> {
        self.out.pass(bytes, descriptor)
    }

    fn finish(&mut self) {
        self.out.finish();
    }

    fn is_local(&self) -> bool {
        false
    }
}

struct Says {
    then: u64,
    incoming: Box<dyn Incoming>,
}

impl Incoming for Says {
    fn receive(&mut self, into: &mut [u8]) -> std::io::Result<()> {
        self.incoming.receive(into)?;
        if into.len() == data::hello::HELLO_LEN && into.starts_with(b"THERMOD") {
            into[16..24].copy_from_slice(&(100 + self.then).to_le_bytes());
        }
        Ok(())
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        self.incoming.descriptor()
    }

    fn has_ended(&mut self) -> bool {
        self.incoming.has_ended()
    }

    fn set_patience(&mut self, patience: Option<Duration>) -> std::io::Result<()> {
        self.incoming.set_patience(patience)
    }
}

/// Machines with one target each, and a file with two units of data and one of parity per row over them.
struct Bed {
    machines: Vec<(Starts, Arc<Mover>, SocketAddr, tempfile::TempDir)>,
    file: FarFile,
    /// The same for later ones.
    others: Vec<Striped>,
}

impl Bed {
    fn new() -> Self {
        let machines: Vec<_> = (1..=3).map(machine).collect();
        let component = Component {
            range: 0..u64::MAX,
            unit_bytes: UNIT as u32,
            redundancy: Redundancy::Coded { data: 2, parity: 1 },
            base: ObjectId(1),
            targets: (1..=3).map(TargetId).collect(),
        };
        let of = component.targets.iter().zip(&machines);
        let columns =
            of.map(|(target, (starts, _, address, _))| column(&component, *target, starts, *address));
        let columns: Vec<Column> = columns.collect();
        let others = [columns.clone(), columns.clone()];
        for (object, column) in component.places() {
            let Column { channel, slot, .. } = &columns[usize::from(column)];
            let ask =
                data::Ask { op: data::frame::Op::Create, flags: 0, object: object.0, offset: 0, length: 1 };
            channel.call(slot, ask, Vec::new()).unwrap();
        }
        let layout = Layout { generation: 1, components: vec![component] };
        let others = others.map(|columns| Striped::open(layout.clone(), vec![columns]).unwrap()).into();
        let striped = Striped::open(layout, vec![columns]).unwrap().gathering(&Arc::new(Room::new(1 << 20)));
        let place = Place { striped: Arc::new(striped), decider: None };
        Self { machines, others, file: FarFile::new(Ino(7), place, ObjectStamp::default()) }
    }

    fn write(&self, offset: usize) -> FsResult<()> {
        write(&self.file, offset)
    }

    /// What the disks of all machines have.
    fn disks(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut dirs: Vec<PathBuf> = self
            .machines
            .iter()
            .flat_map(|(.., dir)| ["objects", "sums"].map(|kind| dir.path().join(kind)))
            .collect();
        let mut files = Vec::new();
        while let Some(dir) = dirs.pop() {
            for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                match path.is_dir() {
                    true => dirs.push(path),
                    false => files.push((path.clone(), std::fs::read(path).unwrap())),
                }
            }
        }
        files
    }

    /// All machines lose power, and have what was on their disks.
    fn lose_power(&self, disks: &[(PathBuf, Vec<u8>)]) {
        disks.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        for (starts, ..) in &self.machines {
            starts.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for (_, mover, address, _) in &self.machines {
            let _ = mover.stop();
            drop(TcpStream::connect(address));
        }
    }
}

fn write(file: &FarFile, offset: usize) -> FsResult<()> {
    file.write(offset as u64, &[7; LENGTH], false, Writer::Here).map(drop)
}

fn machine(number: u32) -> (Starts, Arc<Mover>, SocketAddr, tempfile::TempDir) {
    // Where syncs cost nothing, if there is such a place.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let secrets = Secrets::from([(1, TargetSecret::new(&[1; 32]))]);
    let target = Arc::new(Target::open(TargetId(number), CLUSTER, dir.path(), secrets).unwrap());
    let mover = Mover::new(CLUSTER, [target], Box::new(crate::now)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = mover.clone();
    std::thread::spawn(move || serving.listen_tcp(&listener));
    (Starts::default(), mover, address, dir)
}

fn column(component: &Component, target: TargetId, starts: &Starts, address: SocketAddr) -> Column {
    let starts = starts.clone();
    let dial = move || {
        let then = starts.load(Ordering::SeqCst);
        let link = Link::tcp(TcpStream::connect(address)?)?;
        Ok(Wire { starts: starts.clone(), then, link }.cut())
    };
    let terms = Terms {
        mover: address.to_string(),
        client: 1,
        channel: u64::from(target.0),
        cluster: CLUSTER,
        patience: Duration::from_secs(60),
        window_bytes: 4 << 20,
    };
    let channel = Channel::open(Box::new(dial), terms).unwrap();
    let capability = Capability {
        epoch: 1,
        cluster: CLUSTER,
        target,
        file: Ino(7),
        objects: component.base.0..component.base.0 + component.objects(),
        generation: 1,
        rights: Rights::READ.and(Rights::WRITE).and(Rights::MANAGE),
        range: 0..u64::MAX,
        user: 0,
        client: 1,
        issued: crate::now(),
        expires: crate::now().plus(Duration::from_secs(3600)),
    };
    let key = TargetSecret::new(&[1; 32]).key(&capability.encode());
    let slot = channel.attach(&capability, key).unwrap();
    Column { channel: Arc::new(channel), slot, target }
}

#[test]
fn what_is_written_after_all_machines_lost_power_is_not_behind_what_they_lost() {
    for synced_before in [true, false] {
        let mut bed = Bed::new();
        let created = bed.disks();
        bed.write(0).unwrap();
        let disks = match synced_before {
            true => {
                bed.file.sync().unwrap();
                bed.disks()
            }
            false => created,
        };
        bed.write(3 * ROW).unwrap();
        bed.file.flush().unwrap();
        bed.lose_power(&disks);
        // Whoever has it open is told, each time.
        for _ in 0..2 {
            assert_eq!(bed.file.sync(), Err(FsError::Io));
            assert_eq!(bed.write(5 * ROW), Err(FsError::Io));
        }
        // Who opens it when all have closed it finds what is there.
        let place = Place { striped: Arc::new(bed.others.pop().unwrap()), decider: None };
        let again = FarFile::new(Ino(7), place, ObjectStamp::default());
        for at in [0, 3 * ROW] {
            write(&again, at).unwrap();
            again.sync().unwrap();
        }
        // The node dies.
        let last = bed.others.pop().unwrap();
        last.fold().unwrap();
        for at in [0, 3 * ROW] {
            let mut bytes = vec![0; LENGTH];
            last.read_at(at as u64, &mut bytes).unwrap();
            assert!(bytes == [7; LENGTH], "{synced_before} {at}");
        }
    }
}

#[test]
fn who_syncs_beside_a_write_that_is_under_way_forgets_no_machine_that_it_is_at() {
    for beside in [false, true] {
        let bed = Bed::new();
        bed.write(0).unwrap();
        // Another one has written at a machine, and waits for the next.
        bed.file.under_way.fetch_add(beside.into(), Ordering::AcqRel);
        bed.file.sync().unwrap();
        let known = bed.file.machines.known().iter().any(|start| *start != 0);
        assert_eq!(known, beside);
    }
}
