//! The whole initiator, drive and changer, against a device that answers whatever it likes: every method comes back with
//! an answer or an error, and asks a bounded number of times.

use crate::input::{Input, piece};
use scsi::mode::PartitionPage;
use scsi::{
    Attribute, Data, ElementType, Range, ReadOutcome, Reply, Sense, SenseKey, Smc, Ssc, Transport,
    TransportError,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Commands that one method may need at most: 65,535 elements, each in a reply of its own, of four types.
const MOST_COMMANDS: u32 = 4 * 65_536 + 16;

/// Answers from the input: status, sense, data. Without input, GOOD and nothing.
struct Liar {
    script: Arc<Mutex<Vec<u8>>>,
    asked: u32,
}

impl Transport for Liar {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, _: Duration) -> Result<Reply, TransportError> {
        assert!((6..=16).contains(&cdb.len()), "a CDB of {} bytes", cdb.len());
        self.asked += 1;
        assert!(self.asked <= MOST_COMMANDS, "asked again and again");
        let mut script = self.script.lock().expect("nobody else has it");
        let mut input = Input::new(&script);
        if input.is_empty() {
            let device = "liar".to_owned();
            return Err(TransportError::Lost { device, detail: "the input is used up".to_owned() });
        }
        let choice = input.u8();
        let status = [0, 0, 0, 0, 2, 2, 8, choice][usize::from(choice & 7)];
        let sense = if status == 2 { input.piece().to_vec() } else { Vec::new() };
        let transferred = match data {
            Data::None | Data::There(_) | Data::Keep(_) => 0,
            Data::Out(bytes) => bytes.len(),
            Data::In(room) => {
                let bytes = input.piece();
                let length = bytes.len().min(room.len());
                room[..length].copy_from_slice(&bytes[..length]);
                if choice & 8 == 8 { room.len() } else { length }
            }
        };
        *script = input.rest().to_vec();
        Ok(Reply { status, transferred, sense })
    }

    fn name(&self) -> &str {
        "liar"
    }
}

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let method = input.u8();
    let script = Arc::new(Mutex::new(input.rest().to_vec()));
    let liar = || Box::new(Liar { script: script.clone(), asked: 0 });
    // the same method until the answers are used up, at most a few times
    for _ in 0..4 {
        if method < 0x80 {
            drive(&mut Ssc::new(liar()), method);
        } else {
            changer(&mut Smc::new(liar()), method);
        }
    }
}

fn drive(drive: &mut Ssc, method: u8) {
    match method % 24 {
        0 => read(drive),
        1 => _ = drive.read_block_limits(),
        2 => _ = drive.read_position(),
        3 => _ = drive.partition_page(),
        4 => _ = drive.set_compression(true),
        5 => _ = drive.set_variable_blocks(),
        6 => _ = drive.report_density(method & 0x40 != 0),
        7 => _ = drive.tape_alerts(),
        8 => _ = drive.volume_statistics(),
        9 => _ = drive.capacity(),
        10 => _ = drive.write_protected(),
        11 => _ = drive.inquiry(),
        12 => _ = drive.unit_serial(),
        13 => _ = drive.designators(),
        14 => _ = drive.read_attributes(0),
        15 => _ = drive.read_attribute(1, 0x080C),
        16 => _ = drive.request_sense(),
        17 => _ = drive.test_unit_ready(),
        18 => _ = drive.write(b"record"),
        19 => _ = drive.write_filemarks(1, false),
        20 => _ = drive.space_filemarks(-1),
        21 => _ = drive.locate(1, 7),
        22 => {
            let page = PartitionPage {
                max_additional: 1,
                additional: 1,
                flags: 0,
                recognition: 0,
                units: 9,
                sizes: vec![1],
            };
            let _ = drive.set_partition_page(&page);
        }
        _ => _ = drive.write_attributes(0, &[Attribute::binary(0x1623, [1])]),
    }
}

fn read(drive: &mut Ssc) {
    let mut room = [0; 512];
    match drive.read(&mut room) {
        Ok(ReadOutcome::Record { bytes }) => assert!(bytes <= room.len(), "a record beyond the buffer"),
        Ok(ReadOutcome::TooLong { length }) => assert!(length.is_none_or(|n| n > room.len() as u64)),
        _ => {}
    }
}

fn changer(changer: &mut Smc, method: u8) {
    match method % 6 {
        0 => {
            if let Ok(list) = changer.read_all_elements() {
                assert!(list.is_sorted_by_key(|e| e.address));
            }
        }
        1 => _ = changer.element_addresses(),
        2 => _ = changer.read_elements(ElementType::DataTransfer, Range { first: 1, count: 300 }),
        3 => _ = changer.read_elements(ElementType::Storage, Range { first: 1001, count: 700 }),
        4 => _ = changer.move_medium(1001, 1),
        _ => _ = changer.inquiry(),
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let good = |method: u8, data: &[u8]| [vec![method, 0], piece(data)].concat();
    let check = |method: u8, sense: Sense| [vec![method, 4], piece(&sense.encode()), piece(b"data")].concat();
    let mut short = Sense::new(SenseKey::NoSense, 0, 0);
    (short.ili, short.information) = (true, Some(100));
    let mut long = short;
    long.information = Some(-100);
    let mut mark = Sense::new(SenseKey::NoSense, 0, 1);
    mark.filemark = true;
    let element = [
        0x03, 0xE9, 0, 1, 0, 0, 0, 60, 2, 0x80, 0, 52, 0, 0, 0, 52, 0x03, 0xE9, 9, 0, 0, 0, 0, 0, 0, 0x80, 0,
        1,
    ];
    let element = [element.as_slice(), b"TC0001L9                        ", &[0; 8]].concat();
    vec![
        good(0, b"a record"),
        check(0, short),
        check(0, long),
        check(0, mark),
        check(0, Sense::new(SenseKey::BlankCheck, 0, 5)),
        good(2, &[0x80; 32]),
        good(11, &[1; 96]),
        good(14, &scsi::mam::encode_list(&[Attribute::binary(9, [1])])),
        good(0x80 + 4, &element),
        [good(0x80 + 1, &element), good(0, &element)[1..].to_vec()].concat(),
    ]
}
