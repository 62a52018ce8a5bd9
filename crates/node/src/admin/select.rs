//! Which files are meant; requests are entered and withdrawn.

use crate::Node;
use crate::error::{failure, fs_failure, refused};
use crate::files::Outcome;
use catalog::CatalogError;
use types::*;
use wire::{Failure, LeftOut, Selection};

/// Directory entries, or files of a request, read at a time.
const PAGE: usize = 5_000;
/// Most files below directories that are named when they are left out.
const BELOW: usize = 100;

/// What a user wants to do with the chosen files; decides the permission needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Bring back.
    Read = 4,
    /// Pin, release.
    Write = 2,
    /// As `Write`, and nodes without data are chosen too.
    Copy = 3,
    /// The same, of directories only one's own.
    Place = 6,
}

impl Need {
    /// What the mode has to allow.
    fn permission(self) -> u32 {
        if self == Self::Read { 4 } else { 2 }
    }

    /// Whether more is chosen than files.
    fn is_for_all(self) -> bool {
        matches!(self, Self::Copy | Self::Place)
    }
}

/// What of a list cannot be chosen.
#[derive(Default)]
pub(super) struct Left {
    /// Each with its reason.
    pub named: Vec<LeftOut>,
    /// Further ones below directories; they are in the log.
    pub unnamed: u64,
    /// Path of the list that is looked at.
    of: u32,
    below: usize,
}

impl Left {
    fn out(&mut self, why: Failure) {
        self.named.push(LeftOut { of: self.of, below: None, class: why.class, why: why.message });
    }

    /// Something below the path that is looked at.
    pub fn below(&mut self, path: Vec<u8>, error: &CatalogError) {
        tracing::error!("{} is left out: {error}", types::escape(&path));
        if self.below == BELOW {
            self.unnamed += 1;
            return;
        }
        self.below += 1;
        let why = error.to_string();
        self.named.push(LeftOut { of: self.of, below: Some(path), class: error.class(), why });
    }
}

/// Why one path cannot be chosen; whoever tells it says which.
fn cannot(error: &CatalogError) -> Failure {
    failure(error.class(), error.to_string())
}

impl Node {
    /// Calls `f` for each chosen file; returns how many of the paths could be chosen.
    pub(super) fn select(
        &self,
        cx: &Cx,
        selection: &Selection,
        need: Need,
        left: &mut Left,
        f: &mut dyn FnMut(Inode),
    ) -> u64 {
        let mut chosen = 0;
        for (of, path) in (0..).zip(&selection.paths) {
            left.of = of;
            match self.choose_path(cx, path, selection.recursive, need, left, f) {
                Ok(()) => chosen += 1,
                Err(why) => left.out(why),
            }
        }
        chosen
    }

    fn choose_path(
        &self,
        cx: &Cx,
        path: &[u8],
        recursive: bool,
        need: Need,
        left: &mut Left,
        f: &mut dyn FnMut(Inode),
    ) -> Result<(), Failure> {
        let inode = self.catalog.resolve(cx, path, true).map_err(|e| cannot(&e))?;
        match inode.attr.kind {
            FileKind::Directory if recursive => {
                if need.is_for_all() && self.may(cx, &inode.attr, need).is_ok() {
                    f(inode.clone());
                }
                self.select_tree(cx, inode, need, left, f);
            }
            FileKind::Directory => {
                let hint = "is a directory; add -r for all files below it";
                return Err(failure(ErrorClass::Namespace, hint));
            }
            FileKind::File => {
                self.may(cx, &inode.attr, need).map_err(|e| cannot(&e))?;
                f(inode);
            }
            _ => {
                let message = "is not a regular file, it has no data to move";
                return Err(failure(ErrorClass::Invalid, message));
            }
        }
        Ok(())
    }

    /// Owners may decide where their file lies even if they have made it read-only.
    fn may(&self, cx: &Cx, attr: &Attr, need: Need) -> Result<(), catalog::CatalogError> {
        if need != Need::Read && cx.uid == attr.uid {
            Ok(())
        } else if need == Need::Place && attr.kind == FileKind::Directory && !self.is_admin(cx) {
            Err(FsError::NotPermitted.into())
        } else {
            self.catalog.access(cx, attr, need.permission())
        }
    }

    /// Everything below a directory; what the caller may not read or change is passed over, as `find` would, what is damaged is
    /// left out.
    fn select_tree(&self, cx: &Cx, top: Inode, need: Need, left: &mut Left, f: &mut dyn FnMut(Inode)) {
        let mut directories = vec![top];
        while let Some(dir) = directories.pop() {
            if self.catalog.access(cx, &dir.attr, 5).is_err() {
                continue;
            }
            let path = || self.catalog.path_of(dir.attr.ino).unwrap_or_default();
            let mut cookie = 0;
            loop {
                let page = match self.catalog.readdir_plus(dir.attr.ino, cookie, PAGE) {
                    Ok(listed) => crate::files::past_damage(listed),
                    Err(e) => {
                        left.below(path(), &e);
                        break;
                    }
                };
                let Some((last, _)) = page.last() else { break };
                cookie = last.cookie;
                for (entry, inode) in page {
                    let inode = match inode {
                        Ok(inode) => inode,
                        Err(e) => {
                            left.below([&path(), &b"/"[..], &entry.name].concat(), &e);
                            continue;
                        }
                    };
                    let is_dir = inode.attr.kind == FileKind::Directory;
                    let wanted = need.is_for_all() || inode.attr.kind == FileKind::File;
                    if wanted && self.may(cx, &inode.attr, need).is_ok() {
                        f(inode.clone());
                    }
                    if is_dir {
                        directories.push(inode);
                    }
                }
            }
        }
    }

    /// Enters a request with its files; one without files is done at once.
    pub(super) fn enter(&self, cx: &Cx, request: Request, items: &[(Ino, u64)]) -> Result<Request, Failure> {
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
        if request.kind == RequestKind::MoveEngine {
            self.engine_moves.withdraw(id)?;
        }
        let now = crate::now();
        self.catalog
            .update_request(id, &mut |r| {
                // It may have ended meanwhile.
                if r.finished.is_none() {
                    (r.state, r.finished) = (RequestState::Cancelled, Some(now));
                }
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
