//! The library's devices for an initiator in the same process.

use crate::library::Library;
use crate::unit::Host;
use scsi::{Data, Reply, Transport, TransportError};
use std::sync::Arc;
use std::time::Duration;

/// Which logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Drive(u16),
    Changer,
}

/// A [`Transport`] to one device of a library. Time limits are not applied: the device always answers.
pub struct LibraryTransport {
    library: Arc<Library>,
    unit: Unit,
    host: Host,
    name: String,
}

impl LibraryTransport {
    pub(crate) fn new(library: Arc<Library>, unit: Unit, host: Host) -> Self {
        let name = match unit {
            Unit::Drive(n) => format!("virtual drive {n}"),
            Unit::Changer => "virtual changer".into(),
        };
        Self { library, unit, host, name }
    }
}

impl Transport for LibraryTransport {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, _: Duration) -> Result<Reply, TransportError> {
        match self.unit {
            Unit::Drive(n) => self.library.drives[usize::from(n)].execute(self.host, cdb, data),
            Unit::Changer => Ok(self.library.execute_changer(self.host, cdb, data)),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}
