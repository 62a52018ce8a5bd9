//! What hosts may remember of names and attributes for a moment: leases (Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for
//! distributed file cache consistency", SOSP 1989). One of an inode covers its attributes and, of a directory, its names.
//!
//! * Who looks gets leases with the answer, for [`TERM`] from when he asked. Not of what has changed since he began to look: what he saw may be old.
//! * What changes is told to all who have a lease of it, and the change is answered when each has said that he has forgotten it, or when his
//!   lease has ended by itself. Who was told of a change that was answered sees it everywhere.
//! * Nothing of this is kept. A node that begins answers no change before all leases of an earlier one have ended.
//!
//! `alone.rs`: leases of one writer.

mod alone;

pub(crate) use alone::{Stands, Writes};

use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use types::Ino;

/// How long a lease lasts, for him who has it from before he asked for it.
pub(crate) const TERM: Duration = Duration::from_secs(1);
/// The node waits for that much longer: clocks differ in speed.
const SLACK: Duration = Duration::from_millis(100);
/// Longest look that still gets leases; so long is remembered what has changed.
const LOOK: Duration = Duration::from_millis(500);
/// What was taken from somebody is given to nobody for so long: where several change one directory, each change would be told to all.
const REST: Duration = Duration::from_millis(100);
/// Changes are noted for so long after somebody has looked.
const WATCH: Duration = Duration::from_secs(5);
/// How long who asks for news waits for some.
const PATIENCE: Duration = Duration::from_secs(5);
/// Leases that have ended are cleared away when there are this many more than after the last time.
const SWEEP: usize = 10_000;

/// All leases.
pub(crate) struct Leases {
    begun: Instant,
    /// Numbers of leases of one writer that this node gives are above.
    first: u64,
    /// Milliseconds from `begun` to the last look, plus one; 0: nobody has looked.
    looked: AtomicU64,
    /// Taken leases that somebody has not forgotten yet.
    taken: AtomicUsize,
    /// Files that somebody writes alone.
    alone: AtomicUsize,
    /// No change is answered before.
    not_before: Mutex<Option<Instant>>,
    state: Mutex<State>,
    forgotten: Condvar,
}

#[derive(Default)]
struct State {
    /// Changes, and leases taken, so far.
    count: u64,
    changed: HashMap<Ino, Change>,
    /// The same in order of time.
    changes: VecDeque<(Instant, Ino, u64)>,
    given: HashMap<Ino, Vec<Lease>>,
    swept: usize,
    sessions: HashMap<u64, Told>,
    alone: HashMap<Ino, alone::Lease>,
}

/// The last change of an inode.
struct Change {
    count: u64,
    /// When a lease was taken for it.
    taken: Option<Instant>,
}

struct Lease {
    session: u64,
    /// Number of the session's call that got it.
    call: u64,
    until: Instant,
}

/// What a session is to forget.
#[derive(Default)]
struct Told {
    queue: VecDeque<(u64, Ino, Instant)>,
    /// What he is to write alone no more, with the number of the lease.
    alone: Vec<(u64, Ino, u64)>,
    /// Up to which place he has heard what was told.
    heard: u64,
    /// When he asked last.
    asked: Option<Instant>,
    /// He did not forget something in time, and has not asked for news since.
    lame: bool,
    news: Arc<Condvar>,
}

/// What a session is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Of the last.
    pub(crate) place: u64,
    /// What it is to forget.
    pub(crate) inodes: Vec<Ino>,
    /// What it is to write alone no more, with the number of the lease.
    pub(crate) alone: Vec<(Ino, u64)>,
}

/// A look that has begun.
pub(crate) struct Look {
    count: u64,
    at: Instant,
}

impl Leases {
    /// `others`: hosts may have leases of a node that served before.
    pub(crate) fn new(others: bool) -> Self {
        let begun = Instant::now();
        // Place 0 says that nothing is remembered, 1 that nothing was told yet. Hosts remember numbers of leases that are over: those of an earlier
        // node are smaller.
        let first = crate::now().as_nanos().max(1) as u64;
        Self {
            begun,
            first,
            looked: AtomicU64::new(0),
            taken: AtomicUsize::new(0),
            alone: AtomicUsize::new(0),
            not_before: Mutex::new(others.then(|| begun + TERM + SLACK)),
            state: Mutex::new(State { count: first, ..State::default() }),
            forgotten: Condvar::new(),
        }
    }

    /// To be called before anything is read that is to be leased.
    pub(crate) fn look(&self) -> Look {
        let at = Instant::now();
        self.looked.fetch_max(self.millis(at) + 1, Ordering::SeqCst);
        Look { count: self.state.lock().count, at }
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.begun).as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// Gives a session leases of these inodes, by its call of this number; gives those that it does not get.
    pub(crate) fn give(
        &self,
        look: &Look,
        session: u64,
        call: u64,
        inodes: impl Iterator<Item = Ino>,
    ) -> Vec<Ino> {
        let mut state = self.state.lock();
        // Not before: what has changed meanwhile may be forgotten by then.
        let now = Instant::now();
        // Who does not ask for news would not hear what to forget.
        let hears = state.sessions.get(&session).is_some_and(|told| !told.lame);
        if !hears || now.duration_since(look.at) > LOOK {
            return inodes.collect();
        }
        let until = now + TERM + SLACK;
        let mut refused = Vec::new();
        for ino in inodes {
            let resting = |change: &Change| change.taken.is_some_and(|at| now.duration_since(at) < REST);
            if state.changed.get(&ino).is_some_and(|change| change.count > look.count || resting(change)) {
                refused.push(ino);
                continue;
            }
            let given = state.given.entry(ino).or_default();
            match given.iter_mut().find(|lease| lease.session == session) {
                Some(lease) => (lease.until, lease.call) = (until, lease.call.max(call)),
                None => given.push(Lease { session, call, until }),
            }
        }
        state.sweep(now);
        refused
    }

    /// A session is about to change these inodes by its call of this number, and has forgotten what it knew of them from earlier calls.
    pub(crate) fn give_back(&self, session: u64, call: u64, inodes: &[Ino]) {
        let mut state = self.state.lock();
        for ino in inodes {
            if let Some(given) = state.given.get_mut(ino) {
                given.retain(|lease| lease.session != session || lease.call > call);
            }
        }
    }

    /// These have changed, and that can be read: who remembers them is told. Nobody is waited for ([`Leases::settle`] does).
    pub(crate) fn changed(&self, inodes: &[Ino]) {
        let now = Instant::now();
        let looked = self.looked.load(Ordering::SeqCst);
        if looked == 0 || self.millis(now) > looked + WATCH.as_millis() as u64 {
            return;
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        for &ino in inodes {
            state.count += 1;
            let mut taken = None;
            for lease in state.given.remove(&ino).into_iter().flatten().filter(|lease| lease.until > now) {
                taken = Some(now);
                let Some(told) = state.sessions.get_mut(&lease.session) else { continue };
                told.queue.push_back((state.count, ino, lease.until));
                self.taken.fetch_add(1, Ordering::SeqCst);
                told.news.notify_all();
            }
            let taken = taken.or_else(|| state.changed.get(&ino).and_then(|change| change.taken));
            state.changed.insert(ino, Change { count: state.count, taken });
            state.changes.push_back((now, ino, state.count));
        }
        state.forget_changes(now);
    }

    /// Returns when nobody remembers what has changed until now otherwise.
    pub(crate) fn settle(&self) {
        self.wait_for_earlier();
        if self.taken.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let last = state.count;
        while let Some(until) = state.outstanding(last, Instant::now(), &self.taken) {
            self.forgotten.wait_until(&mut state, until);
        }
    }

    /// Leases that an earlier node gave.
    pub(crate) fn wait_for_earlier(&self) {
        let mut not_before = self.not_before.lock();
        if let Some(end) = *not_before {
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            *not_before = None;
        }
    }

    /// What a session is to forget, and the place of the last; waits for some. It has forgotten what was told up to place `after`; 0: it remembers nothing.
    pub(crate) fn news(&self, session: u64, after: u64) -> News {
        let mut state = self.state.lock();
        let told = state.sessions.entry(session).or_default();
        told.lame = false;
        told.asked = Some(Instant::now());
        told.heard = told.heard.max(after);
        told.alone.retain(|(place, ..)| *place > after);
        let before = told.queue.len();
        told.queue.retain(|(place, ..)| *place > after);
        self.taken.fetch_sub(before - told.queue.len(), Ordering::SeqCst);
        let (empty, news) = (told.queue.is_empty() && told.alone.is_empty(), told.news.clone());
        self.forgotten.notify_all();
        if empty && after != 0 {
            news.wait_for(&mut state, PATIENCE);
        }
        let Some(told) = state.sessions.get(&session) else {
            return News { place: after.max(1), ..News::default() };
        };
        let places =
            told.queue.iter().map(|(place, ..)| *place).chain(told.alone.iter().map(|(place, ..)| *place));
        let place = places.max().unwrap_or(after.max(1));
        let inodes = told.queue.iter().map(|(_, ino, _)| *ino).collect::<HashSet<_>>();
        let alone = told.alone.iter().map(|(_, ino, number)| (*ino, *number)).collect();
        News { place, inodes: inodes.into_iter().collect(), alone }
    }

    /// A session has ended: nobody uses what it remembers.
    pub(crate) fn leave(&self, session: u64) {
        let mut state = self.state.lock();
        Self::leave_alone(&mut state, session);
        self.forgotten.notify_all();
        if let Some(told) = state.sessions.remove(&session) {
            self.taken.fetch_sub(told.queue.len(), Ordering::SeqCst);
            self.forgotten.notify_all();
        }
    }
}

impl State {
    /// When the first lease ends that was taken up to this place and is not forgotten yet.
    fn outstanding(&mut self, last: u64, now: Instant, taken: &AtomicUsize) -> Option<Instant> {
        let mut first = None;
        for told in self.sessions.values_mut() {
            let before = told.queue.len();
            told.queue.retain(|(_, _, until)| *until > now);
            let ended = before - told.queue.len();
            taken.fetch_sub(ended, Ordering::SeqCst);
            told.lame |= ended > 0;
            let open = told.queue.iter().filter(|(place, ..)| *place <= last).map(|(_, _, until)| *until);
            first = open.chain(first).min();
        }
        first
    }

    fn forget_changes(&mut self, now: Instant) {
        while let Some((at, ino, count)) = self.changes.front()
            && now.duration_since(*at) > LOOK
        {
            if self.changed.get(ino).is_some_and(|change| change.count == *count) {
                self.changed.remove(ino);
            }
            self.changes.pop_front();
        }
    }

    fn sweep(&mut self, now: Instant) {
        if self.given.len() > self.swept + SWEEP {
            self.given.retain(|_, given| {
                given.retain(|lease| lease.until > now);
                !given.is_empty()
            });
            self.swept = self.given.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const HERE: u64 = 1;
    const THERE: u64 = 2;
    const FILE: Ino = Ino(7);
    const OTHER: Ino = Ino(8);

    fn leases() -> Leases {
        let leases = Leases::new(false);
        for session in [HERE, THERE] {
            assert_eq!(leases.news(session, 0), News { place: 1, ..News::default() });
        }
        leases
    }

    fn give(leases: &Leases, session: u64, call: u64, inodes: &[Ino]) -> Vec<Ino> {
        leases.give(&leases.look(), session, call, inodes.iter().copied())
    }

    /// How long a change takes to settle.
    fn settling(leases: &Leases) -> Duration {
        let begun = Instant::now();
        leases.settle();
        begun.elapsed()
    }

    #[test]
    fn who_remembers_what_changes_is_told_and_waited_for() {
        let leases = leases();
        assert_eq!(give(&leases, HERE, 1, &[FILE, OTHER]), []);
        leases.changed(&[FILE]);
        let News { place, inodes: told, .. } = leases.news(HERE, 1);
        assert_eq!((place > 1, told), (true, vec![FILE]));
        let settled = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                leases.settle();
                settled.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!settled.load(Ordering::SeqCst), "he has not said yet that he has forgotten it");
            // Asking for what comes then says so; it ends when something comes.
            let news = scope.spawn(|| leases.news(HERE, place));
            waits.join().unwrap();
            leases.changed(&[OTHER]);
            assert_eq!(news.join().unwrap().inodes, [OTHER]);
        });
        leases.changed(&[FILE]);
        assert_eq!(leases.state.lock().sessions[&HERE].queue.len(), 1, "nobody remembers it now");
    }

    #[test]
    fn who_does_not_answer_is_waited_for_until_his_lease_has_ended_and_gets_none_until_he_does() {
        let leases = leases();
        assert_eq!(give(&leases, HERE, 1, &[FILE]), []);
        leases.changed(&[FILE]);
        let waited = settling(&leases);
        assert!(waited > TERM - SLACK, "{waited:?}");
        leases.changed(&[FILE]);
        assert!(settling(&leases) < TERM / 2, "nobody remembers it");
        assert_eq!(give(&leases, HERE, 2, &[OTHER]), [OTHER]);
        leases.news(HERE, 0);
        assert_eq!(give(&leases, HERE, 3, &[OTHER]), []);
        assert_eq!(give(&leases, 99, 1, &[OTHER]), [OTHER], "he has never asked for news");
    }

    #[test]
    fn what_changed_since_somebody_began_to_look_is_not_leased_to_him() {
        let leases = leases();
        let look = leases.look();
        leases.changed(&[FILE]);
        assert_eq!(leases.give(&look, HERE, 1, [FILE, OTHER].into_iter()), [FILE]);
        assert_eq!(give(&leases, HERE, 2, &[FILE]), []);
        let late = Look { count: u64::MAX, at: Instant::now() - LOOK - SLACK };
        assert_eq!(
            leases.give(&late, HERE, 3, [OTHER].into_iter()),
            [OTHER],
            "changes from then are not known any more"
        );
    }

    #[test]
    fn what_was_taken_from_somebody_rests_for_a_moment() {
        let leases = leases();
        assert_eq!(give(&leases, HERE, 1, &[FILE]), []);
        leases.changed(&[FILE]);
        assert_eq!(give(&leases, THERE, 1, &[FILE]), [FILE]);
        std::thread::sleep(REST + Duration::from_millis(20));
        assert_eq!(give(&leases, THERE, 2, &[FILE]), []);
    }

    #[test]
    fn who_changes_something_himself_is_told_of_what_he_saw_by_later_calls_only() {
        let leases = leases();
        let queued = || leases.state.lock().sessions[&HERE].queue.len();
        assert_eq!(give(&leases, HERE, 4, &[FILE]), []);
        leases.give_back(HERE, 5, &[FILE]);
        leases.changed(&[FILE]);
        assert_eq!(queued(), 0, "he has forgotten it before he asked");
        assert_eq!(give(&leases, HERE, 7, &[FILE]), []);
        assert_eq!(give(&leases, HERE, 6, &[FILE]), []);
        leases.give_back(HERE, 6, &[FILE]);
        leases.changed(&[FILE]);
        assert_eq!(queued(), 1, "call 7 was made after call 6, and may have been answered before it");
    }

    #[test]
    fn a_session_that_has_ended_is_not_waited_for() {
        let leases = leases();
        assert_eq!(give(&leases, HERE, 1, &[FILE]), []);
        leases.changed(&[FILE]);
        leases.leave(HERE);
        assert!(settling(&leases) < TERM / 2);
    }

    #[test]
    fn a_node_answers_no_change_before_leases_of_an_earlier_one_have_ended() {
        let leases = Leases::new(true);
        assert!(settling(&leases) > TERM - SLACK);
        assert!(settling(&leases) < TERM / 2);
    }

    #[test]
    fn what_is_remembered_does_not_grow_with_what_was_looked_at() {
        let leases = leases();
        leases.state.lock().given = (100..100 + 2 * SWEEP as u64)
            .map(|n| (Ino(n), vec![Lease { session: HERE, call: 1, until: leases.begun }]))
            .collect();
        assert_eq!(give(&leases, HERE, 2, &[FILE]), []);
        assert_eq!(leases.state.lock().given.len(), 1);
        leases.changed(&[OTHER]);
        std::thread::sleep(LOOK + SLACK);
        leases.changed(&[FILE]);
        assert_eq!(leases.state.lock().changed.len(), 1);
    }
}
