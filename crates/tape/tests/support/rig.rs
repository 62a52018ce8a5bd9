//! A virtual library with a wire to each device that can be cut and listened to.

use scsi::{CHECK_CONDITION, Data, Reply, Sense, Transport, TransportError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
    /// TapeAlert flags that the drive claims.
    pub alerts: Vec<u8>,
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
        let alerts = if cdb[0] == 0x4d { wire.alerts.clone() } else { Vec::new() };
        drop(wire);
        match data {
            Data::In(buffer) if cdb[0] == 0x4d && cdb[2] & 0x3f == 0x2e => {
                let reply = self.inner.execute(cdb, Data::In(&mut *buffer), limit)?;
                // parameters of 5 bytes behind a header of 4: code, control, length, flag
                for parameter in buffer[4..reply.transferred].chunks_exact_mut(5) {
                    parameter[4] |= u8::from(alerts.contains(&parameter[1]));
                }
                Ok(reply)
            }
            data => self.inner.execute(cdb, data, limit),
        }
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
        Self::with_mechanics(capacity, buffer, vtl::Mechanics::ZERO)
    }

    /// The same with moving parts.
    pub fn with_mechanics(capacity: u64, buffer: u64, mechanics: vtl::Mechanics) -> Self {
        let memory = std::path::Path::new("/dev/shm"); // where there is one, syncs cost nothing
        let at = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let dir = tempfile::tempdir_in(at).unwrap();
        let library = Library::open(VtlConfig {
            slots: 4,
            cartridges: 4,
            capacity_bytes: capacity,
            buffer_bytes: buffer,
            mechanics,
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

    /// The drive by a wire of its own, without session.
    pub fn raw(&self, n: u16) -> scsi::Ssc {
        scsi::Ssc::new(Box::new(self.library.drive(n)))
    }

    /// Takes the unloaded cartridge out of drive 0; returns its slot.
    pub fn empty_drive(&self) -> u16 {
        let (mut changer, drive) = (self.changer(), self.elements(ElementKind::Drive)[0]);
        let inventory = changer.inventory().unwrap();
        let slot = inventory.iter().find(|e| e.kind == ElementKind::Slot && !e.full).unwrap().address;
        changer.move_medium(drive, slot).unwrap();
        slot
    }

    /// Lets `change` work on the directory of the unloaded cartridge in drive 0.
    pub fn tamper(&self, barcode: &str, change: impl FnOnce(&Path)) {
        let slot = self.empty_drive();
        change(&self.cartridge(barcode));
        let drive = self.elements(ElementKind::Drive)[0];
        self.changer().move_medium(slot, drive).unwrap();
    }

    /// The objects of both partitions as they are in the directory: name and content.
    pub fn objects(&self, barcode: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.cartridge(barcode)).unwrap().map(|e| e.unwrap());
        let objects = entries.filter(|e| {
            let name = e.file_name().into_string().unwrap();
            name.starts_with("0_") || name.starts_with("1_")
        });
        objects.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
    }

    /// The power comes back.
    pub fn power_cycle(&self) {
        *self.wire() = Wire::default();
        self.library.power_cycle().unwrap();
    }
}
