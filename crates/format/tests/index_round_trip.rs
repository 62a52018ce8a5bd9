//! Indexes: what is written is read back, byte for byte where it must be.

mod common;

use common::{Owned, any_name, any_tape_file, any_time, header, read};
use format::ltfs::file::{from_index, to_index};
use format::ltfs::index::{
    Content, DirMeta, EntryTimes, IndexError, IndexEvent, IndexExtent, IndexFile, IndexWriter, WriteError,
    Xattr, parse,
};
use format::ltfs::{Partition, name::numbered, name::tape_name, time::clamp};
use proptest::prelude::*;
use std::ops::ControlFlow;
use types::{Extent, Time};

fn root() -> DirMeta {
    DirMeta { name: "TC0001".to_owned(), uid: 1, ..DirMeta::default() }
}

fn write_one(file: &IndexFile) -> Vec<u8> {
    let mut writer = IndexWriter::new(Vec::new());
    writer.begin(&header()).unwrap();
    writer.enter_dir(&root()).unwrap();
    writer.file(file).unwrap();
    writer.leave_dir().unwrap();
    writer.finish().unwrap()
}

fn plain(name: &str) -> IndexFile {
    IndexFile {
        name: name.to_owned(),
        uid: 2,
        length: 10,
        readonly: false,
        times: EntryTimes::default(),
        xattrs: Vec::new(),
        content: Content::Extents(Vec::new()),
        unknown: Vec::new(),
    }
}

#[test]
fn golden_index() {
    let mut file = plain("a:<b>&50%\n");
    file.xattrs = vec![
        Xattr { key: "k".to_owned(), value: b"<v> & \xc3\xa9".to_vec() },
        Xattr { key: "bin".to_owned(), value: vec![0, 255] },
        Xattr { key: "empty".to_owned(), value: Vec::new() },
    ];
    let extent = Extent { file_offset: 2, start_block: 9, byte_offset: 4095, byte_count: 8 };
    file.content = Content::Extents(vec![IndexExtent { partition: Partition::DATA, extent }]);
    let written = write_one(&file);
    let expected = include_str!("golden/index.xml");
    assert_eq!(String::from_utf8(written.clone()).unwrap(), expected);
    let events = read(&written).unwrap();
    let wanted = [Owned::Header(header()), Owned::Enter(root()), Owned::File(file), Owned::Leave];
    assert_eq!(events, wanted);
}

#[test]
fn reads_an_index_of_the_reference_implementation() {
    let events = read(include_bytes!("golden/reference.xml")).unwrap();
    let Owned::Header(header) = &events[0] else { panic!("no header first") };
    assert_eq!((header.generation, header.highest_file_uid, header.location.block), (7, 4, 12));
    assert_eq!(header.previous.map(|p| p.block), Some(5));
    assert_eq!(header.unknown.len(), 2, "{:?}", header.unknown);
    assert!(header.unknown[0].contains("<name>*.txt</name>"), "{:?}", header.unknown);
    let files: Vec<_> =
        events.iter().filter_map(|e| if let Owned::File(f) = e { Some(f) } else { None }).collect();
    assert_eq!(files[0].name, "odd:%name");
    assert_eq!(files[0].xattr("bin"), Some(&[0_u8, 1, 2][..]));
    assert_eq!(files[0].unknown, ["<openforwrite>false</openforwrite>"]);
    assert_eq!(files[1].content, Content::Symlink("../target & more".to_owned()));
    assert_eq!(events.iter().filter(|e| **e == Owned::Leave).count(), 2);
}

#[test]
fn unknown_elements_survive_a_rewrite() {
    let mut writer = IndexWriter::new(Vec::new());
    let events = read(include_bytes!("golden/reference.xml")).unwrap();
    for event in &events {
        match event {
            Owned::Header(h) => writer.begin(h),
            Owned::Enter(d) => writer.enter_dir(d),
            Owned::File(f) => writer.file(f),
            Owned::Leave => writer.leave_dir(),
        }
        .unwrap();
    }
    assert_eq!(read(&writer.finish().unwrap()).unwrap(), events);
}

#[test]
fn legacy_extents_follow_each_other() {
    let events = read(include_bytes!("golden/legacy.xml")).unwrap();
    let Owned::File(file) = &events[2] else { panic!("no file: {events:?}") };
    let Content::Extents(extents) = &file.content else { panic!("no extents") };
    let offsets: Vec<u64> = extents.iter().map(|e| e.extent.file_offset).collect();
    assert_eq!((offsets, file.uid), (vec![0, 100], 0));
}

#[test]
fn versions() {
    let index = String::from_utf8(write_one(&plain("a"))).unwrap();
    for good in ["2.0.0", "2.99.99", "2.3.1"] {
        assert!(read(index.replace("2.4.0", good).as_bytes()).is_ok(), "{good}");
    }
    for bad in ["3.0.0", "0.9.0", "2.100.0", "2.4", "", "2.4.0.1", "x"] {
        let found = bad.to_owned();
        assert_eq!(read(index.replace("2.4.0", bad).as_bytes()), Err(IndexError::Version { found }));
    }
}

#[test]
fn every_truncation_is_noticed() {
    let index = write_one(&plain("some file"));
    for length in 0..index.len() - 1 {
        assert!(read(&index[..length]).is_err(), "cut at {length} was taken for a whole index");
    }
}

#[test]
fn names_cannot_lead_out_of_their_directory() {
    let index = String::from_utf8(write_one(&plain("NAME"))).unwrap();
    for bad in ["..", ".", "a/b", "", "/etc/passwd"] {
        let found = read(index.replace("NAME", bad).as_bytes());
        assert!(matches!(found, Err(IndexError::Damaged { .. })), "{bad}: {found:?}");
    }
    let encoded = index.replace("<name>NAME", "<name percentencoded=\"true\">a%2Fb%00%41%");
    let events = read(encoded.as_bytes()).unwrap();
    assert!(matches!(&events[2], Owned::File(file) if file.name == "a%2Fb%00A%"), "{events:?}");
}

#[test]
fn visitor_can_stop() {
    let index = write_one(&plain("a"));
    let mut seen = 0;
    let stopped = parse(&index[..], &mut |event| {
        seen += 1;
        if matches!(event, IndexEvent::EnterDir(_)) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!((stopped, seen), (Ok(ControlFlow::Break(())), 2));
}

#[test]
fn writer_refuses_what_readers_would_stumble_over() {
    let begun = || {
        let mut writer = IndexWriter::new(Vec::new());
        writer.begin(&format::ltfs::index::IndexHeader { highest_file_uid: 9, ..header() }).unwrap();
        writer
    };
    assert!(matches!(begun().file(&plain("a")), Err(WriteError::Order("file"))));
    assert!(matches!(begun().finish(), Err(WriteError::Order("finish"))));
    let extent = |file_offset, byte_count| IndexExtent {
        partition: Partition::DATA,
        extent: Extent { file_offset, start_block: 0, byte_offset: 0, byte_count },
    };
    let bad = [
        plain(""),
        plain("a/b"),
        plain(".."),
        plain("\u{1f}"),
        IndexFile { uid: 10, ..plain("uid") },
        IndexFile { uid: 0, ..plain("uid") },
        IndexFile { content: Content::Extents(vec![extent(5, 6)]), ..plain("long") },
        IndexFile { content: Content::Extents(vec![extent(u64::MAX, 6)]), ..plain("overflow") },
        IndexFile { content: Content::Extents(vec![extent(4, 2), extent(0, 2)]), ..plain("order") },
        IndexFile { content: Content::Extents(vec![extent(4, 0)]), ..plain("empty extent") },
        IndexFile { content: Content::Symlink(String::new()), ..plain("link") },
    ];
    for file in bad {
        let mut writer = begun();
        writer.enter_dir(&root()).unwrap();
        assert!(matches!(writer.file(&file), Err(WriteError::Value { .. })), "{file:?}");
    }
}

#[test]
fn a_failing_sink_is_reported() {
    let mut full = [0_u8; 64];
    let mut writer = IndexWriter::new(&mut full[..]);
    writer.begin(&header()).unwrap();
    writer.enter_dir(&root()).unwrap();
    writer.leave_dir().unwrap();
    assert!(matches!(writer.finish(), Err(WriteError::Io(_))));
}

#[test]
fn names_on_tape() {
    assert_eq!(tape_name(b"plain name.txt"), "plain name.txt");
    assert_eq!(tape_name("e\u{301}".as_bytes()), "\u{e9}");
    assert_eq!(tape_name(b"line\nbreak"), "line\nbreak");
    assert!(tape_name(b"bad\xff").starts_with("bad%FF~"));
    assert_ne!(tape_name(b"bad\xff"), tape_name(b"bad\xfe"));
    assert_eq!(tape_name(&[b'a'; 255]), "a".repeat(255));
    // U+FB2C grows from 3 to 6 bytes in NFC
    let grown = tape_name("\u{fb2c}".repeat(85).as_bytes());
    assert!(grown.len() <= 255 && grown.contains('~'));
    assert_eq!(numbered("archive.tar", 7), "archive~7.tar");
    assert_eq!(numbered(".profile", 7), ".profile~7");
    assert!(numbered(&"é".repeat(127), u64::MAX).len() <= 255);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tape_files_return_unchanged(file in any_tape_file(), name in any_name()) {
        let entry = to_index(&tape_name(&name), &file).unwrap();
        let events = read(&write_one(&entry)).unwrap();
        let Owned::File(back) = &events[2] else { panic!("{events:?}") };
        prop_assert_eq!(&back.name, &entry.name);
        prop_assert_eq!(from_index(back).unwrap(), Some(file));
    }

    #[test]
    fn tape_names_are_valid(name in any_name(), number: u64) {
        for name in [tape_name(&name), numbered(&tape_name(&name), number)] {
            let entry = plain(&name);
            let events = read(&write_one(&entry)).unwrap();
            prop_assert_eq!(&events[2], &Owned::File(entry));
            prop_assert!((1..=255).contains(&name.len()));
        }
        prop_assert_eq!(tape_name(tape_name(&name).as_bytes()), tape_name(&name));
    }

    #[test]
    fn directories_return_unchanged(names in prop::collection::vec((any_name(), any_time()), 0..20)) {
        let mut writer = IndexWriter::new(Vec::new());
        writer.begin(&header()).unwrap();
        let mut dirs = vec![root()];
        dirs.extend(names.iter().enumerate().map(|(i, (name, time))| DirMeta {
            name: tape_name(name),
            uid: i as u64 + 2,
            readonly: i % 2 == 0,
            times: EntryTimes { modify: clamp(*time), ..EntryTimes::default() },
            ..DirMeta::default()
        }));
        dirs.iter().for_each(|dir| writer.enter_dir(dir).unwrap());
        dirs.iter().for_each(|_| writer.leave_dir().unwrap());
        let mut wanted = vec![Owned::Header(header())];
        wanted.extend(dirs.iter().cloned().map(Owned::Enter));
        wanted.extend(dirs.iter().map(|_| Owned::Leave));
        prop_assert_eq!(read(&writer.finish().unwrap()).unwrap(), wanted);
    }

    #[test]
    fn mutated_indexes_never_panic(at: prop::sample::Index, bytes in prop::collection::vec(any::<u8>(), 0..6), keep: bool) {
        let mut index = include_bytes!("golden/reference.xml").to_vec();
        let at = at.index(index.len());
        let end = if keep { at } else { (at + bytes.len()).min(index.len()) };
        index.splice(at..end, bytes);
        for event in read(&index).unwrap_or_default() {
            if let Owned::File(file) = event {
                let _ = from_index(&file);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
        let wrapped = [b"<?xml version='1.0'?><ltfsindex version='2.4.0'>".as_slice(), &bytes].concat();
        let _ = read(&wrapped);
    }
}

#[test]
fn files_of_others_are_told_from_ours() {
    assert_eq!(from_index(&plain("a")), Ok(None));
    let mut broken = plain("a");
    broken.xattrs.push(Xattr { key: "thermo.id".to_owned(), value: b"1.2".to_vec() });
    assert!(from_index(&broken).unwrap_err().to_string().contains("thermo.id"));
    assert_eq!(Time::default(), plain("a").times.modify);
}
