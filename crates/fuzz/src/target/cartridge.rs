//! A whole cartridge of somebody else, or a damaged one of ours, read by the tape room: labels, cartridge memory, the search
//! for an index, its files. Reading never panics, never takes memory by what a label says, and changes nothing on the
//! medium; a session that goes on appending keeps everything before its append point.

use super::bench::{BARCODE, Bench};
use crate::input::{Input, piece};
use format::ltfs::file::from_index;
use format::ltfs::index::IndexEvent;
use format::tar::header::{FILE, Header};
use scsi::mode::PartitionPage;
use scsi::{Attribute, FormatKind, ReadOutcome, Ssc};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use tape::{AppendPoint, Drive, LabelSpec, Mounted, Overwrite, TarTold};
use types::{Barcode, TapeFile, Time};

const UUID: &str = "30a91a08-daae-48d1-ae75-69804e61d2ea";
/// Objects written onto the medium at most.
const MOST: usize = 48;
/// Files of an index that are read.
const FILES: usize = 16;

pub(super) fn run(bytes: &[u8]) {
    let bench = Bench::new();
    let mut input = Input::new(bytes);
    let options = input.u8();
    fill(&mut bench.drive(), &mut input, options & 1 == 1);
    let before = objects(&bench);
    let transport = Box::new(bench.library.drive(0));
    let Ok(mut drive) = Drive::open(transport, Box::new(|_| {})) else { return };
    let expect = (options & 2 == 2).then(|| Barcode::from(BARCODE));
    let Ok(mut mounted) = drive.mount(expect.as_ref()) else { return };
    archives(&mut mounted);
    let files = files(&mut mounted);
    for file in &files {
        contents(&mut mounted, file);
    }
    let append = input.u64() % 64;
    if options & 4 == 4 {
        appended(&mut mounted, &mut input, append);
    }
    let _ = mounted.unload();
    let kept = if options & 4 == 4 { append } else { u64::MAX };
    for (name, content) in &before {
        if kept_object(name, kept) {
            assert_eq!(objects(&bench).get(name), Some(content), "object {name} changed");
        }
    }
}

/// Whether an object lies before the append point; the index partition is written anew by an index only, which is none
/// of this.
fn kept_object(name: &str, append: u64) -> bool {
    let mut parts = name.split('_');
    let partition = parts.next();
    let block = parts.next().and_then(|b| b.parse::<u64>().ok());
    partition == Some("0") || block.is_some_and(|block| block < append)
}

/// Records and filemarks by their names, without the end-of-data marks.
fn objects(bench: &Bench) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(bench.cartridge()).expect("the cartridge is there");
    let names = entries.map(|e| e.expect("an entry").file_name().into_string().expect("our own names"));
    let names = names.filter(|n| n.ends_with("_R") || n.ends_with("_F"));
    names.map(|n| (n.clone(), std::fs::read(bench.cartridge().join(n)).expect("an object"))).collect()
}

/// Puts what the input says onto the medium: for both partitions objects, then attributes.
fn fill(drive: &mut Ssc, input: &mut Input<'_>, two: bool) {
    if two {
        let mut page = drive.partition_page().expect("the drive has the page");
        page.additional = 1;
        page.flags = PartitionPage::IDP | PartitionPage::PSUM_POWER | PartitionPage::POFM;
        (page.units, page.sizes) = (6, vec![1, 0xFFFF]);
        drive.set_partition_page(&page).expect("two partitions");
        drive.format_medium(FormatKind::Partition).expect("a formatted medium");
    }
    for partition in 0..1 + u8::from(two) {
        drive.locate(partition, 0).expect("the beginning");
        let count = usize::from(input.u8()).min(MOST);
        for _ in 0..count {
            let _ = match input.piece() {
                [] => drive.write_filemarks(1, true),
                record => drive.write(record),
            };
        }
        let _ = drive.write_filemarks(0, false);
        for _ in 0..input.u8() % 8 {
            let attribute = Attribute::binary(input.u16(), input.piece());
            let _ = drive.write_attributes(partition, &[attribute]);
        }
    }
    let _ = drive.rewind();
}

fn files(mounted: &mut Mounted<'_>) -> Vec<TapeFile> {
    let mut files = Vec::new();
    let _ = mounted.read_index(&mut |event| {
        if let IndexEvent::File(file) = event
            && let Ok(Some(found)) = from_index(file)
        {
            files.push(found);
        }
        if files.len() < FILES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    files
}

/// The archives of another program, if it carries some.
fn archives(mounted: &mut Mounted<'_>) {
    let (mut found, mut members) = (Vec::new(), 0);
    let scanned = mounted.scan_tar(&mut |told| {
        if let TarTold::Member(_, member, extent) = told {
            members += 1;
            assert_eq!(extent.byte_count, member.stored);
            if found.len() < FILES {
                found.push(extent);
            }
        }
        if members < 10_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if scanned.is_ok() {
        // What a scan tells is all there.
        for extent in &found {
            let whole = mounted.read(extent, &mut |_, _| ControlFlow::Continue(()));
            assert_eq!(whole, Ok(ControlFlow::Continue(())));
        }
    }
}

fn contents(mounted: &mut Mounted<'_>, file: &TapeFile) {
    for extent in &file.extents {
        let mut next = extent.file_offset;
        let mut left = 1 << 20;
        let result = mounted.read(extent, &mut |offset, piece| {
            assert_eq!(offset, next, "pieces follow each other");
            next += piece.len() as u64;
            left -= (piece.len() as i64).min(left);
            if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if result == Ok(ControlFlow::Continue(())) {
            assert_eq!(next, extent.file_offset + extent.byte_count, "all bytes were handed out");
        }
    }
}

fn appended(mounted: &mut Mounted<'_>, input: &mut Input<'_>, block: u64) {
    let uuid = UUID.to_owned();
    let (vcr, generation) = (input.u64() % 256, input.u64() % 256);
    let point = AppendPoint { uuid, block, vcr, generation, index_block: input.u64() % 64 };
    if let Ok(mut appender) = mounted.appender(&point, 0) {
        assert!(appender.here().0 >= block, "appending begins before the recorded end");
        let _ = (appender.write(b"more"), appender.flush());
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let bench = Bench::new();
    let mut drive = Drive::open(Box::new(bench.library.drive(0)), Box::new(|_| {})).expect("a drive");
    let barcode = Barcode::from(BARCODE);
    let mut mounted = drive.mount(Some(&barcode)).expect("a blank cartridge");
    let spec = LabelSpec {
        barcode: &barcode,
        uuid: UUID,
        block_size: 4096,
        pool: "p",
        creator: "Thermocline",
        version: "0.1",
        now: Time::new(1_790_000_000, 5),
        attributes: &[],
        overwrite: Overwrite::OnlyBlank,
        key: None,
    };
    let made = mounted.format(&spec).expect("a new volume");
    mounted.unload().expect("it unloads");
    drop(drive);
    let mut raw = bench.drive_loaded();
    let sides: Vec<u8> = (0..2).flat_map(|partition| side(&mut raw, partition)).collect();
    let tail: Vec<u8> =
        [made.append_block, made.vcr, made.generation, made.index_block].map(u64::to_be_bytes).concat();
    let whole = |options: u8| [&[options], sides.as_slice(), &tail].concat();
    let header = Header { name: b"name".to_vec(), kind: FILE, size: 700, ..Header::default() }.encode();
    let archive = [piece(&[&header[..], &[1; 512]].concat()), piece(&[0; 1024]), piece(b"")].concat();
    let archive = [vec![0, 3], archive].concat();
    vec![whole(3), whole(7), vec![0], archive, [vec![0, 1], piece(b"HDR1 of another program")].concat()]
}

/// A partition in the form that [`fill`] takes.
fn side(drive: &mut Ssc, partition: u8) -> Vec<u8> {
    drive.locate(partition, 0).expect("the beginning");
    let mut objects = Vec::new();
    let mut room = vec![0; 8192];
    loop {
        match drive.read(&mut room).expect("it reads") {
            ReadOutcome::Record { bytes } => objects.push(piece(&room[..bytes])),
            ReadOutcome::Filemark => objects.push(piece(b"")),
            ReadOutcome::TooLong { .. } => unreachable!("records of a volume of 4096 bytes"),
            ReadOutcome::EndOfData => break,
        }
    }
    let attributes = drive.read_attributes(partition).expect("attributes");
    let wanted = |a: &&Attribute| [0x0009, 0x080C, 0x1548].contains(&a.id);
    let chosen: Vec<_> = attributes.iter().filter(wanted).collect();
    let list = chosen.iter().flat_map(|a| [a.id.to_be_bytes().to_vec(), piece(&a.value)].concat());
    [vec![objects.len() as u8], objects.concat(), vec![chosen.len() as u8], list.collect()].concat()
}
