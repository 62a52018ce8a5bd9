use super::*;
use crate::archive::Event;
use crate::{Config, Node};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);

/// A header of ustar and what follows it.
fn entry(name: &str, kind: u8, target: &str, data: &[u8]) -> Vec<u8> {
    let mut block = [0; 512];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\x000000001\x000000001\x00");
    put(124, &format!("{:011o}\0{:011o}\0        ", data.len(), 1_000_000_000));
    put(157, target);
    put(257, "ustar\x0000");
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = [&block[..], data].concat();
    all.resize(all.len().next_multiple_of(512), 0);
    all
}

fn import(node: &Node, barcode: &Barcode) -> Option<String> {
    let order = Import {
        into: Some(b"/in".to_vec()),
        pool: None,
        uids: Default::default(),
        gids: Default::default(),
        by: (0, 0),
        was: Default::default(),
        back: Default::default(),
    };
    let (answer, answers) = crossbeam_channel::unbounded();
    let import = Some(Arc::new(order));
    node.archive.send(Event::Adopt { volumes: vec![barcode.clone()], import, answer });
    answers.recv_timeout(PATIENCE).unwrap().1.failed
}

/// An archive on the first cartridge of a node.
fn node(dir: &Path, archive: &[u8]) -> Arc<Node> {
    let config = Config { state_dir: dir.to_owned(), ..Config::default() };
    drop(Node::open_library(&config).unwrap());
    let cartridge = config.library_path().join("cartridges/TC0001L9");
    std::fs::remove_file(cartridge.join("0_0_E")).unwrap();
    std::fs::write(cartridge.join("0_0_R"), archive).unwrap();
    std::fs::write(cartridge.join("0_1_E"), "").unwrap();
    Node::start(config).unwrap()
}

#[test]
fn another_name_of_what_was_overwritten_later_stays_with_it_when_the_import_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let members =
        [entry("a", b'0', "", b"first"), entry("b", b'1', "a", b""), entry("a", b'0', "", b"second one")];
    let node = node(dir.path(), &[members.concat(), vec![0; 1024]].concat());
    let barcode = Barcode::from("TC0001L9");
    assert_eq!(import(&node, &barcode), None);
    let size = |path: &[u8]| there(&node.catalog, &cx(), path).unwrap().unwrap().attr.size;
    assert_eq!((size(b"/in/a"), size(b"/in/b")), (10, 5));
    // As if the node had died when all was entered and that was not yet recorded.
    let known = node.catalog.volume(&barcode).unwrap().unwrap();
    node.catalog.update_volume(&barcode, &mut |v| v.generation = 0).unwrap();
    let into = there(&node.catalog, &cx(), b"/in").unwrap().unwrap().attr.ino;
    node.catalog.setxattr(&cx(), into, GOES_ON, known.uuid.as_bytes(), XattrMode::Any).unwrap();
    assert_eq!(import(&node, &barcode), None);
    assert_eq!(node.catalog.volume(&barcode).unwrap().unwrap().generation, 1, "it was gone through again");
    assert_eq!((size(b"/in/a"), size(b"/in/b")), (10, 5));
    node.stop(true);
}
