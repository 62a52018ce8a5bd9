//! What is read by descriptors is what is read over connections, and whoever may not read is refused as ever.

use crate::common::{
    CLUSTER, PATIENCE, Served, TARGET, ask, capability, create, key, now, path, read, terms, write,
};
use data::frame::{FOR_WRITING, HELD, Op};
use data::sum::BLOCK;
use data::{Ask, Capability, Channel, Link, Refusal, Rights, Slot, TargetSecret};
use mover::{Mover, Target};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of an object.
const LENGTH: usize = 4 * BLOCK + 1000;
/// Bytes of a piece that is read by a descriptor.
const PIECE: u64 = 2 * BLOCK as u64;

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed) ^ (n >> 8) as u8).collect()
}

fn attach(channel: &Channel, granted: &Capability) -> Slot {
    channel.attach(granted, key(granted)).unwrap()
}

/// A mover that listens at a socket too, with one object.
struct Bed {
    dir: tempfile::TempDir,
    served: Served,
    manager: Channel,
    all: Slot,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let served = Served::new(dir.path());
        served.listen_near(&dir.path().join("socket"));
        let manager = served.channel(1, 1);
        let all = attach(&manager, &capability(1));
        create(&manager, &all, 9..10);
        write(&manager, &all, 9, 0, &bytes(LENGTH, 1));
        Self { dir, served, manager, all }
    }

    /// Somebody else, on this host.
    fn reader(&self, channel: u64, granted: &Capability) -> (Channel, Slot) {
        let near = self.served.near(&self.dir.path().join("socket"), granted.client, channel);
        let slot = attach(&near, granted);
        (near, slot)
    }

    /// One who reads by a descriptor from now on.
    fn holder(&self, channel: u64, granted: &Capability) -> (Channel, Slot) {
        let (near, slot) = self.reader(channel, granted);
        self.hold(&near, &slot, 9);
        (near, slot)
    }

    fn hold(&self, channel: &Channel, slot: &Slot, object: u64) {
        let (before, until) = (self.served.mover.held_reads(), Instant::now() + PATIENCE);
        while self.served.mover.held_reads() == before {
            assert!(Instant::now() < until, "nothing is read by a descriptor");
            read(channel, slot, object, 0, PIECE);
        }
    }

    /// How many reads of what is done are by descriptors.
    fn held(&self, what: impl FnOnce()) -> u64 {
        let before = self.served.mover.held_reads();
        what();
        self.served.mover.held_reads() - before
    }

    fn path(&self) -> std::path::PathBuf {
        path(self.dir.path(), 9)
    }
}

fn reads_only(client: u64) -> Capability {
    Capability { rights: Rights::READ, ..capability(client) }
}

fn refusal(channel: &Channel, slot: &Slot) -> data::DataError {
    channel.call(slot, ask(Op::Read, 9, 0, PIECE), vec![]).unwrap_err()
}

/// Descriptors of an object that this process has beside those of its mover.
fn all_open(path: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
    let reading = all.filter(|entry| {
        let about = Path::new("/proc/self/fdinfo").join(entry.file_name().unwrap());
        let told = std::fs::read_to_string(about).unwrap_or_default();
        told.lines().find_map(|line| line.strip_prefix("flags:")).is_some_and(|mode| mode.ends_with('0'))
    });
    let of = |entry: &PathBuf| std::fs::read_link(entry).is_ok_and(|link| is_of(&link, path));
    reading.filter(of).collect()
}

/// A link to it, also if it has been removed.
fn is_of(link: &Path, path: &Path) -> bool {
    link.to_string_lossy().starts_with(path.to_str().unwrap())
}

fn open(path: &Path) -> usize {
    all_open(path).len()
}

/// That it comes to so many at once, and not only when they have not been used for a while: whoever has waited may be faster than who answered him.
fn comes_to(path: &Path, count: usize) {
    let begun = Instant::now();
    while open(path) != count {
        assert!(begun.elapsed() < Duration::from_secs(5), "{} are open, not {count}", open(path));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What such descriptors keep on the disk (blocks).
fn room(path: &Path) -> u64 {
    all_open(path).iter().map(|entry| std::fs::metadata(entry).unwrap().blocks()).sum()
}

#[test]
fn large_pieces_that_are_read_again_come_by_a_descriptor_and_are_what_was_written() {
    let bed = Bed::new();
    let (near, slot) = bed.holder(2, &reads_only(1));
    let all = bytes(LENGTH, 1);
    let ranges = [(0, LENGTH), (0, BLOCK), (5, 2 * BLOCK), (BLOCK + 1, 3 * BLOCK), (3 * BLOCK, 9 * BLOCK)];
    let held = bed.held(|| {
        for (from, length) in ranges {
            let expected = &all[from..(from + length).min(LENGTH)];
            assert!(read(&near, &slot, 9, from as u64, length as u64) == expected, "{from}, {length}");
        }
        assert!(read(&near, &slot, 9, 9 * LENGTH as u64, PIECE).is_empty());
    });
    assert_eq!(held, ranges.len() as u64);
    // Used again, memory has no bytes of what was there before.
    let mut memory = vec![0xee; 3 << 20];
    for from in [0, BLOCK as u64, 3 * BLOCK as u64] {
        memory = near.call(&slot, ask(Op::Read, 9, from, PIECE), memory).unwrap().bytes;
        assert!(memory == all[from as usize..(from + PIECE).min(LENGTH as u64) as usize]);
    }
    // Somebody else makes it longer, and shorter.
    write(&bed.manager, &bed.all, 9, LENGTH as u64, b"more");
    assert_eq!(read(&near, &slot, 9, 3 * BLOCK as u64, PIECE).len(), LENGTH + 4 - 3 * BLOCK);
    bed.manager.call(&bed.all, ask(Op::SetLength, 9, 3 * BLOCK as u64 + 7, 0), vec![]).unwrap();
    assert!(read(&near, &slot, 9, 2 * BLOCK as u64, PIECE) == all[2 * BLOCK..3 * BLOCK + 7]);
}

#[test]
fn what_is_small_or_read_once_or_over_the_network_is_sent() {
    let bed = Bed::new();
    let (near, slot) = bed.reader(2, &reads_only(1));
    let held = bed.held(|| {
        read(&near, &slot, 9, 0, PIECE);
        (0..20).for_each(|n| drop(read(&near, &slot, 9, n * 4096, BLOCK as u64 - 1)));
    });
    assert_eq!((held, open(&bed.path())), (0, 0));
    // Whoever asks so over TCP gets the bytes, too.
    let held = |slot: &Slot, channel: &Channel| {
        let asked = Ask { flags: HELD, ..ask(Op::Read, 9, 0, PIECE) };
        channel.call(slot, asked, vec![]).unwrap().bytes
    };
    assert_eq!(bed.held(|| assert!(held(&bed.all, &bed.manager) == bytes(PIECE as usize, 1))), 0);
    // One who has no descriptor after all asks once more.
    assert_eq!(bed.held(|| assert!(held(&slot, &near) == bytes(PIECE as usize, 1))), 1);
    // A right to a part of the object is none to all that a descriptor gives.
    let part = Capability { range: 0..PIECE, ..reads_only(1) };
    let (near, slot) = bed.reader(3, &part);
    assert_eq!(bed.held(|| (0..5).for_each(|_| drop(read(&near, &slot, 9, 0, PIECE)))), 0);
    let error = near.call(&slot, ask(Op::Descriptor, 9, 0, 0), vec![]).unwrap_err();
    assert!(error.is(&Refusal::Capability("")), "{error}");
}

#[test]
fn descriptors_read_only_and_are_given_on_this_host_only() {
    let bed = Bed::new();
    let wanted = ask(Op::Descriptor, 9, 0, 0);
    let refused = |channel: &Channel, slot: &Slot, ask| {
        let error = channel.call(slot, ask, vec![]).unwrap_err();
        assert!(error.is(&Refusal::Malformed("")), "{error}");
        error.to_string()
    };
    assert!(refused(&bed.manager, &bed.all, wanted).contains("same host"));
    let (near, slot) = bed.reader(2, &capability(1));
    let for_writing = Ask { flags: FOR_WRITING, ..wanted };
    assert!(refused(&near, &slot, for_writing).contains("for reading only"));
    let reply = near.call(&slot, wanted, vec![]).unwrap();
    assert_eq!(reply.object_length, LENGTH as u64);
    let file = std::fs::File::from(reply.descriptor.unwrap());
    let mut start = [0; 100];
    file.read_exact_at(&mut start, 7).unwrap();
    assert_eq!(start, bytes(LENGTH, 1)[7..107]);
    assert!(file.write_at(b"!", 0).is_err());
    // It has its sums as before.
    std::fs::File::options().write(true).open(bed.path()).unwrap().write_all_at(b"!", 5).unwrap();
    assert!(refusal(&near, &slot).is(&Refusal::Corrupt(String::new())));
}

#[test]
fn whoever_has_a_descriptor_is_refused_as_everybody_else_is() {
    let bed = Bed::new();
    // Fenced: until he has another right.
    let (near, slot) = bed.holder(2, &reads_only(1));
    bed.manager.call(&bed.all, ask(Op::Fence, 9, 2, 0), vec![]).unwrap();
    assert!(refusal(&near, &slot).is(&Refusal::Fenced));
    comes_to(&bed.path(), 0);
    let later = Capability { generation: 2, ..reads_only(1) };
    near.renew(&slot, &later, key(&later));
    bed.hold(&near, &slot, 9);
    // Shut out.
    let (near, slot) = bed.holder(3, &Capability { client: 5, ..later.clone() });
    let since = now().plus(Duration::from_secs(1)).as_nanos() as u64;
    bed.manager.call(&bed.all, ask(Op::Revoke, 5, since, 0), vec![]).unwrap();
    assert!(refusal(&near, &slot).is(&Refusal::Fenced));
    // Expired.
    let expires = now().plus(Duration::from_secs(3));
    let (near, slot) = bed.holder(4, &Capability { client: 6, expires, ..later });
    while now() < expires {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(refusal(&near, &slot).is(&Refusal::Expired));
}

#[test]
fn what_rots_is_found_by_who_reads_by_a_descriptor() {
    let bed = Bed::new();
    let (near, slot) = bed.holder(2, &reads_only(1));
    let file = std::fs::File::options().write(true).open(bed.path()).unwrap();
    file.write_all_at(b"!", BLOCK as u64 + 500).unwrap();
    let error = refusal(&near, &slot);
    assert!(error.is(&Refusal::Corrupt(String::new())) && error.to_string().contains("object 9"), "{error}");
    file.write_all_at(&bytes(LENGTH, 1), 0).unwrap();
    bed.hold(&near, &slot, 9);
    assert!(read(&near, &slot, 9, 0, LENGTH as u64) == bytes(LENGTH, 1));
    // Cut off behind the mover's back.
    file.set_len(BLOCK as u64).unwrap();
    file.set_len(LENGTH as u64).unwrap();
    assert!(refusal(&near, &slot).is(&Refusal::Corrupt(String::new())));
}

#[test]
fn what_has_no_sums_is_sent() {
    let bed = Bed::new();
    std::fs::write(path(bed.dir.path(), 10), bytes(LENGTH, 3)).unwrap();
    let (near, slot) = bed.reader(2, &reads_only(1));
    let held = bed.held(|| {
        for _ in 0..10 {
            assert!(read(&near, &slot, 10, 0, LENGTH as u64) == bytes(LENGTH, 3));
        }
    });
    assert_eq!(held, 0);
    comes_to(&path(bed.dir.path(), 10), 0);
}

/// On a disk: there a file can be put out of memory, and is read by the mover first, for whom nobody else waits.
#[test]
fn what_is_not_in_memory_is_read_by_the_mover() {
    let bed = Bed::new();
    let (near, slot) = bed.holder(2, &reads_only(1));
    let file = std::fs::File::open(bed.path()).unwrap();
    for _ in 0..5 {
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        for at in [0, PIECE, 1000] {
            let end = (at + PIECE).min(LENGTH as u64);
            assert!(read(&near, &slot, 9, at, PIECE) == bytes(LENGTH, 1)[at as usize..end as usize]);
        }
    }
}

#[test]
fn who_reads_by_a_descriptor_sees_no_torn_block_while_others_write() {
    const BLOCKS: usize = 4;
    let bed = Bed::new();
    let (near, slot) = bed.holder(2, &reads_only(1));
    write(&bed.manager, &bed.all, 9, 0, &vec![9; BLOCKS * BLOCK]);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..600 {
                write(&bed.manager, &bed.all, 9, 0, &vec![round as u8; BLOCKS * BLOCK]);
            }
            ended.store(true, Ordering::Release);
        });
        let held = bed.held(|| {
            while !ended.load(Ordering::Acquire) {
                let got = read(&near, &slot, 9, 0, (BLOCKS * BLOCK) as u64);
                assert!(got.chunks(BLOCK).all(|block| block.iter().all(|byte| *byte == block[0])));
            }
        });
        assert!(held > 0);
    });
    assert!(read(&near, &slot, 9, 0, PIECE) == vec![599_u32 as u8; PIECE as usize]);
}

#[test]
fn descriptors_of_what_nobody_reads_go_and_so_does_the_room_of_what_was_removed() {
    let bed = Bed::new();
    let [first, second, third] = [2, 3, 4].map(|channel| bed.holder(channel, &reads_only(channel)));
    comes_to(&bed.path(), 3);
    // With the right, and with the connection.
    drop(first.1);
    comes_to(&bed.path(), 2);
    drop(second);
    comes_to(&bed.path(), 1);
    assert!(room(&bed.path()) > 0);
    // It is removed, and not read any more: here nobody says so.
    bed.manager.call(&bed.all, ask(Op::Remove, 9, 0, 0), vec![]).unwrap();
    assert_eq!((open(&bed.path()), room(&bed.path())), (1, 0));
    let begun = Instant::now();
    while open(&bed.path()) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is kept");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(refusal(&third.0, &third.1).is(&Refusal::Missing(String::new())));
    // Whoever removes by himself has none at once; and one who finds that it is gone.
    create(&bed.manager, &bed.all, 9..10);
    write(&bed.manager, &bed.all, 9, 0, &bytes(LENGTH, 1));
    bed.hold(&third.0, &third.1, 9);
    let (own, slot) = bed.holder(5, &capability(1));
    comes_to(&bed.path(), 2);
    own.call(&slot, ask(Op::Remove, 9, 0, 0), vec![]).unwrap();
    comes_to(&bed.path(), 1);
    assert!(refusal(&third.0, &third.1).is(&Refusal::Missing(String::new())));
    comes_to(&bed.path(), 0);
}

#[test]
fn descriptors_are_put_out_of_the_way() {
    let bed = Bed::new();
    let (socket, address) = (bed.dir.path().join("socket"), bed.served.address);
    let high = |descriptor: OwnedFd| rustix::io::fcntl_dupfd_cloexec(&descriptor, 700).unwrap();
    let near = Box::new(move || Link::near(&socket, high));
    let dial = Box::new(move || Link::tcp(TcpStream::connect(address)?));
    let channel = Channel::open_near(Some(near), dial, terms("mover".to_owned(), 1, 7)).unwrap();
    let slot = attach(&channel, &capability(1));
    let descriptor = channel.call(&slot, ask(Op::Descriptor, 9, 0, 0), vec![]).unwrap().descriptor.unwrap();
    assert!(descriptor.as_raw_fd() >= 700);
}

/// A mover of another target, of another cluster, or with another key; one that says nothing; nobody; no socket.
#[test]
fn whoever_does_not_have_the_target_is_as_nobody_and_the_network_serves() {
    let bed = Bed::new();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let listen = |name: &str, cluster: [u8; 16], target, secret: &TargetSecret| {
        std::fs::create_dir(at(&format!("{name}.dir"))).unwrap();
        let secrets = mover::Secrets::from([(crate::common::EPOCH, secret.clone())]);
        let target = Target::open(target, cluster, &at(&format!("{name}.dir")), secrets).unwrap();
        let mover = Mover::new(cluster, [Arc::new(target)], Box::new(now)).unwrap();
        let listener = UnixListener::bind(at(name)).unwrap();
        std::thread::spawn(move || mover.listen_unix(&listener));
    };
    listen("target", CLUSTER, types::TargetId(99), &crate::common::secret());
    listen("cluster", [9; 16], TARGET, &crate::common::secret());
    listen("key", CLUSTER, TARGET, &TargetSecret::new(&[9; 32]));
    let silent = UnixListener::bind(at("silent")).unwrap();
    drop(UnixListener::bind(at("nobody")).unwrap());
    for (name, number) in ["target", "cluster", "key", "silent", "nobody", "none"].iter().zip(10..) {
        let near = bed.served.near(&at(name), 1, number);
        let slot = attach(&near, &reads_only(1));
        let held = bed.held(|| {
            for _ in 0..5 {
                assert!(read(&near, &slot, 9, 0, PIECE) == bytes(PIECE as usize, 1), "{name}");
            }
        });
        assert_eq!(held, 0, "{name}");
    }
    drop(silent);
}

#[test]
fn who_has_lost_the_connection_goes_on_over_the_network_as_long_as_nobody_listens_here() {
    let Bed { dir, served, manager, all } = Bed::new();
    let (socket, moved) = (dir.path().join("socket"), dir.path().join("moved"));
    let at = Arc::new(Mutex::new(served.address));
    let (here, there) = (socket.clone(), at.clone());
    let near = Box::new(move || Link::near(&here, |descriptor| descriptor));
    let dial = Box::new(move || Link::tcp(TcpStream::connect(*there.lock().unwrap())?));
    let channel = Channel::open_near(Some(near), dial, terms("mover".to_owned(), 1, 7)).unwrap();
    let slot = attach(&channel, &reads_only(1));
    let bed = Bed { dir, served, manager, all };
    bed.hold(&channel, &slot, 9);
    assert_eq!(open(&bed.path()), 1);
    let Bed { dir, served, manager, all } = bed;
    drop((all, manager));
    std::fs::rename(&socket, moved).unwrap();
    // Whoever listens here has to be told, as his node would tell him.
    served.stop();
    let served = Served::new(dir.path());
    *at.lock().unwrap() = served.address;
    let read_all =
        || (0..5).for_each(|_| assert!(read(&channel, &slot, 9, 0, PIECE) == bytes(PIECE as usize, 1)));
    read_all();
    assert_eq!((served.mover.held_reads(), open(&path(dir.path(), 9))), (0, 0));
}
