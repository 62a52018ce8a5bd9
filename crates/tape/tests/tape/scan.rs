//! The short way to all that a volume tells: the same as the long one, with fewer moves, and never half of it for the whole.

use crate::support::catalogue::{Catalogue, File, NOW, barcode, indexed_files, spec, write_tree};
use crate::support::rig::{BARCODE, Rig};
use format::ltfs::index::IndexEvent;
use std::ops::ControlFlow;
use tape::{Contents, Drive, Fault, FoundIndex, Mounted, Onto, Overwrite, SectionPoint, Told, VolumeEnd};
use types::Extent;

const BLOCK: u32 = 4096;
const LOCATE: u8 = 0x92;
const SPACE: u8 = 0x91;

/// A closed volume of 30 files: its index takes several records.
fn closed(drive: &mut Drive) -> Catalogue {
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    let files: Vec<Vec<u8>> = (0..30).map(|n| vec![n; 5000]).collect();
    catalogue.append(&mut mounted, &files).unwrap();
    catalogue.index(&mut mounted).unwrap();
    mounted.unload().unwrap();
    catalogue
}

type Scanned = tape::Result<Option<(FoundIndex, Option<VolumeEnd>)>>;

/// What a scan finds, and the names of the files that it hands out.
fn scan(mounted: &mut Mounted<'_>) -> (Scanned, Vec<String>) {
    let mut names = Vec::new();
    let found = mounted.scan_index(&mut |event| {
        if let IndexEvent::File(file) = event {
            names.push(file.name.clone());
        }
        ControlFlow::Continue(())
    });
    (found, names)
}

#[test]
fn a_closed_ltfs_volume_is_known_after_one_way_to_its_end() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let catalogue = closed(&mut drive);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    rig.wire().opcodes.clear();
    let (found, names) = scan(&mut mounted);
    let moves = rig.wire().opcodes.iter().filter(|code| [LOCATE, SPACE].contains(code)).count();
    assert_eq!(
        (names.len(), moves),
        (30, 2),
        "to the index, and to the end of data, where the head stands by then"
    );
    let (index, end) = found.unwrap().unwrap();
    let end = end.unwrap();
    assert_eq!((end.append_block, end.end_of_data), (catalogue.point.block, catalogue.point.block));
    // The long way says the same.
    let listed = indexed_files(&mut mounted);
    assert_eq!((index.header.generation, false, names.len()), (listed.0, listed.1, listed.2.len()));
    let found = mounted.read_index(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(mounted.survey(&found).unwrap(), end);
}

#[test]
fn a_volume_that_was_not_closed_is_searched() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, BLOCK).unwrap();
    catalogue.append(&mut mounted, &[vec![1; 5000]]).unwrap();
    catalogue.index_onto(&mut mounted, Onto::Data).unwrap();
    drop(mounted);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let (found, names) = scan(&mut mounted);
    assert_eq!((found.unwrap(), names.len()), (None, 0));
    let (generation, stale, files) = indexed_files(&mut mounted);
    assert_eq!((generation, stale, files.len()), (2, true, 1));
}

#[test]
fn records_behind_the_index_are_told() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let catalogue = closed(&mut drive);
    // Somebody's drive whose volume change reference stays the same, say.
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut appender = mounted.appender(&catalogue.point, 0).unwrap();
    appender.write(&[7; 9000]).unwrap();
    let behind = appender.flush().unwrap().append_block;
    drop(mounted);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let (found, names) = scan(&mut mounted);
    let (_, end) = found.unwrap().unwrap();
    let end = end.unwrap();
    assert_eq!((names.len(), end.append_block, end.end_of_data), (30, catalogue.point.block, behind));
}

#[test]
fn an_index_that_cannot_be_read_is_an_error_after_its_beginning_and_none_before() {
    for (damaged, handed_out) in [(0, false), (1, true)] {
        let rig = Rig::new(64 << 20, 1 << 20);
        let mut drive = rig.load(BARCODE, 0);
        let catalogue = closed(&mut drive);
        let block = catalogue.point.index_block + damaged;
        rig.library.inject(vtl::Fault::ReadError { barcode: BARCODE.into(), partition: 1, block });
        let mut mounted = drive.mount(Some(&barcode())).unwrap();
        let (found, names) = scan(&mut mounted);
        match found {
            Ok(None) => assert!(!handed_out && names.is_empty()),
            Err(e) => assert!(handed_out && e.fault == Fault::MediumError, "{e}"),
            Ok(Some(found)) => panic!("{found:?}"),
        }
        assert_eq!(indexed_files(&mut mounted).2.len(), 30, "the index partition has it");
    }
}

/// Writes an index of the whole volume as a section.
fn index(mounted: &mut Mounted<'_>, point: &SectionPoint, files: usize) -> SectionPoint {
    let file = |n: usize| File { name: format!("file{n}"), bytes: vec![1], extents: vec![extent(n as u64)] };
    let files: Vec<File> = (0..files).map(file).collect();
    mounted.write_section_index(point, ("test", 100, NOW), &mut |w| Ok(write_tree(w, &files)?)).unwrap().1
}

fn extent(n: u64) -> Extent {
    Extent { file_offset: 0, start_block: n, byte_offset: 0, byte_count: 1 }
}

/// A section that is neither a list nor an index, as far as its front goes.
fn other(mounted: &mut Mounted<'_>, point: &SectionPoint) -> SectionPoint {
    let mut writer = mounted.begin_section(point, NOW).unwrap();
    writer.write(&[0; 3 * BLOCK as usize]).unwrap();
    writer.close().unwrap()
}

/// What the short way finds, what it tells of, and the moves that it takes.
fn scan_sections(rig: &Rig, mounted: &mut Mounted<'_>) -> (tape::Result<Option<Contents>>, usize, usize) {
    let mut told = 0;
    rig.wire().opcodes.clear();
    let found = mounted.scan_contents(&mut |one| {
        told += usize::from(matches!(one, Told::Event(IndexEvent::File(_))));
        ControlFlow::Continue(())
    });
    let moves = rig.wire().opcodes.iter().filter(|code| [LOCATE, SPACE].contains(code)).count();
    (found, told, moves)
}

#[test]
fn a_closed_volume_without_partitions_is_known_after_the_way_to_its_end_and_a_step_back() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let start = mounted.format_ansi(&spec(&barcode(), BLOCK, Overwrite::OnlyBlank)).unwrap();
    let (found, told, _) = scan_sections(&rig, &mut mounted);
    assert_eq!((found.unwrap(), told), (None, 0), "nothing is on it");
    let first = other(&mut mounted, &start);
    let end = index(&mut mounted, &first, 50);
    let (found, told, moves) = scan_sections(&rig, &mut mounted);
    let found = found.unwrap().unwrap();
    assert_eq!((told, moves, &found.end, found.behind), (50, 2, &end, 0));
    assert_eq!(mounted.contents(&mut |_| ControlFlow::Continue(())).unwrap(), found, "the long way");
    // Behind it follows another section: this is not the way any more.
    other(&mut mounted, &end);
    let (found, told, _) = scan_sections(&rig, &mut mounted);
    assert_eq!((found.unwrap(), told), (None, 0));
}

#[test]
fn an_index_whose_labels_are_not_whole_does_not_count() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let start = mounted.format_ansi(&spec(&barcode(), BLOCK, Overwrite::OnlyBlank)).unwrap();
    let end = index(&mut mounted, &start, 50);
    for damaged in 2..=5 {
        let block = end.block - damaged;
        rig.library.inject(vtl::Fault::ReadError { barcode: BARCODE.into(), partition: 0, block });
        let (found, told, _) = scan_sections(&rig, &mut mounted);
        let e = found.unwrap_err();
        assert!(told == 50 && matches!(e.fault, Fault::BadRecord | Fault::MediumError), "{damaged}: {e}");
        rig.library.clear_faults();
    }
}
