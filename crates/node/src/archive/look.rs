//! What the scheduler looks at, gathered from the catalogue, the queues and the drives.

use super::queue::PoolBacklog;
use super::shelf::Shelf;
use super::state::{DriveSlot, State};
use super::{ahead, family, tapes};
use crate::Node;
use crate::clock::Moment;
use sched::{Backlog, Busy, DriveState, Limits, Mechanics, SchedView, Tape, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Barcode, DriveNo, Generation, LibraryNo, Pool, PoolName, Time};

/// Bounds and times of the scheduler as configured.
pub fn limits(node: &Node) -> Limits {
    let tape = &node.config.tape;
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
    node.config.reclaim.generation.as_deref().and_then(Generation::parse)
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
    if (d.comeback.down || cleaned)
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
        view(node, state, (volumes, &writes), &limits, now, f)
    };
    if let Some((apart, _)) = apart {
        tapes::keep_apart(state, apart);
    }
    seen
}

/// The same without what waits to be written, and with volumes of pools as they are: enough to choose copies to read, which every
/// request asks for and which is to cost little.
pub fn with_volumes<T>(node: &Node, f: impl FnOnce(&SchedView<'_>, &State) -> T) -> T {
    let (tapes, limits) = (tapes::all(node), limits(node));
    let state = node.archive.state.lock();
    view(node, &state, (&tapes, &BTreeMap::new()), &limits, crate::now(), f)
}

fn pressed(node: &Node) -> bool {
    node.space.view().pressure == policy::Pressure::Hard
}

fn view<T>(
    node: &Node,
    state: &State,
    (volumes, writes): (&BTreeMap<Barcode, Tape>, &BTreeMap<PoolName, Backlog>),
    limits: &Limits,
    now: Time,
    f: impl FnOnce(&SchedView<'_>, &State) -> T,
) -> T {
    // Whether a library has such a cartridge is looked for among all that it has.
    let cleaners = match state.drives.values().any(|d| d.soiled) {
        true => state.shelves_that(|shelf| shelf.cleaner(&state.cleaners).is_some()),
        false => BTreeSet::new(),
    };
    let drive = |d| {
        let drive = sched_drive(d, &cleaners);
        sched::Drive { path: node.data_path(drive.id), ..drive }
    };
    let mut drives: Vec<sched::Drive> = state.drives.values().map(drive).collect();
    if limits.ahead_bytes > 0 {
        drives.iter_mut().zip(state.drives.values()).for_each(|(drive, slot)| ahead::look(drive, slot));
    }
    let robots_busy = state.shelves_that(|shelf| !shelf.robot_free());
    let robots_troubled = state.shelves_that(Shelf::is_troubled);
    let view = SchedView {
        now,
        drives: &drives,
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
