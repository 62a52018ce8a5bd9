//! What is remembered of names and attributes, for as long as the node says, and no longer than it has not said that something of it has changed.
//!
//! Who looks notes before he asks how much was to be forgotten until then; what was to be forgotten since is not remembered from his answer, in whatever
//! order the two came. What this host itself changes it forgets before it asks for the change, under the number of that call: the node
//! takes that for granted of what was got by calls of lower numbers (`FileCall::changes`).

use super::Shared;
use super::lines::Trouble;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use types::api::Watcher;
use types::{Attr, Ino};
use wire::{LeasedReply, Look, Seen};

/// Before news are asked for again where nobody has answered.
const PAUSE: Duration = Duration::from_secs(1);
/// The same where this host was refused: who is refused often is not listened to.
const LONG: Duration = Duration::from_secs(30);
/// Most inodes, and most names, that are remembered.
const MOST: usize = 100_000;

/// For so long a kernel may answer from attributes that are remembered: until the program that has asked for a path has come to its end.
const MOMENT: Duration = Duration::from_millis(4);
/// Their lease has to last so much longer: for the moment counts from when whoever has asked gets a processor.
const SPARE: Duration = Duration::from_millis(250);

/// All that is remembered.
#[derive(Default)]
pub(super) struct Memory(Mutex<State>, OnceLock<Arc<dyn Watcher>>);

#[derive(Default)]
struct State {
    /// A thread asks for news.
    tended: bool,
    /// The session in which news come; 0: none do, and nothing is remembered.
    live: u64,
    inodes: HashMap<Ino, (Attr, Moment)>,
    names: HashMap<Ino, Names>,
    /// Names in all directories.
    count: usize,
    /// How often something was to be forgotten.
    forgets: u64,
    /// When each inode was, since the oldest look began.
    forgotten: HashMap<Ino, u64>,
    /// Looks that began before this count remember nothing.
    floor: u64,
    looks: usize,
}

/// What names of a directory lead to (None: nothing), and until when that counts.
type Names = HashMap<Box<[u8]>, (Option<Ino>, Moment)>;

/// Since the machine was started, also while it sleeps.
pub(super) type Moment = Duration;

pub(super) fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A look that is under way.
pub(super) struct Looking<'m> {
    memory: &'m Memory,
    forgets: u64,
    at: Moment,
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let mut state = self.memory.0.lock();
        state.looks -= 1;
        if state.looks == 0 {
            state.forgotten.clear();
        }
    }
}

impl Memory {
    /// The node is about to be asked; None: nothing is to be remembered now.
    pub(super) fn look(&self) -> Option<Looking<'_>> {
        let mut state = self.0.lock();
        if state.live == 0 {
            return None;
        }
        state.looks += 1;
        Some(Looking { memory: self, forgets: state.forgets, at: now() })
    }

    /// Whether anything is remembered now.
    pub(super) fn is_live(&self) -> bool {
        self.0.lock().live != 0
    }

    /// Attributes, if they are remembered.
    pub(super) fn attr(&self, ino: Ino) -> Option<Attr> {
        self.0.lock().attr(ino, now())
    }

    /// How long a kernel may answer from the attributes that are remembered, from when it gets them.
    pub(super) fn term(&self, ino: Ino) -> Duration {
        let lasts = self.0.lock().attr(ino, now() + SPARE).is_some();
        if lasts && self.1.get().is_some() { MOMENT } else { Duration::ZERO }
    }

    /// A kernel that answers from what is remembered is told by this one what has changed.
    pub(super) fn watch(&self, watcher: Arc<dyn Watcher>) {
        let _ = self.1.set(watcher); // a session has one gateway
    }

    /// Others have changed these; returns when the kernel has forgotten them too.
    fn forget_changed(&self, inodes: &[Ino]) {
        self.forget(inodes.iter().copied());
        if let Some(watcher) = self.1.get().filter(|_| !inodes.is_empty()) {
            inodes.iter().for_each(|ino| watcher.attributes_changed(*ino));
            watcher.wait_forgotten();
        }
    }

    /// What a name leads to, if that is remembered; `Some(None)`: there is no such name.
    pub(super) fn name(&self, dir: Ino, name: &[u8]) -> Option<Option<Attr>> {
        let (state, now) = (self.0.lock(), now());
        let (ino, until) = state.names.get(&dir)?.get(name)?;
        match ino {
            _ if *until <= now => None,
            None => Some(None),
            Some(ino) => state.attr(*ino, now).map(Some),
        }
    }

    /// Something changes, or has.
    pub(super) fn forget(&self, inodes: impl IntoIterator<Item = Ino>) {
        let mut state = self.0.lock();
        for ino in inodes {
            state.forget(ino);
        }
    }

    /// An answer of the session `begun` has come.
    pub(super) fn remember(&self, look: &Looking<'_>, begun: u64, at: &Look, told: &LeasedReply) {
        let until = look.at + Duration::from_millis(told.term_ms.into());
        let mut state = self.0.lock();
        if state.live != begun || look.forgets < state.floor || until <= now() {
            return;
        }
        let State { forgotten, inodes, names, count, .. } = &mut *state;
        let may = |ino: Ino| {
            !told.refused.contains(&ino) && forgotten.get(&ino).is_none_or(|at| *at <= look.forgets)
        };
        let mut enter = |dir: Ino, name: &[u8], ino: Option<Ino>| {
            let before = names.entry(dir).or_default().insert(name.into(), (ino, until));
            *count += usize::from(before.is_none());
        };
        match (at, &told.seen) {
            (Look::Lookup { parent, name }, Seen::Attr(attr)) => {
                if may(*parent) {
                    enter(*parent, name, Some(attr.ino));
                }
                if may(attr.ino) {
                    inodes.insert(attr.ino, (attr.clone(), until));
                }
            }
            (Look::Lookup { parent, name }, Seen::Absent) if may(*parent) => enter(*parent, name, None),
            (Look::GetAttr(ino), Seen::Attr(attr)) if may(*ino) => {
                inodes.insert(*ino, (attr.clone(), until));
            }
            (Look::ReadDir { dir, .. }, Seen::Entries(entries)) => {
                let names = may(*dir);
                // A damaged inode is not remembered: who looks at it gets the error.
                for (entry, attr) in entries.iter().filter(|(_, attr)| attr.nlink > 0) {
                    if names {
                        enter(*dir, &entry.name, Some(attr.ino));
                    }
                    if may(attr.ino) {
                        inodes.insert(attr.ino, (attr.clone(), until));
                    }
                }
            }
            _ => {}
        }
        state.bound();
    }

    /// News come in this session from now on, and nothing is remembered from before; 0: none come.
    fn live(&self, begun: u64) {
        let mut state = self.0.lock();
        state.clear();
        state.live = begun;
    }

    /// Whether a thread is to begin to ask for news.
    fn begin(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().tended, true)
    }
}

impl State {
    fn attr(&self, ino: Ino, now: Moment) -> Option<Attr> {
        self.inodes.get(&ino).filter(|(_, until)| *until > now).map(|(attr, _)| attr.clone())
    }

    fn forget(&mut self, ino: Ino) {
        self.inodes.remove(&ino);
        self.count -= self.names.remove(&ino).map_or(0, |names| names.len());
        self.forgets += 1;
        if self.looks > 0 {
            self.forgotten.insert(ino, self.forgets);
        }
        if self.forgotten.len() > MOST {
            self.floor = self.forgets;
            self.forgotten.clear();
        }
    }

    fn clear(&mut self) {
        self.inodes.clear();
        self.names.clear();
        self.forgotten.clear();
        self.count = 0;
        self.forgets += 1;
        self.floor = self.forgets;
    }

    /// Where there is too much, what has ended goes; else all.
    fn bound(&mut self) {
        if self.inodes.len() <= MOST && self.count <= MOST {
            return;
        }
        let now = now();
        self.inodes.retain(|_, (_, until)| *until > now);
        self.names.retain(|_, names| {
            names.retain(|_, (_, until)| *until > now);
            !names.is_empty()
        });
        self.count = self.names.values().map(HashMap::len).sum();
        if self.inodes.len() > MOST / 2 || self.count > MOST / 2 {
            self.clear();
        }
    }
}

impl Shared {
    /// Begins to ask for news, if nobody does.
    pub(super) fn tend_memory(self: &Arc<Self>) {
        if !self.memory.begin() {
            return;
        }
        let shared = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("cluster-memory".into()).spawn(move || tend(&shared));
        if let Err(e) = thread {
            tracing::error!("no thread for what others change: {e}; nothing is remembered, each look asks");
        }
    }
}

fn tend(shared: &Weak<Shared>) {
    let (mut begun, mut after) = (0, 0);
    while let Some(shared) = shared.upgrade() {
        match shared.lines.to_forget(begun, after) {
            Ok(Ok((place, inodes, alone))) => {
                alone.into_iter().for_each(|(ino, number)| shared.give_back(ino, number));
                match after {
                    0 => shared.memory.live(begun),
                    _ => shared.memory.forget_changed(&inodes),
                }
                after = place;
            }
            Ok(Err(another)) => {
                shared.memory.live(0);
                if begun != 0 {
                    shared.return_spares(another);
                }
                (begun, after) = (another, 0);
            }
            Err(trouble) => {
                shared.memory.live(0);
                after = 0;
                drop(shared);
                std::thread::sleep(if let Trouble::Refused(_) = trouble { LONG } else { PAUSE });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{DirEntry, FileKind, Time};

    const BEGUN: u64 = 3;
    const DIR: Ino = Ino(1);

    fn attr(ino: u64) -> Attr {
        let never = Time::default();
        Attr {
            ino: Ino(ino),
            kind: FileKind::File,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            disk_bytes: 0,
            atime: never,
            mtime: never,
            ctime: never,
            btime: never,
        }
    }

    fn memory() -> Memory {
        let memory = Memory::default();
        assert!(memory.look().is_none(), "no news come yet");
        memory.live(BEGUN);
        memory
    }

    fn lookup(name: &[u8]) -> Look {
        Look::Lookup { parent: DIR, name: name.to_vec() }
    }

    fn told(seen: Seen, refused: &[Ino]) -> LeasedReply {
        LeasedReply { seen, refused: refused.to_vec(), term_ms: 60_000 }
    }

    fn found(memory: &Memory, name: &[u8], ino: u64) {
        let look = memory.look().unwrap();
        memory.remember(&look, BEGUN, &lookup(name), &told(Seen::Attr(attr(ino)), &[]));
    }

    #[test]
    fn names_attributes_and_what_is_not_there_are_remembered_until_they_are_to_be_forgotten() {
        let memory = memory();
        found(&memory, b"a", 7);
        let look = memory.look().unwrap();
        memory.remember(&look, BEGUN, &lookup(b"b"), &told(Seen::Absent, &[]));
        assert_eq!(memory.name(DIR, b"a"), Some(Some(attr(7))));
        assert_eq!(memory.name(DIR, b"b"), Some(None));
        assert_eq!((memory.name(DIR, b"c"), memory.attr(Ino(7))), (None, Some(attr(7))));
        memory.forget([Ino(7)]);
        assert_eq!((memory.name(DIR, b"a"), memory.name(DIR, b"b")), (None, Some(None)));
        memory.forget([DIR]);
        assert_eq!(memory.name(DIR, b"b"), None);
    }

    #[test]
    fn what_is_to_be_forgotten_while_somebody_looks_is_not_remembered_from_his_answer() {
        let memory = memory();
        let look = memory.look().unwrap();
        memory.forget([DIR]);
        memory.remember(&look, BEGUN, &lookup(b"a"), &told(Seen::Attr(attr(7)), &[]));
        assert_eq!((memory.name(DIR, b"a"), memory.attr(Ino(7))), (None, Some(attr(7))));
        drop(look);
        found(&memory, b"a", 7);
        assert_eq!(memory.name(DIR, b"a"), Some(Some(attr(7))));
    }

    #[test]
    fn a_listing_is_remembered_but_for_what_is_refused() {
        let memory = memory();
        let entry = |ino: u64, name: &[u8]| {
            let entry = DirEntry { ino: Ino(ino), kind: FileKind::File, cookie: ino, name: name.to_vec() };
            (entry, attr(ino))
        };
        let list = |refused: &[Ino]| {
            let look = memory.look().unwrap();
            let call = Look::ReadDir { dir: DIR, after: 0, limit: 9 };
            let reply = Seen::Entries(vec![entry(7, b"a"), entry(8, b"b")]);
            memory.remember(&look, BEGUN, &call, &told(reply, refused));
        };
        list(&[DIR]);
        assert_eq!((memory.name(DIR, b"a"), memory.attr(Ino(7))), (None, Some(attr(7))));
        list(&[Ino(8)]);
        assert_eq!(memory.name(DIR, b"a"), Some(Some(attr(7))));
        memory.forget([Ino(8)]);
        list(&[Ino(8)]);
        assert_eq!((memory.name(DIR, b"b"), memory.attr(Ino(8))), (None, None));
    }

    #[test]
    fn nothing_is_remembered_beyond_its_time_from_another_session_or_when_no_news_come() {
        let memory = memory();
        let look = memory.look().unwrap();
        let short = LeasedReply { term_ms: 30, ..told(Seen::Attr(attr(7)), &[]) };
        memory.remember(&look, BEGUN, &lookup(b"a"), &short);
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!((memory.name(DIR, b"a"), memory.attr(Ino(7))), (None, None));
        memory.remember(&look, BEGUN + 1, &lookup(b"a"), &told(Seen::Attr(attr(7)), &[]));
        assert_eq!(memory.attr(Ino(7)), None);
        drop(look);
        found(&memory, b"a", 7);
        memory.live(0);
        assert_eq!((memory.attr(Ino(7)), memory.look().is_none()), (None, true));
        memory.live(BEGUN);
        assert_eq!(memory.attr(Ino(7)), None);
    }

    #[test]
    fn the_memory_has_an_end() {
        let memory = memory();
        let look = memory.look().unwrap();
        for n in 0..MOST as u64 + 2 {
            let call = Look::GetAttr(Ino(n + 10));
            memory.remember(&look, BEGUN, &call, &told(Seen::Attr(attr(n + 10)), &[]));
        }
        let state = memory.0.lock();
        assert!(state.inodes.len() <= MOST, "{}", state.inodes.len());
    }
}
