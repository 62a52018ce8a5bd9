//! The names of one worker's directory, as a plain map.

use super::history::FileId;
use std::collections::BTreeMap;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Dir,
    /// A regular file.
    File(FileId),
    /// A symbolic link and its target.
    Link(String),
}

/// A call that changes names. Paths are relative to the worker's directory; every such call does all or nothing.
#[derive(Clone, Debug)]
pub enum NameOp {
    /// A new regular file.
    Create(String, FileId),
    /// A new directory.
    Mkdir(String),
    /// A new symbolic link with this target.
    Symlink(String, String),
    /// Another name for a file.
    Link(String, String),
    /// The second name takes the place of the first, and of what had it.
    Rename(String, String),
    /// Two names change places.
    Exchange(String, String),
    /// A name of a file or symbolic link goes.
    Unlink(String),
    /// An empty directory goes.
    Rmdir(String),
}

/// All names by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub BTreeMap<String, Entry>);

impl Names {
    /// Applies a call that was or may have been carried out. The worker only asks for what is possible.
    pub fn apply(&mut self, op: &NameOp) {
        match op {
            NameOp::Create(path, file) => self.put(path, Entry::File(*file)),
            NameOp::Mkdir(path) => self.put(path, Entry::Dir),
            NameOp::Symlink(path, target) => self.put(path, Entry::Link(target.clone())),
            NameOp::Link(from, to) => {
                if let Some(entry) = self.0.get(from).cloned() {
                    self.put(to, entry);
                }
            }
            NameOp::Rename(from, to) => self.rename(from, to),
            NameOp::Exchange(a, b) => {
                let (first, second) = (self.take(a), self.take(b));
                self.give(b, first);
                self.give(a, second);
            }
            NameOp::Unlink(path) | NameOp::Rmdir(path) => _ = self.0.remove(path),
        }
    }

    fn put(&mut self, path: &str, entry: Entry) {
        self.0.insert(path.to_owned(), entry);
    }

    fn rename(&mut self, from: &str, to: &str) {
        let same = matches!((self.0.get(from), self.0.get(to)), (Some(Entry::File(a)), Some(Entry::File(b))) if a == b);
        if same {
            return; // two names of one file: rename(2) does nothing
        }
        self.0.remove(to);
        let moved = self.take(from);
        self.give(to, moved);
    }

    /// Removes a path with all below it; what is left of each path behind it.
    fn take(&mut self, path: &str) -> Vec<(String, Entry)> {
        let below = format!("{path}/");
        let inside = self.0.range(below.clone()..).map(|(p, _)| p).take_while(|p| p.starts_with(&below));
        let paths: Vec<String> = std::iter::once(path.to_owned()).chain(inside.cloned()).collect();
        let taken: Vec<_> = paths.iter().filter_map(|p| self.0.remove_entry(p)).collect();
        taken.into_iter().map(|(p, entry)| (p[path.len()..].to_owned(), entry)).collect()
    }

    fn give(&mut self, path: &str, entries: Vec<(String, Entry)>) {
        self.0.extend(entries.into_iter().map(|(rest, entry)| (format!("{path}{rest}"), entry)));
    }

    /// Paths of one kind.
    pub fn paths(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<String> {
        self.0.iter().filter(|(_, entry)| wanted(entry)).map(|(path, _)| path.clone()).collect()
    }

    /// Whether nothing is below a directory.
    pub fn is_empty_dir(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.0.range(below.clone()..).next().is_none_or(|(p, _)| !p.starts_with(&below))
    }
}
