//! Cartridges that break drives. A drive that fails is taken out of use, and its volume goes to the next one: a torn tape or
//! a bent leader would so take out one drive after the other. When a second drive fails with a volume that has done
//! nothing well since the first, the volume is at fault.

use super::worker::Done;
use std::collections::BTreeMap;
use tape::policy::Then;
use tape::{Blame, Fault, TapeError};
use types::{Barcode, DriveNo};

/// Volumes that a drive has failed with, and which.
#[derive(Default)]
pub struct Breaks(BTreeMap<Barcode, DriveNo>);

impl Breaks {
    /// What is to be made of how a job ended.
    pub fn judge(
        &mut self,
        drive: DriveNo,
        volume: &Barcode,
        result: Result<Done, TapeError>,
    ) -> Result<Done, TapeError> {
        let e = match result {
            Ok(done) => {
                if !matches!(done, Done::Unmounted) {
                    self.0.remove(volume);
                }
                return Ok(done);
            }
            Err(e) => e,
        };
        // A path or another host says nothing about the cartridge.
        let mechanical = matches!(e.fault, Fault::HardwareError | Fault::Prevented);
        if !mechanical || e.then() != Then::OtherDrive {
            return Err(e);
        }
        let Some(before) = self.0.insert(volume.clone(), drive).filter(|before| *before != drive) else {
            return Err(e);
        };
        let sense = e.sense.map(|s| format!(" [{s}]")).unwrap_or_default();
        Err(TapeError {
            blame: Blame::Medium,
            fault: Fault::BreaksDrives,
            what: format!("{}{sense}; drive {before} failed with this volume before", e.what).into(),
            sense: None,
            advice: "the volume is suspect, not the second drive; look at the cartridge before it is used again",
            ..e
        })
    }
}
