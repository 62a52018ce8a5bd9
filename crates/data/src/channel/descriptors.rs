//! Descriptors of objects, given by a mover on this host: what is large and was read before is read past the connection.
//!
//! Each read is asked for as ever, and answered with the sums: the mover decides whether it is allowed, and the sums whether the bytes are right. Whoever
//! keeps a descriptor may keep the room of an object that is removed, so those that nobody uses go soon.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reads below this go over the connection (bytes): there the exchange is what takes time.
pub(super) const FROM: u64 = 64 << 10;
/// Objects of which something is known; beyond it the one that was not read for longest is forgotten. Programs that may have few descriptors need them for
/// themselves ...
const MOST: usize = 64;
/// ... and a channel, of which they may have many, takes no more than this part of them.
const PART: u64 = 64;
/// One that was not read for so long is forgotten.
const IDLE: Duration = Duration::from_secs(10);
/// How often that is looked at.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// What is known of objects, by slot and number.
#[derive(Default)]
pub(super) struct Descriptors(BTreeMap<(u16, u64), Known>);

/// What is known of one. It is dropped where no lock is held: to close a descriptor may take a while.
pub(super) struct Known {
    what: What,
    used: Instant,
}

#[derive(Clone)]
enum What {
    /// It was read once.
    Read,
    /// Its descriptor is asked for.
    Asked,
    /// There is none for it.
    None,
    Here(Arc<OwnedFd>),
}

/// How an object is to be read.
pub(super) enum Way {
    /// Over the connection.
    Sent,
    /// In the same way, and its descriptor is to be asked for.
    SentAndAsk,
    /// By this descriptor.
    Held(Arc<OwnedFd>),
}

impl Descriptors {
    /// A large piece of an object is to be read: how, and what was forgotten for it.
    pub(super) fn read(&mut self, slot: u16, object: u64, now: Instant) -> (Way, Option<Known>) {
        if let Some(known) = self.0.get_mut(&(slot, object)) {
            known.used = now;
            return match &known.what {
                What::Read => {
                    known.what = What::Asked;
                    (Way::SentAndAsk, None)
                }
                What::Asked | What::None => (Way::Sent, None),
                What::Here(descriptor) => (Way::Held(descriptor.clone()), None),
            };
        }
        let oldest = self.0.iter().min_by_key(|(_, known)| known.used).map(|(place, _)| *place);
        let gone = oldest.filter(|_| self.0.len() >= most()).and_then(|place| self.0.remove(&place));
        self.0.insert((slot, object), Known { what: What::Read, used: now });
        (Way::Sent, gone)
    }

    /// The answer to what was asked for; gives back what nobody waits for.
    pub(super) fn came(&mut self, slot: u16, object: u64, descriptor: Option<OwnedFd>) -> Option<OwnedFd> {
        match self.0.get_mut(&(slot, object)) {
            Some(Known { what: what @ What::Asked, .. }) => {
                *what = descriptor.map_or(What::None, |descriptor| What::Here(Arc::new(descriptor)));
                None
            }
            _ => descriptor,
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
            self.0.iter().filter(|(at, known)| which(at, known)).map(|(at, _)| *at).collect();
        places.iter().filter_map(|place| self.0.remove(place)).collect()
    }

    /// Whether there is anything to be forgotten.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn most() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(MOST, |limit| usize::try_from(limit / PART).unwrap_or(MOST)).clamp(1, MOST)
}

/// What an object has now at a place; fewer bytes where it ends, or its disk fails: then the sums do not match, and the mover says why.
pub(super) fn read_by(descriptor: impl AsFd, offset: u64, length: usize, mut memory: Vec<u8>) -> Vec<u8> {
    match memory.capacity() < length {
        true => memory = vec![0; length],
        false => memory.resize(length, 0),
    }
    let mut done = 0;
    while done < length {
        match rustix::io::pread(&descriptor, &mut memory[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    memory.truncate(done);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (mut all, now) = (Descriptors::default(), Instant::now());
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
        let (mut all, now) = (Descriptors::default(), Instant::now());
        all.read(1, 7, now);
        all.read(1, 7, now);
        assert!(all.came(1, 7, None).is_none());
        assert!((0..10).all(|_| matches!(all.read(1, 7, now).0, Way::Sent)));
    }

    #[test]
    fn what_is_forgotten_meanwhile_does_not_come_to_stay() {
        let (mut all, now) = (Descriptors::default(), Instant::now());
        all.read(1, 7, now);
        all.read(1, 7, now);
        assert_eq!(all.forget(7).len(), 1);
        assert!(all.came(1, 7, Some(descriptor())).is_some());
        assert!(all.is_empty());
    }

    #[test]
    fn objects_and_slots_are_forgotten_alone() {
        let (mut all, now) = (Descriptors::default(), Instant::now());
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
        let (mut all, start) = (Descriptors::default(), Instant::now());
        let (most, at) = (most(), |n: u64| start + Duration::from_millis(n));
        (0..most as u64).for_each(|object| with(&mut all, 1, object, at(object)));
        assert!(is_held(&mut all, 1, 0, at(1000)));
        let (way, gone) = all.read(1, 5000, at(1001));
        assert!(matches!(way, Way::Sent) && matches!(gone, Some(Known { what: What::Here(_), .. })));
        assert_eq!(all.0.len(), most);
        assert!(is_held(&mut all, 1, 0, at(1002)), "it was read a moment ago");
        assert!(!is_held(&mut all, 1, 1, at(1003)));
    }

    #[test]
    fn what_nobody_reads_goes() {
        let (mut all, start) = (Descriptors::default(), Instant::now());
        with(&mut all, 1, 7, start);
        with(&mut all, 1, 8, start);
        assert!(is_held(&mut all, 1, 8, start + IDLE / 2));
        assert_eq!(all.forget_idle(start + IDLE * 9 / 10).len(), 0);
        assert_eq!(all.forget_idle(start + IDLE).len(), 1);
        assert!(!is_held(&mut all, 1, 7, start + IDLE));
        assert!(is_held(&mut all, 1, 8, start + IDLE));
    }

    #[test]
    fn fewer_bytes_are_read_where_an_object_ends() {
        let dir = std::env::temp_dir().join(format!("data-descriptors-{}", std::process::id()));
        std::fs::write(&dir, b"0123456789").unwrap();
        let file = std::fs::File::open(&dir).unwrap();
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(read_by(&file, 2, 4, Vec::new()), b"2345");
        assert_eq!(read_by(&file, 8, 4, vec![9; 20]), b"89");
        assert_eq!(read_by(&file, 20, 4, vec![9; 3]), b"");
    }
}
