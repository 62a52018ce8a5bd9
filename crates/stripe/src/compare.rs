//! Comparing: every copy and all parity is read and held against the others, as it lies on the targets. Nothing is changed.

use crate::opened::Place;
use crate::repair::STEP;
use crate::{Result, Striped};
use data::frame::Op;
use data::{DataError, Reply, Ticket};
use std::ops::Range;
use std::time::Duration;
use types::ErrorClass;

/// What does not belong together is looked at so often, after such a pause each: somebody may just be writing it, or folding a log.
const LOOKS: usize = 10;
const PAUSE: Duration = Duration::from_millis(200);
/// After so many differences no more are looked for.
const MOST: usize = 8;

/// What a comparison has found.
#[derive(Debug, Default)]
pub struct Compared {
    /// Bytes that were read, of all columns.
    pub bytes: u64,
    /// What does not belong together, or cannot be read, in words; the first eight.
    pub differences: Vec<String>,
}

impl Striped {
    /// Reads every column that counts, with its sums, compares copies with each other, and computes parity anew. Between two steps `goes_on` is asked.
    ///
    /// # Errors
    /// `Mover`: one of them does not answer.
    pub fn compare(&self, goes_on: &dyn Fn() -> bool) -> Result<Compared> {
        let mut compared = Compared::default();
        for number in 0..self.layout.components.len() {
            match &self.coded[number] {
                Some(coded) => self.compare_rows(number, coded, goes_on, &mut compared)?,
                None => self.compare_copies(number, goes_on, &mut compared)?,
            }
        }
        Ok(compared)
    }

    /// Notes what `look` finds, if it stays. It is told whether it is asked again.
    pub(crate) fn note_what_stays(
        &self,
        compared: &mut Compared,
        look: &dyn Fn(bool) -> Result<Option<String>>,
    ) -> Result<()> {
        let mut found = self.renewing(|| look(false))?;
        for _ in 1..LOOKS {
            if found.is_none() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
            found = self.renewing(|| look(true))?;
        }
        compared.differences.extend(found);
        Ok(())
    }

    fn compare_copies(
        &self,
        number: usize,
        goes_on: &dyn Fn() -> bool,
        compared: &mut Compared,
    ) -> Result<()> {
        let shape = &self.layout.components[number];
        for first in 0..shape.targets.len() as u16 {
            let group = shape.replicas(first);
            if group.start != first {
                continue;
            }
            let copies: Vec<Place> = self
                .own_places(number)
                .filter(|place| group.contains(&place.column) && self.is_present(number, place.column))
                .collect();
            self.note_what_stays(compared, &|_| self.lengths_differ(&copies))?;
            let length = copies
                .iter()
                .map(|place| self.object_length(place))
                .try_fold(0, |longest, length| length.map(|length| longest.max(length.unwrap_or(0))))?;
            for at in (0..length).step_by(STEP as usize) {
                if !goes_on() || compared.is_full() {
                    return Ok(());
                }
                let range = at..length.min(at + STEP);
                compared.bytes += (range.end - range.start) * copies.len() as u64;
                self.note_what_stays(compared, &|_| self.bytes_differ(&copies, range.clone()))?;
            }
        }
        Ok(())
    }

    /// None: there is none.
    fn object_length(&self, place: &Place) -> Result<Option<u64>> {
        let answer = self.submit(place, Op::Stat, Vec::new()).and_then(Ticket::wait);
        Ok(self.found(place, answer)?.ok().map(|reply| reply.object_length))
    }

    fn lengths_differ(&self, copies: &[Place]) -> Result<Option<String>> {
        let mut first: Option<(&Place, u64)> = None;
        for place in copies {
            let answer = self.submit(place, Op::Stat, Vec::new()).and_then(Ticket::wait);
            let length = match self.found(place, answer)? {
                Ok(reply) => reply.object_length,
                Err(why) => return Ok(Some(why)),
            };
            match first {
                Some((other, known)) if known != length => {
                    return Ok(Some(format!(
                        "its copy on target {} has {known} bytes, that on target {} {length}",
                        self.target(other.component, other.column),
                        self.target(place.component, place.column)
                    )));
                }
                _ => first = Some((place, length)),
            }
        }
        Ok(None)
    }

    /// Whether copies have something else in a range of their objects, or one of them cannot be read there.
    fn bytes_differ(&self, copies: &[Place], range: Range<u64>) -> Result<Option<String>> {
        let length = (range.end - range.start) as usize;
        let ask = |place: &Place| {
            let place = Place { offset: range.start, length, ..*place };
            (place, self.submit(&place, Op::Read, Vec::new()))
        };
        let asked: Vec<(Place, data::Result<Ticket>)> = copies.iter().map(ask).collect();
        let mut first: Option<(Place, Vec<u8>)> = None;
        let mut found = None;
        for (place, ticket) in asked {
            let bytes = match self.found(&place, ticket.and_then(Ticket::wait))? {
                Ok(reply) => reply.bytes,
                Err(why) => {
                    found = Some(why);
                    continue;
                }
            };
            match &first {
                Some((other, known)) if *known != bytes => {
                    let same =
                        known.iter().zip(&bytes).take_while(|(one, other)| one == other).count() as u64;
                    let at = self.layout.components[place.component]
                        .file_offset(place.column, range.start + same)
                        .unwrap_or(range.start + same);
                    found = Some(format!(
                        "from byte {at} of the file on its copies on targets {} and {} are not the same",
                        self.target(other.component, other.column),
                        self.target(place.component, place.column)
                    ));
                }
                Some(_) => {}
                None => first = Some((place, bytes)),
            }
        }
        Ok(found)
    }

    /// An answer, or why what lies there is of no use.
    pub(crate) fn found(&self, place: &Place, answer: data::Result<Reply>) -> Result<Result<Reply, String>> {
        let gone = |e: &DataError| matches!(e.class(), ErrorClass::Corrupt | ErrorClass::NotFound);
        match answer {
            Ok(reply) => Ok(Ok(reply)),
            Err(e) if gone(&e) => {
                Ok(Err(format!("target {}: {e}", self.target(place.component, place.column))))
            }
            Err(source) => Err(self.failed(place.component, place.column, source)),
        }
    }
}

impl Compared {
    /// Enough is known.
    pub(crate) fn is_full(&self) -> bool {
        self.differences.len() >= MOST
    }
}
