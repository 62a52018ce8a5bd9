//! Volumes without partitions: sections written, read one file at a time, found again without any record, kept through a
//! power failure at every command, and read from an exported image by tar, bsdtar and hetmap (of
//! Hercules, the reader of ANSI labels that Debian has).

use crate::support::catalogue::{NOW, UUID, barcode, spec};
use crate::support::rig::{BARCODE, Rig};
use crate::support::sections::{BLOCK, append, append_with, aws_image, content, read, rebuilt};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use tape::{Fault, Mounted, Overwrite, SectionPoint, Told};
use types::Digest;

fn labelled(mounted: &mut Mounted<'_>) -> SectionPoint {
    mounted.format_ansi(&spec(&barcode(), BLOCK, Overwrite::OnlyBlank)).unwrap()
}

#[test]
fn files_come_back_alone_and_a_lost_catalogue_from_the_labels() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut point = labelled(&mut mounted);
    assert_eq!(point.block, 2);
    assert_eq!(rebuilt(&mut mounted), (point.clone(), Vec::new()));
    let mut known = Vec::new();
    for files in [&[1, 2, 3][..], &[], &[4], &(5..60).collect::<Vec<_>>()] {
        let (files, end) = append(&mut mounted, &point, files).unwrap();
        known.extend(files);
        point = end;
    }
    mounted.unload().unwrap();
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    assert_eq!(mounted.ansi().unwrap().uuid, UUID);
    assert_eq!(rebuilt(&mut mounted), (point.clone(), known.clone()));
    for file in &known {
        assert_eq!(read(&mut mounted, file), content(file.uid), "{}", file.uid);
    }
    // three filemarks for each section, none for a file
    assert_eq!(rig.objects(BARCODE).keys().filter(|name| name.ends_with("_F")).count(), 12);
    // nothing may be lost on it
    assert_eq!(mounted.label().uuid(), Some(UUID));
    let refused = mounted.format(&spec(&barcode(), BLOCK, Overwrite::OnlyBlank)).unwrap_err();
    assert_eq!(refused.fault, Fault::Refused);
    let other = types::Barcode::from("TC0002L9");
    mounted.unload().unwrap();
    assert_eq!(drive.mount(Some(&other)).unwrap().ansi(), None);
}

#[test]
fn nothing_is_appended_where_the_volume_does_not_end_as_recorded() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let start = labelled(&mut mounted);
    let (_, one) = append(&mut mounted, &start, &[1]).unwrap();
    let (_, two) = append(&mut mounted, &one, &[2]).unwrap();
    let before = rig.objects(BARCODE);
    let fault = |mounted: &mut Mounted<'_>, point: &SectionPoint| {
        mounted.begin_section(point, NOW).err().map(|error| error.fault)
    };
    let wrong = SectionPoint { section: 1, ..two.clone() };
    assert_eq!(fault(&mut mounted, &wrong), Some(Fault::ForeignWriter));
    let wrong = SectionPoint { block: two.block - 1, ..two.clone() };
    assert_eq!(fault(&mut mounted, &wrong), Some(Fault::ForeignWriter));
    let wrong = SectionPoint { uuid: UUID.replace('3', "4"), ..two.clone() };
    assert_eq!(fault(&mut mounted, &wrong), Some(Fault::WrongVolume));
    assert_eq!(rig.objects(BARCODE), before);
    mounted.unload().unwrap();
    // somebody else wrote behind our last section
    rig.tamper(BARCODE, |dir| {
        std::fs::write(dir.join(format!("0_{}_R", two.block)), b"somebody else's").unwrap();
        let end = dir.join(format!("0_{}_E", two.block));
        std::fs::rename(end, dir.join(format!("0_{}_E", two.block + 1))).unwrap();
    });
    let mut mounted = drive.mount(None).unwrap();
    assert_eq!(fault(&mut mounted, &two), Some(Fault::ForeignWriter));
    // a section that was written and not recorded is overwritten
    assert!(append(&mut mounted, &one, &[3]).is_ok());
}

#[test]
fn a_power_failure_at_any_command_leaves_the_whole_sections() {
    for cut in 0.. {
        let rig = Rig::new(64 << 20, 1 << 20);
        let mut drive = rig.load(BARCODE, 0);
        let mut mounted = drive.mount(None).unwrap();
        let start = labelled(&mut mounted);
        let (mut known, one) = append(&mut mounted, &start, &[1, 2]).unwrap();
        let commands = rig.wire().opcodes.len();
        rig.wire().cut_at = Some(commands + cut);
        let second = append(&mut mounted, &one, &[3, 4]);
        drop(mounted);
        drop(drive);
        rig.power_cycle();
        let mut drive = rig.drive(0);
        let mut mounted = drive.mount(Some(&barcode())).unwrap();
        let (end, files) = rebuilt(&mut mounted);
        if let Ok((files, _)) = &second {
            known.extend(files.clone());
        }
        // what was not acknowledged may be there nevertheless, but only whole
        assert!(end.section == 2 || (end == one && second.is_err()), "cut {cut}: {end:?}");
        assert_eq!(&files[..known.len()], &known[..], "cut {cut}");
        assert!(files.iter().all(|file| read(&mut mounted, file) == content(file.uid)), "cut {cut}");
        // a writer who knows only what was acknowledged goes on
        let acknowledged = second.as_ref().map_or(&one, |(_, end)| end);
        let (third, _) = append(&mut mounted, acknowledged, &[5]).unwrap();
        known.extend(third);
        assert_eq!(rebuilt(&mut mounted).1, known, "cut {cut}");
        if second.is_ok() {
            assert!(cut > 10);
            return;
        }
    }
}

#[test]
fn a_full_volume_keeps_its_sections_and_says_so() {
    let rig = Rig::new(2 << 20, 1 << 16);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let mut point = labelled(&mut mounted);
    let mut known = Vec::new();
    let error = loop {
        match append(&mut mounted, &point, &(1..30).collect::<Vec<_>>()) {
            Ok((files, end)) => (known, point) = ([known, files].concat(), end),
            Err(error) => break error,
        }
    };
    assert_eq!(error.fault, Fault::Full);
    assert!(point.section > 1);
    assert_eq!(rebuilt(&mut mounted), (point, known));
}

#[test]
fn a_file_that_could_not_be_read_in_full_does_not_count() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let start = labelled(&mut mounted);
    let digests = [Some(Digest([1; 32])), None, Some(Digest([3; 32]))];
    append_with(&mut mounted, &start, &[1, 2, 3], &digests).unwrap();
    let mut found = Vec::new();
    let told = mounted.contents(&mut |told| {
        if let Told::File(_, file) = told {
            found.push((file.uid, file.digest));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(told.unwrap().behind, 1);
    assert_eq!(found, [(1, digests[0]), (3, digests[2])]);
}

/// Sections that an earlier label of the cartridge had are not those of the present one.
#[test]
fn sections_of_another_volume_do_not_count() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(None).unwrap();
    let start = labelled(&mut mounted);
    let (_, one) = append(&mut mounted, &start, &[1]).unwrap();
    mounted.unload().unwrap();
    let other = UUID.replace('3', "4");
    rig.tamper(BARCODE, |dir| {
        let label = std::fs::read_to_string(dir.join("0_1_R")).unwrap();
        std::fs::write(dir.join("0_1_R"), label.replace(UUID, &other)).unwrap();
    });
    let mut mounted = drive.mount(None).unwrap();
    assert_eq!(mounted.find_end().unwrap(), SectionPoint { uuid: other.clone(), ..start });
    let refused = mounted.begin_section(&SectionPoint { uuid: other, ..one }, NOW).err().unwrap();
    assert_eq!(refused.fault, Fault::ForeignWriter);
}

/// The data of each section of a cartridge directory, as any program would copy it from tape.
fn exported(cartridge: &Path) -> Vec<Vec<u8>> {
    let mut files = vec![Vec::new()];
    for block in 0.. {
        match std::fs::read(cartridge.join(format!("0_{block}_R"))) {
            Ok(record) => files.last_mut().unwrap().extend(record),
            Err(_) if cartridge.join(format!("0_{block}_F")).exists() => files.push(Vec::new()),
            Err(_) => break,
        }
    }
    files.into_iter().skip(1).step_by(3).collect()
}

#[test]
fn tar_and_bsdtar_read_each_section_of_an_exported_image() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let start = labelled(&mut mounted);
    let (_, one) = append(&mut mounted, &start, &[1, 2, 3]).unwrap();
    append(&mut mounted, &one, &[4, 5]).unwrap();
    mounted.unload().unwrap();
    let sections = exported(&rig.cartridge(BARCODE));
    assert_eq!(sections.len(), 2);
    for program in ["tar", "bsdtar"] {
        let to = rig.dir.path().join(program);
        std::fs::create_dir(&to).unwrap();
        for section in &sections {
            let archive = rig.dir.path().join("section.tar");
            std::fs::write(&archive, section).unwrap();
            let output = Command::new(program).arg("-xf").arg(&archive).arg("-C").arg(&to).output().unwrap();
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        }
        for n in 1..=5 {
            assert_eq!(std::fs::read(to.join(format!("dir/file {n}"))).unwrap(), content(n), "{program}");
        }
    }
}

#[test]
fn a_foreign_program_reads_the_labels() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let start = labelled(&mut mounted);
    let (_, one) = append(&mut mounted, &start, &[1, 2, 3]).unwrap();
    append(&mut mounted, &one, &[4, 5]).unwrap();
    let sections = mounted.find_end().and_then(|end| mounted.sections(&end)).unwrap();
    mounted.unload().unwrap();
    let image = rig.dir.path().join("image.aws");
    std::fs::write(&image, aws_image(&rig.cartridge(BARCODE))).unwrap();
    let output =
        Command::new("hetmap").arg("-a").arg(&image).output().expect("hetmap of the package hercules runs");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    let values = |name: &str| -> Vec<&str> {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(key, _)| key.trim_end() == name)
            .map(|(_, value)| value.trim_matches('\'').trim_end())
            .collect()
    };
    let section = ["HDR1", "HDR2", "UHL1", "UHL2", "EOF1", "EOF2", "UTL1", "UTL2"];
    assert_eq!(values("Label"), [&["VOL1"][..], &section, &section].concat());
    assert!(values("Volume Serial").iter().all(|serial| *serial == "TC0001"));
    let blocks: Vec<_> = sections.iter().rev().map(|s| format!("{:06}", s.trailer.blocks)).collect();
    assert_eq!(values("Block Count Low"), ["000000", &blocks[0], "000000", &blocks[1]]);
    let names = [1, 1, 2, 2].map(|n| format!("SECTION{n:010}"));
    assert_eq!(values("Dataset ID"), names);
    assert_eq!(values("Record Length"), ["00512"; 4]);
}
