//! Which contents a file may have after a crash.

use super::history::{Edit, Event, FileId, History, What};
use std::collections::BTreeMap;

/// What the crash was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The node was killed; the machine and its memory of files went on.
    Kill,
    /// The power of the disk failed.
    Power,
}

/// The edits of one file: what is safe, and what came after.
#[derive(Default)]
struct Life<'h> {
    /// Content at the last confirmed sync.
    safe: Vec<u8>,
    /// Edits after it that may have had an effect; false: nobody knows whether the call was carried out.
    open: Vec<(&'h Edit, bool)>,
}

/// What files may hold, from one reading of a history.
pub struct Contents<'h> {
    lives: BTreeMap<FileId, Life<'h>>,
    crash: Crash,
}

impl<'h> Contents<'h> {
    /// What a crash at `cut` may leave.
    pub fn after(history: &'h History, cut: u64, crash: Crash) -> Self {
        let mut lives: BTreeMap<FileId, Life<'h>> = BTreeMap::new();
        for (file, content) in &history.contents {
            lives.insert(*file, Life { safe: content.clone(), open: Vec::new() });
        }
        for event in history.begun(cut) {
            match &event.what {
                What::Edit(edit) => {
                    let known = event.answered.is_some();
                    lives.entry(edit.file).or_default().open.push((edit, known));
                }
                What::SyncFile(file) if event.confirmed(cut) => lives.entry(*file).or_default().make_safe(),
                _ => {}
            }
        }
        Self { lives, crash }
    }

    /// Whether `found` may be what the file holds; if not, why.
    pub fn check(&self, file: FileId, found: &[u8]) -> Result<(), String> {
        let none = Life::default();
        let life = self.lives.get(&file).unwrap_or(&none);
        let loose = life.open.iter().any(|(edit, _)| edit.loose);
        match self.crash {
            Crash::Kill if !loose => life.check_prefix(found),
            _ => life.check_mixture(found),
        }
    }
}

impl Life<'_> {
    fn make_safe(&mut self) {
        for (edit, _) in self.open.drain(..) {
            edit.change.apply(&mut self.safe);
        }
    }

    /// After a kill: the bytes after some number of edits, the last of which may be half done if nobody saw its end.
    fn check_prefix(&self, found: &[u8]) -> Result<(), String> {
        let mut content = self.safe.clone();
        if content == found {
            return Ok(());
        }
        for (edit, known) in &self.open {
            let before = content.clone();
            edit.change.apply(&mut content);
            if content == found || (!known && Mixture::of([&before, &content]).admits(found).is_ok()) {
                return Ok(());
            }
        }
        let latest = difference(&content, found);
        Err(format!(
            "is at no point of its history ({} edits since its last sync); {latest}",
            self.open.len()
        ))
    }

    /// After a power failure: each byte as it was at some time since the last sync.
    fn check_mixture(&self, found: &[u8]) -> Result<(), String> {
        let mut content = self.safe.clone();
        let mut mixture = Mixture::of([&content]);
        for (edit, _) in &self.open {
            edit.change.apply(&mut content);
            mixture.add(&content);
        }
        let edits = self.open.len();
        mixture
            .admits(found)
            .map_err(|e| format!("{e} ({edits} edits since its last sync, {} bytes safe)", self.safe.len()))
    }
}

/// Contents of which any byte may come from any.
struct Mixture {
    shortest: usize,
    longest: usize,
    states: Vec<Vec<u8>>,
}

impl Mixture {
    fn of<'a>(states: impl IntoIterator<Item = &'a Vec<u8>>) -> Self {
        let mut mixture = Self { shortest: usize::MAX, longest: 0, states: Vec::new() };
        states.into_iter().for_each(|s| mixture.add(s));
        mixture
    }

    fn add(&mut self, content: &[u8]) {
        self.shortest = self.shortest.min(content.len());
        self.longest = self.longest.max(content.len());
        self.states.push(content.to_vec());
    }

    fn admits(&self, found: &[u8]) -> Result<(), String> {
        if found.len() < self.shortest || found.len() > self.longest {
            return Err(format!("has {} bytes, not {} to {}", found.len(), self.shortest, self.longest));
        }
        // Whole states agree almost everywhere: compare with the newest first, byte by byte only where it differs.
        let byte = |state: &Vec<u8>, at: usize| state.get(at).copied().unwrap_or(0);
        for (at, &b) in found.iter().enumerate() {
            if !self.states.iter().rev().any(|state| byte(state, at) == b) {
                return Err(format!("byte {at} of {} was never {b:#04x}", found.len()));
            }
        }
        Ok(())
    }
}

fn difference(expected: &[u8], found: &[u8]) -> String {
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
    let zeros = found.iter().skip(at).take_while(|b| **b == 0).count();
    format!(
        "after all of them {} bytes, found {}, first difference at byte {at} ({zeros} zeros found from there)",
        expected.len(),
        found.len()
    )
}

/// Content after everything in a history, known or not.
pub fn newest(history: &History) -> BTreeMap<FileId, Vec<u8>> {
    let mut contents = history.contents.clone();
    for Event { what, .. } in &history.events {
        if let What::Edit(edit) = what {
            edit.change.apply(contents.entry(edit.file).or_default());
        }
    }
    contents
}

#[cfg(test)]
mod tests {
    use super::super::history::{Change, Clock};
    use super::*;

    fn history(clock: &Clock, whats: Vec<What>) -> History {
        let event = |what| Event { what, issued: clock.now(), answered: Some(clock.now()) };
        History { events: whats.into_iter().map(event).collect(), ..History::default() }
    }

    fn write(at: u64, length: usize, seed: u64) -> What {
        What::Edit(Edit { file: 1, change: Change::Write { at, length, seed }, loose: false })
    }

    #[test]
    fn synced_bytes_must_be_there_and_later_ones_in_order_after_a_kill() {
        let whats = vec![write(0, 100, 1), What::SyncFile(1), write(50, 100, 2), write(0, 10, 3)];
        let history = history(&Clock::default(), whats);
        let at = |n: usize| {
            newest(&History { events: history.events[..n].to_vec(), ..History::default() })[&1].clone()
        };
        for crash in [Crash::Kill, Crash::Power] {
            let contents = Contents::after(&history, u64::MAX, crash);
            for n in [1, 3, 4] {
                contents.check(1, &at(n)).unwrap();
            }
            contents.check(1, &[]).unwrap_err();
            contents.check(1, &at(1)[..99]).unwrap_err();
            contents.check(1, &crate::noise(9, 100)).unwrap_err();
            // the last write without the one before it
            let mut skipped = at(1);
            skipped[..10].copy_from_slice(&crate::noise(3, 10));
            assert_eq!(contents.check(1, &skipped).is_ok(), crash == Crash::Power);
        }
    }

    #[test]
    fn a_write_that_nobody_saw_end_may_be_half_there() {
        let mut history = history(&Clock::default(), vec![write(0, 100, 1), write(0, 100, 2)]);
        history.events[1].answered = None;
        let mut half = crate::noise(1, 100);
        half[..50].copy_from_slice(&crate::noise(2, 50));
        let contents = Contents::after(&history, u64::MAX, Crash::Kill);
        contents.check(1, &half).unwrap();
        half[99] ^= 1;
        contents.check(1, &half).unwrap_err();
    }
}
