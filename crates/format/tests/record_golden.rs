//! Catalogue values: fixed bytes for the types that are stored in their public shape (the others are in `catalog`). If a test here fails, an encoding has changed and every catalogue in
//! the world has become unreadable: raise the version of the record and keep the old type, do not change the bytes.

use format::record::{Record, RecordError, body, decode, encode};
use format::records;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use types::*;

fn golden<T: Record + PartialEq + Debug>(value: &T, expected: &str) {
    let hex: String = encode(value).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, expected, "the encoding of {} has changed", T::NAME);
    assert_eq!(decode::<T>(&encode(value)).as_ref(), Ok(value));
}

fn time(n: i64) -> Time {
    Time::new(n, n.unsigned_abs() as u32)
}

fn extent() -> Extent {
    Extent { file_offset: 1, start_block: 300, byte_offset: 70_000, byte_count: 5 }
}

fn copy() -> CopyRecord {
    let segment = Segment {
        volume: Barcode::from("TC0001L9"),
        file_offset: 0,
        length: 6,
        extents: vec![extent()],
        tape_dir: TapeDir(3),
        tape_name: "n".to_owned(),
    };
    CopyRecord { copy: CopyNo(1), segments: vec![segment], recorded: time(9) }
}

fn request() -> Request {
    Request {
        id: RequestId(1),
        kind: RequestKind::Migrate,
        owner: 1000,
        subject: "/a".to_owned(),
        state: RequestState::Failed,
        created: time(1),
        started: Some(time(2)),
        finished: None,
        files_total: 3,
        files_done: 4,
        files_failed: 5,
        bytes_total: 6,
        bytes_done: 7,
        message: "m".to_owned(),
        priority: 9,
        deadline: Some(time(8)),
    }
}

#[test]
fn golden_bytes() {
    golden(&copy(), "010101085443303030314c3900060101ac02f0a2040503016e1209");
    golden(&request(), "020101e807022f61030201010402000304050607016d09011008");
    let before = "0101e807022f61030201010402000304050607016d";
    let bytes: Vec<u8> =
        (0..before.len() / 2).map(|n| u8::from_str_radix(&before[2 * n..2 * n + 2], 16).unwrap()).collect();
    let old = decode::<Request>(&[&[1], &bytes[..]].concat());
    assert_eq!(old, Ok(Request { priority: 5, deadline: None, ..request() }), "as written by version 1");
    let class = Class {
        name: ClassName::from("std"),
        copies: vec![PoolName::from("a"), PoolName::from("b")],
        migrate_after_s: 60,
        migrate_bytes: 300,
        keep_on_disk: false,
    };
    golden(&class, "010373746402016101623cac0200");
    let quota = Quota { uid: Some(1000), files: 1, bytes: 300, tape_bytes: 0, volumes: 5, disk_bytes: 9 };
    golden(&quota, "0301e80701ac02000509");
    let before = decode::<Quota>(&[2, 1, 0xe8, 7, 1, 0xac, 2, 0, 5]);
    assert_eq!(before, Ok(Quota { disk_bytes: 0, ..quota.clone() }), "as written by version 2");
    let before = decode::<Quota>(&[1, 1, 0xe8, 7, 1, 0xac, 2, 0]);
    assert_eq!(before, Ok(Quota { volumes: 0, disk_bytes: 0, ..quota }), "as written by version 1");
    let pool = Pool {
        max_volumes: 300,
        max_bytes: 5,
        collocate: Collocate::Directory(2),
        format: FormatRule::AnsiTar,
        worm: true,
        key: "k".to_owned(),
        library: Some("h".to_owned()),
        ..Pool::new(PoolName::from("a"))
    };
    golden(&pool, "020161ac020504020201016b010168");
    let before = decode::<Pool>(&[1, 1, b'a', 0xac, 2]);
    assert_eq!(
        before,
        Ok(Pool { max_volumes: 300, ..Pool::new(PoolName::from("a")) }),
        "as written by version 1"
    );
}

/// The number of an enum's variant is part of the encoding: new variants go to the end.
#[test]
fn variants_keep_their_numbers() {
    let kinds = [
        RequestKind::Stage,
        RequestKind::Migrate,
        RequestKind::Purge,
        RequestKind::Label,
        RequestKind::Rebuild,
        RequestKind::Verify,
        RequestKind::Repack,
        RequestKind::Import,
        RequestKind::Export,
        RequestKind::Drain,
        RequestKind::Balance,
        RequestKind::Scrub,
        RequestKind::Protect,
        RequestKind::MoveEngine,
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        assert_eq!(usize::from(encode(&Request { kind, ..request() })[2]), number, "{kind:?}");
    }
    use RequestState as R;
    for (number, state) in [R::Queued, R::Active, R::Done, R::Failed, R::Cancelled].into_iter().enumerate() {
        assert_eq!(usize::from(encode(&Request { state, ..request() })[8]), number, "{state:?}");
    }
}

#[test]
fn errors_are_told_apart() {
    let mut bytes = encode(&request());
    assert!(matches!(decode::<Request>(&[]), Err(RecordError::Damaged { length: 0, .. })));
    assert!(matches!(decode::<Request>(&bytes[..bytes.len() - 1]), Err(RecordError::Damaged { .. })));
    bytes.push(0);
    assert!(matches!(decode::<Request>(&bytes), Err(RecordError::Damaged { .. })));
    bytes[0] = 0;
    assert!(matches!(decode::<Request>(&bytes), Err(RecordError::Unknown { found: 0, .. })));
    bytes[0] = 200;
    let newer = decode::<Request>(&bytes).unwrap_err();
    assert_eq!(newer, RecordError::Newer { name: "Request", found: 200, known: 2 });
    assert_eq!(newer.class(), ErrorClass::Invalid);
}

/// How a record with a past is written: the old shape stays, `upgrade` leads from it to the new one.
#[test]
fn migration_chain() {
    #[derive(Serialize, Deserialize)]
    struct ThingV1 {
        count: u32,
    }
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Thing {
        count: u64,
        label: String,
    }
    records! { ThingV1 = 1 }
    impl Record for Thing {
        const NAME: &'static str = "Thing";
        const VERSION: u8 = 2;
        fn upgrade(version: u8, bytes: &[u8]) -> Result<Self, RecordError> {
            let length = bytes.len() + 1;
            match version {
                1 => body(bytes)
                    .map(|old: ThingV1| Self { count: old.count.into(), label: String::new() })
                    .map_err(|why| RecordError::Damaged { name: Self::NAME, length, why }),
                found => Err(RecordError::Unknown { name: Self::NAME, found }),
            }
        }
    }
    let old = encode(&ThingV1 { count: 300 });
    assert_eq!(decode::<Thing>(&old), Ok(Thing { count: 300, label: String::new() }));
    let new = Thing { count: 1, label: "x".to_owned() };
    assert_eq!(decode::<Thing>(&encode(&new)), Ok(new));
    assert!(matches!(decode::<Thing>(&[1]), Err(RecordError::Damaged { .. })));
}

proptest! {
    #[test]
    fn damage_never_panics(at: prop::sample::Index, byte: u8, cut: prop::sample::Index, noise: Vec<u8>) {
        fn one<T: Record>(value: &T, at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let mut bytes = encode(value);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = decode::<T>(&bytes);
            let _ = decode::<T>(&bytes[..cut.index(bytes.len())]);
        }
        one(&copy(), at, byte, cut);
        one(&request(), at, byte, cut);
        let noise = [&[1], noise.as_slice()].concat();
        let _ = (decode::<CopyRecord>(&noise), decode::<Request>(&noise), decode::<Class>(&noise));
    }
}
