//! A disk tier that is too small: what is purged, in which order, who waits, and who is told that there is no room.

use crate::support::{Bed, PATIENCE, READ, Running, WRITE, cx, pattern};
use node::Size;
use std::time::{Duration, Instant};
use types::api::{FileApi, OpenFlags};
use types::*;
use wire::Call;

/// Longer than any test waits (seconds).
const FOR_EVER: u32 = 3600;

const MB: usize = 1 << 20;

fn reasons(bed: &Bed, call: Call) -> Vec<String> {
    let request = bed.act(call);
    let failed = |s: &ItemState| match s {
        ItemState::Failed(why) => Some(why.clone()),
        _ => None,
    };
    bed.items(request.id).iter().filter_map(failed).collect()
}

#[test]
fn purge_leaves_what_is_pinned_open_incomplete_or_changed_and_says_why() {
    let bed = Bed::new();
    for name in ["pinned", "open", "changed", "free"] {
        bed.write(name, &pattern(10_000, 1));
    }
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    bed.call(Call::Pin { files: bed.one("/pinned"), pin: true });
    let opened = bed.open(bed.stat("/open").attr.ino, READ);
    bed.write("changed", b"another content");
    bed.write("incomplete", b"never migrated");
    let why = |path: &str| reasons(&bed, Call::Purge(bed.one(path)));
    assert!(why("/pinned")[0].contains("pin"), "{:?}", why("/pinned"));
    assert!(why("/open")[0].contains("open"), "{:?}", why("/open"));
    assert!(why("/changed")[0].contains("cop"), "{:?}", why("/changed"));
    assert!(why("/incomplete")[0].contains("cop"), "{:?}", why("/incomplete"));
    assert!(why("/free").is_empty());
    for (path, residency) in [
        ("/pinned", Residency::Dual),
        ("/open", Residency::Dual),
        ("/changed", Residency::Resident),
        ("/incomplete", Residency::Resident),
        ("/free", Residency::Offline),
    ] {
        assert_eq!(bed.stat(path).residency, Some(residency), "{path}");
    }
    bed.node.release(opened.handle);
}

#[test]
fn the_least_recently_used_files_go_first_and_only_down_to_the_low_watermark() {
    let bed = Bed::with(|c| {
        c.disk.capacity = Some(Size::mib(20));
        (c.disk.low_watermark, c.disk.high_watermark) = (60, 80);
    });
    let files: Vec<Ino> = (0..7).map(|i| bed.write(&format!("f{i}"), &pattern(2 * MB, i))).collect();
    assert_eq!(bed.act(Call::Migrate(bed.all())).state, RequestState::Done);
    // The order of use is kept by the minute.
    let later = Cx::admin(cx().now.plus(Duration::from_secs(120)));
    let opened = bed.node.open(&later, files[0], READ).unwrap();
    bed.node.release(opened.handle);
    // 14 of 20 MiB: nothing happens. With three more the high watermark is reached.
    std::thread::sleep(Duration::from_millis(600));
    assert!((0..7).all(|i| bed.stat(&format!("/f{i}")).residency == Some(Residency::Dual)));
    bed.write("f7", &pattern(3 * MB, 7));
    bed.until("purged", |b| b.status().disk.used <= 12 << 20);
    bed.until("at rest", |b| b.status().migrate_backlog_files == 0 || b.status().disk.used <= 12 << 20);
    let offline: Vec<usize> =
        (0..8).filter(|i| bed.stat(&format!("/f{i}")).residency == Some(Residency::Offline)).collect();
    assert!(offline.contains(&1) && offline.contains(&2), "{offline:?}");
    assert!(!offline.contains(&0), "{offline:?}");
    assert!(bed.status().disk.used >= 8 << 20, "not more than needed: {:?}", bed.status().disk);
}

/// Writes through the node, as it happens while the tier is under pressure.
fn served(bed: &Bed, name: &str, data: &[u8]) -> Result<Ino, FsError> {
    let opened = bed.node.create(&cx(), Ino::ROOT, name.as_bytes(), 0o644, WRITE)?;
    let mut at = 0;
    let mut result = Ok(opened.attr.ino);
    for piece in data.chunks(256 << 10) {
        match bed.node.write(opened.handle, at, piece) {
            Ok(n) => at += n as u64,
            Err(e) => {
                result = Err(e);
                break;
            }
        }
    }
    bed.node.release(opened.handle);
    result
}

#[test]
fn writers_go_on_as_migration_and_purge_make_room() {
    let bed = Bed::with(|c| {
        c.disk.capacity = Some(Size::mib(12));
        c.library.cartridge_capacity = Size::mib(200);
    });
    let files: Vec<Ino> =
        (0..20).map(|i| served(&bed, &format!("f{i}"), &pattern(2 * MB, i)).unwrap()).collect();
    assert!(bed.status().disk.used <= 12 << 20, "{:?}", bed.status().disk);
    for (i, ino) in files.iter().enumerate() {
        assert!(bed.read(*ino) == pattern(2 * MB, i as u64), "file {i}");
    }
    bed.settle();
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn a_full_tier_of_pinned_files_refuses_at_once_and_loses_nothing() {
    let bed = Bed::with(|c| (c.disk.capacity, c.disk.space_wait_s) = (Some(Size::mib(10)), FOR_EVER));
    for i in 0..4 {
        served(&bed, &format!("f{i}"), &pattern(2 * MB, i)).unwrap();
        bed.call(Call::Pin { files: bed.one(&format!("/f{i}")), pin: true });
    }
    let begun = Instant::now();
    assert_eq!(served(&bed, "more", &pattern(4 * MB, 9)), Err(FsError::NoSpace));
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    for i in 0..4 {
        let ino = bed.stat(&format!("/f{i}")).attr.ino;
        assert!(bed.read(ino) == pattern(2 * MB, i));
    }
    bed.call(Call::Pin { files: bed.all(), pin: false });
    served(&bed, "again", &pattern(4 * MB, 9)).unwrap();
}

#[test]
fn a_file_larger_than_the_tier_is_refused() {
    let bed = Bed::with(|c| (c.disk.capacity, c.disk.space_wait_s) = (Some(Size::mib(8)), FOR_EVER));
    let begun = Instant::now();
    assert_eq!(served(&bed, "big", &pattern(12 * MB, 9)), Err(FsError::NoSpace));
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert_eq!(bed.node.write(Handle(u64::MAX), 0, b"x"), Err(FsError::BadHandle));
}

#[test]
fn a_recall_makes_its_own_room() {
    let bed = Bed::with(|c| c.disk.capacity = Some(Size::mib(12)));
    let big = served(&bed, "big", &pattern(7 * MB, 1)).unwrap();
    bed.migrate_and_purge();
    for i in 0..4 {
        served(&bed, &format!("f{i}"), &pattern(2 * MB, i)).unwrap();
    }
    bed.act(Call::Migrate(bed.all()));
    // Below the high watermark, and yet not enough room for the recall.
    let opened = bed.open(big, READ);
    let (_, got) = bed.begin_read(opened.handle, 0, 1000);
    assert_eq!(got.recv_timeout(PATIENCE).unwrap().unwrap(), pattern(7 * MB, 1)[..1000]);
    bed.node.release(opened.handle);
}

#[test]
fn a_sparse_file_needs_room_for_its_data_only() {
    let bed = Bed::with(|c| c.disk.capacity = Some(Size::mib(12)));
    let ino = bed.write("sparse", &pattern(MB, 1));
    let set = SetAttr { size: Some(100 << 20), ..SetAttr::default() };
    bed.node.setattr(&cx(), ino, &set).unwrap();
    bed.migrate_and_purge();
    assert_eq!(bed.act(Call::Stage(bed.all())).state, RequestState::Done);
    let opened = bed.open(ino, READ);
    assert!(bed.read_at(opened.handle, 0, MB as u32).unwrap() == pattern(MB, 1));
    assert!(bed.read_at(opened.handle, 99 << 20, MB as u32).unwrap() == vec![0; MB]);
    bed.node.release(opened.handle);
    assert!(bed.status().disk.used < 4 << 20, "{:?}", bed.status().disk);
}

#[test]
fn appends_of_several_writers_do_not_overlap() {
    let bed = Bed::new();
    let ino = bed.write("log", b"");
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            let bed = &bed;
            scope.spawn(move || {
                let opened = bed.open(ino, OpenFlags { append: true, ..WRITE });
                for _ in 0..100 {
                    assert_eq!(bed.node.write(opened.handle, 0, &[b'a' + writer; 10]).unwrap(), 10);
                }
                bed.node.release(opened.handle);
            });
        }
    });
    let log = bed.read(ino);
    assert_eq!(log.len(), 4000);
    assert!(log.chunks(10).all(|line| line.iter().all(|b| *b == line[0])));
}

#[test]
fn a_recall_without_room_leaves_the_only_drive_to_the_files_that_must_go_first() {
    let bed = Bed::with(|c| {
        c.disk.capacity = Some(Size::mib(12));
        c.disk.space_wait_s = FOR_EVER;
        c.library.drives = 1;
    });
    let big = served(&bed, "big", &pattern(7 * MB, 1)).unwrap();
    bed.migrate_and_purge();
    let fresh: Vec<Ino> =
        (0..4).map(|i| served(&bed, &format!("f{i}"), &pattern(2 * MB, i)).unwrap()).collect();
    let begun = Instant::now();
    let opened = bed.open(big, READ);
    let (_, got) = bed.begin_read(opened.handle, 0, 1000);
    assert_eq!(got.recv_timeout(PATIENCE).unwrap().unwrap(), pattern(7 * MB, 1)[..1000]);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    bed.node.release(opened.handle);
    bed.settle();
    for (i, ino) in fresh.iter().enumerate() {
        assert!(bed.read(*ino) == pattern(2 * MB, i as u64), "file {i}");
    }
    bed.settle();
    assert_eq!(bed.check(true).findings, []);
}

#[test]
fn a_quote_names_what_is_larger_than_the_disk_tier() {
    let bed = Bed::new();
    bed.write("large", &pattern(24 * MB, 1));
    bed.write("small", &pattern(MB, 2));
    bed.migrate_and_purge();
    let mut config = bed.node.config().clone();
    config.disk.capacity = Some(Size::mib(16));
    bed.node.stop(true);
    drop(bed.node);
    let bed = Bed { dir: bed.dir, node: Running::start(config) };
    let wire::Reply::Quote(quote) = bed.call(Call::Quote { files: bed.all(), after: 0 }) else {
        panic!("no quote")
    };
    let [lost] = &quote.lost_files[..] else { panic!("{quote:?}") };
    assert_eq!((quote.lost, quote.wanted.0, lost.path.to_string().as_str()), (1, 2, "/large"));
    assert!(lost.why.contains("do not fit into the disk tier"), "{}", lost.why);
}
