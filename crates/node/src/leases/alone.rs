//! Leases of one writer: as long as no other host, and nobody here, has a file open, what a host writes within it may stay in its memory for a moment.
//! Whoever opens the file has that ended first: the host writes to the targets what it has, and says so.
//!
//! * The lease of a host that says nothing ends by itself, after the same time as one of attributes, and by the host's own clock before that: it has written all by
//!   then, if its targets take it.
//! * A host that has heard that it is over, and still asks for news, is waited for, as who opens the file would wait for its targets.
//! * In every other case the lease is lost: what its host still has is refused from then on, at the targets by a fence and here by its number, before the
//!   file is opened for somebody else. The host says so to its programs.

use super::{Leases, PATIENCE, SLACK, State, TERM};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::Ino;

/// How long is waited for a host that writes: so long it waits for a target.
const LONGEST: Duration = Duration::from_secs(65);
/// Between two looks whether it still asks for news.
const LOOK: Duration = Duration::from_millis(500);
/// Its next question may be so late: it looks for other nodes that may have the namespace, if an answer takes long.
const ELSEWHERE: Duration = Duration::from_secs(20);

/// Somebody writes a file alone.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) session: u64,
    number: u64,
    until: Instant,
    /// The place at which he was told that it is over.
    over: Option<u64>,
    /// His session has ended.
    left: bool,
    /// What he still has counts no more.
    lost: bool,
}

/// What became of a wish to write alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// By the lease of this number.
    Alone(u64),
    NotAlone,
}

/// Whether what was written by a lease may still come to the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    Yes,
    No,
    /// It was given by an earlier node.
    Unknown,
}

/// A lease that is lost. Until this is dropped everybody waits who opens the file.
#[must_use]
pub(crate) struct Lost<'l> {
    leases: &'l Leases,
    ino: Ino,
    number: u64,
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        let mut state = self.leases.state.lock();
        if state.alone.get(&self.ino).is_some_and(|lease| lease.number == self.number) {
            self.leases.drop_alone(&mut state, self.ino);
        }
    }
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
            if lease.session != session || lease.over.is_some() || lease.left {
                return Writes::NotAlone;
            }
            lease.until = until;
            return Writes::Alone(lease.number);
        }
        state.count += 1;
        let number = state.count;
        state.alone.insert(ino, Lease { session, number, until, over: None, left: false, lost: false });
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

    /// Whether what a session wrote alone by the lease of this number may still come to the targets. Rights to write there that the session got before it
    /// asked are refused there if that changes.
    pub(crate) fn stands(&self, session: u64, ino: Ino, number: u64) -> Stands {
        let state = self.state.lock();
        match state.alone.get(&ino) {
            Some(lease) if lease.session != session || lease.lost => Stands::No,
            Some(lease) if lease.number == number => Stands::Yes,
            _ if number > self.first => Stands::No,
            _ => Stands::Unknown,
        }
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

    /// The session has ended; whoever opens what it wrote alone, before that is closed, finds that lost.
    pub(super) fn leave_alone(state: &mut State, session: u64) {
        state.alone.values_mut().filter(|lease| lease.session == session).for_each(|lease| lease.left = true);
    }

    /// Somebody has opened the file: nobody writes it alone from now on, and what one has written is at the targets when this returns, or is lost.
    pub(crate) fn take_alone(&self, ino: Ino) -> Option<Lost<'_>> {
        if !self.any_alone() {
            return None;
        }
        let mut state = self.state.lock();
        let end = Instant::now() + LONGEST;
        let mut waits_for = None;
        loop {
            let (now, next) = (Instant::now(), state.count + 1);
            let lease = state.alone.get_mut(&ino)?;
            if *waits_for.get_or_insert(lease.number) != lease.number {
                return None; // another one, which came after this was opened
            }
            if lease.lost {
                // Who found that has its bytes refused.
                if self.forgotten.wait_until(&mut state, end).timed_out() {
                    return None;
                }
                continue;
            }
            let new = lease.over.is_none();
            let place = *lease.over.get_or_insert(next);
            if new {
                // Also one that has ended by itself: its host may be there, and still have something.
                lease.until = lease.until.max(now + TERM + SLACK);
            }
            let (session, number, until, left) = (lease.session, lease.number, lease.until, lease.left);
            if new {
                state.count = place;
                if let Some(told) = state.sessions.get_mut(&session) {
                    told.alone.push((place, ino, number));
                    told.news.notify_all();
                }
            }
            let hears = |asked: Instant| now.duration_since(asked) < PATIENCE + ELSEWHERE;
            let writes = state
                .sessions
                .get(&session)
                .is_some_and(|told| told.heard >= place && told.asked.is_some_and(hears));
            if left || now >= end || (now >= until && !writes) {
                state.alone.get_mut(&ino)?.lost = true;
                return Some(Lost { leases: self, ino, number });
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

    /// Somebody opens the file, and says when he has it, and what is lost then.
    fn opens<'s>(
        leases: &'s Leases,
        scope: &'s std::thread::Scope<'s, '_>,
    ) -> Receiver<(Duration, Option<Lost<'s>>)> {
        let (tell, opened) = channel();
        let begun = Instant::now();
        scope.spawn(move || {
            let lost = leases.take_alone(FILE);
            tell.send((begun.elapsed(), lost)).unwrap();
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
            assert_eq!(leases.stands(WRITER, FILE, first), Stands::Yes, "he is waited for");
            leases.end_alone(WRITER, FILE, first);
            assert!(opened.recv_timeout(LOOK).unwrap().1.is_none(), "nothing is lost");
            leases.leave(WRITER);
            news.join().unwrap();
        });
        assert!(leases.take_alone(FILE).is_none());
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
            assert!(opened.recv_timeout(LOOK).unwrap().1.is_none());
        });
    }

    #[test]
    fn who_says_nothing_is_waited_for_until_his_lease_has_ended_and_what_he_has_counts_no_more() {
        let leases = leases();
        let first = number(&leases);
        std::thread::scope(|scope| {
            let leases = &leases;
            let (waited, lost) = opens(leases, scope).recv_timeout(3 * TERM).unwrap();
            assert!(waited > TERM - SLACK && lost.is_some(), "{waited:?}");
            assert_eq!(leases.stands(WRITER, FILE, first), Stands::No);
            assert_eq!(leases.write_alone(WRITER, FILE, true), Writes::NotAlone);
            // His targets do not refuse it yet.
            let other = opens(leases, scope);
            assert!(other.recv_timeout(TERM + LOOK).is_err(), "it is opened although that may still land");
            drop(lost);
            assert!(other.recv_timeout(LOOK).unwrap().1.is_none());
        });
        assert_eq!(leases.stands(WRITER, FILE, first), Stands::No, "also when he asks late");
        let second = number(&leases);
        assert_eq!(leases.stands(WRITER, FILE, first), Stands::No);
        assert_eq!(leases.stands(WRITER, FILE, second), Stands::Yes);
        assert_eq!(leases.stands(WRITER, Ino(8), second), Stands::No, "that is about another file");
        assert_eq!(leases.stands(WRITER, Ino(8), 5), Stands::Unknown, "one of an earlier node");
    }

    #[test]
    fn what_one_had_kept_whose_session_has_ended_is_lost_to_whoever_opens_the_file_before_it_is_closed() {
        let leases = leases();
        let first = number(&leases);
        leases.leave(WRITER);
        assert_eq!(leases.write_alone(WRITER, FILE, true), Writes::NotAlone);
        let begun = Instant::now();
        assert!(leases.take_alone(FILE).is_some() && begun.elapsed() < TERM);
        assert_eq!(leases.stands(WRITER, FILE, first), Stands::No);
        assert!(!leases.any_alone());
    }

    #[test]
    fn who_closes_the_file_or_is_gone_is_waited_for_no_longer() {
        for (ends, loses) in
            [(Leases::closed as fn(&Leases, Ino), false), (|leases: &Leases, _| leases.leave(WRITER), true)]
        {
            let leases = leases();
            std::thread::scope(|scope| {
                let opened = opens(&leases, scope);
                while leases.state.lock().alone.get(&FILE).is_none_or(|lease| lease.over.is_none()) {
                    std::thread::yield_now();
                }
                ends(&leases, FILE);
                let (waited, lost) = opened.recv_timeout(TERM).unwrap();
                assert!(waited < TERM && lost.is_some() == loses);
            });
        }
    }
}
