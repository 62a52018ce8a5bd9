//! Folds the logs of coded files into their rows when the files are left alone: whoever writes next finds room, and who reads beside him, or
//! rebuilds a column, less to go through. One file at a time, after everybody else.
//!
//! What was written since the node started is remembered here; after a crash all coded files are looked at once, some at a time.

use super::PAGE;
use crate::Node;
use crate::clock::Moment;
use crate::error::fs_error;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use types::*;

/// Between two looks. What has not changed from one to the next is left alone.
const AGAIN: Duration = Duration::from_secs(2);

/// Coded files that were written.
#[derive(Default)]
pub(super) struct Unfolded(Mutex<BTreeMap<Ino, Option<Look>>>);

/// What a file was at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Closed,
    /// How often it has changed since it was opened.
    Open(u64),
}

impl Unfolded {
    /// A file has something in its log that is in no row.
    pub(super) fn note(&self, ino: Ino) {
        self.0.lock().entry(ino).or_default();
    }

    /// Files that are as they were at the last look; they are not remembered any more.
    fn left_alone(&self, look: impl Fn(Ino) -> Look) -> Vec<(Ino, Look)> {
        let mut left_alone = Vec::new();
        self.0.lock().retain(|ino, last| {
            let now = look(*ino);
            let alone = last.replace(now) == Some(now);
            left_alone.extend(alone.then_some((*ino, now)));
            !alone
        });
        left_alone
    }
}

impl Node {
    /// Does it until the node stops.
    pub(crate) fn fold_far(&self) {
        let (mut told, mut looked) = (String::new(), Some(ObjectId(0)));
        while !self.stops_within(AGAIN) {
            let problem = self.fold_left_alone();
            if !problem.is_empty() && problem != told {
                tracing::warn!(
                    "the log of a coded file is not folded yet, and that is tried again: {problem}"
                );
            }
            told = problem;
            if let Some(after) = looked {
                // What cannot be looked at now is looked at after the next start; nothing depends on it.
                looked = self.note_coded(after).unwrap_or_else(|e| {
                    tracing::warn!("looking for coded files with something in their logs: {e}");
                    None
                });
            }
        }
    }

    /// Folds what was not changed lately; why one of the others could not be.
    fn fold_left_alone(&self) -> String {
        let look = |ino| {
            let state = self.open.get(ino).map(|entry| entry.state.lock().backing.clone());
            let far = state.flatten().and_then(|backing| backing.far().cloned());
            far.map_or(Look::Closed, |far| Look::Open(far.changes()))
        };
        let mut problem = String::new();
        for (ino, found) in self.movers.unfolded.left_alone(look) {
            if self.stops_within(Duration::ZERO) {
                break;
            }
            if self.is_written_past(ino) {
                // Whoever does folds it when its log is full; it would cost him his right.
                self.movers.unfolded.note(ino);
                continue;
            }
            if let Err(why) = self.fold_file(ino) {
                problem = format!("inode {ino}: {why}");
                self.movers.unfolded.note(ino);
            } else if found != Look::Closed && self.is_open(ino) {
                // It may be written again, which it tells only once.
                self.movers.unfolded.note(ino);
            }
        }
        problem
    }

    fn fold_file(&self, ino: Ino) -> Result<(), String> {
        let inode = match self.catalog.inode(ino) {
            Err(e) if e.fs() == FsError::NotFound => return Ok(()),
            inode => inode.map_err(|e| e.to_string())?,
        };
        let Some(object) = inode.file.filter(|f| f.far).and_then(|f| f.object) else { return Ok(()) };
        let Some(far) = self.catalog.far(object).map_err(|e| e.to_string())? else { return Ok(()) };
        let down = far.on(&self.movers.down());
        if down.iter().any(|place| !far.stale.contains(place)) {
            // It would be out of date for nothing.
            return Err("a target is down".to_owned());
        }
        let begun = Moment::now();
        let folded = self.with_far(ino, object, |file| {
            let bytes = file.striped().logged().map_err(|e| e.to_string())?;
            if bytes > 0 {
                let _unlent = self.end_lending(object).map_err(|e| e.to_string())?;
                file.fold().map_err(|e| e.to_string())?;
                tracing::debug!("inode {ino}: {bytes} bytes of small writes are in its rows");
            }
            Ok(bytes)
        })?;
        // At most the node stops.
        self.keep_pace(self.settings().cluster.move_rate.0, begun, folded.unwrap_or_default())
    }

    /// Notes some of the coded files behind an object; where to go on.
    fn note_coded(&self, after: ObjectId) -> Result<Option<ObjectId>, FsError> {
        let fail = |e| fs_error("look for coded files", &e);
        let page = self.catalog.far_objects(after, PAGE).map_err(fail)?;
        for (object, _) in page.iter().filter(|(_, far)| far.rule().parity > 0) {
            let owner = self.catalog.object_owner(*object).map_err(fail)?;
            owner.into_iter().for_each(|ino| self.movers.unfolded.note(ino));
        }
        Ok(page.last().map(|(last, _)| *last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_folded_once_it_was_left_alone_from_one_look_to_the_next() {
        let (unfolded, ino) = (Unfolded::default(), Ino(5));
        let look = |look| unfolded.left_alone(|_| look);
        assert_eq!(look(Look::Closed), []);
        unfolded.note(ino);
        assert_eq!(look(Look::Open(3)), []);
        unfolded.note(ino);
        assert_eq!(look(Look::Open(4)), [], "it was written");
        assert_eq!(look(Look::Closed), [], "it was closed");
        assert_eq!(look(Look::Closed), [(ino, Look::Closed)]);
        assert_eq!(look(Look::Closed), [], "once");
        unfolded.note(ino);
        assert_eq!(look(Look::Open(1)), []);
        assert_eq!(look(Look::Open(1)), [(ino, Look::Open(1))]);
    }
}
