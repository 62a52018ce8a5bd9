//! Faults that tests and the simulator put into a library. Not reachable from any configuration or socket.

use parking_lot::Mutex;
use scsi::Sense;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Drive, from 0.
    Drive(u16),
    /// The robot.
    Changer,
}

/// Something that the library does with the files of a cartridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOp {
    /// Write a record (half of it gets there).
    Write,
    /// Bring records to stable storage.
    Sync,
    /// Bring the directory with its names to stable storage.
    SyncNames,
    /// Read a record.
    Read,
    /// Write to the cartridge's chip.
    Chip,
}

/// Something that goes wrong until [`crate::Library::clear_faults`] is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `then` begins just before this device gets its `nth` command (from 1, from now on) with this operation code.
    At {
        /// Device.
        device: Device,
        /// Operation code.
        opcode: u8,
        /// Which of them.
        nth: u32,
        /// What begins then.
        then: Box<Fault>,
    },
    /// Once: the next command with this operation code is answered with this sense and not carried out.
    Answer {
        /// Device.
        device: Device,
        /// Operation code.
        opcode: u8,
        /// The answer.
        sense: Sense,
    },
    /// Once: the drive is reset. What it had in its buffer reaches the medium; its position is lost (6/29/00).
    Reset {
        /// Drive, from 0.
        drive: u16,
    },
    /// Once: the drive loses power and gets it back. What was in its buffer is lost (6/29/01).
    PowerLoss {
        /// Drive, from 0.
        drive: u16,
    },
    /// Once: the drive raises this TapeAlert flag (1 to 64), until it is asked for or loads the next cartridge.
    Alert {
        /// Drive, from 0.
        drive: u16,
        /// Flag.
        flag: u8,
    },
    /// Once: the whole library loses power and gets it back, all drives included.
    PowerCut,
    /// The host's file system fails for a cartridge's files: 4/03/00 when writing (deferred if it was only in the
    /// buffer), 3/11/00 when reading.
    HostError {
        /// Cartridge.
        barcode: String,
        /// What fails.
        op: HostOp,
        /// Error number of the host (`errno`).
        errno: i32,
    },
    /// Reading this object of a cartridge gives a medium error (3/11/00).
    ReadError {
        /// Cartridge.
        barcode: String,
        /// Partition.
        partition: u8,
        /// Object number.
        block: u64,
    },
    /// Writing this object gives a medium error (3/0C/00): at once when unbuffered, as a deferred error on the next
    /// command when buffered. The object and all after it are not written.
    WriteError {
        /// Cartridge.
        barcode: String,
        /// Partition.
        partition: u8,
        /// Object number.
        block: u64,
    },
    /// The way to a drive changes a bit in every record that it carries, to the drive and from it. Only logical block
    /// protection notices (4/10/01 when writing).
    Garbled {
        /// Drive, from 0.
        drive: u16,
    },
    /// A cartridge ends early: its data partition holds only this many bytes.
    EarlyEnd {
        /// Cartridge.
        barcode: String,
        /// Bytes of record data that fit.
        bytes: u64,
    },
    /// A drive is dead; the cartridge in it cannot be taken out.
    DriveDead {
        /// Drive, from 0.
        drive: u16,
        /// True: answers every command with a hardware error (4/44/00). False: does not answer at all.
        answers: bool,
    },
    /// The robot is stuck: every move fails with 4/15/01 and moves nothing.
    RobotStuck,
    /// Moving a cartridge with this barcode really moves another one; only its label on the tape tells.
    WrongCartridge {
        /// What the library reports.
        barcode: String,
        /// What it really is.
        actual: String,
    },
    /// The barcode reader cannot read this label: the element is full without a volume tag.
    UnreadableBarcode {
        /// Cartridge.
        barcode: String,
    },
}

/// All faults in force.
#[derive(Default)]
pub(crate) struct Faults {
    any: AtomicBool,
    list: Mutex<Vec<Fault>>,
}

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        self.list.lock().push(fault);
        self.any.store(true, Ordering::Release);
    }

    /// A device gets a command: faults that wait for it begin. Returns those that happen once, at this moment.
    pub(crate) fn arrive(&self, to: Device, op: u8) -> Vec<Fault> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut list = self.list.lock();
        let mut begun = Vec::new();
        list.retain_mut(|fault| match fault {
            Fault::At { device, opcode, nth, then } if *device == to && *opcode == op => {
                *nth = nth.saturating_sub(1);
                if *nth == 0 {
                    begun.push(*then.clone());
                }
                *nth > 0
            }
            _ => true,
        });
        list.extend(begun);
        list.extract_if(.., |f| {
            matches!(f, Fault::Reset { .. } | Fault::PowerLoss { .. } | Fault::PowerCut | Fault::Alert { .. })
        })
        .collect()
    }

    /// What a device answers to this command instead of carrying it out, once.
    pub(crate) fn answer(&self, to: Device, op: u8) -> Option<Sense> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut list = self.list.lock();
        let at = list.iter().position(
            |f| matches!(f, Fault::Answer { device, opcode, .. } if *device == to && *opcode == op),
        )?;
        match list.remove(at) {
            Fault::Answer { sense, .. } => Some(sense),
            _ => None,
        }
    }

    /// Error number that the host gives for this, if any.
    pub(crate) fn host_error(&self, on: &str, what: HostOp) -> Option<i32> {
        self.find(|f| match f {
            Fault::HostError { barcode, op, errno } if barcode == on && *op == what => Some(*errno),
            _ => None,
        })
    }

    pub(crate) fn clear(&self) {
        self.any.store(false, Ordering::Release);
        self.list.lock().clear();
    }

    pub(crate) fn find<T>(&self, pick: impl FnMut(&Fault) -> Option<T>) -> Option<T> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.list.lock().iter().find_map(pick)
    }

    pub(crate) fn read_error(&self, on: &str, at: (u8, u64)) -> bool {
        let hit = |f: &Fault| match f {
            Fault::ReadError { barcode, partition, block } if barcode == on && (*partition, *block) == at => {
                Some(())
            }
            _ => None,
        };
        self.find(hit).is_some()
    }

    pub(crate) fn write_error(&self, on: &str, at: (u8, u64)) -> bool {
        let hit = |f: &Fault| match f {
            Fault::WriteError { barcode, partition, block }
                if barcode == on && (*partition, *block) == at =>
            {
                Some(())
            }
            _ => None,
        };
        self.find(hit).is_some()
    }

    pub(crate) fn garbled(&self, number: u16) -> bool {
        self.find(|f| (*f == Fault::Garbled { drive: number }).then_some(())).is_some()
    }

    pub(crate) fn early_end(&self, on: &str) -> Option<u64> {
        self.find(|f| match f {
            Fault::EarlyEnd { barcode, bytes } if barcode == on => Some(*bytes),
            _ => None,
        })
    }

    /// Some(answers) when the drive is dead.
    pub(crate) fn drive_dead(&self, number: u16) -> Option<bool> {
        self.find(|f| match f {
            Fault::DriveDead { drive, answers } if *drive == number => Some(*answers),
            _ => None,
        })
    }

    pub(crate) fn robot_stuck(&self) -> bool {
        self.find(|f| (*f == Fault::RobotStuck).then_some(())).is_some()
    }

    pub(crate) fn actual(&self, on: &str) -> Option<String> {
        self.find(|f| match f {
            Fault::WrongCartridge { barcode, actual } if barcode == on => Some(actual.clone()),
            _ => None,
        })
    }

    pub(crate) fn unreadable(&self, on: &str) -> bool {
        let hit = |f: &Fault| match f {
            Fault::UnreadableBarcode { barcode } if barcode == on => Some(()),
            _ => None,
        };
        self.find(hit).is_some()
    }
}
