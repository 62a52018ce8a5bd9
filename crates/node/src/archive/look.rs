//! What the scheduler looks at, gathered from the catalogue, the queues and the drives.

use super::queue::PoolBacklog;
use super::shelf::Shelf;
use super::state::{DriveSlot, State};
use super::{ahead, family, tapes};
use crate::Node;
use crate::clock::Moment;
use sched::{Backlog, Busy, DriveState, Limits, Mechanics, SchedView, Tape, Work};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;
use types::{Barcode, DriveNo, Generation, LibraryNo, Pool, PoolName, Time};

/// Bounds and times of the scheduler as configured.
pub fn limits(node: &Node) -> Limits {
    let tape = &node.settings().tape;
    let exchange = exchange(node);
    Limits {
        unmount_idle: Duration::from_secs(u64::from(tape.idle_unmount_s)),
        label_blank: tape.auto_label,
        bytes_per_writer: tape.bytes_per_drive.0,
        drives_for_recall: tape.drives_for_recall,
        given_up: given_up(node),
        exchange,
        ahead_bytes: ahead::bytes(&mechanics(node), exchange),
        ..Limits::default()
    }
}

/// Media of this generation and of older ones take no more data.
pub fn given_up(node: &Node) -> Option<Generation> {
    node.settings().reclaim.generation.as_deref().and_then(Generation::parse)
}

/// What taking one cartridge out and another in has cost so far; nothing where no mechanics are simulated.
fn exchange(node: &Node) -> Duration {
    let simulated = !node.is_attached();
    if simulated && node.config.library.mechanics == "none" {
        return Duration::ZERO;
    }
    // Of no drive in particular: that of all.
    let (times, model, any) = (node.archive.times.known(), mechanics(node), DriveNo(u16::MAX));
    let speed = if simulated { node.config.library.speed } else { 1.0 };
    let s = if times.all.load.count == 0 {
        (model.unmount_s() + model.mount_s()) / speed
    } else {
        times.unmount(any, &model).mean_s + times.mount(any, &model).mean_s
    };
    Duration::try_from_secs_f64(s).unwrap_or_default()
}

/// Times of the library by its data sheet.
pub fn mechanics(node: &Node) -> Mechanics {
    Mechanics { block_bytes: node.config.tape.block_size.0, ..Mechanics::default() }
}

/// What the scheduler sees of a drive.
pub fn sched_drive(d: &DriveSlot, cleaners: &BTreeSet<LibraryNo>) -> sched::Drive {
    let mut state = d.state.clone();
    if let (DriveState::Busy(busy), Some(passing)) = (&mut state, d.progress.passing()) {
        busy.until = Some(crate::now().plus(passing.end()));
    }
    let cleaned = d.soiled && cleaners.contains(&d.library);
    if cleaned && d.state == DriveState::Empty {
        state = DriveState::Busy(Busy::new(Barcode::default(), Work::Maintain));
    }
    if (d.comeback.out.is_some() || cleaned)
        && let DriveState::Loaded(l) = &d.state
    {
        // It is about to be put away.
        state = DriveState::Busy(Busy::new(l.volume.clone(), Work::Unmount));
    }
    let (reach, refused) = d.takes();
    sched::Drive { library: d.library, usable: d.usable(), state, reach, refused, ..sched::Drive::new(d.no) }
}

/// What waits to be written, per pool and family; pools that take no more bytes are left out.
fn waiting(
    node: &Node,
    state: &mut State,
    pools: &[Pool],
    full: &BTreeSet<PoolName>,
    limits: &Limits,
    now: Time,
) -> BTreeMap<PoolName, Backlog> {
    let backlog = node.writes.backlog();
    state.waiting_since.retain(|pool, _| backlog.contains_key(pool));
    let mut writes = BTreeMap::new();
    for (pool, b) in backlog.into_iter().filter(|(pool, _)| !full.contains(pool)) {
        let since = *state.waiting_since.entry(pool.clone()).or_insert(now);
        let max_volumes = pools.iter().find(|p| p.name == pool).map_or(0, |p| p.max_volumes);
        let base = family::pool_of(&pool);
        let of = pools.iter().find(|p| p.name == base);
        let (library, worm) = (of.and_then(|p| node.bound_to(p)), of.is_some_and(|p| p.worm));
        let limited = node.writes.limited(&pool, limits.bytes_per_writer);
        let PoolBacklog { files, bytes, rescue, .. } = b;
        writes.insert(
            pool,
            Backlog { files, bytes, in_hand: 0, since, max_volumes, library, worm, limited, rescue },
        );
    }
    writes
}

/// Builds the scheduler's view and calls `f` with it.
pub fn with_view<T>(node: &Node, f: impl FnOnce(&SchedView<'_>, &State) -> T) -> T {
    let tapes = tapes::all(node);
    let pools = node.catalog.pools().unwrap_or_default();
    let full = node.writes.backlog().into_keys().filter(|pool| node.allowed_to(pool) == Some(0));
    let full: BTreeSet<PoolName> = full.collect();
    let owners = node.own_limits(&pools);
    let (limits, now) = (limits(node), crate::now());
    node.writes.set_pressed(pressed(node));
    let mut guard = node.archive.state.lock();
    let state = &mut *guard;
    let mut writes = waiting(node, state, &pools, &full, &limits, now);
    if limits.ahead_bytes > 0 {
        ahead::add_in_hand(node, &pools, &mut writes, now);
    }
    if state.write_again.is_some_and(|at| at > Moment::now()) {
        writes.clear();
    }
    let mut apart = tapes::take_apart(state, &pools, &tapes);
    state.crowded = apart.as_mut().map_or_else(BTreeSet::new, |(apart, members)| {
        family::separate((&pools, &owners), apart, members, &mut writes, now)
    });
    let seen = {
        let volumes = apart.as_ref().map_or(&*tapes, |(apart, _)| apart.tapes());
        let drives = drives(node, state, state.drives.values(), &limits);
        view(node, state, (volumes, &writes), &drives, &limits, now, f)
    };
    if let Some((apart, _)) = apart {
        tapes::keep_apart(state, apart);
    }
    seen
}

/// The same without what waits to be written, with volumes of pools as they are, and of drives in use that are alike only one,
/// but for those with one of `volumes`: enough to choose copies on these, which every request asks for and which is to cost little.
pub fn with_volumes<T>(
    node: &Node,
    volumes: &HashSet<&Barcode>,
    f: impl FnOnce(&SchedView<'_>, &State) -> T,
) -> T {
    let (tapes, limits) = (tapes::all(node), limits(node));
    let state = node.archive.state.lock();
    let drives = drives(node, &state, concerned(&state, volumes), &limits);
    view(node, &state, (&tapes, &BTreeMap::new()), &drives, &limits, crate::now(), f)
}

/// Drives that tell whether and where these volumes can be read.
fn concerned<'s>(state: &'s State, volumes: &HashSet<&Barcode>) -> impl Iterator<Item = &'s DriveSlot> {
    let mut alike = BTreeSet::new();
    state.drives.values().filter(move |d| {
        let told_apart =
            !d.usable() || d.refusals.any() || d.volume().is_some_and(|volume| volumes.contains(volume));
        told_apart || alike.insert((d.library, d.reach))
    })
}

fn pressed(node: &Node) -> bool {
    node.space.view().pressure == policy::Pressure::Hard
}

/// What the scheduler sees of these drives.
fn drives<'s>(
    node: &Node,
    state: &State,
    slots: impl Iterator<Item = &'s DriveSlot>,
    limits: &Limits,
) -> Vec<sched::Drive> {
    // Whether a library has such a cartridge is looked for among all that it has.
    let cleaners = match state.drives.values().any(|d| d.soiled) {
        true => state.shelves_that(|shelf| shelf.cleaner(&state.cleaners).is_some()),
        false => BTreeSet::new(),
    };
    let drive = |d: &DriveSlot| {
        let mut drive = sched_drive(d, &cleaners);
        drive.path = node.data_path(drive.id);
        if limits.ahead_bytes > 0 {
            ahead::look(&mut drive, d);
        }
        drive
    };
    slots.map(drive).collect()
}

fn view<T>(
    node: &Node,
    state: &State,
    (volumes, writes): (&BTreeMap<Barcode, Tape>, &BTreeMap<PoolName, Backlog>),
    drives: &[sched::Drive],
    limits: &Limits,
    now: Time,
    f: impl FnOnce(&SchedView<'_>, &State) -> T,
) -> T {
    let robots_busy = state.shelves_that(|shelf| !shelf.robot_free());
    let robots_troubled = state.shelves_that(Shelf::is_troubled);
    let view = SchedView {
        now,
        drives,
        volumes,
        recalls: &state.recalls,
        writes,
        maintenance: &state.maintenance,
        robots_busy: &robots_busy,
        robots_troubled: &robots_troubled,
        disk_pressure: pressed(node),
        limits,
        mechanics: &mechanics(node),
        accounts: &state.accounts.all,
        heat: &state.heat,
    };
    f(&view, state)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Rig;
    use super::super::{library, trouble};
    use super::*;
    use sched::{CopyPlace, Place};
    use std::sync::Arc;
    use types::{Access, CopyNo, DriveStatus, ElementKind, ElementView, Reach, VolumeState};

    /// A drive that may hold this volume.
    fn drive(no: u16, library: u16, volume: Option<&Barcode>) -> DriveSlot {
        let element = ElementView {
            address: no,
            kind: ElementKind::Drive,
            full: volume.is_some(),
            barcode: volume.cloned(),
            source: None,
            exception: None,
            outgoing: false,
        };
        let none = Err(trouble::no_drive(&Barcode::default(), "there is none"));
        library::slot((LibraryNo(library), DriveNo(no)), &element, &none, Arc::default())
    }

    #[test]
    fn drives_that_are_left_out_change_nothing_of_where_a_copy_is_read() {
        let rig = Rig::new();
        let (node, now, limits) = (&rig.worker.node, crate::now(), Limits::default());
        let mut chance = 12345u64; // the same in every run
        let mut below = |n: u64| {
            chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (chance >> 33) % n
        };
        let volumes: Vec<Barcode> =
            (0..20).map(|n| format!("TC{n:04}L{}", 8 + n % 2).as_str().into()).collect();
        let mut state = node.archive.state.lock();
        let own = std::mem::take(&mut state.drives);
        let (mut fewest, mut wrong) = (usize::MAX, Vec::new());
        for round in 0..300 {
            for no in 0..20u16 {
                let mut slot =
                    drive(no, below(3) as u16, volumes.get(usize::from(no)).filter(|_| below(2) == 0));
                slot.reach = Reach::of([Generation::Lto8, Generation::Lto9][below(2) as usize]);
                slot.status.set(if below(3) == 0 { DriveStatus::Down } else { DriveStatus::Free });
                if below(10) == 0 {
                    let refused = &volumes[below(20) as usize];
                    slot.refusals.refused(refused, Generation::of(refused), Access::Read);
                }
                state.drives.insert(DriveNo(no), slot);
            }
            let tape = |volume: &Barcode, place| Tape {
                state: VolumeState::Full,
                pool: None,
                place,
                written: 0,
                free: 0,
                generation: Generation::of(volume),
                wraps: false,
                worm: false,
            };
            let place = |n: u64| if n == 3 { Place::Absent } else { Place::Library(LibraryNo(n as u16)) };
            let tapes = volumes.iter().map(|v| (v.clone(), tape(v, place(below(4))))).collect();
            let two = [&volumes[below(20) as usize], &volumes[below(20) as usize]];
            let copy = |(no, volume): (u8, &&Barcode)| CopyPlace {
                copy: CopyNo(no),
                volumes: vec![(*volume).clone()],
            };
            let copies: Vec<CopyPlace> = (1..).zip(&two).map(copy).collect();
            let seen = |drives: &[sched::Drive]| {
                view(node, &state, (&tapes, &BTreeMap::new()), drives, &limits, now, |view, _| {
                    let of = |volume: &&Barcode| {
                        let tape = &tapes[*volume];
                        let down = drives.iter().filter(|d| !d.usable && d.takes(volume, tape, Access::Read));
                        let down: Vec<DriveNo> = down.map(|d| d.id).collect();
                        (view.reached(volume, tape, Access::Read), view.drive_of(volume).cloned(), down)
                    };
                    (two.map(|volume| of(&volume)), sched::choose_copy(view, &copies, &BTreeSet::new()))
                })
            };
            let all = drives(node, &state, state.drives.values(), &limits);
            let few = drives(node, &state, concerned(&state, &HashSet::from(two)), &limits);
            fewest = fewest.min(few.len());
            if seen(&few) != seen(&all) {
                wrong.push((round, seen(&few), seen(&all)));
            }
        }
        // The service ends with its own drives only.
        state.drives = own;
        drop(state);
        assert_eq!(wrong, []);
        assert!(fewest < 10, "{fewest} of 20");
    }
}
