//! Compares what is there after a crash with what the histories allow.

use super::content::{Contents, Crash};
use super::history::{Event, FileId, History, What};
use super::names::{Entry, Names};
use super::rig::Rig;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a name turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Dir,
    File { ino: u64, links: u64 },
    Link(String),
    Other,
}

/// One directory of one thread.
pub struct Case {
    /// Name below the mount.
    pub dir: String,
    /// What was done in it.
    pub history: History,
}

/// Judges all directories together; each case's history becomes what was found.
pub struct Judge<'a> {
    /// The node, up again.
    pub rig: &'a Rig,
    /// What happened.
    pub crash: Crash,
    /// When, as a position of the disk's record.
    pub cut: u64,
}

impl Judge<'_> {
    /// Everything that is not as promised.
    pub fn judge(&self, cases: &mut [Case]) -> Vec<String> {
        let mut problems = Vec::new();
        let mut seen = Vec::new();
        let mut fitting = Vec::new();
        for case in &*cases {
            let found = look(&self.rig.mount().join(&case.dir));
            let found = found.unwrap_or_else(|e| {
                problems.push(format!("{}: cannot be listed: {e}", case.dir));
                BTreeMap::new()
            });
            let fit = fits(&case.history, self.cut, &found);
            if fit.is_empty() && problems.is_empty() {
                problems.push(format!("{}: {}", case.dir, self.explain(&case.history, &found)));
            }
            seen.push(found);
            fitting.push(fit);
        }
        if !problems.is_empty() {
            return problems;
        }
        let chosen = match common_cut(cases, &fitting) {
            Ok(chosen) => chosen,
            Err(problem) => return vec![problem],
        };
        for ((case, at), found) in cases.iter_mut().zip(chosen).zip(&seen) {
            let names = names_after(&case.history, at);
            self.copies(case, &names, &mut problems);
            self.contents(case, names, found, &mut problems);
        }
        problems.extend(self.rig.defects());
        problems
    }

    /// Files in confirmed migrations have their copies.
    fn copies(&self, case: &Case, names: &Names, problems: &mut Vec<String>) {
        let mut archived: BTreeSet<FileId> = BTreeSet::new();
        for event in case.history.events.iter().filter(|e| e.confirmed(self.cut)) {
            if let What::Archived(files) = &event.what {
                archived.extend(files);
            }
        }
        if archived.is_empty() {
            return;
        }
        let listed = match self.rig.json(["ls", &format!("tc:/{}", case.dir)]) {
            Ok(listed) => listed,
            Err(e) => return problems.push(e),
        };
        let copies: BTreeMap<&str, u64> =
            listed.as_array().into_iter().flatten().filter_map(copies_of).collect();
        for (path, entry) in &names.0 {
            let must = matches!(entry, Entry::File(id) if archived.contains(id));
            let has = copies.get(path.as_str()).copied().unwrap_or(0);
            if must && has < 2 {
                problems.push(format!("{}/{path}: {has} copies after its migration was confirmed", case.dir));
            }
        }
    }

    /// Reads every file; the history becomes what was found.
    fn contents(
        &self,
        case: &mut Case,
        names: Names,
        found: &BTreeMap<String, Seen>,
        problems: &mut Vec<String>,
    ) {
        let allowed = Contents::after(&case.history, self.cut, self.crash);
        let mut contents = BTreeMap::new();
        for (path, entry) in &names.0 {
            let Entry::File(id) = entry else { continue };
            match fs::read(self.rig.mount().join(&case.dir).join(path)) {
                Ok(data) => {
                    if let Err(why) = allowed.check(*id, &data) {
                        problems.push(format!(
                            "{}/{path} (file {id}, {:?}): {why}",
                            case.dir,
                            found.get(path)
                        ));
                    }
                    contents.insert(*id, data);
                }
                Err(e) => problems.push(format!("{}/{path} (file {id}) cannot be read: {e}", case.dir)),
            }
        }
        let inodes = std::mem::take(&mut case.history.inodes);
        let numbered = case.history.numbered;
        case.history = History { names, inodes, contents, numbered, events: Vec::new() };
    }

    fn explain(&self, history: &History, found: &BTreeMap<String, Seen>) -> String {
        let (least, most) = (durable(history, self.cut), history.begun(self.cut).len());
        let describe = |k: usize| {
            let names = names_after(history, k);
            let missing: Vec<_> = names.0.iter().filter(|(path, _)| !found.contains_key(*path)).collect();
            let extra: Vec<_> = found.iter().filter(|(path, _)| !names.0.contains_key(*path)).collect();
            format!("against the state after {k} calls: missing {missing:?}, unexpected {extra:?}")
        };
        let calls: Vec<_> = history.events[least..most].iter().map(|e| &e.what).collect();
        format!(
            "names are at no point of their history, which has {least} (durable) to {most} calls;\n  {}\n  {}\n  calls between: {calls:?}",
            describe(least),
            describe(most)
        )
    }
}

/// States of one directory that fit what was found, as numbers of its calls: the state after so many of them, ascending.
fn fits(history: &History, cut: u64, found: &BTreeMap<String, Seen>) -> Vec<usize> {
    let least = durable(history, cut);
    let mut names = names_after(history, least);
    let mut fit = Vec::new();
    for k in least..=history.begun(cut).len() {
        if same(&names, &history.inodes, found) {
            fit.push(k);
        }
        if let Some(Event { what: What::Name(op), .. }) = history.events.get(k) {
            names.apply(op);
        }
    }
    fit
}

/// Number of events that must have survived: up to the last confirmed sync.
fn durable(history: &History, cut: u64) -> usize {
    let syncs = |what: &What| matches!(what, What::SyncFile(_) | What::SyncNames | What::Archived(_));
    history.events.iter().rposition(|e| syncs(&e.what) && e.confirmed(cut)).map_or(0, |n| n + 1)
}

/// Chooses a state for each directory so that no lost call was answered before a surviving one was issued.
fn common_cut(cases: &[Case], fits: &[Vec<usize>]) -> Result<Vec<usize>, String> {
    let mut bounds = vec![0; cases.len()];
    loop {
        let mut chosen = Vec::new();
        for ((case, fit), bound) in cases.iter().zip(fits).zip(&bounds) {
            let k = fit.iter().copied().find(|k| k >= bound);
            chosen.push(k.ok_or_else(|| {
                let lost = fit.last().and_then(|k| case.history.events.get(*k));
                format!("{}: lost {lost:?} although a later call of another thread survived", case.dir)
            })?);
        }
        // The last surviving change of names, and what was answered before it was issued.
        let last =
            cases.iter().zip(&chosen).filter_map(|(case, k)| last_name(&case.history.events[..*k])).max();
        let Some(last) = last else { return Ok(chosen) };
        let needed: Vec<usize> = cases.iter().map(|case| before(&case.history, last)).collect();
        if needed.iter().zip(&chosen).all(|(needed, k)| needed <= k) {
            return Ok(chosen);
        }
        bounds = needed.iter().zip(&chosen).map(|(a, b)| *a.max(b)).collect();
    }
}

fn copies_of(listed: &Value) -> Option<(&str, u64)> {
    let name = listed["name"].as_str()?;
    Some((name, listed["file"]["copies"].as_array().map_or(0, |c| c.len() as u64)))
}

fn names_after(history: &History, calls: usize) -> Names {
    let mut names = history.names.clone();
    for event in &history.events[..calls] {
        if let What::Name(op) = &event.what {
            names.apply(op);
        }
    }
    names
}

/// When the last change of names among these was issued.
fn last_name(events: &[Event]) -> Option<u64> {
    events.iter().rfind(|e| matches!(e.what, What::Name(_))).map(|e| e.issued.order)
}

/// Number of events up to the last change of names that was answered before `order`.
fn before(history: &History, order: u64) -> usize {
    let earlier = |e: &Event| matches!(e.what, What::Name(_)) && e.answered.is_some_and(|m| m.order < order);
    history.events.iter().rposition(earlier).map_or(0, |n| n + 1)
}

/// Whether the names are those that were found, up to the numbers of inodes that nobody has seen.
fn same(names: &Names, known: &BTreeMap<FileId, u64>, found: &BTreeMap<String, Seen>) -> bool {
    if names.0.len() != found.len() || names.0.keys().ne(found.keys()) {
        return false;
    }
    let mut inodes: BTreeMap<FileId, (u64, u64)> = BTreeMap::new();
    for (entry, seen) in names.0.values().zip(found.values()) {
        match (entry, seen) {
            (Entry::Dir, Seen::Dir) => {}
            (Entry::Link(a), Seen::Link(b)) if a == b => {}
            (Entry::File(id), Seen::File { ino, .. }) => {
                let one = inodes.entry(*id).or_insert((*ino, 0));
                if one.0 != *ino || known.get(id).is_some_and(|known| known != ino) {
                    return false;
                }
                one.1 += 1;
            }
            _ => return false,
        }
    }
    let distinct: BTreeSet<u64> = inodes.values().map(|(ino, _)| *ino).collect();
    let links = |ino: u64, count: u64| {
        found.values().all(|s| !matches!(s, Seen::File { ino: i, links } if *i == ino && *links != count))
    };
    distinct.len() == inodes.len() && inodes.values().all(|(ino, count)| links(*ino, *count))
}

/// Everything below a directory; a directory that is not there has nothing below it.
fn look(dir: &Path) -> io::Result<BTreeMap<String, Seen>> {
    let mut found = BTreeMap::new();
    match fs::symlink_metadata(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        other => _ = other?,
    }
    walk(dir, "", &mut found)?;
    Ok(found)
}

fn walk(dir: &Path, below: &str, found: &mut BTreeMap<String, Seen>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = format!("{below}{}", entry.file_name().to_string_lossy());
        let meta = fs::symlink_metadata(entry.path())?;
        let seen = if meta.is_dir() {
            walk(&entry.path(), &format!("{path}/"), found)?;
            Seen::Dir
        } else if meta.is_file() {
            Seen::File { ino: meta.ino(), links: meta.nlink() }
        } else if meta.is_symlink() {
            Seen::Link(fs::read_link(entry.path())?.to_string_lossy().into_owned())
        } else {
            Seen::Other
        };
        found.insert(path, seen);
    }
    Ok(())
}

/// `thermo check` finds nothing.
pub fn check(rig: &Rig, tapes: bool) -> Vec<String> {
    let arguments: &[&str] = if tapes { &["check", "--tapes"] } else { &["check"] };
    let report = match rig.json(arguments) {
        Ok(report) => report,
        Err(e) => return vec![e],
    };
    match report["findings"].as_array() {
        Some(findings) => findings.iter().map(|f| format!("thermo check: {f}")).collect(),
        None => vec![format!("thermo check: {report}")],
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Clock;
    use super::super::names::NameOp;
    use super::*;

    fn create(name: &str, id: FileId) -> What {
        What::Name(NameOp::Create(name.into(), id))
    }

    fn history(clock: &Clock, whats: Vec<What>) -> History {
        let event = |what| Event { what, issued: clock.now(), answered: Some(clock.now()) };
        History { events: whats.into_iter().map(event).collect(), ..History::default() }
    }

    fn files(names: &[(&str, u64)]) -> BTreeMap<String, Seen> {
        names.iter().map(|(name, ino)| (name.to_string(), Seen::File { ino: *ino, links: 1 })).collect()
    }

    #[test]
    fn names_must_be_a_prefix_that_holds_everything_synced() {
        let unlink = What::Name(NameOp::Unlink("a".into()));
        let whats = vec![create("a", 1), create("b", 2), What::SyncNames, create("c", 3), unlink];
        let mut history = history(&Clock::default(), whats);
        let fit = |history: &History, names: &[(&str, u64)]| fits(history, u64::MAX, &files(names));
        assert_eq!(fit(&history, &[("a", 10), ("b", 11)]), [3]);
        assert_eq!(fit(&history, &[("a", 10), ("b", 11), ("c", 12)]), [4]);
        assert_eq!(fit(&history, &[("b", 11), ("c", 12)]), [5]);
        // One that was synced is lost; one is lost though a later one is there; two names of one file that has one.
        assert_eq!(fit(&history, &[("a", 10)]), [0; 0]);
        assert_eq!(fit(&history, &[("b", 11)]), [0; 0]);
        assert_eq!(fit(&history, &[("a", 10), ("b", 10)]), [0; 0]);
        history.inodes.insert(1, 11);
        assert_eq!(fit(&history, &[("a", 10), ("b", 11)]), [0; 0], "the files changed places");
    }

    #[test]
    fn a_call_lost_before_a_surviving_one_of_another_thread_is_noticed() {
        let clock = Clock::default();
        let one = |dir: &str| Case { dir: dir.into(), history: history(&clock, vec![create("f", 1)]) };
        let cases = [one("first"), one("second")];
        assert_eq!(common_cut(&cases, &[vec![0], vec![0]]), Ok(vec![0, 0]));
        assert_eq!(common_cut(&cases, &[vec![1], vec![0]]), Ok(vec![1, 0]));
        assert_eq!(common_cut(&cases, &[vec![0, 1], vec![1]]), Ok(vec![1, 1]));
        assert!(common_cut(&cases, &[vec![0], vec![1]]).unwrap_err().contains("first: lost"));
    }
}
