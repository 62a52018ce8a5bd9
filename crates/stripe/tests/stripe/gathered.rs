//! What is written behind is what a plain model says, and of what was synced nothing is lost wherever the client dies.

use crate::common::{Cluster, Step, Terms1, bytes, file_step, model_step, read, steps};
use data::frame::Op;
use layout::Layout;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use stripe::{Room, StripeError, Striped};

/// Does a step, writes behind.
fn step_behind(file: &Striped, model: &[u8], step: &Step) -> Result<(), StripeError> {
    match step {
        Step::Write { offset, length, seed } => file.write_behind(*offset as u64, &bytes(*length, *seed)),
        step => file_step(file, model, step),
    }
}

#[test]
fn what_is_written_behind_is_what_a_plain_model_says() {
    let cluster = Cluster::new(6);
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(choice in 0_usize..4, room in 0_usize..4, through in 0_u8..4, steps in steps(true))| {
        let (unit, k, m) = [(4096, 2, 1), (4096, 4, 2), (12_288, 3, 3), (131_072, 2, 2)][choice];
        // Enough for nothing, for a piece or some, and for all.
        let room = Arc::new(Room::new([0, 5_000, 120_000, 1 << 30][room]));
        let layout = cluster.coded(unit, k, m);
        let mut file = cluster.make(layout.clone()).gathering(&room);
        let mut model: Vec<u8> = Vec::new();
        let mut lost = BTreeSet::new();
        for step in steps {
            match &step {
                Step::Lose(n) if lost.len() < usize::from(m) => {
                    file.sync().unwrap();
                    lost.insert(n % u32::from(k + m) + 1);
                    file = cluster.open_but(layout.clone(), &lost, &Terms1::default()).gathering(&room);
                }
                Step::Reopen => {
                    file.flush().unwrap();
                    prop_assert_eq!(file.gathered(), 0);
                    let reader = cluster.open_but(layout.clone(), &lost, &Terms1::default());
                    prop_assert!(read(&reader, 0, 400_000) == model, "a reader elsewhere");
                    file = cluster.open_but(layout.clone(), &lost, &Terms1::default()).gathering(&room);
                }
                Step::Read { .. } => file.flush_older().unwrap(),
                _ => {}
            }
            match step {
                // Somebody else's, who goes past what is gathered.
                Step::Write { seed, .. } if seed % 4 == through => file_step(&file, &model, &step).unwrap(),
                _ => step_behind(&file, &model, &step).unwrap(),
            }
            model_step(&mut model, &step);
            prop_assert_eq!(file.length().unwrap(), model.len() as u64);
            prop_assert!(read(&file, 0, 400_000) == model, "{:?}", step);
        }
        file.sync().unwrap();
        let reader = cluster.open_but(layout, &lost, &Terms1::default());
        prop_assert!(read(&reader, 0, 400_000) == model);
    });
}

/// Steps of a file of two units of data and one of parity, between which [`Step::Read`] stands for a sync.
const SYNC: Step = Step::Read { offset: 0, length: 0 };
const STEPS: [Step; 13] = [
    // Rows that fill in pieces, one that does not.
    Step::Write { offset: 3000, length: 9000, seed: 1 },
    Step::Write { offset: 0, length: 3000, seed: 2 },
    Step::Write { offset: 12_000, length: 10_000, seed: 3 },
    SYNC,
    // Over what is there, whole and in part.
    Step::Write { offset: 8192, length: 5000, seed: 4 },
    Step::Write { offset: 13_192, length: 3192, seed: 5 },
    Step::Write { offset: 100, length: 500, seed: 6 },
    Step::Write { offset: 300, length: 500, seed: 7 },
    SYNC,
    Step::Write { offset: 40_000, length: 20_000, seed: 8 },
    Step::SetLength(45_000),
    Step::Write { offset: 45_000, length: 5000, seed: 9 },
    SYNC,
];

/// What a client that died may have left: what the file was when it was synced last, and what it became since.
struct Left {
    budget: i64,
    done: bool,
    states: Vec<Vec<u8>>,
}

impl Left {
    /// A client does the steps until it has sent so much.
    fn by_client(cluster: &Cluster, layout: &Layout, budget: i64) -> Self {
        let left = Arc::new(AtomicI64::new(budget));
        let patience = std::time::Duration::from_millis(50);
        let terms = Terms1 { patience, budget: Some(left.clone()), ..Terms1::default() };
        let file = cluster.open_but(layout.clone(), &BTreeSet::new(), &terms);
        let file = file.gathering(&Arc::new(Room::new(1 << 20)));
        let mut states = vec![Vec::new()];
        let done = STEPS.iter().all(|step| {
            let mut now = states.last().cloned().unwrap_or_default();
            let synced = matches!(step, Step::Read { .. } | Step::SetLength(_));
            let kept = match step {
                Step::Read { .. } => file.sync(),
                step => step_behind(&file, &now, step),
            };
            model_step(&mut now, step);
            states.push(now);
            if synced && kept.is_ok() {
                states.drain(..states.len() - 1);
            }
            kept.is_ok()
        });
        left.store(0, Ordering::SeqCst);
        Self { budget, done, states }
    }

    /// Every byte is what it was at the last sync, or what it became since.
    fn check(&self, what: &str, found: &[u8]) {
        let lengths = || self.states.iter().map(Vec::len);
        let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        let budget = self.budget;
        assert!((least..=most).contains(&found.len()), "{budget} {what}: {} bytes", found.len());
        for (n, byte) in found.iter().enumerate() {
            let mut allowed = self.states.iter().map(|state| state.get(n).copied().unwrap_or(0));
            // Where one write is there and one in front of it is not, that is a hole.
            let hole = *byte == 0 && n >= self.states[0].len();
            assert!(hole || allowed.any(|one| one == *byte), "{budget} {what}: byte {n}");
        }
    }

    /// What was never synced may be refused.
    fn read(&self, what: &str, file: &Striped) -> Option<Vec<u8>> {
        let mut found = vec![0; 100_000];
        match file.read_at(0, &mut found) {
            Ok(got) => {
                found.truncate(got);
                self.check(what, &found);
                Some(found)
            }
            Err(StripeError::Lost { offset, .. })
                if offset as usize >= self.states[0].len() / 8192 * 8192 =>
            {
                None
            }
            Err(e) => panic!("{} {what}: {e}", self.budget),
        }
    }
}

fn dies_after(cluster: &Cluster, budget: i64) -> bool {
    let layout = cluster.coded(4096, 2, 1);
    drop(cluster.make(layout.clone()));
    let left = Left::by_client(cluster, &layout, budget);
    let without = |lost: u32| cluster.open_but(layout.clone(), &BTreeSet::from([lost]), &Terms1::default());
    assert!(left.read("whole", &cluster.open(layout.clone())).is_some());
    for lost in 1..=3 {
        left.read(&format!("without {lost}"), &without(lost));
    }
    // The next writer goes on; then every column can be lost again.
    let writer = cluster.open(layout.clone());
    writer.fold().unwrap();
    let now = left.read("folded", &writer).expect("all columns are there");
    drop(writer);
    for lost in 1..=3 {
        let found = left.read(&format!("folded, without {lost}"), &without(lost));
        assert!(found.is_none_or(|found| found == now), "{budget} without {lost}");
    }
    !left.done
}

#[test]
fn the_requests_after_which_a_client_dies_lose_nothing_that_was_synced() {
    const THREADS: i64 = 4;
    let died: i64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|first| {
                scope.spawn(move || {
                    let cluster = Cluster::new(3);
                    (first..)
                        .step_by(THREADS as usize)
                        .take_while(|budget| dies_after(&cluster, *budget))
                        .count() as i64
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(died > 50, "{died} steps");
}

/// Many threads that fill rows together, while others read and flush.
#[test]
fn rows_that_several_fill_together_go_to_their_columns_once() {
    const PIECE: usize = 1000;
    const WRITERS: usize = 4;
    const ROWS: usize = 125;
    let cluster = Cluster::new(3);
    let layout = cluster.coded(4096, 2, 1);
    let terms = Terms1 { budget: Some(Arc::new(AtomicI64::new(i64::MAX))), ..Terms1::default() };
    drop(cluster.make(layout.clone()));
    let file = cluster.open_but(layout.clone(), &BTreeSet::new(), &terms);
    let file = file.gathering(&Arc::new(Room::new(64 << 20)));
    let content = bytes(ROWS * 8192, 5);
    std::thread::scope(|scope| {
        let (file, content) = (&file, &content);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    for (n, piece) in content.chunks(PIECE).enumerate().skip(writer).step_by(WRITERS) {
                        file.write_behind((n * PIECE) as u64, piece).unwrap();
                        let found = read(file, n * PIECE, PIECE);
                        assert!(found == piece, "who has written sees it");
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let found = read(file, 0, content.len());
            let right = found.iter().zip(content).all(|(found, byte)| found == byte || *found == 0);
            assert!(right, "a reader");
        }
    });
    assert_eq!((file.gathered(), file.logged().unwrap()), (0, 0), "all rows were filled");
    file.sync().unwrap();
    let sent = terms.sent.lock().unwrap().clone();
    let own = layout.components[0].object(0);
    let written = sent.iter().filter(|(op, object)| (*op, *object) == (Op::Write, own)).count();
    assert_eq!(written, ROWS, "each row in one request");
    assert!(read(&cluster.open(layout), 0, content.len() + 1) == content);
}

#[test]
fn what_targets_do_not_take_stays_and_is_written_later() {
    let cluster = Cluster::new(3);
    let layout = cluster.coded(4096, 2, 1);
    drop(cluster.make(layout.clone()));
    let left = Arc::new(AtomicI64::new(i64::MAX));
    let patience = std::time::Duration::from_millis(200);
    let terms = Terms1 { patience, budget: Some(left.clone()), ..Terms1::default() };
    let file = cluster.open_but(layout.clone(), &BTreeSet::new(), &terms);
    let room = Arc::new(Room::new(1 << 20));
    let file = file.gathering(&room);
    let content = bytes(30_000, 3);
    file.write_behind(0, &content[..5000]).unwrap();
    left.store(0, Ordering::SeqCst);
    assert!(file.flush().is_err() && file.sync().is_err());
    assert_eq!(file.gathered(), 5000, "it is still here");
    left.store(i64::MAX, Ordering::SeqCst);
    file.write_behind(5000, &content[5000..]).unwrap();
    assert!(read(&file, 0, 40_000) == content);
    file.sync().unwrap();
    assert!(read(&cluster.open(layout.clone()), 0, 40_000) == content);
    // What was left in memory is room for others when its file is gone.
    file.write_behind(0, &[7; 1000]).unwrap();
    assert!(room.left() < 1 << 20);
    drop(file);
    assert_eq!(room.left(), 1 << 20);
    assert!(read(&cluster.open(layout), 0, 40_000) == content, "as if the process had ended");
}

#[test]
fn nothing_is_kept_in_room_that_was_closed() {
    let cluster = Cluster::new(3);
    let layout = cluster.coded(4096, 2, 1);
    let room = Arc::new(Room::new(1 << 20));
    let file = cluster.make(layout.clone()).gathering(&room);
    let content = bytes(15_000, 3);
    file.write_behind(0, &content[..5000]).unwrap();
    assert_eq!(file.gathered(), 5000);
    assert!(room.close() && !room.close(), "closed once");
    file.write_behind(7000, &content[7000..]).unwrap();
    file.write_behind(5000, &content[5000..7000]).unwrap();
    file.flush().unwrap();
    assert_eq!((file.gathered(), room.left()), (0, 1 << 20));
    file.write_behind(3, b"after").unwrap();
    assert_eq!(file.gathered(), 0, "it goes through");
    let mut content = content;
    content[3..8].copy_from_slice(b"after");
    assert!(read(&cluster.open(layout), 0, 20_000) == content, "somebody else");
}

#[test]
fn what_a_mover_refuses_keeps_nothing_behind_it_from_being_written() {
    const UNIT: usize = 128 << 10;
    const ROWS: usize = 16;
    let cluster = Cluster::new(3);
    let layout = cluster.coded(UNIT as u32, 2, 1);
    drop(cluster.make(layout.clone()));
    let terms = Terms1 { budget: Some(Arc::new(AtomicI64::new(i64::MAX))), ..Terms1::default() };
    let file = cluster.open_but(layout.clone(), &BTreeSet::new(), &terms);
    let file = file.gathering(&Arc::new(Room::new(64 << 20)));
    // Rows that lack something, more than go to the log in one request.
    let content = bytes(ROWS * 2 * UNIT, 5);
    for row in 0..ROWS {
        let at = row * 2 * UNIT;
        file.write_behind(at as u64, &content[at..at + UNIT + 70_000]).unwrap();
    }
    let all = file.gathered();
    let journal = layout.components[0].places().nth(3).unwrap().0;
    *terms.damaged.lock().unwrap() = (journal, 1);
    assert!(file.flush().is_err(), "some of it is not there");
    let left = file.gathered();
    assert!(left > 0 && left < all / 2, "{left} of {all} bytes");
    file.flush().unwrap();
    assert_eq!(file.gathered(), 0);
    let reader = cluster.open(layout);
    for row in 0..ROWS {
        let at = row * 2 * UNIT;
        assert!(read(&reader, at, UNIT + 70_000) == content[at..at + UNIT + 70_000], "row {row}");
    }
}

/// Who has a spare of what he wrote may drop it then.
#[test]
fn the_least_number_of_what_is_in_memory_is_known() {
    const ROW: usize = 8192;
    let cluster = Cluster::new(3);
    let file = cluster.make(cluster.coded(4096, 2, 1)).gathering(&Arc::new(Room::new(1 << 20)));
    assert_eq!(file.least_gathered(), None);
    let row = bytes(ROW, 1);
    file.write_numbered(4, 0, &row[..1000]).unwrap();
    file.write_numbered(2, ROW as u64, &row[..1000]).unwrap();
    file.write_numbered(9, 0, &row[..500]).unwrap();
    assert_eq!(file.least_gathered(), Some(2));
    // One that is complete goes.
    file.write_numbered(10, (ROW + 1000) as u64, &row[1000..]).unwrap();
    assert!(file.has_completed());
    file.write_completed().unwrap();
    assert_eq!((file.has_completed(), file.least_gathered()), (false, Some(4)));
    file.write_behind(2 * ROW as u64, b"nobody asks").unwrap();
    assert_eq!(file.least_gathered(), Some(4));
    file.write_numbered(12, 3 * ROW as u64, &row[..10]).unwrap();
    file.flush_below(12).unwrap();
    assert_eq!((file.least_gathered(), file.gathered()), (Some(12), 21), "what has higher numbers stays");
    file.flush().unwrap();
    assert_eq!((file.least_gathered(), file.gathered()), (None, 0));
    // A whole row is never there.
    file.write_numbered(13, 4 * ROW as u64, &row).unwrap();
    assert_eq!(file.least_gathered(), None);
}
