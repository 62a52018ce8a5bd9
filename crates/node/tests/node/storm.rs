//! Random faults at random commands while files are written, migrated, purged and read: whatever happens, what counts is on
//! the medium, a read gives the right bytes or an error, and in the end everything is there.
//!
//! `THERMO_STORM_SEED=n` runs one seed, `THERMO_STORM_RUNS=n` that many from a seed of the clock, `THERMO_STORM_STEPS=n`
//! makes each longer.

use crate::support::medium::counted_copies_are_there;
use crate::support::{Bed, pattern};
use node::Size;
use scsi::opcode as op;
use std::time::{Duration, SystemTime};
use types::*;
use vtl::{Device, Fault, HostOp};
use wire::Call;

const CARTRIDGES: u16 = 8;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Random numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

struct Storm {
    bed: Bed,
    dice: Dice,
    files: Vec<(Ino, String, Vec<u8>)>,
    /// Cartridges that may still be spoilt for good.
    spoilable: u32,
    log: Vec<String>,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let bed = Bed::in_memory(|c| {
            c.library.cartridges = CARTRIDGES;
            c.library.cartridge_capacity = Size::mib(32);
            c.tape.block_size = Size(64 << 10);
            c.tape.idle_unmount_s = 0;
            c.tape.drive_retry_s = 1;
            c.tape.flush_files = 3;
        });
        Self { bed, dice: Dice(seed), files: Vec::new(), spoilable: 2, log: Vec::new() }
    }

    fn write(&mut self) {
        let n = self.files.len();
        let data = pattern(1 + self.dice.below(400_000) as usize, n as u64);
        let name = format!("f{n}");
        let ino = self.bed.write(&name, &data);
        self.files.push((ino, format!("/{name}"), data));
    }

    fn fault(&mut self) -> Fault {
        let drive = self.dice.below(2) as u16;
        let barcode = format!("TC{:04}L9", 1 + self.dice.below(u64::from(CARTRIDGES)));
        let op = [HostOp::Write, HostOp::Sync, HostOp::SyncNames, HostOp::Chip][self.dice.below(4) as usize];
        match self.dice.below(8) {
            0 => Fault::DriveDead { drive, answers: self.dice.below(2) == 0 },
            1 => Fault::Reset { drive },
            2 => Fault::PowerLoss { drive },
            3 => Fault::PowerCut,
            4 => Fault::RobotStuck,
            5 => Fault::HostError { barcode, op, errno: 28 },
            _ if self.spoilable == 0 => Fault::Reset { drive },
            6 => {
                self.spoilable -= 1;
                Fault::WriteError { barcode, partition: 1, block: self.dice.below(40) }
            }
            _ => {
                self.spoilable -= 1;
                Fault::ReadError { barcode, partition: 1, block: 4 + self.dice.below(36) }
            }
        }
    }

    fn inject(&mut self) {
        const OPCODES: [u8; 8] = [
            op::TEST_UNIT_READY,
            op::WRITE_6,
            op::WRITE_FILEMARKS_6,
            op::READ_6,
            op::LOCATE_16,
            op::READ_POSITION,
            op::WRITE_ATTRIBUTE,
            op::LOAD_UNLOAD,
        ];
        let then = Box::new(self.fault());
        let fault = match self.dice.below(5) {
            0 => Fault::At { device: Device::Changer, opcode: op::MOVE_MEDIUM, nth: 1, then },
            _ => Fault::At {
                device: Device::Drive(self.dice.below(2) as u16),
                opcode: OPCODES[self.dice.below(OPCODES.len() as u64) as usize],
                nth: 1 + self.dice.below(11) as u32,
                then,
            },
        };
        self.log.push(format!("{fault:?}"));
        self.bed.node.virtual_library().inject(fault);
    }

    fn read(&mut self) {
        let pick = self.dice.below(self.files.len().max(1) as u64) as usize;
        let Some((ino, path, data)) = self.files.get(pick) else { return };
        match self.bed.probe(*ino) {
            Ok(first) => assert!(first == data[..1], "{path}"),
            Err(e) => assert_eq!(e, FsError::Io, "{path}"),
        }
    }

    fn step(&mut self) {
        match self.dice.below(10) {
            0..3 => self.write(),
            3 => drop(self.bed.begin(Call::Migrate(self.bed.all()))),
            4 => drop(self.bed.begin(Call::Purge(self.bed.all()))),
            5 => drop(self.bed.begin(Call::Stage(self.bed.all()))),
            6 => {
                // A read waits for as long as the robot is stuck.
                self.bed.node.virtual_library().clear_faults();
                self.read();
            }
            7..9 => self.inject(),
            _ => std::thread::sleep(Duration::from_millis(self.dice.below(300))),
        }
    }

    fn what_counts_is_there(&self) {
        for (_, path, data) in &self.files {
            let resident = self.bed.stat(path).file.unwrap().object.is_some();
            let counted = counted_copies_are_there(&self.bed, path, data);
            assert!(resident || counted == 2, "{path} left the disk with {counted} copies");
        }
    }

    /// All faults are gone: everything gets its copies, leaves the disk, and comes back.
    fn calm(&mut self) {
        self.bed.node.virtual_library().clear_faults();
        self.bed.until("drives are in use", |b| {
            b.drives().iter().all(|d| !matches!(d.status, DriveStatus::Suspect(_)))
        });
        self.bed.settle();
        let migrated = self.bed.act(Call::Migrate(self.bed.all()));
        assert_eq!(migrated.state, RequestState::Done, "{:?}", self.bed.items(migrated.id));
        self.bed.settle();
        let purged = self.bed.act(Call::Purge(self.bed.all()));
        assert_eq!(purged.state, RequestState::Done, "{:?}", self.bed.items(purged.id));
        self.what_counts_is_there();
        for (ino, path, data) in &self.files {
            assert!(self.bed.read(*ino) == *data, "{path} is not what was written");
        }
        self.bed.settle();
        let serious: Vec<Finding> =
            self.bed.check(false).findings.into_iter().filter(|f| f.is_serious()).collect();
        assert_eq!(serious, []);
    }
}

fn run(seed: u64, steps: u64) {
    println!("THERMO_STORM_SEED={seed}");
    let mut storm = Storm::new(seed);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for n in 0..steps {
            storm.step();
            if n % 5 == 4 {
                storm.what_counts_is_there();
            }
        }
        storm.calm();
    }));
    if let Err(panic) = outcome {
        println!("seed {seed}: {}", storm.log.join("\n  "));
        std::panic::resume_unwind(panic);
    }
    storm.bed.node.stop(true);
}

#[test]
fn random_faults_lose_nothing() {
    let steps = number("THERMO_STORM_STEPS").unwrap_or(40);
    if let Some(seed) = number("THERMO_STORM_SEED") {
        return run(seed, steps);
    }
    let Some(runs) = number("THERMO_STORM_RUNS") else { return (1..=3).for_each(|seed| run(seed, steps)) };
    let first = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    (first..first + runs).for_each(|seed| run(seed, steps));
}
