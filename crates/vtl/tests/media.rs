//! Drives and cartridges of several generations.

use scsi::{ReadOutcome, ScsiError, SenseKey, Smc, Ssc};
use std::sync::Arc;
use types::{Access, Generation, Reach};
use vtl::{Library, VirtualClock, VtlConfig};

struct Rig {
    library: Arc<Library>,
    changer: Smc,
    _dir: tempfile::TempDir,
}

fn settle(device: &mut scsi::Device) {
    while device.test_unit_ready().is_err_and(|e| e.sense().is_some_and(|s| s.key == SenseKey::UnitAttention))
    {
    }
}

/// Drives of these generations, and a cartridge of each of these kinds.
fn rig(drives: &[Generation], media: &[&str]) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let media: Vec<String> = media.iter().map(ToString::to_string).collect();
    let config = VtlConfig {
        drives: drives.len() as u16,
        generations: drives.to_vec(),
        cartridges: media.len() as u16,
        media,
        capacity_bytes: 40 << 20,
        ..VtlConfig::new(dir.path())
    };
    let library = Library::open_with_clock(config, Arc::new(VirtualClock::default())).unwrap();
    let mut changer = Smc::new(Box::new(library.changer()));
    settle(&mut changer);
    Rig { library, changer, _dir: dir }
}

impl Rig {
    fn drive(&self, n: u16) -> Ssc {
        let mut drive = Ssc::new(Box::new(self.library.drive(n)));
        settle(&mut drive);
        drive
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, ScsiError>, key: SenseKey, ascq: u8) {
    let error = result.expect_err("succeeded");
    let sense = error.sense().expect("no sense");
    assert!(sense.is(key, 0x30, ascq), "{sense}");
}

#[test]
fn drives_do_with_each_medium_what_their_generation_can() {
    use Generation::*;
    let kinds = [
        ("L4", Lto4),
        ("L5", Lto5),
        ("L6", Lto6),
        ("L7", Lto7),
        ("M8", Lto7M8),
        ("L8", Lto8),
        ("L9", Lto9),
        ("LA", Lto10),
    ];
    let drives = [Lto5, Lto6, Lto7, Lto8, Lto9, Lto10];
    let mut r = rig(&drives, &kinds.map(|(code, _)| code));
    for (n, drive) in (0u16..).zip(drives) {
        for (slot, (_, medium)) in (1001u16..).zip(kinds) {
            r.changer.move_medium(slot, n + 1).unwrap();
            let mut ssc = r.drive(n);
            let reads = drive.takes(medium, Access::Read);
            if !reads {
                refused(ssc.test_unit_ready(), SenseKey::MediumError, 0x02);
                refused(ssc.read(&mut [0; 10]), SenseKey::MediumError, 0x02);
                refused(ssc.write(b"x"), SenseKey::MediumError, 0x02);
                assert!(ssc.tape_alerts().unwrap().contains(&12), "unsupported format");
            } else if drive.takes(medium, Access::Write) {
                ssc.write(b"written").unwrap();
                ssc.write_filemarks(0, false).unwrap();
                ssc.rewind().unwrap();
            }
            if reads {
                assert_eq!(
                    ssc.medium().unwrap().1.and_then(Generation::of_density),
                    medium.density().map(|_| medium)
                );
                let inside = ssc.report_density(true).unwrap();
                assert_eq!(inside.len(), 1);
                assert_eq!(inside[0].writable, drive.takes(medium, Access::Write));
                assert!(ssc.tape_alerts().unwrap().is_empty());
            }
            if reads && !drive.takes(medium, Access::Write) {
                assert!(
                    !matches!(ssc.read(&mut [0; 10]), Err(ScsiError::Check { sense, .. }) if sense.asc == 0x30)
                );
                ssc.rewind().unwrap();
                refused(ssc.write(b"x"), SenseKey::DataProtect, 0x05);
                refused(ssc.write_filemarks(1, false), SenseKey::DataProtect, 0x05);
                refused(ssc.erase(false), SenseKey::DataProtect, 0x05);
                refused(ssc.set_capacity(0x1000), SenseKey::DataProtect, 0x05);
            }
            ssc.unload().unwrap();
            r.changer.move_medium(n + 1, slot).unwrap();
            assert!(ssc.tape_alerts().unwrap().is_empty(), "nothing is left of it");
        }
    }
}

#[test]
fn what_an_older_drive_wrote_newer_ones_read() {
    let mut r = rig(&[Generation::Lto5, Generation::Lto7], &["L5"]);
    r.changer.move_medium(1001, 1).unwrap();
    let mut old = r.drive(0);
    old.write(b"kept").unwrap();
    old.write_filemarks(0, false).unwrap();
    old.unload().unwrap();
    r.changer.move_medium(1, 2).unwrap();
    let mut new = r.drive(1);
    let mut buf = [0; 10];
    assert_eq!(new.read(&mut buf).unwrap(), ReadOutcome::Record { bytes: 4 });
    refused(new.write(b"more"), SenseKey::DataProtect, 0x05);
}

#[test]
fn drives_say_what_they_are_and_take() {
    let drives = [Generation::Lto5, Generation::Lto8, Generation::Lto9, Generation::Lto10];
    let r = rig(&drives, &["L9"]);
    for (n, generation) in (0..).zip(drives) {
        let mut drive = r.drive(n);
        let product = drive.inquiry().unwrap().product;
        assert!(product.ends_with(&format!("TD{:X}", generation.number())), "{product}");
        let told = drive.report_density(false).unwrap();
        let told = told.iter().map(|d| {
            let by_code = Generation::of_density(d.code);
            (by_code.or_else(|| Generation::described(&d.description)).unwrap(), d.writable)
        });
        assert_eq!(Reach::reported(told), Some(Reach::of(generation)));
    }
    // Without a word about drives they are the oldest that write the cartridges.
    for (media, generation) in [
        ("L4", Generation::Lto4),
        ("M8", Generation::Lto8),
        ("L9", Generation::Lto9),
        ("ZZ", Generation::Lto9),
    ] {
        let config = VtlConfig { media: vec![media.into()], ..VtlConfig::new("/nowhere") };
        assert_eq!(config.generation(1), generation, "{media}");
    }
}
