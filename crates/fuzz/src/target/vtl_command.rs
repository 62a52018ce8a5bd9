//! Whatever an initiator sends to the drive or the changer of the virtual library, it gets a SCSI status, sense that can
//! be understood, and no more data than it has room for.

use super::bench::{Bench, config};
use crate::input::{Input, piece};
use scsi::mode::PartitionPage;
use scsi::{
    Attribute, CHECK_CONDITION, Data, FormatKind, GOOD, Reply, Sense, Smc, Ssc, Transport, TransportError,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vtl::{Library, VtlConfig};

/// What is in the buffer before the device fills it.
const UNTOUCHED: u8 = 0xA5;
/// Commands of one run.
const MOST: usize = 64;

const CHANGER: u8 = 0x01;
const OTHER_HOST: u8 = 0x02;
const OUT: u8 = 0x04;
const EVENT: u8 = 0x80;

pub(super) fn run(bytes: &[u8]) {
    let bench = Bench::new();
    let mut input = Input::new(bytes);
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let flags = input.u8();
        if flags & EVENT != 0 {
            event(&bench.library, flags);
            continue;
        }
        let host = u32::from(flags & OTHER_HOST != 0);
        let mut unit = if flags & CHANGER != 0 {
            bench.library.changer_as(host)
        } else {
            bench.library.drive_as(0, host)
        };
        let length = usize::from(input.u8() % 17);
        let mut cdb = input.take(length).to_vec();
        bounded(&mut cdb);
        if flags & OUT != 0 {
            let out = input.piece();
            answered(&cdb, unit.execute(&cdb, Data::Out(out), Duration::MAX), out.len());
        } else {
            fetch(&mut unit, &cdb, input.u16().into());
        }
    }
    drop(bench.library);
    let reopened = Library::open(VtlConfig { cartridges: 1, ..config(bench.dir.path()) });
    assert!(reopened.is_ok(), "what commands left behind cannot be opened: {:?}", reopened.err());
}

/// An initiator may ask for sixteen million filemarks, and gets them one by one: that is slow, not wrong.
fn bounded(cdb: &mut [u8]) {
    if cdb.first() == Some(&0x10) {
        cdb.iter_mut().skip(2).take(2).for_each(|byte| *byte = 0);
    }
}

fn event(library: &Library, flags: u8) {
    match flags & 3 {
        0 => library.power_cycle().expect("the cartridge is as the drive left it"),
        1 => library.reset_drive(0),
        _ => _ = library.stats(0),
    }
}

fn fetch(unit: &mut impl Transport, cdb: &[u8], room: usize) {
    let mut buffer = vec![UNTOUCHED; room];
    let data = if room == 0 { Data::None } else { Data::In(&mut buffer) };
    let result = unit.execute(cdb, data, Duration::MAX);
    let filled = answered(cdb, result, room);
    assert!(buffer[filled..].iter().all(|b| *b == UNTOUCHED), "{cdb:02x?} wrote behind its {filled} bytes");
}

/// Bytes transferred by a right answer.
fn answered(cdb: &[u8], result: Result<Reply, TransportError>, room: usize) -> usize {
    let reply = result.expect("the drive answers");
    match reply.status {
        CHECK_CONDITION => {
            let sense = Sense::decode(&reply.sense);
            assert!(sense.is_some(), "{cdb:02x?}: sense {:02x?}", reply.sense);
        }
        GOOD | 0x18 => assert!(reply.sense.is_empty(), "{cdb:02x?}: sense with status {}", reply.status),
        other => panic!("{cdb:02x?}: status {other:02x}"),
    }
    assert!(reply.transferred <= room, "{cdb:02x?}: {} of {room} bytes", reply.transferred);
    reply.transferred
}

/// Writes down what an initiator sends.
struct Recorder<T> {
    inner: T,
    flags: u8,
    record: Arc<Mutex<Vec<u8>>>,
}

impl<T: Transport> Transport for Recorder<T> {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, limit: Duration) -> Result<Reply, TransportError> {
        let (flags, tail) = match &data {
            Data::Out(bytes) => (self.flags | OUT, piece(bytes)),
            Data::In(room) => (self.flags, (room.len().min(0xFFFF) as u16).to_be_bytes().to_vec()),
            Data::None | Data::There(_) | Data::Keep(_) => (self.flags, vec![0, 0]),
        };
        let mut record = self.record.lock().expect("nobody else has it");
        record.extend([&[flags, cdb.len() as u8], cdb, &tail].concat());
        drop(record);
        self.inner.execute(cdb, data, limit)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let sessions: [fn(&mut Ssc); 4] = [labels, pages, positions, attributes];
    let mut seeds: Vec<_> = sessions.iter().map(|session| recorded(*session)).collect();
    let bench = Bench::new();
    let record = Arc::new(Mutex::new(Vec::new()));
    let inner = bench.library.changer();
    let mut changer = Smc::new(Box::new(Recorder { inner, flags: CHANGER, record: record.clone() }));
    let _ = (changer.test_unit_ready(), changer.read_all_elements(), changer.inquiry());
    let _ =
        (changer.move_medium(1, 1002), changer.exchange_medium(1002, 1, 1), changer.position_to_element(1));
    let reserve = [0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let key = [0u8; 8].into_iter().chain([1; 8]).chain([0; 8]).collect::<Vec<_>>();
    let _ = changer.transport().execute(&reserve, Data::Out(&key), Duration::MAX);
    seeds.push(record.lock().expect("nobody else has it").clone());
    seeds
}

fn recorded(session: fn(&mut Ssc)) -> Vec<u8> {
    let bench = Bench::new();
    let record = Arc::new(Mutex::new(Vec::new()));
    let inner = bench.library.drive(0);
    let mut drive = Ssc::new(Box::new(Recorder { inner, flags: 0, record: record.clone() }));
    while drive.test_unit_ready().is_err() {}
    session(&mut drive);
    record.lock().expect("nobody else has it").clone()
}

fn labels(drive: &mut Ssc) {
    if let Ok(page) = drive.partition_page() {
        let flags = PartitionPage::IDP | PartitionPage::PSUM_POWER | PartitionPage::POFM;
        let page = PartitionPage { additional: 1, flags, units: 6, sizes: vec![1, 0xFFFF], ..page };
        let _ = (drive.set_partition_page(&page), drive.format_medium(FormatKind::Partition));
    }
    let _ = (drive.write(b"VOL1"), drive.write_filemarks(1, true), drive.write(b"<label>"), drive.rewind());
    let _ =
        (drive.read(&mut [0; 64]), drive.read(&mut [0; 64]), drive.erase(false), drive.set_capacity(0x8000));
}

fn pages(drive: &mut Ssc) {
    let _ = (drive.inquiry(), drive.unit_serial(), drive.designators(), drive.read_block_limits());
    let _ = (drive.set_variable_blocks(), drive.set_compression(true), drive.report_density(true));
    let _ = (drive.tape_alerts(), drive.volume_statistics(), drive.capacity(), drive.request_sense());
    let _ = (drive.prevent_removal(true), drive.unload(), drive.load());
}

fn positions(drive: &mut Ssc) {
    for n in 0..5u8 {
        let _ = (drive.write(&[n; 40]), drive.write_filemarks(1, n % 2 == 0), drive.read_position());
    }
    let _ =
        (drive.locate(0, 3), drive.space_blocks(-2), drive.space_filemarks(2), drive.space_to_end_of_data());
    let _ =
        (drive.read(&mut [0; 8]), drive.locate(0, 0), drive.read(&mut [0; 8]), drive.allow_overwrite(0, 1));
}

fn attributes(drive: &mut Ssc) {
    let list = [Attribute::binary(0x080C, [7; 70]), Attribute::ascii(0x0806, "TC0001L9", 32)];
    let _ = (drive.write_attributes(0, &list), drive.read_attributes(0), drive.read_attribute(0, 0x080C));
    let _ = drive.write_attributes(0, &[Attribute::binary(0x080C, [])]);
}
