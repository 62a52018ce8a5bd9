//! A damaged catalogue: any value, or any further pair, in a small one. Opening, checking, and every kind of operation
//! give an answer or an error.

use crate::input::{Input, piece};
use catalog::{Catalog, New, NewSegment, VolumeAppend, check};
use kv::{Durability, Engine, KvError, MemoryEngine};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use types::api::XattrMode;
use types::*;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

const OBJECT: ObjectId = ObjectId(1);

pub(super) fn run(bytes: &[u8]) {
    let engine = Arc::new(MemoryEngine::new());
    let mut input = Input::new(bytes);
    let mut pairs = sound().clone();
    while !input.is_empty() {
        damage(&mut pairs, &mut input);
    }
    store(&*engine, &pairs);
    let Ok(catalog) = Catalog::open(engine, at(9)) else { return };
    let _ = check::verify(&catalog);
    names(&catalog);
    archive(&catalog);
    let _ = check::verify(&catalog);
}

/// Changes one value, or adds a pair.
fn damage(pairs: &mut Pairs, input: &mut Input<'_>) {
    let choice = input.u8();
    let number = usize::from(input.u8()) % pairs.len();
    match choice % 5 {
        0 => pairs[number].1 = input.piece().to_vec(),
        1 => {
            let at = usize::from(input.u8());
            let byte = input.u8();
            if let Some(slot) = pairs[number].1.get_mut(at) {
                *slot = byte;
            }
        }
        2 => pairs[number].1.truncate(input.u8().into()),
        3 if pairs.len() > 1 => _ = pairs.remove(number),
        3 => {}
        _ => {
            let key = input.piece();
            let key = if key.is_empty() { &[0x10] } else { &key[..key.len().min(kv::MAX_KEY)] };
            pairs.push((key.to_vec(), input.piece().to_vec()));
        }
    }
}

fn at(secs: i64) -> Time {
    Time::new(secs, 5)
}

fn cx(secs: i64) -> Cx {
    Cx::admin(at(secs))
}

fn stamp(size: u64, secs: i64) -> ObjectStamp {
    ObjectStamp { size, allocated: size.next_multiple_of(4096), mtime: at(secs), ctime: at(secs) }
}

fn names(c: &Catalog) {
    let ino = c.lookup(Ino::ROOT, b"x").map_or(Ino(2), |inode| inode.attr.ino);
    let dir = c.lookup(Ino::ROOT, b"d").map_or(Ino(3), |inode| inode.attr.ino);
    let _ = (c.path_of(ino), c.versions(ino), c.candidate(ino), c.inode(ino), c.class_of(ino));
    let _ = (c.readdir(Ino::ROOT, 0, 10), c.readdir_plus(Ino::ROOT, 0, 10), c.readdir_plus(dir, 1, 10));
    let _ = (c.resolve(&cx(9), b"/l", true), c.resolve(&cx(9), b"/d/y", false), c.readlink(Ino(4)));
    let _ = (c.getxattr(&cx(9), ino, b"user.k"), c.listxattr(&cx(9), ino));
    let _ = c.setxattr(&cx(9), ino, b"user.k", b"w", XattrMode::Any);
    let _ = c.link(&cx(9), ino, dir, b"z");
    let _ = c.rename(&cx(9), (Ino::ROOT, b"x"), (dir, b"w"), RenameMode::Replace, &|_| false);
    let _ = c.rename(&cx(9), (dir, b"w"), (Ino::ROOT, b"x"), RenameMode::Replace, &|_| false);
    let _ = c.setattr(&cx(9), ino, &SetAttr { mode: Some(0o600), uid: Some(7), ..SetAttr::default() });
    let _ = (c.create(&cx(9), dir, b"new", &New::file(0o644, ObjectId(9))), c.orphans(), c.writing());
    let leads = c.lookup(Ino::ROOT, b"j").map_or(Ino(5), |inode| inode.attr.ino);
    let _ = (c.junctions(), c.junction(leads), c.resolve(&cx(9), b"/j/x", true));
    let _ = c.create(&cx(9), leads, b"new", &New::node(FileKind::File, 0o644));
    let _ = (c.rmdir(&cx(9), Ino::ROOT, b"j"), c.make_junction(&cx(9), b"/d", &junction("t")));
    let _ = (c.remove_junction(&cx(9), b"/j"), c.make_junction(&cx(9), b"/j", &junction("t")));
    let _ = (c.totals(), c.usage(0), c.for_each_inode(Ino(0), 99), c.unowned_objects(ObjectId(0), 99));
}

fn archive(c: &Catalog) {
    let ino = c.lookup(Ino::ROOT, b"x").map_or(Ino(2), |inode| inode.attr.ino);
    let volume = Barcode::from("V1");
    let _ = (c.volumes(), c.volume(&volume), c.volume_files(&volume, 0, 10), c.classes(), c.pools());
    let _ = c.walk_volume(&volume, &mut |_| ControlFlow::Continue(()));
    let _ = (c.candidates(at(99), None, 9), c.purge_candidates(None, 9), c.requests(true, 9));
    let _ = (c.items(RequestId(1), Ino(0), 9), c.requests_for(ino), c.open_requests());
    let _ = c.finish_item(RequestId(1), ino, ItemState::Done, 3, (at(9), at(10)));
    let _ = c.observe(&cx(10), ino, OBJECT, &stamp(11, 9), true, Durability::Relaxed);
    let _ = record(c, ino, Version(2), 9, 11);
    let _ = (c.release_object(ino, Version(1), OBJECT, &stamp(10, 3)), c.pin(ino, true));
    let _ = c.set_resident(ino, Version(1), ObjectId(8), &stamp(10, 3), at(11));
    let _ = (c.touch_access(ino, at(12)), c.refresh_classes(10, at(12)));
    let _ = c.unlink(&cx(13), Ino::ROOT, b"x", &|_| false);
    let _ = c.update_volume(&volume, &mut |v| v.errors += 1);
    let _ = (c.sync(), c.prune_requests(at(99), 10));
}

fn record(c: &Catalog, ino: Ino, version: Version, block: u64, length: u64) -> bool {
    let volume = Barcode::from("V1");
    let extent = Extent { file_offset: 0, start_block: block, byte_offset: 0, byte_count: length };
    let segment = NewSegment {
        ino,
        version,
        copy: CopyNo(1),
        file_offset: 0,
        length,
        extents: vec![extent],
        size: length,
        digest: Some(Digest([7; 32])),
        uid: block,
        told: None,
    };
    let append = VolumeAppend {
        volume,
        append_block: block + 1,
        next_uid: block + 1,
        vcr: 2,
        now: at(4),
        section: None,
    };
    c.record_copies(&append, &[segment]).is_ok()
}

/// Every pair of a sound catalogue with one of everything.
fn sound() -> &'static Pairs {
    static PAIRS: OnceLock<Pairs> = OnceLock::new();
    PAIRS.get_or_init(|| {
        let engine = Arc::new(MemoryEngine::new());
        let catalog = Catalog::open(engine.clone(), at(1)).expect("a new catalogue");
        furnish(&catalog);
        assert_eq!(check::verify(&catalog), Vec::<String>::new());
        let mut pairs = Vec::new();
        let read: Result<(), KvError> = engine.read_dyn(&mut |r| {
            r.scan(&[0], &[0xff], &mut |k, v| {
                pairs.push((k.to_vec(), v.to_vec()));
                ControlFlow::Continue(())
            })
        });
        read.expect("memory can be read");
        pairs
    })
}

fn furnish(c: &Catalog) {
    c.put_pool(&Pool::new("p".into())).expect("a pool");
    let class = Class {
        name: "default".into(),
        copies: vec!["p".into()],
        migrate_after_s: 10,
        migrate_bytes: 0,
        keep_on_disk: false,
    };
    c.put_class(&class).expect("a class");
    while c.refresh_classes(10, at(1)).expect("classes are applied") {}
    c.put_volume(&volume()).expect("a volume");
    let x = c.create(&cx(2), Ino::ROOT, b"x", &New::file(0o644, OBJECT)).expect("a file").attr.ino;
    let d = c.create(&cx(2), Ino::ROOT, b"d", &New::node(FileKind::Directory, 0o755)).expect("a directory");
    let link = New { target: Some(b"x".to_vec()), ..New::node(FileKind::Symlink, 0o777) };
    c.create(&cx(2), Ino::ROOT, b"l", &link).expect("a symlink");
    let y = c.create(&cx(2), d.attr.ino, b"y", &New::file(0o644, ObjectId(2))).expect("a file").attr.ino;
    c.link(&cx(2), y, Ino::ROOT, b"y2").expect("a hard link");
    c.setxattr(&cx(2), x, b"user.k", b"v", XattrMode::Any).expect("an attribute");
    for (ino, object) in [(x, OBJECT), (y, ObjectId(2))] {
        c.observe(&cx(3), ino, object, &stamp(10, 3), true, Durability::Relaxed).expect("it is closed");
    }
    assert!(record(c, x, Version(1), 6, 10), "a copy");
    c.create(&cx(2), Ino::ROOT, b"j", &New::node(FileKind::Directory, 0o755)).expect("a directory");
    c.make_junction(&cx(4), b"/j", &junction("s")).expect("a junction");
    let request = Request::new(RequestKind::Stage, 0, "/x".into(), at(5));
    c.create_request(&request, &[(x, 10)]).expect("a request");
}

fn junction(subsystem: &str) -> Junction {
    Junction { subsystem: subsystem.into(), addresses: vec!["a:1".into()], made: at(4) }
}

fn volume() -> Volume {
    Volume {
        pool: Some("p".into()),
        state: VolumeState::Filling,
        uuid: "u".into(),
        labelled: Some(at(1)),
        block_size: 524_288,
        capacity: 1 << 40,
        append_block: 6,
        generation: 1,
        index_block: 5,
        indexed_to: 6,
        vcr: 1,
        ..Volume::new("V1".into(), at(1))
    }
}

fn store(engine: &dyn Engine, pairs: &Pairs) {
    let written = engine
        .write_dyn(Durability::Relaxed, &mut |w| pairs.iter().try_for_each(|(key, value)| w.put(key, value)));
    written.expect("memory takes it");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let pairs = sound();
    // each value as it is, so that changes of the input are changes of a value
    let values = pairs.iter().enumerate();
    let mut seeds: Vec<_> =
        values.map(|(number, (_, value))| [vec![0, number as u8], piece(value)].concat()).collect();
    seeds.extend(pairs.iter().step_by(3).map(|(k, v)| [vec![4, 0], piece(k), piece(v)].concat()));
    seeds.push(vec![3, 5]);
    seeds
}
