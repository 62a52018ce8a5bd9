//! Each request is done exactly once, whatever becomes of connections and of the mover.

mod common;

use common::{
    CLUSTER, EPOCH, PATIENCE, Served, TARGET, ask, capability, channel, create, key, now, path, read, secret,
    write,
};
use data::frame::{LISTED, Op, encode_list};
use data::{Ask, Channel, Link, Refusal, Terms};
use layout::SplitMix64;
use mover::{Mover, Target};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Passes bytes on in both directions, and cuts each connection after some number of bytes.
fn cutting_proxy(to: SocketAddr, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut numbers = SplitMix64::new(seed);
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(to)) else { return };
            for (mut from, mut into) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                let magnitude = numbers.below(10);
                let mut left = 200 + numbers.below(1024 << magnitude);
                std::thread::spawn(move || {
                    let mut some = [0; 4096];
                    while left > 0 {
                        let most = some.len().min(left as usize);
                        let Ok(got) = from.read(&mut some[..most]) else { break };
                        if got == 0 || into.write_all(&some[..got]).is_err() {
                            break;
                        }
                        left -= got as u64;
                    }
                    let _ = from.shutdown(std::net::Shutdown::Both);
                    let _ = into.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    address
}

/// Writes at random places, pipelined, and says what the object must be.
fn scribble(
    channel: &Channel,
    granted: &data::Capability,
    object: u64,
    writes: u64,
    longest: u64,
) -> Vec<u8> {
    let slot = channel.attach(granted, key(granted)).unwrap();
    let mut numbers = SplitMix64::new(object);
    let mut model: Vec<u8> = Vec::new();
    let mut tickets = std::collections::VecDeque::new();
    for number in 0..writes {
        if numbers.below(12) == 0 {
            let length = numbers.below(300_000);
            tickets.push_back(channel.submit(&slot, ask(Op::SetLength, object, length, 0), vec![]).unwrap());
            model.resize(length as usize, 0);
        }
        let (offset, length) = (numbers.below(200_000) as usize, 1 + numbers.below(longest) as usize);
        let bytes: Vec<u8> = (0..length).map(|n| (n as u64 * 7 + number * 13) as u8).collect();
        let asked = ask(Op::Write, object, offset as u64, length as u64);
        tickets.push_back(channel.submit(&slot, asked, bytes.clone()).unwrap());
        model.resize(model.len().max(offset + length), 0);
        model[offset..offset + length].copy_from_slice(&bytes);
        if tickets.len() > 6 {
            tickets.pop_front().unwrap().wait().unwrap();
        }
    }
    tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    model
}

#[test]
fn connections_that_break_anywhere_lose_nothing_and_repeat_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let direct = served.channel(1, 1);
    let slot = direct.attach(&granted, key(&granted)).unwrap();
    create(&direct, &slot, 1..4);
    std::thread::scope(|scope| {
        for object in 1..4 {
            let (direct, slot, granted, address) = (&direct, &slot, &granted, served.address);
            scope.spawn(move || {
                let through = channel(cutting_proxy(address, object), 1, 100 + object);
                let model = scribble(&through, granted, object, 40, 12_000);
                assert!(read(direct, slot, object, 0, 4 << 20) == model, "object {object}");
            });
        }
    });
}

/// Some wait for each answer, some for several, and some for none; small and large.
#[test]
fn all_who_ask_over_one_channel_that_breaks_anywhere_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let direct = served.channel(1, 1);
    let there = direct.attach(&granted, key(&granted)).unwrap();
    create(&direct, &there, 1..7);
    let through = channel(cutting_proxy(served.address, 5), 1, 100);
    let slot = through.attach(&granted, key(&granted)).unwrap();
    std::thread::scope(|scope| {
        for object in 1..7 {
            let (through, slot, granted, direct, there) = (&through, &slot, &granted, &direct, &there);
            scope.spawn(move || {
                let model = match object {
                    1..4 => scribble(through, granted, object, 40, 12_000),
                    _ => (0..40_u64).fold(Vec::new(), |mut model, n| {
                        let bytes = vec![(n + object) as u8; 1 + (n * n * 4) as usize];
                        let at = n * 1000;
                        if n % 4 == 0 {
                            let stat = ask(Op::Stat, object, 0, 0);
                            drop(through.submit(slot, stat, Vec::new()).unwrap());
                        }
                        write(through, slot, object, at, &bytes);
                        model.resize(model.len().max(at as usize + bytes.len()), 0);
                        model[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                        // One that is read before somebody waits for it, and another one.
                        let length = if n % 5 == 0 { 70_000 } else { 500 };
                        let end = model.len().min((at + length) as usize);
                        assert!(read(through, slot, object, at, length) == model[at as usize..end]);
                        model
                    }),
                };
                assert!(read(direct, there, object, 0, 4 << 20) == model, "object {object}");
            });
        }
    });
}

/// Passes bytes on in both directions, counts those of clients, and connections, and cuts the first connection when it is told to.
fn counting_proxy(to: SocketAddr, cut: std::sync::mpsc::Receiver<()>) -> (SocketAddr, [Arc<AtomicUsize>; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, counts) = (listener.local_addr().unwrap(), [(); 2].map(|()| Arc::new(AtomicUsize::new(0))));
    let [counted, connections] = counts.clone();
    std::thread::spawn(move || {
        let mut cut = Some(cut);
        for client in listener.incoming() {
            let (Ok(mut client), Ok(mut server)) = (client, TcpStream::connect(to)) else { return };
            connections.fetch_add(1, Ordering::SeqCst);
            let (mut back, mut answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            if let Some(cut) = cut.take() {
                let both = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = cut.recv();
                    let _ = both.0.shutdown(std::net::Shutdown::Both);
                    let _ = both.1.shutdown(std::net::Shutdown::Both);
                });
            }
            let counted = counted.clone();
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            std::thread::spawn(move || {
                let mut some = [0; 4096];
                while let Ok(got @ 1..) = client.read(&mut some) {
                    counted.fetch_add(got, Ordering::SeqCst);
                    if server.write_all(&some[..got]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, counts)
}

#[test]
fn a_right_is_presented_when_something_is_asked_with_it_also_over_another_connection() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let (cut, is_cut) = std::sync::mpsc::channel();
    let (address, [sent, connections]) = counting_proxy(served.address, is_cut);
    let channel = channel(address, 1, 1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 1..2);
    let asks = |slot: &data::Slot| {
        let before = sent.load(Ordering::SeqCst);
        channel.call(slot, ask(Op::Stat, 1, 0, 0), vec![]).unwrap();
        sent.load(Ordering::SeqCst) - before
    };
    let alone = asks(&slot);
    let others: Vec<data::Slot> = (0..10).map(|_| channel.attach(&granted, key(&granted)).unwrap()).collect();
    assert_eq!(asks(&slot), alone, "nobody uses the others");
    assert!(asks(&others[0]) > alone);
    assert_eq!(asks(&others[0]), alone, "once");
    channel.renew(&others[0], &granted, key(&granted));
    assert!(asks(&others[0]) > alone, "another one is presented");
    drop(cut);
    let until = Instant::now() + PATIENCE;
    while connections.load(Ordering::SeqCst) < 2 {
        assert!(Instant::now() < until, "the connection is not cut");
        asks(&slot);
    }
    for slot in [&others[5], &slot, &others[0]] {
        write(&channel, slot, 1, 0, b"there");
        assert_eq!(read(&channel, slot, 1, 0, 5), b"there");
    }
}

#[test]
fn what_was_done_is_not_done_again_for_whoever_asks_again() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let one = served.channel(1, 1);
    let slot = one.attach(&granted, key(&granted)).unwrap();
    create(&one, &slot, 1..2);
    // The numbers of a channel begin anew with each `Channel`: this is a client that asks everything once more.
    let again = |number| {
        let channel = served.channel(1, number);
        let slot = channel.attach(&granted, key(&granted)).unwrap();
        (channel, slot)
    };
    let (first, first_slot) = again(2);
    write(&first, &first_slot, 1, 0, b"first");
    let (other, other_slot) = again(3);
    write(&other, &other_slot, 1, 0, b"later");
    let (repeated, repeated_slot) = again(2);
    write(&repeated, &repeated_slot, 1, 0, b"first");
    assert_eq!(read(&one, &slot, 1, 0, 10), b"later");
    // Objects that it has made are there, those of others are refused.
    create(&again(4).0, &again(4).1, 5..7);
    let (maker, maker_slot) = again(6);
    create(&maker, &maker_slot, 8..10);
    let (maker, maker_slot) = again(6);
    create(&maker, &maker_slot, 8..10);
    let taken = other.call(&other_slot, ask(Op::Create, 8, 0, 1), vec![]).unwrap_err();
    assert!(taken.is(&Refusal::Exists(String::new())), "{taken}");
    // Nothing of an object that is there is touched, wherever in the range it lies.
    write(&maker, &maker_slot, 8, 0, b"kept");
    let across = other.call(&other_slot, ask(Op::Create, 7, 0, 2), vec![]).unwrap_err();
    assert!(across.is(&Refusal::Exists(String::new())), "{across}");
    assert_eq!(read(&maker, &maker_slot, 8, 0, 10), b"kept");
    drop((first, first_slot, other, other_slot, repeated, repeated_slot, maker, maker_slot, slot, one));
    served.stop();
    // The mover has not forgotten it.
    let served = Served::new(dir.path());
    let repeated = served.channel(1, 2);
    let slot = repeated.attach(&granted, key(&granted)).unwrap();
    write(&repeated, &slot, 1, 0, b"first");
    assert_eq!(read(&repeated, &slot, 1, 0, 10), b"later");
}

/// Power fails: the note that a write was done has reached the disk, the bytes have not, and the client has no answer.
#[test]
fn what_a_power_failure_took_away_is_written_when_it_is_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let ask_once = |served: &Served| {
        let channel = served.channel(1, 9);
        let slot = channel.attach(&granted, key(&granted)).unwrap();
        write(&channel, &slot, 1, 0, b"to be kept");
        read(&channel, &slot, 1, 0, 100)
    };
    let maker = served.channel(1, 8);
    create(&maker, &maker.attach(&granted, key(&granted)).unwrap(), 1..2);
    assert_eq!(ask_once(&served), b"to be kept");
    let crashed = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-a").arg(dir.path().join(".")).arg(crashed.path()).status().unwrap();
    assert!(copied.success());
    std::fs::write(path(crashed.path(), 1), b"").unwrap();
    // What the log says is of an earlier start of the machine.
    let mut log = std::fs::read(crashed.path().join("intents")).unwrap();
    let boot = log.as_chunks_mut::<24>().0.iter_mut().find(|record| record[16] == 3).unwrap();
    boot[0] ^= 1;
    let check = crc32c::crc32c(&boot[..20]);
    boot[20..].copy_from_slice(&check.to_le_bytes());
    std::fs::write(crashed.path().join("intents"), log).unwrap();
    let served = Served::new(crashed.path());
    assert_eq!(ask_once(&served), b"to be kept");
}

/// As much of it as a crash may leave: the copy of a target that is in use.
fn crashed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-a").arg(dir.join(".")).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    copy
}

fn make_listed(channel: &Channel, slot: &data::Slot, objects: &[u64]) -> data::Result<data::Reply> {
    let least = objects.iter().min().copied().unwrap();
    let ask = Ask { op: Op::Create, flags: LISTED, object: least, offset: 0, length: objects.len() as u64 };
    channel.call(slot, ask, encode_list(objects))
}

#[test]
fn one_request_makes_objects_wherever_their_numbers_lie() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let some = data::Capability { objects: 5..901, ..capability(1) };
    let channel = served.channel(1, 1);
    let slot = channel.attach(&some, key(&some)).unwrap();
    let list = [300, 5, 900];
    for beyond in [[4, 300], [300, 901]] {
        let refused = make_listed(&channel, &slot, &beyond).unwrap_err();
        assert!(refused.is(&Refusal::Capability("")), "{refused}");
    }
    make_listed(&channel, &slot, &list).unwrap();
    for object in list {
        write(&channel, &slot, object, 0, &object.to_be_bytes());
    }
    list.iter().for_each(|object| assert_eq!(read(&channel, &slot, *object, 0, 9), object.to_be_bytes()));
    let there = channel.call(&slot, ask(Op::Stat, 301, 0, 0), vec![]).unwrap_err();
    assert!(there.is(&Refusal::Missing(String::new())), "nothing between them is made: {there}");
    // Asked once more by whoever had no answer it is done already; by another it is refused, and makes nothing.
    let again = served.channel(1, 1);
    make_listed(&again, &again.attach(&some, key(&some)).unwrap(), &list).unwrap();
    let other = served.channel(1, 2);
    let other_slot = other.attach(&some, key(&some)).unwrap();
    let taken = make_listed(&other, &other_slot, &[301, 900]).unwrap_err();
    assert!(taken.is(&Refusal::Exists(String::new())), "{taken}");
    assert!(other.call(&other_slot, ask(Op::Stat, 301, 0, 0), vec![]).is_err());
}

#[test]
fn objects_that_a_mover_made_before_it_died_are_there_for_whoever_asks_again_until_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let make = |served: &Served, number| {
        let channel = served.channel(1, number);
        let slot = channel.attach(&granted, key(&granted)).unwrap();
        (make_listed(&channel, &slot, &[8, 20]).map(drop), channel, slot)
    };
    make(&served, 6).0.unwrap();
    let copy = crashed(dir.path());
    let served = Served::new(copy.path());
    let (made, maker, slot) = make(&served, 6);
    made.unwrap();
    write(&maker, &slot, 20, 0, b"kept");
    let copy = crashed(copy.path());
    let served = Served::new(copy.path());
    let (refused, other, slot) = make(&served, 7);
    assert!(refused.unwrap_err().is(&Refusal::Exists(String::new())));
    assert_eq!(read(&other, &slot, 20, 0, 10), b"kept");
}

/// The sums of a new object have not reached the disk, the bytes have.
#[test]
fn an_object_whose_file_of_sums_is_still_empty_after_a_crash_is_read_and_written() {
    for left in [0, 4096, 8192] {
        is_read_and_written_with(&vec![0; left]);
    }
}

fn is_read_and_written_with(sums: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let reached = |served: &Served, number| {
        let channel = served.channel(1, number);
        let slot = channel.attach(&granted, key(&granted)).unwrap();
        (channel, slot)
    };
    let (channel, slot) = reached(&served, 1);
    create(&channel, &slot, 1..2);
    write(&channel, &slot, 1, 70_000, b"bytes");
    let mut copy = crashed(dir.path());
    std::fs::write(copy.path().join("sums/00/0000000000000001"), sums).unwrap();
    for number in 2..5 {
        let served = Served::new(copy.path());
        let (channel, slot) = reached(&served, number);
        assert_eq!(read(&channel, &slot, 1, 70_000, 10), b"bytes", "opened {number} times");
        if number == 4 {
            write(&channel, &slot, 1, 0, b"more");
            assert_eq!(read(&channel, &slot, 1, 0, 4), b"more");
        }
        let next = crashed(copy.path());
        drop((channel, slot, served));
        copy = next;
    }
}

#[test]
fn an_old_connection_does_nothing_after_a_new_one_of_its_channel() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let old = served.channel(1, 1);
    let old_slot = old.attach(&granted, key(&granted)).unwrap();
    create(&old, &old_slot, 1..2);
    // Each of both goes on when its connection is ended in favour of the other: nothing is lost in the quarrel.
    let new = served.channel(1, 1);
    let new_slot = new.attach(&granted, key(&granted)).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&new, &new_slot, 1, 0, 1), b"");
        assert_eq!(read(&old, &old_slot, 1, 0, 1), b"");
    }
}

#[test]
fn a_mover_that_stays_away_is_told_about_and_nobody_waits_for_ever() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    let terms = Terms {
        mover: "mover-7:4460".to_owned(),
        client: 1,
        channel: 1,
        cluster: CLUSTER,
        patience: Duration::from_millis(200),
        window_bytes: 1 << 20,
    };
    // It accepts and says nothing; then it is not there at all.
    for silent in [true, false] {
        let dial = move || match silent {
            true => Link::tcp(TcpStream::connect(address)?),
            false => Err(std::io::Error::other("no route")),
        };
        let channel = Channel::open(Box::new(dial), terms.clone()).unwrap();
        let granted = capability(1);
        let slot = channel.attach(&granted, key(&granted)).unwrap();
        let error = channel.call(&slot, ask(Op::Stat, 1, 0, 0), vec![]).unwrap_err();
        assert_eq!(error.class(), types::ErrorClass::Retry);
        assert!(error.to_string().contains("mover-7:4460"), "{error}");
    }
}

#[test]
fn once_some_have_waited_in_vain_nobody_else_waits_long_until_the_mover_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let path = socket.clone();
    let dial = move || Ok(Link::unix(UnixStream::connect(&path)?));
    let terms = Terms {
        mover: "mover".to_owned(),
        client: 1,
        channel: 1,
        cluster: CLUSTER,
        patience: Duration::from_secs(8),
        window_bytes: 1 << 20,
    };
    let channel = Channel::open(Box::new(dial), terms).unwrap();
    let granted = capability(1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    let timed = |most: Duration| {
        let begun = Instant::now();
        let answer = channel.call(&slot, ask(Op::Stat, 1, 0, 0), vec![]);
        (answer.is_err(), begun.elapsed() < most)
    };
    assert_eq!(timed(Duration::from_secs(7)), (true, false), "the first one waits");
    assert_eq!(timed(Duration::from_secs(7)), (true, true), "the next one knows");
    let mut mover = start(dir.path());
    let until = Instant::now() + PATIENCE;
    while channel.call(&slot, ask(Op::Create, 1, 0, 1), vec![]).is_err() {
        assert!(Instant::now() < until, "the mover is not found again");
    }
    mover.kill().unwrap();
    mover.wait().unwrap();
    assert_eq!(timed(Duration::from_secs(7)), (true, false), "it was there again");
}

#[test]
fn a_host_that_is_back_with_another_disk_is_as_one_that_is_away() {
    let [dir, new] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (old, other) = (Served::new(dir.path()), Served::of(types::TargetId(9), new.path()));
    let at = Arc::new(Mutex::new(old.address));
    let open = |number, patience| {
        let at = at.clone();
        let terms = Terms {
            mover: "of target 3".to_owned(),
            client: 1,
            channel: number,
            cluster: CLUSTER,
            patience,
            window_bytes: 1 << 20,
        };
        let dial = move || Link::tcp(TcpStream::connect(*at.lock().unwrap())?);
        let channel = Channel::open(Box::new(dial), terms).unwrap();
        let granted = capability(1);
        let slot = channel.attach(&granted, key(&granted)).unwrap();
        (channel, slot)
    };
    let ((hasty, hasty_slot), (patient, slot)) = (open(1, Duration::from_millis(300)), open(2, PATIENCE));
    create(&patient, &slot, 1..2);
    write(&patient, &slot, 1, 0, b"as it was");
    hasty.call(&hasty_slot, ask(Op::Stat, 1, 0, 0), vec![]).unwrap();
    *at.lock().unwrap() = other.address;
    old.stop();
    let until = Instant::now() + PATIENCE;
    loop {
        let error = hasty.call(&hasty_slot, ask(Op::Stat, 1, 0, 0), vec![]).unwrap_err();
        assert_eq!(error.class(), types::ErrorClass::Retry, "{error}");
        if error.to_string().contains("`thermo target replace 3`") {
            break;
        }
        assert!(Instant::now() < until, "the host was not asked: {error}");
    }
    assert!(hasty.is_away() && hasty.boot().is_none());
    std::thread::scope(|scope| {
        let read = scope.spawn(|| read(&patient, &slot, 1, 0, 9));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!read.is_finished(), "it waits for its target");
        let back = Served::new(dir.path());
        *at.lock().unwrap() = back.address;
        assert_eq!(read.join().unwrap(), b"as it was");
    });
}

/// The mover of `the_mover_is_killed_at_random_moments`, run by it as a process of its own.
#[test]
#[ignore = "a child of another test"]
fn child() {
    let Ok(dir) = std::env::var("MOVER_DIR") else { return };
    let dir = Path::new(&dir);
    let target = Target::open(TARGET, CLUSTER, dir, [(EPOCH, secret())].into()).unwrap();
    let mover = Mover::new(CLUSTER, [Arc::new(target)], Box::new(now)).unwrap();
    let socket = dir.join("socket");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    mover.listen_unix(&listener).unwrap();
}

fn start(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child"])
        .env("MOVER_DIR", dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn the_mover_is_killed_at_random_moments() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path());
    let open = |number| {
        let socket = dir.path().join("socket");
        let terms = Terms {
            mover: socket.display().to_string(),
            client: 1,
            channel: number,
            cluster: CLUSTER,
            patience: PATIENCE,
            window_bytes: 1 << 20,
        };
        Channel::open(Box::new(move || Ok(Link::unix(UnixStream::connect(&socket)?))), terms).unwrap()
    };
    let granted = capability(1);
    let channel = open(1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 1..4);
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..4)
            .map(|object| {
                let (granted, channel) = (&granted, open(10 + object));
                scope.spawn(move || scribble(&channel, granted, object, 120, 90_000))
            })
            .collect();
        let mut numbers = SplitMix64::new(5);
        let mut kills = 0;
        let until = Instant::now() + PATIENCE;
        while kills < 3 || writers.iter().any(|writer| !writer.is_finished()) {
            assert!(Instant::now() < until, "the writers do not end");
            std::thread::sleep(Duration::from_millis(50 + numbers.below(400)));
            if kills < 8 {
                child.kill().unwrap();
                child.wait().unwrap();
                child = start(dir.path());
                kills += 1;
            }
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (object, model) in (1..).zip(&models) {
        assert!(read(&channel, &slot, object, 0, 4 << 20) == *model, "object {object}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for (object, model) in (1..).zip(&models) {
        assert!(std::fs::read(path(dir.path(), object)).unwrap() == *model, "object {object}");
    }
}
