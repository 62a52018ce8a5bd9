//! A mover with one target on a socket of this machine, and clients of it.
#![allow(dead_code)]

use data::{Ask, Capability, CapabilityKey, Channel, Link, Rights, Slot, TargetSecret, Terms, frame::Op};
use mover::{Mover, Secrets, Target};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use types::{Ino, TargetId, Time};

pub const CLUSTER: [u8; 16] = *b"cluster of tests";
pub const TARGET: TargetId = TargetId(3);
pub const EPOCH: u32 = 1;
/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub fn secret() -> TargetSecret {
    TargetSecret::new(&[7; 32])
}

pub fn now() -> Time {
    SystemTime::now().into()
}

/// Everything, for an hour.
pub fn capability(client: u64) -> Capability {
    Capability {
        epoch: EPOCH,
        cluster: CLUSTER,
        target: TARGET,
        file: Ino(77),
        objects: 0..u64::MAX,
        generation: 1,
        rights: Rights::READ.and(Rights::WRITE).and(Rights::MANAGE),
        range: 0..u64::MAX,
        user: 1000,
        client,
        issued: now(),
        expires: now().plus(Duration::from_secs(3600)),
    }
}

pub fn key(capability: &Capability) -> CapabilityKey {
    secret().key(&capability.encode())
}

pub struct Served {
    pub mover: Arc<Mover>,
    pub address: SocketAddr,
    pub target: Arc<Target>,
    /// Ends the loop that accepts.
    listener: TcpListener,
    near: Mutex<Vec<UnixListener>>,
}

impl Served {
    pub fn new(dir: &Path) -> Self {
        Self::of(TARGET, dir)
    }

    /// A mover of this target.
    pub fn of(target: TargetId, dir: &Path) -> Self {
        let target = Target::open(target, CLUSTER, dir, Secrets::from([(EPOCH, secret())])).unwrap();
        let target = Arc::new(target);
        let mover = Mover::new(CLUSTER, [target.clone()], Box::new(now)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (serving, accepting) = (mover.clone(), listener.try_clone().unwrap());
        std::thread::spawn(move || serving.listen_tcp(&accepting).unwrap());
        Self { mover, address, target, listener, near: Mutex::default() }
    }

    pub fn channel(&self, client: u64, channel: u64) -> Channel {
        self::channel(self.address, client, channel)
    }

    /// Listens at this socket too.
    pub fn listen_near(&self, socket: &Path) {
        let (serving, listener) = (self.mover.clone(), UnixListener::bind(socket).unwrap());
        self.near.lock().unwrap().push(listener.try_clone().unwrap());
        std::thread::spawn(move || serving.listen_unix(&listener));
    }

    /// A channel that goes within this host if somebody listens at this socket.
    pub fn near(&self, socket: &Path, client: u64, channel: u64) -> Channel {
        let (socket, address) = (socket.to_owned(), self.address);
        let terms = terms(address.to_string(), client, channel);
        let near = Box::new(move || Link::near(&socket, |descriptor| descriptor));
        let dial = Box::new(move || Link::tcp(TcpStream::connect(address)?));
        Channel::open_near(Some(near), dial, terms).unwrap()
    }

    /// Ends in order; the target may be opened again.
    pub fn stop(self) {
        self.mover.stop().unwrap();
        self.leave();
    }

    fn leave(self) {
        // Whoever accepts wakes up by this, and finds that the mover stops.
        drop(TcpStream::connect(self.address));
        drop(self.listener);
        let Self { mover, target, near, .. } = self;
        for listener in near.into_inner().unwrap() {
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        }
        drop(target);
        let until = std::time::Instant::now() + PATIENCE;
        while Arc::strong_count(&mover) > 1 {
            assert!(std::time::Instant::now() < until, "the mover does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub fn channel(address: SocketAddr, client: u64, channel: u64) -> Channel {
    let terms = terms(address.to_string(), client, channel);
    Channel::open(Box::new(move || Link::tcp(TcpStream::connect(address)?)), terms).unwrap()
}

pub fn terms(mover: String, client: u64, channel: u64) -> Terms {
    Terms { mover, client, channel, cluster: CLUSTER, patience: PATIENCE, window_bytes: 4 << 20 }
}

pub fn ask(op: Op, object: u64, offset: u64, length: u64) -> Ask {
    Ask { op, flags: 0, object, offset, length }
}

pub fn create(channel: &Channel, slot: &Slot, objects: Range<u64>) {
    channel.call(slot, ask(Op::Create, objects.start, 0, objects.end - objects.start), vec![]).unwrap();
}

pub fn write(channel: &Channel, slot: &Slot, object: u64, offset: u64, bytes: &[u8]) -> u64 {
    let ask = ask(Op::Write, object, offset, bytes.len() as u64);
    channel.call(slot, ask, bytes.to_vec()).unwrap().object_length
}

pub fn read(channel: &Channel, slot: &Slot, object: u64, offset: u64, length: u64) -> Vec<u8> {
    channel.call(slot, ask(Op::Read, object, offset, length), vec![]).unwrap().bytes
}

/// Where the mover keeps an object.
pub fn path(dir: &Path, object: u64) -> std::path::PathBuf {
    dir.join(format!("objects/{:02x}/{object:016x}", (object >> 8) as u8))
}
