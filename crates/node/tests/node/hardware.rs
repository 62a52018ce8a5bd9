//! Every fault of the hardware at every moment of a file's way to tape and back: nothing counts that is not on the
//! medium, every file is readable, whoever is at fault is named, and work goes on once the fault is gone.

use crate::support::medium::counted_copies_are_there;
use crate::support::{Bed, Running, pattern};
use node::{Node, Size};
use scsi::opcode as op;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::*;
use vtl::{Device, Fault, HostOp};
use wire::Call;

const BARCODES: u32 = 4;
/// How long a fault lasts that does not go away by itself, once it has begun.
const LASTS: Duration = Duration::from_millis(1200);

struct Files(Vec<(Ino, String, Vec<u8>)>);

impl Files {
    fn write(bed: &Bed) -> Self {
        let one = |n: u64| {
            let (name, data) = (format!("f{n}"), pattern(150_000 * n as usize + 10, n));
            (bed.write(&name, &data), format!("/{name}"), data)
        };
        Self((1..6).map(one).collect())
    }

    /// Whatever counts is on the medium; what is not on disk counts everywhere.
    fn are_safe(&self, bed: &Bed) {
        for (_, path, data) in &self.0 {
            // In this order: copies only become more.
            let resident = bed.stat(path).file.unwrap().object.is_some();
            let counted = counted_copies_are_there(bed, path, data);
            assert!(resident || counted == 2, "{path} left the disk with {counted} copies");
        }
    }

    fn are_right(&self, bed: &Bed) {
        for (ino, path, data) in &self.0 {
            assert!(bed.read(*ino) == *data, "{path} is not what was written");
        }
    }
}

fn bed() -> Bed {
    Bed::in_memory(|c| {
        c.library.cartridges = BARCODES as u16;
        c.library.cartridge_capacity = Size::mib(24);
        c.tape.block_size = Size(64 << 10);
        c.tape.idle_unmount_s = 0;
        c.tape.drive_retry_s = 1;
        c.tape.flush_files = 2;
    })
}

fn barcode(n: u32) -> String {
    format!("TC{n:04}L9")
}

/// Every cartridge has it: whichever is in use.
fn everywhere(fault: impl Fn(String) -> Fault) -> Vec<Fault> {
    (1..=BARCODES).map(|n| fault(barcode(n))).collect()
}

fn at(device: Device, opcode: u8, nth: u32, then: Fault) -> Fault {
    Fault::At { device, opcode, nth, then: Box::new(then) }
}

fn inject(bed: &Bed, faults: Vec<Fault>) {
    faults.into_iter().for_each(|f| bed.node.virtual_library().inject(f));
}

/// Whether anything was said about hardware.
fn named(bed: &Bed) -> bool {
    !bed.status().warnings.is_empty() || bed.drives().iter().any(|d| d.errors > 0)
}

/// Lets a request run into a fault for a while, then mends everything; the request must end well.
fn through(bed: &Bed, files: &Files, request: RequestId, what: &str) {
    let begun = Instant::now();
    while begun.elapsed() < LASTS && bed.request(request).request.finished.is_none() {
        files.are_safe(bed);
        std::thread::sleep(Duration::from_millis(50));
    }
    let troubled = bed.drives().iter().any(|d| d.errors > 0);
    assert!(!troubled || named(bed), "{what}: nobody is named");
    bed.node.virtual_library().clear_faults();
    let ended = bed.wait(request);
    assert_eq!(ended.state, RequestState::Done, "{what}: {ended:?} {:?}", bed.status());
    files.are_safe(bed);
}

fn migrate_through(what: &str, faults: Vec<Fault>) {
    let bed = bed();
    inject(&bed, faults);
    let files = Files::write(&bed);
    let request = bed.begin(Call::Migrate(bed.all())).request.id;
    through(&bed, &files, request, what);
    afterwards(&bed, &files, what);
}

fn recall_through(what: &str, faults: Vec<Fault>) {
    let bed = bed();
    let files = Files::write(&bed);
    bed.migrate_and_purge();
    bed.until("the drives are empty", |b| b.drives().iter().all(|d| d.status == DriveStatus::Free));
    inject(&bed, faults);
    for (ino, path, data) in &files.0 {
        match bed.try_read(*ino) {
            Ok(read) => assert!(read == *data, "{what}: {path} is not what was written"),
            Err(e) => assert!(e == FsError::Io && named(&bed), "{what}: {path}: {e}"),
        }
    }
    bed.node.virtual_library().clear_faults();
    bed.until("drives are in use", |b| {
        b.drives().iter().all(|d| !matches!(d.status, DriveStatus::Suspect(_)))
    });
    files.are_right(&bed);
    afterwards(&bed, &files, what);
}

/// All copies are there, come back, and a restart finds everything in order.
fn afterwards(bed: &Bed, files: &Files, what: &str) {
    bed.settle();
    bed.until("drives are in use", |b| {
        b.drives().iter().all(|d| !matches!(d.status, DriveStatus::Suspect(_)))
    });
    for (_, path, data) in &files.0 {
        assert_eq!(counted_copies_are_there(bed, path, data), 2, "{what}");
    }
    let purged = bed.act(Call::Purge(bed.all()));
    assert_eq!(purged.state, RequestState::Done, "{what}: {:?}", bed.items(purged.id));
    files.are_safe(bed);
    files.are_right(bed);
    let serious: Vec<Finding> = bed.check(false).findings.into_iter().filter(|f| f.is_serious()).collect();
    assert_eq!(serious, [], "{what}");
    bed.node.stop(true);
}

/// Commands of a drive on a file's way to tape, with some places in their sequence: labels, data, indexes.
const WAY_TO_TAPE: &[(u8, &[u32])] = &[
    (op::TEST_UNIT_READY, &[2]),
    (op::FORMAT_MEDIUM, &[1]),
    (op::WRITE_6, &[1, 6, 9, 14]),
    (op::WRITE_FILEMARKS_6, &[1, 6, 9]),
    (op::WRITE_ATTRIBUTE, &[2, 8]),
    (op::LOAD_UNLOAD, &[1]),
];
const WAY_BACK: &[(u8, &[u32])] = &[
    (op::TEST_UNIT_READY, &[1]),
    (op::READ_ATTRIBUTE, &[1]),
    (op::LOCATE_16, &[1, 3]),
    (op::READ_6, &[2, 8]),
];

fn along(way: &[(u8, &[u32])], run: impl Fn(&str, Vec<Fault>), fault: Fault) {
    for (opcode, nth) in way.iter().flat_map(|(opcode, places)| places.iter().map(|nth| (*opcode, *nth))) {
        let what = format!("{fault:?} at command {opcode:#x} number {nth}");
        run(&what, vec![at(Device::Drive(0), opcode, nth, fault.clone())]);
    }
}

#[test]
fn a_drive_dies_on_the_way_to_tape() {
    along(WAY_TO_TAPE, migrate_through, Fault::DriveDead { drive: 0, answers: true });
    migrate_through(
        "silent",
        vec![at(Device::Drive(0), op::WRITE_6, 9, Fault::DriveDead { drive: 0, answers: false })],
    );
}

#[test]
fn a_drive_is_reset_on_the_way_to_tape() {
    along(WAY_TO_TAPE, migrate_through, Fault::Reset { drive: 0 });
}

#[test]
fn a_drive_loses_power_on_the_way_to_tape() {
    along(WAY_TO_TAPE, migrate_through, Fault::PowerLoss { drive: 0 });
}

#[test]
fn the_library_loses_power_on_the_way_to_tape() {
    along(WAY_TO_TAPE, migrate_through, Fault::PowerCut);
}

#[test]
fn a_drive_dies_on_the_way_back() {
    along(WAY_BACK, recall_through, Fault::DriveDead { drive: 0, answers: true });
}

#[test]
fn a_drive_is_reset_or_loses_power_on_the_way_back() {
    along(WAY_BACK, recall_through, Fault::Reset { drive: 0 });
    along(&WAY_BACK[2..], recall_through, Fault::PowerLoss { drive: 0 });
    along(&WAY_BACK[3..], recall_through, Fault::PowerCut);
}

#[test]
fn the_robot_gets_stuck() {
    for nth in [1, 2, 3, 4] {
        let stuck = || vec![at(Device::Changer, op::MOVE_MEDIUM, nth, Fault::RobotStuck)];
        migrate_through(&format!("stuck at move {nth}"), stuck());
    }
    recall_through("power is cut", vec![at(Device::Changer, op::MOVE_MEDIUM, 1, Fault::PowerCut)]);
}

#[test]
fn the_hosts_file_system_fails_below_the_cartridges() {
    let host = |op, errno| everywhere(|barcode| Fault::HostError { barcode, op, errno });
    for (what, opcode, nth, faults) in [
        ("full while labelling", op::WRITE_6, 2, host(HostOp::Write, 28)),
        ("full while writing", op::WRITE_6, 9, host(HostOp::Write, 28)),
        ("a sync fails", op::WRITE_6, 9, host(HostOp::Sync, 5)),
        ("a sync of names fails", op::WRITE_6, 9, host(HostOp::SyncNames, 5)),
        ("the chip cannot be written", op::WRITE_6, 9, host(HostOp::Chip, 28)),
    ] {
        let faults = faults.into_iter().map(|f| at(Device::Drive(0), opcode, nth, f)).collect();
        migrate_through(what, faults);
    }
}

/// Two volumes that are labelled and hold a file each: on each, a batch of two new files ends with the first WRITE
/// FILEMARKS and this record.
fn labelled_bed() -> (Bed, Vec<(Barcode, u64)>) {
    let bed = bed();
    bed.write("first", b"labels both volumes");
    bed.migrate_and_purge();
    bed.until_dismounted();
    let last_of_batch = |b: Barcode| {
        let records = (2 * BATCHED).div_ceil(64 << 10) as u64;
        let last = bed.volume(&b).append_block + records - 1;
        (b, last)
    };
    let volumes = bed.volumes_of("/first").into_iter().map(last_of_batch).collect();
    (bed, volumes)
}

/// Size of the files of a batch (bytes).
const BATCHED: usize = 150_010;

/// A batch of data counts only after its flush: the fault comes with the flush itself, when all has been written.
fn flush_through(what: &str, faults: impl Fn(&[(Barcode, u64)]) -> Vec<Fault>) {
    let (bed, volumes) = labelled_bed();
    let one = |n: u64| {
        let (name, data) = (format!("f{n}"), pattern(BATCHED, n));
        (bed.write(&name, &data), format!("/{name}"), data)
    };
    let files = Files((1..6).map(one).collect());
    inject(&bed, faults(&volumes));
    let request = bed.begin(Call::Migrate(bed.all())).request.id;
    bed.until("a drive fails", |b| b.drives().iter().any(|d| d.errors > 0));
    bed.begin(Call::Purge(bed.all()));
    through(&bed, &files, request, what);
    afterwards(&bed, &files, what);
}

#[test]
fn the_flush_that_ends_a_batch_of_data_fails() {
    let at_flush = |then: fn(u16) -> Fault, nth| {
        move |_: &[(Barcode, u64)]| {
            (0..2).map(|d| at(Device::Drive(d), op::WRITE_FILEMARKS_6, nth, then(d))).collect()
        }
    };
    for nth in [1, 2] {
        flush_through("a drive loses power", at_flush(|drive| Fault::PowerLoss { drive }, nth));
    }
    flush_through("the library loses power", at_flush(|_| Fault::PowerCut, 1));
    flush_through("the last record cannot be written", |volumes| {
        let bad = |(b, block): &(Barcode, u64)| Fault::WriteError {
            barcode: b.to_string(),
            partition: 1,
            block: *block,
        };
        volumes.iter().map(bad).collect()
    });
    for failing in [HostOp::Sync, HostOp::SyncNames] {
        flush_through("the host cannot sync", |volumes| {
            let on = |drive, (b, _): &(Barcode, u64)| {
                let then = Fault::HostError { barcode: b.to_string(), op: failing, errno: 5 };
                at(Device::Drive(drive), op::WRITE_FILEMARKS_6, 1, then)
            };
            volumes.iter().flat_map(|v| [on(0, v), on(1, v)]).collect()
        });
    }
}

#[test]
fn bad_spots_are_met_while_writing_and_reading() {
    for block in [1, 4, 9, 14] {
        let faults = vec![Fault::WriteError { barcode: barcode(1), partition: 1, block }];
        migrate_through(&format!("write error at block {block}"), faults);
    }
    for block in [2, 8] {
        let faults = vec![Fault::ReadError { barcode: barcode(1), partition: 1, block }];
        recall_through(&format!("read error at block {block}"), faults);
    }
    let unreadable = Fault::HostError { barcode: barcode(1), op: HostOp::Read, errno: 5 };
    recall_through("nothing of a cartridge can be read", vec![unreadable]);
}

#[test]
fn a_cartridge_ends_while_it_is_labelled() {
    migrate_through("while labelling", vec![Fault::EarlyEnd { barcode: barcode(1), bytes: 3_000 }]);
}

/// A label that is cut short is known as ours by what there is of it: it is written again, and the cartridge is not left
/// for somebody else's.
#[test]
fn labelling_that_is_cut_short_is_done_again_and_costs_no_cartridge() {
    for nth in 1..=8 {
        let bed = bed();
        let files = Files::write(&bed);
        let lose = |drive| at(Device::Drive(drive), op::WRITE_FILEMARKS_6, nth, Fault::PowerLoss { drive });
        inject(&bed, vec![lose(0), lose(1)]);
        bed.migrate_and_purge();
        files.are_safe(&bed);
        let states: Vec<VolumeState> =
            (1..=BARCODES).map(|n| bed.volume(&barcode(n).as_str().into()).state).collect();
        assert!(!states.contains(&VolumeState::Foreign), "filemark {nth}: {states:?}");
        bed.node.stop(true);
    }
}

/// Two cartridges have changed places without their barcodes: nothing is written to either, the data come from elsewhere.
#[test]
fn the_wrong_cartridge_is_in_the_slot() {
    let bed = bed();
    let files = Files::write(&bed);
    bed.migrate_and_purge();
    bed.until("the drives are empty", |b| b.drives().iter().all(|d| d.status == DriveStatus::Free));
    let first = bed.volumes_of("/f1").remove(0);
    let blank = barcode(BARCODES);
    for (barcode, actual) in [(first.to_string(), blank.clone()), (blank.clone(), first.to_string())] {
        bed.node.virtual_library().inject(Fault::WrongCartridge { barcode, actual });
    }
    files.are_right(&bed);
    bed.settle();
    let volume = bed.volume(&first);
    assert!(volume.state == VolumeState::Suspect && volume.reason.contains(first.as_str()), "{volume:?}");
    // The cartridge with data on it, offered as the blank one, is not labelled.
    let label =
        Call::Label { volumes: vec![Barcode::from(blank.as_str())], pool: None, force: false, key: None };
    let request = bed.act(label);
    assert_eq!(request.state, RequestState::Failed);
    assert!(request.message.contains(&blank), "{}", request.message);
    bed.until("the drives are empty", |b| b.drives().iter().all(|d| d.status == DriveStatus::Free));
    bed.node.virtual_library().clear_faults();
    for (_, path, data) in &files.0 {
        assert_eq!(counted_copies_are_there(&bed, path, data), 2);
    }
}

fn restart_with(bed: Bed, faults: Vec<Fault>) -> Bed {
    let config = bed.node.config().clone();
    bed.node.stop(false);
    drop(bed.node);
    let library: Arc<vtl::Library> = Node::open_library(&config).unwrap();
    faults.into_iter().for_each(|f| library.inject(f));
    Bed { dir: bed.dir, node: Running::with(config, library) }
}

/// A cartridge was left in a drive, and the library is not in order when the node starts.
#[test]
fn the_node_starts_with_faulty_hardware() {
    let all_unreadable = everywhere(|barcode| Fault::UnreadableBarcode { barcode });
    for (what, faults) in [
        ("a dead drive", vec![Fault::DriveDead { drive: 0, answers: false }]),
        ("a failing drive", vec![Fault::DriveDead { drive: 0, answers: true }]),
        ("a stuck robot", vec![Fault::RobotStuck]),
        ("unreadable barcodes", all_unreadable),
        ("a power cut", vec![at(Device::Changer, op::READ_ELEMENT_STATUS, 1, Fault::PowerCut)]),
    ] {
        let bed = Bed::in_memory(|c| {
            c.library.cartridges = BARCODES as u16;
            c.library.cartridge_capacity = Size::mib(24);
            c.tape.drive_retry_s = 1;
        });
        let files = Files::write(&bed);
        bed.migrate_and_purge();
        // Volumes stay in their drives.
        let bed = restart_with(bed, faults);
        for (ino, path, data) in &files.0 {
            match bed.try_read(*ino) {
                Ok(read) => assert!(read == *data, "{what}: {path}"),
                Err(e) => assert!(e == FsError::Io && named(&bed), "{what}: {path}: {e}"),
            }
        }
        bed.node.virtual_library().clear_faults();
        let bed = if what == "unreadable barcodes" { restart_with(bed, Vec::new()) } else { bed };
        bed.until("drives are in use", |b| {
            b.drives().iter().all(|d| !matches!(d.status, DriveStatus::Suspect(_)))
        });
        files.are_right(&bed);
        afterwards(&bed, &files, what);
    }
}
