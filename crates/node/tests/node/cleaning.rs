//! Drives that ask to be cleaned are, by themselves, with the cleaning cartridges of the library.

use crate::support::{Bed, pattern};
use types::*;
use wire::{Call, Reply};

const CLEANER: &str = "CLN001L9";

fn bed(uses: Option<u64>) -> Bed {
    let bed = Bed::with(|c| {
        (c.library.import_export, c.library.slots) = (2, 12);
        c.tape.drive_retry_s = 1;
    });
    if let Some(uses) = uses {
        put_in(&bed, CLEANER, uses);
    }
    bed
}

fn put_in(bed: &Bed, barcode: &str, uses: u64) {
    bed.node.virtual_library().create_cleaning_cartridge(barcode, uses).unwrap();
    bed.node.virtual_library().insert(barcode).unwrap();
    bed.call(Call::ImportCartridges(Vec::new()));
}

fn soil(bed: &Bed) {
    (0..2).for_each(|n| bed.node.virtual_library().soil(n));
}

fn soiled(bed: &Bed) -> usize {
    (0..2).filter(|n| bed.node.virtual_library().soiled(*n)).count()
}

fn kind_of(bed: &Bed, barcode: &str) -> Option<ElementKind> {
    let Reply::Library(mut views) = bed.call(Call::Library) else { panic!("no library") };
    let view = views.remove(0);
    view.elements.iter().find(|e| e.barcode == Some(Barcode::from(barcode))).map(|e| e.kind)
}

fn migrate(bed: &Bed, name: &str) {
    bed.write(name, &pattern(100_000, 1));
    let request = bed.begin(Call::Migrate(bed.one(&format!("/{name}")))).request.id;
    assert_eq!(bed.wait(request).state, RequestState::Done, "{:?}", bed.status());
}

fn none_is_suspect(bed: &Bed) -> bool {
    bed.drives().iter().all(|d| !matches!(d.status, DriveStatus::Suspect(_)))
}

#[test]
fn drives_that_ask_for_it_are_cleaned_and_work_goes_on() {
    let bed = bed(Some(10));
    soil(&bed);
    migrate(&bed, "f");
    bed.until("both are clean", |bed| soiled(bed) == 0);
    bed.until("the cartridge is put away", |bed| kind_of(bed, CLEANER) == Some(ElementKind::Slot));
    assert!(none_is_suspect(&bed), "{:?}", bed.drives());
    migrate(&bed, "g");
    assert!(bed.volumes().iter().all(|v| v.barcode.as_str() != CLEANER && v.state != VolumeState::Suspect));
}

#[test]
fn a_cleaning_cartridge_that_is_used_up_is_named_and_another_is_taken() {
    let bed = bed(Some(1));
    soil(&bed);
    bed.write("f", &pattern(100_000, 1));
    let request = bed.begin(Call::Migrate(bed.one("/f"))).request.id;
    bed.until("it is used up", |bed| {
        bed.status().warnings.iter().any(|w| w.contains("CLN001L9 is used up (TapeAlert 22)"))
    });
    bed.until("it is put away", |bed| kind_of(bed, CLEANER) == Some(ElementKind::Slot));
    assert_eq!(soiled(&bed), 1, "it was good for one");
    put_in(&bed, "CLN002L9", 5);
    bed.until("the other is cleaned with the other", |bed| soiled(bed) == 0);
    assert_eq!(bed.wait(request).state, RequestState::Done);
}

#[test]
fn without_a_cleaning_cartridge_somebody_is_told() {
    let bed = bed(None);
    soil(&bed);
    bed.write("f", &pattern(100_000, 1));
    let request = bed.begin(Call::Migrate(bed.one("/f"))).request.id;
    bed.until("it is asked for", |bed| {
        bed.status()
            .warnings
            .iter()
            .any(|w| w.contains("asks to be cleaned, and no usable cleaning cartridge"))
    });
    put_in(&bed, CLEANER, 5);
    for drive in 0..2 {
        // One that was written off meanwhile is taken into use again by an operator.
        bed.call(Call::SetDrive { drive: DriveNo(drive), up: true });
    }
    bed.until("both are clean", |bed| soiled(bed) == 0);
    assert_eq!(bed.wait(request).state, RequestState::Done);
    assert!(none_is_suspect(&bed), "{:?}", bed.drives());
}

#[test]
fn a_drive_that_asks_in_the_middle_of_its_work_loses_nothing_and_is_cleaned_next() {
    let bed = bed(Some(10));
    migrate(&bed, "f");
    (0..2).for_each(|n| bed.node.virtual_library().request_cleaning(n));
    let data = pattern(300_000, 2);
    let ino = bed.write("g", &data);
    let request = bed.begin(Call::Migrate(bed.one("/g"))).request.id;
    assert_eq!(bed.wait(request).state, RequestState::Done);
    bed.until("both are clean", |bed| soiled(bed) == 0);
    assert!(none_is_suspect(&bed) && bed.drives().iter().all(|d| d.errors == 0), "{:?}", bed.drives());
    bed.purge("/g");
    assert!(bed.read(ino) == data);
    let kept = std::fs::read_to_string(bed.dir.path().join("cleaning")).unwrap();
    assert!(kept.ends_with("\nCLN001L9 2 good\n"), "{kept:?}");
}
