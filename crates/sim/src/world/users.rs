//! Users: they write, read, rename, replace and delete files, ask for recalls and releases, and know what they were told.

use crate::dice::{Dice, content};
use node::Stepped;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::api::{FileApi, FsResult, OpenFlags};
use types::*;
use wire::{Call, Reply, Selection};

/// What a file holds: the number that its bytes come from, and how many there are.
pub type Content = (u64, usize);

/// Names and contents at one moment.
pub type Names = BTreeMap<String, Content>;

/// Files that there are at most.
const MOST_FILES: usize = 120;
/// Length of a file that a crash may leave as long as it had got.
const GROWING: usize = usize::MAX;
/// Largest file (bytes).
const LARGEST: u64 = 160 << 10;

/// A read that waits for tape.
pub struct Reading {
    /// Of this file.
    pub name: String,
    /// What it is to bring.
    pub content: Content,
    /// Since then.
    pub since: Duration,
    handle: Handle,
    answer: Arc<Mutex<Option<FsResult<Vec<u8>>>>>,
}

/// See the module.
pub struct Users {
    dice: Dice,
    /// Names and contents after each operation since the last one that was durable; the last is the present.
    pub history: Vec<Names>,
    /// Reads that wait.
    pub reads: Vec<Reading>,
    /// Requests that have not ended, and since when.
    pub requests: BTreeMap<RequestId, Duration>,
    next: u64,
}

impl Users {
    /// Nobody has done anything yet.
    pub fn new(dice: Dice) -> Self {
        let (reads, requests) = (Vec::new(), BTreeMap::new());
        Self { dice, history: vec![Names::new()], reads, requests, next: 0 }
    }

    /// What there is now.
    pub fn now(&self) -> &Names {
        self.history.last().expect("there is always a present")
    }

    fn becomes(&mut self, change: impl FnOnce(&mut Names)) {
        let mut names = self.now().clone();
        change(&mut names);
        self.history.push(names);
    }

    /// Everything so far is durable.
    fn durable(&mut self) {
        let last = self.history.len() - 1;
        self.history.drain(..last);
    }

    /// One of them does something; in words, for the trace.
    pub fn act(&mut self, node: &Stepped, now: Duration) -> Result<String, String> {
        let did = match self.dice.below(16) {
            0..=5 => self.create(node),
            6 => self.remove(node),
            7 => self.replace(node),
            8 => self.rewrite(node),
            9..=11 => self.read(node, now)?,
            12 | 13 => self.ask(node, now, Call::Stage),
            14 => self.ask(node, now, Call::Purge),
            _ => self.ask(node, now, Call::Migrate),
        };
        if self.dice.one_in(2) && node.node().sync_names().is_ok() {
            self.durable();
        }
        Ok(did)
    }

    fn cx(&self) -> Cx {
        Cx::admin(types::Time::new(super::hub::BEGIN_S, 0))
    }

    fn any(&mut self) -> Option<(String, Content)> {
        let at = self.dice.below(self.now().len() as u64) as usize;
        self.now().iter().nth(at).map(|(name, content)| (name.clone(), *content))
    }

    fn fresh(&mut self) -> (String, Content) {
        self.next += 1;
        let size = match self.dice.below(20) {
            0 => 0,
            1..=3 => LARGEST * 3,
            _ => 1 + self.dice.below(LARGEST),
        };
        (format!("f{}", self.next), (self.dice.number(), size as usize))
    }

    /// A new content for a file, of another length than all that a crash may leave there: that is known by its length.
    fn another(&mut self, name: &str) -> (String, Content) {
        let (temporary, (number, mut size)) = self.fresh();
        let has = |names: &Names, size| names.get(name).is_some_and(|before| before.1 == size);
        while size > 0 && self.history.iter().any(|names| has(names, size)) {
            size -= 1;
        }
        (temporary, (number, size))
    }

    /// Writes a new file; false if there was no room, and then there is no such file.
    fn write(&mut self, node: &Stepped, name: &str, (number, size): Content) -> bool {
        let flags = OpenFlags { read: true, write: true, exclusive: true, ..OpenFlags::default() };
        let api = node.node();
        let Ok(opened) = api.create(&self.cx(), Ino::ROOT, name.as_bytes(), 0o644, flags) else {
            return false;
        };
        let bytes = content(number, size);
        let mut at = 0;
        while at < bytes.len() {
            match api.write(opened.handle, at as u64, &bytes[at..]) {
                Ok(n) if n > 0 => at += n,
                _ => break,
            }
        }
        api.release(opened.handle);
        let whole = at == bytes.len();
        if !whole {
            let _ = api.unlink(&self.cx(), Ino::ROOT, name.as_bytes());
        }
        whole
    }

    fn create(&mut self, node: &Stepped) -> String {
        let (name, what) = self.fresh();
        if self.now().len() >= MOST_FILES {
            return self.remove(node);
        }
        let done = self.write(node, &name, what);
        // Each of its steps may be all that a crash leaves of it.
        if done {
            self.becomes(|names| _ = names.insert(name.clone(), (what.0, GROWING)));
            self.becomes(|names| _ = names.insert(name.clone(), what));
        } else {
            self.becomes(|names| _ = names.insert(name.clone(), (what.0, GROWING)));
            self.becomes(|names| _ = names.remove(&name));
        }
        format!("create {name} {} {done}", what.1)
    }

    fn remove(&mut self, node: &Stepped) -> String {
        let Some((name, _)) = self.any() else { return "nothing to remove".into() };
        let done = node.node().unlink(&self.cx(), Ino::ROOT, name.as_bytes());
        if done.is_ok() {
            self.becomes(|names| _ = names.remove(&name));
        }
        format!("remove {name} {done:?}")
    }

    /// Writes anew under another name and renames over the old, as careful programs do.
    fn replace(&mut self, node: &Stepped) -> String {
        let Some((name, _)) = self.any() else { return "nothing to replace".into() };
        let (temporary, what) = self.another(&name);
        if !self.write(node, &temporary, what) {
            self.becomes(|names| _ = names.insert(temporary.clone(), (what.0, GROWING)));
            self.becomes(|names| _ = names.remove(&temporary));
            return format!("replace {name}: no room");
        }
        self.becomes(|names| _ = names.insert(temporary.clone(), (what.0, GROWING)));
        self.becomes(|names| _ = names.insert(temporary.clone(), what));
        let root = Ino::ROOT;
        let (from, to) = ((root, temporary.as_bytes()), (root, name.as_bytes()));
        let done = node.node().rename(&self.cx(), from, to, RenameMode::Replace);
        if done.is_ok() {
            self.becomes(|names| {
                names.remove(&temporary);
                names.insert(name.clone(), what);
            });
        }
        format!("replace {name} {} {done:?}", what.1)
    }

    /// Truncates and writes, and makes it durable at once.
    fn rewrite(&mut self, node: &Stepped) -> String {
        let Some((name, _)) = self.any() else { return "nothing to rewrite".into() };
        let (_, what) = self.another(&name);
        let api = node.node();
        let flags = OpenFlags { read: true, write: true, truncate: true, ..OpenFlags::default() };
        let found = api.lookup(&self.cx(), Ino::ROOT, name.as_bytes());
        let opened = found.and_then(|attr| api.open(&self.cx(), attr.ino, flags));
        let Ok(opened) = opened else { return format!("rewrite {name} {:?}", opened.err()) };
        let bytes = content(what.0, what.1);
        let mut at = 0;
        while at < bytes.len() {
            match api.write(opened.handle, at as u64, &bytes[at..]) {
                Ok(n) if n > 0 => at += n,
                _ => break,
            }
        }
        let synced = api.fsync(opened.handle, false).and_then(|()| {
            api.release(opened.handle);
            api.sync_names()
        });
        // Cut short by a full disk it is what it is: as long as it got.
        self.becomes(|names| _ = names.insert(name.clone(), (what.0, at)));
        if synced.is_ok() {
            self.durable();
        }
        format!("rewrite {name} {at} of {} {synced:?}", what.1)
    }

    /// Begins to read a file.
    pub fn read(&mut self, node: &Stepped, now: Duration) -> Result<String, String> {
        let Some((name, content)) = self.any() else { return Ok("nothing to read".into()) };
        self.begin_read(node, now, name, content)
    }

    /// Begins to read this file.
    pub fn begin_read(
        &mut self,
        node: &Stepped,
        now: Duration,
        name: String,
        content: Content,
    ) -> Result<String, String> {
        let api = node.node();
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let found = api.lookup(&self.cx(), Ino::ROOT, name.as_bytes());
        let opened = found.and_then(|attr| api.open(&self.cx(), attr.ino, flags));
        let handle = opened.map_err(|e| format!("{name} cannot be opened: {e:?}"))?.handle;
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        api.read(handle, 0, (content.1 + 1) as u32, Box::new(move |result| *told.lock() = Some(result)));
        let said = format!("read {name}");
        self.reads.push(Reading { name, content, since: now, handle, answer });
        Ok(said)
    }

    /// Reads that have ended: true for each that brought what it was to bring, false for each that failed; wrong bytes are
    /// an error.
    pub fn ended_reads(&mut self, node: &Stepped) -> Result<Vec<(String, bool)>, String> {
        let mut ended = Vec::new();
        let mut wrong = Ok(());
        self.reads.retain(|r| {
            let Some(answer) = r.answer.lock().take() else { return true };
            node.node().release(r.handle);
            match answer {
                Ok(bytes) if bytes == content(r.content.0, r.content.1) => ended.push((r.name.clone(), true)),
                Ok(bytes) => {
                    // Replaced or rewritten while it was being read: that is no error of ours.
                    let names = &self.history;
                    let now = names.iter().filter_map(|names| names.get(&r.name));
                    let fits = |c: &Content| bytes == content(c.0, c.1);
                    if now.clone().any(fits) || !now.clone().any(|c| *c == r.content) {
                        ended.push((r.name.clone(), true));
                    } else {
                        let what = format!("a read of {} brought {} wrong bytes", r.name, bytes.len());
                        wrong = Err(what);
                    }
                }
                Err(_) => ended.push((r.name.clone(), false)),
            }
            false
        });
        wrong.map(|()| ended)
    }

    fn ask(&mut self, node: &Stepped, now: Duration, call: fn(Selection) -> Call) -> String {
        let mut paths = Vec::new();
        for _ in 0..1 + self.dice.below(12) {
            paths.extend(self.any().map(|(name, _)| format!("/{name}").into_bytes()));
        }
        paths.sort();
        paths.dedup();
        let files = paths.len();
        let call = call(Selection { paths, recursive: false });
        let what = match &call {
            Call::Stage(_) => "stage",
            Call::Purge(_) => "purge",
            _ => "migrate",
        };
        match request(node, call) {
            Ok(id) => {
                self.requests.insert(id, now);
                format!("{what} {files} files: request {}", id.0)
            }
            Err(e) => format!("{what} {files} files: {e}"),
        }
    }

    /// Requests that a crash took are nobody's any more.
    pub fn forget_requests(&mut self, node: &Stepped) {
        self.requests.retain(|id, _| node.catalog().request(*id).is_ok_and(|r| r.is_some()));
    }

    /// Everybody's session is gone, and what was not durable may be. The namespace must be as it was after one of the
    /// operations since the last durable one; which one, from the names found.
    pub fn after_crash(&mut self, found: &BTreeMap<String, u64>) -> Result<(), String> {
        self.reads.clear();
        let same = |names: &Names| {
            names.len() == found.len()
                && names.iter().all(|(name, (_, size))| {
                    // Bytes reach the disk object before the catalogue knows of them.
                    found.get(name).is_some_and(|n| *n == *size as u64 || *size == GROWING)
                })
        };
        let Some(at) = self.history.iter().rposition(same) else {
            let last = self.now();
            let more: Vec<&String> = found.keys().filter(|n| !last.contains_key(*n)).collect();
            let fewer: Vec<&String> = last.keys().filter(|n| !found.contains_key(*n)).collect();
            return Err(format!(
                "after the crash the names are those of none of the last {} operations: too many {more:?}, missing {fewer:?}",
                self.history.len()
            ));
        };
        let mut names = self.history[at].clone();
        for (name, content) in &mut names {
            if content.1 == GROWING {
                content.1 = found[name] as usize;
            }
        }
        self.history = vec![names];
        Ok(())
    }
}

/// Makes a request.
pub fn request(node: &Stepped, call: Call) -> Result<RequestId, String> {
    let cx = Cx::admin(Time::new(super::hub::BEGIN_S, 0));
    let answer = node.node().call(&cx, &mut node::Session::default(), call);
    match answer.map_err(|e| e.message)?.reply {
        Reply::Request(view) => Ok(view.request.id),
        other => Err(format!("the answer is {other:?}")),
    }
}
