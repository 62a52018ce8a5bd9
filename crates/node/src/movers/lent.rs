//! Rights to read files with copies or parity at their targets, which are lent to clients as long as nobody writes: so bytes that are read do not pass
//! through the node. Rights to write all copies, of the only one who writes, are kept and ended in the same way ([`super::copies`]).
//!
//! What such a file has at its targets changes in the hands of this node only, which ends what it has lent before that ([`Node::end_lending`]): by fences, and
//! where a target does not answer by waiting until the right has ended by itself. That something is lent is on record in the catalogue before anybody
//! reads: whoever serves after a crash knows it.

use super::Grantee;
use crate::Node;
use crate::clock::Moment;
use crate::error::{failure, fs_error, refused};
use crate::files::{Backing, OpenInode};
use catalog::Far;
use data::frame::Op;
use data::{Ask, DataError, Rights, Ticket};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::api::FsResult;
use types::*;
use wire::{Failure, LentLayout, LentPart};

/// A right lives so long; who goes on reading asks again.
pub(super) const TERM: Duration = Duration::from_secs(30);
/// So long after the last one was given nobody has one: clocks differ.
pub(super) const ENDED: Duration = Duration::from_secs(40);
/// Before a target that did not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// Who has read the first MiB of a file with fewer bytes is let at its targets only if he goes on after he was refused once: the first right is one durable
/// change of the catalogue, for which the rest is read more than once.
const LITTLE: u64 = 3 << 20;
/// Objects that are looked at together.
const PAGE: usize = 256;

/// Objects, and the targets where they lie.
type Places = BTreeSet<(ObjectId, TargetId)>;
/// Until when each of them may be read there.
type Ends = BTreeMap<(ObjectId, TargetId), Moment>;

/// What this run of the node has lent, by first object.
pub(super) struct Lent {
    /// What an earlier run has lent ends here.
    known_from: Moment,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<ObjectId, Right>,
    /// Files that nobody is to be lent, with how many want that.
    held: BTreeMap<ObjectId, usize>,
    /// Number of the next right.
    next: u64,
}

/// That somebody may read a file.
#[derive(Clone)]
pub(super) struct Right {
    /// Until it has ended no other one gets its number.
    number: u64,
    until: Moment,
    /// One that is named by no later right ends before the others.
    places: Ends,
    /// The catalogue has it.
    recorded: bool,
}

impl Default for Lent {
    fn default() -> Self {
        Self { known_from: Moment::now() + ENDED, state: Mutex::default() }
    }
}

/// Nobody is lent a file as long as there is one of these.
pub(crate) struct Unlent<'a> {
    lent: &'a Lent,
    object: ObjectId,
}

impl Unlent<'_> {
    /// Whose first object this is.
    pub(crate) fn is_of(&self, object: ObjectId) -> bool {
        self.object == object
    }
}

impl Drop for Unlent<'_> {
    fn drop(&mut self) {
        let mut state = self.lent.state.lock();
        if let Some(count) = state.held.get_mut(&self.object) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&self.object);
            }
        }
    }
}

impl Lent {
    /// From now on nobody is lent a file.
    pub(super) fn hold(&self, object: ObjectId) -> Unlent<'_> {
        *self.state.lock().held.entry(object).or_default() += 1;
        Unlent { lent: self, object }
    }

    /// The same, unless it is known that somebody was lent it.
    fn hold_unknown(&self, object: ObjectId) -> Option<Unlent<'_>> {
        let mut state = self.state.lock();
        if state.files.contains_key(&object) {
            return None;
        }
        *state.held.entry(object).or_default() += 1;
        Some(Unlent { lent: self, object })
    }

    /// Whether nobody can have a right to anything.
    fn is_empty(&self) -> bool {
        self.known_from <= Moment::now() && self.state.lock().files.is_empty()
    }

    /// Somebody is going to be lent what a file has at its targets, as `read` gives it, but on those that are left out. None: nobody is, as it is held
    /// or cannot be lent, or is not the same any more: who changes it from then on ends what was noted.
    pub(super) fn note_far<E>(
        &self,
        object: ObjectId,
        until: Moment,
        down: &BTreeSet<TargetId>,
        read: impl Fn() -> Result<Option<Far>, E>,
    ) -> Result<Option<(u64, bool, Far)>, E> {
        let Some(far) = read()?.filter(|far| far.rule().is_redundant() && far.can_spare(down)) else {
            return Ok(None);
        };
        let lent = places(&far, |place, target| is_left_out(&far, down, place, target));
        let Some((number, new)) = self.note(object, until, lent) else { return Ok(None) };
        let same = read()?.as_ref() == Some(&far);
        Ok(same.then_some((number, new, far)))
    }

    /// Somebody is going to be lent a file. Gives the number of the right, and whether that is to be recorded before; None: nobody is.
    fn note(&self, object: ObjectId, until: Moment, places: Places) -> Option<(u64, bool)> {
        let mut state = self.state.lock();
        if state.held.contains_key(&object) {
            return None;
        }
        let number = state.next;
        let right = state.files.entry(object).or_insert(Right {
            number,
            until,
            places: Ends::new(),
            recorded: false,
        });
        right.until = right.until.max(until);
        for place in places {
            let end = right.places.entry(place).or_insert(until);
            *end = until.max(*end);
        }
        let noted = (right.number, !right.recorded);
        state.next += 1;
        Some(noted)
    }

    /// The catalogue has it; false if it was ended meanwhile.
    fn recorded(&self, object: ObjectId, number: u64) -> bool {
        let mut state = self.state.lock();
        let right = state.files.get_mut(&object).filter(|right| right.number == number);
        right.map(|right| right.recorded = true).is_some()
    }

    /// What was lent of a file and may be used still.
    pub(super) fn of(&self, object: ObjectId, now: Moment) -> Option<Right> {
        self.state.lock().files.get(&object).filter(|right| now < right.until).cloned()
    }

    /// What was noted is not given after all.
    pub(super) fn not_given(&self, object: ObjectId, number: u64) {
        let mut state = self.state.lock();
        if state.files.get(&object).is_some_and(|right| right.number == number && !right.recorded) {
            state.files.remove(&object);
        }
    }

    /// Nobody has a right to it any more, and the catalogue knows that.
    pub(super) fn ended(&self, object: ObjectId) {
        self.state.lock().files.remove(&object);
    }

    /// Files of which nobody has a right any more, held.
    fn over(&self, now: Moment) -> Vec<Unlent<'_>> {
        let mut state = self.state.lock();
        let over = state.files.iter().filter(|(_, right)| right.until <= now).map(|(object, _)| *object);
        let over: Vec<ObjectId> = over.collect();
        for object in &over {
            *state.held.entry(*object).or_default() += 1;
        }
        over.into_iter().map(|object| Unlent { lent: self, object }).collect()
    }
}

/// A file as it is lent.
pub(super) struct Noted {
    /// Number of the right.
    pub(super) number: u64,
    /// It has yet to be recorded.
    pub(super) new: bool,
    pub(super) far: Far,
    /// Bytes.
    pub(super) length: u64,
}

/// Whether nobody is let at a column.
fn is_left_out(far: &Far, down: &BTreeSet<TargetId>, place: (u16, u16), target: TargetId) -> bool {
    down.contains(&target) || far.stale.contains(&place)
}

/// When the last place ends of those that have not ended, which are left.
fn last_end(places: &mut Ends, now: Moment) -> Option<Moment> {
    places.retain(|_, end| now < *end);
    places.values().max().copied()
}

/// All objects of a file on some of its targets.
fn places(far: &Far, but: impl Fn((u16, u16), TargetId) -> bool) -> Places {
    let mut found = Places::new();
    for (number, component) in (0..).zip(&far.layout.components) {
        for (object, column) in component.places() {
            let target = component.target(column).filter(|target| !but((number, column), *target));
            found.extend(target.map(|target| (object, target)));
        }
    }
    found
}

impl Node {
    /// Lends a file with copies or parity that is open for reading and that nobody writes; None: its bytes go through the node.
    pub(crate) fn layout_lend(&self, handle: Handle, grantee: Grantee) -> FsResult<Option<LentLayout>> {
        let file = self.open.handle(handle).ok_or(FsError::BadHandle)?;
        if file.flags.write || !file.flags.read {
            return Ok(None);
        }
        let backing = file.inode.state.lock().backing.clone();
        let Some(object) = backing.as_ref().map(|backing| backing.object) else { return Ok(None) };
        let (begun, issued) = (Moment::now(), crate::now());
        let little = backing.as_ref().and_then(Backing::far).is_some_and(|far| far.stamp().size < LITTLE);
        if little && !file.asks_again() && self.movers.lent.of(object, begun).is_none() {
            return Ok(None);
        }
        let down = self.movers.down();
        let note = || self.note_lent(&file.inode, object, &down, begun + ENDED);
        let Some(noted) = self.movers.claims.unless_claimed(object, note).transpose()?.flatten() else {
            return Ok(None);
        };
        self.hand_out(file.inode.ino, object, noted, &down, (Rights::READ, grantee, issued))
    }

    /// Gives what was noted to whoever asked, from `issued` on; None: it was ended meanwhile.
    pub(super) fn hand_out(
        &self,
        ino: Ino,
        object: ObjectId,
        noted: Noted,
        down: &BTreeSet<TargetId>,
        (rights, grantee, issued): (Rights, Grantee, Time),
    ) -> FsResult<Option<LentLayout>> {
        if noted.new {
            self.catalog.lend(object).map_err(|e| fs_error("layout", &e))?;
        }
        if !self.movers.lent.recorded(object, noted.number) {
            return Ok(None);
        }
        let far = &noted.far;
        let mut parts = self.accesses(ino, far, rights, grantee, (issued, TERM)).map_err(|e| {
            tracing::error!("inode {ino}: nobody can be let at its targets: {e}");
            FsError::Io
        })?;
        for (number, part) in (0..).zip(&mut parts) {
            for (column, access) in (0..).zip(&mut part.columns) {
                if is_left_out(far, down, (number, column), access.target) {
                    access.capability.clear();
                }
            }
        }
        let rule = far.rule();
        let part = |access| LentPart { access, copies: rule.copies, parity: rule.parity };
        let parts = parts.into_iter().map(part).collect();
        Ok(Some(LentLayout { length: noted.length, term_ms: TERM.as_millis() as u32, parts }))
    }

    /// Notes that an open file is lent, if it can be.
    fn note_lent(
        &self,
        inode: &OpenInode,
        object: ObjectId,
        down: &BTreeSet<TargetId>,
        until: Moment,
    ) -> FsResult<Option<Noted>> {
        let fail = |e| fs_error("layout", &e);
        // Who comes to write is counted, and marks the file, under this lock.
        let state = inode.state.lock();
        let backing = state.backing.as_ref().filter(|backing| backing.object == object);
        let Some(open) = backing.and_then(Backing::far) else { return Ok(None) };
        if state.writers > 0 || !open.is_settled() || self.catalog.is_writing(inode.ino).map_err(fail)? {
            return Ok(None);
        }
        let read = || self.catalog.far(object).map_err(fail);
        let noted = self.movers.lent.note_far(object, until, down, read)?;
        Ok(noted.map(|(number, new, far)| Noted { number, new, far, length: open.stamp().size }))
    }

    /// Whether an open for writing of a file, or of what has a name in a directory, may wait for a target that somebody may be reading at; asks nobody.
    pub(crate) fn may_be_lent(&self, ino: Ino, name: Option<&[u8]>) -> bool {
        if self.movers.lent.is_empty() {
            return false;
        }
        let inode = name.map_or_else(|| self.catalog.inode(ino), |name| self.catalog.lookup(ino, name));
        let file = inode.ok().and_then(|inode| inode.file);
        let Some(object) = file.filter(|file| file.far).and_then(|file| file.object) else { return false };
        let (now, earlier) = (Moment::now(), self.movers.lent.known_from);
        let before = || now < earlier && self.catalog.is_lent(object).unwrap_or(true);
        self.movers.lent.of(object, now).is_some() || before()
    }

    /// Whoever was lent a file reads nothing of it any more, and nobody is lent it until what this gives is dropped.
    ///
    /// # Errors
    /// The catalogue fails, or the node stops meanwhile.
    pub(crate) fn end_lending(&self, object: ObjectId) -> Result<Unlent<'_>, Failure> {
        let told = |e| refused("the layout of a file", &e);
        let unlent = self.movers.lent.hold(object);
        let (now, earlier) = (Moment::now(), self.movers.lent.known_from);
        let known = self.movers.lent.of(object, now);
        let before = now < earlier && self.catalog.is_lent(object).map_err(told)?;
        if known.is_none() && !before {
            return Ok(unlent);
        }
        let far = match self.catalog.raise_generation(object) {
            Err(e) if e.class() == ErrorClass::NotFound => return Ok(unlent),
            far => far.map_err(told)?,
        };
        let mut lent = known.map_or(Ends::new(), |right| right.places);
        for place in before.then(|| places(&far, |_, _| false)).into_iter().flatten() {
            let end = lent.entry(place).or_insert(earlier);
            *end = earlier.max(*end);
        }
        self.fence_lent(object, lent, far.layout.generation)?;
        self.catalog.end_lending(&[object]).map_err(told)?;
        self.movers.lent.ended(object);
        Ok(unlent)
    }

    /// Fences objects until all that do not say so have no reader any more.
    fn fence_lent(&self, object: ObjectId, mut lent: Ends, generation: u32) -> Result<(), Failure> {
        let mut said = false;
        while let Some(until) = last_end(&mut lent, Moment::now()) {
            let down = self.movers.down();
            let fence = |(object, target): &(ObjectId, TargetId)| -> Result<Ticket, Failure> {
                let way = self.way(*target, true)?;
                let ask =
                    Ask { op: Op::Fence, flags: 0, object: object.0, offset: generation.into(), length: 0 };
                let told = |e: DataError| failure(e.class(), format!("target {target}: {e}"));
                way.channel.submit(&way.slot, ask, Vec::new()).map_err(told)
            };
            let asked = lent.keys().filter(|(_, target)| !down.contains(target));
            let asked: Vec<_> = asked.map(|place| (*place, fence(place))).collect();
            for (place, ticket) in asked {
                let ended = ticket.is_ok_and(|ticket| match ticket.wait() {
                    Ok(_) => true,
                    // Nobody reads what is not there.
                    Err(e) => e.class() == ErrorClass::NotFound,
                });
                if ended {
                    lent.remove(&place);
                }
            }
            let left = until - Moment::now();
            if !lent.is_empty() && !std::mem::replace(&mut said, true) {
                let targets: BTreeSet<TargetId> = lent.keys().map(|(_, target)| *target).collect();
                tracing::warn!(
                    "object {object} was lent to readers, and targets {targets:?} do not answer: it can be changed in {left:?}"
                );
            }
            if !lent.is_empty() && self.stops_within(left.min(RETRY)) {
                return Err(failure(ErrorClass::Retry, "the node stops"));
            }
        }
        Ok(())
    }

    /// Forgets what has ended by itself.
    pub(super) fn forget_lent(&self) -> catalog::Result<()> {
        let lent = &self.movers.lent;
        let over = lent.over(Moment::now());
        let objects: Vec<ObjectId> = over.iter().map(|one| one.object).collect();
        if !objects.is_empty() {
            self.catalog.end_lending(&objects)?;
            let mut state = lent.state.lock();
            objects.iter().for_each(|object| drop(state.files.remove(object)));
        }
        drop(over);
        if Moment::now() < lent.known_from {
            return Ok(());
        }
        // Of an earlier run, or of somebody who was told that nothing is lent while it was recorded.
        let mut after = ObjectId(0);
        loop {
            let page = self.catalog.lent(after, PAGE)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = *last;
            let held = page.into_iter().filter_map(|object| lent.hold_unknown(object));
            let held: Vec<Unlent<'_>> = held.collect();
            if !held.is_empty() {
                let objects: Vec<ObjectId> = held.iter().map(|one| one.object).collect();
                self.catalog.end_lending(&objects)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use catalog::New;
    use types::api::FileApi;

    /// Until something is so, or long after it should have been.
    fn wait(what: impl Fn() -> bool) -> bool {
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !what() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        what()
    }

    #[test]
    fn a_release_ends_what_an_earlier_run_has_lent() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let rule =
            LayoutRule { unit_bytes: 65_536, stripes: 1, copies: 2, parity: 0, then: Vec::new(), pool: None };
        let target = |n| layout::Candidate { target: TargetId(n), domain: n, weight: 1 };
        let far = node.catalog.reserve_far(&rule, &[target(1), target(2)], &BTreeSet::new()).unwrap();
        let (object, cx) = (far.layout.components[0].base, Cx::admin(crate::now()));
        let new = New { far: true, writing: false, ..New::file(0o644, object) };
        let made = node.catalog.create(&cx, Ino::ROOT, b"file", &new).unwrap();
        let (ino, version) = (made.attr.ino, made.file.unwrap().version);
        let release = || node.purge_file(ino, version, object);
        let generation = || node.catalog.far(object).unwrap().unwrap().layout.generation;
        let why = release().unwrap_err();
        assert!(why.contains("not closed yet") && generation() == 1, "nobody was lent it: {why}");
        node.catalog.lend(object).unwrap();
        std::thread::scope(|scope| {
            let releasing = scope.spawn(release);
            assert!(wait(|| generation() == 2 || releasing.is_finished()));
            assert_eq!(generation(), 2, "who reads is refused from now on");
            let nobody = || node.movers.lent.note(object, Moment::now() + ENDED, Places::new()).is_none();
            assert!(nobody() && node.catalog.is_lent(object).unwrap(), "until the targets say so");
            node.request_stop(true);
            let why = releasing.join().unwrap().unwrap_err();
            assert!(why.contains("the node stops"), "no target says so: {why}");
        });
        assert!(node.lookup(&cx, Ino::ROOT, b"file").is_ok());
        node.stop(true);
    }

    #[test]
    fn nobody_is_lent_a_file_that_is_held_and_a_right_that_was_ended_is_not_the_next_one() {
        let (lent, file, other) = (Lent::default(), ObjectId(7), ObjectId(8));
        let now = Moment::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let on = |target| Places::from([(file, TargetId(target))]);
        let note = |until, target| lent.note(file, later(until), on(target));
        assert!(lent.of(file, now).is_none());
        let held = [lent.hold(file), lent.hold(file)];
        assert!(note(40, 1).is_none() && lent.note(other, later(40), Places::new()).is_some());
        let [first, second] = held;
        drop(first);
        assert!(note(40, 1).is_none(), "somebody else holds it still");
        drop(second);
        let (number, new) = note(40, 1).unwrap();
        assert!(new && lent.recorded(file, number));
        assert_eq!(note(50, 2), Some((number, false)), "it is on record");
        assert!(note(45, 1).is_some());
        let right = lent.of(file, later(49)).unwrap();
        let ends = [((file, TargetId(1)), later(45)), ((file, TargetId(2)), later(50))];
        assert_eq!((right.until, right.places), (later(50), ends.into()));
        assert!(lent.of(file, later(50)).is_none());
        // It is ended, and lent again, before somebody else has recorded the first one.
        lent.state.lock().files.remove(&file);
        assert!(!lent.recorded(file, number));
        let next = note(60, 1).unwrap();
        assert!(next.0 != number && next.1 && !lent.recorded(file, number));
        assert_eq!(note(60, 1), Some((next.0, true)), "that is yet to be recorded");
        let over = lent.over(later(59));
        assert!(over.len() == 1 && over[0].is_of(other));
        assert!(lent.note(other, later(99), Places::new()).is_none() && note(60, 1).is_some());
    }

    #[test]
    fn a_target_that_later_rights_do_not_name_is_waited_for_until_its_own_end_only() {
        let (lent, file) = (Lent::default(), ObjectId(7));
        let now = Moment::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let on = |targets: &[u32]| targets.iter().map(|target| (file, TargetId(*target))).collect();
        lent.note(file, later(40), on(&[1, 2])).unwrap();
        lent.note(file, later(70), on(&[1])).unwrap();
        let mut places = lent.of(file, later(30)).unwrap().places;
        assert_eq!(last_end(&mut places, later(39)), Some(later(70)));
        assert_eq!(places.len(), 2);
        assert_eq!(last_end(&mut places, later(40)), Some(later(70)));
        assert_eq!(places.into_keys().collect::<Places>(), on(&[1]));
        assert_eq!(last_end(&mut Ends::from([((file, TargetId(2)), later(40))]), later(40)), None);
    }

    #[test]
    fn a_file_that_has_become_another_while_it_was_noted_is_not_lent() {
        let (lent, file, down) = (Lent::default(), ObjectId(7), BTreeSet::new());
        let until = Moment::now() + ENDED;
        let component = layout::Component {
            range: 0..u64::MAX,
            unit_bytes: 4096,
            redundancy: layout::Redundancy::Mirror { copies: 2 },
            base: file,
            targets: vec![TargetId(1), TargetId(2)],
        };
        let far = |stale: &[(u16, u16)]| Far {
            layout: layout::Layout { generation: 1, components: vec![component.clone()] },
            stale: stale.to_vec(),
            then: Vec::new(),
            pool: None,
        };
        let note = |reads: [Far; 2]| {
            let reads = std::cell::RefCell::new(reads.into_iter());
            lent.note_far(file, until, &down, || Ok::<_, ()>(reads.borrow_mut().next())).unwrap()
        };
        assert!(note([far(&[]), far(&[])]).is_some());
        // A fold has ended without one of them, and knew of nobody who may read there.
        assert!(note([far(&[]), far(&[(0, 1)])]).is_none());
        assert!(note([far(&[(0, 1)]), far(&[(0, 1)])]).is_some());
    }

    #[test]
    fn what_is_known_to_be_lent_is_not_held_to_be_forgotten() {
        let (lent, file, other) = (Lent::default(), ObjectId(7), ObjectId(8));
        lent.note(file, Moment::now() + ENDED, Places::new()).unwrap();
        assert!(lent.hold_unknown(file).is_none());
        let held = lent.hold_unknown(other).unwrap();
        assert!(lent.note(other, Moment::now() + ENDED, Places::new()).is_none());
        drop(held);
        assert!(lent.note(other, Moment::now() + ENDED, Places::new()).is_some());
    }
}
