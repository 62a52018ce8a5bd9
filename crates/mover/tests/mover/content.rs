//! What is written is what is read, whatever the order and the borders, and what is not what was written is not given out.

use crate::common::{Served, ask, capability, create, key, path, read, write};
use data::Refusal;
use data::frame::{COMPARED, Op};
use data::sum::BLOCK;
use proptest::prelude::*;
use std::os::unix::fs::FileExt;

#[derive(Clone, Debug)]
enum Step {
    Write { offset: usize, length: usize, seed: u8 },
    SetLength(usize),
    Read { offset: usize, length: usize },
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = prop_oneof![
        0..3 * BLOCK,
        (0_usize..4).prop_map(|n| n * BLOCK),
        (1_usize..4).prop_map(|n| n * BLOCK - 1)
    ];
    let length = prop_oneof![0_usize..100, Just(47_008), Just(BLOCK), 1..3 * BLOCK];
    let step = prop_oneof![
        5 => (place.clone(), length.clone(), any::<u8>()).prop_map(|(offset, length, seed)| Step::Write { offset, length, seed }),
        2 => place.clone().prop_map(Step::SetLength),
        4 => (place, length).prop_map(|(offset, length)| Step::Read { offset, length }),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..25)
}

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed) ^ (n >> 8) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn an_object_is_what_a_plain_model_says(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let mut served = Served::new(dir.path());
        let mut channel = served.channel(1, 1);
        let granted = capability(1);
        let mut slot = channel.attach(&granted, key(&granted)).unwrap();
        create(&channel, &slot, 5..6);
        let mut model = Vec::new();
        // No channel is ever used again: what is asked under a number that was used is done already.
        for (step, number) in steps.into_iter().zip(2..) {
            match step {
                Step::Write { offset, length, seed } => {
                    let new = bytes(length, seed);
                    write(&channel, &slot, 5, offset as u64, &new);
                    if length > 0 && model.len() < offset + length {
                        model.resize(offset + length, 0);
                    }
                    model.splice(offset.min(model.len())..(offset + length).min(model.len()), new);
                }
                Step::SetLength(length) => {
                    channel.call(&slot, ask(Op::SetLength, 5, length as u64, 0), vec![]).unwrap();
                    model.resize(length, 0);
                }
                Step::Read { offset, length } => {
                    let expected = &model[offset.min(model.len())..(offset + length).min(model.len())];
                    prop_assert!(read(&channel, &slot, 5, offset as u64, length as u64) == expected);
                }
                Step::Restart => {
                    drop((slot, channel));
                    served.stop();
                    served = Served::new(dir.path());
                    channel = served.channel(1, number);
                    slot = channel.attach(&granted, key(&granted)).unwrap();
                }
            }
        }
        prop_assert!(read(&channel, &slot, 5, 0, 8 * BLOCK as u64) == model);
        let stat = channel.call(&slot, ask(Op::Stat, 5, 0, 0), vec![]).unwrap();
        prop_assert_eq!(stat.object_length, model.len() as u64);
        drop((slot, channel));
        served.stop();
        prop_assert!(std::fs::read(path(dir.path(), 5)).unwrap() == model);
    }
}

#[test]
fn what_rots_on_the_disk_is_named_and_no_later_write_hides_it() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let channel = served.channel(1, 1);
    let granted = capability(1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 9..10);
    write(&channel, &slot, 9, 0, &bytes(3 * BLOCK, 1));
    let file = std::fs::File::options().write(true).open(path(dir.path(), 9)).unwrap();
    file.write_all_at(b"!", BLOCK as u64 + 500).unwrap();
    // Whole blocks, a piece of the damaged one, and again after its neighbourhood was written.
    for (offset, length) in [(0, 3 * BLOCK), (BLOCK + 100, 10)] {
        let error = channel.call(&slot, ask(Op::Read, 9, offset as u64, length as u64), vec![]).unwrap_err();
        assert!(error.is(&Refusal::Corrupt(String::new())), "{error}");
        assert!(error.to_string().contains("object 9"), "{error}");
    }
    // Compared where it lies: nothing of it is sent.
    let compare = |offset: u64, length: u64| {
        channel.call(&slot, data::Ask { flags: COMPARED, ..ask(Op::Read, 9, offset, length) }, vec![])
    };
    let error = compare(0, 3 * BLOCK as u64).unwrap_err();
    assert!(error.is(&Refusal::Corrupt(String::new())) && error.to_string().contains("object 9"), "{error}");
    let good = compare(2 * BLOCK as u64, BLOCK as u64).unwrap();
    assert_eq!((good.bytes.len(), good.object_length), (0, BLOCK as u64));
    write(&channel, &slot, 9, BLOCK as u64 + 600, b"written beside it");
    let error = channel.call(&slot, ask(Op::Read, 9, BLOCK as u64, 10), vec![]).unwrap_err();
    assert!(error.is(&Refusal::Corrupt(String::new())), "{error}");
    // The blocks around it are as good as before, and a whole new block makes it good.
    assert!(read(&channel, &slot, 9, 2 * BLOCK as u64, 10) == bytes(3 * BLOCK, 1)[2 * BLOCK..2 * BLOCK + 10]);
    write(&channel, &slot, 9, BLOCK as u64, &bytes(BLOCK, 2));
    assert!(read(&channel, &slot, 9, BLOCK as u64, BLOCK as u64) == bytes(BLOCK, 2));
}

#[test]
fn holes_are_compared_without_being_read() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let channel = served.channel(1, 1);
    let granted = capability(1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 9..10);
    let (block, far) = (BLOCK as u64, 8 * BLOCK as u64);
    write(&channel, &slot, 9, 0, &bytes(BLOCK, 1));
    write(&channel, &slot, 9, far, &bytes(BLOCK, 2));
    channel.call(&slot, ask(Op::SetLength, 9, 2 * far, 0), vec![]).unwrap();
    let compare = |offset: u64, length: u64| {
        let asked = data::Ask { flags: COMPARED, ..ask(Op::Read, 9, offset, length) };
        channel.call(&slot, asked, vec![]).map(|reply| reply.object_length)
    };
    let read = |offset, length| compare(offset, length).unwrap();
    // A file system may take whole extents for what is not a hole.
    assert!((2 * block..far).contains(&read(0, 2 * far)), "{}", read(0, 2 * far));
    assert_eq!((read(far, block), read(far + far / 2, far / 2)), (block, 0));
    // What was written and is a hole now was lost.
    let file = std::fs::File::options().write(true).open(path(dir.path(), 9)).unwrap();
    file.set_len(far).unwrap();
    file.set_len(2 * far).unwrap();
    let error = compare(far, block).unwrap_err();
    assert!(error.is(&Refusal::Corrupt(String::new())), "{error}");
}

/// What lies in a region that was being written at a crash is taken for true; what lies elsewhere is not.
#[test]
fn after_a_crash_only_sums_of_what_was_being_written_are_computed_anew() {
    const REGION: u64 = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let channel = served.channel(1, 1);
    let granted = capability(1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 1..2);
    write(&channel, &slot, 1, 0, &bytes(BLOCK, 1));
    drop((slot, channel));
    served.stop();

    let served = Served::new(dir.path());
    let channel = served.channel(1, 2);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    write(&channel, &slot, 1, REGION, &bytes(BLOCK, 2));
    // The machine dies: bytes of a write reached the disk, their sums did not.
    let file = std::fs::File::options().write(true).open(path(dir.path(), 1)).unwrap();
    file.write_all_at(b"!", REGION + 5).unwrap();
    file.write_all_at(b"!", 5).unwrap();
    drop((slot, channel));
    let crashed = tempfile::tempdir().unwrap();
    copy(dir.path(), crashed.path());

    let served = Served::new(crashed.path());
    let channel = served.channel(1, 3);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    let mut expected = bytes(BLOCK, 2);
    expected[5] = b'!';
    assert!(read(&channel, &slot, 1, REGION, BLOCK as u64) == expected);
    let error = channel.call(&slot, ask(Op::Read, 1, 0, 10), vec![]).unwrap_err();
    assert!(error.is(&Refusal::Corrupt(String::new())), "{error}");
}

/// Of objects that are made together the first write waits for no note of its own.
#[test]
fn after_a_crash_the_sums_of_new_objects_are_true_and_those_that_nobody_wrote_to_are_as_made() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let channel = served.channel(1, 1);
    let granted = capability(1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 1..17);
    let log = std::fs::metadata(dir.path().join("intents")).unwrap().len();
    write(&channel, &slot, 3, 0, &bytes(BLOCK, 1));
    assert_eq!(std::fs::metadata(dir.path().join("intents")).unwrap().len(), log, "it was noted before");
    let file = std::fs::File::options().write(true).open(path(dir.path(), 3)).unwrap();
    file.write_all_at(b"!", 5).unwrap();
    drop((slot, channel));
    let crashed = tempfile::tempdir().unwrap();
    copy(dir.path(), crashed.path());

    let served = Served::new(crashed.path());
    let channel = served.channel(1, 2);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    let mut expected = bytes(BLOCK, 1);
    expected[5] = b'!';
    assert!(read(&channel, &slot, 3, 0, BLOCK as u64) == expected);
    // Whoever had no answer asks again.
    create(&channel, &slot, 4..17);
    write(&channel, &slot, 4, 100, b"new");
    assert_eq!(read(&channel, &slot, 4, 100, 3), b"new");
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => {
                std::fs::create_dir(&to).unwrap();
                copy(&entry.path(), &to);
            }
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn readers_never_see_a_torn_block_while_others_write_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::new(dir.path());
    let granted = capability(1);
    let channel = served.channel(1, 1);
    let slot = channel.attach(&granted, key(&granted)).unwrap();
    create(&channel, &slot, 1..2);
    // Records as they are in a shared file: each writer has every second one, and most blocks have bytes of both.
    const RECORD: usize = 4700;
    const RECORDS: usize = 60;
    std::thread::scope(|scope| {
        for writer in 0..2_usize {
            let (served, granted) = (&served, &granted);
            scope.spawn(move || {
                let channel = served.channel(1, 10 + writer as u64);
                let slot = channel.attach(granted, key(granted)).unwrap();
                for round in 0..5 {
                    let tickets: Vec<_> = (writer..RECORDS)
                        .step_by(2)
                        .map(|record| {
                            let ask = ask(Op::Write, 1, (record * RECORD) as u64, RECORD as u64);
                            channel.submit(&slot, ask, vec![(record + round) as u8; RECORD]).unwrap()
                        })
                        .collect();
                    tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..100 {
                read(&channel, &slot, 1, 1000, (RECORD * RECORDS) as u64);
            }
        });
    });
    let all = read(&channel, &slot, 1, 0, (RECORD * RECORDS) as u64);
    for (record, bytes) in all.chunks(RECORD).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == (record + 4) as u8), "record {record}");
    }
}
