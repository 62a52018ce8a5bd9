//! The error policy: what each answer of a device means, who is at fault, and what follows. One table, which decides, is
//! printed in `docs/ERRORS.md`, and is tested row by row with faults in the virtual library. Codes are never used anew
//! for something else. Meanings of sense codes: SPC-5 annex F and the LTO SCSI references.

use crate::{Blame, Fault};
use scsi::{Sense, SenseKey};

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// The device is asked again until it is ready.
    Wait,
    /// The command, which was not carried out, is sent again.
    Again,
    /// The volume is mounted again, and what was not flushed is written again; after three times in a row as
    /// [`Then::OtherDrive`].
    MountAgain,
    /// The drive is suspect and tried again by itself; its work goes to other drives.
    OtherDrive,
    /// The volume is suspect, no longer written; other copies are read, other volumes written.
    OtherVolume,
    /// The volume is full; another one is taken.
    NextVolume,
    /// The volume becomes read-only; another one is written.
    ReadOnly,
    /// This drive does not get this volume again; neither is suspect.
    OtherPair,
    /// The inventory is taken again if it was stale, and the move is tried again.
    MoveAgain,
    /// Nothing is at fault that could be exchanged: the work is tried again after a pause, and an operator is told.
    Operator,
}

impl Then {
    /// In the words of the document.
    pub fn text(self) -> &'static str {
        match self {
            Then::Wait => "wait",
            Then::Again => "same command again",
            Then::MountAgain => "mount again; third time: other drive",
            Then::OtherDrive => "drive suspect; other drive",
            Then::OtherVolume => "volume suspect; other copy, other volume",
            Then::NextVolume => "volume full; next volume",
            Then::ReadOnly => "volume read-only; other volume",
            Then::OtherPair => "other drive for this volume",
            Then::MoveAgain => "inventory, move again",
            Then::Operator => "try again later; operator",
        }
    }

    /// What follows from a fault that is blamed on this.
    pub fn of(fault: Fault, blame: Blame) -> Self {
        match (fault, blame) {
            (Fault::PositionLost, Blame::Drive | Blame::Path) => Then::MountAgain,
            (Fault::Full, _) => Then::NextVolume,
            (Fault::Key, Blame::Us) | (Fault::WriteProtected, _) => Then::ReadOnly,
            (Fault::Incompatible, _) => Then::OtherPair,
            (_, Blame::Drive | Blame::Path) => Then::OtherDrive,
            (_, Blame::Medium) => Then::OtherVolume,
            (_, Blame::Library) => Then::MoveAgain,
            (_, Blame::Us) => Then::Operator,
        }
    }
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Sense data: key (None: any), additional code (None: any), and qualifiers from, to.
    Sense(Option<SenseKey>, Option<u8>, u8, u8),
    /// A status that is neither GOOD nor CHECK CONDITION.
    Status(u8),
    /// Nobody answered in time, or the way to the device is gone.
    NoAnswer,
    /// This machine did not send the command.
    NotSent,
    /// READ POSITION says that the position is unknown.
    PositionUnknown,
    /// An answer that cannot be understood.
    Nonsense,
    /// Found by the program.
    Found,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Stable code.
    pub code: &'static str,
    /// When it applies; the first row that does counts.
    pub when: When,
    /// What it is; None: nothing is wrong, see [`Row::then`].
    pub fault: Option<Fault>,
    /// Who is at fault; None: the device that answered.
    pub blame: Option<Blame>,
    /// What happened.
    pub what: &'static str,
    /// What a person should do.
    pub advice: &'static str,
}

impl Row {
    /// What follows when a drive answered so, or, for the robot, when the library did.
    pub fn then(&self, by: Blame) -> Then {
        match (self.fault, self.when) {
            (Some(fault), _) => Then::of(fault, self.blame.unwrap_or(by)),
            (None, When::Sense(Some(SenseKey::NotReady), ..)) => Then::Wait,
            (None, _) => Then::Again,
        }
    }

    fn is(&self, sense: &Sense) -> bool {
        match self.when {
            When::Sense(key, asc, first, last) => {
                key.is_none_or(|key| key == sense.key)
                    && asc.is_none_or(|asc| asc == sense.asc)
                    && (first..=last).contains(&sense.ascq)
            }
            _ => false,
        }
    }
}

/// Row of sense data.
pub(crate) fn of_sense(sense: &Sense) -> &'static Row {
    TABLE.iter().find(|row| row.is(sense)).unwrap_or(&UNKNOWN)
}

/// Row of something else that a device answered.
pub(crate) fn of(when: When) -> &'static Row {
    TABLE.iter().find(|row| row.when == when).unwrap_or(&UNKNOWN)
}

/// Row of what the program found.
pub(crate) fn found(fault: Fault, blame: Blame) -> &'static Row {
    let same = |row: &&Row| row.fault == Some(fault);
    let exact = TABLE.iter().filter(same).find(|row| row.when == When::Found && row.blame == Some(blame));
    let some = || TABLE.iter().rev().find(same);
    exact.or_else(some).unwrap_or(&UNKNOWN)
}

const fn sense(
    code: &'static str,
    key: Option<SenseKey>,
    (asc, first, last): (Option<u8>, u8, u8),
    (fault, blame): (Fault, Option<Blame>),
    what: &'static str,
    advice: &'static str,
) -> Row {
    Row { code, when: When::Sense(key, asc, first, last), fault: Some(fault), blame, what, advice }
}

const fn harmless(
    code: &'static str,
    key: SenseKey,
    (asc, first, last): (Option<u8>, u8, u8),
    what: &'static str,
) -> Row {
    let when = When::Sense(Some(key), asc, first, last);
    Row { code, when, fault: None, blame: None, what, advice: "" }
}

const fn other(
    code: &'static str,
    when: When,
    (fault, blame): (Fault, Option<Blame>),
    what: &'static str,
    advice: &'static str,
) -> Row {
    Row { code, when, fault: Some(fault), blame, what, advice }
}

/// Any qualifier of this additional code.
const fn any(asc: u8) -> (Option<u8>, u8, u8) {
    (Some(asc), 0, 0xFF)
}

/// This additional code, with these qualifiers.
const fn asc(asc: u8, first: u8, last: u8) -> (Option<u8>, u8, u8) {
    (Some(asc), first, last)
}

const ALL: (Option<u8>, u8, u8) = (None, 0, 0xFF);

const MEDIUM: Option<Blame> = Some(Blame::Medium);
const PATH: Option<Blame> = Some(Blame::Path);
const US: Option<Blame> = Some(Blame::Us);
const LIBRARY: Option<Blame> = Some(Blame::Library);
const DRIVE: Option<Blame> = Some(Blame::Drive);

const UNKNOWN: Row = sense(
    "TC-D023",
    None,
    ALL,
    (Fault::HardwareError, None),
    "the device gave an answer that is not in the table",
    "look at the device; report the sense code",
);

/// The table. A code's letter says whose matter it is: D drive, M medium, L library, P path, U operator or program.
pub const TABLE: &[Row] = &{
    use Fault as F;
    use SenseKey as K;
    [
        harmless("TC-D001", K::NotReady, asc(0x04, 0x01, 0x01), "the device becomes ready"),
        harmless("TC-D002", K::NotReady, asc(0x04, 0x07, 0x07), "an operation of the device is in progress"),
        sense(
            "TC-D003",
            Some(K::NotReady),
            any(0x3A),
            (F::NotReady, None),
            "no cartridge is loaded",
            "load a cartridge or update the inventory",
        ),
        sense(
            "TC-M004",
            None,
            asc(0x30, 0x03, 0x03),
            (F::Cleaning, MEDIUM),
            "a cleaning cartridge is loaded",
            "unload it; it holds no data",
        ),
        sense(
            "TC-M005",
            None,
            asc(0x30, 0x07, 0x07),
            (F::Cleaning, MEDIUM),
            "cleaning failed",
            "use another cleaning cartridge; this one may be used up",
        ),
        sense(
            "TC-M006",
            None,
            asc(0x30, 0x0C, 0x0C),
            (F::WriteProtected, MEDIUM),
            "the cartridge is of WORM medium: what is on it cannot be overwritten",
            "what is on it stays readable; see whether anything else wrote to it, and use another cartridge",
        ),
        sense(
            "TC-M007",
            None,
            asc(0x30, 0x10, 0x10),
            (F::WriteProtected, MEDIUM),
            "the cartridge is write protected",
            "move the write-protect tab, or mark the volume read-only",
        ),
        sense(
            "TC-M008",
            None,
            any(0x30),
            (F::Incompatible, MEDIUM),
            "the drive cannot use this cartridge (generation or format)",
            "use a drive that reads, or writes, this generation of media",
        ),
        sense(
            "TC-M009",
            None,
            asc(0x74, 0x02, 0x02),
            (F::Key, MEDIUM),
            "what is here is not encrypted, although the volume is",
            "somebody else wrote to the volume, or exchanged it; use another copy and look into it",
        ),
        sense(
            "TC-U010",
            None,
            any(0x74),
            (F::Key, US),
            "the volume is encrypted, and the drive cannot read it with the key that it was given",
            "see that the key of this name is still the same in the source of keys ([encryption])",
        ),
        sense(
            "TC-D060",
            Some(K::DataProtect),
            asc(0x5A, 0x02, 0x02),
            (F::WrongPosition, None),
            "the drive does not overwrite what lies where it stands (append-only mode)",
            "nothing was overwritten; see whether something else uses the drive (`tape.append_only` in the configuration)",
        ),
        sense(
            "TC-M011",
            Some(K::DataProtect),
            ALL,
            (F::WriteProtected, MEDIUM),
            "the cartridge is write protected",
            "move the write-protect tab, or mark the volume read-only",
        ),
        sense(
            "TC-D012",
            Some(K::UnitAttention),
            any(0x29),
            (F::PositionLost, None),
            "the device was reset; the position on the medium is lost",
            "mount the volume again; data after the last flush must be written again",
        ),
        sense(
            "TC-D013",
            Some(K::UnitAttention),
            any(0x28),
            (F::PositionLost, None),
            "the medium may have changed",
            "take the inventory again and mount the volume again",
        ),
        harmless(
            "TC-D014",
            K::UnitAttention,
            ALL,
            "something about the device has changed that does not matter here",
        ),
        sense(
            "TC-P015",
            Some(K::HardwareError),
            any(0x10),
            (F::Garbled, PATH),
            "a record reached the drive without its sum (CRC-32C): it was changed on the way",
            "nothing of it counts; check cable, host adapter and drive; it is written again",
        ),
        sense(
            "TC-P016",
            Some(K::AbortedCommand),
            any(0x10),
            (F::Garbled, PATH),
            "a record reached the drive without its sum (CRC-32C): it was changed on the way",
            "nothing of it counts; check cable, host adapter and drive; it is written again",
        ),
        sense(
            "TC-P017",
            Some(K::IllegalRequest),
            any(0x10),
            (F::Garbled, PATH),
            "a record reached the drive without its sum (CRC-32C): it was changed on the way",
            "nothing of it counts; check cable, host adapter and drive; it is written again",
        ),
        sense(
            "TC-L018",
            None,
            asc(0x3B, 0x0D, 0x0D),
            (F::DestinationFull, LIBRARY),
            "the destination element holds a cartridge already",
            "take the inventory again",
        ),
        sense(
            "TC-L019",
            None,
            asc(0x3B, 0x0E, 0x0E),
            (F::SourceEmpty, LIBRARY),
            "the source element is empty",
            "take the inventory again",
        ),
        sense(
            "TC-L020",
            None,
            any(0x53),
            (F::Prevented, LIBRARY),
            "the cartridge cannot be taken (removal is prevented or it is stuck)",
            "unload the drive first; if it stays, look at the library",
        ),
        sense(
            "TC-D021",
            Some(K::NotReady),
            ALL,
            (F::NotReady, None),
            "the device is not ready",
            "look at the device; it may be offline, open or in need of an operator",
        ),
        sense(
            "TC-M022",
            Some(K::MediumError),
            ALL,
            (F::MediumError, MEDIUM),
            "the medium has an error here",
            "use another copy; then copy what is readable to another volume and retire this one",
        ),
        sense(
            "TC-D024",
            Some(K::HardwareError),
            ALL,
            (F::HardwareError, None),
            "the device reports a hardware error",
            "take the device out of use and have it serviced; try the volume elsewhere",
        ),
        sense(
            "TC-U025",
            Some(K::IllegalRequest),
            ALL,
            (F::Refused, US),
            "the device refused the command",
            "check that the device supports LTFS (partitions, LTO-5 or later); otherwise report this",
        ),
        sense(
            "TC-M026",
            Some(K::BlankCheck),
            ALL,
            (F::DataMissing, MEDIUM),
            "the medium ends here, before data recorded as safe",
            "use another copy; check this volume",
        ),
        sense(
            "TC-P027",
            Some(K::AbortedCommand),
            ALL,
            (F::NoAnswer, PATH),
            "the command was aborted on its way",
            "check cabling and host adapter; the volume is tried again",
        ),
        sense(
            "TC-M028",
            Some(K::VolumeOverflow),
            ALL,
            (F::Full, MEDIUM),
            "the volume is full",
            "go on with another volume",
        ),
        UNKNOWN,
        other(
            "TC-D030",
            When::Status(0x18),
            (F::Reserved, None),
            "another host has reserved the device",
            "stop the other host, or take from it a drive with `thermo drive up N --preempt`, a library with `thermo down`, `thermo up --preempt`",
        ),
        other(
            "TC-P031",
            When::NoAnswer,
            (F::NoAnswer, PATH),
            "the device does not answer",
            "check cabling, host adapter and power; data after the last flush must be written again",
        ),
        other(
            "TC-U032",
            When::NotSent,
            (F::NotSent, US),
            "this machine does not send the command",
            "correct what the message names; nothing was done",
        ),
        other(
            "TC-D033",
            When::PositionUnknown,
            (F::PositionLost, None),
            "the position on the medium is lost",
            "mount the volume again; data after the last flush must be written again",
        ),
        other(
            "TC-D034",
            When::Nonsense,
            (F::HardwareError, None),
            "the device gave an answer that makes no sense",
            "look at the device; report its answer",
        ),
        other(
            "TC-M040",
            When::Found,
            (F::Alert, MEDIUM),
            "a TapeAlert flag about the cartridge is active: nothing is written; or it was raised while a volume was in the drive",
            "copy what is on the volume to another one and retire it",
        ),
        other(
            "TC-D041",
            When::Found,
            (F::Alert, DRIVE),
            "a TapeAlert flag about the drive is active: nothing is written; or it was raised while a volume was in the drive",
            "clean or service the drive; the volume can be written in another one",
        ),
        other(
            "TC-D042",
            When::Found,
            (F::WrongPosition, DRIVE),
            "the drive stands elsewhere than expected",
            "mount the volume again and see whether something else uses the drive",
        ),
        other(
            "TC-M045",
            When::Found,
            (F::BadRecord, MEDIUM),
            "what was read is not what was recorded",
            "use another copy; then check this volume",
        ),
        other(
            "TC-P047",
            When::Found,
            (F::Garbled, PATH),
            "a record was changed on its way to memory",
            "nothing of it was used; check cable, host adapter and drive",
        ),
        other(
            "TC-M048",
            When::Found,
            (F::WrongVolume, MEDIUM),
            "the cartridge is not the one expected",
            "look where the right one is; correct its barcode",
        ),
        other(
            "TC-M049",
            When::Found,
            (F::ForeignWriter, MEDIUM),
            "somebody else wrote to the volume",
            "find out who; check the volume",
        ),
        other(
            "TC-M050",
            When::Found,
            (F::NotLtfs, MEDIUM),
            "the cartridge carries no LTFS label, or a damaged one",
            "put the right cartridge there, or label it again if nothing on it is needed",
        ),
        other(
            "TC-M051",
            When::Found,
            (F::NoIndex, MEDIUM),
            "no consistent index was found",
            "use another copy; check this volume",
        ),
        other(
            "TC-U052",
            When::Found,
            (F::Key, US),
            "the key of an encrypted volume cannot be had",
            "see [encryption] in the configuration",
        ),
        other(
            "TC-D053",
            When::Found,
            (F::Key, DRIVE),
            "the drive does not encrypt",
            "use a drive that encrypts, or enable its encryption",
        ),
        other("TC-U054", When::Found, (F::Refused, US), "what was asked for is refused", "see the message"),
        other(
            "TC-U055",
            When::Found,
            (F::Misuse, US),
            "catalogue or disk failed, or a call makes no sense",
            "see the message and the log",
        ),
        other(
            "TC-D056",
            When::Found,
            (F::Misuse, DRIVE),
            "a defect ended the drive's thread",
            "restart the node; report this with the log",
        ),
        other(
            "TC-L057",
            When::Found,
            (F::NotReady, LIBRARY),
            "nobody can get at the volume",
            "see `thermo drive ls` and `thermo library show`",
        ),
        other(
            "TC-M058",
            When::Found,
            (F::BreaksDrives, MEDIUM),
            "two drives failed one after the other with the same volume",
            "look at the cartridge before it is used again",
        ),
        other(
            "TC-L059",
            When::Found,
            (F::InventoryStale, LIBRARY),
            "somebody else may have moved cartridges (a door was opened, or the library was reset): nothing was moved",
            "none: the inventory is taken, and the move tried again",
        ),
    ]
};
