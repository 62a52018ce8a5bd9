//! What becomes of a volume of another namespace when its files are moved off it.

use super::*;
use crate::archive::Event;
use crate::{Config, Node};
use catalog::StateOrder;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::api::{FileApi, OpenFlags};

const PATIENCE: Duration = Duration::from_secs(300);
const VOLUME: &str = "TC0001L9";

fn node(state: &Path, library: &Path) -> Arc<Node> {
    let mut config = Config { state_dir: state.to_owned(), ..Config::default() };
    config.library.path = Some(library.to_owned());
    config.library.cartridges = 1;
    config.classes[0].copies = vec!["primary".into()];
    config.classes[0].migrate_after_s = 0;
    Node::start(config).unwrap()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// All that lies on the medium.
fn objects(cartridge: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(cartridge).unwrap().map(|e| e.unwrap().path());
    let on_tape = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
    };
    entries.filter(on_tape).map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn a_volume_of_another_namespace_is_never_written_even_when_its_files_have_moved() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("library");
    let first = node(&dir.path().join("first"), &library);
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let opened = first.create(&Cx::admin(crate::now()), Ino::ROOT, b"file", 0o644, flags).unwrap();
    first.write(opened.handle, 0, b"content").unwrap();
    first.release(opened.handle);
    until("no copy was made", || {
        !first.catalog.inode(opened.attr.ino).unwrap().file.unwrap().copies.is_empty()
    });
    first.stop(true);
    drop(first);

    let node = node(&dir.path().join("second"), &library);
    let barcode = Barcode::from(VOLUME);
    let order = Import {
        into: Some(b"/in".to_vec()),
        pool: Some("primary".into()),
        uids: BTreeMap::new(),
        gids: BTreeMap::new(),
        by: (0, 0),
        was: BTreeMap::new(),
        back: BTreeMap::new(),
    };
    let (answer, answers) = crossbeam_channel::unbounded();
    let import = Some(Arc::new(order));
    node.archive.send(Event::Adopt { volumes: vec![barcode.clone()], import, answer });
    let (_, adopted) = answers.recv_timeout(PATIENCE).unwrap();
    assert_eq!((adopted.failed, adopted.live), (None, 1));
    let before = objects(&library.join("cartridges").join(VOLUME));
    let volume = || node.catalog.volume(&barcode).unwrap().unwrap();
    for state in [VolumeState::Filling, VolumeState::Full] {
        let order = StateOrder { state, reason: String::new(), by: 0, now: crate::now(), leave: false };
        let refused = node.catalog.set_volume_state(std::slice::from_ref(&barcode), &order).unwrap_err();
        assert!(refused.to_string().contains("is only read"), "{refused}");
    }

    // Its file cannot go anywhere yet; the order is withdrawn.
    let request = node.begin_repack(0, &[&volume()]).unwrap();
    node.catalog.update_request(request.id, &mut |r| r.state = RequestState::Cancelled).unwrap();
    node.keeper.wake();
    until("it is left", || volume().state != VolumeState::Repacking);
    assert_eq!((volume().state, volume().live_files), (VolumeState::ReadOnly, 1));

    let more = node.virtual_library();
    more.create_cartridge("TC0002L9", 1 << 30).unwrap();
    more.insert("TC0002L9").unwrap();
    let request = node.begin_repack(0, &[&volume()]).unwrap();
    let ended = || node.catalog.request(request.id).unwrap().unwrap();
    until("it ends", || !matches!(ended().state, RequestState::Queued | RequestState::Active));
    assert_eq!(ended().state, RequestState::Done, "{}", ended().message);
    assert_eq!((volume().state, volume().live_files), (VolumeState::Retired, 0), "{}", volume().reason);
    node.stop(true);
    assert!(objects(&library.join("cartridges").join(VOLUME)) == before, "it was written to");
}
