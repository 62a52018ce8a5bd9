//! Our changer and drive code over our iSCSI transport, against a library that is somebody else's (Debian's tgt).

#![expect(
    clippy::disallowed_methods,
    reason = "the target is another process; a library may take time to start"
)]

#[path = "support/tgt.rs"]
mod tgt;

use scsi::iscsi::{IscsiTransport, find};
use scsi::{IscsiAddress, ReadOutcome, Ssc, Transport};
use tape::{Blame, Changer, Drive, Fault};
use tgt::{CHANGER, DRIVE, DRIVES, IMPORT, SLOT, TARGET, Tgt};
use types::ElementKind;

fn unit(tgt: &Tgt, lun: u16) -> Box<dyn Transport> {
    let (host, target) = ("127.0.0.1".into(), TARGET.into());
    Box::new(IscsiTransport::new(IscsiAddress { host, port: tgt.port, target, lun }))
}

fn sleeper() -> tape::Sleeper {
    Box::new(std::thread::sleep)
}

/// Address of the element that holds a cartridge.
fn place(changer: &mut Changer, barcode: &str) -> u16 {
    let all = changer.inventory().unwrap();
    all.iter().find(|e| e.barcode.as_ref().is_some_and(|b| b.as_str() == barcode)).unwrap().address
}

#[test]
fn a_foreign_changer_is_understood_over_iscsi() {
    let tgt = Tgt::start(DRIVES);
    let units = find("127.0.0.1", tgt.port, None).unwrap();
    assert_eq!(units.iter().map(|u| u.lun).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(units.iter().all(|u| u.target == TARGET));

    let mut changer = Changer::open(unit(&tgt, CHANGER), sleeper()).unwrap();
    assert_eq!(changer.product(), "TGT VTL2x8 0100");
    let elements = changer.inventory().unwrap();
    let count = |kind| elements.iter().filter(|e| e.kind == kind).count();
    let kinds = [ElementKind::Transport, ElementKind::Slot, ElementKind::ImportExport, ElementKind::Drive];
    assert_eq!(kinds.map(count), [1, 8, 2, 2]);
    assert_eq!(elements.iter().filter(|e| e.full).count(), 6);

    assert_eq!(place(&mut changer, "VT0003L8"), SLOT + 2);
    changer.move_medium(SLOT + 2, DRIVE + 1).unwrap();
    assert_eq!(place(&mut changer, "VT0003L8"), DRIVE + 1);
    changer.move_medium(DRIVE + 1, IMPORT).unwrap();
    assert_eq!(place(&mut changer, "VT0003L8"), IMPORT);
    let empty = changer.move_medium(SLOT + 2, DRIVE).unwrap_err();
    assert_eq!((empty.fault, empty.blame), (Fault::SourceEmpty, Blame::Library), "{empty}");
    changer.inventory().unwrap();
    let full = changer.move_medium(SLOT, SLOT + 1).unwrap_err();
    assert_eq!((full.fault, full.blame), (Fault::DestinationFull, Blame::Library), "{full}");
}

/// The drive of tgt is only a recorder (no positions, no attributes), but records must pass unchanged both ways.
#[test]
fn records_pass_unchanged_over_iscsi() {
    let tgt = Tgt::start(DRIVES);
    let mut changer = Changer::open(unit(&tgt, CHANGER), sleeper()).unwrap();
    changer.move_medium(SLOT, DRIVE).unwrap();
    let mut drive = Drive::open(unit(&tgt, DRIVES[0]), sleeper()).unwrap();
    assert_eq!((drive.serial(), drive.product()), ("DRV0000001", "IBM ULT3580-TD8 D8E4"));
    drive.wait_ready().unwrap();
    drop(drive);

    let mut ssc = Ssc::new(unit(&tgt, DRIVES[0]));
    while ssc.test_unit_ready().is_err() {}
    let record = |n: usize| -> Vec<u8> { (0..n).map(|i| (i * 31 + n) as u8).collect() };
    let sizes = [80, 4096, 65_536, 524_288, 1 << 20];
    for n in sizes {
        ssc.write(&record(n)).unwrap();
    }
    ssc.write_filemarks(1, false).unwrap();
    ssc.rewind().unwrap();
    for n in sizes {
        let mut buffer = vec![0; n];
        assert_eq!(ssc.read(&mut buffer).unwrap(), ReadOutcome::Record { bytes: n });
        assert!(buffer == record(n), "record of {n} bytes");
    }
    assert_eq!(ssc.read(&mut [0; 80]).unwrap(), ReadOutcome::Filemark);
}

#[test]
fn a_lost_session_is_an_error_of_the_path_and_the_next_command_makes_a_new_one() {
    let mut tgt = Tgt::start(DRIVES);
    let mut changer = Changer::open(unit(&tgt, CHANGER), sleeper()).unwrap();
    changer.move_medium(SLOT, SLOT + 7).unwrap();
    tgt.kill();
    for _ in 0..2 {
        let lost = changer.move_medium(SLOT + 7, SLOT).unwrap_err();
        assert_eq!((lost.fault, lost.blame), (Fault::NoAnswer, Blame::Path), "{lost}");
        assert!(lost.to_string().contains(&format!("iscsi://127.0.0.1:{}/{TARGET}/3", tgt.port)), "{lost}");
    }
    tgt.restart();
    assert_eq!(place(&mut changer, "VT0001L8"), SLOT, "the inventory is that of the new target");
    changer.move_medium(SLOT, SLOT + 7).unwrap();
}

#[test]
fn a_target_that_asks_who_is_there_is_told_and_must_know_its_own_secret() {
    let tgt = Tgt::start(DRIVES);
    tgt.ask_who_is_there();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secrets");
    let inquiry = |secrets: &str| {
        std::fs::write(&path, secrets).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let (host, target) = ("127.0.0.1".into(), TARGET.into());
        let address = IscsiAddress { host, port: tgt.port, target, lun: CHANGER };
        let transport = IscsiTransport::new(address).with_secrets(path.clone());
        scsi::Smc::new(Box::new(transport)).inquiry().map(|i| i.product).map_err(|e| e.to_string())
    };
    let known = format!("{TARGET} me minesecret12 you yourssecret3\n");
    assert_eq!(inquiry(&known).as_deref(), Ok("VTL2x8"));
    assert_eq!(inquiry("* me minesecret12\n").as_deref(), Ok("VTL2x8"), "it need not prove itself");
    for wrong in ["", "* me othersecret12\n", &known.replace("yours", "other")] {
        let error = inquiry(wrong).unwrap_err();
        assert!(!error.contains("secret12"), "{error}");
    }
}
