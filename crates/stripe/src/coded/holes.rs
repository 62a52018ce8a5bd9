//! Rows without bytes of a file that another writer has left: where it was made longer, or written behind its end. Written whole, they go to their columns at once, as those
//! behind the end do.

use super::Coded;
use crate::opened::Place;
use crate::read::helps;
use crate::{Result, Striped};
use data::Ticket;
use data::frame::Op;
use std::ops::Range;

/// So many bytes of seals are read at once, at most, but one seal at least ...
const BYTES: usize = 1 << 20;
/// ... and those of so many rows.
const ROWS: u64 = 64;

impl Striped {
    /// Takes note of which of these rows have no bytes, but for what was written here. A row whose seal a machine has lost with power counts as one: nothing that was durable
    /// is in it.
    pub(super) fn look_for_holes(&self, number: usize, coded: &Coded, rows: Range<u64>) -> Result<()> {
        let most = (BYTES / coded.shape.seal_len()).clamp(1, ROWS as usize) as u64;
        for run in rows.start / most..rows.end.div_ceil(most) {
            let rows = {
                let log = coded.log.lock();
                let rows = run * most..((run + 1) * most).min(log.rows);
                if rows.is_empty() || log.looked.contains(&run) {
                    continue;
                }
                rows
            };
            let Some(holes) = self.holes(number, coded, rows)? else { continue };
            let mut log = coded.log.lock();
            // What was written of them meanwhile is known as written.
            log.holes.extend(holes);
            log.looked.insert(run);
        }
        Ok(())
    }

    /// Those of these rows of which the first copy of the seals that answers says nothing; None: none answers.
    fn holes(&self, number: usize, coded: &Coded, rows: Range<u64>) -> Result<Option<Vec<u64>>> {
        let length = coded.shape.seal_len();
        let read = |journal: &Place| {
            let (offset, length) =
                (coded.shape.seal_at(rows.start), (rows.end - rows.start) as usize * length);
            let asked = self.submit(&Place { offset, length, ..*journal }, Op::Read, Vec::new());
            let mut seals = asked.and_then(Ticket::wait)?.bytes;
            seals.resize(length, 0);
            Ok(seals)
        };
        for journal in self.journals(number, coded) {
            if !self.is_present(number, journal.column) {
                continue;
            }
            match read(&journal) {
                Ok(seals) => {
                    let empty = |seal: &[u8]| seal.iter().all(|byte| *byte == 0);
                    let each = rows.clone().zip(seals.chunks(length));
                    let holes = each.filter(|(_, seal)| empty(seal)).map(|(row, _)| row);
                    return Ok(Some(holes.collect()));
                }
                Err(e) if helps(&e) => self.missed(number, journal.column, &e),
                Err(source) => return Err(self.failed(number, journal.column, source)),
            }
        }
        Ok(None)
    }
}
