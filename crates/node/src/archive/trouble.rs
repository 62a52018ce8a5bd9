//! Errors of tape work that the node itself finds.

use tape::{Blame, Fault, TapeError};
use types::Barcode;

fn error(
    blame: Blame,
    fault: Fault,
    volume: &Barcode,
    doing: &str,
    what: String,
    advice: &'static str,
) -> TapeError {
    TapeError {
        blame,
        fault,
        volume: Some(volume.clone()),
        drive: "".into(),
        doing: doing.into(),
        what: what.into(),
        sense: None,
        advice,
    }
}

/// The bytes on a volume are not what was recorded.
pub fn damaged(volume: &Barcode, what: String) -> TapeError {
    let advice = "the other copy is used; run `thermo check --tapes --deep` and replace the volume";
    error(Blame::Medium, Fault::BadRecord, volume, "comparing digests", what, advice)
}

/// Nobody can get at a volume.
pub fn unreachable(volume: &Barcode, why: String) -> TapeError {
    let advice = "see `thermo drive ls` and `thermo library show`";
    error(Blame::Library, Fault::NotReady, volume, "fetching it", why, advice)
}

/// A drive cannot be used.
pub fn no_drive(volume: &Barcode, what: &str) -> TapeError {
    let advice = "look at the drive, its power and its cable, then `thermo drive up`";
    error(Blame::Path, Fault::NoAnswer, volume, "opening the drive", what.to_owned(), advice)
}

/// A drive is not where the configuration says.
pub fn misplaced(what: String) -> TapeError {
    let advice = "put the configuration right, and `thermo reload`";
    error(Blame::Us, Fault::Misuse, &Barcode::default(), "opening the drive", what, advice)
}

/// A defect of ours ended a drive's thread.
pub fn defect(volume: &Barcode, why: &str) -> TapeError {
    let advice = "the drive is out of use until the node is restarted; report this with the log";
    let what = format!("a defect ended the drive's thread: {why}");
    error(Blame::Drive, Fault::Misuse, volume, "working", what, advice)
}

/// Catalogue or disk failed while a volume was in use: the volume is not at fault.
pub fn ours(volume: &Barcode, doing: &str, what: impl ToString) -> TapeError {
    let advice =
        "nothing was lost and nothing counts that is not recorded; see the log, the work is tried again";
    error(Blame::Us, Fault::Misuse, volume, doing, what.to_string(), advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::policy::Then;

    #[test]
    fn what_the_node_finds_has_codes_too() {
        let volume = Barcode::from("TC0001L9");
        for (error, code, then) in [
            (damaged(&volume, "w".into()), "TC-M045", Then::OtherVolume),
            (unreachable(&volume, "w".into()), "TC-L057", Then::MoveAgain),
            (no_drive(&volume, "w"), "TC-P031", Then::OtherDrive),
            (defect(&volume, "w"), "TC-D056", Then::OtherDrive),
            (ours(&volume, "d", "w"), "TC-U055", Then::Operator),
        ] {
            assert_eq!((error.code(), error.then()), (code, then), "{error}");
            assert!(error.to_string().starts_with(&format!("{code}: volume TC0001L9")), "{error}");
        }
    }
}
