//! Descriptors of objects, given by a mover on this host: what is large and was read before is read past the connection.
//!
//! Each read is asked for as ever, and answered with the sums: the mover decides whether it is allowed, and the sums whether the bytes are right. Whoever
//! keeps a descriptor may keep the room of an object that is removed, so those that nobody uses go soon.

use rustix::io::{Errno, ReadWriteFlags};
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Reads below this go over the connection (bytes): there the exchange is what takes time.
pub(super) const FROM: u64 = 64 << 10;
/// Objects of which something is known; beyond it the one that was not read for longest is forgotten.
const MOST: usize = 64;
/// The program needs its descriptors for itself: all channels together take no more than this part of those that it may have ...
const PART: u64 = 16;
/// ... and no more than so many.
const ALL: u64 = 512;
/// After this many reads in a row that were not in memory the next ones are not tried, twice as many each time, up to 64.
const LONGEST_PAUSE: u32 = 64;
/// One that was not read for so long is forgotten.
const IDLE: Duration = Duration::from_secs(10);
/// How often that is looked at.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// What is known of objects, by slot and number.
pub(super) struct Descriptors {
    known: BTreeMap<(u16, u64), Known>,
    budget: Arc<Budget>,
}

impl Default for Descriptors {
    fn default() -> Self {
        Self { known: BTreeMap::new(), budget: BUDGET.clone() }
    }
}

/// What is known of one. It is dropped where no lock is held: to close a descriptor may take a while.
pub(super) struct Known {
    what: What,
    used: Instant,
    /// After what was not in memory: so many reads are not tried, and so many were not the last time.
    pause: (u32, u32),
}

enum What {
    /// It was read once.
    Read,
    /// Its descriptor is asked for.
    Asked(Permit),
    /// There is none for it, or it is of no use.
    None,
    Here(Arc<Kept>),
}

/// How many descriptors there are, or were asked for, and may be.
struct Budget {
    kept: AtomicU64,
    most: fn() -> u64,
}

/// That of this process.
static BUDGET: LazyLock<Arc<Budget>> =
    LazyLock::new(|| Arc::new(Budget { kept: AtomicU64::new(0), most: of_process }));

fn of_process() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(ALL, |limit| (limit / PART).min(ALL))
}

impl Budget {
    fn take(self: &Arc<Self>) -> Option<Permit> {
        let most = (self.most)();
        let more = |kept: u64| (kept < most).then_some(kept + 1);
        let taken = self.kept.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok().then(|| Permit(self.clone()))
    }
}

/// The right to have one more descriptor.
struct Permit(Arc<Budget>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.kept.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A descriptor of an object.
pub(super) struct Kept {
    descriptor: OwnedFd,
    _permit: Permit,
}

/// How an object is to be read.
pub(super) enum Way {
    /// Over the connection.
    Sent,
    /// In the same way, and its descriptor is to be asked for.
    SentAndAsk,
    /// By this descriptor.
    Held(Arc<Kept>),
}

impl Descriptors {
    /// A large piece of an object is to be read: how, and what was forgotten for it.
    pub(super) fn read(&mut self, slot: u16, object: u64, now: Instant) -> (Way, Option<Known>) {
        if let Some(known) = self.known.get_mut(&(slot, object)) {
            known.used = now;
            let way = match &known.what {
                What::Read => match self.budget.take() {
                    Some(permit) => {
                        known.what = What::Asked(permit);
                        Way::SentAndAsk
                    }
                    None => Way::Sent,
                },
                What::Here(_) if known.pause.0 > 0 => {
                    known.pause.0 -= 1;
                    Way::Sent
                }
                What::Here(kept) => {
                    // Those behind it wait for what comes of it.
                    known.pause.0 = known.pause.1;
                    Way::Held(kept.clone())
                }
                What::Asked(_) | What::None => Way::Sent,
            };
            return (way, None);
        }
        let oldest = self.known.iter().min_by_key(|(_, known)| known.used).map(|(place, _)| *place);
        let gone = oldest.filter(|_| self.known.len() >= MOST).and_then(|place| self.known.remove(&place));
        self.known.insert((slot, object), Known { what: What::Read, used: now, pause: (0, 0) });
        (Way::Sent, gone)
    }

    /// The answer to what was asked for; gives back what nobody waits for.
    pub(super) fn came(&mut self, slot: u16, object: u64, descriptor: Option<OwnedFd>) -> Option<OwnedFd> {
        let known = self.known.get_mut(&(slot, object)).filter(|known| matches!(known.what, What::Asked(_)));
        let Some(known) = known else { return descriptor };
        let asked = std::mem::replace(&mut known.what, What::None);
        if let (What::Asked(_permit), Some(descriptor)) = (asked, descriptor) {
            known.what = What::Here(Arc::new(Kept { descriptor, _permit }));
        }
        None
    }

    /// What an object has there was read by its descriptor, or was not in memory.
    pub(super) fn tried(&mut self, slot: u16, object: u64, was_there: bool) {
        if let Some(known) = self.known.get_mut(&(slot, object)) {
            let last = if was_there { 0 } else { (known.pause.1 * 2).clamp(1, LONGEST_PAUSE) };
            known.pause = (last, last);
        }
    }

    /// Its descriptor is of no use; what was kept of it.
    pub(super) fn of_no_use(&mut self, slot: u16, object: u64) -> Option<Arc<Kept>> {
        match std::mem::replace(&mut self.known.get_mut(&(slot, object))?.what, What::None) {
            What::Here(kept) => Some(kept),
            _ => None,
        }
    }

    /// Forgets an object.
    pub(super) fn forget(&mut self, object: u64) -> Vec<Known> {
        self.take(|(_, of), _| *of == object)
    }

    /// Forgets what was read by a slot.
    pub(super) fn forget_slot(&mut self, slot: u16) -> Vec<Known> {
        self.take(|(of, _), _| *of == slot)
    }

    /// Forgets what nobody has read for a while.
    pub(super) fn forget_idle(&mut self, now: Instant) -> Vec<Known> {
        self.take(|_, known| now.saturating_duration_since(known.used) >= IDLE)
    }

    fn take(&mut self, which: impl Fn(&(u16, u64), &Known) -> bool) -> Vec<Known> {
        let places: Vec<_> =
            self.known.iter().filter(|(at, known)| which(at, known)).map(|(at, _)| *at).collect();
        places.iter().filter_map(|place| self.known.remove(place)).collect()
    }

    /// Whether there is anything to be forgotten.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

/// What came of reading by a descriptor.
#[derive(Debug, PartialEq)]
pub(super) enum Got {
    /// All that there is to be, or fewer bytes where the object ends.
    Bytes(Vec<u8>),
    /// Not all of it is in memory: whoever waits for a disk is the mover, whom others do not wait for. Its buffer.
    NotThere(Vec<u8>),
    /// The file system does not say what is in memory. Its buffer.
    Unknown(Vec<u8>),
}

/// What an object has now at a place, as far as no disk has to be waited for.
pub(super) fn read_by(kept: &Kept, offset: u64, length: usize, mut memory: Vec<u8>) -> Got {
    match memory.capacity() < length {
        true => memory = vec![0; length],
        false => memory.resize(length, 0),
    }
    let mut done = 0;
    while done < length {
        match read_now(&kept.descriptor, &mut memory[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP) => return Got::Unknown(memory),
            Err(_) => return Got::NotThere(memory),
        }
    }
    memory.truncate(done);
    Got::Bytes(memory)
}

fn read_now(descriptor: &OwnedFd, into: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    match rustix::io::preadv2(descriptor, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT) {
        // There everything is in memory.
        Err(Errno::OPNOTSUPP) if rustix::fs::fstatfs(descriptor)?.f_type == TMPFS => {
            rustix::io::pread(descriptor, into, offset)
        }
        read => read,
    }
}

/// What statfs(2) calls a file system in memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> Descriptors {
        Descriptors {
            known: BTreeMap::new(),
            budget: Arc::new(Budget { kept: AtomicU64::new(0), most: || 100 }),
        }
    }

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn is_held(all: &mut Descriptors, slot: u16, object: u64, now: Instant) -> bool {
        matches!(all.read(slot, object, now).0, Way::Held(_))
    }

    /// One that is there.
    fn with(all: &mut Descriptors, slot: u16, object: u64, now: Instant) {
        assert!(matches!(all.read(slot, object, now).0, Way::Sent));
        assert!(matches!(all.read(slot, object, now).0, Way::SentAndAsk));
        assert!(all.came(slot, object, Some(descriptor())).is_none());
    }

    #[test]
    fn the_second_read_asks_once_and_those_behind_the_answer_are_held() {
        let (mut all, now) = (new(), Instant::now());
        assert!(matches!(all.read(1, 7, now), (Way::Sent, None)));
        assert!(matches!(all.read(1, 7, now), (Way::SentAndAsk, None)));
        assert!(matches!(all.read(1, 7, now), (Way::Sent, None)));
        assert!(all.came(1, 7, Some(descriptor())).is_none());
        assert!(is_held(&mut all, 1, 7, now));
        assert!(!is_held(&mut all, 2, 7, now), "another slot has another right");
        assert!(all.came(1, 7, Some(descriptor())).is_some(), "nobody has asked for a second one");
        assert!(all.came(1, 8, Some(descriptor())).is_some(), "nor for one of another object");
    }

    #[test]
    fn what_was_refused_is_not_asked_for_again_and_again() {
        let (mut all, now) = (new(), Instant::now());
        all.read(1, 7, now);
        all.read(1, 7, now);
        assert!(all.came(1, 7, None).is_none());
        assert!((0..10).all(|_| matches!(all.read(1, 7, now).0, Way::Sent)));
    }

    #[test]
    fn what_is_forgotten_meanwhile_does_not_come_to_stay() {
        let (mut all, now) = (new(), Instant::now());
        all.read(1, 7, now);
        all.read(1, 7, now);
        assert_eq!(all.forget(7).len(), 1);
        assert!(all.came(1, 7, Some(descriptor())).is_some());
        assert!(all.is_empty());
    }

    #[test]
    fn objects_and_slots_are_forgotten_alone() {
        let (mut all, now) = (new(), Instant::now());
        [(1, 7), (1, 8), (2, 7), (2, 9)]
            .iter()
            .for_each(|(slot, object)| with(&mut all, *slot, *object, now));
        assert_eq!(all.forget(7).len(), 2);
        assert_eq!(all.forget_slot(2).len(), 1);
        assert!(is_held(&mut all, 1, 8, now));
        assert!(!is_held(&mut all, 2, 9, now));
    }

    #[test]
    fn the_one_that_was_not_read_for_longest_makes_room() {
        let (mut all, start) = (new(), Instant::now());
        let (most, at) = (MOST, |n: u64| start + Duration::from_millis(n));
        (0..most as u64).for_each(|object| with(&mut all, 1, object, at(object)));
        assert!(is_held(&mut all, 1, 0, at(1000)));
        let (way, gone) = all.read(1, 5000, at(1001));
        assert!(matches!(way, Way::Sent) && matches!(gone, Some(Known { what: What::Here(_), .. })));
        assert_eq!(all.known.len(), most);
        assert!(is_held(&mut all, 1, 0, at(1002)), "it was read a moment ago");
        assert!(!is_held(&mut all, 1, 1, at(1003)));
    }

    #[test]
    fn what_nobody_reads_goes() {
        let (mut all, start) = (new(), Instant::now());
        with(&mut all, 1, 7, start);
        with(&mut all, 1, 8, start);
        assert!(is_held(&mut all, 1, 8, start + IDLE / 2));
        assert_eq!(all.forget_idle(start + IDLE * 9 / 10).len(), 0);
        assert_eq!(all.forget_idle(start + IDLE).len(), 1);
        assert!(!is_held(&mut all, 1, 7, start + IDLE));
        assert!(is_held(&mut all, 1, 8, start + IDLE));
    }

    #[test]
    fn what_is_not_in_memory_is_tried_less_and_less_often() {
        let (mut all, now) = (new(), Instant::now());
        with(&mut all, 1, 7, now);
        for pause in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert!(is_held(&mut all, 1, 7, now));
            all.tried(1, 7, false);
            assert!((0..pause).all(|_| !is_held(&mut all, 1, 7, now)), "{pause}");
        }
        assert!(is_held(&mut all, 1, 7, now));
        all.tried(1, 7, true);
        assert!(is_held(&mut all, 1, 7, now) && is_held(&mut all, 1, 7, now));
        assert!(all.of_no_use(1, 7).is_some());
        assert!(!is_held(&mut all, 1, 7, now) && all.came(1, 7, Some(descriptor())).is_some());
    }

    #[test]
    fn all_channels_together_take_a_part_of_the_descriptors_of_the_program() {
        let now = Instant::now();
        let mut channels = vec![new()];
        let budget = channels[0].budget.clone();
        channels.extend((0..4).map(|_| Descriptors { budget: budget.clone(), ..new() }));
        let mut asked = 0;
        for all in &mut channels {
            for object in 0..MOST as u64 {
                all.read(1, object, now);
                asked += usize::from(matches!(all.read(1, object, now).0, Way::SentAndAsk));
            }
        }
        assert_eq!(asked, 100);
        // What goes makes room for others.
        let mut last = channels.pop().expect("one that has none");
        assert!(matches!(last.read(1, 7, now).0, Way::Sent));
        drop(channels);
        assert!(matches!(last.read(1, 7, now).0, Way::SentAndAsk));
        assert!((1..=ALL).contains(&of_process()));
    }

    #[test]
    fn fewer_bytes_are_read_where_an_object_ends() {
        let dir = std::env::temp_dir().join(format!("data-descriptors-{}", std::process::id()));
        std::fs::write(&dir, b"0123456789").unwrap();
        let file = std::fs::File::open(&dir).unwrap();
        std::fs::remove_file(&dir).unwrap();
        let kept = Kept { descriptor: file.into(), _permit: new().budget.take().unwrap() };
        let read = |offset, length, memory| match read_by(&kept, offset, length, memory) {
            Got::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        };
        assert_eq!(read(2, 4, Vec::new()), b"2345");
        assert_eq!(read(8, 4, vec![9; 20]), b"89");
        assert_eq!(read(20, 4, vec![9; 3]), b"");
    }
}
