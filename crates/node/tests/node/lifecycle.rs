//! Starting, stopping, and what stands in the way; what a check finds.

use crate::support::{Bed, READ, Running, config, files_below, pattern};
use node::{Config, Node, Size};
use std::time::Instant;
use types::*;
use wire::Call;

const MB: usize = 1 << 20;

fn refused(config: Config) -> wire::Failure {
    Node::start(config).err().expect("the node must not start")
}

#[test]
fn a_second_node_on_the_directory_and_a_newer_format_are_refused_by_name() {
    let bed = Bed::new();
    let busy = refused(bed.node.config().clone());
    assert_eq!(busy.class, ErrorClass::Busy);
    let dir = bed.dir.path().display().to_string();
    assert!(busy.message.contains(&dir), "{}", busy.message);
    bed.node.stop(true);
    let Bed { dir: kept, node } = bed;
    drop(node);
    for (marker, word) in [("thermocline-state 99\n", "newer"), ("something else\n", "not ours")] {
        std::fs::write(kept.path().join("format"), marker).unwrap();
        let failure = refused(config(kept.path()));
        assert!(failure.message.contains(word) && failure.message.contains(&dir), "{}", failure.message);
    }
    std::fs::write(kept.path().join("format"), "thermocline-state 1\n").unwrap();
    Node::start(config(kept.path())).unwrap().stop(false);
}

#[test]
fn a_node_does_not_begin_anew_beside_what_is_left_of_a_lost_catalogue() {
    let bed = Bed::new();
    let ino = bed.write("f", &pattern(1000, 1));
    bed.node.stop(true);
    let Bed { dir, node } = bed;
    drop(node);
    let (catalog, kept) = (dir.path().join("catalog"), dir.path().join("kept"));
    std::fs::rename(&catalog, &kept).unwrap();
    let failure = refused(config(dir.path()));
    assert_eq!(failure.class, ErrorClass::Corrupt);
    assert!(failure.message.contains("data.mdb") && !catalog.exists(), "{}", failure.message);
    std::fs::rename(&kept, &catalog).unwrap();
    let bed = Bed { node: Running::start(config(dir.path())), dir };
    assert_eq!(bed.read(ino), pattern(1000, 1));
    bed.node.stop(true);

    // Begun anew on purpose: what the old one had on disk is not taken for what the new one makes.
    let Bed { mut dir, node } = bed;
    drop(node);
    std::fs::remove_dir_all(&catalog).unwrap();
    std::fs::remove_file(dir.path().join("format")).unwrap();
    for run in 0..2 {
        let bed = Bed { node: Running::start(config(dir.path())), dir };
        bed.write(&format!("new {run}"), &pattern(10, 2));
        bed.node.stop(true);
        dir = bed.dir;
    }
    let objects = files_below(&config(dir.path()).disk_path());
    let kept = objects.iter().filter(|path| std::fs::read(path).is_ok_and(|data| data == pattern(1000, 1)));
    assert_eq!(kept.count(), 1);
}

/// It stops, and no thread keeps the node.
fn stop_in_time(bed: Bed, graceful: bool) {
    let begun = Instant::now();
    bed.node.stop(graceful);
    assert!(begun.elapsed() < crate::support::PATIENCE, "graceful {graceful}: {:?}", begun.elapsed());
    let node = std::sync::Arc::downgrade(&bed.node);
    drop(bed);
    assert_eq!(node.strong_count(), 0, "a thread holds the node");
}

#[test]
fn stopping_ends_soon_whatever_is_under_way() {
    for graceful in [true, false] {
        let bed = Bed::with(|c| {
            c.library.drive_rate = Size(1 << 20);
            c.tape.block_size = Size(64 << 10);
        });
        for i in 0..3 {
            bed.write(&format!("f{i}"), &pattern(2 * MB, i));
        }
        bed.migrate_and_purge();
        // Before the drive reads: that takes two seconds only.
        bed.write("new", &pattern(4 * MB, 9));
        let opened = bed.open(bed.stat("/f0").attr.ino, READ);
        let (_, got) = bed.begin_read(opened.handle, 2 * MB as u64 - 10, 10);
        bed.begin(Call::Stage(bed.all()));
        bed.until("a drive reads", |b| b.drives().iter().any(|d| d.status == DriveStatus::Recalling));
        bed.begin(Call::Migrate(bed.all()));
        use types::api::FileApi;
        bed.node.release(opened.handle);
        stop_in_time(bed, graceful);
        assert!(got.recv_timeout(crate::support::PATIENCE).unwrap().is_err());
    }
    stop_in_time(Bed::new(), true);
    stop_in_time(Bed::new(), false);
}

#[test]
fn a_stage_request_goes_on_after_a_restart() {
    let bed = Bed::with(|c| {
        c.library.drive_rate = Size(2 << 20);
        c.tape.block_size = Size(64 << 10);
    });
    let files: Vec<Ino> = (0..4).map(|i| bed.write(&format!("f{i}"), &pattern(MB, i))).collect();
    bed.migrate_and_purge();
    let request = bed.begin(Call::Stage(bed.all())).request;
    bed.until("it runs", |b| b.request(request.id).percent > 0);
    let bed = bed.restart();
    let ended = bed.wait(request.id);
    assert_eq!((ended.state, ended.files_done), (RequestState::Done, 4), "{ended:?}");
    for (i, ino) in files.iter().enumerate() {
        assert!(bed.read(*ino) == pattern(MB, i as u64));
    }
}

#[test]
fn a_check_of_a_busy_node_raises_no_false_alarm() {
    let bed = Bed::new();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for user in 0..2 {
            let (bed, over) = (&bed, &over);
            scope.spawn(move || {
                use types::api::FileApi;
                for i in 0.. {
                    if over.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("{user}-{}", i % 50);
                    if i >= 50 {
                        bed.node.unlink(&crate::support::cx(), Ino::ROOT, name.as_bytes()).unwrap();
                    }
                    bed.write(&name, &pattern(i % 5000, i as u64));
                }
            });
        }
        for _ in 0..4 {
            let report = bed.check(false);
            over.store(!report.findings.is_empty(), std::sync::atomic::Ordering::Relaxed);
            assert_eq!(report.findings, []);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_check_finds_a_missing_object() {
    let bed = Bed::new();
    bed.write("kept", &pattern(1000, 1));
    bed.write("lost", &pattern(50_000, 2));
    let object = files_below(&bed.dir.path().join("disk")).remove(0);
    std::fs::remove_file(object).unwrap();
    let report = bed.check(false);
    let serious: Vec<&Finding> = report.findings.iter().filter(|f| f.is_serious()).collect();
    assert_eq!(serious.len(), 1, "{report:?}");
    assert!(serious[0].subject.contains("lost"), "{report:?}");
}

#[test]
fn a_deep_check_finds_damaged_bytes_on_a_cartridge() {
    let bed = Bed::new();
    let data = pattern(3_000_000, 1);
    let ino = bed.write("precious", &data);
    bed.migrate_and_purge();
    bed.until_dismounted();
    assert_eq!(bed.check(true).findings, []);
    bed.until_dismounted();
    let volume = bed.volumes_of("/precious").remove(0);
    bed.flip_a_bit_on(&volume, &data[1_000_000..1_000_064]);
    let report = bed.check(true);
    let serious: Vec<&Finding> = report.findings.iter().filter(|f| f.is_serious()).collect();
    assert!(!serious.is_empty());
    let text = format!("{serious:?}");
    assert!(text.contains("precious") || text.contains(volume.as_str()), "{text}");
    assert!(bed.read(ino) == data, "the other copy serves");
}
