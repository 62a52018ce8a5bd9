//! Bytes of objects between a client and a mover over the loopback interface, measured by what the network and the disk give without
//! any of it.

use crate::{Figure, Plan, Target, place};
use anyhow::{Context, Result, ensure};
use data::frame::Op;
use data::{Ask, Capability, Channel, Dial, Link, Rights, Slot, TargetSecret, Terms};
use mover::{Mover, Secrets};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use types::{Ino, TargetId, Time};

/// Bytes of a request.
const PIECE: usize = 1 << 20;
/// Connections of the client.
const CHANNELS: u64 = 4;
/// Requests on their way on each of them.
const DEPTH: usize = 4;
/// What is left to the file system (bytes).
const SPARE: u64 = 64 << 20;
/// Bytes of one write to a socket as iperf3 makes them.
const PUMPED: usize = 128 << 10;
const CLUSTER: [u8; 16] = *b"cluster of bench";
const TARGET: TargetId = TargetId(1);

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let pieces = plan.amount(128, 1024);
    let mib = (pieces * PIECE as u64) >> 20;
    let peer = "÷ the lower of a bare TCP stream and the file itself";
    let mut write =
        Figure::new(format!("movers: {mib} MiB written and synced {peer}"), "", Target::AtLeast(0.9));
    let mut read =
        Figure::new(format!("movers: {mib} MiB read from memory {peer}"), "", Target::AtLeast(0.9));
    let mut small =
        Figure::new("movers: 4 KiB read, one at a time, ÷ a bare exchange over TCP", "", Target::None);
    let held_peer = "read by a descriptor of the object, on the host of its mover, ÷";
    let mut held = Figure::new(format!("movers: {mib} MiB {held_peer} the same over TCP"), "×", Target::None);
    let mut held_bare =
        Figure::new(format!("movers: {mib} MiB {held_peer} the file itself"), "", Target::None);
    let mut stream =
        Figure::new("movers: a bare TCP stream over the loopback interface", "MB/s", Target::None);
    for round in 0..plan.rounds {
        told(&format!("movers: {mib} MiB to and from a target, round {}", round + 1));
        let place = place::make(&plan.dir, 2 * pieces * PIECE as u64 + SPARE)?;
        let network = pump(pieces)?;
        let bed = Bed::start(&place.path().join("target"))?;
        // Each first by turns: what one leaves to the disk the other would pay for.
        let alone = || bare(&place.path().join("bare"), pieces);
        let served = || -> Result<[f64; 3]> {
            Ok([bed.write(pieces)?, bed.read(&bed.channels, pieces)?, bed.read(&bed.near, pieces)?])
        };
        let first = (round % 2 == 1).then(served).transpose()?;
        let (disk_write, disk_read) = alone()?;
        let [written, fetched, by_descriptor] = first.map_or_else(served, Ok)?;
        bed.has_held(pieces)?;
        let exchange = bed.small()?;
        let rate = |seconds: f64| (pieces * PIECE as u64) as f64 / seconds;
        stream.values.push(rate(network) / 1e6);
        write.values.push(rate(written) / rate(network).min(rate(disk_write)));
        read.values.push(rate(fetched) / rate(network).min(rate(disk_read)));
        held.values.push(fetched / by_descriptor);
        held_bare.values.push(disk_read / by_descriptor);
        small.values.push(ping()? / exchange);
    }
    write.note = format!(
        "requests of {} MiB over {CHANNELS} connections, each block summed by client and mover; the file: the same writes with one \
         fdatasync at the end",
        PIECE >> 20
    );
    read.note = "sums are compared by the client; the mover sends from the page cache (sendfile)".to_owned();
    held.note = format!(
        "requests of {} MiB over {CHANNELS} connections each: over a socket of the host, where only sums come, and over TCP; both compared by the client",
        PIECE >> 20
    );
    stream.note = format!("one connection, writes of {} KiB", PUMPED >> 10);
    Ok(vec![write, read, held, held_bare, small, stream])
}

/// Seconds that a bare stream takes for the same bytes.
fn pump(pieces: u64) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = TcpStream::connect(listener.local_addr()?)?;
    let (mut from, _) = listener.accept()?;
    let total = pieces as usize * PIECE;
    let begun = Instant::now();
    let sink = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut buffer, mut got) = (vec![0; PUMPED], 0);
        while got < total {
            got += from.read(&mut buffer)?;
        }
        Ok(())
    });
    let block = vec![0x5a; PUMPED];
    for _ in 0..total / PUMPED {
        out.write_all(&block)?;
    }
    sink.join().ok().context("the receiving thread ended early")??;
    Ok(begun.elapsed().as_secs_f64())
}

/// Seconds of an exchange of a header and 4 KiB.
fn ping() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    const TIMES: usize = 5000;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let mut asked = [0; data::frame::REQUEST_LEN];
        for _ in 0..TIMES {
            server.read_exact(&mut asked)?;
            server.write_all(&[0; 4096])?;
        }
        Ok(())
    });
    let (begun, mut answer) = (Instant::now(), [0; 4096]);
    for _ in 0..TIMES {
        client.write_all(&[0; data::frame::REQUEST_LEN])?;
        client.read_exact(&mut answer)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    echo.join().ok().context("the answering thread ended early")??;
    Ok(seconds / TIMES as f64)
}

/// Seconds to write and sync, and to read from memory, the same bytes in a plain file. It stays: a disk would still free its room while something else is
/// measured.
fn bare(path: &Path, pieces: u64) -> Result<(f64, f64)> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    let mut buffer = piece(0);
    let begun = Instant::now();
    for number in 0..pieces {
        file.write_all_at(&buffer, number * PIECE as u64)?;
    }
    file.sync_data()?;
    let written = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for number in 0..pieces {
        file.read_exact_at(&mut buffer, number * PIECE as u64)?;
    }
    Ok((written, begun.elapsed().as_secs_f64()))
}

fn piece(number: u64) -> Vec<u8> {
    (0..PIECE as u64).map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(number) >> 7) as u8).collect()
}

/// A mover with one target and a client of it.
struct Bed {
    mover: Arc<Mover>,
    address: SocketAddr,
    channels: Vec<(Channel, Slot)>,
    /// The same within this host.
    near: Vec<(Channel, Slot)>,
    listener: UnixListener,
}

impl Bed {
    fn start(dir: &Path) -> Result<Self> {
        let secret = TargetSecret::new(&[1; 32]);
        let target = mover::Target::open(TARGET, CLUSTER, dir, Secrets::from([(1, secret.clone())]))?;
        let mover = Mover::new(CLUSTER, [Arc::new(target)], Box::new(|| SystemTime::now().into()))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let serving = mover.clone();
        std::thread::spawn(move || serving.listen_tcp(&listener));
        let capability = capability();
        let key = secret.key(&capability.encode());
        let socket = dir.join("socket");
        let (listener, serving) = (UnixListener::bind(&socket)?, mover.clone());
        let accepting = listener.try_clone()?;
        std::thread::spawn(move || serving.listen_unix(&accepting));
        let open = |numbers: std::ops::Range<u64>, near: bool| {
            let one = |number| {
                let terms = Terms {
                    mover: address.to_string(),
                    client: 1,
                    channel: number,
                    cluster: CLUSTER,
                    patience: Duration::from_secs(60),
                    window_bytes: DEPTH * PIECE,
                };
                let socket = socket.clone();
                let beside: Dial = Box::new(move || Link::near(&socket, |descriptor| descriptor));
                let dial = Box::new(move || Link::tcp(TcpStream::connect(address)?));
                let channel = Channel::open_near(near.then_some(beside), dial, terms)?;
                let slot = channel.attach(&capability, key.clone())?;
                Ok((channel, slot))
            };
            numbers.map(one).collect::<Result<Vec<_>>>()
        };
        let (channels, near) = (open(0..CHANNELS, false)?, open(CHANNELS..2 * CHANNELS, true)?);
        let (channel, slot) = channels.first().context("no channel")?;
        channel.call(slot, ask(Op::Create, 0, 1), Vec::new())?;
        Ok(Self { mover, address, channels, near, listener })
    }

    /// Seconds until everything is written and synced.
    fn write(&self, pieces: u64) -> Result<f64> {
        let bytes = piece(0);
        let begun = Instant::now();
        self.all(&self.channels, pieces, |channel, slot, number, buffer| {
            let mut buffer = buffer.unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(&bytes);
            channel.submit(slot, ask(Op::Write, number * PIECE as u64, PIECE as u64), buffer)
        })?;
        let (channel, slot) = &self.channels[0];
        channel.call(slot, ask(Op::Sync, 0, 0), Vec::new())?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Whether most of them were read by one; not the first few, as there was none yet, and none that the machine had put out of its memory.
    fn has_held(&self, pieces: u64) -> Result<()> {
        let held = self.mover.held_reads();
        ensure!(held * 2 >= pieces, "{held} of {pieces} reads were by descriptors");
        Ok(())
    }

    /// Seconds until everything is read.
    fn read(&self, channels: &[(Channel, Slot)], pieces: u64) -> Result<f64> {
        let begun = Instant::now();
        self.all(channels, pieces, |channel, slot, number, buffer| {
            channel.submit(
                slot,
                ask(Op::Read, number * PIECE as u64, PIECE as u64),
                buffer.unwrap_or_default(),
            )
        })?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Asks for each piece, those of a channel by a thread of its own.
    fn all(
        &self,
        channels: &[(Channel, Slot)],
        pieces: u64,
        ask: impl Fn(&Channel, &Slot, u64, Option<Vec<u8>>) -> data::Result<data::Ticket> + Sync,
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(channels)
                .map(|(first, (channel, slot))| {
                    let ask = &ask;
                    scope.spawn(move || -> Result<()> {
                        let mut waiting = VecDeque::new();
                        for number in (first..pieces).step_by(CHANNELS as usize) {
                            let buffer = match waiting.len() {
                                DEPTH => waiting.pop_front().map(data::Ticket::wait).transpose()?,
                                _ => None,
                            };
                            waiting.push_back(ask(channel, slot, number, buffer.map(|reply| reply.bytes))?);
                        }
                        Ok(waiting.into_iter().try_for_each(|ticket| ticket.wait().map(drop))?)
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().ok().context("a client ended early")?)
        })
    }

    /// Seconds of one small read.
    fn small(&self) -> Result<f64> {
        const TIMES: u64 = 5000;
        let (channel, slot) = &self.channels[0];
        let begun = Instant::now();
        for number in 0..TIMES {
            channel.call(slot, ask(Op::Read, number % 256 * 4096, 4096), Vec::new())?;
        }
        Ok(begun.elapsed().as_secs_f64() / TIMES as f64)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.channels.clear();
        self.near.clear();
        // What is measured is thrown away; the thread that accepts wakes up by a connection.
        let _ = self.mover.stop();
        drop(TcpStream::connect(self.address));
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn ask(op: Op, offset: u64, length: u64) -> Ask {
    Ask { op, flags: 0, object: 1, offset, length }
}

fn capability() -> Capability {
    let now = Time::from(SystemTime::now());
    Capability {
        epoch: 1,
        cluster: CLUSTER,
        target: TARGET,
        file: Ino(1),
        objects: 0..u64::MAX,
        generation: 1,
        rights: Rights::READ.and(Rights::WRITE).and(Rights::MANAGE),
        range: 0..u64::MAX,
        user: 0,
        client: 1,
        issued: now,
        expires: now.plus(Duration::from_secs(3600)),
    }
}
