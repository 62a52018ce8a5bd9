//! What goes wrong, when it begins, and when somebody has mended it.

use super::{Shape, hub::Hub};
use crate::dice::Dice;
use kv::CrashingEngine;
use parking_lot::Mutex;
use scsi::opcode as op;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vtl::{Device, Fault, HostOp, Library};

/// Something that waits for its moment.
#[derive(Clone, Debug)]
struct Armed {
    device: Device,
    opcode: u8,
    nth: u32,
    then: Strike,
    /// From its beginning until it is mended; None: it stays.
    lasts: Option<Duration>,
}

#[derive(Clone, Debug)]
enum Strike {
    Fault(Fault),
    /// The node is killed, before or after the device has carried out the command.
    Kill {
        after: bool,
    },
}

#[derive(Default)]
struct Inner {
    armed: Vec<Armed>,
    /// Those in force, and until when.
    active: Vec<(Option<Duration>, Fault)>,
}

/// See the module.
pub struct Hazards {
    inner: Mutex<Inner>,
    engine: Arc<CrashingEngine>,
    hub: Arc<Hub>,
    begun: AtomicU64,
}

/// Kinds of command at which things go wrong most tellingly.
const OPCODES: [u8; 12] = [
    op::TEST_UNIT_READY,
    op::WRITE_6,
    op::WRITE_6,
    op::WRITE_FILEMARKS_6,
    op::WRITE_FILEMARKS_6,
    op::READ_6,
    op::READ_6,
    op::LOCATE_16,
    op::READ_POSITION,
    op::READ_ATTRIBUTE,
    op::WRITE_ATTRIBUTE,
    op::LOAD_UNLOAD,
];

/// Most faults that wait for their moment.
const MOST_ARMED: usize = 6;

/// Resets and power failures happen just before the command that is on its way.
pub fn at_once(fault: Fault, device: Device, opcode: u8) -> Fault {
    match fault {
        Fault::Reset { .. } | Fault::PowerLoss { .. } | Fault::PowerCut => {
            Fault::At { device, opcode, nth: 1, then: Box::new(fault) }
        }
        other => other,
    }
}

fn once(fault: &Fault) -> bool {
    matches!(fault, Fault::Reset { .. } | Fault::PowerLoss { .. } | Fault::PowerCut)
}

impl Hazards {
    /// Nothing goes wrong yet.
    pub fn new(engine: Arc<CrashingEngine>, hub: Arc<Hub>) -> Self {
        Self { inner: Mutex::default(), engine, hub, begun: AtomicU64::new(0) }
    }

    /// Faults that have begun so far.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// One more, that something else than a device did.
    pub fn count(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// The node's process ends here: no change of the catalogue gets in any more.
    pub fn kill(&self) {
        self.engine.kill();
    }

    /// A device gets a command: what begins now, and whether the node dies (Some(true): after the command).
    pub fn arrive(&self, to: Device, opcode: u8) -> (Vec<Fault>, Option<bool>) {
        let mut inner = self.inner.lock();
        let now = self.hub.time();
        let (mut begun, mut dies) = (Vec::new(), None);
        let Inner { armed, active } = &mut *inner;
        armed.retain_mut(|a| {
            if a.device != to || a.opcode != opcode {
                return true;
            }
            a.nth = a.nth.saturating_sub(1);
            if a.nth > 0 {
                return true;
            }
            match &a.then {
                Strike::Fault(fault) => {
                    if !once(fault) {
                        active.push((a.lasts.map(|lasts| now + lasts), fault.clone()));
                    }
                    begun.push(fault.clone());
                }
                Strike::Kill { after } => dies = Some(*after),
            }
            false
        });
        self.begun.fetch_add(begun.len() as u64 + u64::from(dies.is_some()), Ordering::Relaxed);
        (begun, dies)
    }

    /// Mends what has lasted long enough.
    pub fn mend(&self, library: &Library) {
        let mut inner = self.inner.lock();
        let now = self.hub.time();
        let before = inner.active.len();
        inner.active.retain(|(until, _)| until.is_none_or(|until| until > now));
        if inner.active.len() < before {
            library.clear_faults();
            inner.active.iter().for_each(|(_, fault)| library.inject(fault.clone()));
        }
    }

    /// Everything is in order from here on, but for cartridges that stay bad.
    pub fn calm(&self, library: &Library) {
        let mut inner = self.inner.lock();
        inner.armed.clear();
        inner.active.retain(|(until, _)| until.is_none());
        library.clear_faults();
        inner.active.iter().for_each(|(_, fault)| library.inject(fault.clone()));
    }

    /// Something more will go wrong at a command soon. `spoil` is a cartridge that may be damaged for good.
    pub fn arm(&self, dice: &mut Dice, shape: &Shape, spoil: Option<&str>) {
        let device = match dice.below(5) {
            0 => Device::Changer,
            _ => Device::Drive(dice.below(u64::from(shape.drives)) as u16),
        };
        let opcode = match device {
            Device::Changer => op::MOVE_MEDIUM,
            Device::Drive(_) => dice.pick(&OPCODES).copied().unwrap_or(0),
        };
        let nth = 1 + dice.below(if device == Device::Changer { 2 } else { 8 }) as u32;
        let (then, lasts) = strike(dice, shape, device, spoil);
        let mut inner = self.inner.lock();
        inner.armed.push(Armed { device, opcode, nth, then, lasts });
        if inner.armed.len() > MOST_ARMED {
            inner.armed.remove(0); // its moment does not come
        }
    }
}

fn strike(dice: &mut Dice, shape: &Shape, device: Device, spoil: Option<&str>) -> (Strike, Option<Duration>) {
    let drive = match device {
        Device::Drive(n) => n,
        Device::Changer => dice.below(u64::from(shape.drives)) as u16,
    };
    let barcode = format!("TC{:04}L9", 1 + dice.below(u64::from(shape.cartridges)));
    let minutes = |dice: &mut Dice, most: u64| Some(Duration::from_secs(60 + dice.below(60 * most)));
    let op =
        [HostOp::Write, HostOp::Sync, HostOp::SyncNames, HostOp::Chip, HostOp::Read][dice.below(5) as usize];
    let errno = if dice.one_in(2) { 28 } else { 5 };
    let fault = |fault| Strike::Fault(fault);
    match (dice.below(14), spoil) {
        (0, _) => {
            let answers = dice.one_in(2);
            (fault(Fault::DriveDead { drive, answers }), minutes(dice, 40))
        }
        (1, _) => (fault(Fault::RobotStuck), minutes(dice, 10)),
        (2 | 3, _) => (fault(Fault::Reset { drive }), None),
        (4 | 5, _) => (fault(Fault::PowerLoss { drive }), None),
        (6, _) => (fault(Fault::PowerCut), None),
        (7, _) => (fault(Fault::HostError { barcode, op, errno }), minutes(dice, 10)),
        (8, _) => (fault(Fault::Garbled { drive }), minutes(dice, 10)),
        (9, _) => (fault(Fault::UnreadableBarcode { barcode }), minutes(dice, 20)),
        (10, Some(bad)) => {
            let block = dice.below(60);
            (fault(Fault::WriteError { barcode: bad.to_owned(), partition: 1, block }), None)
        }
        (11, Some(bad)) => {
            let block = 4 + dice.below(60);
            (fault(Fault::ReadError { barcode: bad.to_owned(), partition: 1, block }), None)
        }
        (12, _) => (Strike::Kill { after: dice.one_in(2) }, None),
        _ => (fault(Fault::Reset { drive }), None),
    }
}
