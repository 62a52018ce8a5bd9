//! Migrations that users asked for: their files go into the write queues whatever their age.

use crate::Node;
use crate::archive::Pushed;
use crate::error::fs_error;
use policy::{MigrateBatch, MigrateItem, MigrateWhy};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{FileKind, FileState, FsError, Ino, Inode, ItemState, PoolName, RequestId, RequestKind, Time};

/// Files of a request looked at in one go.
const PAGE: usize = 2_000;
/// A file of a request that could not be copied is offered to the write queue again this often until it ends.
const AGAIN_AFTER: Duration = Duration::from_millis(2_500);

impl Node {
    /// Puts files of open migrate requests into the write queues, as far as there is room; returns how many copies.
    pub(super) fn push_requested(&self, now: Time) -> Result<usize, FsError> {
        let fail = |e| fs_error("continue a migrate request", &e);
        let open = self.catalog.open_requests_of(RequestKind::Migrate).map_err(fail)?;
        let open: Vec<RequestId> = open.into_iter().map(|r| r.id).collect();
        self.governor.cursors.lock().retain(|id, _| open.contains(id));
        let blocked: BTreeSet<PoolName> = self.writes.blocked().into_keys().collect();
        let before = std::mem::replace(&mut *self.governor.blocked.lock(), blocked.clone());
        if !before.is_subset(&blocked) {
            // The queue of a pool that took no data did not take everything: from the beginning.
            self.governor.cursors.lock().clear();
        }
        let mut queued = self.push_again(&open, now)?.added;
        for id in open {
            loop {
                let after = self.governor.cursors.lock().get(&id).copied().unwrap_or(Ino(0));
                let page = self.catalog.items(id, after, PAGE).map_err(fail)?;
                let Some(&(last, ..)) = page.last() else { break };
                let pending = page.into_iter().filter(|(_, state, _)| *state == ItemState::Pending);
                let Pushed { added, full } = self.push_files(pending.map(|(ino, ..)| ino), now)?;
                queued += added;
                if full {
                    break; // this page again when there is room
                }
                self.governor.cursors.lock().insert(id, last);
            }
        }
        Ok(queued)
    }

    /// A file was not copied when its turn came: requests that wait for it try again later.
    pub(crate) fn migrate_again(&self, ino: Ino) {
        self.governor.again.lock().insert(ino, crate::now().plus(AGAIN_AFTER));
    }

    fn push_again(&self, open: &[RequestId], now: Time) -> Result<Pushed, FsError> {
        let due: Vec<Ino> = {
            let mut again = self.governor.again.lock();
            let due = again.iter().filter(|(_, at)| **at <= now).map(|(ino, _)| *ino).collect();
            again.retain(|_, at| *at > now);
            due
        };
        let mut wanted = Vec::new();
        for ino in due {
            let ids =
                self.catalog.requests_for(ino).map_err(|e| fs_error("continue a migrate request", &e))?;
            if ids.iter().any(|id| open.contains(id)) {
                wanted.push(ino);
                // Until it ends: the queue may still leave it alone, or have no room.
                self.migrate_again(ino);
            }
        }
        self.push_files(wanted.into_iter(), now)
    }

    /// Puts files into the write queues whatever their age, as far as there is room.
    pub(crate) fn push_files(&self, files: impl Iterator<Item = Ino>, now: Time) -> Result<Pushed, FsError> {
        let mut batches: BTreeMap<PoolName, MigrateBatch> = BTreeMap::new();
        for ino in files {
            let candidate = match self.catalog.candidate(ino) {
                // It was deleted, which ends its part of the request.
                Err(e) if e.fs() == FsError::NotFound => None,
                Err(e) if e.is_damage() => {
                    self.note_damage(ino, &e);
                    self.finish_item(ino, RequestKind::Migrate, &ItemState::Failed(e.to_string()), 0);
                    continue;
                }
                found => found.map_err(|e| fs_error("continue a migrate request", &e))?,
            };
            match candidate {
                Some(c) if c.object.is_some() || c.dataless => {
                    for (copy, pool) in &c.missing {
                        let batch = batches.entry(pool.clone()).or_insert_with(|| MigrateBatch {
                            class: c.class.clone(),
                            pool: pool.clone(),
                            items: Vec::new(),
                            bytes: 0,
                            why: MigrateWhy::Age,
                        });
                        batch.bytes += c.size;
                        batch.items.push(MigrateItem {
                            ino,
                            version: c.version,
                            copy: *copy,
                            size: c.size,
                            due: c.due,
                        });
                    }
                }
                _ => {
                    self.finish_migrated(ino);
                    // Unless that was its end: it is being written, or waits to be removed.
                    self.migrate_again(ino);
                }
            }
        }
        let mut all = Pushed { added: 0, full: false };
        for mut batch in batches.into_values() {
            self.leave_out_too_large(&mut batch);
            // It may fail just before a request for it is made, which would wait for its age otherwise.
            self.writes.held(&batch.items, now).into_iter().for_each(|ino| self.migrate_again(ino));
            let Pushed { added, full } = self.enqueue(&batch, true, now);
            (all.added, all.full) = (all.added + added, all.full | full);
        }
        Ok(all)
    }

    /// A drive is about to be given a copy, from this byte of its file on: requests that wait for it are seen to get on.
    pub(crate) fn takes_off(&self, item: &MigrateItem, from: u64) {
        let waits = |id: &RequestId| {
            let request = self.catalog.request(*id).ok().flatten();
            request.is_some_and(|r| r.kind == RequestKind::Migrate)
        };
        let mut requests = self.catalog.requests_for(item.ino).unwrap_or_default();
        requests.retain(waits);
        if requests.is_empty() {
            return;
        }
        let file = self.catalog.archived(item.ino).ok().flatten();
        let lacks = file.map_or(1, |f| self.copies_required(&f.class).saturating_sub(f.copies.len()));
        self.writes.flights.begin((item.ino, item.copy), requests, (item.size, lacks.max(1) as u64), from);
    }

    /// Notes durably which requests have begun, as drives have told.
    pub(crate) fn note_begun(&self) {
        for (id, began) in self.writes.flights.take_begun() {
            if let Err(e) = self.catalog.begin_request(id, began) {
                tracing::warn!("request {id}: that it has begun cannot be recorded: {e}");
            }
        }
    }

    /// Tells operators and migrate requests about a file that cannot be copied until somebody has mended something.
    pub(crate) fn cannot_migrate(&self, ino: Ino, why: String) {
        let path = self.catalog.path_of(ino.told_of()).unwrap_or_default();
        let text = format!("inode {ino} ({}) is not copied to tape: {why}", types::escape(&path));
        self.note_refused(ino, text);
        self.keeper.refuse(ino, &why);
        self.finish_item(ino, RequestKind::Migrate, &ItemState::Failed(why), 0);
    }

    /// The archive state of a file or another node.
    pub(crate) fn archived(&self, inode: &Inode) -> Option<FileState> {
        match inode.attr.kind {
            FileKind::File => inode.file.clone(),
            _ => self.catalog.archived(inode.attr.ino).ok().flatten(),
        }
    }

    /// Tells migrate requests about a file that lacks no copy any more, or cannot be copied.
    pub(crate) fn finish_migrated(&self, ino: Ino) {
        self.keeper.touch(ino);
        if ino.is_word() {
            let state = match self.catalog.archived(ino) {
                Ok(Some(f)) if f.copies.len() < self.copies_required(&f.class) => return,
                Ok(_) => ItemState::Done,
                Err(e) => ItemState::Failed(e.to_string()),
            };
            return self.finish_item(ino, RequestKind::Migrate, &state, 0);
        }
        let (state, bytes) = match self.catalog.inode(ino) {
            Ok(inode) => match &self.archived(&inode) {
                Some(f) if f.copies.len() >= self.copies_required(&f.class) => {
                    (ItemState::Done, if inode.file.is_some() { inode.attr.size } else { 0 })
                }
                // It was changed since its copies were recorded: when it was closed they were still on their way, so nobody took it for one to be copied.
                Some(f) if f.copies.is_empty() && inode.file.is_some() && f.object.is_some() => {
                    return self.migrate_again(ino);
                }
                Some(_) if self.is_being_written(ino) => return self.migrate_again(ino),
                Some(f) if f.object.is_none() && inode.file.is_some() => (
                    ItemState::Failed("it is offline: stage it first, then migrate the missing copy".into()),
                    0,
                ),
                _ => return,
            },
            Err(e) => (ItemState::Failed(e.to_string()), 0),
        };
        self.finish_item(ino, RequestKind::Migrate, &state, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use types::api::{FileApi, OpenFlags};
    use types::{Cx, Request};

    #[test]
    fn a_file_that_was_changed_when_its_copies_had_just_been_recorded_is_copied_again() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let opened = node.create(&Cx::admin(crate::now()), Ino::ROOT, b"file", 0o644, flags).unwrap();
        node.write(opened.handle, 0, b"of another version than that which was copied").unwrap();
        let ino = opened.attr.ino;
        node.finish_migrated(ino);
        assert!(node.governor.again.lock().remove(&ino).is_some(), "while it is being written");
        node.release(opened.handle);
        node.finish_migrated(ino);
        assert!(node.governor.again.lock().contains_key(&ino));
        drop(opened);
        node.stop(true);
    }

    #[test]
    fn a_request_goes_on_for_a_pool_that_takes_data_again_whatever_others_do() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(Config { state_dir: dir.path().to_owned(), ..Config::default() }).unwrap();
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let opened = node.create(&Cx::admin(crate::now()), Ino::ROOT, b"file", 0o644, flags).unwrap();
        node.write(opened.handle, 0, b"content").unwrap();
        node.release(opened.handle);
        let ino = opened.attr.ino;
        drop(opened);
        node.stop(true);
        let pools = node.catalog.classes().unwrap().remove(0).copies;
        assert_eq!(pools.len(), 2);
        // What a queue without room does not take is as if it had never been in it.
        let empty = || {
            for pool in &pools {
                while let Some(item) = node.writes.pop(pool) {
                    node.writes.finish(&item);
                }
            }
        };
        pools.iter().for_each(|pool| node.writes.set_blocked(pool, Some("no volume".into())));
        let request = Request::new(RequestKind::Migrate, 0, "file".into(), crate::now());
        node.catalog.create_request(&request, &[(ino, 7)]).unwrap();
        empty();
        assert_eq!(node.push_requested(crate::now()).unwrap(), 2);
        empty();
        assert_eq!(node.push_requested(crate::now()).unwrap(), 0, "all of it was looked at");
        node.writes.set_blocked(&pools[0], None);
        assert_eq!(node.push_requested(crate::now()).unwrap(), 2, "from the beginning");
    }
}
