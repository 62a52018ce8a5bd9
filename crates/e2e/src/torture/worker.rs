//! A thread that changes files at random in a directory of its own and remembers every call.

use super::dice::Dice;
use super::history::{Change, Clock, Edit, Event, FileId, History, What};
use super::mapped;
use super::names::{Entry, NameOp, Names};
use crate::noise;
use rustix::fs::{RenameFlags, renameat_with};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most names in a worker's directory; then it deletes.
const MOST_NAMES: usize = 70;
/// Longest ordinary file, and longest of the few large ones (bytes).
const ORDINARY: u64 = 48 << 10;
const LARGE: u64 = 900 << 10;
/// Longest pause between two calls (microseconds).
const PAUSE: u64 = 2_500;

/// The node is gone (or a call failed in a way that ends the work).
pub struct Gone;

type Step = Result<(), Gone>;

/// Works until told to stop or until the node is gone.
pub struct Worker<'a> {
    dir: PathBuf,
    dice: Dice,
    clock: Clock,
    /// Set before the node is killed: errors are expected from then on.
    stop: &'a AtomicBool,
    history: History,
    names: Names,
    contents: BTreeMap<FileId, Vec<u8>>,
    /// Files whose content nobody knows exactly since a call on them failed.
    retired: BTreeSet<FileId>,
    held: Vec<(FileId, File)>,
    problems: Vec<String>,
}

impl<'a> Worker<'a> {
    /// A worker in `dir` (made if it is missing), going on from `history`, which has no events.
    pub fn new(dir: PathBuf, history: History, dice: Dice, clock: Clock, stop: &'a AtomicBool) -> Self {
        let (names, contents) = (history.names.clone(), history.contents.clone());
        let (retired, held, problems) = (BTreeSet::new(), Vec::new(), Vec::new());
        Self { dir, dice, clock, stop, history, names, contents, retired, held, problems }
    }

    /// Works; returns what was done, and what went wrong that should not have.
    pub fn run(mut self) -> (History, Vec<String>) {
        while !self.stop.load(Ordering::SeqCst) {
            if self.step().is_err() {
                break;
            }
            std::thread::sleep(Duration::from_micros(self.dice.below(PAUSE)));
        }
        (self.history, self.problems)
    }

    fn step(&mut self) -> Step {
        if self.names.0.len() > MOST_NAMES && self.dice.chance(60) {
            return self.unlink();
        }
        match self.dice.below(100) {
            0..14 => self.create(),
            14..30 => self.write(),
            30..38 => self.append(),
            38..45 => self.resize(),
            45..50 => self.map_write(),
            50..61 => self.sync_file(),
            61..65 => self.sync_dir(),
            65..70 => self.rename(),
            70..74 => self.replace(),
            74..76 => self.exchange(),
            76..80 => self.link(),
            80..85 => self.unlink(),
            85..88 => self.mkdir(),
            88..90 => self.rmdir(),
            90..92 => self.symlink(),
            92..94 => self.rename_dir(),
            _ => self.read(),
        }
    }

    // ---- making calls ----

    /// Makes one call and records it; `Ok(None)` if it was refused for want of space and had no effect.
    fn call<T>(&mut self, what: What, call: impl FnOnce(&Self) -> io::Result<T>) -> Result<Option<T>, Gone> {
        let issued = self.clock.now();
        let result = call(self);
        let answered = Some(self.clock.now());
        match result {
            Ok(value) => {
                match &what {
                    What::Name(op) => self.names.apply(op),
                    What::Edit(edit) => edit.change.apply(self.contents.entry(edit.file).or_default()),
                    _ => {}
                }
                self.history.events.push(Event { what, issued, answered });
                Ok(Some(value))
            }
            Err(e) => self.failed(what, issued, &e).map(|()| None),
        }
    }

    fn failed(&mut self, mut what: What, issued: super::history::Moment, error: &io::Error) -> Step {
        let expected = self.stop.load(Ordering::SeqCst);
        let full = error.kind() == io::ErrorKind::StorageFull;
        if !expected && !full {
            self.problems.push(format!("{}: {what:?}: {error}", self.dir.display()));
        }
        // What was refused for want of space is a fact for names, and unclear for bytes.
        if let What::Edit(edit) = &mut what {
            edit.loose |= full;
            self.retired.insert(edit.file);
        }
        if !full || matches!(what, What::Edit(_)) {
            self.history.events.push(Event { what, issued, answered: None });
        }
        if full { Ok(()) } else { Err(Gone) }
    }

    fn name(&mut self, op: NameOp, call: impl FnOnce(&Self) -> io::Result<()>) -> Result<bool, Gone> {
        Ok(self.call(What::Name(op), call)?.is_some())
    }

    fn edit(&mut self, file: FileId, handle: &File, change: Change) -> Step {
        let made = change.clone();
        let call = move |_: &Self| match made {
            Change::Write { at, length, seed } => handle.write_all_at(&noise(seed, length), at),
            Change::Resize(length) => handle.set_len(length),
        };
        self.call(What::Edit(Edit { file, change, loose: false }), call).map(drop)
    }

    /// Looks without changing anything.
    fn look<T>(&mut self, doing: &str, call: impl FnOnce(&Self) -> io::Result<T>) -> Result<T, Gone> {
        call(self).map_err(|e| {
            if !self.stop.load(Ordering::SeqCst) {
                self.problems.push(format!("{}: {doing}: {e}", self.dir.display()));
            }
            Gone
        })
    }

    // ---- choosing ----

    fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn any(&mut self, wanted: impl Fn(&Entry) -> bool) -> Option<String> {
        let paths = self.names.paths(wanted);
        self.dice.pick(&paths).cloned()
    }

    fn any_file(&mut self) -> Option<(String, FileId)> {
        let retired = self.retired.clone();
        let path = self.any(|e| matches!(e, Entry::File(id) if !retired.contains(id)))?;
        let Some(Entry::File(id)) = self.names.0.get(&path) else { return None };
        Some((path, *id))
    }

    /// An open file: one that is held, or one opened now.
    fn open(&mut self) -> Result<Option<(FileId, File)>, Gone> {
        if self.dice.chance(30) && !self.held.is_empty() {
            let n = self.dice.below(self.held.len() as u64) as usize;
            return Ok(Some(self.held.swap_remove(n)));
        }
        let Some((path, id)) = self.any_file() else { return Ok(None) };
        let file = self.look("open", |w| File::options().read(true).write(true).open(w.at(&path)))?;
        Ok(Some((id, file)))
    }

    /// Keeps it open for a while, or closes it.
    fn put_away(&mut self, id: FileId, file: File) {
        if self.dice.chance(35) && !self.retired.contains(&id) {
            self.held.push((id, file));
            if self.held.len() > 5 {
                self.held.remove(0);
            }
        }
    }

    fn new_path(&mut self) -> String {
        self.history.numbered += 1;
        let dir = if self.dice.chance(40) { self.any(|e| *e == Entry::Dir) } else { None };
        let name = format!(
            "{}{}",
            ["n", "name with blank ", "ü"][self.dice.below(3) as usize],
            self.history.numbered
        );
        dir.map_or(name.clone(), |dir| format!("{dir}/{name}"))
    }

    fn some_write(&mut self, id: FileId) -> Change {
        let length = self.contents.get(&id).map_or(0, Vec::len) as u64;
        let most = if self.dice.chance(4) { LARGE } else { ORDINARY };
        let at = if self.dice.chance(30) { 0 } else { self.dice.below((length + 5000).min(most)) };
        Change::Write { at, length: 1 + self.dice.size(most) as usize, seed: self.dice.next() }
    }

    // ---- bytes ----

    fn create(&mut self) -> Step {
        let (path, id) = (self.new_path(), self.history.numbered);
        if let Some(file) = self.create_at(&path, id)? {
            if self.dice.chance(85) {
                let change = self.some_write(id);
                self.edit(id, &file, change)?;
            }
            self.put_away(id, file);
        }
        Ok(())
    }

    fn create_at(&mut self, path: &str, id: FileId) -> Result<Option<File>, Gone> {
        let op = NameOp::Create(path.to_owned(), id);
        let made = self.call(What::Name(op), |w| {
            File::options().read(true).write(true).create_new(true).mode(0o640).open(w.at(path))
        })?;
        self.contents.entry(id).or_default();
        if let Some(file) = &made {
            let ino = self.look("fstat", |_| file.metadata())?.ino();
            self.history.inodes.insert(id, ino);
        }
        Ok(made)
    }

    fn write(&mut self) -> Step {
        let Some((id, file)) = self.open()? else { return Ok(()) };
        for _ in 0..1 + self.dice.below(3) {
            let change = self.some_write(id);
            self.edit(id, &file, change)?;
        }
        self.put_away(id, file);
        Ok(())
    }

    fn append(&mut self) -> Step {
        let Some((id, file)) = self.open()? else { return Ok(()) };
        let (at, length, seed) =
            (self.contents[&id].len() as u64, 1 + self.dice.size(ORDINARY) as usize, self.dice.next());
        if at < 2 * LARGE {
            self.edit(id, &file, Change::Write { at, length, seed })?;
        }
        self.put_away(id, file);
        Ok(())
    }

    fn resize(&mut self) -> Step {
        let Some((path, id)) = self.any_file() else { return Ok(()) };
        if self.dice.chance(40) {
            let edit = Edit { file: id, change: Change::Resize(0), loose: false };
            let opened = self
                .call(What::Edit(edit), |w| File::options().write(true).truncate(true).open(w.at(&path)))?;
            if let (Some(file), true) = (opened, self.dice.chance(80)) {
                let change = self.some_write(id);
                self.edit(id, &file, change)?;
            }
            return Ok(());
        }
        let file = self.look("open", |w| File::options().read(true).write(true).open(w.at(&path)))?;
        let length = self.dice.below(self.contents[&id].len() as u64 * 3 / 2 + 2);
        self.edit(id, &file, Change::Resize(length))?;
        self.put_away(id, file);
        Ok(())
    }

    fn map_write(&mut self) -> Step {
        let Some((id, file)) = self.open()? else { return Ok(()) };
        let size = self.contents[&id].len() as u64;
        // A page fault holds this process's address space while it waits for the disk, and this process is the disk.
        if size > 0 && !self.clock.is_of_disk() {
            let at = self.dice.below(size);
            let length = 1 + self.dice.below((size - at).min(20_000)) as usize;
            let (seed, sync) = (self.dice.next(), self.dice.chance(50));
            let length = length.min((size - at) as usize);
            let edit = Edit { file: id, change: Change::Write { at, length, seed }, loose: !sync };
            self.call(What::Edit(edit), |_| mapped::write(&file, at, &noise(seed, length), sync))?;
        }
        self.put_away(id, file);
        Ok(())
    }

    fn read(&mut self) -> Step {
        let Some((path, id)) = self.any_file() else { return Ok(()) };
        let found = self.look("read", |w| fs::read(w.at(&path)))?;
        let expected = self.contents.get(&id).cloned().unwrap_or_default();
        if found != expected {
            let what = format!(
                "{}/{path}: {} bytes read, expected {}",
                self.dir.display(),
                found.len(),
                expected.len()
            );
            let at = found.iter().zip(&expected).position(|(a, b)| a != b);
            self.problems.push(format!("while running: {what}, first difference {at:?}"));
            return Err(Gone);
        }
        Ok(())
    }

    fn sync_file(&mut self) -> Step {
        let Some((id, file)) = self.open()? else { return Ok(()) };
        self.call(What::SyncFile(id), |_| file.sync_all())?;
        self.put_away(id, file);
        Ok(())
    }

    // ---- names ----

    fn sync_dir(&mut self) -> Step {
        let dir = self.any(|e| *e == Entry::Dir).unwrap_or_default();
        self.call(What::SyncNames, |w| File::open(w.at(&dir))?.sync_all()).map(drop)
    }

    fn rename(&mut self) -> Step {
        let Some((from, _)) = self.any_file() else { return Ok(()) };
        let to = if self.dice.chance(50) { self.any_file().map(|f| f.0) } else { None };
        let to = to.unwrap_or_else(|| self.new_path());
        self.name(NameOp::Rename(from.clone(), to.clone()), |w| fs::rename(w.at(&from), w.at(&to))).map(drop)
    }

    /// The way editors save: a new file, synced, takes the name of the old one.
    fn replace(&mut self) -> Step {
        let Some((to, _)) = self.any_file() else { return Ok(()) };
        let (path, id) = (self.new_path(), self.history.numbered);
        let Some(file) = self.create_at(&path, id)? else { return Ok(()) };
        let change = self.some_write(id);
        self.edit(id, &file, change)?;
        self.call(What::SyncFile(id), |_| file.sync_data())?;
        self.name(NameOp::Rename(path.clone(), to.clone()), |w| fs::rename(w.at(&path), w.at(&to)))?;
        if self.dice.chance(50) { self.sync_dir() } else { Ok(()) }
    }

    fn exchange(&mut self) -> Step {
        let (Some((a, _)), Some((b, _))) = (self.any_file(), self.any_file()) else { return Ok(()) };
        if a == b {
            return Ok(());
        }
        let here = rustix::fs::CWD;
        let swap = |w: &Self| {
            renameat_with(here, w.at(&a), here, w.at(&b), RenameFlags::EXCHANGE).map_err(Into::into)
        };
        self.name(NameOp::Exchange(a.clone(), b.clone()), swap).map(drop)
    }

    fn link(&mut self) -> Step {
        let Some((from, _)) = self.any_file() else { return Ok(()) };
        let to = self.new_path();
        self.name(NameOp::Link(from.clone(), to.clone()), |w| fs::hard_link(w.at(&from), w.at(&to))).map(drop)
    }

    fn unlink(&mut self) -> Step {
        let Some(path) = self.any(|e| *e != Entry::Dir) else { return Ok(()) };
        self.name(NameOp::Unlink(path.clone()), |w| fs::remove_file(w.at(&path))).map(drop)
    }

    fn mkdir(&mut self) -> Step {
        let path = self.new_path();
        self.name(NameOp::Mkdir(path.clone()), |w| fs::create_dir(w.at(&path))).map(drop)
    }

    fn rmdir(&mut self) -> Step {
        let Some(path) = self.any(|e| *e == Entry::Dir) else { return Ok(()) };
        if !self.names.is_empty_dir(&path) {
            return Ok(());
        }
        self.name(NameOp::Rmdir(path.clone()), |w| fs::remove_dir(w.at(&path))).map(drop)
    }

    fn symlink(&mut self) -> Step {
        let (path, target) = (self.new_path(), format!("to/{}", self.dice.next()));
        let op = NameOp::Symlink(path.clone(), target.clone());
        self.name(op, |w| std::os::unix::fs::symlink(&target, w.at(&path))).map(drop)
    }

    fn rename_dir(&mut self) -> Step {
        let (Some(from), to) = (self.any(|e| *e == Entry::Dir), self.new_path()) else { return Ok(()) };
        if to.starts_with(&format!("{from}/")) {
            return Ok(());
        }
        self.name(NameOp::Rename(from.clone(), to.clone()), |w| fs::rename(w.at(&from), w.at(&to))).map(drop)
    }
}
