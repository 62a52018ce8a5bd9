//! Connections to the node, by what their calls wait for: those that are used, and those that may be.

use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// A connection that nobody has used for so long is closed: the node has a thread for each.
const IDLE: Duration = Duration::from_secs(60);
/// Between two looks for such ones.
const LOOK: Duration = Duration::from_secs(10);

/// What a call waits for; each kind has connections of its own, so that none waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Names and attributes.
    Names,
    /// Opens of what may be there: for what another host has in its memory, or for who reads it elsewhere.
    Opens,
    /// Bytes that are on disk.
    Bytes,
    /// Tape, or space.
    Tape,
    /// Locks that somebody else holds.
    News,
    /// What is to be forgotten.
    Forget,
    /// Who writes a file alone: whoever opens one waits for that with a connection for opens.
    Alone,
    /// What is kept of files, and the node gets again: whoever opens one on another host waits for that.
    Kept,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Names,
        Self::Opens,
        Self::Bytes,
        Self::Tape,
        Self::News,
        Self::Forget,
        Self::Alone,
        Self::Kept,
    ];

    /// How many connections there may be.
    fn most(self) -> usize {
        match self {
            Self::Names | Self::Bytes | Self::Alone => 8,
            // Each may wait for a minute, for a mover that does not answer.
            Self::Opens => 64,
            Self::Tape => super::THREADS,
            Self::News | Self::Forget | Self::Kept => 1,
        }
    }
}

/// All connections.
pub(super) struct Groups<L> {
    groups: [Group<L>; Kind::ALL.len()],
    looked: Mutex<Instant>,
}

/// Those of one kind.
struct Group<L> {
    most: usize,
    state: Mutex<State<L>>,
    room: Condvar,
}

struct State<L> {
    /// Those that nobody uses, and since when; who was used last is last.
    idle: Vec<(Instant, L)>,
    /// These and those that are used.
    open: usize,
}

/// The right to use a connection; that is given back, or counts no more if there is none when this is dropped.
pub(super) struct Used<'g, L> {
    group: &'g Group<L>,
    /// None: one is to be made.
    pub(super) line: Option<L>,
}

impl<L> Drop for Used<'_, L> {
    fn drop(&mut self) {
        let mut state = self.group.state.lock();
        match self.line.take() {
            Some(line) => state.idle.push((Instant::now(), line)),
            None => state.open -= 1,
        }
        self.group.room.notify_one();
    }
}

impl<L> Groups<L> {
    pub(super) fn new() -> Self {
        let state = || Mutex::new(State { idle: Vec::new(), open: 0 });
        let group = |kind: Kind| Group { most: kind.most(), state: state(), room: Condvar::new() };
        Self { groups: Kind::ALL.map(group), looked: Mutex::new(Instant::now()) }
    }

    /// A connection that nobody uses, if it is still good for something, or the right to make one; waits until there may be one more.
    pub(super) fn take(&self, kind: Kind, is_good: impl Fn(&L) -> bool) -> Used<'_, L> {
        let used = self.groups[kind as usize].take(is_good);
        if used.line.is_some() {
            self.close_idle(Instant::now());
        }
        used
    }

    /// Closes what nobody has used for long. One that is used just now stays, so there is always one by which the node knows this host.
    fn close_idle(&self, now: Instant) {
        let Some(mut looked) = self.looked.try_lock() else { return };
        if now.saturating_duration_since(*looked) < LOOK {
            return;
        }
        *looked = now;
        drop(looked);
        for group in &self.groups {
            drop(group.idle_since(now));
        }
    }
}

impl<L> Group<L> {
    fn take(&self, is_good: impl Fn(&L) -> bool) -> Used<'_, L> {
        let mut state = self.state.lock();
        loop {
            if let Some((_, line)) = state.idle.pop() {
                if is_good(&line) {
                    return Used { group: self, line: Some(line) };
                }
                state.open -= 1;
            } else if state.open < self.most {
                state.open += 1;
                return Used { group: self, line: None };
            } else {
                self.room.wait(&mut state);
            }
        }
    }

    /// Takes out what nobody has used for long.
    fn idle_since(&self, now: Instant) -> Vec<(Instant, L)> {
        let mut state = self.state.lock();
        let idle = state.idle.partition_point(|(since, _)| now.saturating_duration_since(*since) >= IDLE);
        state.open -= idle;
        state.idle.drain(..idle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many are used at a time, and given back.
    fn use_at_once(groups: &Groups<u32>, kind: Kind, number: usize) -> Vec<Option<u32>> {
        let mut used: Vec<_> = (0..number).map(|_| groups.take(kind, |_| true)).collect();
        let were = used.iter().map(|one| one.line).collect();
        for (n, one) in used.iter_mut().enumerate() {
            one.line.get_or_insert(n as u32);
        }
        were
    }

    #[test]
    fn who_waits_keeps_no_other_kind_from_its_connections() {
        let groups = Groups::new();
        let waiting: Vec<_> = (0..Kind::Opens.most()).map(|_| groups.take(Kind::Opens, |_| true)).collect();
        assert_eq!(use_at_once(&groups, Kind::Names, 8), [None; 8]);
        std::thread::scope(|scope| {
            let one_more = scope.spawn(|| groups.take(Kind::Opens, |_| true).line);
            std::thread::sleep(Duration::from_millis(50));
            assert!(!one_more.is_finished());
            drop(waiting);
            assert_eq!(one_more.join().unwrap(), None);
        });
    }

    #[test]
    fn who_was_used_last_is_used_first_and_what_nobody_has_used_for_long_is_closed() {
        let groups = Groups::new();
        use_at_once(&groups, Kind::Opens, 20);
        use_at_once(&groups, Kind::Names, 3);
        assert_eq!(use_at_once(&groups, Kind::Names, 1), [Some(2)]);
        let later = Instant::now() + IDLE - Duration::from_secs(1);
        groups.close_idle(later);
        assert_eq!(use_at_once(&groups, Kind::Opens, 21).iter().flatten().count(), 20, "a moment ago");
        // Of those for opens all are used, of those for names none.
        let used: Vec<_> = (0..21).map(|_| groups.take(Kind::Opens, |_| true)).collect();
        groups.close_idle(later + LOOK);
        assert_eq!(use_at_once(&groups, Kind::Names, 3), [None; 3]);
        drop(used);
        assert_eq!(use_at_once(&groups, Kind::Opens, 22).iter().flatten().count(), 21);
    }

    #[test]
    fn what_is_good_for_nothing_makes_room_for_another_one() {
        let groups = Groups::new();
        use_at_once(&groups, Kind::News, 1);
        assert_eq!(groups.take(Kind::News, |_| false).line, None);
        assert_eq!(groups.take(Kind::News, |_| true).line, None, "what was not made counts no more");
    }
}
