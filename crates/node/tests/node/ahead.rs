//! The next cartridge is in another drive before the first one is full, and both are read at once.

use crate::support::{Bed, pattern};
use node::Size;
use std::time::Duration;
use types::*;
use wire::Call;

const MIB: u64 = 1 << 20;
const TIMES: u32 = 5;

/// Two drives of 20 MB/s with mechanics, a thousand times faster, and labelled cartridges of 48 MiB.
fn bed(mechanics: &str) -> Bed {
    let bed = Bed::in_memory(|c| {
        (c.library.cartridges, c.library.slots, c.library.drives) = (3, 4, 2);
        c.library.cartridge_capacity = Size(48 * MIB);
        (c.library.mechanics, c.library.speed) = (mechanics.into(), 1000.0);
        c.library.drive_rate = Size(20_000_000);
        c.classes[0].copies.truncate(1);
        c.tape.block_size = Size(64 << 10);
        c.tape.buffers = Size(MIB);
        c.tape.idle_unmount_s = 0;
    });
    let label = Call::Label { volumes: Vec::new(), pool: None, force: false, key: None };
    assert_eq!(bed.act(label).state, RequestState::Done);
    bed.until_dismounted();
    bed
}

fn is_open(bed: &Bed, id: RequestId) -> bool {
    matches!(bed.request(id).request.state, RequestState::Queued | RequestState::Active)
}

/// Writes a file to two cartridges; whether the second was brought while the first was written.
fn spanning(bed: &Bed, data: &[u8]) -> (Ino, bool) {
    let ino = bed.write("large", data);
    let id = bed.begin(Call::Migrate(bed.one("/large"))).request.id;
    let mut ahead = false;
    while is_open(bed, id) {
        let drives = bed.drives();
        let writes = drives.iter().filter(|d| d.status == DriveStatus::Migrating).count();
        let used = drives.iter().filter(|d| d.volume.is_some()).count();
        ahead |= bed.volumes().iter().all(|v| v.state != VolumeState::Full) && writes == 1 && used == 2;
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bed.request(id).request.state, RequestState::Done);
    assert_eq!(bed.volumes_of("/large").len(), 2, "it lies on two volumes");
    (ino, ahead)
}

#[test]
fn the_next_cartridge_is_mounted_before_the_first_is_full_and_both_are_read_at_once() {
    // What a machine that halts for a moment does not see it sees the next time.
    assert!((0..TIMES).any(|_| both_are_used_at_once()));
}

#[test]
fn the_rest_is_written_while_the_full_volume_gets_its_index() {
    assert!((0..TIMES).any(|_| one_writes_while_the_other_gets_its_index()));
}

/// Whether a drive was seen to write to the second volume before the first, which is full, had its index.
fn one_writes_while_the_other_gets_its_index() -> bool {
    let (bed, data) = (bed("lto9"), pattern(64 << 20, 3));
    // The index goes to the other end of the tape.
    let ino = bed.write("large", &data);
    let id = bed.begin(Call::Migrate(bed.one("/large"))).request.id;
    let mut seen = false;
    while is_open(&bed, id) {
        let full = bed.volumes().into_iter().find(|v| v.state == VolumeState::Full);
        let other = |d: &DriveView, full: &Volume| {
            d.status == DriveStatus::Migrating && d.volume.as_ref() != Some(&full.barcode)
        };
        if let Some(full) = full
            && full.indexed_to < full.append_block
        {
            let writes = bed.drives().iter().any(|d| other(d, &full));
            seen |= writes && bed.volume(&full.barcode).indexed_to < full.append_block;
        }
    }
    bed.purge("/large");
    assert!(bed.read(ino) == data);
    seen
}

/// Whether the second drive was seen to get its volume before the first was full, and both to read.
fn both_are_used_at_once() -> bool {
    let (bed, data) = (bed("lto9"), pattern(64 << 20, 1));
    let (ino, ahead) = spanning(&bed, &data);
    bed.purge("/large");
    bed.until_dismounted();
    let id = bed.begin(Call::Stage(bed.one("/large"))).request.id;
    let mut both = false;
    while is_open(&bed, id) {
        both |= bed.drives().iter().filter(|d| d.status == DriveStatus::Recalling).count() == 2;
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(bed.read(ino) == data);
    ahead && both
}

#[test]
fn where_an_exchange_costs_nothing_no_drive_is_taken_ahead() {
    let (bed, data) = (bed("none"), pattern(64 << 20, 2));
    assert!(!spanning(&bed, &data).1);
}
