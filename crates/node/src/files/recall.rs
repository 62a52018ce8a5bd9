//! Starting, joining and ending recalls.

use super::staging::{Outcome, Staging};
use crate::Node;
use crate::archive::{Event, RecallTask};
use crate::error::fs_error;
use crate::limits::{Asker, priority_of};
use std::sync::Arc;
use types::api::FsResult;
use types::*;

/// On whose behalf a file is wanted, and how urgently.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    /// Who asks; None: the file's owner.
    pub uid: Option<u32>,
    /// Somebody has it open and waits.
    pub reader: bool,
    /// Priority asked for; None: as his limits say.
    pub priority: Option<u8>,
    /// Wanted by then.
    pub deadline: Option<Time>,
}

/// How a wish for a file's bytes stands.
pub(crate) enum Joined {
    /// They are on disk.
    Resident,
    /// They are on their way already.
    Running(Arc<Staging>),
    /// A new recall: its task must be sent to the archive.
    Begun(RecallTask, Attr),
}

impl Node {
    /// Joins the recall of an offline file, or starts one with a request of its own; None if it is resident.
    pub(crate) fn recall(&self, ino: Ino, owner: Option<u32>, why: &str) -> FsResult<Option<Arc<Staging>>> {
        let staging = match self.join_recall(ino, Wish { uid: owner, reader: true, ..Wish::default() })? {
            Joined::Resident => return Ok(None),
            Joined::Running(staging) => return Ok(Some(staging)),
            Joined::Begun(task, attr) => {
                let staging = task.staging.clone();
                let owner = owner.unwrap_or(attr.uid);
                let path = self.catalog.path_of(ino).unwrap_or_default();
                let subject = format!("{why} {}", types::escape(&path));
                let request = Request::new(RequestKind::Stage, owner, subject, crate::now());
                let request = Request { priority: task.priority, ..request };
                let made = self.catalog.create_request(&request, &[(ino, attr.size)]);
                if let Err(e) = made {
                    self.finish_reads(self.staging.end(&staging, Outcome::Failed(e.to_string())));
                    return Err(fs_error("record a recall request", &e));
                }
                self.archive.send(Event::Recall(vec![task]));
                staging
            }
        };
        Ok(Some(staging))
    }

    /// The recall of a file's current version. Decided under the lock of its entry, where recalls become resident: so
    /// nobody starts a recall of a file that has just come back. A new recall's task is for the caller to send.
    pub(crate) fn join_recall(&self, ino: Ino, wish: Wish) -> FsResult<Joined> {
        self.open.with(ino, |_, _| self.join_locked(ino, wish))
    }

    fn join_locked(&self, ino: Ino, wish: Wish) -> FsResult<Joined> {
        let inode = self.catalog.inode(ino).map_err(|e| fs_error("recall", &e))?;
        let file = inode.file.as_ref().ok_or(FsError::Invalid)?;
        if file.object.is_some() {
            return Ok(Joined::Resident);
        }
        if file.copies.is_empty() {
            tracing::error!(
                "inode {ino} version {} is neither on disk nor on tape: it cannot be read; run `thermo check`",
                file.version
            );
            return Err(FsError::Io);
        }
        let (staging, fresh) = self.staging.join(ino, file.version, inode.attr.size);
        let first_reader = wish.reader && staging.add_reader();
        let by_request = wish.uid.is_some() && !wish.reader;
        if by_request {
            staging.add_patient();
        }
        let limits = &self.settings().limits;
        let who = Asker { uid: wish.uid.unwrap_or(inode.attr.uid), gid: inode.attr.gid, class: &file.class };
        let priority = wish.priority.unwrap_or_else(|| priority_of(limits, &who));
        let deadline = wish.deadline;
        Ok(match fresh {
            true => {
                let account = self.archive.account(&who);
                let task = RecallTask { account, priority, deadline, ..RecallTask::new(staging) };
                Joined::Begun(task, inode.attr)
            }
            false => {
                if first_reader {
                    self.archive.send(Event::Hurry(staging.clone()));
                } else if by_request {
                    let account = self.archive.account(&who);
                    self.archive.send(Event::Raise { staging: staging.clone(), account, priority, deadline });
                }
                Joined::Running(staging)
            }
        })
    }

    /// The version being recalled is no longer wanted.
    pub(crate) fn drop_recall(&self, ino: Ino) {
        if let Some(staging) = self.staging.get(ino) {
            self.end_recall(&staging, Outcome::Dropped);
        }
    }

    /// Ends a recall: readers wake, and every request that joined it is told.
    pub(crate) fn end_recall(&self, staging: &Arc<Staging>, outcome: Outcome) {
        let (ino, now) = (staging.ino, crate::now());
        let (item, bytes) = match &outcome {
            Outcome::Whole => (ItemState::Done, staging.size),
            Outcome::Failed(why) => (ItemState::Failed(why.clone()), 0),
            Outcome::Dropped => {
                (ItemState::Failed("overwritten, deleted or cancelled before it was back".into()), 0)
            }
        };
        if let Outcome::Failed(why) = &outcome {
            tracing::error!("recall of inode {ino} version {} failed: {why}", staging.version);
        }
        let whole = outcome == Outcome::Whole;
        let _ending = self.steady.ends();
        let mut readers = self.staging.end(staging, outcome);
        if whole {
            self.finish_reads(std::mem::take(&mut readers));
        }
        // An object begun from here on is given up by whoever begins it: he looks at the outcome afterwards.
        if let Some(object) = staging.object().filter(|_| !whole) {
            self.settle_object(&object);
        }
        let began = staging.begun().unwrap_or(now);
        self.each_request(ino, RequestKind::Stage, "end", &mut |r| {
            self.catalog.finish_item(r.id, ino, item.clone(), bytes, (began.max(r.created), now)).map(drop)
        });
        // Who reads that it failed may ask for it at once: that request is not meant above.
        self.finish_reads(readers);
        self.keeper.touch(ino);
    }

    /// Reports one file to every open request of `kind` that contains it.
    pub(crate) fn finish_item(&self, ino: Ino, kind: RequestKind, item: &ItemState, bytes: u64) {
        let (now, flights) = (crate::now(), &self.writes.flights);
        let _ending = self.steady.ends();
        self.each_request(ino, kind, "end", &mut |r| {
            let began = flights.of(r.id).1.filter(|_| kind == RequestKind::Migrate);
            let began = began.map_or(now, |began| began.max(r.created));
            self.catalog.finish_item(r.id, ino, item.clone(), bytes, (began, now)).map(drop)
        });
        if kind == RequestKind::Migrate {
            flights.ended(ino);
        }
    }

    /// A drive reads a file: the requests that wait for it have begun.
    pub(crate) fn recall_began(&self, staging: &Staging) {
        if let Some(began) = staging.begun() {
            self.requests_began(staging.ino, RequestKind::Stage, began);
        }
    }

    /// The first byte of a file has moved: requests of `kind` that contain it have begun, if they had not before.
    pub(crate) fn requests_began(&self, ino: Ino, kind: RequestKind, began: Time) {
        self.each_request(ino, kind, "begin", &mut |r| match r.started {
            Some(_) => Ok(()),
            None => self.catalog.begin_request(r.id, began.max(r.created)).map(drop),
        });
    }

    /// Tells something to every open request of `kind` that contains a file.
    fn each_request(
        &self,
        ino: Ino,
        kind: RequestKind,
        what: &str,
        tell: &mut dyn FnMut(&Request) -> catalog::Result<()>,
    ) {
        let told = self.catalog.requests_for(ino).and_then(|ids| {
            for id in ids {
                if let Some(request) = self.catalog.request(id)?.filter(|r| r.kind == kind) {
                    tell(&request)?;
                }
            }
            Ok(())
        });
        if let Err(e) = told {
            tracing::error!("recording the {what} of inode {ino} in its requests: {e}");
        }
    }

    /// Recalled bytes are on stable storage: the file is resident from here on, unless the recall ended before: then its
    /// object has been given up and may be gone.
    pub(crate) fn recall_arrived(&self, staging: &Arc<Staging>) {
        let Some(backing) = staging.object() else {
            return self.end_recall(staging, Outcome::Failed("no disk object was given".into()));
        };
        let ino = staging.ino;
        let outcome = self.open.with(ino, |_, state| {
            if !staging.claim() {
                return Ok(None);
            }
            if let Some(far) = backing.far() {
                far.came_back();
            }
            let stamp = self.stamp_of(&backing).map_err(|e| e.to_string())?;
            let current = self
                .catalog
                .set_resident(ino, staging.version, backing.object, &stamp, crate::now())
                .map_err(|e| e.to_string())?;
            if backing.far().is_some_and(|far| far.striped().is_coded()) {
                // What was noted before is forgotten: it was nobody's yet.
                self.movers.note_unfolded(ino);
            }
            if current && state.handles > 0 {
                state.backing = Some(backing.clone());
            }
            Ok::<_, String>(Some(if current { Outcome::Whole } else { Outcome::Dropped }))
        });
        let Some(outcome) = outcome.unwrap_or_else(|why| Some(Outcome::Failed(why))) else { return };
        self.settle_object(&backing);
        drop(backing);
        self.end_recall(staging, outcome);
        self.attributes_changed(ino);
    }
}
