//! What a sense code means: the retry table. Codes from SPC-5 annex F and the LTO SCSI references.

use crate::{Blame, Fault};
use scsi::{ScsiError, Sense, SenseKey, TransportError};

/// How to go on after a CHECK CONDITION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The device becomes ready by itself: ask again after a pause.
    Wait,
    /// A unit attention that changes nothing: the command was not executed, send it again.
    Again,
    /// Failed for good.
    Failed(Failure),
}

/// A classified failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub fault: Fault,
    pub blame: Blame,
    pub what: &'static str,
    pub advice: &'static str,
}

/// Kind of device that answered: some codes point elsewhere in a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Drive,
    Library,
}

impl Device {
    pub(crate) fn blame(self) -> Blame {
        match self {
            Device::Drive => Blame::Drive,
            Device::Library => Blame::Library,
        }
    }
}

const fn fail(fault: Fault, blame: Blame, what: &'static str, advice: &'static str) -> Verdict {
    Verdict::Failed(Failure { fault, blame, what, advice })
}

/// Classifies sense data of a failed command. End-of-medium, filemark and end-of-data conditions that are part of
/// normal work are handled by the callers before they ask.
pub(crate) fn classify(sense: &Sense, device: Device) -> Verdict {
    by_code(sense, device).unwrap_or_else(|| by_key(sense.key, device))
}

/// Codes that say more than their key. A sum that is wrong (10h) is the medium's fault only with the key of such.
fn by_code(sense: &Sense, device: Device) -> Option<Verdict> {
    use Blame as B;
    use Fault as F;
    use SenseKey as K;
    Some(match (sense.key, sense.asc, sense.ascq) {
        (K::NotReady, 0x04, 0x01 | 0x07) => Verdict::Wait,
        (K::NotReady, 0x3a, _) => fail(
            F::NotReady,
            device.blame(),
            "no cartridge is loaded",
            "load a cartridge or update the inventory",
        ),
        (_, 0x30, 0x03 | 0x07) => {
            fail(F::Cleaning, B::Medium, "a cleaning cartridge is loaded", "unload it; it holds no data")
        }
        (_, 0x30, 0x0c) => fail(
            F::WriteProtected,
            B::Medium,
            "the cartridge is of WORM medium: what is on it cannot be overwritten",
            "use a cartridge that can be rewritten",
        ),
        (_, 0x74, _) => locked(sense.ascq),
        (_, 0x30, 0x10) | (K::DataProtect, _, _) => fail(
            F::WriteProtected,
            B::Medium,
            "the cartridge is write protected",
            "move the write-protect tab, or mark the volume read-only",
        ),
        (_, 0x30, _) => fail(
            F::MediumError,
            B::Medium,
            "the drive cannot use this cartridge (generation or format)",
            "use a drive that reads this generation of media",
        ),
        (K::UnitAttention, 0x29, _) => fail(
            F::PositionLost,
            device.blame(),
            "the device was reset; the position on the medium is lost",
            "mount the volume again; data after the last flush must be written again",
        ),
        (K::UnitAttention, 0x28, _) => fail(
            F::PositionLost,
            device.blame(),
            "the medium may have changed",
            "take the inventory again and mount the volume again",
        ),
        (K::UnitAttention, _, _) => Verdict::Again,
        (K::HardwareError | K::AbortedCommand | K::IllegalRequest, 0x10, _) => fail(
            F::Garbled,
            B::Path,
            "a record reached the drive without its sum (CRC-32C): it was changed on the way",
            "nothing of it counts; check cable, host adapter and drive; it is written again",
        ),
        (_, 0x3b, 0x0d) => fail(
            F::DestinationFull,
            B::Library,
            "the destination element holds a cartridge already",
            "take the inventory again",
        ),
        (_, 0x3b, 0x0e) => SOURCE_EMPTY,
        (_, 0x53, _) => fail(
            F::Prevented,
            B::Library,
            "the cartridge cannot be taken (removal is prevented or it is stuck)",
            "unload the drive first; if it stays, look at the library",
        ),
        _ => return None,
    })
}

const SOURCE_EMPTY: Verdict =
    fail(Fault::SourceEmpty, Blame::Library, "the source element is empty", "take the inventory again");

/// Security errors: encryption by the drive.
fn locked(ascq: u8) -> Verdict {
    match ascq {
        0x02 => fail(
            Fault::Key,
            Blame::Medium,
            "what is here is not encrypted, although the volume is",
            "somebody else wrote to the volume, or exchanged it; use another copy and look into it",
        ),
        _ => fail(
            Fault::Key,
            Blame::Us,
            "the volume is encrypted, and the drive cannot read it with the key that it was given",
            "see that the key of this name is still the same in the source of keys ([encryption])",
        ),
    }
}

/// What the sense key alone says.
fn by_key(key: SenseKey, device: Device) -> Verdict {
    use Blame as B;
    use Fault as F;
    use SenseKey as K;
    match key {
        K::NotReady => fail(
            F::NotReady,
            device.blame(),
            "the device is not ready",
            "look at the device; it may be offline, open or in need of an operator",
        ),
        K::MediumError => fail(
            F::MediumError,
            B::Medium,
            "the medium has an error here",
            "use another copy; then copy what is readable to another volume and retire this one",
        ),
        K::HardwareError => fail(
            F::HardwareError,
            device.blame(),
            "the device reports a hardware error",
            "take the device out of use and have it serviced; try the volume elsewhere",
        ),
        K::IllegalRequest => fail(
            F::Refused,
            B::Us,
            "the device refused the command",
            "check that the device supports LTFS (partitions, LTO-5 or later); otherwise report this",
        ),
        K::BlankCheck => fail(
            F::DataMissing,
            B::Medium,
            "the medium ends here, before data recorded as safe",
            "use another copy; check this volume",
        ),
        K::AbortedCommand => fail(
            F::NoAnswer,
            B::Path,
            "the command was aborted on its way",
            "check cabling and host adapter; the volume is tried again",
        ),
        K::VolumeOverflow => fail(F::Full, B::Medium, "the volume is full", "go on with another volume"),
        _ => fail(
            F::HardwareError,
            device.blame(),
            "the device gave an answer that is not in the tables",
            "look at the device; report the sense code",
        ),
    }
}

/// What a command's failure means when it is final, and what happened in words.
pub(crate) fn explain(error: &ScsiError, device: Device) -> (Failure, String) {
    let verdict = match error {
        ScsiError::Check { sense, .. } => classify(sense, device),
        other => without_sense(other, device),
    };
    let failure = match verdict {
        Verdict::Failed(failure) => failure,
        Verdict::Wait | Verdict::Again => Failure {
            fault: Fault::NotReady,
            blame: device.blame(),
            what: "the device does not become ready",
            advice: "look at the device, and see whether another program uses it",
        },
    };
    let what = match error {
        ScsiError::Check { .. } => failure.what.to_owned(),
        other => format!("{} ({other})", failure.what),
    };
    (failure, what)
}

/// Commands that ended without sense.
fn without_sense(error: &ScsiError, device: Device) -> Verdict {
    match error {
        ScsiError::Status { status: 0x18, .. } => fail(
            Fault::Reserved,
            device.blame(),
            "another host has reserved the device",
            "stop the other host, or take the device from it with --preempt",
        ),
        ScsiError::Transport(TransportError::Timeout { .. } | TransportError::Lost { .. }) => fail(
            Fault::NoAnswer,
            Blame::Path,
            "the device does not answer",
            "check cabling, host adapter and power; data after the last flush must be written again",
        ),
        ScsiError::Transport(TransportError::Refused { .. }) => fail(
            Fault::Misuse,
            Blame::Us,
            "this machine does not send the command",
            "correct what the message names; nothing was done",
        ),
        ScsiError::PositionUnknown { .. } => fail(
            Fault::PositionLost,
            device.blame(),
            "the position on the medium is lost",
            "mount the volume again; data after the last flush must be written again",
        ),
        _ => fail(
            Fault::HardwareError,
            device.blame(),
            "the device gave an answer that makes no sense",
            "look at the device; report its answer",
        ),
    }
}
