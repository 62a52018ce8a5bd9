//! Who holds which lock and who waits for which: the rules of fcntl(2) and flock(2) without threads, clocks and files.
//!
//! Who asks is served at once if no lock that is held is in the way, even before others that wait for more (the kernel does the same: a strict
//! order would make owners wait for each other who need not). Of those who wait the first come first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use types::api::FsResult;
use types::{FsError, Handle, Ino, LockHeld, LockOrder, LockRange, LockRanges, LockSpace, LockWait};

/// Most ranges that are held, and most requests that wait: each takes some hundred bytes.
const MOST: usize = 1 << 20;

/// An owner: the session that speaks for him, and his number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Who {
    pub session: u64,
    pub owner: u64,
}

/// Names a request; later ones have greater numbers.
pub(super) type Ticket = u64;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub ino: Ino,
    pub handle: Handle,
    pub session: u64,
    /// Of another host.
    pub far: bool,
    pub order: LockOrder,
    /// He held it before the node was started anew.
    pub claimed: bool,
}

impl Asked {
    fn who(&self) -> Who {
        Who { session: self.session, owner: self.order.owner }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Waits,
    Refused(FsError),
}

/// What became of requests that waited.
pub(super) type Ended = Vec<(Ticket, FsResult<()>)>;

struct Holder {
    /// Through which he locked last; with it all ends.
    handle: Handle,
    pid: u32,
    /// Of another host.
    far: bool,
    ranges: LockRanges,
}

#[derive(Default)]
struct File {
    holders: BTreeMap<(LockSpace, Who), Holder>,
    /// In the order in which they came.
    queue: Vec<Ticket>,
}

impl File {
    /// What is held by others and in the way.
    fn against(&self, asked: &Asked) -> impl Iterator<Item = (Who, LockHeld)> {
        let (space, who, order) = (asked.order.space, asked.who(), asked.order);
        self.holders.iter().filter_map(move |((of, holder), held)| {
            let kind = order.kind.filter(|_| *of == space && *holder != who)?;
            let (range, kind) = held.ranges.against(order.range, kind)?;
            // A number of another host says nothing here.
            let known = holder.session == who.session || !(held.far || asked.far);
            Some((*holder, LockHeld { kind, range, pid: if known { held.pid } else { 0 } }))
        })
    }

    /// Makes the range be held as is asked; by how many ranges there are more or fewer then.
    fn set(&mut self, asked: &Asked, range: LockRange) -> isize {
        let key = (asked.order.space, asked.who());
        let (handle, far) = (asked.handle, asked.far);
        let new = || Holder { handle, pid: 0, far, ranges: LockRanges::default() };
        let held = self.holders.entry(key).or_insert_with(new);
        let before = held.ranges.len() as isize;
        held.ranges.set(range, asked.order.kind);
        let change = held.ranges.len() as isize - before;
        if asked.order.kind.is_some() {
            (held.handle, held.pid) = (asked.handle, asked.order.pid);
        }
        if held.ranges.is_empty() {
            self.holders.remove(&key);
        }
        change
    }
}

/// All locks.
#[derive(Default)]
pub(super) struct Table {
    files: HashMap<Ino, File>,
    waiting: BTreeMap<Ticket, Asked>,
    /// Ranges that are held.
    held: usize,
    /// Nobody gets anything that he did not hold before.
    closed: bool,
}

impl Table {
    /// From now on until [`Table::open`] only what is claimed is given.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether a session holds any.
    pub(super) fn any_of(&self, session: u64) -> bool {
        self.files.values().any(|file| file.holders.keys().any(|(_, who)| who.session == session))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Who waits is served.
    pub(super) fn open(&mut self, ended: &mut Ended) {
        self.closed = false;
        self.files.values_mut().for_each(|file| file.queue.clear());
        for (ticket, asked) in std::mem::take(&mut self.waiting) {
            match self.ask(ticket, asked, ended) {
                Answer::Waits => {}
                Answer::Done => ended.push((ticket, Ok(()))),
                Answer::Refused(why) => ended.push((ticket, Err(why))),
            }
        }
        self.tidy();
    }

    /// Asks for a lock, or gives one back. `ended`: others who get what they waited for.
    pub(super) fn ask(&mut self, ticket: Ticket, asked: Asked, ended: &mut Ended) -> Answer {
        if asked.order.kind.is_none() {
            self.set(&asked, ended);
            return Answer::Done;
        }
        if self.held >= MOST || self.waiting.len() >= MOST {
            return Answer::Refused(FsError::NoLocks);
        }
        if self.closed && !asked.claimed {
            self.wait(ticket, asked);
            return Answer::Waits;
        }
        if asked.order.space == LockSpace::Files && !self.give_up_other_kind(&asked) {
            return Answer::Done;
        }
        let file = self.files.entry(asked.ino).or_default();
        let free = file.against(&asked).next().is_none();
        let answer = match asked.order.wait {
            _ if free => {
                self.set(&asked, ended);
                return Answer::Done;
            }
            LockWait::Never => Answer::Refused(FsError::WouldBlock),
            LockWait::Checked if self.circle(&asked) => Answer::Refused(FsError::Deadlock),
            LockWait::Checked | LockWait::Patient => {
                self.wait(ticket, asked);
                Answer::Waits
            }
        };
        self.serve(asked.ino, ended);
        answer
    }

    /// Ends a wait; false if there is none (any more).
    pub(super) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let Some(asked) = self.waiting.remove(&ticket) else { return false };
        if let Some(file) = self.files.get_mut(&asked.ino) {
            file.queue.retain(|waiting| *waiting != ticket);
        }
        self.tidy_file(asked.ino);
        true
    }

    /// A lock of somebody else that is in the way.
    pub(super) fn test(&self, asked: &Asked) -> Option<LockHeld> {
        self.files.get(&asked.ino)?.against(asked).next().map(|(_, held)| held)
    }

    /// A handle was closed: what was got through it ends, and who waits through it.
    pub(super) fn end(&mut self, ino: Ino, handle: Handle, ended: &mut Ended) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let before = file.holders.values().map(|held| held.ranges.len()).sum::<usize>();
        file.holders.retain(|_, held| held.handle != handle);
        self.held -= before - file.holders.values().map(|held| held.ranges.len()).sum::<usize>();
        let waits = |ticket: &&Ticket| self.waiting.get(ticket).is_some_and(|asked| asked.handle == handle);
        let gone: Vec<Ticket> = file.queue.iter().filter(waits).copied().collect();
        file.queue.retain(|ticket| !gone.contains(ticket));
        for ticket in gone {
            self.waiting.remove(&ticket);
            ended.push((ticket, Err(FsError::BadHandle)));
        }
        self.serve(ino, ended);
        self.tidy_file(ino);
    }

    /// A lock of a whole file that changes its kind is given up first, as the kernel does it: two who want more would wait for each other.
    /// False if he holds it as he wants it.
    fn give_up_other_kind(&mut self, asked: &Asked) -> bool {
        let Some(file) = self.files.get_mut(&asked.ino) else { return true };
        let Some(held) = file.holders.get(&(LockSpace::Files, asked.who())) else { return true };
        if held.ranges.iter().any(|(_, kind)| Some(kind) == asked.order.kind) {
            return false;
        }
        let order = LockOrder { kind: None, ..asked.order };
        let change = file.set(&Asked { order, ..*asked }, LockRange::WHOLE);
        self.held = self.held.saturating_add_signed(change);
        true
    }

    fn set(&mut self, asked: &Asked, ended: &mut Ended) {
        let whole = asked.order.space == LockSpace::Files;
        let range = if whole { LockRange::WHOLE } else { asked.order.range };
        let change = self.files.entry(asked.ino).or_default().set(asked, range);
        self.held = self.held.saturating_add_signed(change);
        self.serve(asked.ino, ended);
        self.tidy_file(asked.ino);
    }

    fn wait(&mut self, ticket: Ticket, asked: Asked) {
        self.files.entry(asked.ino).or_default().queue.push(ticket);
        self.waiting.insert(ticket, asked);
    }

    /// Gives to those who wait what nothing is in the way of any more.
    fn serve(&mut self, ino: Ino, ended: &mut Ended) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        // Who gets less than he held makes room for others: hence again from the beginning.
        while !self.closed {
            let free = |ticket: &Ticket| {
                let asked = self.waiting.get(ticket)?;
                file.against(asked).next().is_none().then_some(*asked)
            };
            let Some((at, asked)) = file.queue.iter().enumerate().find_map(|(at, t)| Some((at, free(t)?)))
            else {
                return;
            };
            let ticket = file.queue.remove(at);
            self.waiting.remove(&ticket);
            let change = file.set(&asked, asked.order.range);
            self.held = self.held.saturating_add_signed(change);
            ended.push((ticket, Ok(())));
        }
    }

    /// Whether somebody whose lock is in the way waits himself, through however many others, for one of who asks.
    fn circle(&self, asked: &Asked) -> bool {
        let holders = |asked: &Asked| -> Vec<Who> {
            self.files
                .get(&asked.ino)
                .map_or_else(Vec::new, |f| f.against(asked).map(|(who, _)| who).collect())
        };
        let (mut seen, mut todo) = (BTreeSet::new(), holders(asked));
        while let Some(who) = todo.pop() {
            if who == asked.who() {
                return true;
            }
            if !seen.insert(who) {
                continue;
            }
            let waits = |other: &&Asked| other.who() == who && other.order.wait == LockWait::Checked;
            self.waiting.values().filter(waits).for_each(|other| todo.extend(holders(other)));
        }
        false
    }

    fn tidy_file(&mut self, ino: Ino) {
        if self.files.get(&ino).is_some_and(|file| file.holders.is_empty() && file.queue.is_empty()) {
            self.files.remove(&ino);
        }
    }

    fn tidy(&mut self) {
        self.files.retain(|_, file| !file.holders.is_empty() || !file.queue.is_empty());
    }
}

#[cfg(test)]
#[path = "model.rs"]
mod model;
