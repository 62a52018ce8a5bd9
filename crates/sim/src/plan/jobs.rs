//! What the drives do and how long it takes.

use super::world::{Does, Part, Running, World, time};
use sched::{Action, DriveState, Job, Loaded, first_part, recall_order};
use types::{Barcode, PoolName, VolumeState};

/// One turn of writing takes at most this much: then the scheduler looks again.
const TURN_BYTES: u64 = 2_000_000_000_000;
/// An index or a label: writing, synchronising, and the way to its partition and back (seconds).
const INDEX_S: f64 = 30.0;

impl World<'_> {
    /// Asks the scheduler and begins what it says, until nothing more begins.
    pub(super) fn give_orders(&mut self) {
        let actions = self.with_view(|view| sched::plan(view).actions);
        actions.iter().for_each(|action| self.begin(action));
    }

    fn begin(&mut self, action: &Action) {
        let n = usize::from(action.drive.0);
        let held = match &self.drives[n].state {
            DriveState::Loaded(held) => Some(held.clone()),
            _ => None,
        };
        let begun = self.now;
        let (seconds, volume, position, dirty, does, moves) = match &action.job {
            Job::Mount { volume } => {
                self.figures.mounts += 1;
                (self.mechanics.mount_s(), Some(volume), 0, false, Does::Nothing, true)
            }
            Job::Unmount { .. } => (self.mechanics.unmount_s(), None, 0, false, Does::Nothing, true),
            Job::Recall { volume, order } => {
                let at = held.as_ref().map_or(0, |h| h.position);
                let (took, at, ids) = self.reading(volume, order, at);
                (took, Some(volume), at, held.as_ref().is_some_and(|h| h.dirty), Does::Read(ids), false)
            }
            Job::Migrate { volume, pool } => {
                let at = held.as_ref().map_or(0, |h| h.position);
                let (took, at, parts) = self.writing(volume, pool, at);
                (took, Some(volume), at, true, Does::Wrote(parts), false)
            }
            Job::Label { volume, pool, .. } => {
                (INDEX_S, Some(volume), 0, false, Does::Labelled(volume.clone(), pool.clone()), false)
            }
            Job::WriteIndex { volume, .. } => {
                let at = held.as_ref().map_or(0, |h| h.position);
                (INDEX_S, Some(volume), at, false, Does::Nothing, false)
            }
            Job::Check { .. } => return, // nobody asks for one here
        };
        let end = begun + seconds;
        let then = match volume {
            None => DriveState::Empty,
            Some(volume) => DriveState::Loaded(Loaded {
                volume: volume.clone(),
                mounted: held.map_or(time(end), |h| h.mounted),
                idle_since: time(end),
                dirty,
                position,
            }),
        };
        self.figures.drive_s += seconds;
        if moves {
            self.figures.robot_s += self.mechanics.move_s;
        } else {
            self.figures.moving_s += seconds;
        }
        self.drives[n].state = DriveState::Busy(action.busy(Some(time(end))));
        self.running.push(Running { end, drive: n, moves, then, does });
    }

    /// Files are read in the order in which the node reads them.
    fn reading(&mut self, volume: &Barcode, order: &[u64], from: u64) -> (f64, u64, Vec<u64>) {
        let Some(queue) = self.recalls.get_mut(volume) else { return (0.0, from, Vec::new()) };
        let items: Vec<_> = order.iter().filter_map(|id| queue.remove(*id)).collect();
        let ordered = recall_order(&self.mechanics, from, &items);
        let (now, later) =
            ordered.split_at(first_part(&ordered, self.limits.recall_bytes).min(ordered.len()));
        let later: Vec<u64> = later.iter().map(|item| item.id).collect();
        self.put_back(volume, &later);
        let (mut at, mut took) = (from, 0.0);
        for item in now {
            took += self.mechanics.locate(at, item.block) + self.mechanics.transfer(item.bytes);
            at = self.mechanics.last_block(item.block, item.byte, item.bytes);
            self.figures.recalled += item.bytes;
        }
        (took, at, now.iter().map(|item| item.id).collect())
    }

    /// Takes from a pool's queue what fits on the volume, or a turn.
    fn writing(
        &mut self,
        volume: &Barcode,
        pool: &PoolName,
        from: u64,
    ) -> (f64, u64, Vec<(usize, usize, Part)>) {
        if let Some(tape) = self.volumes.get_mut(volume)
            && tape.pool.is_none()
        {
            (tape.pool, tape.state) = (Some(pool.clone()), VolumeState::Filling);
        }
        let end_of_data = self.volumes.get(volume).map_or(0, |t| t.written / self.mechanics.block_bytes);
        let (mut parts, mut bytes) = (Vec::new(), 0);
        while bytes < TURN_BYTES {
            let Some((id, copy)) = self.queues.get_mut(pool).and_then(|q| q.pop_front()) else { break };
            let set = self.set(id);
            let left = set.copies[copy].1 - set.assigned[copy].min(set.copies[copy].1);
            if set.gone {
                self.waits.entry(pool.clone()).and_modify(|w| w.0 -= left.min(w.0));
                continue;
            }
            // A set that is larger than what is left goes on on the next volume.
            let part = self.append(volume, left);
            let whole = part.bytes == left;
            self.set(id).assigned[copy] += part.bytes;
            self.waits.entry(pool.clone()).and_modify(|w| w.0 -= part.bytes.min(w.0));
            bytes += part.bytes;
            if part.bytes > 0 {
                parts.push((id, copy, part));
            }
            if !whole {
                self.queues.entry(pool.clone()).or_default().push_front((id, copy));
                break;
            }
        }
        let now = time(self.now);
        self.waits.entry(pool.clone()).and_modify(|w| w.1 = now);
        let seconds =
            self.mechanics.locate(from, end_of_data) + self.mechanics.transfer(bytes) + INDEX_S / 3.0;
        let at = self.volumes.get(volume).map_or(0, |t| t.written / self.mechanics.block_bytes);
        (seconds, at, parts)
    }
}
