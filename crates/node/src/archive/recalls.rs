//! Recalls between a user's wish and a drive: choosing a copy, queueing its segments, trying the next copy on failure.

use super::state::{QueuedSegment, Recall, State};
use super::worker::Wanted;
use super::{Archive, RecallTask, events};
use crate::Node;
use crate::files::Outcome;
use sched::{CopyPlace, RecallItem};
use std::collections::BTreeSet;
use tape::TapeError;
use types::*;

/// An open file goes before a bulk request.
const PRIORITY_READER: u8 = 10;
const PRIORITY_BULK: u8 = 5;

impl Archive {
    /// A segment has arrived; true if the file has all of them.
    pub fn segment_read(&self, ino: Ino) -> bool {
        let mut state = self.state.lock();
        let Some(recall) = state.files.get_mut(&ino) else { return false };
        recall.left = recall.left.saturating_sub(1);
        recall.left == 0
    }

    /// Nobody wants this file any more, or it is back.
    pub fn forget_recall(&self, ino: Ino) {
        self.state.lock().unqueue(ino);
    }
}

impl State {
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

    /// Puts segments into the queues of their volumes; returns the ids of the queue items.
    fn queue_segments(&mut self, task: &RecallTask, copy: CopyNo, segments: Vec<Segment>) -> Vec<u64> {
        let priority = if task.staging.has_waiters() { PRIORITY_READER } else { PRIORITY_BULK };
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
            self.segments.insert(id, QueuedSegment { ino: task.staging.ino, copy, segment });
        }
        ids
    }
}

/// Queues files for the drives.
pub fn add(node: &Node, tasks: Vec<RecallTask>) {
    for task in tasks {
        place(node, task, Vec::new());
    }
}

/// A segment could not be read: the file is tried from another copy, or fails with every reason named.
pub fn failed(node: &Node, wanted: Wanted, error: &TapeError) {
    let ino = wanted.queued.ino;
    let recall = {
        let mut state = node.archive.state.lock();
        state.avoid.insert(wanted.queued.segment.volume.clone());
        state.unqueue(ino)
    };
    let (since, mut reasons) = recall.map_or((crate::now(), Vec::new()), |r| (r.task.since, r.failed));
    reasons.push((wanted.queued.copy, error.to_string()));
    place(node, RecallTask { staging: wanted.staging, since }, reasons);
}

/// Segments that a drive gave back unread.
pub fn unread(node: &Node, wanted: Vec<Wanted>) {
    let mut state = node.archive.state.lock();
    for one in wanted {
        let Some(recall) = state.files.get(&one.queued.ino) else { continue };
        let task = recall.task.clone();
        let ids = state.queue_segments(&task, one.queued.copy, vec![one.queued.segment]);
        if let Some(recall) = state.files.get_mut(&one.queued.ino) {
            recall.queued.extend(ids);
        }
    }
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
    let mut state = node.archive.state.lock();
    let queued = state.queue_segments(&task, chosen.copy, chosen.segments.clone());
    let left = queued.len();
    state.files.insert(ino, Recall { task, failed, left, queued });
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
            task.staging.begin(object, std::sync::Arc::new(fd));
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
