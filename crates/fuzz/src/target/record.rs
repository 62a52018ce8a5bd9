//! Values of the catalogue that are stored in their public shape. What is understood is written as something that means
//! the same, and writing it is settled: the bytes written are read and written as themselves.

use format::record::{self, Record};
use std::fmt::Debug;
use types::*;

pub(super) fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => one::<CopyRecord>(bytes),
        1 => one::<Request>(bytes),
        2 => one::<Class>(bytes),
        _ => one::<Pool>(bytes),
    }
}

fn one<T: Record + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(value) = record::decode::<T>(bytes) else { return };
    let again = record::encode(&value);
    // The present shape says more than earlier ones.
    let grows = bytes.first() != Some(&T::VERSION);
    assert!(grows || again.len() <= bytes.len(), "{} bytes became {}", bytes.len(), again.len());
    assert_eq!(record::decode::<T>(&again).as_ref(), Ok(&value));
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    fn one<T: Record>(kind: u8, value: &T) -> Vec<u8> {
        [vec![kind], record::encode(value)].concat()
    }
    let now = Time::new(1_790_000_000, 5);
    let segment = Segment {
        volume: "TC0001L9".into(),
        file_offset: 0,
        length: 9,
        extents: vec![Extent { file_offset: 0, start_block: 7, byte_offset: 100, byte_count: 9 }],
        tape_dir: TapeDir(3),
        tape_name: "n".into(),
    };
    let class = Class {
        name: "standard".into(),
        copies: vec!["a".into(), "b".into()],
        migrate_after_s: 60,
        migrate_bytes: 1 << 40,
        keep_on_disk: false,
    };
    vec![
        one(0, &CopyRecord { copy: CopyNo(1), segments: vec![segment], recorded: now }),
        one(1, &Request::new(RequestKind::Migrate, 1000, "/a".into(), now)),
        one(2, &class),
        one(3, &Pool { max_volumes: 3, max_bytes: 9, ..Pool::new("a".into()) }),
    ]
}
