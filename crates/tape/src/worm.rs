//! Media that can be written once: nothing on them is ever replaced. They carry sections only ([`crate::SectionWriter`]): the
//! index partition of an LTFS volume is written again and again, and LTO media of this kind cannot be partitioned.
//!
//! What a crash leaves behind the last section that counts stays there for good. Before anything more is written it is closed:
//! a filemark and the labels of a *void* section that begins where the leftovers do. So the way back from the end of the
//! volume, section by section, never leads into them (`docs/formats/ansi-tar.md`).

use crate::head::Place;
use crate::section::{GROUP, PARTITION, WRITING, put_group, room};
use crate::{Blame, Fault, LabelState, Mounted, Result};
use format::ansi::{Ending, SectionLabel, Trailer};
use scsi::Ssc;

impl Mounted<'_> {
    /// The cartridge can be written once only.
    pub fn worm(&self) -> bool {
        self.worm
    }

    /// Fails on a medium of which nothing can be written again.
    pub(crate) fn rewritable(&self, doing: &str) -> Result<()> {
        if !self.worm {
            return Ok(());
        }
        let what = "the cartridge is of WORM medium: the index of an LTFS volume could not be replaced on it";
        let advice = "nothing was written; label it as `ansi-tar`, or use a cartridge that can be rewritten";
        Err(self.drive.head.error(Fault::WriteProtected, Blame::Medium, doing, what, advice))
    }

    /// Fails if the cartridge is of WORM medium and not blank: it has its label for life.
    pub(crate) fn not_yet_labelled(&self, doing: &str) -> Result<()> {
        if !self.worm || self.label == LabelState::Blank {
            return Ok(());
        }
        let what = format!(
            "the cartridge is of WORM medium and carries {}: it can never be labelled again",
            self.label.describe()
        );
        let advice = "nothing was written; use a blank cartridge";
        Err(self.drive.head.error(Fault::Refused, Blame::Us, doing, what, advice))
    }

    /// Closes what lies where the section of this label was to go; returns the block behind it, where the section goes instead.
    pub(crate) fn close_leftovers(&mut self, label: &SectionLabel) -> Result<u64> {
        let head = self.head();
        head.forget_position();
        head.attempt("going to the end of data", Ssc::space_to_end_of_data)?;
        let end = head.ask_position()?.block;
        let left = end.saturating_sub(label.first_block);
        // The labels of a section and its data are at least so long.
        let padding = GROUP.saturating_sub(left);
        let trailer = Trailer { ending: Ending::Void, blocks: left.saturating_sub(GROUP), bytes: 0 };
        let void = label.trailer(&trailer).map_err(|e| {
            let advice = "report this; nothing was written";
            head.error(Fault::Misuse, Blame::Us, WRITING, e.to_string(), advice)
        })?;
        let wrote = head.filemarks(1 + padding as u32, true)?;
        room(head, WRITING, wrote)?;
        put_group(head, &void, false)?;
        let block = end + padding + 1 + GROUP;
        head.verify(WRITING, Place { partition: PARTITION, block })?;
        Ok(block)
    }
}
