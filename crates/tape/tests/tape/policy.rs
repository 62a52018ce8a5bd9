//! The table of errors: the document says the same, and every row does what it says when a device answers so.

use crate::support::catalogue::{Catalogue, barcode};
use crate::support::rig::{BARCODE, Rig};
use scsi::{Sense, SenseKey};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use tape::policy::{Row, TABLE, Then, When};
use tape::{Blame, TapeError};
use types::ElementKind;
use vtl::{Device, Fault};

const TEST_UNIT_READY: u8 = 0x00;
const LOCATE: u8 = 0x92;
const MOVE_MEDIUM: u8 = 0xa5;
const MIB: u64 = 1 << 20;

/// Rows about what the program finds by itself, or that are no sense data: the tests that bring them about.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("TC-D030", "tests/tape/reserved.rs", "a_drive_of_another_node_is_left_alone_until_an_operator_takes_it"),
    ("TC-P031", "tests/tape/faults.rs", "a_dead_drive_is_not_the_mediums_fault"),
    ("TC-U032", "tests/tape/policy.rs", "commands_that_this_machine_does_not_send_are_nobodys_fault"),
    ("TC-D033", "tests/tape/policy.rs", "a_drive_that_does_not_know_where_it_stands_is_mounted_again"),
    ("TC-D034", "tests/tape/policy.rs", "an_answer_without_sense_is_the_drives_fault"),
    ("TC-M040", "tests/tape/faults.rs", "protected_and_alarming_volumes_are_read_only"),
    ("TC-D041", "tests/tape/faults.rs", "protected_and_alarming_volumes_are_read_only"),
    ("TC-D042", "tests/tape/faults.rs", "a_drive_that_stands_elsewhere_is_not_written_to"),
    ("TC-M045", "tests/tape/faults.rs", "a_record_of_another_length_is_noticed"),
    ("TC-P047", "tests/tape/protection.rs", "a_record_changed_on_its_way_from_the_drive_is_never_handed_out"),
    ("TC-M048", "tests/tape/faults.rs", "the_wrong_cartridge_is_noticed_by_its_label"),
    ("TC-M049", "tests/tape/faults.rs", "a_foreign_writer_is_noticed"),
    ("TC-M050", "tests/tape/volume.rs", "nothing_foreign_is_overwritten"),
    ("TC-M051", "tests/tape/policy.rs", "a_volume_without_any_index_says_so"),
    ("TC-U052", "tests/tape/encrypted.rs", "without_its_key_it_says_which_key_is_missing"),
    ("TC-D053", "tests/tape/policy.rs", "a_drive_that_does_not_encrypt_is_not_used_for_encrypted_volumes"),
    ("TC-U054", "tests/tape/volume.rs", "nothing_foreign_is_overwritten"),
    (
        "TC-U055",
        "../node/src/archive/commit.rs",
        "after_a_failure_nothing_is_recorded_and_everything_goes_back",
    ),
    (
        "TC-D056",
        "../node/src/archive/defect.rs",
        "a_defect_takes_the_drive_out_of_use_and_the_node_still_stops",
    ),
    (
        "TC-L057",
        "../e2e/tests/e2e/operators.rs",
        "an_exported_volume_leaves_its_drive_at_once_and_a_missing_one_is_named_with_the_reason",
    ),
    ("TC-M058", "../node/tests/node/policy.rs", "a_cartridge_that_two_drives_fail_with_is_suspect_itself"),
    ("TC-L059", "tests/tape/library.rs", "nothing_is_moved_by_an_inventory_that_may_be_wrong"),
];

/// As the document writes it.
fn line(row: &Row) -> String {
    let when = match row.when {
        When::Sense(key, asc, first, last) => {
            let key = key.map_or("*".to_owned(), |k| format!("{:X}", k as u8));
            let asc = asc.map_or("*".to_owned(), |a| format!("{a:02X}"));
            let ascq = if first == last { format!("{first:02X}") } else { "*".to_owned() };
            format!("sense {key}/{asc}/{ascq}")
        }
        When::Status(status) => format!("status {status:02X}h"),
        When::NoAnswer => "no answer".into(),
        When::NotSent => "not sent".into(),
        When::PositionUnknown => "position unknown".into(),
        When::Nonsense => "no sense in the answer".into(),
        When::Found => "found".into(),
    };
    let blame = row.blame.map_or("device".into(), |b| format!("{b:?}").to_lowercase());
    let (drive, robot) = (row.then(Blame::Drive), row.then(Blame::Library));
    let then = match drive == robot {
        true => drive.text().to_owned(),
        false => format!("{} (robot: {})", drive.text(), robot.text()),
    };
    format!("| {} | {when} | {} | {blame} | {then} | {} |", row.code, row.what, row.advice)
}

#[test]
fn the_document_says_what_the_table_says() {
    let text = include_str!("../../../../docs/ERRORS.md");
    let written: Vec<&str> = text.lines().filter(|l| l.starts_with("| TC-")).collect();
    let expected: Vec<String> = TABLE.iter().map(line).collect();
    for (n, row) in expected.iter().enumerate() {
        assert_eq!(written.get(n).copied(), Some(row.as_str()), "row {n} of docs/ERRORS.md");
    }
    assert_eq!(written.len(), expected.len());
}

#[test]
fn codes_are_unique_and_say_whose_matter_it_is() {
    let codes: BTreeSet<&str> = TABLE.iter().map(|row| row.code).collect();
    assert_eq!(codes.len(), TABLE.len());
    for row in TABLE {
        let (letter, number) = (row.code.as_bytes()[3] as char, &row.code[4..]);
        assert!(row.code.starts_with("TC-") && number.len() == 3 && number.parse::<u16>().is_ok(), "{row:?}");
        let blame = row.blame.unwrap_or(Blame::Drive);
        let expected = match blame {
            Blame::Drive => 'D',
            Blame::Medium => 'M',
            Blame::Library => 'L',
            Blame::Path => 'P',
            Blame::Us => 'U',
        };
        assert_eq!(letter, expected, "{row:?}");
    }
}

#[test]
fn every_row_has_a_test() {
    for row in TABLE {
        if matches!(row.when, When::Sense(..)) {
            assert!(example(row).is_some(), "{row:?}");
            continue;
        }
        let (_, file, name) = ELSEWHERE.iter().find(|t| t.0 == row.code).unwrap_or_else(|| panic!("{row:?}"));
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let body = text.split_once(&format!("fn {name}()")).map(|(_, rest)| rest);
        let body = body.unwrap_or_else(|| panic!("{}: {name} is not in {file}", row.code));
        let body = body.split("#[test]").next().unwrap_or_default();
        assert!(body.contains(row.code), "{name} in {file} does not look for {}", row.code);
    }
}

/// Sense data for which this row is the first.
fn example(row: &Row) -> Option<Sense> {
    use SenseKey as K;
    let When::Sense(key, asc, first, _) = row.when else { return None };
    let keys = match key {
        Some(key) => vec![key],
        None => vec![K::MediumError, K::IllegalRequest, K::Miscompare],
    };
    let ascs = match asc {
        Some(asc) => vec![asc],
        None => vec![0x5d, 0x11, 0x44],
    };
    let all = keys.iter().flat_map(|key| ascs.iter().map(|asc| Sense::new(*key, *asc, first)));
    let later = |sense: &Sense| (0..=0xff).map(|ascq| Sense { ascq, ..*sense }).collect::<Vec<_>>();
    all.flat_map(|sense| [vec![sense], later(&sense)].concat()).find(|sense| code_of(sense) == row.code)
}

/// Code of an error with this sense data.
fn code_of(sense: &Sense) -> &'static str {
    let error = TapeError {
        blame: Blame::Drive,
        fault: tape::Fault::HardwareError,
        volume: None,
        drive: "drive".into(),
        doing: "testing".into(),
        what: "".into(),
        sense: Some(*sense),
        advice: "",
    };
    error.code()
}

/// A volume with a file, in drive 0, unloaded.
fn volume(rig: &Rig) -> Catalogue {
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let mut catalogue = Catalogue::format(&mut mounted, 4096).unwrap();
    catalogue.append(&mut mounted, &[vec![7; 10_000]]).unwrap();
    mounted.unload().unwrap();
    catalogue
}

#[test]
fn what_a_drive_answers_is_dealt_with_as_the_table_says() {
    for row in TABLE.iter().filter(|row| matches!(row.when, When::Sense(..))) {
        let rig = Rig::new(4 * MIB, MIB);
        let catalogue = volume(&rig);
        let sense = example(row).unwrap();
        let inject = |opcode| rig.library.inject(Fault::Answer { device: Device::Drive(0), opcode, sense });
        let mut drive = rig.drive(0);
        if row.then(Blame::Drive) == Then::Wait {
            (0..3).for_each(|_| inject(TEST_UNIT_READY));
        }
        let mut mounted = drive.mount(Some(&barcode())).unwrap();
        if row.then(Blame::Drive) != Then::Wait {
            inject(LOCATE);
        }
        let read = mounted.read(&catalogue.files[0].extents[0], &mut |_, _| ControlFlow::Continue(()));
        let Some(fault) = row.fault else {
            assert!(read.is_ok(), "{row:?}: {read:?}");
            continue;
        };
        let e = read.unwrap_err();
        let blame = row.blame.unwrap_or(Blame::Drive);
        assert_eq!((e.code(), e.fault, e.blame), (row.code, fault, blame), "{e}");
        assert_eq!(e.then(), row.then(Blame::Drive), "{e}");
        let text = e.to_string();
        assert!(text.starts_with(&format!("{}: volume TC0001L9 in virtual drive 0: ", row.code)), "{text}");
        assert!(text.contains(row.what) && text.ends_with(row.advice), "{text}");
    }
}

#[test]
fn what_a_robot_answers_is_dealt_with_as_the_table_says() {
    for row in TABLE.iter().filter(|row| matches!(row.when, When::Sense(..))) {
        let rig = Rig::new(MIB, MIB);
        let sense = example(row).unwrap();
        let mut changer = rig.changer();
        let (from, to) = (rig.elements(ElementKind::Slot)[0], rig.elements(ElementKind::Drive)[0]);
        rig.library.inject(Fault::Answer { device: Device::Changer, opcode: MOVE_MEDIUM, sense });
        let moved = changer.move_medium(from, to);
        if row.fault.is_none() {
            assert!(moved.is_ok(), "{row:?}: {moved:?}");
            continue;
        }
        // Another cartridge may lie there after a reset or an open door.
        let code = if sense.key == SenseKey::UnitAttention { "TC-L059" } else { row.code };
        let e = moved.unwrap_err();
        assert_eq!((e.code(), e.blame), (code, row.blame.unwrap_or(Blame::Library)), "{e}");
        changer.inventory().unwrap();
        changer.move_medium(from, to).unwrap();
    }
}

#[test]
fn commands_that_this_machine_does_not_send_are_nobodys_fault() {
    let missing = scsi::sg::SgTransport::new(std::path::Path::new("/dev/sg-that-is-not-there"));
    let e = tape::Drive::open(Box::new(missing), Box::new(|_| {})).map(drop).unwrap_err();
    assert!(matches!(e.code(), "TC-U032" | "TC-P031"), "{e}");
    let refused = support_refusing();
    let e = tape::Drive::open(refused, Box::new(|_| {})).map(drop).unwrap_err();
    assert_eq!((e.code(), e.blame, e.then()), ("TC-U032", Blame::Us, Then::Operator), "{e}");
}

/// A way to a device that answers every command in the same way.
struct Always(fn() -> Result<scsi::Reply, scsi::TransportError>);

impl scsi::Transport for Always {
    fn execute(
        &mut self,
        _: &[u8],
        _: scsi::Data<'_>,
        _: std::time::Duration,
    ) -> Result<scsi::Reply, scsi::TransportError> {
        (self.0)()
    }

    fn name(&self) -> &str {
        "a strange device"
    }
}

fn support_refusing() -> Box<dyn scsi::Transport> {
    Box::new(Always(|| {
        Err(scsi::TransportError::Refused {
            device: "a strange device".into(),
            detail: "no permission".into(),
        })
    }))
}

#[test]
fn an_answer_without_sense_is_the_drives_fault() {
    let strange = Always(|| Ok(scsi::Reply { status: scsi::CHECK_CONDITION, ..scsi::Reply::default() }));
    let e = tape::Drive::open(Box::new(strange), Box::new(|_| {})).map(drop).unwrap_err();
    assert_eq!((e.code(), e.then()), ("TC-D034", Then::OtherDrive), "{e}");
}

/// A drive whose READ POSITION says that it does not know, from the third on.
struct Lost<T>(T, u32);

impl<T: scsi::Transport> scsi::Transport for Lost<T> {
    fn execute(
        &mut self,
        cdb: &[u8],
        data: scsi::Data<'_>,
        limit: std::time::Duration,
    ) -> Result<scsi::Reply, scsi::TransportError> {
        match data {
            scsi::Data::In(buffer) if cdb[0] == 0x34 => {
                self.1 += 1;
                let reply = self.0.execute(cdb, scsi::Data::In(&mut *buffer), limit);
                buffer[0] |= if self.1 > 2 { 0x0c } else { 0 }; // LONU, MPU
                reply
            }
            data => self.0.execute(cdb, data, limit),
        }
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

#[test]
fn a_drive_that_does_not_know_where_it_stands_is_mounted_again() {
    let rig = Rig::new(4 * MIB, MIB);
    let mut catalogue = volume(&rig);
    let transport = Lost(rig.library.drive(0), 0);
    let mut drive = tape::Drive::open(Box::new(transport), Box::new(|_| {})).unwrap();
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let e = catalogue
        .append(&mut mounted, &[vec![1; 10]])
        .and_then(|_| catalogue.append(&mut mounted, &[vec![1; 10]]))
        .and_then(|_| catalogue.append(&mut mounted, &[vec![1; 10]]))
        .unwrap_err();
    assert_eq!((e.code(), e.then()), ("TC-D033", Then::MountAgain), "{e}");
}

#[test]
fn a_drive_that_does_not_encrypt_is_not_used_for_encrypted_volumes() {
    let rig = Rig::new(4 * MIB, MIB);
    let mut drive = rig.load(BARCODE, 0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let sense = Sense::new(SenseKey::IllegalRequest, 0x20, 0x00);
    rig.library.inject(Fault::Answer { device: Device::Drive(0), opcode: 0xa2, sense });
    let key = tape::Key::new("k1", [1; 32]).unwrap();
    let e = Catalogue::format_with(&mut mounted, 4096, Some(&key)).map(drop).unwrap_err();
    assert_eq!((e.code(), e.then()), ("TC-D053", Then::OtherDrive), "{e}");
}

#[test]
fn a_volume_without_any_index_says_so() {
    let rig = Rig::new(4 * MIB, MIB);
    volume(&rig);
    rig.tamper(BARCODE, |dir| {
        for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
            let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
            if name.ends_with("_5_R") {
                std::fs::write(&entry, b"no index").unwrap();
            }
            if name.starts_with("attr_") && name.ends_with("_80c") {
                std::fs::remove_file(&entry).unwrap();
            }
        }
    });
    let mut drive = rig.drive(0);
    let mut mounted = drive.mount(Some(&barcode())).unwrap();
    let e = mounted.read_index(&mut |_| ControlFlow::Continue(())).map(drop).unwrap_err();
    assert_eq!((e.code(), e.then()), ("TC-M051", Then::OtherVolume), "{e}");
}

/// Prints the rows of `docs/ERRORS.md`: `cargo test -p tape --test tape policy -- --ignored --nocapture`.
#[test]
#[ignore = "prints the table for the document"]
fn rows_of_the_document() {
    TABLE.iter().for_each(|row| println!("{}", line(row)));
}
