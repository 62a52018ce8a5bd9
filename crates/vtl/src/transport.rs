//! The library's devices for an initiator in the same process.

use crate::fault::Device;
use crate::library::Library;
use crate::unit::Host;
use scsi::{Data, Reply, Transport, TransportError};
use std::sync::Arc;
use std::time::Duration;

/// A [`Transport`] to one device of a library. Time limits are not applied: the device always answers.
pub struct LibraryTransport {
    library: Arc<Library>,
    unit: Device,
    host: Host,
    name: String,
}

impl LibraryTransport {
    pub(crate) fn new(library: Arc<Library>, unit: Device, host: Host) -> Self {
        let name = match unit {
            Device::Drive(n) => format!("virtual drive {n}"),
            Device::Changer => "virtual changer".into(),
        };
        Self { library, unit, host, name }
    }
}

impl Transport for LibraryTransport {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, _: Duration) -> Result<Reply, TransportError> {
        data.must_be_here(&self.name)?;
        let opcode = cdb.first().copied().unwrap_or(0);
        self.library.begin_faults(self.unit, opcode);
        if let Some(sense) = self.library.faults.answer(self.unit, opcode) {
            return Ok(crate::unit::reply(Err(sense)));
        }
        match self.unit {
            Device::Drive(n) => self.library.drives[usize::from(n)].execute(self.host, cdb, data),
            Device::Changer => Ok(self.library.execute_changer(self.host, cdb, data)),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}
