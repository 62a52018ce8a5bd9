//! Errors of tape work: what failed, on which volume and drive, whose fault it seems, and what to do next.

use crate::policy::{self, Then};
use scsi::Sense;
use std::fmt;
use types::{Access, Barcode, ErrorClass};

/// Which resource an error points at. The archive lets the other copy, drive or library serve and takes this one
/// out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The cartridge.
    Medium,
    /// The drive.
    Drive,
    /// The library (robot, elements).
    Library,
    /// The way to the device (cable, host adapter, socket).
    Path,
    /// The caller or this program: a wrong order of calls, a wrong record in the catalogue.
    Us,
}

/// What went wrong, as far as a program needs to tell cases apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The device is not ready and will not be soon (no cartridge, door open, offline).
    NotReady,
    /// The medium could not be read or written at some place.
    MediumError,
    /// The device failed.
    HardwareError,
    /// The device was reset or its medium exchanged under us: the position is unknown, the session is over.
    PositionLost,
    /// The drive stands elsewhere than expected; nothing was written.
    WrongPosition,
    /// The cartridge is write protected (tab, or a cleaning or WORM cartridge).
    WriteProtected,
    /// No room left on the partition.
    Full,
    /// The medium ends before data that was recorded as safe.
    DataMissing,
    /// What was read is not what was recorded (record length, index identity).
    BadRecord,
    /// A record was changed on its way between medium and memory; nothing of it was used.
    Garbled,
    /// One drive after the other failed with the cartridge.
    BreaksDrives,
    /// The cartridge is not the one expected (barcode or uuid).
    WrongVolume,
    /// Somebody else wrote to this volume.
    ForeignWriter,
    /// The cartridge carries no LTFS label, or a damaged one.
    NotLtfs,
    /// No consistent index was found.
    NoIndex,
    /// A cleaning cartridge.
    Cleaning,
    /// The move has no cartridge at its source: the inventory is stale.
    SourceEmpty,
    /// The move has a cartridge at its destination: the inventory is stale.
    DestinationFull,
    /// Somebody else may have moved cartridges since the inventory was taken: nothing was moved.
    InventoryStale,
    /// Removal is prevented, or the element does not let go of the cartridge.
    Prevented,
    /// The drive or the cartridge raises a TapeAlert flag.
    Alert,
    /// The volume is encrypted, and its key is not at hand or another one.
    Key,
    /// The drive does not read, or not write, such a medium; in another drive it may be in order.
    Incompatible,
    /// Another initiator holds the device.
    Reserved,
    /// No answer.
    NoAnswer,
    /// The device refused the command (it lacks a function, or we asked for nonsense).
    Refused,
    /// This machine did not send the command (permission, too much data, a missing library).
    NotSent,
    /// Calls in an order that makes no sense, or arguments that do not fit.
    Misuse,
}

/// An error of a drive, a volume or a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeError {
    /// Who seems to be at fault.
    pub blame: Blame,
    /// What went wrong.
    pub fault: Fault,
    /// Volume concerned, where known.
    pub volume: Option<Barcode>,
    /// Drive or library, by its device name; empty where none was asked.
    pub drive: Box<str>,
    /// What was being done, e.g. `writing at block 17 of partition 1`.
    pub doing: Box<str>,
    /// What happened, in words.
    pub what: Box<str>,
    /// Sense data of the device, if it gave any.
    pub sense: Option<Sense>,
    /// What a person should do.
    pub advice: &'static str,
}

/// Result of tape work.
pub type Result<T> = std::result::Result<T, TapeError>;

impl TapeError {
    /// Stable code of what happened: see `docs/ERRORS.md`.
    pub fn code(&self) -> &'static str {
        // A unit attention that ended a session says less than what it was taken for.
        let told = self.sense.as_ref().map(policy::of_sense).filter(|row| match self.fault {
            Fault::Reserved => false,
            Fault::PositionLost => row.fault == Some(Fault::PositionLost),
            _ => true,
        });
        told.unwrap_or_else(|| policy::found(self.fault, self.blame)).code
    }

    /// What follows from it.
    pub fn then(&self) -> Then {
        Then::of(self.fault, self.blame)
    }

    /// What the drive refuses to do with such a medium, if that is the error: most qualifiers of sense 30 speak of reading, and
    /// what cannot be read cannot be written either (SPC-5 annex F).
    pub fn refused(&self) -> Option<Access> {
        let writing = |s: &Sense| s.asc == 0x30 && matches!(s.ascq, 0x04..=0x06 | 0x08 | 0x11);
        let access = if self.sense.as_ref().is_some_and(writing) { Access::Write } else { Access::Read };
        (self.fault == Fault::Incompatible).then_some(access)
    }

    /// The error class of this error.
    pub fn class(&self) -> ErrorClass {
        match (self.fault, self.blame) {
            (Fault::Full, _) => ErrorClass::NoSpace,
            (Fault::WriteProtected, _) => ErrorClass::Denied,
            (Fault::Reserved, _) => ErrorClass::Busy,
            (Fault::Key, Blame::Us) => ErrorClass::Denied,
            (_, Blame::Medium) => ErrorClass::Medium,
            (_, Blame::Drive | Blame::Path) => ErrorClass::Drive,
            (_, Blame::Library) => ErrorClass::Library,
            (_, Blame::Us) => ErrorClass::Bug,
        }
    }
}

impl fmt::Display for TapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.code())?;
        match &self.volume {
            Some(volume) if self.drive.is_empty() => write!(f, "volume {volume}")?,
            Some(volume) => write!(f, "volume {volume} in {}", self.drive)?,
            None => f.write_str(&self.drive)?,
        }
        write!(f, ": {}: {}", self.doing, self.what)?;
        if let Some(s) = &self.sense {
            write!(f, " [{s}]")?;
        }
        write!(f, "; {}", self.advice)
    }
}

impl std::error::Error for TapeError {}
