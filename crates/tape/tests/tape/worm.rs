//! Media that can be written once: labelled once, appended, kept through power failures, found again without any record.

use crate::support::catalogue::{Catalogue, NOW, UUID, spec};
use crate::support::rig::Rig;
use crate::support::sections::{BLOCK, append, aws_image, content, read, rebuilt};
use format::ltfs::index::{DirMeta, EntryTimes};
use scsi::{Sense, SenseKey};
use std::ops::ControlFlow;
use std::process::Command;
use tape::{Blame, Drive, Fault, LabelState, Mounted, Overwrite, SectionPoint};
use types::{Barcode, TapeFile};

const WORM: &str = "TC0009LZ";

fn rig() -> (Rig, Drive) {
    let rig = Rig::new(64 << 20, 1 << 20);
    rig.library.create_worm_cartridge(WORM, 16 << 20).unwrap();
    rig.library.insert(WORM).unwrap();
    let drive = rig.load(WORM, 0);
    (rig, drive)
}

fn labelled(mounted: &mut Mounted<'_>) -> SectionPoint {
    let barcode = Barcode::from(WORM);
    mounted.format_ansi(&spec(&barcode, BLOCK, Overwrite::OnlyBlank)).unwrap()
}

/// The drive after the power came back.
fn again(rig: &Rig) -> Drive {
    rig.power_cycle();
    rig.drive(0)
}

/// Each file that counts can be read.
fn readable(mounted: &mut Mounted<'_>, files: &[TapeFile]) -> bool {
    files.iter().all(|file| read(mounted, file) == content(file.uid))
}

#[test]
fn it_is_labelled_once_and_only_appended_to() {
    let (rig, mut drive) = rig();
    let mut mounted = drive.mount(None).unwrap();
    assert!(mounted.worm() && !mounted.write_protected() && *mounted.label() == LabelState::Blank);
    assert!(!mounted.takes_partitions().unwrap());
    let error = Catalogue::format(&mut mounted, BLOCK).unwrap_err();
    assert_eq!((error.fault, error.blame), (Fault::WriteProtected, Blame::Medium));
    assert!(error.to_string().contains("WORM"), "{error}");
    assert!(rig.objects(WORM).keys().eq(["0_0_E"]), "nothing was written");
    let start = labelled(&mut mounted);
    let (one, point) = append(&mut mounted, &start, &[1, 2]).unwrap();
    mounted.unload().unwrap();
    let before = rig.objects(WORM);
    let mut mounted = drive.mount(None).unwrap();
    let barcode = Barcode::from(WORM);
    for overwrite in [Overwrite::OnlyBlank, Overwrite::Volume(UUID), Overwrite::Anything] {
        let error = mounted.format_ansi(&spec(&barcode, BLOCK, overwrite)).unwrap_err();
        assert_eq!((error.fault, error.blame), (Fault::Refused, Blame::Us));
        assert!(error.to_string().contains("can never be labelled again"), "{error}");
    }
    assert_eq!(rig.objects(WORM), before);
    let (two, point) = append(&mut mounted, &point, &[3]).unwrap();
    assert_eq!(rebuilt(&mut mounted), (point, [one, two].concat()));
}

#[test]
fn what_was_not_recorded_is_closed_and_never_counts() {
    let (rig, mut drive) = rig();
    let mut mounted = drive.mount(None).unwrap();
    let start = labelled(&mut mounted);
    // a section given up after its labels, with some data, and one that nobody recorded
    drop(mounted.begin_section(&start, NOW).unwrap());
    let mut writer = mounted.begin_section(&start, NOW).unwrap();
    writer.write(&vec![7; 3 * BLOCK as usize]).unwrap();
    let lost = append(&mut mounted, &start, &[1]).unwrap();
    let (two, point) = append(&mut mounted, &start, &[2]).unwrap();
    assert_eq!((point.section, lost.1.section), (1, 1));
    // so is an index
    let (creator, uid) = ("test", 9);
    let times = EntryTimes { creation: NOW, change: NOW, modify: NOW, access: NOW, backup: NOW };
    let root = DirMeta { name: WORM.into(), uid: 1, times, ..DirMeta::default() };
    let index = |mounted: &mut Mounted<'_>, point: &SectionPoint| {
        mounted
            .write_section_index(point, (creator, uid, NOW), &mut |writer| {
                writer.enter_dir(&root)?;
                writer.leave_dir()?;
                Ok(())
            })
            .unwrap()
    };
    drop(mounted.begin_section(&point, NOW).unwrap());
    let (begins, end) = index(&mut mounted, &point);
    assert!(begins > point.block && end.section == 2);
    let mut seen = 0;
    let contents = mounted
        .contents(&mut |told| {
            seen += usize::from(matches!(told, tape::Told::File(..)));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((contents.end, seen), (end.clone(), 0), "the index tells all");
    assert!(contents.index.is_some_and(|header| header.location.block == begins && header.generation == 2));
    assert!(readable(&mut mounted, &two));
    assert_eq!(mounted.find_end().unwrap(), end);
    let void = mounted.sections(&end).unwrap().iter().filter(|section| section.is_void()).count();
    assert_eq!(void, 2);
    mounted.unload().unwrap();
    let image = rig.dir.path().join("image.aws");
    std::fs::write(&image, aws_image(&rig.cartridge(WORM))).unwrap();
    let listed = Command::new("hetmap").arg("-a").arg(&image).output().expect("hetmap runs");
    assert!(listed.status.success());
    assert!(String::from_utf8_lossy(&listed.stdout).contains("SECTION0000000002"));
}

#[test]
fn a_power_failure_at_any_command_costs_tape_only() {
    for first in 0.. {
        let mut ended = false;
        for second in (0..).step_by(4) {
            let (rig, mut drive) = rig();
            let mut mounted = drive.mount(None).unwrap();
            let start = labelled(&mut mounted);
            let (mut known, mut point) = append(&mut mounted, &start, &[1]).unwrap();
            drop(mounted);
            drop(drive);
            let mut all_done = [false; 2];
            for (n, cut) in [first, second].into_iter().enumerate() {
                let mut drive = again(&rig);
                let mut mounted = drive.mount(None).unwrap();
                let commands = rig.wire().opcodes.len();
                rig.wire().cut_at = Some(commands + cut);
                if let Ok((files, end)) = append(&mut mounted, &point, &[2]) {
                    known.extend(files);
                    (point, all_done[n]) = (end, true);
                }
            }
            let mut drive = again(&rig);
            let mut mounted = drive.mount(None).unwrap();
            let (end, found) = rebuilt(&mut mounted);
            assert_eq!(&found[..known.len()], &known[..], "{first} {second}");
            assert!(end.section >= point.section && readable(&mut mounted, &found), "{first} {second}");
            let (files, end) = append(&mut mounted, &point, &[3]).unwrap();
            known.extend(files);
            assert_eq!(rebuilt(&mut mounted), (end, known), "{first} {second}");
            ended = all_done[0];
            if all_done[1] {
                break;
            }
        }
        if ended {
            assert!(first > 10);
            return;
        }
    }
}

#[test]
fn a_drive_that_finds_the_end_elsewhere_makes_the_volume_read_only() {
    let (rig, mut drive) = rig();
    let mut mounted = drive.mount(None).unwrap();
    let start = labelled(&mut mounted);
    rig.wire().answer = Some((0x0A, Sense::new(SenseKey::DataProtect, 0x30, 0x0C)));
    let error = append(&mut mounted, &start, &[1]).unwrap_err();
    assert_eq!((error.fault, error.blame, error.code()), (Fault::WriteProtected, Blame::Medium, "TC-M006"));
}
