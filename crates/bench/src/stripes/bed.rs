//! Targets in memory, each with a mover of its own, and files over them.

use super::paced::pace;
use crate::place;
use anyhow::{Context, Result};
use data::frame::Op;
use data::{Ask, Capability, Channel, Link, Rights, TargetSecret, Terms};
use layout::{Component, Layout, Redundancy};
use mover::{Mover, Secrets, Target};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use stripe::{Column, Striped};
use tempfile::TempDir;
use types::{Ino, ObjectId, TargetId, Time};

const CLUSTER: [u8; 16] = *b"cluster of bench";
/// Bytes on their way on a connection, as clients have them.
const WINDOW: usize = 16 << 20;
/// File system in memory.
const MEMORY: &str = "/dev/shm";

/// A directory for so many bytes: in memory if there is enough, else in `dir`.
pub fn in_memory(dir: &Path, need: u64) -> Result<TempDir> {
    place::make(Path::new(MEMORY), need).or_else(|_| place::make(dir, need))
}

/// Movers with one target each.
pub struct Bed {
    movers: Vec<(Arc<Mover>, SocketAddr)>,
    /// Bytes per second of each target, in each direction of a connection.
    rate: Option<u32>,
    next: AtomicU64,
    _place: TempDir,
}

impl Bed {
    /// With room for `need` bytes on all targets together: in memory if there is enough, else in `dir`.
    pub fn start(dir: &Path, targets: u32, rate: Option<u32>, need: u64) -> Result<Self> {
        let place = in_memory(dir, need)?;
        let movers = (1..=targets).map(|number| serve(number, &place.path().join(number.to_string()), rate));
        let movers = movers.collect::<Result<_>>()?;
        Ok(Self { movers, rate, next: AtomicU64::new(1), _place: place })
    }

    /// Makes a file over `targets`.
    pub fn make(&self, targets: &[u32], unit_bytes: u32, redundancy: Redundancy) -> Result<Layout> {
        let targets = targets.iter().map(|n| TargetId(*n)).collect();
        let mut one = Component { range: 0..u64::MAX, unit_bytes, redundancy, base: ObjectId(1), targets };
        one.base = ObjectId(self.next.fetch_add(one.objects(), Ordering::Relaxed));
        for (object, column) in one.places() {
            let way = self.column(&one, one.targets[usize::from(column)])?;
            let ask = Ask { op: Op::Create, flags: 0, object: object.0, offset: 0, length: 1 };
            way.channel.call(&way.slot, ask, Vec::new())?;
        }
        Ok(Layout { generation: 1, components: vec![one] })
    }

    /// Opens a file as a client with a connection to each of its targets.
    pub fn open(&self, layout: &Layout) -> Result<Striped> {
        let columns = layout.components.iter().map(|one| {
            let ways = one.targets.iter().map(|target| self.column(one, *target));
            ways.collect::<Result<Vec<_>>>()
        });
        Ok(Striped::open(layout.clone(), columns.collect::<Result<_>>()?)?)
    }

    fn column(&self, component: &Component, target: TargetId) -> Result<Column> {
        let (address, rate) = (self.movers[target.0 as usize - 1].1, self.rate);
        let client = self.next.fetch_add(1, Ordering::Relaxed);
        let terms = Terms {
            mover: address.to_string(),
            client,
            channel: client,
            cluster: CLUSTER,
            patience: Duration::from_secs(60),
            window_bytes: WINDOW,
        };
        let dial = move || {
            let stream = TcpStream::connect(address)?;
            if let Some(rate) = rate {
                pace(&stream, rate).map_err(std::io::Error::other)?;
            }
            Link::tcp(stream)
        };
        let channel = Arc::new(Channel::open(Box::new(dial), terms)?);
        let capability = capability(component, target, client);
        let slot = channel.attach(&capability, secret(target.0).key(&capability.encode()))?;
        Ok(Column { channel, slot, target })
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for (mover, address) in &self.movers {
            // What is measured is thrown away; the thread that accepts wakes up by a connection.
            let _ = mover.stop();
            drop(TcpStream::connect(address));
        }
    }
}

fn serve(number: u32, dir: &Path, rate: Option<u32>) -> Result<(Arc<Mover>, SocketAddr)> {
    let target = Target::open(TargetId(number), CLUSTER, dir, Secrets::from([(1, secret(number))]))
        .with_context(|| format!("making a target in {}", dir.display()))?;
    let mover = Mover::new(CLUSTER, [Arc::new(target)], Box::new(now))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    if let Some(rate) = rate {
        pace(&listener, rate)?;
    }
    let address = listener.local_addr()?;
    let serving = mover.clone();
    std::thread::spawn(move || serving.listen_tcp(&listener));
    Ok((mover, address))
}

fn capability(component: &Component, target: TargetId, client: u64) -> Capability {
    Capability {
        epoch: 1,
        cluster: CLUSTER,
        target,
        file: Ino(5),
        objects: component.base.0..component.base.0 + component.objects(),
        generation: 1,
        rights: Rights::READ.and(Rights::WRITE).and(Rights::MANAGE),
        range: 0..u64::MAX,
        user: 0,
        client,
        issued: now(),
        expires: now().plus(Duration::from_secs(3600)),
    }
}

fn secret(target: u32) -> TargetSecret {
    TargetSecret::new(&[target as u8; 32])
}

fn now() -> Time {
    SystemTime::now().into()
}
