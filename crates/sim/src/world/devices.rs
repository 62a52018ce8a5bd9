//! The library as the node reaches it: every command takes its simulated time, may be the moment at which something goes
//! wrong, and fails once the node is dead.

use super::faults::Hazards;
use super::hub::{Hub, Mechanical};
use super::trace::Trace;
use node::{Clock, Devices};
use scsi::{Data, Reply, Transport, TransportError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vtl::{Device, Library, LibraryTransport, Mechanics, VtlConfig};

/// Every command takes at least so long.
const LEAST: Duration = Duration::from_micros(300);

/// See the module.
pub struct Hardware {
    /// Drives, robot, cartridges: they do not know whether a node lives.
    pub library: Arc<Library>,
    /// What may go wrong.
    pub hazards: Arc<Hazards>,
    hub: Arc<Hub>,
    trace: Arc<Trace>,
}

impl Hardware {
    /// A new library below `dir`.
    ///
    /// # Errors
    /// Its directory cannot be used.
    pub fn new(
        dir: &Path,
        shape: &super::Shape,
        hub: Arc<Hub>,
        trace: Arc<Trace>,
        hazards: Arc<Hazards>,
    ) -> anyhow::Result<Self> {
        let mechanics = Mechanics { stream_bytes_per_s: Some(100 << 10), ..Mechanics::LTO9 };
        let config = VtlConfig {
            drives: shape.drives,
            slots: shape.cartridges + 2,
            import_export: 2,
            cartridges: shape.cartridges,
            capacity_bytes: shape.cartridge_bytes,
            buffer_bytes: 1 << 20,
            mechanics,
            ..VtlConfig::new(dir)
        };
        let library = Library::open_with_clock(config, Arc::new(Mechanical(hub.clone())))?;
        Ok(Self { library, hazards, hub, trace })
    }

    fn line(&self, device: Device, to: LibraryTransport) -> Box<dyn Transport> {
        Box::new(Line {
            to,
            device,
            library: self.library.clone(),
            hazards: self.hazards.clone(),
            hub: self.hub.clone(),
            trace: self.trace.clone(),
        })
    }
}

impl Devices for Hardware {
    fn changer(&self) -> Box<dyn Transport> {
        self.line(Device::Changer, self.library.changer())
    }

    fn drive(&self, n: u16) -> Box<dyn Transport> {
        self.line(Device::Drive(n), self.library.drive(n))
    }
}

/// The way to one device.
struct Line {
    to: LibraryTransport,
    device: Device,
    library: Arc<Library>,
    hazards: Arc<Hazards>,
    hub: Arc<Hub>,
    trace: Arc<Trace>,
}

impl Line {
    fn lost(&self) -> TransportError {
        TransportError::Lost { device: self.to.name().to_owned(), detail: "the node is dead".into() }
    }
}

impl Transport for Line {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        let opcode = cdb.first().copied().unwrap_or(0);
        if self.hub.is_dead() {
            return Err(self.lost());
        }
        let (begun, dies) = self.hazards.arrive(self.device, opcode);
        for fault in begun {
            self.trace.note(self.hub.time(), format_args!("fault {fault:?}"));
            self.library.inject(super::faults::at_once(fault, self.device, opcode));
        }
        if dies == Some(false) {
            self.hazards.kill();
            self.hub.die();
            return Err(self.lost());
        }
        self.hub.begin_command();
        let reply = self.to.execute(cdb, data, timeout);
        let takes = self.hub.end_command();
        if !self.hub.is_dead() {
            let sense = |r: &Reply| {
                let s = &r.sense;
                let at = |n: usize| s.get(n).copied().unwrap_or(0);
                (r.status, at(2) & 15, at(12), at(13))
            };
            let told = reply.as_ref().map(sense).map_err(|_| "no answer");
            self.trace.note(self.hub.time(), format_args!("{:?} {opcode:02x} {told:x?}", self.device));
        }
        if dies == Some(true) {
            self.hazards.kill();
            self.hub.die();
            return Err(self.lost());
        }
        self.hub.sleep(takes.max(LEAST));
        if self.hub.is_dead() { Err(self.lost()) } else { reply }
    }

    fn name(&self) -> &str {
        self.to.name()
    }
}
