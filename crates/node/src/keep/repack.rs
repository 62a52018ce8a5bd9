//! Volumes that are being emptied: what current versions need of them is copied to other volumes of their pool, in the order
//! in which it lies on them. The work list is the volume itself (state `Repacking`, its live segments), so a restart goes on
//! where the last record was made.

use super::closed::Closed;
use super::flights::{Flights, Goal, lies_on};
use super::ticket::End;
use super::{Task, verify};
use crate::Node;
use crate::archive::{self, Errand, Event};
use crate::clock::Moment;
use crate::config::{Config, lto_generation};
use catalog::TapePlace;
use sched::MaintenanceKind;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use types::*;

/// Segments listed at a time.
const PAGE: usize = 5_000;
/// Errors of drives after which a volume is not made scratch for this time.
const TRIES: u32 = 3;
/// Volumes that are worth it by themselves are looked for this often.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// One that was not emptied after all is not chosen again by itself before so long.
const AGAIN_AFTER: Duration = Duration::from_secs(86_400);

/// See the module.
#[derive(Default)]
pub struct Repack {
    moves: BTreeMap<Barcode, Move>,
    looked: Option<Moment>,
    /// Those that were not emptied after all are not chosen before then: what they are does not say so.
    again: BTreeMap<Barcode, Moment>,
    pub(super) kept: super::undeletable::Undeletable,
}

/// A volume that is being emptied.
#[derive(Default)]
struct Move {
    /// Where the listing goes on; None: it has come to the end.
    from: TapePlace,
    at_end: bool,
    page: VecDeque<TapeFile>,
    /// Live segments when this pass began.
    before: u64,
    /// Files that this pass could not move, one of them by name.
    stuck: u64,
    why: String,
    errors: u32,
    emptied: bool,
}

impl Move {
    fn begin(&mut self, live: u64) {
        *self = Self { before: live, errors: self.errors, ..Self::default() };
    }
}

impl Repack {
    /// Sends files on their way from the volumes that are being emptied, as far as there is room.
    pub fn tick(
        &mut self,
        node: &Arc<Node>,
        volumes: &[Volume],
        flights: &mut Flights,
    ) -> catalog::Result<()> {
        self.look(node, volumes)?;
        self.withdraw(node, volumes)?;
        let mut emptying: Vec<&Volume> =
            volumes.iter().filter(|v| v.state == VolumeState::Repacking).collect();
        self.moves.retain(|barcode, _| emptying.iter().any(|v| v.barcode == *barcode));
        // Those that have begun first: every one of them holds a drive now and then.
        emptying.sort_by_key(|v| (!self.moves.contains_key(&v.barcode), v.since, v.barcode.clone()));
        let closed = Closed::now(node)?;
        for volume in emptying.into_iter().take(usize::from(node.settings().reclaim.parallel.max(1))) {
            let one = self.moves.entry(volume.barcode.clone()).or_insert_with(|| {
                let mut one = Move::default();
                one.begin(volume.live_files);
                one
            });
            if let Some(why) = one.go_on(node, volume, &closed, flights)? {
                self.give_up(node, &volume.barcode, &why)?;
            }
        }
        Ok(())
    }

    /// The configured rules say which volumes are emptied without being asked.
    pub(super) fn look(&mut self, node: &Arc<Node>, volumes: &[Volume]) -> catalog::Result<()> {
        let rules = rules(&node.settings());
        if !rules.any() || self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok(());
        }
        self.looked = Some(Moment::now());
        let busy = volumes.iter().filter(|v| v.state == VolumeState::Repacking).count();
        let room = usize::from(node.settings().reclaim.parallel).saturating_sub(busy);
        let present = node.archive.present();
        let here = volumes.iter().filter(|v| present.contains(&v.barcode) && may_be_repacked(v).is_ok());
        self.again.retain(|_, then| Moment::now() < *then);
        let here = here.filter(|v| !self.kept.contains(&v.barcode) && !self.again.contains_key(&v.barcode));
        let here: Vec<&Volume> = here.collect();
        let mut chosen = Vec::new();
        // Instead of those that are kept others are chosen the next time.
        for one in policy::reclaim(&rules, here.into_iter(), room) {
            if !self.kept.look(node, &one.volume)? {
                chosen.push(one);
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        let why: Vec<String> = chosen.iter().map(|c| c.to_string()).collect();
        tracing::info!("{}", why.join("; "));
        let chosen: Vec<&Volume> =
            volumes.iter().filter(|v| chosen.iter().any(|c| c.volume == v.barcode)).collect();
        node.begin_repack(node.uid, &chosen).map(drop)
    }

    /// A request that was cancelled leaves its volumes.
    fn withdraw(&mut self, node: &Arc<Node>, volumes: &[Volume]) -> catalog::Result<()> {
        let asked = node.volumes_asked_for(RequestKind::Repack)?;
        let nobody = |v: &Volume| {
            v.state == VolumeState::Repacking && asked.iter().all(|(barcode, _)| *barcode != v.barcode)
        };
        for v in volumes.iter().filter(|v| nobody(v)) {
            self.again.insert(v.barcode.clone(), Moment::now() + AGAIN_AFTER);
            leave(node, &v.barcode, "its repack was withdrawn", Some(&v.reason))?;
        }
        // The other way round: somebody set another state.
        for (barcode, _) in asked {
            let listed = volumes.iter().any(|v| v.barcode == barcode && v.state != VolumeState::Repacking);
            let at_work = node.keeper.running.lock().contains_key(&barcode)
                || node.keeper.ended.lock().iter().any(|(ended, ..)| *ended == barcode);
            if !listed || at_work {
                continue;
            }
            // As it is now: the list is older than what was asked for.
            let now = node.catalog.volume(&barcode)?.filter(|v| v.state != VolumeState::Repacking);
            if let Some(v) = now {
                let failed = ItemState::Failed(format!("its state was set to {}", v.state));
                let kept = v.worm || v.may_hold_more() || v.errors > 0;
                let retired = kept && v.state == VolumeState::Retired && v.live_files == 0;
                let emptied = v.state == VolumeState::Scratch || retired;
                let state = if emptied { ItemState::Done } else { failed };
                node.finish_volume(RequestKind::Repack, &barcode, &state, "")?;
            }
        }
        Ok(())
    }

    /// A drive tried to make a volume scratch.
    pub fn reclaimed(&mut self, node: &Arc<Node>, volume: &Barcode, end: End) -> catalog::Result<()> {
        let one = self.moves.entry(volume.clone()).or_default();
        one.emptied = false;
        let why = match end {
            End::Done(now) => {
                self.moves.remove(volume);
                tracing::info!("volume {volume} is empty and {now}");
                return node.finish_volume(RequestKind::Repack, volume, &ItemState::Done, "");
            }
            End::Paused(_) => return Ok(()),
            End::Failed(why) if one.errors + 1 < TRIES => {
                tracing::warn!("volume {volume} is not yet scratch: {why}; it is tried again");
                one.errors += 1;
                return Ok(());
            }
            End::Failed(why) | End::Refused(why) => why,
        };
        self.give_up(node, volume, &why)
    }

    /// It stays what it was; operators are told.
    fn give_up(&mut self, node: &Arc<Node>, volume: &Barcode, why: &str) -> catalog::Result<()> {
        self.moves.remove(volume);
        self.again.insert(volume.clone(), Moment::now() + AGAIN_AFTER);
        node.archive.warn(format!("volume {volume} is not emptied: {why}"));
        leave(node, volume, &format!("it was not emptied: {why}"), None)?;
        node.finish_volume(RequestKind::Repack, volume, &ItemState::Failed(why.to_owned()), "")
    }
}

/// A volume is not emptied any more, unless an operator has decided otherwise a moment ago, or it was asked for anew (`seen`: for which
/// reason it was being emptied).
///
/// It is again what it was before: what an operator or the node itself has made read-only stays so, whatever its medium does, and a repack
/// writes nothing to it. Anything else is full, for nobody knows whether it is to be written again; so it gets an index if that is behind
/// (unless the tape may hold more than the catalogue lists): now, if there is a drive, or after the next start, or from a check. One whose
/// medium has failed is suspect: when it did so is not on record, and the other copies stay preferred.
fn leave(node: &Node, barcode: &Barcode, why: &str, seen: Option<&str>) -> catalog::Result<()> {
    let now = crate::now();
    let left = node.catalog.volume_comes_back(barcode, &mut |v, before| {
        if v.state != VolumeState::Repacking || seen.is_some_and(|reason| *v.reason != *reason) {
            return;
        }
        match before {
            Some(before) if matches!(before.state, VolumeState::ReadOnly | VolumeState::Suspect) => {
                v.becomes(before.state, before.reason.clone(), now);
                v.by = before.by;
            }
            // Begun by a version that did not keep what it was, which may be one of those.
            None => v.becomes(VolumeState::ReadOnly, why, now),
            Some(_) if v.errors > 0 => v.becomes(VolumeState::Suspect, why, now),
            Some(_) => v.becomes(VolumeState::Full, why, now),
        }
    })?;
    if archive::wants_index(node, &left) {
        let (kind, volume) = (MaintenanceKind::Index, barcode.clone());
        node.archive.send(Event::Errand { kind, volume, errand: Errand::Index });
    }
    Ok(())
}

impl Move {
    /// Some: why it cannot be emptied.
    fn go_on(
        &mut self,
        node: &Arc<Node>,
        volume: &Volume,
        closed: &Closed,
        flights: &mut Flights,
    ) -> catalog::Result<Option<String>> {
        let mut files = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.next(node, &volume.barcode)? {
            if flights.contains(next.ino) {
                continue; // for another copy of it: the next pass finds it
            }
            if let Some(why) = flights.failure(next.ino) {
                self.stuck += 1;
                self.why = format!("{}: {why}", types::escape(&next.path));
                continue;
            }
            if !lies_on(node, next.ino, next.version, next.copy, &volume.barcode)? {
                continue;
            }
            // One alone may be as large as it is.
            let alone = files.is_empty() && flights.is_empty();
            let waits = closed.keeps_out(node, next.ino, volume.pool.as_slice());
            if waits || (!alone && !flights.has_room(node, bytes + next.file_size)) {
                self.page.push_front(next);
                break;
            }
            bytes += next.file_size;
            files.push((
                next.ino,
                next.version,
                next.file_size,
                Goal::Leave(volume.barcode.clone(), next.copy),
            ));
        }
        flights.send(node, files)?;
        if self.at_end && self.page.is_empty() && flights.leaving(&volume.barcode) == 0 {
            return self.end_of_pass(node, &volume.barcode);
        }
        Ok(None)
    }

    /// Everything was sent on its way once. Some: why the rest cannot be.
    fn end_of_pass(&mut self, node: &Arc<Node>, barcode: &Barcode) -> catalog::Result<Option<String>> {
        let Some(now) = node.catalog.volume(barcode)? else { return Ok(None) };
        if now.live_files == 0 {
            if !self.emptied {
                self.emptied = node.send_errand(barcode, Task::Reclaim, false);
            }
            return Ok(None);
        }
        if self.stuck > 0 && now.live_files >= self.before {
            let why = format!("{} file segments could not be moved, among them {}", now.live_files, self.why);
            return Ok(Some(why));
        }
        self.begin(now.live_files);
        Ok(None)
    }

    /// The next segment to move, in tape order.
    fn next(&mut self, node: &Node, barcode: &Barcode) -> catalog::Result<Option<TapeFile>> {
        if self.page.is_empty() && !self.at_end {
            self.page = node.catalog.live_segments(barcode, self.from, PAGE)?.into();
            match self.page.back() {
                Some(last) => {
                    let (block, byte, uid) = catalog::place_of(last);
                    self.from = (block, byte, uid.saturating_add(1));
                }
                None => self.at_end = true,
            }
        }
        Ok(self.page.pop_front())
    }
}

/// Why a volume may not be repacked now, if so.
pub fn may_be_repacked(v: &Volume) -> Result<(), String> {
    if v.state == VolumeState::Repacking {
        return Err("it is being repacked already".into());
    }
    if !verify::can_be_verified(v) {
        return Err(format!("it is {}; only labelled volumes that can be read are repacked", v.state));
    }
    if v.pool.is_none() {
        return Err("it belongs to no pool that could take its files".into());
    }
    Ok(())
}

impl Node {
    /// Begins to empty these volumes; from now on nothing is written to them.
    pub(crate) fn begin_repack(&self, owner: u32, volumes: &[&Volume]) -> catalog::Result<Request> {
        let subject = subject(volumes.iter().map(|v| &v.barcode));
        let request = Request::new(RequestKind::Repack, owner, subject, crate::now());
        let items: Vec<(Barcode, u64)> = volumes.iter().map(|v| (v.barcode.clone(), v.live)).collect();
        let made = self.catalog.create_volume_request(&request, &items, Some(VolumeState::Repacking))?;
        self.archive.send(crate::archive::Event::Backlog);
        self.keeper.wake();
        Ok(made)
    }
}

/// What a request for volumes is about, in a few words.
pub fn subject<'v>(volumes: impl ExactSizeIterator<Item = &'v Barcode>) -> String {
    let count = volumes.len();
    let named: Vec<&str> = volumes.take(3).map(Barcode::as_str).collect();
    match (count, named.as_slice()) {
        (1, [one]) => format!("volume {one}"),
        (2..=3, some) => format!("volumes {}", some.join(", ")),
        _ => format!("{count} volumes"),
    }
}

/// When volumes are emptied, for the policy.
fn rules(config: &Config) -> policy::ReclaimRules {
    let of = &config.reclaim;
    let generation = of.generation.as_deref().and_then(lto_generation).unwrap_or(0);
    let most_files = config.tape.max_files_per_volume;
    policy::ReclaimRules { dead_percent: of.dead_percent, generation, most_files }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Hardware;
    use crate::clock::{give, sleep, tests::Jumps};
    use crate::startup::{self, Assembled};

    const HERE: &str = "TC0001L9";

    /// One that has been stopped, and knows a volume of ours.
    fn node(volume: &Volume) -> (tempfile::TempDir, Arc<Node>) {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        config.reclaim.dead_percent = 50;
        let node = Node::start(config).unwrap();
        node.stop(true);
        node.catalog.put_volume(volume).unwrap();
        (dir, node)
    }

    /// Nothing of it is needed.
    fn volume(state: VolumeState) -> Volume {
        let pool = Some(PoolName::from("primary"));
        let ours = Volume { uuid: "u".into(), pool, files: 1, written: 100, append_block: 9, ..fresh() };
        Volume { state, reason: "because".into(), ..ours }
    }

    fn fresh() -> Volume {
        Volume::new(HERE.into(), crate::now())
    }

    fn now(node: &Node) -> Volume {
        node.catalog.volume(&HERE.into()).unwrap().unwrap()
    }

    #[test]
    fn a_volume_that_was_asked_for_anew_is_not_left_for_the_request_before() {
        let (_dir, node) = node(&volume(VolumeState::Full));
        let begun = |reason: &str, errors: u64, was: VolumeState| {
            node.catalog.put_volume(&Volume { errors, ..volume(was) }).unwrap();
            node.begin_repack(0, &[&now(&node)]).unwrap();
            let named = &mut |v: &mut Volume| v.reason = reason.into();
            node.catalog.update_volume(&HERE.into(), named).unwrap();
        };
        let leave = |reason| leave(&node, &HERE.into(), "its repack was withdrawn", Some(reason)).unwrap();
        begun("request 2", 0, VolumeState::Filling);
        leave("request 1");
        assert_eq!(now(&node).state, VolumeState::Repacking);
        leave("request 2");
        assert_eq!(now(&node).state, VolumeState::Full);
        begun("request 3", 1, VolumeState::Full);
        leave("request 3");
        assert_eq!(now(&node).state, VolumeState::Suspect, "its medium has failed");
        // Begun by a version that did not keep what it was.
        let before = Volume { reason: "request 4".into(), ..volume(VolumeState::Repacking) };
        node.catalog.put_volume(&before).unwrap();
        leave("request 4");
        assert_eq!(now(&node).state, VolumeState::ReadOnly);
        // Whatever somebody else makes of it, what it was is forgotten.
        begun("request 5", 0, VolumeState::Suspect);
        let retired = &mut |v: &mut Volume| v.becomes(VolumeState::Retired, "", crate::now());
        node.catalog.update_volume(&HERE.into(), retired).unwrap();
        assert_eq!(node.catalog.before_export(&HERE.into()).unwrap(), None);
    }

    #[test]
    fn a_volume_that_is_not_emptied_is_again_what_it_was_and_gets_an_index_unless_nothing_is_to_be_written_to_it()
     {
        use VolumeState as S;
        let by = |by, v: Volume| Volume { by, ..v };
        let failed = |v: Volume| Volume { errors: 1, ..v };
        let imported = |v: Volume| Volume { imported: true, ..v };
        let holds_more = |v: Volume| Volume { holds_more: true, ..v };
        let cases = [
            (volume(S::Filling), (S::Full, None), true),
            (volume(S::Full), (S::Full, None), true),
            (holds_more(volume(S::Full)), (S::Full, None), false),
            (holds_more(volume(S::ReadOnly)), (S::ReadOnly, None), false),
            (by(Some(3), volume(S::ReadOnly)), (S::ReadOnly, Some(3)), false),
            (volume(S::ReadOnly), (S::ReadOnly, None), false),
            (imported(volume(S::ReadOnly)), (S::ReadOnly, None), false),
            (by(Some(3), volume(S::Suspect)), (S::Suspect, Some(3)), false),
            (failed(by(Some(3), volume(S::ReadOnly))), (S::ReadOnly, Some(3)), false),
            (failed(volume(S::ReadOnly)), (S::ReadOnly, None), false),
            (failed(volume(S::Suspect)), (S::Suspect, None), false),
            (failed(volume(S::Full)), (S::Suspect, None), false),
        ];
        // No drive takes the orders.
        let dir = tempfile::tempdir().unwrap();
        let config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        let place = startup::prepare(&config.state_dir).unwrap();
        let engine = Arc::new(kv::MemoryEngine::new());
        let Assembled { node, events, .. } =
            startup::assemble(config, place, engine, |config| Hardware::of(config, None)).unwrap();
        let orders_index = |event| matches!(event, Event::Errand { kind: MaintenanceKind::Index, .. });
        for (was, is, wants_index) in cases {
            node.catalog.put_volume(&was).unwrap();
            node.begin_repack(0, &[&was]).unwrap();
            assert_eq!(now(&node).state, S::Repacking);
            Repack::default().give_up(&node, &HERE.into(), "no drive").unwrap();
            let v = now(&node);
            assert_eq!((v.state, v.by), is, "{was:?}");
            assert_eq!(v.holds_more, was.holds_more, "{was:?}");
            assert_eq!(events.try_iter().any(orders_index), wants_index, "{was:?}");
            let kept = matches!(was.state, S::ReadOnly | S::Suspect);
            assert_eq!(v.reason, if kept { "because" } else { "it was not emptied: no drive" });
            assert_eq!(node.catalog.before_export(&HERE.into()).unwrap(), None, "it is that");
            assert_eq!(node.volumes_asked_for(RequestKind::Repack).unwrap(), []);
        }
    }

    #[test]
    fn a_volume_that_is_not_emptied_is_not_chosen_by_rule_before_the_next_day() {
        let (_dir, node) = node(&volume(VolumeState::Full));
        give(Some(Arc::new(Jumps::default())));
        let mut repack = Repack::default();
        let chosen = |repack: &mut Repack| {
            sleep(LOOK_EVERY);
            repack.look(&node, &[now(&node)]).unwrap();
            now(&node).state == VolumeState::Repacking
        };
        assert!(chosen(&mut repack));
        repack.give_up(&node, &HERE.into(), "no drive").unwrap();
        assert!(!chosen(&mut repack));
        sleep(AGAIN_AFTER);
        assert!(chosen(&mut repack));
        // The same if its request is cancelled.
        let asked = node.volumes_asked_for(RequestKind::Repack).unwrap();
        let cancel = &mut |r: &mut Request| r.state = RequestState::Cancelled;
        asked.iter().for_each(|(_, id)| drop(node.catalog.update_request(*id, cancel).unwrap()));
        repack.withdraw(&node, &[now(&node)]).unwrap();
        assert_eq!(now(&node).state, VolumeState::Full);
        assert!(!chosen(&mut repack));
        assert!(chosen(&mut Repack::default()), "a node that was started anew tries it at once");
        give(None);
    }
}
