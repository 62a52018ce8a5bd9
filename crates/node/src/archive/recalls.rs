//! Recalls between a user's wish and a drive: choosing a copy, queueing its segments, trying the next copy on failure.

use super::state::{QueuedSegment, Recall, State};
use super::worker::Wanted;
use super::{Archive, RecallTask, events};
use crate::Node;
use crate::files::{Outcome, Staging};
use sched::{CopyPlace, RecallItem};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tape::{Blame, TapeError};
use types::*;

/// An open file goes before a bulk request.
const PRIORITY_READER: u8 = 10;
const PRIORITY_BULK: u8 = 5;
/// How long recalls without room leave the drives to writers.
const PARKED_FOR: Duration = Duration::from_secs(2);

impl Archive {
    /// A segment has arrived; true if the file has all of them.
    pub fn segment_read(&self, wanted: &Wanted) -> bool {
        let mut state = self.state.lock();
        let Some(recall) = state.recall_of(wanted) else { return false };
        recall.left = recall.left.saturating_sub(1);
        recall.left == 0
    }

    /// Segments for which there is no room now: they go back to the queues after a while, and until then the drives
    /// write what waits for them.
    pub fn park(&self, wanted: Vec<Wanted>) {
        self.state.lock().parked.push((Instant::now() + PARKED_FOR, wanted));
    }

    /// Nobody wants this recall any more, or its file is back. A later recall of the same file is not touched.
    pub fn forget_recall(&self, staging: &Arc<Staging>) {
        let mut state = self.state.lock();
        if state.files.get(&staging.ino).is_some_and(|r| Arc::ptr_eq(&r.task.staging, staging)) {
            state.unqueue(staging.ino);
        }
    }
}

impl State {
    /// The recall that this segment is read for, unless it has been withdrawn or begun anew.
    fn recall_of(&mut self, wanted: &Wanted) -> Option<&mut Recall> {
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
        let Some(recall) = self.files.get(&staging.ino).filter(|r| Arc::ptr_eq(&r.task.staging, staging))
        else {
            return;
        };
        for id in &recall.queued {
            let Some(s) = self.segments.get(id) else { continue };
            let queue = self.recalls.get_mut(&s.segment.volume);
            if let Some((queue, item)) = queue.and_then(|q| q.get(*id).copied().map(|item| (q, item))) {
                queue.insert(RecallItem { priority: PRIORITY_READER, ..item });
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
        let priority = if task.staging.has_reader() { PRIORITY_READER } else { PRIORITY_BULK };
        let mut ids = Vec::with_capacity(segments.len());
        for segment in segments {
            let id = self.id();
            ids.push(id);
            let item = RecallItem {
                id,
                block: segment.extents.first().map_or(0, |e| e.start_block),
                bytes: segment.extents.iter().map(|e| e.byte_count).sum(),
                priority,
                since: task.since,
            };
            self.recalls.entry(segment.volume.clone()).or_default().insert(item);
            self.segments.insert(id, QueuedSegment { ino: task.staging.ino, copy, attempt, segment });
        }
        ids
    }
}

/// A reader joined this recall.
pub fn hurry(node: &Node, staging: &Arc<Staging>) {
    node.archive.state.lock().hurry(staging);
}

/// Queues files for the drives.
pub fn add(node: &Node, tasks: Vec<RecallTask>) {
    for task in tasks {
        place(node, task, Vec::new());
    }
}

/// A segment could not be read: the file is tried from another copy, or fails with every reason named.
pub fn failed(node: &Node, wanted: Wanted, error: &TapeError) {
    let recall = {
        let mut state = node.archive.state.lock();
        state.avoid.insert(wanted.queued.segment.volume.clone());
        if state.recall_of(&wanted).is_none() {
            return;
        }
        state.unqueue(wanted.queued.ino)
    };
    let Some(Recall { task, failed: mut reasons, .. }) = recall else { return };
    // A drive that fails is taken out of use, so this ends when the last one is; the copy itself may be good.
    if !matches!(error.blame, Blame::Drive | Blame::Path) || !node.archive.has_drives() {
        reasons.push((wanted.queued.copy, error.to_string()));
    }
    place(node, task, reasons);
}

/// A volume cannot be mounted: the files wanted from it are read from their other copies.
pub fn unmountable(node: &Node, volume: &Barcode, error: &TapeError) {
    let waiting: Vec<Wanted> = {
        let state = node.archive.state.lock();
        let of_volume = state.segments.values().filter(|s| s.segment.volume == *volume);
        let with_staging = |queued: &QueuedSegment| {
            let staging = state.files.get(&queued.ino)?.task.staging.clone();
            Some(Wanted { queued: queued.clone(), staging })
        };
        of_volume.filter_map(with_staging).collect()
    };
    waiting.into_iter().for_each(|wanted| failed(node, wanted, error));
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

/// Puts segments back into the queues whose time without room is over.
pub fn unpark(node: &Node) {
    let now = Instant::now();
    let due: Vec<Wanted> = {
        let mut state = node.archive.state.lock();
        state.parked.extract_if(.., |(until, _)| *until <= now).flat_map(|(_, wanted)| wanted).collect()
    };
    unread(node, due);
}

fn place(node: &Node, task: RecallTask, failed: Vec<(CopyNo, String)>) {
    let (ino, version) = (task.staging.ino, task.staging.version);
    if task.staging.outcome().is_some() {
        return;
    }
    let copies = match node.catalog.version_copies(ino, version) {
        Ok(copies) => copies,
        Err(e) => return node.end_recall(&task.staging, Outcome::Failed(e.to_string())),
    };
    let untried: Vec<CopyRecord> = copies
        .into_iter()
        .filter(|c| !failed.iter().any(|(no, _)| *no == c.copy) && covers(c, task.staging.size))
        .collect();
    if task.staging.size == 0 && !untried.is_empty() {
        return recall_empty(node, &task);
    }
    let places: Vec<CopyPlace> = untried
        .iter()
        .map(|c| CopyPlace { copy: c.copy, volumes: c.segments.iter().map(|s| s.volume.clone()).collect() })
        .collect();
    let choice = events::with_view(node, |view, state| {
        sched::choose_copy(view, &places, &state.avoid)
            .or_else(|| sched::choose_copy(view, &places, &BTreeSet::new()))
    });
    let Some(choice) = choice else {
        let why = reasons(&failed, &places);
        return node.end_recall(&task.staging, Outcome::Failed(why));
    };
    let chosen = &untried[choice.index];
    tracing::debug!("inode {ino}: copy {} is read: {}", chosen.copy, choice.why);
    let extents = chosen.segments.iter().flat_map(|s| &s.extents);
    task.staging.set_data_bytes(extents.map(|e| e.byte_count).sum());
    let attempt = task.staging.next_attempt();
    let mut state = node.archive.state.lock();
    state.unqueue(ino); // of a recall that was withdrawn
    let queued = state.queue_segments(&task, attempt, chosen.copy, chosen.segments.clone());
    let left = queued.len();
    state.files.insert(ino, Recall { task, failed, attempt, left, queued });
}

fn covers(copy: &CopyRecord, size: u64) -> bool {
    let mut end = 0;
    for s in &copy.segments {
        if s.file_offset != end {
            return false;
        }
        end += s.length;
    }
    end == size && !copy.segments.is_empty()
}

/// An empty file needs no tape.
fn recall_empty(node: &Node, task: &RecallTask) {
    match node.objects.take(&node.catalog, &node.disk) {
        Ok((object, fd)) => {
            let fd = Arc::new(fd);
            let _fd = task.staging.begin(|| Ok::<_, std::convert::Infallible>((object, fd)));
            node.recall_arrived(&task.staging);
        }
        Err(e) => node.end_recall(&task.staging, Outcome::Failed(e.to_string())),
    }
}

fn reasons(failed: &[(CopyNo, String)], left: &[CopyPlace]) -> String {
    let mut text: Vec<String> = failed.iter().map(|(no, why)| format!("copy {no}: {why}")).collect();
    for place in left {
        let volumes: Vec<&str> = place.volumes.iter().map(Barcode::as_str).collect();
        text.push(format!(
            "copy {}: volume {} is not readable or not in the library",
            place.copy,
            volumes.join(", ")
        ));
    }
    if text.is_empty() { "no copy on tape is known".into() } else { text.join("; ") }
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
            let task = RecallTask { staging, since: Time::default() };
            let extents = vec![Extent { file_offset: 0, start_block: 7, byte_offset: 0, byte_count: 10 }];
            let (tape_dir, tape_name) = (TapeDir(0), String::new());
            let segment =
                Segment { volume: volume(n), file_offset: 0, length: 10, extents, tape_dir, tape_name };
            let queued = state.queue_segments(&task, 1, CopyNo(1), vec![segment]);
            state.files.insert(Ino(n), Recall { task, failed: Vec::new(), attempt: 1, left: 1, queued });
        }
        let reader = table.join(Ino(2), Version(1), 10).0;
        assert!(reader.add_reader() && !reader.add_reader(), "told once");
        state.hurry(&reader);
        let priority = |n| state.recalls[&volume(n)].priority();
        assert_eq!((priority(1), priority(2)), (PRIORITY_BULK, PRIORITY_READER));
        assert_eq!(state.recalls[&volume(2)].len(), 1);
    }
}
