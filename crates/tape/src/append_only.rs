//! Append-only mode of a drive: it writes behind the end of data, or where it was told just before that something may be
//! replaced; anywhere else it refuses. So a write that goes astray, by a mistake of ours or because the drive is not where it
//! seems to be, destroys nothing.
//!
//! It is switched on at each mount (drives allow that at the beginning of a tape only) and off when the tape has left, because
//! other programs do not expect it. What is replaced on purpose is named each time, behind a check of the position: what a crash
//! left behind the verified end of a volume, the index partition, and labels.

use crate::head::{Head, Place};
use crate::{Drive, Result};
use scsi::Ssc;

const DOING: &str = "setting append-only mode";
const ALLOWING: &str = "allowing that something is replaced";

impl Drive {
    /// Switches it on, as far as drive and settings have it.
    pub(crate) fn keep_what_is_written(&mut self) -> Result<()> {
        let wanted = self.settings.append_only;
        let head = &mut self.head;
        head.append_only = match head.attempt(DOING, Ssc::append_only)? {
            // It can be switched off without a tape only.
            Some(true) => true,
            Some(false) if wanted => {
                head.locate(Place { partition: 0, block: 0 })?;
                head.attempt(DOING, |ssc| ssc.set_append_only(true))?;
                // A drive that has the page, but not the mode, leaves it as it was.
                head.attempt(DOING, Ssc::append_only)? == Some(true)
            }
            _ => false,
        };
        Ok(())
    }

    /// The tape has left: other programs find the drive as they know it.
    pub(crate) fn forget_append_only(&mut self, was_on: bool) {
        if was_on {
            // The next mount asks how it is set, whatever this comes to.
            let _ = self.head.ssc.set_append_only(false);
        }
    }
}

impl Head {
    /// What lies at and behind `place`, where the head stands, may be replaced by the next write.
    pub(crate) fn allow_replacing(&mut self, place: Place) -> Result<()> {
        match self.append_only {
            true => self.attempt(ALLOWING, |ssc| ssc.allow_overwrite(place.partition, place.block)),
            false => Ok(()),
        }
    }

    /// The medium may be formatted; the head stands at its beginning.
    pub(crate) fn allow_format(&mut self) -> Result<()> {
        match self.append_only {
            true => self.attempt(ALLOWING, Ssc::allow_format),
            false => Ok(()),
        }
    }
}
