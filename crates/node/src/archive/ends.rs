//! How the service begins and ends: cartridges left in drives, indexes that a crash left unwritten, putting everything away.

use super::events::add_errand;
use super::give::give;
use super::library::Workers;
use super::shelf::Shelf;
use super::state::Errand;
use super::worker::Job;
use crate::Node;
use sched::{DriveState, Loaded, MaintenanceKind, Work};
use std::sync::Arc;
use types::*;

/// Before the first step: what the last run left behind.
pub fn begin(node: &Node, workers: &Workers) {
    let drives: Vec<DriveNo> = node.archive.state.lock().drives.keys().copied().collect();
    put_away_leftovers(node, workers, &drives);
    index_what_a_crash_left(node);
}

/// Cartridges that were in drives when these came into use, left there by the last run say, go back to their slots first.
pub fn put_away_leftovers(node: &Node, workers: &Workers, drives: &[DriveNo]) {
    let mut state = node.archive.state.lock();
    let left: Vec<(DriveNo, Barcode, Option<u16>)> = drives
        .iter()
        .filter_map(|no| state.drives.get(no))
        .filter_map(|d| match &d.state {
            DriveState::Busy(b) => Some((d.no, b.volume.clone(), d.home)),
            _ => None,
        })
        .collect();
    for (no, volume, home) in left {
        let Some(shelf) = state.shelf_of(no) else { continue };
        match (shelf.free_slot(home), workers.get(&no)) {
            (Some(to), Some(worker)) => {
                // A drive's first order finds room in its queue.
                let _ = worker.try_send((volume, Job::Unmount { to }));
                shelf.moves.insert(no, Some(to));
            }
            _ => {
                let why = format!("volume {volume} was left in drive {no} and no slot is empty for it");
                if let Some(drive) = state.drives.get_mut(&no) {
                    drive.status.set(DriveStatus::Suspect(why.clone()));
                }
                state.warn(why);
            }
        }
    }
}

/// Volumes whose newest data no index lists (the last run did not end gracefully) get one soon.
pub fn index_what_a_crash_left(node: &Node) {
    let volumes = node.catalog.volumes().unwrap_or_default().into_iter();
    let volumes: Vec<Volume> = volumes.filter(|v| wants_index(node, v)).collect();
    let mut state = node.archive.state.lock();
    for v in volumes {
        let asked =
            state.maintenance.iter().any(|m| m.volume == v.barcode && m.kind == MaintenanceKind::Index);
        if !asked && state.find(&v.barcode).is_some() {
            add_errand(&mut state, MaintenanceKind::Index, v.barcode, Errand::Index);
        }
    }
}

/// Whether a volume that is in order, and at rest, has data that no index lists, and may be written.
pub fn wants_index(node: &Node, v: &Volume) -> bool {
    let in_order = matches!(v.state, VolumeState::Filling | VolumeState::Full | VolumeState::Scratch);
    let behind = v.indexed_to < v.append_block && !v.uuid.is_empty();
    in_order && behind && !v.may_hold_more() && super::label::begun(node, v).is_none()
}

/// Ends: indexes and slots first when graceful. True when nothing is left to do.
pub fn wind_down(node: &Arc<Node>, workers: &Workers, graceful: bool) -> bool {
    let mut orders = Vec::new();
    {
        let mut state = node.archive.state.lock();
        let busy = state.drives.values().any(|d| d.usable() && matches!(d.state, DriveState::Busy(_)));
        if !graceful {
            return !busy;
        }
        let loaded: Vec<(DriveNo, Loaded, Option<u16>)> = state
            .drives
            .values()
            .filter(|d| d.usable() && !state.troubled.contains(&d.no))
            .filter_map(|d| match &d.state {
                DriveState::Loaded(l) => Some((d.no, l.clone(), d.home)),
                _ => None,
            })
            .collect();
        let mut waits = state.shelves.values().any(Shelf::robot_busy);
        if loaded.is_empty() {
            return !busy && !waits;
        }
        for (no, l, home) in loaded {
            let action = if l.dirty {
                (Job::Index, Work::Maintain, DriveStatus::Maintaining)
            } else {
                let Some(shelf) = state.shelf_of(no) else { continue };
                let Some(to) = shelf.free_slot(home).filter(|_| !shelf.robot_busy()) else { continue };
                shelf.moves.insert(no, Some(to));
                waits = true;
                (Job::Unmount { to }, Work::Unmount, DriveStatus::Mounting)
            };
            if let Some(d) = state.drives.get_mut(&no) {
                d.state = DriveState::Busy(sched::Busy::new(l.volume.clone(), action.1));
                d.status.set(action.2);
                d.activity = "the node stops".into();
            }
            orders.push((no, (l.volume, action.0)));
        }
        if orders.is_empty() {
            return !busy && !waits;
        }
    }
    for (no, order) in orders {
        give(node, workers, no, order);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::events::finished;
    use super::super::testing::Rig;
    use super::super::worker::{Done, Ended};
    use super::*;
    use sched::Busy;
    use std::collections::BTreeMap;

    /// When it leaves its drive, say.
    #[test]
    fn a_volume_that_may_hold_more_than_the_catalogue_lists_gets_no_index_on_any_occasion() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        let (barcode, no) = (Barcode::from("MORE01L9"), rig.worker.no);
        let behind =
            Volume { uuid: "u".into(), append_block: 9, ..Volume::new(barcode.clone(), crate::now()) };
        for state in [VolumeState::Filling, VolumeState::Full, VolumeState::Scratch] {
            for holds_more in [true, false] {
                let v = Volume { state, holds_more, ..behind.clone() };
                node.catalog.put_volume(&v).unwrap();
                assert_eq!(wants_index(node, &v), !holds_more, "{state}");
                finished(node, Ended::new(no, barcode.clone(), None, Ok(Done::Worked { position: 0 })));
                let mut state = node.archive.state.lock();
                let drive = state.drives.get_mut(&no).unwrap();
                let DriveState::Loaded(loaded) = &drive.state else { panic!("it is there") };
                assert_eq!(loaded.dirty, !holds_more, "{}", v.state);
                drive.state = DriveState::Empty;
            }
        }
    }

    #[test]
    fn each_cartridge_left_in_a_drive_gets_a_slot_of_its_own_and_keeps_the_robot_until_it_is_there() {
        let rig = Rig::new();
        let node = &rig.worker.node;
        let drives: Vec<(DriveNo, u16)> =
            node.archive.state.lock().drives.values().map(|d| (d.no, d.element)).collect();
        let [(first, element), (second, from), ..] = drives[..] else { panic!("two drives are needed") };
        let (workers, mut queues) = (Workers::new(), BTreeMap::new());
        {
            let mut state = node.archive.state.lock();
            // Both came from a slot that is only one.
            let home = state.shelves[&LibraryNo(0)].free_slot(None);
            for no in [first, second] {
                let volume = Barcode::from(format!("LEFT0{no}L9"));
                let Some(drive) = state.drives.get_mut(&no) else { continue };
                drive.home = home;
                drive.state = DriveState::Busy(Busy::new(volume, Work::Unmount));
                let (orders, queue) = crossbeam_channel::bounded(4);
                workers.insert(no, orders);
                queues.insert(no, queue);
            }
        }
        put_away_leftovers(node, &workers, &[first, second]);
        let mut seen = Vec::new();
        for (no, from) in [(second, from), (first, element)] {
            let Ok((volume, Job::Unmount { to })) = queues[&no].recv() else { continue };
            let (moved, result) = (Some((from, to)), Ok(Done::Unmounted));
            finished(node, Ended::new(no, volume, moved, result));
            let state = node.archive.state.lock();
            let shelf = &state.shelves[&LibraryNo(0)];
            seen.push((to, shelf.robot_busy(), shelf.moves.values().copied().flatten().collect::<Vec<_>>()));
        }
        // Only now: a drive that is not at rest would keep the node from stopping.
        let [(one, true, left), (other, false, none)] = &seen[..] else { panic!("{seen:?}") };
        assert!(one != other && left == &[*other] && none.is_empty(), "{seen:?}");
    }
}
