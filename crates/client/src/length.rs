//! How long a file is that is written at the movers, past the node that has its name, and what of that the node was not told yet.
//!
//! What is being told counts as told only when the node has answered: who syncs meanwhile tells it too. So nobody waits for a call that
//! another thread makes, which may be one to a node that is dead, and nobody says that something is safe of which the node has not heard.
//!
//! Who makes a file shorter elsewhere has our rights to write at its targets ended before: with the next ones comes the length of then. What the node said before somebody here
//! made it shorter, or while he did, says nothing ([`Cuts`]).

use parking_lot::Mutex;
use std::cmp::Ordering as CmpOrdering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use stripe::{Machines, StripeError, Striped};

/// What is known of the length; `H` is through what it was written.
pub(crate) struct Length<H> {
    untold: Mutex<Untold<H>>,
    known: Mutex<Known>,
    /// Those that this host, or this program, makes itself.
    own: Arc<Cuts>,
    /// Somebody here has set the length, and the node was not asked for it since.
    cut: AtomicBool,
    /// Through what was written last.
    last: Mutex<Option<H>>,
    /// Writes so far.
    writes: AtomicU64,
    /// How often the node had forgotten what it was told.
    forgotten: AtomicU64,
    /// What has the writes that are not known to be durable.
    pub(crate) machines: Machines,
}

/// What the node has said.
#[derive(Default)]
struct Known {
    /// A length that it knows (bytes).
    size: u64,
    /// How often it was set: if that changes, what we know of it says nothing.
    cuts: u64,
    /// After how many cuts here it was asked; None: one was under way.
    asked: Option<u64>,
}

/// A question that the node answers with the length, from before it is asked.
#[derive(Clone, Copy)]
pub(crate) struct Asked(Option<u64>);

impl Asked {
    /// By who had not opened the file: somebody else here may have, and may have cut it meanwhile.
    pub(crate) const BEFORE_IT_WAS_OPEN: Self = Self(None);
}

/// Cuts that are made here, through the node.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    begun: AtomicU64,
    under_way: AtomicUsize,
}

/// Until this is dropped a cut is under way.
#[must_use]
pub(crate) struct Cutting(Arc<Cuts>);

impl Cuts {
    /// To be called when the cut has its number, before it is asked for.
    pub(crate) fn begin(self: &Arc<Self>) -> Cutting {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        self.begun.fetch_add(1, Ordering::AcqRel);
        Cutting(self.clone())
    }

    /// How many there were; None: one is under way.
    fn quiet(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::Acquire);
        (self.under_way.load(Ordering::Acquire) == 0).then_some(begun)
    }
}

impl Drop for Cutting {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
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
        Self::new(Arc::default())
    }
}

impl<H> std::fmt::Debug for Length<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Length").field("machines", &self.machines).finish_non_exhaustive()
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

impl<H> Length<H> {
    /// Of a file that is cut here as this counts, perhaps with others.
    pub(crate) fn new(own: Arc<Cuts>) -> Self {
        Self {
            untold: Mutex::new(Untold { now: 0, parts: BTreeMap::new() }),
            known: Mutex::default(),
            own,
            cut: AtomicBool::new(false),
            last: Mutex::new(None),
            writes: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            machines: Machines::default(),
        }
    }
}

impl<H: Clone> Length<H> {
    /// Somebody here makes it shorter, or longer: what is known says nothing until this is dropped. To be called when that call has its number.
    pub(crate) fn cutting(&self) -> Cutting {
        self.cut.store(true, Ordering::Release);
        self.own.begin()
    }

    /// Whether somebody here has set the length since this was asked last.
    pub(crate) fn was_cut(&self) -> bool {
        self.cut.swap(false, Ordering::AcqRel)
    }

    /// The node is about to be asked.
    pub(crate) fn asks(&self) -> Asked {
        Asked(self.own.quiet())
    }

    /// The node has said how long the file is (bytes), or that it is at least so long, and how often that was set. Answers may come in another order than they were given.
    pub(crate) fn found(&self, asked: Asked, size: u64, cuts: u64) {
        let mut known = self.known.lock();
        let size = match cuts.cmp(&known.cuts) {
            CmpOrdering::Less => 0,
            CmpOrdering::Equal if known.asked == asked.0 => size.max(known.size),
            _ => size,
        };
        *known = Known { size, cuts: cuts.max(known.cuts), asked: asked.0 };
    }

    /// A length that the node knows (bytes).
    pub(crate) fn known(&self) -> u64 {
        let known = self.known.lock();
        if known.asked.is_some() && known.asked == self.own.quiet() { known.size } else { 0 }
    }

    /// Something is written from now on: also if that fails, some bytes may be there.
    pub(crate) fn writing(&self, by: H) -> Writing {
        let cuts = self.known.lock().cuts;
        *self.last.lock() = Some(by.clone());
        self.untold.lock().note(Part { by, end: 0, cuts });
        self.writes.fetch_add(1, Ordering::AcqRel);
        Writing { cuts }
    }

    /// The node has written something, and told at which machines.
    pub(crate) fn served(&self, by: H, machines: &[u64]) {
        *self.last.lock() = Some(by);
        // Who syncs meanwhile forgets none of them.
        let _untold = self.untold.lock();
        self.writes.fetch_add(1, Ordering::AcqRel);
        self.machines.served(machines);
    }

    /// It is written up to `end` (bytes); true: the node is to be told before that is answered, since the file may have become longer.
    pub(crate) fn written(&self, by: H, writing: Writing, end: u64) -> bool {
        self.untold.lock().note(Part { by, end, cuts: writing.cuts });
        end > self.known()
    }

    /// No machine was started anew since something was written there that is not known to be durable.
    pub(crate) fn is_whole(&self, file: &Striped) -> bool {
        self.machines.note(file).is_empty()
    }

    /// Writes pieces to the file's targets, and notes at which machines.
    ///
    /// # Errors
    /// Those of [`Striped::write_pieces`].
    pub(crate) fn put(&self, file: &Striped, pieces: &[(u64, &[u8])]) -> Result<(), StripeError> {
        self.machines.note(file);
        let written = file.write_pieces(pieces);
        self.machines.note(file);
        written
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
        let asked = self.asks();
        match tell(&by, &news) {
            Ok(Some(now)) => {
                let mut untold = self.untold.lock();
                untold.parts = untold.parts.split_off(&(upto + 1));
                drop(untold);
                self.machines.told(&news.machines);
                let end = if cuts == now { end } else { 0 };
                self.found(asked, end, now);
                Ok(true)
            }
            other => {
                self.untold.lock().failed(upto);
                other.map(|_| false)
            }
        }
    }

    /// The node was started anew, or another one is in its place: it is told once more which machines have what is not known to be durable, as it compares them with those that it
    /// finds when that is synced. To be called when the file was opened there again.
    pub(crate) fn forgotten(&self) {
        self.machines.another();
        let last = self.last.lock().clone();
        if let Some(by) = last.filter(|_| self.machines.known().iter().any(|machine| *machine != 0)) {
            let mut untold = self.untold.lock();
            let now = untold.now;
            // What is to be told anyway brings it along.
            untold.parts.entry(now).or_insert(Part { by, end: 0, cuts: 0 });
            drop(untold);
            self.forgotten.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// What was written before is durable, and the node knows of it, if `sync` says so; `commit` tells it. `said`: whether an error is what the node has answered.
    ///
    /// # Errors
    /// Those of both.
    pub(crate) fn sync<E>(
        &self,
        mut commit: impl FnMut() -> Result<(), E>,
        mut sync: impl FnMut() -> Result<(), E>,
        said: impl FnOnce(&E) -> bool,
    ) -> Result<(), E> {
        let before = self.writes.load(Ordering::Acquire);
        let synced = loop {
            let forgotten = self.forgotten.load(Ordering::Acquire);
            commit()?;
            let synced = sync();
            // Else it has synced without knowing where something may be lost.
            if self.forgotten.load(Ordering::Acquire) == forgotten {
                break synced;
            }
        };
        // If a machine was started anew, that has been said now, unless nobody was there, or nobody could be told.
        let answered = synced.as_ref().err().is_none_or(said);
        let untold = self.untold.lock();
        if answered && untold.parts.is_empty() && self.writes.load(Ordering::Acquire) == before {
            self.machines.forget();
        }
        drop(untold);
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
        length.found(length.asks(), 0, 1);
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
        length.found(length.asks(), 0, 1);
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
    fn where_the_node_has_written_is_told_to_one_that_was_started_anew_until_it_is_synced() {
        let length = Length::default();
        let starts = || {
            let mut starts = None;
            let told = length.commit(Telling::All, |_, news| -> Told {
                starts = Some(news.machines.clone());
                Ok(Some(0))
            });
            told.unwrap();
            starts
        };
        let sync = |meanwhile: &dyn Fn()| {
            let sync = || -> Result<(), &'static str> {
                meanwhile();
                Ok(())
            };
            length.sync(|| Ok(()), sync, |_| true).unwrap();
        };
        length.served(7, &[10, 20]);
        assert_eq!(starts(), None, "it knows");
        length.forgotten();
        assert_eq!(starts(), Some(vec![10, 20]));
        // A machine was started anew, too.
        length.served(7, &[10, 21]);
        sync(&|| length.served(8, &[10, 21]));
        length.forgotten();
        assert_eq!(starts(), Some(vec![10, 20]), "something was written meanwhile");
        sync(&|| ());
        length.forgotten();
        assert_eq!(starts(), None, "all is durable");
    }

    #[test]
    fn a_write_from_before_a_cut_tells_that_it_is_from_before() {
        let length = Length::default();
        length.found(length.asks(), 1000, 1);
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

    #[test]
    fn what_was_said_before_a_cut_or_while_one_is_made_here_says_nothing_behind_it() {
        let length = Length::<u32>::default();
        let asked = length.asks();
        length.found(asked, 1000, 1);
        assert_eq!(length.known(), 1000);
        length.found(asked, 900, 1);
        assert_eq!(length.known(), 1000, "that was said before");
        // Somebody else cuts it; what was said before that comes later.
        length.found(asked, 50, 2);
        assert_eq!(length.known(), 50);
        for late in [1000, 900] {
            length.found(asked, late, 1);
            assert_eq!(length.known(), 0);
        }
        length.found(asked, 60, 2);
        assert_eq!(length.known(), 60);
        // Now somebody here.
        let cut = length.cutting();
        assert_eq!(length.known(), 0);
        length.found(asked, 60, 2);
        let meanwhile = length.asks();
        length.found(meanwhile, 60, 2);
        assert_eq!(length.known(), 0);
        drop(cut);
        length.found(meanwhile, 60, 2);
        assert_eq!(length.known(), 0, "it was asked during the cut");
        length.found(asked, 60, 2);
        assert_eq!(length.known(), 0, "it was asked before the cut");
        length.found(length.asks(), 40, 3);
        assert_eq!(length.known(), 40);
    }
}
