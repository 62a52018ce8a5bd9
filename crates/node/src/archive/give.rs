//! Orders on their way to the drives' threads.

use super::events::finished;
use super::library::Workers;
use super::trouble;
use super::worker::{Ended, Order, refuse};
use crate::Node;
use std::sync::Arc;
use types::DriveNo;

/// Hands an order to a drive. One whose thread has ended takes none: it is out of use, and whoever waits for the job is told or
/// served elsewhere, as if the drive had failed with it.
pub fn give(node: &Arc<Node>, workers: &Workers, drive: DriveNo, order: Order) {
    let order = match workers.get(&drive) {
        Some(worker) => worker.try_send(order).map_err(crossbeam_channel::TrySendError::into_inner).err(),
        None => Some(order),
    };
    let Some((volume, job)) = order else { return };
    let e = trouble::defect(&volume, "it takes no orders any more; see the log");
    tracing::error!("drive {drive} does not take orders; it is out of use until the node restarts");
    let failed = refuse(node, &volume, job, &e);
    finished(node, Ended { failed, ..Ended::new(drive, volume, None, Err(e)) });
    if let Some(drive) = node.archive.state.lock().drives.get_mut(&drive) {
        drive.comeback.gone("its thread has ended; see the log and restart the node");
    }
}

#[cfg(test)]
mod tests {
    use super::super::RecallTask;
    use super::super::ends::wind_down;
    use super::super::events::start;
    use super::super::state::{Errand, QueuedSegment, Recall};
    use super::super::testing::Rig;
    use super::super::worker::{Job, Wanted};
    use super::*;
    use crate::files::{Outcome, StagingTable};
    use sched::{DriveState, Loaded, Why};
    use types::*;

    const DRIVE: DriveNo = DriveNo(0);

    /// A service that goes on only as tests tell it, and the way to a drive whose thread has ended.
    fn rig() -> (Rig, Workers) {
        let rig = Rig::new();
        rig.worker.node.archive.stop(false);
        rig.worker.node.archive.state.lock().stopping = None;
        let (workers, (orders, _)) = (Workers::new(), crossbeam_channel::bounded(4));
        workers.insert(DRIVE, orders);
        (rig, workers)
    }

    fn load(rig: &Rig, volume: &Barcode) {
        let now = crate::now();
        let loaded =
            Loaded { volume: volume.clone(), mounted: now, idle_since: now, dirty: true, position: 0 };
        let mut state = rig.worker.node.archive.state.lock();
        let drive = state.drives.get_mut(&DRIVE).unwrap();
        drive.state = DriveState::Loaded(loaded);
        drive.status.set(DriveStatus::Idle);
    }

    /// The drive is out of use, and nothing is thought to go on in it.
    fn is_out_of_use(rig: &Rig) -> bool {
        let state = rig.worker.node.archive.state.lock();
        let drive = &state.drives[&DRIVE];
        !drive.usable() && !matches!(drive.state, DriveState::Busy(_))
    }

    #[test]
    fn an_operator_who_waits_for_a_drive_whose_thread_has_ended_is_told() {
        let (rig, workers) = rig();
        let (node, volume) = (&rig.worker.node, Barcode::from("TC0001L9"));
        load(&rig, &volume);
        let (answer, answers) = crossbeam_channel::bounded(1);
        node.archive.state.lock().errands.insert(7, Errand::Check { deep: false, answer });
        let job = sched::Job::Check { volume, id: 7 };
        start(
            node,
            &workers,
            &sched::Action { drive: DRIVE, job, want: None, charge: None, why: Why::Asked },
        );
        let told = answers.try_recv().expect("an answer comes");
        assert!(told.findings.iter().any(|f| f.problem.contains("TC-D056")), "{:?}", told.findings);
        assert!(is_out_of_use(&rig));
    }

    #[test]
    fn a_reader_does_not_wait_for_ever_for_a_drive_whose_thread_has_ended() {
        let (rig, workers) = rig();
        let (node, volume) = (&rig.worker.node, Barcode::from("TC0001L9"));
        load(&rig, &volume);
        let (staging, _) = StagingTable::default().join(Ino(77), Version(1), 10);
        let task = RecallTask::new(staging.clone());
        let (failed, queued) = (Vec::new(), Vec::new());
        let recall = Recall { task, failed, attempt: 1, left: 1, queued, reading: Vec::new() };
        node.archive.state.lock().files.insert(Ino(77), recall);
        let (tape_dir, tape_name) = (TapeDir(0), String::new());
        let segment = Segment {
            volume: volume.clone(),
            file_offset: 0,
            length: 10,
            extents: Vec::new(),
            tape_dir,
            tape_name,
        };
        let queued = QueuedSegment { ino: Ino(77), copy: CopyNo(1), attempt: 1, segment };
        let wanted = Wanted { queued, staging: staging.clone() };
        give(node, &workers, DRIVE, (volume, Job::Recall(vec![wanted])));
        assert!(matches!(staging.outcome(), Some(Outcome::Failed(_))), "{:?}", staging.outcome().is_some());
        assert!(is_out_of_use(&rig));
    }

    #[test]
    fn the_node_stops_when_a_drives_thread_has_ended() {
        let (rig, workers) = rig();
        let node = &rig.worker.node;
        load(&rig, &Barcode::from("TC0001L9"));
        // Whatever else is in the library is at rest.
        assert!(!wind_down(node, &workers, true), "its index is ordered");
        assert!(is_out_of_use(&rig));
        assert!(wind_down(node, &workers, true));
    }
}
