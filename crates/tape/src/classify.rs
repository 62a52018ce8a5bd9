//! What a failed command means, by the table of errors.

use crate::policy::{self, Row, Then, When};
use crate::{Blame, Fault};
use scsi::{ScsiError, Sense, TransportError};

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

/// Classifies sense data of a failed command. End-of-medium, filemark and end-of-data conditions that are part of
/// normal work are handled by the callers before they ask.
pub(crate) fn classify(sense: &Sense, device: Device) -> Verdict {
    verdict(policy::of_sense(sense), device)
}

fn verdict(row: &'static Row, device: Device) -> Verdict {
    let blame = row.blame.unwrap_or(device.blame());
    match (row.fault, row.then(blame)) {
        (Some(fault), _) => Verdict::Failed(Failure { fault, blame, what: row.what, advice: row.advice }),
        (None, Then::Wait) => Verdict::Wait,
        (None, _) => Verdict::Again,
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
    let when = match error {
        ScsiError::Status { status: 0x18, .. } => When::Status(0x18),
        ScsiError::Transport(
            TransportError::Timeout { .. } | TransportError::Lost { .. } | TransportError::Garbled { .. },
        ) => When::NoAnswer,
        ScsiError::Transport(TransportError::Refused { .. }) => When::NotSent,
        ScsiError::PositionUnknown { .. } => When::PositionUnknown,
        _ => When::Nonsense,
    };
    verdict(policy::of(when), device)
}
