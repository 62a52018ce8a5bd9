//! Catalogue values: fixed bytes for every type. If a test here fails, an encoding has changed and every catalogue in
//! the world has become unreadable: raise the version of the record and keep the old type, do not change the bytes.

mod common;

use common::any_tape_file;
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

fn inode() -> Inode {
    let attr = Attr {
        ino: Ino(300),
        kind: FileKind::File,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 100,
        rdev: 0,
        size: 5,
        disk_bytes: 4096,
        atime: time(1),
        mtime: time(-2),
        ctime: time(3),
        btime: time(4),
    };
    let stamp = ObjectStamp { size: 5, allocated: 4096, mtime: time(5), ctime: time(6) };
    let file = FileState {
        version: Version(2),
        object: Some(ObjectId(7)),
        stamp: Some(stamp),
        digest: Some(Digest([0xab; 32])),
        class: ClassName::from("std"),
        copies: vec![CopyNo(1), CopyNo(2)],
        pinned: true,
    };
    Inode { attr, file: Some(file), observed: None }
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

fn version() -> VersionRecord {
    VersionRecord {
        version: Version(2),
        size: 6,
        mtime: time(1),
        digest: None,
        copies: vec![copy()],
        current: true,
    }
}

fn volume() -> Volume {
    Volume {
        barcode: Barcode::from("TC0001L9"),
        pool: Some(PoolName::from("p")),
        state: VolumeState::Filling,
        reason: "r".to_owned(),
        since: time(1),
        uuid: "u".to_owned(),
        labelled: Some(time(2)),
        block_size: 524_288,
        capacity: 1,
        written: 2,
        live: 3,
        files: 4,
        live_files: 5,
        append_block: 6,
        next_uid: 7,
        generation: 8,
        index_block: 9,
        indexed_to: 10,
        vcr: 11,
        mounts: 12,
        errors: 13,
        last_written: None,
        last_read: Some(time(3)),
    }
}

fn tape_file() -> TapeFile {
    TapeFile {
        uid: 2,
        ino: Ino(3),
        version: Version(4),
        copy: CopyNo(1),
        file_size: 6,
        segment_offset: 0,
        segment_length: 6,
        extents: vec![extent()],
        path: b"/a\xff".to_vec(),
        mode: 0o100_644,
        uid_owner: 5,
        gid_owner: 6,
        times: [time(1), time(2), time(3), time(4)],
        digest: Some(Digest([1; 32])),
        xattrs: vec![(b"user.k".to_vec(), b"v".to_vec())],
        class: ClassName::from("std"),
        written: time(5),
        live: true,
    }
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
    }
}

#[test]
fn golden_bytes() {
    golden(
        &inode(),
        "01ac0200a40301e8076400058020020103020603080401020107010580200a050c0601abababababababababababababababababababababababababababababababab0373746402010201",
    );
    golden(&copy(), "010101085443303030314c3900060101ac02f0a2040503016e1209");
    golden(&version(), "010206020100010101085443303030314c3900060101ac02f0a2040503016e120901");
    golden(
        &volume(),
        "01085443303030314c39010170030172020101750104028080200102030405060708090a0b0c0d00010603",
    );
    golden(
        &tape_file(),
        "01020304010600060101ac02f0a20405032f61ffa48302050602010402060308040101010101010101010101010101010101010101010101010101010101010101010106757365722e6b0176037374640a0501",
    );
    golden(&request(), "010101e807022f61030201010402000304050607016d");
    let class = Class {
        name: ClassName::from("std"),
        copies: vec![PoolName::from("a"), PoolName::from("b")],
        migrate_after_s: 60,
        migrate_bytes: 300,
        keep_on_disk: false,
    };
    golden(&class, "010373746402016101623cac0200");
    golden(&Pool { name: PoolName::from("a"), max_volumes: 300 }, "010161ac02");
}

/// The number of an enum's variant is part of the encoding: new variants go to the end.
#[test]
fn variants_keep_their_numbers() {
    use FileKind as K;
    use VolumeState as S;
    let kinds = [K::File, K::Directory, K::Symlink, K::Fifo, K::Socket, K::CharDevice, K::BlockDevice];
    for (number, kind) in kinds.into_iter().enumerate() {
        let mut inode = inode();
        inode.attr.kind = kind;
        assert_eq!(usize::from(encode(&inode)[3]), number, "{kind:?}");
    }
    let states = [
        S::Unknown,
        S::Blank,
        S::Scratch,
        S::Filling,
        S::Full,
        S::ReadOnly,
        S::Suspect,
        S::Foreign,
        S::Broken,
    ];
    for (number, state) in states.into_iter().enumerate() {
        assert_eq!(usize::from(encode(&Volume { state, ..volume() })[13]), number, "{state:?}");
    }
    let kinds = [RequestKind::Stage, RequestKind::Migrate, RequestKind::Purge, RequestKind::Label];
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
    let mut bytes = encode(&tape_file());
    assert!(matches!(decode::<TapeFile>(&[]), Err(RecordError::Damaged { length: 0, .. })));
    assert!(matches!(decode::<TapeFile>(&bytes[..bytes.len() - 1]), Err(RecordError::Damaged { .. })));
    bytes.push(0);
    assert!(matches!(decode::<TapeFile>(&bytes), Err(RecordError::Damaged { .. })));
    bytes[0] = 0;
    assert!(matches!(decode::<TapeFile>(&bytes), Err(RecordError::Unknown { found: 0, .. })));
    bytes[0] = 200;
    let newer = decode::<TapeFile>(&bytes).unwrap_err();
    assert_eq!(newer, RecordError::Newer { name: "TapeFile", found: 200, known: 1 });
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
    fn tape_files_round_trip(file in any_tape_file()) {
        prop_assert_eq!(decode::<TapeFile>(&encode(&file)), Ok(file));
    }

    #[test]
    fn damage_never_panics(at: prop::sample::Index, byte: u8, cut: prop::sample::Index, noise: Vec<u8>) {
        fn one<T: Record>(value: &T, at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let mut bytes = encode(value);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = decode::<T>(&bytes);
            let _ = decode::<T>(&bytes[..cut.index(bytes.len())]);
        }
        one(&inode(), at, byte, cut);
        one(&version(), at, byte, cut);
        one(&volume(), at, byte, cut);
        one(&tape_file(), at, byte, cut);
        one(&request(), at, byte, cut);
        let noise = [&[1], noise.as_slice()].concat();
        let _ = (decode::<Inode>(&noise), decode::<VersionRecord>(&noise), decode::<TapeFile>(&noise));
    }
}
