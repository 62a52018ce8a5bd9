//! Values of the catalogue in their public shapes. What is understood is written as something that means the same, and
//! writing it is settled: the bytes written are read and written as themselves.

use format::record::{self, Record};
use std::fmt::Debug;
use types::*;

pub(super) fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => one::<Inode>(bytes),
        1 => one::<VersionRecord>(bytes),
        2 => one::<CopyRecord>(bytes),
        3 => one::<Volume>(bytes),
        4 => one::<TapeFile>(bytes),
        5 => one::<Request>(bytes),
        6 => one::<Class>(bytes),
        _ => one::<Pool>(bytes),
    }
}

fn one<T: Record + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(value) = record::decode::<T>(bytes) else { return };
    let again = record::encode(&value);
    assert!(again.len() <= bytes.len(), "{} bytes became {}", bytes.len(), again.len());
    assert_eq!(record::decode::<T>(&again).as_ref(), Ok(&value));
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    fn one<T: Record>(kind: u8, value: &T) -> Vec<u8> {
        [vec![kind], record::encode(value)].concat()
    }
    vec![
        one(0, &inode()),
        one(1, &version()),
        one(2, &version().copies[0]),
        one(3, &volume()),
        one(4, &tape_file()),
        one(5, &request()),
        one(6, &class()),
        one(7, &Pool { name: "a".into(), max_volumes: 3 }),
    ]
}

const T: Time = Time { secs: 1_790_000_000, nanos: 5 };

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
        atime: T,
        mtime: T,
        ctime: T,
        btime: T,
    };
    let file = FileState {
        version: Version(2),
        object: Some(ObjectId(7)),
        stamp: Some(ObjectStamp { size: 5, allocated: 4096, mtime: T, ctime: T }),
        digest: Some(Digest([0xab; 32])),
        class: "standard".into(),
        copies: vec![CopyNo(1), CopyNo(2)],
        pinned: true,
    };
    Inode { attr, file: Some(file), observed: None }
}

fn version() -> VersionRecord {
    let segment = Segment {
        volume: "TC0001L9".into(),
        file_offset: 0,
        length: 9,
        extents: vec![Extent { file_offset: 0, start_block: 7, byte_offset: 100, byte_count: 9 }],
        tape_dir: TapeDir(3),
        tape_name: "n".into(),
    };
    let copy = CopyRecord { copy: CopyNo(1), segments: vec![segment], recorded: T };
    VersionRecord { version: Version(2), size: 9, mtime: T, digest: None, copies: vec![copy], current: true }
}

fn volume() -> Volume {
    Volume {
        barcode: "TC0001L9".into(),
        pool: Some("p".into()),
        state: VolumeState::Filling,
        reason: "r".into(),
        since: T,
        uuid: "u".into(),
        labelled: Some(T),
        block_size: 524_288,
        capacity: 1 << 40,
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
        last_read: Some(T),
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
        extents: vec![Extent { file_offset: 0, start_block: 7, byte_offset: 100, byte_count: 6 }],
        path: b"/a\xff".to_vec(),
        mode: 0o100_644,
        uid_owner: 5,
        gid_owner: 6,
        times: [T; 4],
        digest: Some(Digest([1; 32])),
        xattrs: vec![(b"user.k".to_vec(), b"v".to_vec())],
        class: "standard".into(),
        written: T,
        live: true,
    }
}

fn request() -> Request {
    Request {
        id: RequestId(1),
        kind: RequestKind::Migrate,
        owner: 1000,
        subject: "/a".into(),
        state: RequestState::Failed,
        created: T,
        started: Some(T),
        finished: None,
        files_total: 3,
        files_done: 4,
        files_failed: 5,
        bytes_total: 6,
        bytes_done: 7,
        message: "m".into(),
    }
}

fn class() -> Class {
    Class {
        name: "standard".into(),
        copies: vec!["a".into(), "b".into()],
        migrate_after_s: 60,
        migrate_bytes: 1 << 40,
        keep_on_disk: false,
    }
}
