//! Recalls between a user's wish and a drive: choosing a copy, queueing its segments, trying the next copy on failure.

use super::passing::Passing;
use super::state::{QueuedSegment, Recall, State};
use super::worker::Wanted;
use super::{Archive, Event, RecallTask, look, waits};
use crate::Node;
use crate::files::{Outcome, Staging};
use crate::limits::{Asker, LimitConfig};
use sched::{CopyChoice, CopyPlace, RecallItem};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tape::{Blame, Fault, TapeError};
use types::*;

/// An open file goes before a bulk request, whatever that one's priority (at most 9).
const READER: u8 = 10;
/// Files for which copies are chosen in one look at drives, volumes and queues.
const PLACED_TOGETHER: usize = 500;

impl Archive {
    /// The number under which somebody's recalls are counted.
    pub fn account(&self, who: &Asker<'_>) -> sched::AccountId {
        self.state.lock().accounts.id(who)
    }

    /// The configuration has these limits from now on, and may say otherwise which volumes take data. Drives may do what they waited for.
    pub fn renew(&self, limits: &[LimitConfig]) {
        let mut state = self.state.lock();
        state.accounts.renew(limits);
        state.look_again_at_tapes();
        drop(state);
        self.send(Event::Backlog);
    }

    /// A drive has begun with these segments, in this order.
    pub fn reads(&self, passing: &Arc<Passing>, wanted: &[Wanted]) {
        let mut state = self.state.lock();
        for (nth, one) in wanted.iter().enumerate() {
            if let Some(recall) = state.recall_of(one) {
                recall.reading.retain(|(passing, _)| passing.strong_count() > 0);
                recall.reading.push((Arc::downgrade(passing), nth));
            }
        }
    }

    /// A segment has arrived; true if the file has all of them.
    pub fn segment_read(&self, wanted: &Wanted) -> bool {
        let mut state = self.state.lock();
        let Some(recall) = state.recall_of(wanted) else { return false };
        recall.left = recall.left.saturating_sub(1);
        recall.left == 0
    }

    /// Nobody wants this recall any more, or its file is back. A later recall of the same file, or a later attempt of
    /// this one, is not touched.
    pub fn forget_recall(&self, wanted: &Wanted) {
        let mut state = self.state.lock();
        if state.recall_of(wanted).is_some() {
            state.unqueue(wanted.queued.ino);
        }
    }
}

impl State {
    /// The recall that this segment is read for, unless it has been withdrawn or begun anew.
    pub fn recall_of(&mut self, wanted: &Wanted) -> Option<&mut Recall> {
        let recall = self.files.get_mut(&wanted.queued.ino)?;
        let same =
            Arc::ptr_eq(&recall.task.staging, &wanted.staging) && recall.attempt == wanted.queued.attempt;
        same.then_some(recall)
    }

    /// Forgets a recall and takes its segments out of the queues.
    fn unqueue(&mut self, ino: Ino) -> Option<Recall> {
        let recall = self.files.remove(&ino)?;
        for id in &recall.queued {
            if let Some(s) = self.segments.remove(id)
                && let Some(queue) = self.recalls.get_mut(&s.segment.volume)
            {
                queue.remove(*id);
            }
        }
        Some(recall)
    }

    /// A reader waits for what a bulk request asked for: what of it is not in a drive yet goes before bulk requests.
    fn hurry(&mut self, staging: &Arc<Staging>) {
        let recall = self.files.get_mut(&staging.ino).filter(|r| Arc::ptr_eq(&r.task.staging, staging));
        let Some(recall) = recall else { return };
        let task = &recall.task;
        let (priority, deadline, account) = (task.effective_priority(), task.deadline, task.account);
        for id in &recall.queued {
            let Some(s) = self.segments.get(id) else { continue };
            let queue = self.recalls.get_mut(&s.segment.volume);
            if let Some((queue, item)) = queue.and_then(|q| q.get(*id).map(|item| (q, item))) {
                queue.insert(RecallItem { priority, deadline, account, ..item });
            }
        }
    }

    /// Puts segments into the queues of their volumes; returns the ids of the queue items.
    fn queue_segments(
        &mut self,
        task: &RecallTask,
        attempt: u32,
        copy: CopyNo,
        segments: Vec<Segment>,
    ) -> Vec<u64> {
        let priority = task.effective_priority();
        let mut ids = Vec::with_capacity(segments.len());
        for (segment, nth) in segments.into_iter().zip(0..) {
            let id = self.id();
            ids.push(id);
            let (account, deadline) = (task.account, task.deadline);
            // The parts of a file are brought at once as far as there are drives, the first one first.
            let since = task.since.plus(Duration::from_nanos(nth));
            let item = RecallItem { account, deadline, ..recall_item(id, &segment, priority, since) };
            let queue = self.recalls.entry(segment.volume.clone()).or_default();
            if queue.is_empty() {
                self.heat.note(&segment.volume, crate::now());
            }
            queue.insert(item);
            self.segments.insert(id, QueuedSegment { ino: task.staging.ino, copy, attempt, segment });
        }
        ids
    }
}

/// Where a segment lies, for the scheduler.
pub fn recall_item(id: u64, segment: &Segment, priority: u8, since: Time) -> RecallItem {
    let (block, byte) = segment.extents.first().map_or((0, 0), |e| (e.start_block, e.byte_offset));
    let bytes = segment.extents.iter().map(|e| e.byte_count).sum();
    RecallItem { id, block, byte, bytes, priority, since, ..RecallItem::default() }
}

/// A reader joined this recall.
pub fn hurry(node: &Node, staging: &Arc<Staging>) {
    node.archive.state.lock().hurry(staging);
}

/// Another request wants this recall, with this priority and by then.
pub fn raise(
    node: &Node,
    staging: &Arc<Staging>,
    account: sched::AccountId,
    (priority, deadline): (u8, Option<Time>),
) {
    let mut state = node.archive.state.lock();
    let recall = state.files.get_mut(&staging.ino).filter(|r| Arc::ptr_eq(&r.task.staging, staging));
    let Some(Recall { task, .. }) = recall else { return };
    if std::mem::take(&mut task.background) {
        task.account = account;
    }
    task.priority = task.priority.max(priority);
    task.deadline = task.deadline.into_iter().chain(deadline).min();
    state.hurry(staging);
}

impl RecallTask {
    /// That of its most urgent request; with a reader, before all without.
    fn effective_priority(&self) -> u8 {
        match (self.staging.has_reader(), self.background) {
            (true, _) => self.priority + READER,
            (false, false) => self.priority,
            (false, true) => sched::BACKGROUND,
        }
    }
}

/// Queues files for the drives.
pub fn add(node: &Node, tasks: Vec<RecallTask>) {
    let mut tasks = tasks.into_iter().map(|task| Unplaced { task, failed: Vec::new() }).peekable();
    while tasks.peek().is_some() {
        place(node, tasks.by_ref().take(PLACED_TOGETHER).collect());
    }
}

/// A segment could not be read: the file is tried from another copy, or fails with every reason named.
pub fn failed(node: &Node, wanted: Wanted, error: &TapeError) {
    place(node, failed_copy(node, &wanted, error, false).into_iter().collect());
}

/// The file of a segment that could not be read, if it is still wanted. `down`: for want of a drive that is in use; whoever waits
/// for one may be given the same copy again.
fn failed_copy(node: &Node, wanted: &Wanted, error: &TapeError, down: bool) -> Option<Unplaced> {
    let mut state = node.archive.state.lock();
    let pair = error.fault == Fault::Incompatible;
    if !pair && !down {
        state.avoid.insert(wanted.queued.segment.volume.clone());
    }
    state.recall_of(wanted)?;
    let Recall { task, mut failed, .. } = state.unqueue(wanted.queued.ino)?;
    drop(state);
    // A drive that fails is taken out of use, or does not get the volume again, so this ends when the last one is; the copy
    // itself may be good.
    let drives = pair || matches!(error.blame, Blame::Drive | Blame::Path);
    let waits = task.staging.is_patient() && (down || drives);
    if !waits && (!drives || !node.archive.has_drives()) {
        failed.push((wanted.queued.copy, error.to_string()));
    }
    Some(Unplaced { task, failed })
}

/// A volume cannot be mounted (`down`: all drives that could are out of use): the files wanted from it are read from their other
/// copies.
pub fn unmountable(node: &Node, volume: &Barcode, error: &TapeError, down: bool) {
    let waiting: Vec<Wanted> = {
        let state = node.archive.state.lock();
        // By its queue: a library that fails loses tens of thousands of volumes at once.
        let queue = state.recalls.get(volume).into_iter().flat_map(|queue| queue.pass(0));
        let mut ids: Vec<u64> = queue.map(|item| item.id).collect();
        ids.sort_unstable();
        let of_volume = ids.iter().filter_map(|id| state.segments.get(id));
        let with_staging = |queued: &QueuedSegment| {
            let staging = state.files.get(&queued.ino)?.task.staging.clone();
            Some(Wanted { queued: queued.clone(), staging })
        };
        of_volume.filter_map(with_staging).collect()
    };
    for some in waiting.chunks(PLACED_TOGETHER) {
        place(node, some.iter().filter_map(|wanted| failed_copy(node, wanted, error, down)).collect());
    }
}

/// The robot of this drive's library failed: what waits for volumes that it would have to fetch is read from copies elsewhere, where
/// there are such.
pub fn elsewhere(node: &Node, drive: DriveNo) {
    let waiting: Vec<Unplaced> = {
        let mut state = node.archive.state.lock();
        if state.shelves.len() < 2 {
            return;
        }
        let Some(library) = state.drives.get(&drive).map(|d| d.library) else { return };
        let Some(shelf) = state.shelves.get(&library) else { return };
        let mounted: BTreeSet<&Barcode> = state.drives.values().filter_map(|d| d.volume()).collect();
        // By their queues: a million segments may wait, and a library has tens of thousands of cartridges.
        let cartridges = shelf.elements.iter().filter_map(|e| e.barcode.as_ref());
        let fetched: HashSet<&Barcode> = cartridges.filter(|barcode| !mounted.contains(barcode)).collect();
        let queues = fetched.iter().filter_map(|volume| state.recalls.get(volume));
        let segments = queues.flat_map(|queue| queue.pass(0)).filter_map(|item| state.segments.get(&item.id));
        let files: BTreeSet<Ino> = segments.map(|s| s.ino).collect();
        // A file of which a drive has a part already stays.
        let whole = |ino: &Ino| {
            state.files.get(ino).is_some_and(|r| r.left == r.queued.len() && r.in_drives().next().is_none())
        };
        let files: Vec<Ino> = files.into_iter().filter(whole).collect();
        let unplaced = files.into_iter().filter_map(|ino| {
            let Recall { task, failed, .. } = state.unqueue(ino)?;
            Some(Unplaced { task, failed })
        });
        unplaced.collect()
    };
    let mut waiting = waiting.into_iter().peekable();
    while waiting.peek().is_some() {
        place(node, waiting.by_ref().take(PLACED_TOGETHER).collect());
    }
}

/// Segments that a drive gave back unread.
pub fn unread(node: &Node, wanted: Vec<Wanted>) {
    let mut state = node.archive.state.lock();
    for one in wanted {
        let Some(recall) = state.recall_of(&one) else { continue };
        let task = recall.task.clone();
        let QueuedSegment { attempt, copy, segment, .. } = one.queued;
        let ids = state.queue_segments(&task, attempt, copy, vec![segment]);
        if let Some(recall) = state.files.get_mut(&task.staging.ino) {
            recall.queued.extend(ids);
        }
    }
}

/// A file for which a copy is to be chosen, and the copies that failed.
struct Unplaced {
    task: RecallTask,
    failed: Vec<(CopyNo, String)>,
}

/// It and the copies left to choose from.
struct Placing {
    file: Unplaced,
    untried: Vec<CopyRecord>,
    places: Vec<CopyPlace>,
}

/// Chooses a copy for each file and queues its segments. What the scheduler sees is gathered once for all of them.
fn place(node: &Node, files: Vec<Unplaced>) {
    let placing: Vec<Placing> = files.into_iter().filter_map(|file| with_copies(node, file)).collect();
    if placing.is_empty() {
        return;
    }
    let volumes = placing.iter().flat_map(|p| &p.places).flat_map(|place| &place.volumes).collect();
    let choices: Vec<Result<CopyChoice, String>> = look::with_volumes(node, &volumes, |view, state| {
        let choose = |p: &Placing| {
            if let Some(choice) = preferred(view, state, p) {
                return Ok(choice);
            }
            let choice = sched::choose_copy(view, &p.places, &state.avoid)
                .or_else(|| sched::choose_copy(view, &p.places, &BTreeSet::new()));
            let patient = p.file.task.staging.is_patient();
            let choice = choice.or_else(|| if patient { waits::any(view, &p.places) } else { None });
            let choice = choice.filter(|c| patient || !waits::is_down(view, &p.places[c.index]));
            choice.ok_or_else(|| reasons(view, &p.file.failed, &p.places))
        };
        placing.iter().map(choose).collect()
    });
    for (Placing { file: Unplaced { task, failed }, mut untried, .. }, choice) in
        placing.into_iter().zip(choices)
    {
        match choice {
            Ok(choice) => {
                let chosen = untried.swap_remove(choice.index);
                tracing::debug!("inode {}: copy {} is read: {}", task.staging.ino, chosen.copy, choice.why);
                queue(node, task, failed, chosen);
            }
            Err(why) => node.end_recall(&task.staging, Outcome::Failed(why)),
        }
    }
}

/// The copy on the volume that is being emptied: it is mounted for the others of it anyway.
fn preferred(view: &sched::SchedView<'_>, state: &State, p: &Placing) -> Option<CopyChoice> {
    let wanted = p.file.task.prefer.as_ref().filter(|volume| !state.avoid.contains(volume))?;
    let index = p.places.iter().position(|place| place.volumes.contains(wanted))?;
    let choice = sched::choose_copy(view, p.places.get(index..=index)?, &BTreeSet::new())?;
    Some(CopyChoice { index, ..choice })
}

/// The copies of a file that can be chosen from; None if there is nothing to choose, which is told.
fn with_copies(node: &Node, file: Unplaced) -> Option<Placing> {
    let staging = &file.task.staging;
    if staging.outcome().is_some() {
        return None;
    }
    let copies = match node.catalog.version_copies(staging.ino, staging.version) {
        Ok(copies) => copies,
        Err(e) => {
            node.end_recall(staging, Outcome::Failed(e.to_string()));
            return None;
        }
    };
    let untried: Vec<CopyRecord> = copies
        .into_iter()
        .filter(|c| !file.failed.iter().any(|(no, _)| *no == c.copy) && covers(c, staging.size))
        .collect();
    if staging.size == 0 && !untried.is_empty() {
        recall_empty(node, &file.task);
        return None;
    }
    let place = |c: &CopyRecord| CopyPlace {
        copy: c.copy,
        volumes: c.segments.iter().map(|s| s.volume.clone()).collect(),
    };
    let places = untried.iter().map(place).collect();
    Some(Placing { file, untried, places })
}

fn queue(node: &Node, task: RecallTask, failed: Vec<(CopyNo, String)>, chosen: CopyRecord) {
    let ino = task.staging.ino;
    let extents = chosen.segments.iter().flat_map(|s| &s.extents);
    task.staging.set_data_bytes(extents.map(|e| e.byte_count).sum());
    let attempt = task.staging.next_attempt();
    let mut state = node.archive.state.lock();
    state.unqueue(ino); // of a recall that was withdrawn
    let queued = state.queue_segments(&task, attempt, chosen.copy, chosen.segments);
    let left = queued.len();
    state.files.insert(ino, Recall { task, failed, attempt, left, queued, reading: Vec::new() });
}

/// Whether a copy is whole.
pub fn covers(copy: &CopyRecord, size: u64) -> bool {
    let mut end = 0;
    for s in &copy.segments {
        if s.file_offset != end {
            return false;
        }
        end += s.length;
    }
    end == size && !copy.segments.is_empty()
}

/// An empty file needs no tape. Nobody here waits for targets, which may not answer.
fn recall_empty(node: &Node, task: &RecallTask) {
    let staging = task.staging.clone();
    match node.movers.node().filter(|node| node.movers.is_used()) {
        Some(node) => node.clone().movers.run(Box::new(move || bring_empty(&node, &staging))),
        None => bring_empty(node, &staging),
    }
}

fn bring_empty(node: &Node, staging: &Arc<Staging>) {
    match staging.begin(|| node.empty_object(staging.ino)) {
        Ok(_) => node.recall_arrived(staging),
        Err(e) => node.end_recall(staging, Outcome::Failed(e.to_string())),
    }
}

fn reasons(view: &sched::SchedView<'_>, failed: &[(CopyNo, String)], left: &[CopyPlace]) -> String {
    let mut text: Vec<String> = failed.iter().map(|(no, why)| format!("copy {no}: {why}")).collect();
    if !left.is_empty() || failed.is_empty() {
        text.push(super::quote::why_not(view, left));
    }
    text.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::StagingTable;

    #[test]
    fn a_reader_that_joins_a_bulk_recall_goes_first() {
        let mut state = State::default();
        let table = StagingTable::default();
        let volume = |n: u64| Barcode::from(format!("TC{n:04}L9").as_str());
        for n in [1, 2] {
            let (staging, _) = table.join(Ino(n), Version(1), 10);
            let task = RecallTask::new(staging);
            let extents = vec![Extent { file_offset: 0, start_block: 7, byte_offset: 0, byte_count: 10 }];
            let (tape_dir, tape_name) = (TapeDir(0), String::new());
            let segment =
                Segment { volume: volume(n), file_offset: 0, length: 10, extents, tape_dir, tape_name };
            let queued = state.queue_segments(&task, 1, CopyNo(1), vec![segment]);
            state.files.insert(
                Ino(n),
                Recall { task, failed: Vec::new(), attempt: 1, left: 1, queued, reading: Vec::new() },
            );
        }
        let reader = table.join(Ino(2), Version(1), 10).0;
        assert!(reader.add_reader() && !reader.add_reader(), "told once");
        state.hurry(&reader);
        let priority = |n| state.recalls[&volume(n)].priority();
        assert_eq!((priority(1), priority(2)), (5, READER + 5));
        assert_eq!(state.recalls[&volume(2)].len(), 1);
    }

    #[test]
    fn what_is_late_of_an_earlier_attempt_does_not_end_the_present_one() {
        let (archive, _queue) = Archive::new();
        let (staging, _) = StagingTable::default().join(Ino(1), Version(1), 10);
        let task = RecallTask::new(staging.clone());
        let (failed, queued) = (Vec::new(), Vec::new());
        let recall = Recall { task, failed, attempt: 2, left: 1, queued, reading: Vec::new() };
        archive.state.lock().files.insert(Ino(1), recall);
        let of_attempt = |attempt| {
            let segment = Segment {
                volume: Barcode::from("TC0001L9"),
                file_offset: 0,
                length: 10,
                extents: Vec::new(),
                tape_dir: TapeDir(0),
                tape_name: String::new(),
            };
            let queued = QueuedSegment { ino: Ino(1), copy: CopyNo(1), attempt, segment };
            Wanted { queued, staging: staging.clone() }
        };
        archive.forget_recall(&of_attempt(1));
        assert!(!archive.segment_read(&of_attempt(1)) && archive.segment_read(&of_attempt(2)));
        archive.forget_recall(&of_attempt(2));
        assert!(archive.state.lock().files.is_empty());
    }
}
