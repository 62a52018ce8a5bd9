//! Append-only mode (SSC-4 section 4.2.18; mode page 10h/01h, ALLOW OVERWRITE): records and filemarks are written at the end of
//! data only, or once at a place that was named.

use super::State;
use crate::unit::{self, BAD_FIELD, BAD_PARAMETER, OK, Outcome, field};
use scsi::{Sense, SenseKey};

/// Operator selected write protect: an attempt to overwrite in append-only mode.
const OVERWRITE: Sense = Sense::new(SenseKey::DataProtect, 0x5A, 0x02);

/// What ALLOW OVERWRITE allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// To write at this block of this partition.
    Write(u8, u64),
    /// FORMAT MEDIUM.
    Format,
}

impl State {
    /// The mode is switched on at the beginning of the medium, and off only without one.
    pub(super) fn may_switch_append_only(&mut self, on: bool) -> Result<(), Sense> {
        let Ok(m) = self.ready() else { return Ok(()) };
        let at_beginning = (m.partition, m.block) == (0, 0);
        match (self.settings.append_only, on) {
            (false, true) if !at_beginning => Err(unit::illegal(0x3B, 0x0C)),
            (true, false) => Err(BAD_PARAMETER),
            _ => Ok(()),
        }
    }

    pub(super) fn allow_overwrite(&mut self, cdb: &[u8]) -> Outcome {
        if !self.settings.append_only {
            return Err(unit::illegal(0x20, 0x0C));
        }
        let m = self.ready()?;
        let (partition, block) = (m.partition, m.block);
        self.allowed = match cdb[2] & 0x0F {
            0 => None,
            1 if (u64::from(cdb[3]), field(cdb, 4, 8)) == (u64::from(partition), block) => {
                Some(Allowed::Write(partition, block))
            }
            1 => return Err(unit::illegal(0x3B, 0x00)),
            2 if (partition, block) == (0, 0) => Some(Allowed::Format),
            2 => return Err(unit::illegal(0x3B, 0x0C)),
            _ => return Err(BAD_FIELD),
        };
        OK
    }

    /// Whether something may be written where the head stands. What was allowed is so once.
    pub(super) fn may_overwrite(&mut self) -> Result<(), Sense> {
        let on = self.settings.append_only;
        let m = self.ready()?;
        let here = Allowed::Write(m.partition, m.block);
        let free = !on || m.block == m.end();
        if free || self.allowed.take() == Some(here) {
            return Ok(());
        }
        Err(OVERWRITE)
    }

    /// Whether the medium may be formatted.
    pub(super) fn may_format(&mut self) -> Result<(), Sense> {
        let on = self.settings.append_only;
        let m = self.ready()?;
        let blank = (0..m.cartridge.partitions()).all(|p| m.cartridge.index(p).end() == 0);
        if !on || blank || self.allowed.take() == Some(Allowed::Format) {
            return Ok(());
        }
        Err(OVERWRITE)
    }

    /// What was allowed counts for the place where the head stands.
    pub(super) fn moved_away(&mut self) {
        let here = self.medium.as_ref().map(|m| Allowed::Write(m.partition, m.block));
        if matches!(self.allowed, Some(Allowed::Write(..))) && self.allowed != here {
            self.allowed = None;
        }
    }
}
