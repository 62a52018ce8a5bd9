//! Heads and records of a journal of a coded file: what is understood is written as it was read, and nothing more is asked for than can be
//! there.

use stripe::record::{Head, Kind, Next, Record, next};

/// Longest record: a half of the log (bytes).
const LONGEST: usize = 32 << 20;

pub(super) fn run(bytes: &[u8]) {
    if let Some(head) = Head::decode(bytes) {
        assert!(bytes.starts_with(&head.encode()) && head.folded <= head.epoch);
    }
    let mut left = bytes;
    loop {
        match next(left) {
            Next::Record(record, length) => {
                assert!(left.starts_with(&record.encode()) && length > record.bytes.len());
                left = &left[length..];
            }
            Next::More(wanted) => {
                assert!(wanted > left.len() && wanted <= LONGEST);
                return;
            }
            Next::End => return,
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let head = Head { count: 3, epoch: 2, folded: 1, turn: 9 }.encode().to_vec();
    let record =
        |kind, at, within, length| Record { kind, epoch: 2, at, within, bytes: vec![7; length] }.encode();
    let log =
        [record(Kind::Data, 70_000, 0, 300), record(Kind::Redo, 3, 65_536, 100), record(Kind::Data, 0, 0, 0)];
    let mut torn = log.concat();
    torn.truncate(400);
    let mut long = record(Kind::Data, 0, 0, 9);
    long[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    vec![head, log.concat(), torn, long, vec![0; 60]]
}
