//! Leases of one writer: as long as no other host, and nobody here, has a file open, what a host writes within it may stay in its memory for a moment.
//! Whoever opens the file has that ended first: the host writes to the targets what it has, and says so.
//!
//! * The lease of a host that says nothing ends by itself, after the same time as one of attributes, and by the host's own clock before that: it has written all by
//!   then, if its targets take it.
//! * A host that has heard that it is over, and still asks for news, is waited for, as who opens the file would wait for its targets.
//! * In every other case the bytes are written later than whoever opened the file thinks: never dropped.

use super::{Leases, PATIENCE, SLACK, State, TERM};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::Ino;

/// How long is waited for a host that writes: so long it waits for a target.
const LONGEST: Duration = Duration::from_secs(65);
/// Between two looks whether it still asks for news.
const LOOK: Duration = Duration::from_millis(500);

/// Somebody writes a file alone.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) session: u64,
    number: u64,
    until: Instant,
    /// The place at which he was told that it is over.
    over: Option<u64>,
}

/// What became of a wish to write alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// By the lease of this number.
    Alone(u64),
    NotAlone,
}

impl Leases {
    /// A session wants to write a file alone; `nobody_else` has it open, which does not change while this runs.
    pub(crate) fn write_alone(&self, session: u64, ino: Ino, nobody_else: bool) -> Writes {
        let mut state = self.state.lock();
        let hears = state.sessions.get(&session).is_some_and(|told| !told.lame);
        let until = Instant::now() + TERM + SLACK;
        if !hears || !nobody_else {
            return Writes::NotAlone;
        }
        if let Some(lease) = state.alone.get_mut(&ino) {
            if lease.session != session || lease.over.is_some() {
                return Writes::NotAlone;
            }
            lease.until = until;
            return Writes::Alone(lease.number);
        }
        state.count += 1;
        let number = state.count;
        state.alone.insert(ino, Lease { session, number, until, over: None });
        self.alone.store(state.alone.len(), Ordering::SeqCst);
        Writes::Alone(number)
    }

    /// Whether somebody writes any file alone.
    pub(crate) fn any_alone(&self) -> bool {
        self.alone.load(Ordering::SeqCst) > 0
    }

    /// Whether somebody writes this one alone.
    pub(crate) fn is_written_alone(&self, ino: Ino) -> bool {
        self.any_alone() && self.state.lock().alone.contains_key(&ino)
    }

    /// What a session wrote alone by the lease of this number is at the targets, or is given up.
    pub(crate) fn end_alone(&self, session: u64, ino: Ino, number: u64) {
        let mut state = self.state.lock();
        if state.alone.get(&ino).is_some_and(|lease| (lease.session, lease.number) == (session, number)) {
            self.drop_alone(&mut state, ino);
        }
    }

    fn drop_alone(&self, state: &mut State, ino: Ino) {
        if state.alone.remove(&ino).is_some() {
            self.alone.store(state.alone.len(), Ordering::SeqCst);
            self.forgotten.notify_all();
        }
    }

    /// Nobody has the file open any more.
    pub(crate) fn closed(&self, ino: Ino) {
        if self.any_alone() {
            self.drop_alone(&mut self.state.lock(), ino);
        }
    }

    /// Somebody has opened the file: nobody writes it alone from now on, and what one has written is at the targets when this returns.
    pub(crate) fn take_alone(&self, ino: Ino) {
        if !self.any_alone() {
            return;
        }
        let mut state = self.state.lock();
        let end = Instant::now() + LONGEST;
        let mut waits_for = None;
        loop {
            let (now, next) = (Instant::now(), state.count + 1);
            let Some(lease) = state.alone.get_mut(&ino) else { return };
            if *waits_for.get_or_insert(lease.number) != lease.number {
                return; // another one, which came after this was opened
            }
            let new = lease.over.is_none();
            let place = *lease.over.get_or_insert(next);
            if new {
                // Also one that has ended by itself: its host may be there, and still have something.
                lease.until = lease.until.max(now + TERM + SLACK);
            }
            let (session, number, until) = (lease.session, lease.number, lease.until);
            if new {
                state.count = place;
                if let Some(told) = state.sessions.get_mut(&session) {
                    told.alone.push((place, ino, number));
                    told.news.notify_all();
                }
            }
            let hears = |asked: Instant| now.duration_since(asked) < PATIENCE + TERM;
            let writes = state
                .sessions
                .get(&session)
                .is_some_and(|told| told.heard >= place && told.asked.is_some_and(hears));
            if now >= end || (now >= until && !writes) {
                tracing::warn!(
                    "inode {ino}: a host that writes it has not said that its targets have all of it; what it wrote last may be seen later"
                );
                return self.drop_alone(&mut state, ino);
            }
            self.forgotten.wait_until(&mut state, if now < until { until } else { end.min(now + LOOK) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::News;
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    const WRITER: u64 = 1;
    const FILE: Ino = Ino(7);

    fn leases() -> Leases {
        let leases = Leases::new(false);
        assert_eq!(leases.write_alone(WRITER, FILE, true), Writes::NotAlone, "he asks for no news");
        leases.news(WRITER, 0);
        assert_eq!(leases.write_alone(WRITER, FILE, false), Writes::NotAlone);
        number(&leases);
        leases
    }

    fn number(leases: &Leases) -> u64 {
        match leases.write_alone(WRITER, FILE, true) {
            Writes::Alone(number) => number,
            Writes::NotAlone => panic!("nobody else has it open"),
        }
    }

    /// Somebody opens the file, and says when he has it.
    fn opens<'s>(leases: &'s Leases, scope: &'s std::thread::Scope<'s, '_>) -> Receiver<Duration> {
        let (tell, opened) = channel();
        let begun = Instant::now();
        scope.spawn(move || {
            leases.take_alone(FILE);
            tell.send(begun.elapsed()).unwrap();
        });
        opened
    }

    #[test]
    fn who_opens_a_file_waits_until_the_one_who_wrote_it_alone_says_that_it_is_over() {
        let leases = leases();
        let first = number(&leases);
        assert_eq!(number(&leases), first);
        assert_eq!(leases.write_alone(2, FILE, true), Writes::NotAlone);
        std::thread::scope(|scope| {
            let opened = opens(&leases, scope);
            let News { place, inodes, alone } = leases.news(WRITER, 1);
            assert_eq!((inodes, alone), (Vec::new(), vec![(FILE, first)]));
            assert_eq!(leases.write_alone(WRITER, FILE, true), Writes::NotAlone, "it is over");
            let leases = &leases;
            let news = scope.spawn(move || leases.news(WRITER, place));
            assert!(opened.recv_timeout(TERM + SLACK + LOOK).is_err(), "he is there, and writes");
            leases.end_alone(2, FILE, first);
            leases.end_alone(WRITER, FILE, first - 1);
            assert!(opened.recv_timeout(LOOK).is_err(), "that is about another lease");
            leases.end_alone(WRITER, FILE, first);
            opened.recv_timeout(LOOK).unwrap();
            leases.leave(WRITER);
            news.join().unwrap();
        });
        leases.take_alone(FILE);
    }

    #[test]
    fn one_whose_lease_has_ended_by_itself_is_asked_as_well_whether_he_still_has_something() {
        let leases = leases();
        std::thread::sleep(TERM + 2 * SLACK);
        std::thread::scope(|scope| {
            let opened = opens(&leases, scope);
            assert_eq!(leases.news(WRITER, 1).alone.len(), 1);
            assert!(opened.recv_timeout(LOOK).is_err(), "he may be there");
            leases.closed(FILE);
            opened.recv_timeout(LOOK).unwrap();
        });
    }

    #[test]
    fn who_says_nothing_is_waited_for_until_his_lease_has_ended() {
        let leases = leases();
        std::thread::scope(|scope| {
            let waited = opens(&leases, scope).recv_timeout(3 * TERM).unwrap();
            assert!(waited > TERM - SLACK, "{waited:?}");
        });
        number(&leases);
    }

    #[test]
    fn who_closes_the_file_or_is_gone_is_waited_for_no_longer() {
        for ends in [|leases: &Leases| leases.closed(FILE), |leases: &Leases| leases.leave(WRITER)] {
            let leases = leases();
            std::thread::scope(|scope| {
                let opened = opens(&leases, scope);
                while leases.state.lock().alone.get(&FILE).is_none_or(|lease| lease.over.is_none()) {
                    std::thread::yield_now();
                }
                ends(&leases);
                assert!(opened.recv_timeout(TERM).unwrap() < TERM);
            });
        }
    }
}
