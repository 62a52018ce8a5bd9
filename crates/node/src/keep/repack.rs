//! Volumes that are being emptied: what current versions need of them is copied to other volumes of their pool, in the order
//! in which it lies on them. The work list is the volume itself (state `Repacking`, its live segments), so a restart goes on
//! where the last record was made.

use super::closed::Closed;
use super::flights::{Flights, Goal, lies_on};
use super::ticket::End;
use super::{Task, verify};
use crate::Node;
use crate::clock::Moment;
use crate::config::{Config, lto_generation};
use catalog::TapePlace;
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

/// See the module.
#[derive(Default)]
pub struct Repack {
    moves: BTreeMap<Barcode, Move>,
    looked: Option<Moment>,
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
            one.go_on(node, volume, &closed, flights)?;
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
        let here: Vec<&Volume> = here.filter(|v| !self.kept.contains(&v.barcode)).collect();
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

    /// A request that was cancelled leaves its volumes full: nobody knows whether they are to be written again. Those that were
    /// imported never are, and those whose medium has failed are suspect.
    fn withdraw(&mut self, node: &Arc<Node>, volumes: &[Volume]) -> catalog::Result<()> {
        let asked = node.volumes_asked_for(RequestKind::Repack)?;
        let nobody = |v: &Volume| {
            v.state == VolumeState::Repacking && asked.iter().all(|(barcode, _)| *barcode != v.barcode)
        };
        for v in volumes.iter().filter(|v| nobody(v)) {
            leave(node, v)?;
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
                let kept = v.worm || v.imported || v.errors > 0;
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
        self.moves.remove(volume);
        give_up(node, volume, &why)
    }
}

/// A volume, as it was seen, is not emptied any more; unless it was asked for anew a moment ago.
fn leave(node: &Node, seen: &Volume) -> catalog::Result<()> {
    let now = crate::now();
    let change = &mut |v: &mut Volume| {
        let state = match (v.imported, v.errors) {
            // What it was before is not on record: the other copies stay preferred.
            (_, 1..) => VolumeState::Suspect,
            (true, 0) => VolumeState::ReadOnly,
            (false, 0) => VolumeState::Full,
        };
        if v.state == VolumeState::Repacking && v.reason == seen.reason {
            v.becomes(state, "its repack was withdrawn", now);
        }
    };
    node.catalog.update_volume(&seen.barcode, change).map(drop)
}

/// It stays as it is; operators are told.
fn give_up(node: &Arc<Node>, volume: &Barcode, why: &str) -> catalog::Result<()> {
    node.archive.warn(format!("volume {volume} is not emptied: {why}"));
    if node.catalog.volume(volume)?.is_some_and(|v| v.state == VolumeState::Repacking) {
        set_state(node, volume, VolumeState::ReadOnly, &format!("it was not emptied: {why}"))?;
    }
    node.finish_volume(RequestKind::Repack, volume, &ItemState::Failed(why.to_owned()), "")
}

fn set_state(node: &Node, volume: &Barcode, state: VolumeState, why: &str) -> catalog::Result<()> {
    let now = crate::now();
    // An operator may have decided otherwise a moment ago.
    let change = &mut |v: &mut Volume| {
        if v.state == VolumeState::Repacking {
            v.becomes(state, why, now);
        }
    };
    node.catalog.update_volume(volume, change).map(drop)
}

impl Move {
    fn go_on(
        &mut self,
        node: &Arc<Node>,
        volume: &Volume,
        closed: &Closed,
        flights: &mut Flights,
    ) -> catalog::Result<()> {
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
            self.end_of_pass(node, &volume.barcode)?;
        }
        Ok(())
    }

    /// Everything was sent on its way once.
    fn end_of_pass(&mut self, node: &Arc<Node>, barcode: &Barcode) -> catalog::Result<()> {
        let Some(now) = node.catalog.volume(barcode)? else { return Ok(()) };
        if now.live_files == 0 {
            if !self.emptied {
                self.emptied = node.send_errand(barcode, Task::Reclaim, false);
            }
            return Ok(());
        }
        if self.stuck > 0 && now.live_files >= self.before {
            let why = format!("{} file segments could not be moved, among them {}", now.live_files, self.why);
            return give_up(node, barcode, &why);
        }
        self.begin(now.live_files);
        Ok(())
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
    use crate::Config;

    #[test]
    fn a_volume_that_was_asked_for_anew_is_not_left_for_the_request_before() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let barcode = Barcode::from("XX0001L9");
        let state = |reason: &str| {
            let mut volume = Volume::new(barcode.clone(), crate::now());
            volume.becomes(VolumeState::Repacking, reason, crate::now());
            volume
        };
        node.stop(true);
        node.catalog.put_volume(&state("request 2")).unwrap();
        let now = || node.catalog.volume(&barcode).unwrap().unwrap().state;
        leave(&node, &state("request 1")).unwrap();
        assert_eq!(now(), VolumeState::Repacking);
        leave(&node, &state("request 2")).unwrap();
        assert_eq!(now(), VolumeState::Full);
        node.catalog.put_volume(&Volume { errors: 1, ..state("request 3") }).unwrap();
        leave(&node, &state("request 3")).unwrap();
        assert_eq!(now(), VolumeState::Suspect, "its medium has failed");
    }
}
