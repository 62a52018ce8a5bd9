//! What users do to data sets, and what follows for the disk tier and the queues.

use super::arrivals::{DAY, Line, Op, Stream, size};
use super::world::{Part, Recall, Set, Waiting, World, seconds, time};
use sched::{CopyPlace, RecallItem, choose_copy};
use std::collections::BTreeSet;
use types::{Barcode, CopyNo};

/// Places on tape that a read of part of a data set goes to at most.
const MOST_ITEMS: u64 = 4;

impl World<'_> {
    pub fn arrive(&mut self, stream: &mut Stream) {
        let n = stream.user;
        let user = &self.spec.users[n];
        if stream.writes {
            let class = self.spec.classes.iter().position(|c| c.name == user.class).unwrap_or(0);
            let bytes = size(user, stream.dice());
            self.write(class, Some(n), bytes, user.files);
            return;
        }
        let all = &self.of_user[n];
        if all.is_empty() {
            return;
        }
        let since = self.now - user.recent_days * DAY;
        let first = all.partition_point(|id| self.sets[*id].due < since);
        let recent = stream.dice().share() < user.recent && first < all.len();
        let from = if recent { first } else { 0 };
        let id = all[from + stream.dice().below((all.len() - from) as u64) as usize];
        let part = user.part;
        self.read(id, part);
    }

    pub fn traced(&mut self, line: &Line) {
        let class = line.class.as_ref().and_then(|c| self.spec.classes.iter().position(|k| k.name == *c));
        let class = class.unwrap_or(0);
        match (line.op, self.named.get(&line.set).copied()) {
            (Op::Write, old) => {
                if let Some(old) = old {
                    self.delete(old);
                }
                let id = self.write(class, None, line.bytes.max(1), line.files);
                self.named.insert(line.set.clone(), id);
            }
            (Op::Read, Some(id)) => self.read(id, 1.0),
            (Op::Read, None) => {
                let id = self.on_tape(class, None, line.bytes.max(1), line.files);
                self.named.insert(line.set.clone(), id);
                self.read(id, 1.0);
            }
            (Op::Delete, Some(id)) => {
                self.delete(id);
                self.named.remove(&line.set);
            }
            (Op::Delete, None) => {}
        }
    }

    pub fn delete(&mut self, id: usize) {
        self.off_disk(id);
        let set = &mut self.sets[id];
        set.gone = true;
        let due = seconds(set.due);
        self.candidates.remove(&(due, id));
    }

    pub fn write(&mut self, class: usize, user: Option<usize>, bytes: u64, files: u32) -> usize {
        let due = self.now + f64::from(self.spec.classes[class].migrate_after_s);
        let copies = self.spec.classes[class].copies.len();
        let set = Set {
            class,
            user,
            bytes,
            files,
            due,
            used: self.now,
            on_disk: true,
            gone: false,
            copies: vec![(Vec::new(), bytes); copies],
            assigned: vec![0; copies],
            queued: vec![false; copies],
        };
        self.sets.push(set);
        let id = self.sets.len() - 1;
        if let Some(user) = user {
            self.of_user[user].push(id);
        }
        self.disk_used += bytes;
        self.figures.written += bytes;
        self.candidates.insert((seconds(due), id));
        self.lru.insert((seconds(self.now), id));
        id
    }

    pub fn touch(&mut self, id: usize) {
        let set = &mut self.sets[id];
        if set.on_disk {
            self.lru.remove(&(seconds(set.used), id));
            self.lru.insert((seconds(self.now), id));
        }
        set.used = self.now;
    }

    pub fn off_disk(&mut self, id: usize) {
        let set = &mut self.sets[id];
        if std::mem::take(&mut set.on_disk) {
            self.disk_used -= set.bytes;
            self.lru.remove(&(seconds(set.used), id));
        }
    }

    pub fn read(&mut self, id: usize, part: f64) {
        self.touch(id);
        if self.sets[id].on_disk {
            self.figures.hits += 1;
            return;
        }
        let since = self.now;
        if let Some(recall) = self.coming.get_mut(&id) {
            recall.waiting.push(Waiting { since });
            return;
        }
        let set = &self.sets[id];
        let of = |parts: &Vec<Part>| parts.iter().map(|p| p.volume.clone()).collect();
        let places: Vec<CopyPlace> = (1..)
            .zip(&set.copies)
            .filter(|(_, (_, left))| *left == 0)
            .map(|(no, (parts, _))| CopyPlace { copy: CopyNo(no), volumes: of(parts) })
            .collect();
        let choice = self.with_view(|view| choose_copy(view, &places, &BTreeSet::new()));
        let chosen = choice.map_or(0, |c| usize::from(places[c.index].copy.0) - 1);
        let set = &self.sets[id];
        let bytes = ((set.bytes as f64 * part) as u64).clamp(1, set.bytes);
        // All of a set is read in one go.
        let count = if part < 1.0 { u64::from(set.files).clamp(1, MOST_ITEMS) } else { 1 };
        let priority = set.user.map_or(5, |u| self.spec.users[u].priority);
        let parts = set.copies.get(chosen).map(|c| c.0.clone()).unwrap_or_default();
        let left = self.queue(id, &parts, bytes, count, priority);
        self.growing += bytes;
        self.coming.insert(id, Recall { left, bytes, waiting: vec![Waiting { since }] });
        self.figures.asked += 1;
    }

    /// Puts what is wanted of a set into the queues of its volumes, spread over its parts.
    pub fn queue(&mut self, id: usize, parts: &[Part], bytes: u64, count: u64, priority: u8) -> usize {
        let all: u64 = parts.iter().map(|p| p.bytes).sum::<u64>().max(1);
        let mut queued = 0;
        for part in parts {
            let here = (count * part.bytes).div_ceil(all).max(1);
            for n in 0..here {
                self.next_item += 1;
                let item = RecallItem {
                    id: self.next_item,
                    block: part.block + part.bytes / self.mechanics.block_bytes * n / here,
                    byte: 0,
                    bytes: (bytes as f64 * part.bytes as f64 / all as f64 / here as f64) as u64,
                    priority,
                    since: time(self.now),
                    account: sched::AccountId(0),
                    deadline: None,
                };
                let queue = self.recalls.entry(part.volume.clone()).or_default();
                if queue.is_empty() {
                    self.heat.note(&part.volume, time(self.now));
                }
                queue.insert(item);
                self.items.insert(item.id, (id, item));
                queued += 1;
            }
        }
        queued
    }

    /// Items that a drive did not read go back.
    pub fn put_back(&mut self, volume: &Barcode, ids: &[u64]) {
        for id in ids {
            if let Some((_, item)) = self.items.get(id) {
                self.recalls.entry(volume.clone()).or_default().insert(*item);
            }
        }
    }
}
