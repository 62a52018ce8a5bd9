//! Generations of LTO: which cartridges the drive reads and writes, and what it says of densities.

use super::{State, alert, alert_bit, medium::Medium};
use crate::unit::{self, Outcome, field, give};
use scsi::{Data, Sense, SenseKey};
use types::{Access, Generation};

/// The medium is of a generation that the drive does not read: incompatible format.
const UNREADABLE: Sense = Sense::new(SenseKey::MediumError, 0x30, 0x02);
/// The medium is of a generation that the drive only reads: incompatible format.
pub(super) const READ_ONLY: Sense = Sense::new(SenseKey::DataProtect, 0x30, 0x05);

/// Density code of a medium. That of LTO-10 is not published: drives tell it by its description.
pub(crate) fn code(medium: Generation) -> u8 {
    medium.density().unwrap_or(0x62)
}

/// Tracks by the format's specification.
fn tracks(medium: Generation) -> u16 {
    match medium {
        Generation::Lto1 => 384,
        Generation::Lto2 => 512,
        Generation::Lto3 => 704,
        Generation::Lto4 => 896,
        Generation::Lto5 => 1280,
        Generation::Lto6 => 2176,
        Generation::Lto7 => 3584,
        Generation::Lto7M8 => 5376,
        Generation::Lto8 => 6656,
        Generation::Lto9 | Generation::Lto10 => 8960,
    }
}

/// Channels that the head writes at once.
fn channels(medium: Generation) -> u8 {
    match medium {
        Generation::Lto1 | Generation::Lto2 => 8,
        m if m < Generation::Lto7 => 16,
        _ => 32,
    }
}

impl State {
    /// Generation of the medium; one that does not say is taken for the drive's own.
    fn generation_of(&self, m: &Medium) -> Generation {
        m.cartridge.generation().unwrap_or(self.generation)
    }

    /// Density code of what is in the drive, or of the drive itself.
    pub(super) fn density(&self) -> u8 {
        code(self.medium.as_ref().map_or(self.generation, |m| self.generation_of(m)))
    }

    /// Whether the drive can do so with what is in it.
    pub(super) fn suits(&self, access: Access) -> Result<(), Sense> {
        let Some(m) = &self.medium else { return Ok(()) };
        match (self.generation.takes(self.generation_of(m), access), access) {
            (true, _) => Ok(()),
            (false, Access::Read) => Err(UNREADABLE),
            (false, Access::Write) => Err(READ_ONLY),
        }
    }

    /// A cartridge was threaded.
    pub(super) fn recognise(&mut self) {
        if self.suits(Access::Read).is_err() {
            self.alerts |= alert_bit(alert::UNSUPPORTED);
        }
    }

    pub(super) fn report_density(&mut self, cdb: &[u8], data: Data<'_>) -> Outcome {
        if cdb[1] & 2 != 0 {
            return Err(unit::BAD_FIELD);
        }
        let mut known: Vec<Generation> =
            Generation::ALL.into_iter().filter(|m| self.generation.takes(*m, Access::Read)).collect();
        if cdb[1] & 1 != 0 {
            let own = self.generation;
            let inside = self.ready()?.cartridge.generation().unwrap_or(own);
            known.retain(|medium| *medium == inside);
        }
        let mut raw = ((2 + 52 * known.len()) as u16).to_be_bytes().to_vec();
        raw.extend([0, 0]);
        known.into_iter().for_each(|medium| self.describe(medium, &mut raw));
        give(data, &raw, field(cdb, 7, 2))
    }

    /// Density support data block descriptor.
    fn describe(&self, medium: Generation, raw: &mut Vec<u8>) {
        let writable = u8::from(self.generation.takes(medium, Access::Write)) << 7;
        let default = u8::from(medium == self.generation) << 5;
        raw.extend([code(medium), code(medium), writable | default, 0, 0]);
        raw.extend(&20_669u32.to_be_bytes()[1..]); // bits per mm
        raw.extend(127u16.to_be_bytes()); // width, tenths of a millimetre
        raw.extend(tracks(medium).to_be_bytes());
        raw.extend(((self.config.capacity_bytes / 1_000_000) as u32).to_be_bytes());
        let number = medium.number();
        let description = format!("Ultrium {number}/{}T", channels(medium));
        for (text, width) in [("LTO-CVE", 8), (format!("U-{number}32").as_str(), 8), (&description, 20)] {
            raw.extend(format!("{text:width$}").bytes());
        }
    }
}
