//! Acts on chosen files: stage, migrate, purge, pin.

use crate::Node;
use crate::archive::Event;
use crate::error::{failure, fs_failure, refused};
use crate::files::{Joined, Outcome, Wish};
use crate::limits::{Asker, HIGHEST, LOWEST, priority_of};
use types::*;
use wire::{Failure, Selection};

/// Directory entries, or files of a request, read at a time.
const PAGE: usize = 5_000;

/// What a user wants to do with the chosen files; decides the permission needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Read = 4,
    Write = 2,
    /// As `Write`, and nodes without data are chosen too.
    Copy = 3,
}

impl Need {
    /// What the mode has to allow.
    fn permission(self) -> u32 {
        if self == Self::Read { 4 } else { 2 }
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn subject(selection: &Selection) -> String {
    match selection.paths.as_slice() {
        [one] => text(one),
        [first, rest @ ..] => format!("{} and {} more", text(first), rest.len()),
        [] => "nothing".into(),
    }
}

/// A request about these files; who asks is entered with it.
fn named(kind: RequestKind, selection: &Selection, note: String) -> Request {
    Request { message: note, ..Request::new(kind, 0, subject(selection), Time::default()) }
}

impl Node {
    /// Calls `f` for each chosen regular file.
    fn select(
        &self,
        cx: &Cx,
        selection: &Selection,
        need: Need,
        f: &mut dyn FnMut(Inode),
    ) -> Result<(), Failure> {
        for path in &selection.paths {
            let inode = self.catalog.resolve(cx, path, true).map_err(|e| refused(&text(path), &e))?;
            match inode.attr.kind {
                FileKind::Directory if selection.recursive => {
                    if need == Need::Copy && self.may(cx, &inode.attr, need).is_ok() {
                        f(inode.clone());
                    }
                    self.select_tree(cx, inode, need, f)?;
                }
                FileKind::Directory => {
                    let hint = format!("{}: is a directory; add -r for all files below it", text(path));
                    return Err(Failure {
                        class: ErrorClass::Namespace,
                        fs: Some(FsError::IsADirectory),
                        message: hint,
                    });
                }
                FileKind::File => {
                    self.may(cx, &inode.attr, need).map_err(|e| refused(&text(path), &e))?;
                    f(inode);
                }
                _ => {
                    let message = format!("{}: is not a regular file, it has no data to move", text(path));
                    return Err(failure(ErrorClass::Invalid, message));
                }
            }
        }
        Ok(())
    }

    /// Owners may decide where their file lies even if they have made it read-only.
    fn may(&self, cx: &Cx, attr: &Attr, need: Need) -> Result<(), catalog::CatalogError> {
        if need != Need::Read && cx.uid == attr.uid {
            Ok(())
        } else {
            self.catalog.access(cx, attr, need.permission())
        }
    }

    /// Everything below a directory; what the caller may not read or change is left out, as `find` would.
    fn select_tree(&self, cx: &Cx, top: Inode, need: Need, f: &mut dyn FnMut(Inode)) -> Result<(), Failure> {
        let mut directories = vec![top];
        while let Some(dir) = directories.pop() {
            if self.catalog.access(cx, &dir.attr, 5).is_err() {
                continue;
            }
            let mut cookie = 0;
            loop {
                let page = self
                    .catalog
                    .readdir_plus(dir.attr.ino, cookie, PAGE)
                    .map(crate::files::past_damage)
                    .map_err(|e| refused("listing", &e))?;
                let Some((last, _)) = page.last() else { break };
                cookie = last.cookie;
                for (entry, inode) in page {
                    let inode = match inode {
                        Ok(inode) => inode,
                        Err(e) => {
                            tracing::error!("{:?} is left out: {e}", String::from_utf8_lossy(&entry.name));
                            continue;
                        }
                    };
                    let is_dir = inode.attr.kind == FileKind::Directory;
                    let wanted = need == Need::Copy || inode.attr.kind == FileKind::File;
                    if wanted && self.may(cx, &inode.attr, need).is_ok() {
                        f(inode.clone());
                    }
                    if is_dir {
                        directories.push(inode);
                    }
                }
            }
        }
        Ok(())
    }

    /// Enters a request with its files; one without files is done at once.
    fn enter(&self, cx: &Cx, request: Request, items: &[(Ino, u64)]) -> Result<Request, Failure> {
        let fail = |e| refused("request", &e);
        let now = crate::now();
        let mut request = Request { owner: cx.uid, created: now, ..request };
        if items.is_empty() {
            (request.state, request.finished) = (RequestState::Done, Some(now));
        }
        // All at once: a request with a part of its files could end before it has the rest.
        let request = self.catalog.create_request(&request, items).map_err(fail)?;
        self.catalog.sync().map_err(fail)?;
        Ok(request)
    }

    /// Calls `f` for each file that a stage request would name.
    pub(super) fn to_read(
        &self,
        cx: &Cx,
        selection: &Selection,
        f: &mut dyn FnMut(Inode),
    ) -> Result<(), Failure> {
        self.select(cx, selection, Need::Read, f)
    }

    /// Brings files back.
    pub(super) fn stage(
        &self,
        cx: &Cx,
        selection: &Selection,
        priority: Option<u8>,
        deadline: Option<Time>,
    ) -> Result<Request, Failure> {
        let (mut items, mut resident, mut allowed) = (Vec::new(), 0u64, HIGHEST);
        self.select(cx, selection, Need::Read, &mut |inode| match &inode.file {
            Some(f) if f.object.is_none() => {
                let who = Asker { uid: cx.uid, gid: inode.attr.gid, class: &f.class };
                allowed = allowed.min(priority_of(&self.config.limits, &who));
                items.push((inode.attr.ino, inode.attr.size));
            }
            _ => resident += 1,
        })?;
        let priority = self.priority(cx, priority, allowed)?;
        dedup(&mut items, |(ino, _)| *ino);
        let note =
            if resident > 0 { format!("{resident} files were on disk already") } else { String::new() };
        let request = Request { priority, deadline, ..named(RequestKind::Stage, selection, note) };
        let request = self.enter(cx, request, &items)?;
        let wish = Wish { uid: Some(cx.uid), reader: false, priority: Some(priority), deadline };
        let mut tasks = Vec::new();
        for (ino, size) in items {
            match self.join_recall(ino, wish) {
                Ok(Joined::Begun(task, _)) => tasks.push(task),
                Ok(Joined::Running(_)) => {}
                Ok(Joined::Resident) => {
                    self.finish_item(ino, RequestKind::Stage, &ItemState::Done, size);
                }
                Err(e) => {
                    let state = ItemState::Failed(format!("cannot be recalled: {e}; run `thermo check`"));
                    self.finish_item(ino, RequestKind::Stage, &state, 0);
                }
            }
        }
        self.archive.send(Event::Recall(tasks));
        Ok(request)
    }

    /// The priority of a request, if it may have it.
    fn priority(&self, cx: &Cx, asked: Option<u8>, allowed: u8) -> Result<u8, Failure> {
        let highest = if self.is_admin(cx) { HIGHEST } else { allowed };
        match asked {
            None => Ok(allowed.min(highest)),
            Some(asked) if asked < LOWEST => {
                let message = format!("priority {asked}: ask for {LOWEST} to {highest}");
                Err(failure(ErrorClass::Invalid, message))
            }
            Some(asked) if asked <= highest => Ok(asked),
            Some(asked) => {
                let message = format!(
                    "priority {asked} is more than you may ask for: the limits of this node allow {highest} for these \
                     files; ask for {highest} or less"
                );
                Err(failure(ErrorClass::Invalid, message))
            }
        }
    }

    /// Writes the copies that files lack.
    pub(super) fn migrate(&self, cx: &Cx, selection: &Selection) -> Result<Request, Failure> {
        let (mut items, mut complete) = (Vec::new(), 0u64);
        self.select(cx, selection, Need::Copy, &mut |inode| {
            let word = inode.attr.ino.word();
            let due = self.catalog.archived(word).ok().flatten();
            if due.is_some_and(|f| f.copies.len() < self.copies_required(&f.class)) {
                items.push((word, 0));
            }
            match &self.archived(&inode) {
                Some(f) if f.copies.len() < self.copies_required(&f.class) => {
                    items.push((inode.attr.ino, inode.file.as_ref().map_or(0, |_| inode.attr.size)));
                }
                _ => complete += u64::from(inode.file.is_some()),
            }
        })?;
        dedup(&mut items, |(ino, _)| *ino);
        let note = if complete > 0 { format!("{complete} files lacked no copy") } else { String::new() };
        let request = self.enter(cx, named(RequestKind::Migrate, selection, note), &items)?;
        self.writes.let_in(items.iter().map(|(ino, _)| *ino), crate::now());
        self.governor.wake();
        Ok(request)
    }

    /// Releases disk space.
    pub(super) fn purge(&self, cx: &Cx, selection: &Selection) -> Result<Request, Failure> {
        let mut files = Vec::new();
        self.select(cx, selection, Need::Write, &mut |inode| {
            if let Some((version, object)) = inode.file.and_then(|f| Some((f.version, f.object?))) {
                files.push((inode.attr.ino, inode.attr.disk_bytes, version, object));
            }
        })?;
        dedup(&mut files, |(ino, ..)| *ino);
        let items: Vec<_> = files.iter().map(|(ino, bytes, ..)| (*ino, *bytes)).collect();
        let request = self.enter(cx, named(RequestKind::Purge, selection, String::new()), &items)?;
        for (ino, bytes, version, object) in files {
            let (state, bytes) = match self.purge_file(ino, version, object) {
                Ok(()) => (ItemState::Done, bytes),
                Err(why) => (ItemState::Failed(why), 0),
            };
            self.finish_item(ino, RequestKind::Purge, &state, bytes);
        }
        self.governor.wake();
        let done = self.catalog.request(request.id).map_err(|e| refused("request", &e))?;
        Ok(done.unwrap_or(request))
    }

    /// Pins or unpins; returns how many files changed.
    pub(super) fn pin(&self, cx: &Cx, selection: &Selection, pin: bool) -> Result<u64, Failure> {
        let (mut changed, mut error) = (0, None);
        self.select(cx, selection, Need::Write, &mut |inode| match self.catalog.pin(inode.attr.ino, pin) {
            Ok(yes) => changed += u64::from(yes),
            Err(e) => error = Some(refused("pin", &e)),
        })?;
        match error {
            Some(e) => Err(e),
            None => Ok(changed),
        }
    }

    /// Withdraws a request; recalls that no other open request wants are dropped unless a reader waits.
    pub(super) fn cancel(&self, cx: &Cx, id: RequestId) -> Result<(), Failure> {
        let fail = |e| refused("cancel", &e);
        let request = self.request(id)?;
        if request.owner != cx.uid && !self.is_admin(cx) {
            return Err(fs_failure(
                &format!("request {id} of user {}", request.owner),
                FsError::NotPermitted,
            ));
        }
        if !matches!(request.state, RequestState::Queued | RequestState::Active) {
            return Err(failure(
                ErrorClass::Invalid,
                format!("request {id} has ended already ({})", request.state),
            ));
        }
        let now = crate::now();
        self.catalog
            .update_request(id, &mut |r| {
                r.state = RequestState::Cancelled;
                r.finished = Some(now);
            })
            .map_err(fail)?;
        if request.kind == RequestKind::Stage {
            let mut after = Ino(0);
            loop {
                let page = self.catalog.items(id, after, PAGE).map_err(fail)?;
                let Some(&(last, ..)) = page.last() else { break };
                after = last;
                for (ino, ..) in page.iter().filter(|(_, s, _)| *s == ItemState::Pending) {
                    let wanted = !self.catalog.requests_for(*ino).map_err(fail)?.is_empty();
                    if !wanted && let Some(staging) = self.staging.get(*ino).filter(|s| s.withdraw()) {
                        self.end_recall(&staging, Outcome::Dropped);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn request(&self, id: RequestId) -> Result<Request, Failure> {
        let found = self.catalog.request(id).map_err(|e| refused("request", &e))?;
        found.ok_or_else(|| {
            failure(ErrorClass::NotFound, format!("there is no request {id}; see `thermo request ls --all`"))
        })
    }
}

/// Hard links and overlapping paths name an inode more than once.
fn dedup<T>(files: &mut Vec<T>, ino: impl Fn(&T) -> Ino) {
    files.sort_by_key(&ino);
    files.dedup_by_key(|file| ino(file));
}
