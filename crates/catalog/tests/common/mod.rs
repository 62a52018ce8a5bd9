//! Helpers of all tests: a catalogue on either engine with two pools, a class of two copies and volumes to write to.
#![allow(dead_code)]

pub mod listing;

use catalog::{Catalog, NewSegment, RecordOutcome, VolumeAppend, check};
use kv::{LmdbEngine, LmdbOptions, MemoryEngine};
use std::sync::Arc;
use types::*;

pub const POOLS: [&str; 2] = ["pool-a", "pool-b"];

pub struct Fixture {
    pub catalog: Catalog,
    pub dir: Option<tempfile::TempDir>,
}

pub fn t(secs: i64) -> Time {
    Time::new(secs, 5)
}

pub fn root(secs: i64) -> Cx {
    Cx::admin(t(secs))
}

pub fn user(uid: u32, secs: i64) -> Cx {
    Cx::user(uid, uid, t(secs))
}

pub fn class(name: &str, copies: &[&str]) -> Class {
    Class {
        name: name.into(),
        copies: copies.iter().map(|p| PoolName::from(*p)).collect(),
        migrate_after_s: 10,
        migrate_bytes: 0,
        keep_on_disk: false,
    }
}

pub fn volume(barcode: &str, pool: &str) -> Volume {
    Volume {
        pool: Some(pool.into()),
        state: VolumeState::Filling,
        uuid: "u".into(),
        labelled: Some(t(1)),
        block_size: 524_288,
        capacity: 1 << 40,
        append_block: 6,
        generation: 1,
        index_block: 5,
        indexed_to: 6,
        vcr: 1,
        ..Volume::new(barcode.into(), t(1))
    }
}

pub fn engine(dir: &std::path::Path) -> Arc<LmdbEngine> {
    let options = LmdbOptions { map_bytes: 1 << 30, ..LmdbOptions::default() };
    Arc::new(LmdbEngine::open(dir, options).expect("engine opens"))
}

fn furnish(catalog: &Catalog) {
    for pool in POOLS {
        catalog.put_pool(&Pool::new(pool.into())).expect("pool");
    }
    catalog.put_class(&class("default", &POOLS)).expect("class");
    catalog.put_class(&class("single", &["pool-b"])).expect("class");
    while catalog.refresh_classes(100, t(1)).expect("refresh") {}
    for (barcode, pool) in [("VA0001L9", POOLS[0]), ("VB0001L9", POOLS[1]), ("VA0002L9", POOLS[0])] {
        catalog.put_volume(&volume(barcode, pool)).expect("volume");
    }
}

pub fn memory() -> Fixture {
    let catalog = Catalog::open(Arc::new(MemoryEngine::new()), t(1)).expect("opens");
    furnish(&catalog);
    Fixture { catalog, dir: None }
}

pub fn lmdb() -> Fixture {
    let dir = tempfile::tempdir().expect("temp dir");
    let catalog = Catalog::open(engine(&dir.path().join("meta")), t(1)).expect("opens");
    furnish(&catalog);
    Fixture { catalog, dir: Some(dir) }
}

/// A furnished catalogue over an engine of the test's own.
pub fn over(engine: Arc<dyn kv::Engine>) -> Fixture {
    let catalog = Catalog::open(engine, t(1)).expect("opens");
    furnish(&catalog);
    Fixture { catalog, dir: None }
}

impl Fixture {
    pub fn check(&self) {
        let findings = check::verify(&self.catalog);
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

pub fn stamp(size: u64, secs: i64) -> ObjectStamp {
    ObjectStamp { size, allocated: size.div_ceil(4096) * 4096, mtime: t(secs), ctime: t(secs) }
}

pub fn segment(ino: Ino, version: Version, copy: u8, size: u64, part: (u64, u64), uid: u64) -> NewSegment {
    let extent = Extent { file_offset: part.0, start_block: 100 + uid, byte_offset: 0, byte_count: part.1 };
    NewSegment {
        ino,
        version,
        copy: CopyNo(copy),
        file_offset: part.0,
        length: part.1,
        extents: if part.1 > 0 { vec![extent] } else { vec![] },
        size,
        digest: Some(Digest([version.0 as u8; 32])),
        uid,
        told: None,
    }
}

/// Records segments on a volume; uids and the append point go on from where the volume stands.
pub fn record(c: &Catalog, barcode: &str, now: i64, mut segments: Vec<NewSegment>) -> Vec<RecordOutcome> {
    let v = c.volume(&barcode.into()).expect("read").expect("volume is there");
    for (s, uid) in segments.iter_mut().zip(v.next_uid..) {
        s.uid = uid;
    }
    let append = VolumeAppend {
        volume: barcode.into(),
        append_block: v.append_block + 10,
        next_uid: v.next_uid + segments.len() as u64,
        vcr: v.vcr + 1,
        now: t(now),
        section: None,
    };
    c.record_copies(&append, &segments).expect("recorded")
}

pub fn tape_paths(c: &Catalog, barcode: &str) -> Vec<String> {
    c.volume_files(&barcode.into(), 0, 1000).expect("walk").into_iter().map(|(path, _)| path).collect()
}
