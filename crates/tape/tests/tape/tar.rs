//! Cartridges with tar archives of other programs: recognised, gone over with few commands, and read, whatever the length of
//! their records; what was cut off or is something else is named.

use crate::support::rig::{BARCODE, Rig};
use format::tar::foreign::What;
use format::tar::header::{FILE, Header};
use scsi::Ssc;
use std::ops::ControlFlow;
use tape::{Fault, LabelState, Mounted, Overwrite, TarEnd, TarTold};
use types::Extent;

fn member(name: &str, data: &[u8]) -> Vec<u8> {
    let size = data.len() as u64;
    let header = Header { name: name.into(), kind: FILE, mode: 0o644, size, mtime: 7, ..Header::default() };
    let mut out = header.encode().to_vec();
    out.extend(data);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

fn data(n: usize) -> Vec<u8> {
    (0..n * 3000 % 50_000).map(|at| (at * 31 + n) as u8).collect()
}

/// Twenty files, and two blocks of zeros.
fn archive() -> Vec<u8> {
    let members = (0..20).flat_map(|n| member(&format!("dir/file {n}"), &data(n)));
    members.chain([0; 1024]).collect()
}

/// Records and filemarks (empty ones) of another program, onto the cartridge in drive 0.
fn write(rig: &Rig, records: &[&[u8]]) {
    let _ = rig.load(BARCODE, 0);
    let mut ssc = Ssc::new(Box::new(rig.library.drive(0)));
    while ssc.test_unit_ready().is_err() {}
    for record in records {
        if record.is_empty() {
            ssc.write_filemarks(1, false).unwrap();
        } else {
            ssc.write(record).unwrap();
        }
    }
    ssc.write_filemarks(0, false).unwrap();
}

struct Scanned {
    files: Vec<(u32, String, Extent)>,
    left: Vec<String>,
    end: TarEnd,
}

fn scan(mounted: &mut Mounted<'_>) -> Scanned {
    let (mut files, mut left) = (Vec::new(), Vec::new());
    let end = mounted.scan_tar(&mut |told| {
        match told {
            TarTold::Left(why) => left.push(why),
            TarTold::Member(archive, member, at) => {
                assert_eq!(member.what, What::File);
                files.push((archive, String::from_utf8(member.name.clone()).unwrap(), at));
            }
        }
        ControlFlow::Continue(())
    });
    Scanned { files, left, end: end.unwrap() }
}

fn content(mounted: &mut Mounted<'_>, at: &Extent) -> Vec<u8> {
    let mut out = Vec::new();
    let flow = mounted.read(at, &mut |offset, piece| {
        assert_eq!(offset, out.len() as u64);
        out.extend_from_slice(piece);
        ControlFlow::Continue(())
    });
    assert!(flow.unwrap().is_continue());
    out
}

/// All twenty files are found, and read in any order.
fn all_there(mounted: &mut Mounted<'_>, found: &Scanned) {
    assert_eq!(found.files.len(), 20, "{:?}", found.left);
    for (n, (_, name, at)) in found.files.iter().enumerate().rev() {
        assert_eq!(name, &format!("dir/file {n}"));
        assert!(content(mounted, at) == data(n), "{name}");
    }
}

#[test]
fn records_of_any_length_are_read_and_data_is_skipped() {
    for size in [512, 10_240, 32_768, 1 << 20, 4 << 20] {
        let rig = Rig::new(64 << 20, 1 << 20);
        let archive = archive();
        let mut records: Vec<&[u8]> = archive.chunks(size).collect();
        records.push(&[]);
        write(&rig, &records);
        let mut drive = rig.drive(0);
        let mut mounted = drive.mount(None).unwrap();
        assert!(matches!(mounted.label(), LabelState::Tar(label) if label.serial.is_none()));
        let before = rig.wire().opcodes.len();
        let found = scan(&mut mounted);
        let reads = rig.wire().opcodes[before..].iter().filter(|opcode| **opcode == 0x08).count();
        assert!(reads <= 70, "{reads} reads for records of {size} bytes");
        assert_eq!(found.left, [""; 0]);
        assert_eq!(found.end.end_of_data, records.len() as u64);
        all_there(&mut mounted, &found);
    }
}

#[test]
fn records_that_are_not_all_of_one_length_are_read_through() {
    let archive = archive();
    for step in [3, 7] {
        let (mut rest, mut records): (&[u8], Vec<&[u8]>) = (&archive, Vec::new());
        while !rest.is_empty() {
            // Now and then a record is short.
            let size = if records.len() % step == step - 1 { 1536 } else { 4096 };
            let (record, behind) = rest.split_at(size.min(rest.len()));
            records.push(record);
            rest = behind;
        }
        let rig = Rig::new(64 << 20, 1 << 20);
        write(&rig, &records);
        let mut drive = rig.drive(0);
        let mut mounted = drive.mount(None).unwrap();
        let found = scan(&mut mounted);
        assert_eq!(found.left, [""; 0]);
        all_there(&mut mounted, &found);
    }
}

#[test]
fn an_archive_that_was_cut_gives_what_is_whole_wherever_it_was_cut() {
    let archive = archive();
    // Where the data of each member ends, with padding.
    let ends: Vec<usize> = (0..20)
        .scan(0, |at, n| {
            *at += 512 + data(n).len().next_multiple_of(512);
            Some(*at)
        })
        .collect();
    for cut in [512, 5_000, 10_240, 51_200, 51_712, 100_352, 200_000, archive.len() - 1024] {
        let rig = Rig::new(64 << 20, 1 << 20);
        let mut records: Vec<&[u8]> = archive[..cut].chunks(10_240).collect();
        records.push(&[]);
        let second = member("dir/second", b"second");
        records.push(&second);
        write(&rig, &records);
        let mut drive = rig.drive(0);
        let mut mounted = drive.mount(None).unwrap();
        let found = scan(&mut mounted);
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(found.files.len(), whole + 1, "cut at {cut}: {:?}", found.left);
        for (n, (_, _, at)) in found.files[..whole].iter().enumerate() {
            assert!(content(&mut mounted, at) == data(n), "cut at {cut}: {n}");
        }
        assert_eq!(content(&mut mounted, &found.files[whole].2), b"second");
        let at_a_border = ends.contains(&cut);
        assert_eq!(found.left.is_empty(), at_a_border, "cut at {cut}: {:?}", found.left);
    }
}

#[test]
fn labels_are_passed_over_and_what_is_no_archive_is_named() {
    let label = |text: &str| format!("{text:80}").into_bytes();
    let [vol1, hdr1] = ["VOL1BACKUP", "HDR1MONDAY           BACKUP00010001"].map(label);
    let [eof1, hdr1_2] =
        ["EOF1MONDAY           BACKUP00010001", "HDR1TUESDAY          BACKUP00020002"].map(label);
    let [eov1, hdr1_3] =
        ["EOV1TUESDAY          BACKUP00020002", "HDR1TEXT             BACKUP00010003"].map(label);
    let archive = archive();
    let mut records: Vec<&[u8]> = vec![&vol1, &hdr1, &[]];
    records.extend(archive.chunks(10_240));
    records.extend([&[][..], &eof1, &[], &hdr1_2, &[], &archive[..10_240], &[], &eov1, &[], &hdr1_3, &[]]);
    records.extend([&b"no archive"[..], &[]]);
    let rig = Rig::new(64 << 20, 1 << 20);
    write(&rig, &records);
    let mut drive = rig.drive(0);
    let mut mounted = drive.mount(None).unwrap();
    assert!(matches!(mounted.label(), LabelState::Tar(label) if label.serial.as_deref() == Some("BACKUP")));
    let found = scan(&mut mounted);
    all_there(&mut mounted, &found);
    let says = |text: &str| found.left.iter().any(|line| line.contains(text));
    assert!(
        found.left.len() == 3 && says("the rest of an archive that begins on another volume"),
        "{:?}",
        found.left
    );
    assert!(says("\"TUESDAY\" goes on on the next volume") && says("no tar archive"), "{:?}", found.left);
    // It is somebody else's.
    let name = crate::support::catalogue::barcode();
    let spec = crate::support::catalogue::spec(&name, 4096, Overwrite::OnlyBlank);
    assert_eq!(mounted.format(&spec).unwrap_err().fault, Fault::Refused);
}
