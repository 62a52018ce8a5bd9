use super::*;
use crate::lmdb::at::At;
use crate::lmdb::place::Place;
use crate::{KvError, Result};
use proptest::prelude::*;
use std::fs;

const TXN: u64 = 5;

fn batch(number: u64, length: usize) -> Vec<u8> {
    let mut writing = Writing::default();
    writing.change(&number.to_be_bytes(), Some(&vec![number as u8; length]));
    writing.change(b"seq", Some(&number.to_be_bytes()));
    writing.finish(number, 0)
}

struct Bed {
    dir: tempfile::TempDir,
    place: Place,
    journal: Journal,
    at: At,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::lock(dir.path()).unwrap();
        let mut journal = Journal::new(dir.path(), 100);
        assert!(!journal.is_open() && journal.append(&batch(101, 1)).is_err(), "nothing may be written yet");
        assert!(journal.prepare());
        let at = At { number: 100, mark: new_mark() };
        journal.begin(at.mark, TXN);
        Self { dir, place, journal, at }
    }

    fn put(&mut self, number: u64, length: usize) {
        self.journal.append(&batch(number, length)).unwrap();
    }

    /// Number of the last batch that is found, and how many.
    fn found(&self) -> Result<(u64, u64)> {
        let found = recover(&self.place, self.at, TXN)?;
        let seq = found.changes.get(&crate::key::Key::new(b"seq"), u64::MAX).flatten();
        assert_eq!(seq.map_or(self.at.number, |seq| u64::from_be_bytes(seq.try_into().unwrap())), found.last);
        Ok((found.last, found.batches))
    }

    fn change(&self, file: usize, f: impl FnOnce(&mut Vec<u8>)) {
        let path = self.dir.path().join(NAMES[file]);
        let mut bytes = fs::read(&path).unwrap();
        f(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    fn refused(&self) -> String {
        let error = self.found().unwrap_err();
        assert!(matches!(error, KvError::Corrupt { .. }), "{error}");
        error.to_string()
    }
}

#[test]
fn what_was_written_is_found_over_both_files() {
    let mut bed = Bed::new();
    assert_eq!(bed.found().unwrap(), (100, 0));
    bed.put(101, 10);
    bed.put(102, 100_000);
    assert_eq!(bed.found().unwrap(), (102, 2));
    let next = new_mark();
    bed.journal.hand_over(next, TXN + 1).unwrap();
    assert_eq!((bed.found().unwrap(), bed.journal.used()), ((102, 2), 0));
    bed.put(103, 10);
    assert_eq!(bed.found().unwrap(), (103, 3), "the store did not get to its next state");
    bed.at = At { number: 102, mark: next };
    let found = recover(&bed.place, bed.at, TXN + 1).unwrap();
    assert_eq!((found.last, found.batches), (103, 1), "it did");
    // The first file is written again.
    let third = new_mark();
    bed.journal.hand_over(third, TXN + 2).unwrap();
    bed.put(104, 10);
    bed.at = At { number: 103, mark: third };
    let found = recover(&bed.place, bed.at, TXN + 2).unwrap();
    assert_eq!((found.last, found.batches), (104, 1));
}

#[test]
fn a_file_takes_no_more_than_fits_with_the_record_that_closes_it() {
    let mut bed = Bed::new();
    let length = batch(101, 1 << 20).len();
    let mut number = 100;
    while bed.journal.has_room(length) {
        number += 1;
        bed.put(number, 1 << 20);
    }
    assert_eq!(number, 107);
    bed.journal.hand_over(new_mark(), TXN + 1).unwrap();
    assert_eq!(bed.found().unwrap(), (107, 7));
}

#[test]
fn a_last_record_that_is_torn_ends_it_and_damage_before_that_is_refused() {
    let mut bed = Bed::new();
    (101..=104).for_each(|number| bed.put(number, 6000));
    let long = blocks(batch(101, 6000).len()) as usize;
    for at in [0, 30, 100, 5000] {
        let keep = fs::read(bed.dir.path().join(NAMES[0])).unwrap();
        bed.change(0, |bytes| bytes[3 * long + at] ^= 1);
        assert_eq!(bed.found().unwrap(), (103, 3), "the last one, byte {at}");
        bed.change(0, |bytes| *bytes = keep.clone());
        for n in 0..3 {
            bed.change(0, |bytes| bytes[n * long + at] ^= 1);
            assert!(bed.refused().contains("others follow it"), "record {n}, byte {at}");
            bed.change(0, |bytes| *bytes = keep.clone());
        }
    }
    bed.change(0, |bytes| {
        let last = bytes[3 * long..4 * long].to_vec();
        bytes[2 * long..3 * long].copy_from_slice(&last);
    });
    bed.refused();
}

#[test]
fn a_file_that_was_not_closed_is_not_followed_by_another() {
    let mut bed = Bed::new();
    bed.put(101, 10);
    bed.journal.hand_over(new_mark(), TXN + 1).unwrap();
    bed.put(102, 10);
    assert_eq!(bed.found().unwrap(), (102, 2));
    let long = blocks(batch(101, 10).len()) as usize;
    bed.change(0, |bytes| bytes[long + 8] ^= 1);
    assert!(bed.refused().contains("goes on from transaction 6"), "what is in the second was acknowledged");
}

#[test]
fn another_state_of_the_store_is_refused_and_older_files_mean_nothing() {
    let mut bed = Bed::new();
    bed.put(101, 10);
    let mark = bed.at.mark;
    bed.at.mark = new_mark();
    assert_eq!(bed.found().unwrap(), (100, 0), "the store has taken over what is in the file");
    let older = recover(&bed.place, bed.at, TXN - 1);
    assert!(matches!(older, Err(KvError::Corrupt { .. })), "the store is older than its journal");
    bed.at = At { number: 7, mark };
    assert!(bed.refused().contains("does not follow"));
    bed.at = At { number: 100, mark };
    fs::remove_file(bed.dir.path().join(NAMES[1])).unwrap();
    assert!(bed.refused().contains("journal.1 is missing"));
    bed.at.mark = 0;
    assert_eq!(bed.found().unwrap(), (100, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// Whatever happens to one place of the files: the truth as far as it was acknowledged, all but the last record, or an error.
    #[test]
    fn damage_gives_the_truth_or_an_error(
        lengths in proptest::collection::vec(0usize..9000, 1..12),
        over in any::<prop::sample::Index>(),
        (file, at, change) in (0usize..2, any::<prop::sample::Index>(), 1u8..),
        zeros in proptest::option::of(1usize..20),
    ) {
        let mut bed = Bed::new();
        let over = over.index(lengths.len() + 1);
        let mut used = [0, 0];
        for (n, length) in lengths.iter().enumerate() {
            if n == over {
                used[0] = bed.journal.used() as usize + BLOCK;
                bed.journal.hand_over(new_mark(), TXN + 1).unwrap();
            }
            bed.put(101 + n as u64, *length);
        }
        used[usize::from(over < lengths.len())] = bed.journal.used() as usize;
        let all = 100 + lengths.len() as u64;
        prop_assert_eq!(bed.found().unwrap(), (all, lengths.len() as u64));
        let at = at.index(used[file].max(1));
        bed.change(file, |bytes| match zeros {
            Some(blocks) => {
                let from = at / BLOCK * BLOCK;
                let to = (from + blocks * BLOCK).min(bytes.len());
                bytes[from..to].fill(0);
            }
            None => bytes[at] ^= change,
        });
        match bed.found() {
            Ok((last, _)) => prop_assert!(last == all || last + 1 == all || zeros.is_some(), "{last} of {all}"),
            Err(KvError::Corrupt { .. }) => {}
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in any::<u32>()) {
        let bed = Bed::new();
        let head = Head { mark: bed.at.mark, txn: TXN, index: 0, length, next: 0 };
        bed.change(0, |file| file[..64 + bytes.len()].copy_from_slice(&[head.encode().as_slice(), &bytes].concat()));
        prop_assert!(bed.found().is_ok_and(|found| found.1 == 0) || length == 0);
        prop_assert_eq!(Head::decode(&head.encode()), Some(head));
    }
}

#[test]
fn memory_that_is_used_again_holds_nothing_of_the_batch_before() {
    let mut writing = Writing::default();
    writing.change(b"before", Some(&[1; 5000]));
    let mut writing = writing.emptied();
    assert_eq!(writing.len(), 0);
    writing.change(b"after", None);
    let mut fresh = Writing::default();
    fresh.change(b"after", None);
    assert_eq!(writing.finish(2, 0), fresh.finish(2, 0));
    // The record too: a short batch behind a long one, and behind one whose memory is not kept.
    let mut bed = Bed::new();
    for (number, length) in (101..).zip([20_000, 10, 2 * KEPT, 10]) {
        bed.put(number, length);
    }
    assert_eq!(bed.found().unwrap(), (104, 4));
    assert!(bed.journal.record.capacity() <= KEPT);
}
