//! Drives and cartridges of several generations of LTO in one library.

use crate::support::{Bed, Running, pattern};
use scsi::{Sense, SenseKey};
use types::*;
use vtl::{Device, Fault};
use wire::{Call, Reply};

const TEST_UNIT_READY: u8 = 0x00;

/// A library with these drives, and cartridges of these kinds in turn; one copy of each file.
fn mixed(drives: &[&str], media: &[&str]) -> Bed {
    let section = format!("[library]\ngenerations = {drives:?}\nmedia = {media:?}\n");
    let wanted = node::Config::parse(&section).unwrap().library;
    Bed::with(|c| {
        c.library.drives = drives.len() as u16;
        (c.library.generations, c.library.media) = (wanted.generations, wanted.media);
        c.library.cartridges = media.len() as u16;
        c.classes[0].copies.truncate(1);
    })
}

/// The same cartridges with other drives.
fn with_drives(bed: Bed, drives: &[&str]) -> Bed {
    let mut config = bed.node.config().clone();
    bed.node.stop(true);
    drop(bed.node);
    config.library.generations =
        node::Config::parse(&format!("[library]\ngenerations = {drives:?}\n")).unwrap().library.generations;
    Bed { node: Running::start(config), dir: bed.dir }
}

fn suspects(bed: &Bed) -> Vec<Barcode> {
    let bad =
        |v: &Volume| !matches!(v.state, VolumeState::Unknown | VolumeState::Filling | VolumeState::Scratch);
    bed.volumes().into_iter().filter(bad).map(|v| v.barcode).collect()
}

fn quote(bed: &Bed) -> QuoteView {
    match bed.call(Call::Quote { files: bed.all(), after: 0 }) {
        Reply::Quote(view) => *view,
        other => panic!("{other:?}"),
    }
}

fn no_tape_trouble(bed: &Bed) {
    let warnings = bed.status().warnings;
    assert!(!warnings.iter().any(|w| w.contains("TC-")), "{warnings:?}");
    assert_eq!(suspects(bed), []);
    assert!(bed.drives().iter().all(|d| d.errors == 0), "{:?}", bed.drives());
}

#[test]
fn each_volume_is_written_and_read_where_it_can_be_and_nobody_meets_an_error() {
    let bed = mixed(&["LTO6", "LTO8"], &["L6", "L8"]);
    let ino = bed.write("f", &pattern(100_000, 1));
    bed.migrate_and_purge();
    assert!(bed.read(ino) == pattern(100_000, 1));
    // The newer medium was taken; the other one too is labelled in the drive that can.
    let used = bed.volumes_of("/f").remove(0);
    assert!(used.as_str().ends_with("L8"), "{used}");
    let volumes = bed.volumes().into_iter().map(|v| v.barcode).filter(|v| *v != used).collect();
    let request = bed.act(Call::Label { volumes, pool: None, force: false, key: None });
    assert_eq!(request.state, RequestState::Done, "{request:?}");
    assert!(bed.volumes().iter().all(|v| !v.uuid.is_empty()));
    no_tape_trouble(&bed);
}

#[test]
fn what_no_drive_reads_says_so_at_once_with_the_remedy_and_nothing_is_suspect() {
    let bed = mixed(&["LTO6"], &["L6"]);
    let ino = bed.write("f", &pattern(100_000, 1));
    bed.migrate_and_purge();
    let volume = bed.volumes_of("/f").remove(0);
    let bed = with_drives(bed, &["LTO8", "LTO9"]);
    let said = |text: &str| {
        text.contains(&format!("{volume} is in reads LTO-6; it takes a drive of LTO-6 or LTO-7"))
    };
    let lost = quote(&bed);
    assert_eq!(lost.lost, 1);
    assert!(lost.lost_files.iter().any(|lost| said(&lost.why)), "{lost:?}");
    let request = bed.act(Call::Stage(bed.one("/f")));
    assert_eq!(request.state, RequestState::Failed);
    let why = match bed.items(request.id).remove(0) {
        ItemState::Failed(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(said(&why), "{why}");
    assert!(bed.try_read(ino).is_err());
    // Nor is there anything that could be written.
    bed.write("g", b"new");
    let request = bed.begin(Call::Migrate(bed.one("/g"))).request.id;
    bed.until("the pool says why it takes nothing", |b| {
        let blocked = b.request(request).why;
        blocked.iter().any(|why| why.contains("no drive here writes volume TC0001L6"))
    });
    no_tape_trouble(&bed);
    // A drive that does both reads it, and writes the rest.
    let bed = with_drives(bed, &["LTO7"]);
    assert!(bed.read(ino) == pattern(100_000, 1));
    assert_eq!(bed.wait(request).state, RequestState::Done);
    no_tape_trouble(&bed);
}

#[test]
fn volumes_of_an_old_generation_are_emptied_to_newer_ones() {
    let bed = mixed(&["LTO7", "LTO8"], &["L6", "L8"]);
    let bed = with_drives(bed, &["LTO6", "LTO6"]);
    let ino = bed.write("f", &pattern(200_000, 3));
    bed.migrate_and_purge();
    assert!(bed.volumes_of("/f")[0].as_str().ends_with("L6"));
    let bed = with_drives(bed, &["LTO7", "LTO8"]);
    let volumes = wire::VolumeChoice::All;
    let request = bed.act(Call::Repack { volumes, dead_percent: None, generation: Some(6) });
    assert_eq!(request.state, RequestState::Done, "{request:?}, {:?}", bed.status());
    assert!(bed.volumes_of("/f")[0].as_str().ends_with("L8"));
    bed.purge("/f");
    assert!(bed.read(ino) == pattern(200_000, 3));
    no_tape_trouble(&bed);
}

#[test]
fn a_drive_that_refuses_a_volume_all_the_same_does_not_get_it_again_and_another_does() {
    let bed = mixed(&["LTO9", "LTO9"], &["L9", "L9"]);
    let ino = bed.write("f", &pattern(100_000, 1));
    bed.migrate_and_purge();
    let volume = bed.volumes_of("/f").remove(0);
    bed.until_dismounted();
    let refuses = Sense::new(SenseKey::MediumError, 0x30, 0x02);
    let device = Device::Drive(0);
    bed.node.virtual_library().inject(Fault::Answer { device, opcode: TEST_UNIT_READY, sense: refuses });
    assert!(bed.read(ino) == pattern(100_000, 1));
    assert_eq!(suspects(&bed), []);
    let warnings = bed.status().warnings;
    let told = format!("drive 0 does not read volume {volume} and does not get it again for that");
    assert!(warnings.iter().any(|w| w.contains(&told)), "{warnings:?}");
    let mounts = |bed: &Bed| bed.drives().iter().map(|d| d.mounts).collect::<Vec<_>>();
    let before = mounts(&bed);
    bed.settle();
    bed.purge("/f");
    bed.until_dismounted();
    assert!(bed.read(ino) == pattern(100_000, 1));
    assert_eq!(mounts(&bed), [before[0], before[1] + 1], "the other drive");
    // After a repair it is tried again.
    bed.call(Call::SetDrive { drive: DriveNo(0), up: true });
    bed.settle();
    bed.purge("/f");
    bed.until_dismounted();
    assert!(bed.read(ino) == pattern(100_000, 1));
    assert_eq!(mounts(&bed)[0], before[0] + 1);
}

#[test]
fn a_cartridge_with_a_wrong_barcode_stops_only_itself() {
    let bed = mixed(&["LTO9", "LTO9"], &["L9", "L6"]);
    // What says TC0001L9 is an LTO-6 cartridge.
    let (barcode, actual) = ("TC0001L9".to_string(), "TC0002L6".to_string());
    bed.node.virtual_library().inject(Fault::WrongCartridge { barcode, actual });
    bed.node.virtual_library().create_cartridge("TC0003L9", 64 << 20).unwrap();
    bed.node.virtual_library().insert("TC0003L9").unwrap();
    bed.write("f", &pattern(100_000, 1));
    let request = bed.act(Call::Migrate(bed.all()));
    assert_eq!(request.state, RequestState::Done, "{:?}", bed.status());
    assert_eq!(bed.volumes_of("/f")[0].as_str(), "TC0003L9");
    assert_eq!(suspects(&bed), []);
    assert!(bed.drives().iter().all(|d| !matches!(d.status, DriveStatus::Suspect(_))));
}
