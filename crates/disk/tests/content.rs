//! Content of objects: stamps, holes, reservation; a property test of the data ranges against a model.

use disk::DiskTarget;
use proptest::prelude::*;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::{TempDir, tempdir};
use types::ObjectId;

fn object() -> (TempDir, DiskTarget, OwnedFd) {
    let dir = tempdir().unwrap();
    let target = DiskTarget::open(dir.path()).unwrap();
    let fd = target.create(ObjectId(1)).unwrap();
    (dir, target, fd)
}

fn ranges(target: &DiskTarget, fd: &OwnedFd, size: u64) -> Vec<Range<u64>> {
    target.data_ranges(fd, size).collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_stamp_sees_every_change() {
    let (_dir, target, fd) = object();
    let mut last = target.stamp(&fd).unwrap();
    let change: [(&str, &dyn Fn()); 4] = [
        ("write", &|| target.write_at(&fd, b"abc", 0).unwrap()),
        ("same bytes again", &|| target.write_at(&fd, b"abc", 0).unwrap()),
        ("truncate", &|| target.set_len(&fd, 2).unwrap()),
        ("punch", &|| target.punch_hole(&fd, 0, 1).unwrap()),
    ];
    for (what, change) in change {
        change();
        let stamp = target.stamp(&fd).unwrap();
        assert!(!stamp.same_content(&last), "{what} unseen: {stamp:?}");
        last = stamp;
        assert!(target.stamp(&fd).unwrap().same_content(&last), "looking changed it");
    }
    // Neither reading nor syncing is a change.
    target.read_at(&fd, &mut [0; 2], 0).unwrap();
    target.sync(&fd).unwrap();
    target.sync_all(&fd).unwrap();
    drop(target.open_object(ObjectId(1), true).unwrap());
    assert!(target.stamp(&fd).unwrap().same_content(&last));
}

/// Two writes without a pause: relies on multigrain timestamps (Linux 6.13), which the stamp arms.
#[test]
fn a_stamp_sees_quick_overwrites() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 13) {
        eprintln!("skipped: Linux {release} has no multigrain timestamps");
        return;
    }
    let (_dir, target, fd) = object();
    for n in 0..200u8 {
        target.write_at(&fd, &[n], 0).unwrap();
        let before = target.stamp(&fd).unwrap();
        target.write_at(&fd, &[n + 1], 0).unwrap();
        assert!(!target.stamp(&fd).unwrap().same_content(&before), "overwrite {n} unseen");
    }
}

#[test]
fn reading_beyond_the_end_is_short() {
    let (_dir, target, fd) = object();
    target.write_at(&fd, b"0123456789", 5).unwrap();
    let mut buf = [9; 8];
    assert_eq!(target.read_at(&fd, &mut buf, 3).unwrap(), 8);
    assert_eq!(&buf, b"\0\x00012345");
    assert_eq!(target.read_at(&fd, &mut buf, 12).unwrap(), 3);
    assert_eq!(target.read_at(&fd, &mut buf, 15).unwrap(), 0);
}

#[test]
fn reservation_keeps_the_length_and_gives_way_to_it() {
    let (_dir, target, fd) = object();
    assert!(target.preallocate(&fd, 0, 1 << 20).unwrap());
    let stamp = target.stamp(&fd).unwrap();
    assert_eq!(stamp.size, 0);
    assert!(stamp.allocated >= 1 << 20);
    assert_eq!(ranges(&target, &fd, 0), []);
    target.write_at(&fd, b"x", 0).unwrap();
    target.set_len(&fd, 1).unwrap();
    target.sync(&fd).unwrap();
    assert!(
        target.stamp(&fd).unwrap().allocated <= 64 << 10,
        "what was reserved behind the end is free again"
    );
    assert!(target.preallocate(&fd, 5, 0).unwrap(), "nothing to reserve");
}

#[test]
fn space_goes_down_and_comes_back() {
    let (_dir, target, fd) = object();
    let space = target.fs_space().unwrap();
    assert!(space.free > 0 && space.free < space.total, "{space:?}");
    target.write_at(&fd, &vec![1; 1 << 20], 0).unwrap();
    target.sync(&fd).unwrap();
    let full = target.stamp(&fd).unwrap().allocated;
    target.punch_hole(&fd, 0, 1 << 20).unwrap();
    let punched = target.stamp(&fd).unwrap();
    assert_eq!(punched.size, 1 << 20);
    assert!(punched.allocated < full / 2, "{punched:?}");
}

const BLOCK: u64 = 64 << 10;

#[derive(Clone, Debug)]
enum Op {
    Write(u64, u64),
    Punch(u64, u64),
    Truncate(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let range = || (0..40u64, 1..10u64);
    prop_oneof![
        4 => range().prop_map(|(at, len)| Op::Write(at, len)),
        3 => range().prop_map(|(at, len)| Op::Punch(at, len)),
        1 => (0..50u64).prop_map(Op::Truncate),
    ]
}

fn apply(target: &DiskTarget, fd: &OwnedFd, op: &Op, model: &mut Vec<u8>) {
    let grow = |model: &mut Vec<u8>, end: u64| {
        let end = end as usize;
        if model.len() < end {
            model.resize(end, 0);
        }
    };
    match *op {
        Op::Write(at, len) => {
            target.write_at(fd, &vec![7; (len * BLOCK) as usize], at * BLOCK).unwrap();
            grow(model, at + len);
            model[at as usize..(at + len) as usize].fill(7);
        }
        Op::Punch(at, len) => {
            target.punch_hole(fd, at * BLOCK, len * BLOCK).unwrap();
            let end = model.len().min((at + len) as usize);
            model[(at as usize).min(end)..end].fill(0);
        }
        Op::Truncate(len) => {
            target.set_len(fd, len * BLOCK).unwrap();
            model.resize(len as usize, 0);
        }
    }
}

/// One target for all cases: making one costs 257 directories.
static SHARED: LazyLock<(TempDir, DiskTarget, AtomicU64)> = LazyLock::new(|| {
    let dir = tempdir().unwrap();
    let target = DiskTarget::open(dir.path()).unwrap();
    (dir, target, AtomicU64::new(1))
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Copying only the data ranges gives the same file; the ranges are in order and never touch nor leave the file.
    #[test]
    fn ranges_hold_all_data(ops in prop::collection::vec(op(), 1..12)) {
        let (_, target, next) = &*SHARED;
        let id = ObjectId(next.fetch_add(1, Ordering::Relaxed));
        let fd = target.create(id).unwrap();
        let mut model = Vec::new();
        for op in &ops {
            apply(target, &fd, op, &mut model);
            let size = model.len() as u64 * BLOCK;
            prop_assert_eq!(target.stamp(&fd).unwrap().size, size);
            let ranges = ranges(target, &fd, size);
            prop_assert!(ranges.iter().all(|r| r.start < r.end && r.end <= size), "{ranges:?}");
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
            for (block, byte) in model.iter().enumerate() {
                let at = block as u64 * BLOCK;
                let inside = ranges.iter().any(|r| r.start <= at && at + BLOCK <= r.end);
                prop_assert!(inside || *byte == 0, "data of block {block} in no range: {ranges:?}");
            }
        }
        target.remove(id).unwrap();
    }
}
