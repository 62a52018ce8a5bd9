//! Segments of recalls that wait for room on disk: drives serve others meanwhile. Those that wait for targets ask for their drive only when there is room by
//! what targets tell, as a mount may stand before that.

use super::worker::Wanted;
use super::{Archive, recalls};
use crate::Node;
use crate::clock::Moment;
use crate::files::{GoesOn, Outcome, Staging};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long recalls without room leave the drives to writers, and how often it is looked for on targets.
const PARKED_FOR: Duration = Duration::from_secs(2);

/// So many segments that wait for targets are looked at together: drives stand still meanwhile. The others have their turn right after what else has happened.
const LOOKED_AT: usize = 1000;

/// Why what is left of a recall finds no room.
pub const TARGETS_FULL: &str = "its disk targets are full and nothing can be released there; add targets, unpin files, or let migration catch up, then stage \
     again; see `thermo target ls`";

/// Where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// In the node's disk tier; the drive may be needed to make some.
    Tier,
    /// On the targets of a file.
    Targets,
}

/// Segments that wait.
pub struct Parked {
    /// They are left alone until then.
    until: Moment,
    /// They.
    pub wanted: Vec<Wanted>,
    lacks: Lacks,
}

impl Archive {
    /// Segments for which there is no room now: they go back to the queues after a while, or when there is some, and until then the drives
    /// do other work.
    pub fn park(&self, wanted: Vec<Wanted>, lacks: Lacks) {
        self.state.lock().parked.push(Parked { until: Moment::now() + PARKED_FOR, wanted, lacks });
    }
}

/// Puts segments back into the queues whose time without room is over.
pub fn unpark(node: &Node) {
    let now = Moment::now();
    let (mut ready, mut looked_at) = (Vec::new(), Vec::new());
    {
        let mut state = node.archive.state.lock();
        for one in state.parked.iter_mut().filter(|one| one.until <= now) {
            match one.lacks {
                Lacks::Tier => ready.append(&mut one.wanted),
                Lacks::Targets => {
                    let some = one.wanted.len().min(LOOKED_AT - looked_at.len());
                    looked_at.extend(one.wanted.drain(..some));
                }
            }
        }
        state.parked.retain(|one| !one.wanted.is_empty());
        // What is late of an earlier attempt says nothing of the present one.
        looked_at.retain(|one| state.recall_of(one).is_some());
    }
    if !looked_at.is_empty() {
        ready.extend(with_room(node, looked_at));
    }
    if !ready.is_empty() {
        recalls::unread(node, ready);
    }
}

/// Those for which there is room on targets by now, or which go elsewhere. The others wait on, or fail when nobody waits longer.
fn with_room(node: &Node, parked: Vec<Wanted>) -> Vec<Wanted> {
    // A file may have many segments.
    let mut known: HashMap<*const Staging, GoesOn> = HashMap::new();
    let mut room = node.room_on_targets();
    let (mut ready, mut waiting) = (Vec::new(), Vec::new());
    for one in parked {
        let look = || match one.staging.outcome() {
            Some(_) => GoesOn::Dropped,
            None => node.goes_on(&one.staging, &mut room),
        };
        match *known.entry(Arc::as_ptr(&one.staging)).or_insert_with(look) {
            GoesOn::Now => ready.push(one),
            GoesOn::Later => waiting.push(one),
            GoesOn::Dropped => node.archive.forget_recall(&one),
            GoesOn::Never => {
                node.archive.forget_recall(&one);
                node.end_recall(&one.staging, Outcome::Failed(TARGETS_FULL.to_owned()));
                // Once: its file may be wanted anew by now.
                known.insert(Arc::as_ptr(&one.staging), GoesOn::Dropped);
            }
        }
    }
    if !waiting.is_empty() {
        node.archive.park(waiting, Lacks::Targets);
    }
    ready
}

#[cfg(test)]
mod tests {
    use super::super::RecallTask;
    use super::*;
    use crate::Config;
    use crate::archive::state::{QueuedSegment, Recall};
    use catalog::Reported;
    use types::*;

    const MIB: u64 = 1 << 20;
    const VOLUME: &str = "TC0001L9";

    fn report(node: &Node, free: u64) {
        let said = Reported {
            uuid: "u1",
            node: NodeId(1),
            data: &["a:1".to_owned()],
            domain: "d",
            capacity: 1000 * MIB,
            free: free * MIB,
        };
        let now = crate::now();
        let target = node.catalog.report_target(&said, now, now).unwrap().id;
        node.movers.short.reported(target);
        assert_eq!(target, TargetId(1));
    }

    /// A file on its way back from one volume, of which a drive has found no room for this much on the target.
    fn parked(node: &Node, ino: u64, mib: u64) -> Arc<Staging> {
        let (staging, _) = node.staging.join(Ino(ino), Version(1), mib * MIB);
        let extents = vec![Extent { file_offset: 0, start_block: 7, byte_offset: 0, byte_count: mib * MIB }];
        let (tape_dir, tape_name) = (TapeDir(0), String::new());
        let (volume, length) = (Barcode::from(VOLUME), mib * MIB);
        let segment = Segment { volume, file_offset: 0, length, extents, tape_dir, tape_name };
        let task = RecallTask::new(staging.clone());
        let recall = Recall { task, failed: vec![], attempt: 1, left: 1, queued: vec![], reading: vec![] };
        let mut state = node.archive.state.lock();
        state.files.insert(Ino(ino), recall);
        let queued = QueuedSegment { ino: Ino(ino), copy: CopyNo(1), attempt: 1, segment };
        let wanted = vec![Wanted { queued, staging: staging.clone() }];
        drop(state);
        let lacks = [(TargetId(1), mib * MIB)].into();
        let room = node.room_on_targets();
        node.movers.short.lacks(&staging, lacks, &room, false, (crate::now(), node.space.patience()));
        node.archive.park(wanted, Lacks::Targets);
        staging
    }

    /// Looks as if the time were over for which they are left alone; how many ask for a drive.
    fn look(node: &Node) -> usize {
        node.archive.state.lock().parked.iter_mut().for_each(|one| one.until = Moment::now());
        pass(node)
    }

    fn pass(node: &Node) -> usize {
        unpark(node);
        node.archive.state.lock().recalls.get(&Barcode::from(VOLUME)).map_or(0, |queue| queue.len())
    }

    fn site(space_wait_s: u32) -> (Arc<Node>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        config.disk.space_wait_s = space_wait_s;
        let node = Node::start(config).unwrap();
        node.cluster_init("first").unwrap();
        // What follows is done by this thread alone.
        node.stop(true);
        report(&node, 10);
        (node, dir)
    }

    #[test]
    fn a_recall_that_waits_for_room_on_targets_asks_for_its_drive_only_when_there_is_some() {
        let (node, _dir) = site(600);
        let (_first, _second) = (parked(&node, 11, 60), parked(&node, 12, 60));
        for _ in 0..5 {
            assert_eq!(look(&node), 0, "no drive can help");
        }
        assert_eq!(node.archive.queues().parked, 2);
        report(&node, 100);
        assert_eq!(look(&node), 1, "there is room for one of them");
        assert_eq!((look(&node), node.archive.queues().parked), (1, 1));
        report(&node, 130);
        assert_eq!((look(&node), node.archive.queues().parked), (2, 0));
    }

    #[test]
    fn a_recall_that_has_begun_fails_without_a_drive_when_its_time_without_room_is_over() {
        let (node, _dir) = site(0);
        let begun = parked(&node, 11, 60);
        let (object, fd) = node.objects.take(&node.catalog, &node.disk).unwrap();
        begun.begin(|| Ok::<_, ()>(crate::files::Backing::local(object, Arc::new(fd)))).unwrap();
        // One that nobody wants any more needs none either.
        let dropped = parked(&node, 12, 60);
        node.end_recall(&dropped, Outcome::Dropped);
        assert_eq!(look(&node), 0);
        assert_eq!(begun.outcome(), Some(Outcome::Failed(TARGETS_FULL.to_owned())));
        assert!(node.archive.state.lock().files.is_empty());
        // One that has not goes to the disk tier.
        let _new = parked(&node, 13, 60);
        assert_eq!((look(&node), node.archive.queues().parked), (1, 0));
    }

    #[test]
    fn of_many_that_wait_some_are_looked_at_together_and_each_has_its_turn() {
        let (node, _dir) = site(600);
        report(&node, 0);
        let wait: Vec<_> = (0..LOOKED_AT as u64 + 2).map(|n| parked(&node, 100 + n, 1)).collect();
        assert_eq!(look(&node), 0);
        report(&node, LOOKED_AT as u64);
        assert_eq!(pass(&node), 2, "those that it was not the turn of, though the others have waited longer");
        let parked: Vec<Ino> = {
            let state = node.archive.state.lock();
            state.parked.iter().flat_map(|one| &one.wanted).map(|one| one.queued.ino).collect()
        };
        let first: Vec<Ino> = wait.iter().take(LOOKED_AT).map(|one| one.ino).collect();
        assert_eq!(parked, first);
        assert_eq!(pass(&node), 2, "they are left alone for a while");
        // What the two take, who have asked for their drives, is not free for these.
        assert_eq!((look(&node), node.archive.queues().parked), (LOOKED_AT, 2));
    }

    #[test]
    fn what_is_late_of_an_earlier_attempt_keeps_no_room_for_the_present_one() {
        let (node, _dir) = site(600);
        let _begun_anew = parked(&node, 11, 60);
        node.archive.state.lock().files.get_mut(&Ino(11)).unwrap().attempt = 2;
        report(&node, 100);
        assert_eq!((look(&node), node.archive.queues().parked), (0, 0));
        let _other = parked(&node, 12, 60);
        assert_eq!(look(&node), 1);
    }
}
