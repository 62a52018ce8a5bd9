//! A virtual library with a wire to each device that can be cut and listened to.

use scsi::{CHECK_CONDITION, Data, Reply, Sense, Transport, TransportError};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tape::{Changer, Drive};
use types::ElementKind;
use vtl::{Library, VtlConfig};

pub const BARCODE: &str = "TC0001L9";

/// What happens on the wires.
#[derive(Default)]
pub struct Wire {
    pub opcodes: Vec<u8>,
    /// The power fails before this command.
    pub cut_at: Option<usize>,
    pub off: bool,
    /// The next command with this opcode is answered with this sense and not executed.
    pub answer: Option<(u8, Sense)>,
}

struct Tapped<T> {
    inner: T,
    wire: Arc<Mutex<Wire>>,
}

impl<T: Transport> Transport for Tapped<T> {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, limit: Duration) -> Result<Reply, TransportError> {
        let mut wire = self.wire.lock().unwrap();
        wire.off |= wire.cut_at.is_some_and(|n| wire.opcodes.len() >= n);
        wire.opcodes.push(cdb[0]);
        if wire.off {
            return Err(TransportError::Lost {
                device: self.inner.name().into(),
                detail: "power is off".into(),
            });
        }
        if let Some((_, sense)) = wire.answer.take_if(|(opcode, _)| *opcode == cdb[0]) {
            return Ok(Reply { status: CHECK_CONDITION, transferred: 0, sense: sense.encode() });
        }
        drop(wire);
        self.inner.execute(cdb, data, limit)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

pub struct Rig {
    pub dir: tempfile::TempDir,
    pub library: Arc<Library>,
    wire: Arc<Mutex<Wire>>,
}

impl Rig {
    /// A library of two drives and four cartridges.
    pub fn new(capacity: u64, buffer: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = Library::open(VtlConfig {
            slots: 4,
            cartridges: 4,
            capacity_bytes: capacity,
            buffer_bytes: buffer,
            ..VtlConfig::new(dir.path())
        });
        Self { dir, library: library.unwrap(), wire: Arc::default() }
    }

    pub fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap()
    }

    /// Directory of a cartridge.
    pub fn cartridge(&self, barcode: &str) -> PathBuf {
        self.dir.path().join("cartridges").join(barcode)
    }

    pub fn drive(&self, n: u16) -> Drive {
        let transport = Tapped { inner: self.library.drive(n), wire: self.wire.clone() };
        Drive::open(Box::new(transport), Box::new(|_| {})).unwrap()
    }

    pub fn changer(&self) -> Changer {
        Changer::open(Box::new(self.library.changer()), Box::new(|_| {})).unwrap()
    }

    /// Addresses of the elements of a kind.
    pub fn elements(&self, kind: ElementKind) -> Vec<u16> {
        let all = self.changer().inventory().unwrap();
        all.iter().filter(|e| e.kind == kind).map(|e| e.address).collect()
    }

    /// Moves a cartridge into drive `n` and opens that.
    pub fn load(&self, barcode: &str, n: u16) -> Drive {
        let mut changer = self.changer();
        let inventory = changer.inventory().unwrap();
        let from = inventory.iter().find(|e| e.barcode.as_ref().is_some_and(|b| b.as_str() == barcode));
        let to = self.elements(ElementKind::Drive)[usize::from(n)];
        changer.move_medium(from.unwrap().address, to).unwrap();
        self.drive(n)
    }

    /// The power comes back.
    pub fn power_cycle(&self) {
        *self.wire() = Wire::default();
        self.library.power_cycle().unwrap();
    }
}
