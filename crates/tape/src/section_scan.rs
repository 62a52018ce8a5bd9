//! The short way to all that a volume without partitions tells, where an index of the whole volume is the last on it: the way to
//! the end of data, and one step back.

use crate::head::{Item, Place};
use crate::index_scan::{drain, not_there};
use crate::records::RecordSource;
use crate::section::{FIRST, GROUP, PARTITION};
use crate::{Contents, Mounted, Result, SectionPoint, Told};
use format::ltfs::index::{IndexEvent, IndexHeader, parse};
use format::tar::volume;
use scsi::SpaceOutcome;
use std::ops::ControlFlow;

const READING: &str = "reading what is on the volume";
/// Filemarks from the end of data back to the front of the last section: behind its labels, behind its data, before it.
const MARKS: i64 = 3;

impl Mounted<'_> {
    /// Reads the index of the whole volume that ends it and hands it to `visit`. None, with nothing handed out, if the last
    /// section is something else: then [`Mounted::contents`] looks for the newest.
    ///
    /// # Errors
    /// Index or labels are damaged, or the drive failed: what was handed out before is not all. [`Mounted::contents`] tells
    /// what there is.
    pub fn scan_contents(
        &mut self,
        visit: &mut dyn FnMut(Told<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Contents>> {
        let Some(label) = self.ansi().cloned() else { return Ok(None) };
        let end = self.end_of_sections()?;
        let head = self.head();
        head.forget_position();
        let back = head.attempt("going back to a filemark", |ssc| ssc.space_filemarks(-MARKS))?;
        let mark = head.ask_position()?.block;
        let first_block = (mark + 1).checked_sub(GROUP).filter(|block| *block >= FIRST);
        let Some(first_block) = first_block.filter(|_| back == SpaceOutcome::Done) else { return Ok(None) };
        head.locate(Place { partition: PARTITION, block: mark })?;
        if head.read(&mut [0; 1])? != Item::Filemark {
            return Ok(None);
        }
        let mut source = RecordSource::new(head, label.block_size as usize);
        let parts = match volume::Parts::open(&mut source) {
            Ok(Some(parts)) => parts,
            Ok(None) | Err(_) => {
                return source.error.take().filter(|e| !not_there(e.fault)).map_or(Ok(None), Err);
            }
        };
        let (mut header, mut flow): (Option<IndexHeader>, _) = (None, ControlFlow::Continue(()));
        let point = |header: &IndexHeader| SectionPoint {
            uuid: label.uuid.clone(),
            block: end,
            section: header.generation,
        };
        let parsed = parse(parts, &mut |event| {
            if let IndexEvent::Header(found) = &event {
                if found.volume_uuid != label.uuid || found.location.block != first_block {
                    return ControlFlow::Break(());
                }
                header = Some((*found).clone());
                flow = visit(Told::End(&point(found)));
            }
            if flow.is_continue() {
                flow = visit(Told::Event(event));
            }
            flow
        });
        let ended = drain(&mut source);
        let error = source.error.take();
        let Some(header) = header else {
            return error.filter(|e| !not_there(e.fault)).map_or(Ok(None), Err);
        };
        if let Some(error) = error {
            return Err(error);
        }
        if let Err(error) = parsed {
            return Err(self.head().bad_record(READING, error.to_string()));
        }
        // The labels behind it, at which the head stands, say whether the section counts.
        let section = if ended == Some(Item::Filemark) { self.section_before(end)? } else { None };
        let right = section.filter(|found| !found.is_void()).is_some_and(|found| {
            found.label.first_block == first_block && found.label.section == header.generation
        });
        if !right {
            let what = "the labels behind the index of the volume are not those of its section";
            return Err(self.head().bad_record(READING, what));
        }
        Ok(Some(Contents { end: point(&header), index: Some(header), behind: 0 }))
    }
}
