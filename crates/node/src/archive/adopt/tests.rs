//! Volumes of ours that are entered: in part, again, and with what is not taken.

use super::*;
use crate::archive::Event;
use crate::archive::testing::{labelled, with_one};
use crate::{Config, Node};
use std::path::Path;
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};
use types::api::{FileApi, OpenFlags};

const PATIENCE: Duration = Duration::from_secs(300);

fn node(state: &Path, library: &Path) -> Arc<Node> {
    let mut config = Config { state_dir: state.to_owned(), ..Config::default() };
    config.library.path = Some(library.to_owned());
    config.classes[0].copies = vec!["primary".into()];
    config.classes[0].migrate_after_s = 0;
    Node::start(config).unwrap()
}

fn ask(node: &Node, barcode: &Barcode) -> (Option<String>, u64, VolumeState) {
    let (answer, answers) = crossbeam_channel::unbounded();
    node.archive.send(Event::Adopt { volumes: vec![barcode.clone()], import: None, answer });
    let (_, adopted) = answers.recv_timeout(PATIENCE).unwrap();
    let known = node.catalog.volume(barcode).unwrap().unwrap();
    (adopted.failed, adopted.live, known.state)
}

#[test]
fn a_volume_read_in_part_is_not_written_and_the_next_rebuild_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("library");
    let written = written(&dir.path().join("first"), &library, &[b"file"]);

    let second = node(&dir.path().join("second"), &library);
    second.archive.halt.store(true, Release);
    let (failed, live, state) = ask(&second, &written);
    assert!(failed.is_some_and(|why| why.contains("ask again")));
    assert_eq!(live, 0);
    assert_ne!(state, VolumeState::Filling);
    second.archive.halt.store(false, Release);
    assert_eq!(ask(&second, &written), (None, 1, VolumeState::Filling));
    // It is known by now, and left alone.
    assert_eq!(ask(&second, &written), (None, 0, VolumeState::Filling));
    // It was away: what was known of its medium before is known still.
    let away = |v: &mut Volume| {
        v.errors = 1;
        v.becomes(VolumeState::Unverified, String::new(), crate::now());
    };
    second.catalog.update_volume(&written, &mut { away }).unwrap();
    assert_eq!(ask(&second, &written), (None, 0, VolumeState::Suspect));
    second.stop(true);
}

#[test]
fn a_volume_of_another_namespace_is_left_alone_and_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("library");
    let written = written(&dir.path().join("first"), &library, &[b"file"]);
    let second = node(&dir.path().join("second"), &library);
    second.mkdir(&Cx::admin(crate::now()), Ino::ROOT, b"its own", 0o755).unwrap();
    let (answer, answers) = crossbeam_channel::unbounded();
    second.archive.send(Event::Adopt { volumes: vec![written], import: None, answer });
    let (_, adopted) = answers.recv_timeout(PATIENCE).unwrap();
    let left = adopted.failed.is_some_and(|why| why.contains("it was left alone"));
    assert!(adopted.foreign && left && adopted.live == 0, "{}", adopted.what);
    second.stop(true);
}

/// A node puts these files on tape and stops; the volume.
fn written(state: &Path, library: &Path, names: &[&[u8]]) -> Barcode {
    let first = node(state, library);
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    for name in names {
        let opened = first.create(&Cx::admin(crate::now()), Ino::ROOT, name, 0o644, flags).unwrap();
        first.write(opened.handle, 0, b"content").unwrap();
        first.release(opened.handle);
        let copies = || first.catalog.inode(opened.attr.ino).unwrap().file.unwrap().copies;
        let begun = Instant::now();
        while copies().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "no copy was made");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let written = first.catalog.volumes().unwrap().into_iter().find(|v| v.files > 0).unwrap().barcode;
    first.stop(true);
    written
}

#[test]
fn a_volume_with_files_that_are_not_taken_is_only_read() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("library");
    let volume = written(&dir.path().join("first"), &library, &[b"file", b"stranger"]);
    // In all indexes the file loses the attribute that makes it one of ours, as if another program had put it there.
    for entry in std::fs::read_dir(library.join("cartridges").join(volume.as_str())).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read(&path).unwrap();
        let Ok(text) = String::from_utf8(text) else { continue };
        if let Some((before, behind)) = text.split_once("<name>stranger</name>") {
            let behind = behind.replacen("thermo.id", "others.id", 1);
            std::fs::write(&path, format!("{before}<name>stranger</name>{behind}")).unwrap();
        }
    }
    let second = node(&dir.path().join("second"), &library);
    assert_eq!(ask(&second, &volume), (None, 1, VolumeState::ReadOnly));
    let known = second.catalog.volume(&volume).unwrap().unwrap();
    assert_eq!(known.reason, "1 files of its index are not in the catalogue");
    assert!(known.holds_more);
    // Its next index would not list that file any more: none is written.
    assert!(known.indexed_to >= known.append_block, "{known:?}");
    second.stop(true);
}

/// The copy of the index at the end of the data has a spot that cannot be read, the one on the index partition is good.
#[test]
fn a_volume_whose_index_breaks_off_half_way_is_read_from_its_other_index() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("library");
    let small = |state: &str| {
        let mut config = Config { state_dir: dir.path().join(state), ..Config::default() };
        config.library.path = Some(library.clone());
        config.tape.block_size = crate::Size(4096);
        config.classes[0].copies = vec!["primary".into()];
        config.classes[0].migrate_after_s = 0;
        Node::start(config).unwrap()
    };
    let first = small("first");
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let files = (0..20u32).map(|n| {
        let name = format!("file {n}");
        let cx = Cx::admin(crate::now());
        let opened = first.create(&cx, Ino::ROOT, name.as_bytes(), 0o644, flags).unwrap();
        first.write(opened.handle, 0, b"content").unwrap();
        first.release(opened.handle);
        opened.attr.ino
    });
    let files: Vec<Ino> = files.collect();
    let begun = Instant::now();
    while files.iter().any(|ino| first.catalog.inode(*ino).unwrap().file.unwrap().copies.is_empty()) {
        assert!(begun.elapsed() < PATIENCE, "no copies were made");
        std::thread::sleep(Duration::from_millis(10));
    }
    first.stop(true);
    let written = first.catalog.volumes().unwrap().into_iter().find(|v| v.files > 0).unwrap();
    drop(first);

    let second = small("second");
    let (barcode, block) = (written.barcode.to_string(), written.index_block + 2);
    second.virtual_library().inject(vtl::Fault::ReadError { barcode, partition: 1, block });
    assert_eq!(ask(&second, &written.barcode).0, None);
    let known = second.catalog.volume(&written.barcode).unwrap().unwrap();
    assert_eq!((known.live_files, known.files), (20, 20));
    second.stop(true);
}

#[test]
fn what_was_written_after_a_backup_and_is_listed_nowhere_stays_on_record_until_the_next_label() {
    with_one(|worker, mounted, barcode| {
        labelled(worker, mounted, barcode);
        worker.node.archive.halt.store(false, Release);
        let catalog = &worker.node.catalog;
        let end = catalog.volume(barcode).unwrap().unwrap().append_block;
        let mut looked_at = |append_block: u64| {
            let back = &mut |v: &mut Volume| {
                v.becomes(VolumeState::Unverified, "", crate::now());
                v.append_block = append_block;
            };
            catalog.update_volume(barcode, back).unwrap();
            let (answer, answers) = crossbeam_channel::unbounded();
            adopt(worker, mounted, barcode, &answer).unwrap();
            assert_eq!(answers.recv().unwrap().1.failed, None);
            let v = catalog.volume(barcode).unwrap().unwrap();
            (v.state, v.holds_more)
        };
        assert_eq!(looked_at(end), (VolumeState::Filling, false));
        assert_eq!(looked_at(end - 1), (VolumeState::ReadOnly, true));
        // Nothing lies behind its end now, but who knows.
        assert_eq!(looked_at(end), (VolumeState::ReadOnly, true));
        labelled(worker, mounted, barcode);
        assert!(!catalog.volume(barcode).unwrap().unwrap().holds_more);
    });
}

#[test]
fn while_the_files_of_a_volume_are_being_entered_it_may_hold_more() {
    with_one(|worker, mounted, barcode| {
        labelled(worker, mounted, barcode);
        worker.node.archive.halt.store(false, Release);
        let catalog = &worker.node.catalog;
        let known = catalog.volume(barcode).unwrap().unwrap();
        let is = || {
            let v = catalog.volume(barcode).unwrap().unwrap();
            (v.state, v.holds_more, v.append_block)
        };
        // The catalogue has lost it.
        catalog.put_volume(&Volume::new(barcode.clone(), crate::now())).unwrap();
        let origin = crate::archive::index::origin(worker, &known).unwrap();
        let mut adopted = Adopted::default();
        let label = label(mounted, &mut adopted).unwrap();
        let mut reader = Reader::new(worker, barcode, &label, (0, String::new()), &mut adopted);
        assert!(matches!(reader.begin(origin), Ok(Standing::New)));
        assert_eq!(is(), (VolumeState::ReadOnly, true, 0));
        let (answer, answers) = crossbeam_channel::unbounded();
        adopt(worker, mounted, barcode, &answer).unwrap();
        assert_eq!(answers.recv().unwrap().1.failed, None);
        assert_eq!(is(), (VolumeState::Filling, false, known.append_block));
    });
}
