//! Acts on the files of a list: stage, migrate, purge, pin, quote. A list may come in parts; it is one request all the same.

use super::Session;
use super::quote::Quoting;
use super::select::{Left, Need};
use crate::Node;
use crate::archive::Event;
use crate::error::{failure, refused};
use crate::files::{Joined, Wish};
use crate::limits::{Asker, HIGHEST, LOWEST, priority_of};
use types::*;
use wire::{Act, ActOrder, Acted, Failure, MAX_PATHS, Outcome, Selection};

/// What the parts of a list have given so far.
#[derive(Default)]
pub struct Gathered {
    paths: u64,
    chosen: u64,
    first: Vec<u8>,
    items: Vec<Item>,
    /// Files for which there is nothing to do.
    spare: u64,
    /// The highest priority that whoever asks may have for all of the files.
    allowed: Option<u8>,
    pub(super) quoting: Quoting,
}

/// A file that is acted on.
struct Item {
    ino: Ino,
    bytes: u64,
    /// What a purge releases.
    held: Option<(Version, ObjectId)>,
}

impl Gathered {
    fn subject(&self) -> String {
        let first = escape(&self.first);
        match self.paths {
            0 => "nothing".into(),
            1 => first,
            n => format!("{first} and {} more", n - 1),
        }
    }

    /// A request about these files; who asks is entered with it.
    fn named(&self, kind: RequestKind, note: String) -> Request {
        Request { message: note, ..Request::new(kind, 0, self.subject(), Time::default()) }
    }

    /// Hard links and overlapping paths name an inode more than once.
    fn items(&mut self) -> Vec<Item> {
        let mut items = std::mem::take(&mut self.items);
        items.sort_by_key(|item| item.ino);
        items.dedup_by_key(|item| item.ino);
        items
    }
}

fn of_request(items: &[Item]) -> Vec<(Ino, u64)> {
    items.iter().map(|item| (item.ino, item.bytes)).collect()
}

impl Node {
    /// One part of a list; with the last one what is asked for is done.
    pub(super) fn act(&self, cx: &Cx, session: &mut Session, order: &ActOrder) -> Result<Acted, Failure> {
        if order.files.paths.len() > MAX_PATHS {
            let message =
                format!("a part of a list has more than {MAX_PATHS} paths; send it in smaller ones");
            return Err(failure(ErrorClass::Invalid, message));
        }
        let begun =
            if order.after == 0 { Gathered::default() } else { std::mem::take(&mut session.gathered) };
        if begun.paths != order.after {
            let message =
                "the connection was lost between two parts of the list; nothing was done, ask again";
            return Err(failure(ErrorClass::Retry, message));
        }
        let (mut gathered, mut left) = (begun, Left::default());
        if let Act::Protect(rule) = &order.act {
            self.check_rule(rule)?;
        }
        self.gather(cx, &order.act, &order.files, &mut gathered, &mut left);
        let outcome = if order.last {
            self.act_on(cx, &order.act, &mut gathered, &mut left)?
        } else {
            session.gathered = gathered;
            Outcome::Gathered
        };
        Ok(Acted { left: left.named, unnamed: left.unnamed, outcome })
    }

    /// A list of one part, which is refused as a whole if one of its paths cannot be chosen: what releases before asked for.
    pub(super) fn act_whole(&self, cx: &Cx, act: &Act, files: &Selection) -> Result<Outcome, Failure> {
        let (mut gathered, mut left) = (Gathered::default(), Left::default());
        self.gather(cx, act, files, &mut gathered, &mut left);
        whole(&left, files)?;
        self.act_on(cx, act, &mut gathered, &mut left)
    }

    /// One part of a list that is asked about, as releases before did: refused if one of its paths cannot be chosen.
    pub(super) fn quote_part(
        &self,
        cx: &Cx,
        session: &mut Session,
        files: &Selection,
        after: u64,
    ) -> Result<QuoteView, Failure> {
        let mut gathered =
            if after == 0 { Gathered::default() } else { std::mem::take(&mut session.gathered) };
        if gathered.quoting.files() != after {
            let message = "the connection was lost between two parts of the list; ask again";
            return Err(failure(ErrorClass::Retry, message));
        }
        let mut left = Left::default();
        self.gather(cx, &Act::Quote, files, &mut gathered, &mut left);
        whole(&left, files)?;
        let (view, waits) = self.quote(&mut gathered.quoting);
        session.gathered = gathered;
        Ok(view.with_waiting_lost(waits))
    }

    fn gather(&self, cx: &Cx, act: &Act, files: &Selection, gathered: &mut Gathered, left: &mut Left) {
        if gathered.paths == 0 {
            gathered.first = files.paths.first().cloned().unwrap_or_default();
        }
        gathered.paths += files.paths.len() as u64;
        let Gathered { items, spare, allowed, quoting, .. } = gathered;
        let limits = &self.settings().limits;
        let mut limit = |inode: &Inode, class: &ClassName| {
            let who = Asker { uid: cx.uid, gid: inode.attr.gid, class };
            let of_this = priority_of(limits, &who);
            *allowed = Some(allowed.map_or(of_this, |so_far| so_far.min(of_this)));
        };
        let bare = |ino, bytes| Item { ino, bytes, held: None };
        gathered.chosen += match act {
            Act::Stage { .. } => self.select(cx, files, Need::Read, left, &mut |inode| match &inode.file {
                Some(f) if f.object.is_none() => {
                    limit(&inode, &f.class);
                    items.push(bare(inode.attr.ino, inode.attr.size));
                }
                _ => *spare += 1,
            }),
            Act::Migrate => self.select(cx, files, Need::Copy, left, &mut |inode| {
                let (due, complete) = self.lacking(&inode);
                items.extend(due.into_iter().map(|(ino, bytes)| bare(ino, bytes)));
                *spare += u64::from(complete);
            }),
            Act::Purge => self.select(cx, files, Need::Write, left, &mut |inode| {
                let held = inode.file.and_then(|f| Some((f.version, f.object?)));
                if held.is_some() {
                    items.push(Item { ino: inode.attr.ino, bytes: inode.attr.disk_bytes, held });
                }
            }),
            Act::Pin(_) => self.select(cx, files, Need::Write, left, &mut |inode| {
                items.push(bare(inode.attr.ino, 0));
            }),
            Act::Protect(rule) => {
                let mut refused = Vec::new();
                let chosen = self.select(cx, files, Need::Place, left, &mut |inode| match inode.attr.kind {
                    FileKind::File => items.push(bare(inode.attr.ino, inode.attr.size)),
                    FileKind::Directory => {
                        let set = self.catalog.set_layout_rule(inode.attr.ino, Some(rule.clone()));
                        refused.extend(set.err().map(|e| (inode.attr.ino, e)));
                    }
                    _ => {}
                });
                refused
                    .iter()
                    .for_each(|(ino, e)| left.below(self.catalog.path_of(*ino).unwrap_or_default(), e));
                chosen
            }
            Act::Quote => {
                self.select(cx, files, Need::Read, left, &mut |inode| self.to_quote(cx, quoting, &inode))
            }
        };
    }

    fn act_on(
        &self,
        cx: &Cx,
        act: &Act,
        gathered: &mut Gathered,
        left: &mut Left,
    ) -> Result<Outcome, Failure> {
        if gathered.chosen == 0 && gathered.paths > 0 {
            return Ok(Outcome::Nothing);
        }
        let request = match act {
            Act::Stage { priority, by } => self.stage(cx, gathered, *priority, *by)?,
            Act::Migrate => self.migrate(cx, gathered)?,
            Act::Purge => self.purge(cx, gathered)?,
            Act::Protect(rule) => self.protect(cx, gathered, rule)?,
            Act::Pin(pin) => return Ok(Outcome::Changed(self.pin(gathered, *pin, left))),
            Act::Quote => {
                let (view, waits) = self.quote(&mut gathered.quoting);
                return Ok(Outcome::Quote(Box::new(view), Box::new(waits)));
            }
        };
        Ok(Outcome::Request(Box::new(self.request_view(request))))
    }

    /// What of an inode lacks copies (a word on what became of it, and it itself), and whether it is a file that lacks none.
    fn lacking(&self, inode: &Inode) -> (Vec<(Ino, u64)>, bool) {
        let mut due = Vec::new();
        let word = inode.attr.ino.word();
        let told = self.catalog.archived(word).ok().flatten();
        if told.is_some_and(|f| f.copies.len() < self.copies_required(&f.class)) {
            due.push((word, 0));
        }
        match &self.archived(inode) {
            Some(f) if f.copies.len() < self.copies_required(&f.class) => {
                due.push((inode.attr.ino, inode.file.as_ref().map_or(0, |_| inode.attr.size)));
                (due, false)
            }
            _ => (due, inode.file.is_some()),
        }
    }

    /// Brings files back.
    fn stage(
        &self,
        cx: &Cx,
        gathered: &mut Gathered,
        priority: Option<u8>,
        deadline: Option<Time>,
    ) -> Result<Request, Failure> {
        let priority = self.priority(cx, priority, gathered.allowed.unwrap_or(HIGHEST))?;
        let items = gathered.items();
        let resident = gathered.spare;
        let note = if resident > 0 {
            format!("on disk already: {}", plural(resident, "file"))
        } else {
            String::new()
        };
        let request = Request { priority, deadline, ..gathered.named(RequestKind::Stage, note) };
        let request = self.enter(cx, request, &of_request(&items))?;
        let wish = Wish { uid: Some(cx.uid), reader: false, priority: Some(priority), deadline };
        let mut tasks = Vec::new();
        for Item { ino, bytes, .. } in items {
            match self.join_recall(ino, wish) {
                Ok(Joined::Begun(task, _)) => tasks.push(task),
                // A drive may read it already; whoever joins later than that tells his request himself.
                Ok(Joined::Running(staging)) => self.recall_began(&staging),
                Ok(Joined::Resident) => {
                    self.finish_item(ino, RequestKind::Stage, &ItemState::Done, bytes);
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
    fn migrate(&self, cx: &Cx, gathered: &mut Gathered) -> Result<Request, Failure> {
        let items = of_request(&gathered.items());
        let complete = gathered.spare;
        let note = if complete > 0 {
            format!("lacking no copy: {}", plural(complete, "file"))
        } else {
            String::new()
        };
        let request = self.enter(cx, gathered.named(RequestKind::Migrate, note), &items)?;
        self.writes.let_in(items.iter().map(|(ino, _)| *ino), crate::now());
        self.governor.wake();
        Ok(request)
    }

    /// Releases disk space.
    fn purge(&self, cx: &Cx, gathered: &mut Gathered) -> Result<Request, Failure> {
        let items = gathered.items();
        let request = gathered.named(RequestKind::Purge, String::new());
        let request = self.enter(cx, request, &of_request(&items))?;
        for Item { ino, bytes, held } in items {
            let Some((version, object)) = held else { continue };
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

    /// Gives files another layout.
    fn protect(&self, cx: &Cx, gathered: &mut Gathered, rule: &LayoutRule) -> Result<Request, Failure> {
        let items = of_request(&gathered.items());
        let subject = crate::movers::protect_subject(rule, &gathered.subject());
        self.enter(cx, Request { subject, ..gathered.named(RequestKind::Protect, String::new()) }, &items)
    }

    /// Pins or unpins; returns how many files changed.
    fn pin(&self, gathered: &mut Gathered, pin: bool, left: &mut Left) -> u64 {
        let mut changed = 0;
        for Item { ino, .. } in gathered.items() {
            match self.catalog.pin(ino, pin) {
                Ok(yes) => changed += u64::from(yes),
                Err(e) => left.below(self.catalog.path_of(ino).unwrap_or_default(), &e),
            }
        }
        changed
    }
}

/// An error if something is left out: of the first path.
fn whole(left: &Left, files: &Selection) -> Result<(), Failure> {
    let Some(first) = left.named.first() else { return Ok(()) };
    let named = files.paths.get(first.of as usize);
    let path = first.below.as_ref().or(named).map(|path| escape(path));
    Err(failure(first.class, format!("{}: {}", path.unwrap_or_default(), first.why)))
}
