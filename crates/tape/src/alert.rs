//! TapeAlert flags (SSC-4 annex A): what they say of the cartridge, and what of the drive.

use crate::head::Head;
use crate::{Blame, Fault, TapeError};

/// Flag "lost statistics", the only one with which a volume is still written.
const LOST_STATISTICS: u8 = 0x32;

/// Flags that tell what was asked of a drive, and was answered with an error then, or speak of cleaning: when a session ends
/// they say nothing of the health of cartridge or drive.
const OF_THE_WORK: [u8; 10] = [9, 10, 11, 12, 17, 20, 21, 22, 23, 60];

/// How a cartridge left its drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unloaded {
    /// TapeAlert flags that the drive raised since it was asked last.
    pub alerts: Vec<u8>,
    /// What they say of the health of cartridge and drive: one error for each of the two at most.
    pub troubles: Vec<TapeError>,
}

/// Why nothing is written while these flags are active.
pub(crate) fn against_writing(head: &Head, doing: &str, flags: &[u8]) -> Option<TapeError> {
    let &flag = flags.iter().find(|&&flag| flag != LOST_STATISTICS)?;
    let what = format!("nothing is written while TapeAlert flag {flag} is active (flags {flags:?})");
    Some(error(head, blame(flag), doing, what))
}

/// What flags that a session leaves behind say.
pub(crate) fn troubles(head: &Head, flags: &[u8]) -> Vec<TapeError> {
    let of = |whose: Blame| {
        let matters =
            |flag: &&u8| **flag != LOST_STATISTICS && !OF_THE_WORK.contains(flag) && blame(**flag) == whose;
        let raised: Vec<u8> = flags.iter().filter(matters).copied().collect();
        let what = format!("TapeAlert was raised while the volume was in the drive (flags {raised:?})");
        (!raised.is_empty()).then(|| error(head, whose, "unloading", what))
    };
    [Blame::Medium, Blame::Drive].into_iter().filter_map(of).collect()
}

fn blame(flag: u8) -> Blame {
    match flag {
        1..=9 | 12 | 13 | 15..=19 | 51..=54 | 59 | 60 => Blame::Medium,
        _ => Blame::Drive,
    }
}

fn error(head: &Head, blame: Blame, doing: &str, what: String) -> TapeError {
    let advice = match blame {
        Blame::Medium => "copy what is on the volume to another one and retire it",
        _ => "clean or service the drive; the volume can be written in another one",
    };
    head.error(Fault::Alert, blame, doing, what, advice)
}
