//! How long a file is that is written at the movers, past the node that has its name, and what of that the node was not told yet.
//!
//! What is being told counts as told only when the node has answered: who syncs meanwhile tells it too. So nobody waits for a call that
//! another thread makes, which may be one to a node that is dead, and nobody says that something is safe of which the node has not heard.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use stripe::Machines;

/// What is known of the length; `H` is through what it was written.
pub(crate) struct Length<H> {
    untold: Mutex<Untold<H>>,
    /// A length that the node knows (bytes).
    known: AtomicU64,
    /// How often it was set, as the node said last: if that changes, what we know of it says nothing.
    cuts: AtomicU64,
    /// Writes so far.
    writes: AtomicU64,
    /// What has the writes that are not known to be durable.
    pub(crate) machines: Machines,
}

/// Writes that the node has not answered to.
struct Untold<H> {
    /// What is written now, or could not be told, belongs to the part of this number; each telling begins another one, so somebody tells those before.
    now: u64,
    parts: BTreeMap<u64, Part<H>>,
}

/// Writes between two tellings.
struct Part<H> {
    by: H,
    /// Greatest end of a write (bytes).
    end: u64,
    /// How often the length had been set when they began; 0 if not for all the same: then their end says nothing.
    cuts: u64,
}

/// A write that goes on.
#[derive(Clone, Copy)]
pub(crate) struct Writing {
    /// How often the length had been set when it began.
    cuts: u64,
}

/// What the node is to be told.
pub(crate) struct News {
    /// Greatest end of a write (bytes).
    pub(crate) end: u64,
    /// How often the length had been set when the writes began; 0: that is not known.
    pub(crate) cuts: u64,
    /// See [`Machines::known`].
    pub(crate) machines: Vec<u64>,
}

impl<H> Part<H> {
    fn join(&mut self, later: Self) {
        let cuts = if self.cuts == later.cuts { self.cuts } else { 0 };
        *self = Self { by: later.by, end: self.end.max(later.end), cuts };
    }
}

impl<H> Default for Length<H> {
    fn default() -> Self {
        Self {
            untold: Mutex::new(Untold { now: 0, parts: BTreeMap::new() }),
            known: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            machines: Machines::default(),
        }
    }
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// All that the node has not said that it knows.
    All,
    /// If another thread does not tell all of it just now.
    Rest,
}

impl<H> Untold<H> {
    fn note(&mut self, part: Part<H>) {
        match self.parts.get_mut(&self.now) {
            Some(known) => known.join(part),
            None => drop(self.parts.insert(self.now, part)),
        }
    }

    /// Nobody tells the parts up to this one any more.
    fn failed(&mut self, upto: u64) {
        let later = self.parts.split_off(&(upto + 1));
        let parts = std::mem::replace(&mut self.parts, later);
        let newest = self.parts.remove(&self.now);
        parts.into_values().chain(newest).for_each(|part| self.note(part));
    }
}

impl<H: Clone> Length<H> {
    /// The node has said how long the file is (bytes).
    pub(crate) fn is(&self, size: u64) {
        self.known.store(size, Ordering::Release);
    }

    /// The node has said how long the file is (bytes), and how often that was set.
    pub(crate) fn found(&self, size: u64, cuts: u64) {
        self.cuts.store(cuts, Ordering::Release);
        self.is(size);
    }

    /// A length that the node knows (bytes).
    pub(crate) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    /// The same as [`Length::found`], by who may have made it longer since it was said.
    pub(crate) fn grown(&self, size: u64, cuts: u64) {
        match self.cuts.swap(cuts, Ordering::AcqRel) == cuts {
            true => drop(self.known.fetch_max(size, Ordering::AcqRel)),
            false => self.is(size),
        }
    }

    /// Something is written from now on: also if that fails, some bytes may be there.
    pub(crate) fn writing(&self, by: H) -> Writing {
        let cuts = self.cuts.load(Ordering::Acquire);
        self.untold.lock().note(Part { by, end: 0, cuts });
        self.writes.fetch_add(1, Ordering::AcqRel);
        Writing { cuts }
    }

    /// It is written up to `end` (bytes); true: the node is to be told before that is answered, since the file has become longer.
    pub(crate) fn written(&self, by: H, writing: Writing, end: u64) -> bool {
        self.untold.lock().note(Part { by, end, cuts: writing.cuts });
        end > self.known.load(Ordering::Acquire)
    }

    /// Tells the node what it has not said yet that it knows; true if there was something. `tell` gets through what it was written, the last
    /// first, and gives how often the length was set; None: nobody can tell it now.
    ///
    /// # Errors
    /// Those of `tell`: it is told with the next chance.
    pub(crate) fn commit<E>(
        &self,
        what: Telling,
        tell: impl FnOnce(&[H], &News) -> Result<Option<u64>, E>,
    ) -> Result<bool, E> {
        let (upto, by, end, cuts) = {
            let mut untold = self.untold.lock();
            if what == Telling::Rest && !untold.parts.contains_key(&untold.now) {
                return Ok(false);
            }
            let Some((_, last)) = untold.parts.last_key_value() else { return Ok(false) };
            let mut all = Part { by: last.by.clone(), end: 0, cuts: last.cuts };
            let mut by = Vec::with_capacity(untold.parts.len());
            for part in untold.parts.values().rev() {
                all.join(Part { by: part.by.clone(), ..*part });
                by.push(part.by.clone());
            }
            untold.now += 1;
            (untold.now - 1, by, all.end, all.cuts)
        };
        let news = News { end, cuts, machines: self.machines.known() };
        match tell(&by, &news) {
            Ok(Some(now)) => {
                let mut untold = self.untold.lock();
                untold.parts = untold.parts.split_off(&(upto + 1));
                drop(untold);
                self.machines.told(&news.machines);
                match (self.cuts.swap(now, Ordering::AcqRel), cuts) == (now, now) {
                    true => drop(self.known.fetch_max(end, Ordering::AcqRel)),
                    false => self.is(0),
                }
                Ok(true)
            }
            other => {
                self.untold.lock().failed(upto);
                other.map(|_| false)
            }
        }
    }

    /// What was written before is durable, and the node knows of it, if `sync` says so; `commit` tells it.
    ///
    /// # Errors
    /// Those of both.
    pub(crate) fn sync<E>(
        &self,
        commit: impl FnOnce() -> Result<(), E>,
        sync: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.writes.load(Ordering::Acquire);
        commit()?;
        let synced = sync();
        if self.writes.load(Ordering::Acquire) == before {
            // If a machine was started anew, that has been said now.
            self.machines.forget();
        }
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;

    type Told = Result<Option<u64>, &'static str>;

    /// What is told next, without an answer that changes anything.
    fn told(length: &Length<u32>, answer: Told) -> Option<(Vec<u32>, u64, u64)> {
        let mut told = None;
        let _ = length.commit(Telling::All, |by, news| {
            told = Some((by.to_vec(), news.end, news.cuts));
            answer
        });
        told
    }

    #[test]
    fn who_syncs_while_another_thread_tells_the_node_tells_it_too() {
        let length = Length::default();
        length.found(0, 1);
        assert!(length.written(7, length.writing(7), 100));
        let (asked, other) = bounded(0);
        let (answer, answered) = bounded::<Told>(0);
        std::thread::scope(|scope| {
            let telling = scope.spawn(|| {
                length.commit(Telling::All, |_, _| {
                    asked.send(()).unwrap();
                    answered.recv().unwrap()
                })
            });
            other.recv().unwrap();
            let rest = length
                .commit(Telling::Rest, |_, _| -> Told { panic!("a close waits for what another one tells") });
            assert_eq!(rest, Ok(false));
            assert_eq!(told(&length, Err("nobody answers")), Some((vec![7], 100, 1)), "it is not known yet");
            length.written(8, length.writing(8), 50);
            answer.send(Ok(Some(1))).unwrap();
            assert_eq!(telling.join().unwrap(), Ok(true));
        });
        let (_, end, _) = told(&length, Ok(Some(1))).expect("what was written since");
        assert!(end >= 50);
        assert_eq!(told(&length, Ok(Some(1))), None);
        assert!(!length.written(7, length.writing(7), 100), "the node knows that length");
    }

    #[test]
    fn what_could_not_be_told_is_told_again_as_one() {
        let length = Length::default();
        length.found(0, 1);
        for n in 1..4 {
            length.written(n, length.writing(n), 10 * u64::from(n));
            assert_eq!(told(&length, Err("nobody answers")).map(|(_, end, _)| end), Some(10 * u64::from(n)));
        }
        assert_eq!(length.untold.lock().parts.len(), 1);
        assert_eq!(told(&length, Ok(None)).map(|(_, end, _)| end), Some(30));
        assert_eq!(told(&length, Ok(Some(1))).map(|(_, end, _)| end), Some(30), "nobody could tell it");
        assert_eq!(told(&length, Ok(Some(1))), None);
    }

    #[test]
    fn a_write_from_before_a_cut_tells_that_it_is_from_before() {
        let length = Length::default();
        length.found(1000, 1);
        let before = length.writing(7);
        // Somebody else sets the length; a write of another thread is answered so.
        length.written(8, length.writing(8), 10);
        assert_eq!(told(&length, Ok(Some(2))), Some((vec![8], 10, 1)));
        assert!(length.written(7, before, 900), "what was known of the length says nothing any more");
        assert_eq!(told(&length, Err("nobody answers")), Some((vec![7], 900, 1)));
        length.written(8, length.writing(8), 20);
        let (by, end, cuts) = told(&length, Ok(Some(2))).unwrap();
        assert_eq!((by, end, cuts), (vec![8], 900, 0), "not all of it is from after the cut");
        length.written(8, length.writing(8), 30);
        assert_eq!(told(&length, Ok(Some(2))), Some((vec![8], 30, 2)));
    }
}
