//! What belongs together lies together: a pool that collocates is written as one pool per family, named `POOL/FAMILY` (a pool's
//! own name has no '/'). A family gets volumes of its own as long as there are some; then it shares those of others.

use super::apart::{Apart, add};
use super::own::OwnLimits;
use super::queue::{Pushed, Turn};
use crate::Node;
use crate::limits::Asker;
use catalog::CatalogError;
use policy::{MigrateBatch, MigrateItem};
use sched::{Backlog, Tape};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use types::*;

/// A family whose data waits so long takes volumes of families that have data to write too.
const PATIENCE: Duration = Duration::from_secs(600);
/// A family's name is cut here (bytes).
const LONGEST: usize = 128;

/// What a volume holds, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its family.
    pub family: Option<String>,
    /// Nothing was written to it yet.
    pub empty: bool,
}

impl From<&Volume> for Member {
    fn from(v: &Volume) -> Self {
        Self { family: v.family.clone(), empty: v.files == 0 }
    }
}

/// Pool and family of a queue's name.
pub fn split(queue: &PoolName) -> (PoolName, Option<&str>) {
    match queue.as_str().split_once('/') {
        Some((pool, family)) => (PoolName::from(pool), Some(family)),
        None => (queue.clone(), None),
    }
}

/// The pool of a queue's name.
pub fn pool_of(queue: &PoolName) -> PoolName {
    split(queue).0
}

pub fn join(pool: &PoolName, family: &str) -> PoolName {
    PoolName(format!("{pool}/{family}"))
}

impl Node {
    /// Queues copies to be written, those of each family by themselves.
    pub(crate) fn enqueue(&self, batch: &MigrateBatch, urgent: bool, now: Time) -> Pushed {
        let pools = self.catalog.pools().unwrap_or_default();
        let turns = self.turns(&batch.items, now);
        let Some(pool) = pools.iter().find(|p| p.name == batch.pool && p.collocate != Collocate::Off) else {
            return self.writes.push_for(batch, &turns, urgent, now);
        };
        let mut batches: BTreeMap<PoolName, MigrateBatch> = BTreeMap::new();
        for item in &batch.items {
            let queue = self.queue_of(pool, item.ino);
            let one = batches.entry(queue.clone()).or_insert_with(|| MigrateBatch {
                pool: queue,
                items: Vec::new(),
                bytes: 0,
                ..batch.clone()
            });
            one.bytes = one.bytes.saturating_add(item.size);
            one.items.push(*item);
        }
        let mut all = Pushed { added: 0, full: false };
        for batch in batches.into_values() {
            let Pushed { added, full } = self.writes.push_for(&batch, &turns, urgent, now);
            (all.added, all.full) = (all.added + added, all.full | full);
        }
        all
    }

    /// For whom these are written, as far as they are new and limits tell people apart.
    fn turns(&self, items: &[MigrateItem], now: Time) -> HashMap<Ino, Turn> {
        let limits = &self.settings().limits;
        if limits.is_empty() {
            return HashMap::new();
        }
        let turn = |item: &MigrateItem| {
            // What cannot be looked at now shows when it is read.
            let inode = self.catalog.inode(item.ino).ok()?;
            let file = inode.file.as_ref()?;
            let who = Asker { uid: inode.attr.uid, gid: inode.attr.gid, class: &file.class };
            Some((item.ino, self.writes.turn(limits, &who)))
        };
        items.iter().filter(|item| self.writes.is_new(item, now)).filter_map(turn).collect()
    }

    /// The queue in which copies of a file for this pool wait.
    pub(crate) fn queue_of(&self, pool: &Pool, ino: Ino) -> PoolName {
        // What cannot be looked at now shows when it is read.
        let family = self.family(ino, pool.collocate).ok().flatten();
        family.map_or_else(|| pool.name.clone(), |family| join(&pool.name, &family))
    }

    fn family(&self, ino: Ino, rule: Collocate) -> Result<Option<String>, CatalogError> {
        // A word on a file lies with the file.
        let file = ino.told_of();
        let family = match rule {
            Collocate::Off => None,
            Collocate::Owner => Some(super::own::family_of(self.catalog.inode(file)?.attr.uid)),
            Collocate::Group => Some(format!("gid {}", self.catalog.inode(file)?.attr.gid)),
            Collocate::Class => self.catalog.archived(ino)?.map(|f| f.class.0),
            Collocate::Directory(depth) => project(&self.catalog.path_of(file)?, depth),
        };
        Ok(family.map(|name| name.chars().take_while(short()).collect()))
    }
}

/// True until the characters seen take more than [`LONGEST`] bytes.
fn short() -> impl FnMut(&char) -> bool {
    let mut bytes = 0;
    move |c| {
        bytes += c.len_utf8();
        bytes <= LONGEST
    }
}

/// The first `depth` directories of a path; None for what lies above.
fn project(path: &[u8], depth: u8) -> Option<String> {
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
    let (_file, dirs) = names.split_last()?;
    let project = dirs.get(..usize::from(depth)).filter(|dirs| !dirs.is_empty())?;
    Some(String::from_utf8_lossy(&project.join(&b'/')).into_owned())
}

/// What the scheduler is to see of volumes and backlog when pools collocate: families get volumes lent.
/// Gives back those whose pool has as many volumes as it may, none of which takes data: for these there is nothing to wait for.
pub fn separate(
    (pools, owners): (&[Pool], &OwnLimits),
    apart: &mut Apart,
    members: &HashMap<Barcode, Member>,
    writes: &mut BTreeMap<PoolName, Backlog>,
    now: Time,
) -> BTreeSet<PoolName> {
    let pools: BTreeMap<&PoolName, &Pool> =
        pools.iter().filter(|p| p.collocate != Collocate::Off).map(|p| (&p.name, p)).collect();
    let waits: BTreeSet<PoolName> = writes.keys().cloned().collect();
    let only =
        writes.iter().filter_map(|(queue, backlog)| Some((pool_of(queue), backlog.library?))).collect();
    let mut lender = Lender::new(apart, members, waits, &only);
    let takes_data: BTreeSet<PoolName> = lender.free.keys().cloned().collect();
    for (queue, backlog) in writes.iter() {
        let (base, family) = split(queue);
        let Some(pool) = pools.get(&base).filter(|_| family.is_some() || backlog.files > 0) else { continue };
        // Who has as many as he may shares only what he has: his data is moved to the queue of those who share.
        if lender.has_open(queue) || lender.apart.held_by(queue) >= owners.of(pool, family) {
            continue;
        }
        let grows = lender.apart.has_fresh(pool.worm) && lender.apart.held_in(&base) < most_of(pool);
        let patient = now.since(backlog.since) < PATIENCE;
        lender.lend(queue, &base, grows, patient);
    }
    let mut full = BTreeSet::new();
    writes.retain(|queue, backlog| {
        let (base, family) = split(queue);
        let Some(pool) = pools.get(&base).filter(|_| family.is_some() || backlog.files > 0) else {
            return true;
        };
        let own = lender.apart.held_by(queue);
        let room = match most_of(pool) {
            u32::MAX => u32::MAX,
            most => most.saturating_sub(lender.apart.held_in(&base) - own),
        };
        let room = room.min(owners.of(pool, family));
        // Without a volume, and with no right to another, it waits until one can be shared.
        let goes_on = lender.has_open(queue) || own < room;
        if !goes_on && !takes_data.contains(&base) {
            full.insert(queue.clone());
        }
        // 0 would be no limit.
        backlog.max_volumes = if room == u32::MAX { 0 } else { room.max(1) };
        goes_on
    });
    full
}

/// Volumes that a pool may have.
fn most_of(pool: &Pool) -> u32 {
    if pool.max_volumes == 0 { u32::MAX } else { pool.max_volumes }
}

/// Gives families volumes that are not theirs. All volumes that take data are looked at once: there may be many, and families
/// by the hundred.
struct Lender<'m> {
    apart: &'m mut Apart,
    members: &'m HashMap<Barcode, Member>,
    /// Queues with data to write.
    waits: BTreeSet<PoolName>,
    /// Volumes of each queue that take data.
    open: HashMap<PoolName, u32>,
    /// Volumes of each pool that take data and were lent to nobody.
    free: HashMap<PoolName, BTreeSet<Barcode>>,
}

impl<'m> Lender<'m> {
    fn new(
        apart: &'m mut Apart,
        members: &'m HashMap<Barcode, Member>,
        waits: BTreeSet<PoolName>,
        only: &BTreeMap<PoolName, LibraryNo>,
    ) -> Self {
        let (mut open, mut free): (HashMap<_, _>, HashMap<_, BTreeSet<_>>) = Default::default();
        for (barcode, tape) in apart.open() {
            let Some(queue) = &tape.pool else { continue };
            let base = pool_of(queue);
            if only.get(&base).is_none_or(|only| tape.library() == Some(*only)) {
                add(&mut open, queue, true);
                free.entry(base).or_default().insert(barcode.clone());
            }
        }
        Self { apart, members, waits, open, free }
    }

    fn has_open(&self, queue: &PoolName) -> bool {
        self.open.contains_key(queue)
    }

    /// Finds the queue a volume of its pool: one that is labelled and empty, else, if the pool does not grow, the emptiest of
    /// another family; of one that has data to write itself only when patience has an end.
    fn lend(&mut self, queue: &PoolName, base: &PoolName, grows: bool, patient: bool) {
        let empty = |b: &Barcode| self.members.get(b).is_some_and(|m| m.empty && m.family.is_none());
        let idle = |t: &Tape| !patient || t.pool.as_ref().is_none_or(|pool| !self.waits.contains(pool));
        let free = self.free.get(base).into_iter().flatten();
        let best = free
            .filter_map(|b| Some((b, self.apart.tapes().get(b)?)))
            .filter(|(b, t)| empty(b) || (!grows && idle(t)))
            .max_by_key(|(b, t)| (empty(b), t.free))
            .map(|(b, t)| (b.clone(), t.pool.clone()));
        let Some((barcode, from)) = best else { return };
        if let Some(from) = from {
            add(&mut self.open, &from, false);
        }
        add(&mut self.open, queue, true);
        self.apart.lend(&barcode, queue);
        if let Some(free) = self.free.get_mut(base) {
            free.remove(&barcode);
        }
    }
}

/// Whether a volume takes data now.
pub fn takes(tape: &Tape) -> bool {
    let writable = matches!(tape.state, VolumeState::Filling | VolumeState::Scratch);
    tape.is_present() && writable && tape.free > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::Place;

    #[test]
    fn a_project_is_the_first_directories_of_a_path() {
        assert_eq!(project(b"/projects/alpha/run1/f", 2).as_deref(), Some("projects/alpha"));
        assert_eq!(project(b"/projects/alpha/f", 2).as_deref(), Some("projects/alpha"));
        assert_eq!(project(b"/projects/f", 2), None);
        assert_eq!(project(b"/f", 1), None);
        assert_eq!(project(b"/a/f", 0), None);
    }

    fn tape(pool: Option<&str>, state: VolumeState, free: u64) -> Tape {
        let pool = pool.map(PoolName::from);
        let place = Place::Library(LibraryNo(0));
        Tape { state, pool, place, written: 1, free, generation: None, wraps: false, worm: false }
    }

    fn member(family: Option<&str>, empty: bool) -> Member {
        Member { family: family.map(str::to_owned), empty }
    }

    /// Which volumes take the data of `p/uid 7`; its backlog waits for `waited_s`, and so does that of `p/uid 8`.
    fn volumes_of_7(max_volumes: u32, waited_s: i64, tapes: &[(&str, Tape, Member)]) -> Vec<String> {
        seen_by_7((max_volumes, 0), waited_s, tapes).0
    }

    /// The same, and how many it may have if it may be written at all (the most there are: all are full); with a quota of volumes
    /// for everybody.
    fn seen_by_7(
        (max_volumes, quota): (u32, u32),
        waited_s: i64,
        tapes: &[(&str, Tape, Member)],
    ) -> (Vec<String>, Option<u32>) {
        let pool = Pool { max_volumes, collocate: Collocate::Owner, ..Pool::new("p".into()) };
        let all = tapes.iter().map(|(b, t, _)| (Barcode::from(*b), t.clone())).collect();
        let members = tapes.iter().map(|(b, _, m)| (Barcode::from(*b), m.clone())).collect();
        let backlog = Backlog {
            files: 1,
            bytes: 1,
            in_hand: 0,
            since: Time::new(0, 0),
            max_volumes,
            library: None,
            worm: false,
            limited: None,
            rescue: false,
        };
        let mut writes: BTreeMap<PoolName, Backlog> =
            ["p/uid 7", "p/uid 8"].map(|queue| (PoolName::from(queue), backlog.clone())).into();
        let owners = OwnLimits::new(&[Quota { volumes: quota, ..Quota::default() }]);
        let as_it_was = Apart::new([pool.name.clone()].into(), &all, &members);
        let mut apart = as_it_was.clone();
        let now = Time::new(waited_s, 0);
        let full = separate((&[pool], &owners), &mut apart, &members, &mut writes, now);
        let seen = apart.tapes().clone();
        apart.give_back();
        assert_eq!(apart, as_it_was);
        assert!(writes.keys().all(|queue| !full.contains(queue)));
        let mine = seen.iter().filter(|(_, t)| t.pool.as_ref().is_some_and(|p| p.as_str() == "p/uid 7"));
        let most = writes.get(&PoolName::from("p/uid 7")).map(|backlog| backlog.max_volumes);
        let most = if full.contains(&PoolName::from("p/uid 7")) { Some(u32::MAX) } else { most };
        (mine.map(|(b, _)| b.to_string()).collect(), most)
    }

    #[test]
    fn who_has_as_many_volumes_as_he_may_gets_no_other_and_takes_nobodys() {
        use VolumeState as S;
        let open = ("OPEN", tape(Some("p"), S::Filling, 9), member(Some("uid 7"), false));
        let full = ("FULL", tape(Some("p"), S::Full, 0), member(Some("uid 7"), false));
        let other = ("OTHER", tape(Some("p"), S::Filling, 5), member(Some("uid 9"), false));
        let scratch = ("SCRATCH", tape(None, S::Scratch, 9), member(None, true));
        let empty = ("EMPTY", tape(Some("p"), S::Filling, 7), member(None, true));
        let both = [open, full.clone(), other.clone(), scratch.clone()];
        assert_eq!(seen_by_7((0, 0), 1, &both).1, Some(0), "no limit");
        assert_eq!(seen_by_7((0, 2), 1, &both), (vec!["FULL".into(), "OPEN".into()], Some(2)));
        assert_eq!(seen_by_7((2, 9), 1, &both).1, Some(1), "the pool's limit is the lower one");
        let one = [full, other, scratch, empty];
        assert_eq!(seen_by_7((0, 2), 1, &one), (vec!["EMPTY".into(), "FULL".into()], Some(2)));
        assert_eq!(seen_by_7((0, 1), 700, &one), (vec!["FULL".into()], None), "his copies are to share");
    }

    #[test]
    fn a_family_has_its_own_volumes_takes_empty_ones_and_shares_only_when_none_is_left() {
        use VolumeState as S;
        let own = ("OWN", tape(Some("p"), S::Filling, 9), member(Some("uid 7"), false));
        let other = ("OTHER", tape(Some("p"), S::Filling, 5), member(Some("uid 9"), false));
        let busy = ("BUSY", tape(Some("p"), S::Filling, 99), member(Some("uid 8"), false));
        let common = ("EMPTY", tape(Some("p"), S::Filling, 7), member(None, true));
        let scratch = ("SCRATCH", tape(None, S::Scratch, 9), member(None, true));
        let all = [own, other.clone(), busy.clone(), common.clone(), scratch.clone()];
        assert_eq!(volumes_of_7(0, 1, &all), ["OWN"]);
        assert_eq!(volumes_of_7(0, 1, &all[1..]), ["EMPTY"], "labelled for the pool, and for nobody yet");
        let without = [other.clone(), busy.clone(), scratch];
        assert!(volumes_of_7(0, 1, &without).is_empty(), "the scratch volume will be its own");
        assert_eq!(volumes_of_7(2, 1, &without), ["OTHER"], "the pool has as many as it may: shares");
        assert_eq!(volumes_of_7(0, 1, &[other, busy.clone()]), ["OTHER"]);
        assert!(volumes_of_7(0, 1, std::slice::from_ref(&busy)).is_empty(), "its own family has data for it");
        assert_eq!(volumes_of_7(0, 700, &[busy]), ["BUSY"], "nobody waits for ever");
    }
}
