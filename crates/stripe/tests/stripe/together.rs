//! Writers that fill the rows of a coded file together wait for each other, but not for ever.

use crate::common::{Cluster, Terms1, bytes, read};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use stripe::{Room, Striped};

const ROW: usize = 8192;

/// A file of rows of two units of data and one of parity.
fn file(cluster: &Cluster, room: Room) -> (layout::Layout, Striped) {
    let layout = cluster.coded(4096, 2, 1);
    let file = cluster.make(layout.clone()).gathering(&Arc::new(room));
    (layout, file)
}

/// What it has on every way to it.
fn check(cluster: &Cluster, layout: &layout::Layout, expected: &[u8]) {
    for lost in 0..=3 {
        let reader = cluster.open_but(layout.clone(), &BTreeSet::from([lost]), &Terms1::default());
        assert!(read(&reader, 0, expected.len() + 1) == expected, "without target {lost}");
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn writers_of_pieces_of_all_sizes_who_sync_now_and_then_write_what_a_plain_model_says() {
    const WRITERS: usize = 4;
    // Room for nothing, for a few rows, for all.
    for (round, room) in [20_000, 300_000, 64 << 20].into_iter().enumerate() {
        let cluster = Cluster::new(3);
        let (layout, file) = file(&cluster, Room::new(room));
        let content = bytes(60 * ROW + 1234, round as u8);
        let mut dice = Dice(round as u64);
        let mut pieces = vec![];
        while let Some(left) =
            content.len().checked_sub(pieces.last().map_or(0, |(_, end)| *end)).filter(|n| *n > 0)
        {
            let at = content.len() - left;
            let length =
                [1 + dice.below(300), 1 + dice.below(5000), 1 + dice.below(30_000)][dice.below(3) as usize];
            pieces.push((at, (at + length as usize).min(content.len())));
        }
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (file, content, pieces, layout, cluster) = (&file, &content, &pieces, &layout, &cluster);
                scope.spawn(move || {
                    let mut dice = Dice(100 + writer as u64);
                    let mut own = vec![];
                    for (at, end) in pieces.iter().skip(writer).step_by(WRITERS).copied() {
                        if dice.below(10) == 0 {
                            file.write_behind(at as u64, &vec![0xaa; end - at]).unwrap();
                        }
                        file.write_behind(at as u64, &content[at..end]).unwrap();
                        own.push((at, end));
                        match dice.below(60) {
                            0 => file.flush_older().unwrap(),
                            1 => std::thread::sleep(Duration::from_millis(3)),
                            2 => {
                                file.sync().unwrap();
                                let (at, end) = own[dice.below(own.len() as u64) as usize];
                                let reader = cluster.open(layout.clone());
                                assert!(read(&reader, at, end - at) == content[at..end], "what was synced");
                            }
                            _ => {}
                        }
                    }
                });
            }
        });
        assert!(read(&file, 0, content.len() + 1) == content, "before it is synced");
        file.sync().unwrap();
        assert_eq!(file.gathered(), 0);
        check(&cluster, &layout, &content);
        file.fold().unwrap();
        check(&cluster, &layout, &content);
    }
}

#[test]
fn who_runs_ahead_waits_for_the_one_behind_before_memory_runs_out() {
    const ROWS: usize = 900;
    const PIECE: usize = ROW / 4;
    let cluster = Cluster::new(3);
    // Room for 150 rows of one file; however busy this machine is, the one behind is not given up.
    let room = Room::new(4 * 150 * ROW as u64).patient(Duration::from_secs(60));
    let (layout, file) = file(&cluster, room);
    let content = bytes(ROWS * ROW, 9);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (file, content) = (&file, &content);
            scope.spawn(move || {
                for (n, piece) in content.chunks(PIECE).enumerate().skip(writer).step_by(4) {
                    file.write_behind((n * PIECE) as u64, piece).unwrap();
                    if writer == 3 {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
            });
        }
    });
    file.flush().unwrap();
    assert_eq!(file.logged().unwrap(), 0, "bytes in the log");
    assert!(read(&cluster.open(layout), 0, content.len() + 1) == content);
}

#[test]
fn who_runs_ahead_waits_earlier_where_less_may_be_in_memory() {
    const ROWS: usize = 100;
    const HALF: usize = ROW / 2;
    const MOST: usize = 10 * HALF;
    let cluster = Cluster::new(3);
    let (layout, file) = file(&cluster, Room::new(64 << 20).patient(Duration::from_secs(60)));
    let content = bytes(ROWS * ROW, 7);
    let write = |number: usize| {
        let at = number * HALF;
        file.hold_back(at as u64, HALF, MOST as u64).unwrap();
        file.write_numbered(number as u64, at as u64, &content[at..][..HALF]).unwrap();
        file.write_completed().unwrap();
    };
    let begun = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..2 * ROWS).step_by(2) {
                write(number);
                begun.fetch_add(1, Ordering::AcqRel);
            }
        });
        // Until he waits, or is very slow.
        let mut seen = u32::MAX;
        while std::mem::replace(&mut seen, begun.load(Ordering::Acquire)) != seen {
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(seen as usize * HALF <= MOST, "{seen} rows were begun");
        (1..2 * ROWS).step_by(2).for_each(write);
    });
    file.flush().unwrap();
    assert_eq!(file.logged().unwrap(), 0, "bytes in the log");
    assert!(read(&cluster.open(layout), 0, content.len() + 1) == content);
}

#[test]
fn who_goes_on_alone_does_not_wait_for_one_that_has_stopped() {
    const ROWS: usize = 700;
    const HALF: usize = ROW / 2;
    let cluster = Cluster::new(3);
    let (layout, file) = file(&cluster, Room::new(1 << 30).patient(Duration::from_millis(200)));
    let content = bytes(ROWS * ROW, 4);
    let half = |number: usize| (number * HALF, &content[number * HALF..][..HALF]);
    let stopped = AtomicU32::new(0);
    std::thread::scope(|scope| {
        // Somebody else always has something on its way to targets.
        scope.spawn(|| {
            let row = bytes(ROW, 5);
            for n in (0..50).cycle().take_while(|_| stopped.load(Ordering::Acquire) < 2) {
                file.write_behind((content.len() + n * ROW) as u64, &row).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let stops = scope.spawn(|| {
            for number in (0..200).step_by(2) {
                let (at, bytes) = half(number);
                file.write_behind(at as u64, bytes).unwrap();
            }
            stopped.store(1, Ordering::Release);
            // Until the other one is through.
            while stopped.load(Ordering::Acquire) == 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
            for number in (200..2 * ROWS).step_by(2) {
                let (at, bytes) = half(number);
                file.write_behind(at as u64, bytes).unwrap();
            }
        });
        let begun = Instant::now();
        for number in (1..2 * ROWS).step_by(2) {
            let (at, bytes) = half(number);
            file.write_behind(at as u64, bytes).unwrap();
        }
        // A moment for each row would be minutes.
        let took = begun.elapsed();
        stopped.store(2, Ordering::Release);
        stops.join().unwrap();
        assert!(took < Duration::from_secs(60), "{took:?}");
    });
    file.sync().unwrap();
    assert!(read(&cluster.open(layout), 0, content.len()) == content);
}
