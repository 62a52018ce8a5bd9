//! TapeAlert flags that are raised in the middle of a session, without any error, are heard when the drive lets go of the cartridge.

use crate::support::{Bed, pattern};
use types::*;
use vtl::{Device, Fault};
use wire::Call;

const WRITE: u8 = 0x0A;

/// Files are written while drive 0 raises this flag. Both copies count; gives the volume that it had.
fn written_with(bed: &Bed, flag: u8) -> Volume {
    let raised = Box::new(Fault::Alert { drive: 0, flag });
    let device = Device::Drive(0);
    bed.node.virtual_library().inject(Fault::At { device, opcode: WRITE, nth: 1, then: raised });
    let data = pattern(300_000, 2);
    let ino = bed.write("f", &data);
    let request = bed.begin(Call::Migrate(bed.one("/f"))).request.id;
    assert_eq!(bed.wait(request).state, RequestState::Done, "{:?}", bed.status());
    let mut volume = None;
    bed.until("drive 0 has a volume", |bed| {
        volume = volume.take().or_else(|| bed.drives()[0].volume.clone());
        volume.is_some() || bed.drives()[0].status == DriveStatus::Free
    });
    bed.until("the drives are empty", |bed| bed.drives().iter().all(|d| d.volume.is_none()));
    bed.purge("/f");
    assert!(bed.read(ino) == data);
    let volume = volume.or_else(|| bed.volumes_of("/f").into_iter().next());
    bed.volume(&volume.unwrap())
}

fn suspect(bed: &Bed) -> Vec<String> {
    let why = |d: DriveView| match d.status {
        DriveStatus::Suspect(why) => Some(why),
        _ => None,
    };
    bed.drives().into_iter().filter_map(why).collect()
}

fn bed() -> Bed {
    Bed::in_memory(|c| {
        (c.library.import_export, c.library.slots) = (2, 12);
        (c.tape.drive_retry_s, c.tape.idle_unmount_s) = (600, 2);
    })
}

#[test]
fn what_a_drive_says_of_the_cartridge_makes_the_volume_suspect() {
    for flag in [4, 7, 19, 51] {
        let bed = bed();
        let volume = written_with(&bed, flag);
        assert_eq!(volume.state, VolumeState::Suspect, "{flag}: {:?}", bed.status());
        assert!(volume.reason.starts_with("TC-M040: ") && volume.reason.contains(&format!("[{flag}]")));
        assert!(bed.status().warnings.iter().any(|w| w == &volume.reason), "{:?}", bed.status());
        assert!(suspect(&bed).is_empty(), "the drive is not at fault: {:?}", bed.drives());
        bed.node.stop(true);
    }
}

#[test]
fn what_a_drive_says_of_itself_makes_the_drive_suspect() {
    let bed = bed();
    let volume = written_with(&bed, 31);
    assert_eq!(volume.state, VolumeState::Filling, "the volume is not at fault");
    let [why] = &suspect(&bed)[..] else { panic!("{:?}", bed.drives()) };
    assert!(why.starts_with("TC-D041: ") && why.contains("[31]"), "{why}");
}

#[test]
fn a_drive_that_asks_for_cleaning_in_the_middle_of_its_work_is_cleaned() {
    let bed = bed();
    bed.node.virtual_library().create_cleaning_cartridge("CLN001L9", 10).unwrap();
    bed.node.virtual_library().insert("CLN001L9").unwrap();
    bed.call(Call::ImportCartridges(Vec::new()));
    let volume = written_with(&bed, 20);
    bed.until("the drive was cleaned", |bed| {
        std::fs::read_to_string(bed.dir.path().join("cleaning"))
            .is_ok_and(|kept| kept.ends_with("\nCLN001L9 1 good\n"))
    });
    assert_eq!(volume.state, VolumeState::Filling);
    assert!(suspect(&bed).is_empty(), "{:?}", bed.drives());
}

#[test]
fn what_says_nothing_of_their_health_changes_nothing() {
    for flag in [9, 12, 50] {
        let bed = bed();
        let volume = written_with(&bed, flag);
        assert_eq!((volume.state, volume.errors), (VolumeState::Filling, 0), "{flag}");
        assert!(suspect(&bed).is_empty(), "{flag}: {:?}", bed.drives());
        bed.node.stop(true);
    }
}
