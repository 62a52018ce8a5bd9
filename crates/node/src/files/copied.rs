//! The bytes of an open file on targets are copied to other objects while it is used, and lie there from one moment on.

use super::far::{FarFile, LOST, Sources};
use super::fresh::{Fresh, Unfinished};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes that are copied at once, and ...
const STEP: u64 = 4 << 20;
/// ... in which it is noted what has changed.
const PIECE: u64 = 1 << 20;
/// How long the last step waits until nobody writes, and until nobody reads: who does may wait for a target that does not answer, or for this very
/// file to be let go.
const PATIENCE: Duration = Duration::from_secs(10);

/// What has changed of a file since it began to be copied.
#[derive(Debug, Default)]
pub(super) struct Copied(Mutex<Option<Since>>);

#[derive(Debug, PartialEq, Eq)]
struct Since {
    /// Numbers of the pieces in which it was written.
    pieces: BTreeSet<u64>,
    /// It was cut here: from there on the copy may have anything (bytes).
    cut: u64,
}

impl Default for Since {
    fn default() -> Self {
        Self { pieces: BTreeSet::new(), cut: u64::MAX }
    }
}

impl Since {
    /// What has to be copied once more of a file that has a length now, and has been cut in the copy: behind the cut that is empty.
    fn ranges(self, length: u64) -> impl Iterator<Item = (Range<u64>, bool)> {
        let Self { mut pieces, cut } = self;
        pieces.extend(cut / PIECE..length.div_ceil(PIECE));
        let range = move |piece| length.min(piece * PIECE)..length.min((piece + 1) * PIECE);
        pieces.into_iter().map(range).map(move |range| (range.clone(), range.start >= cut))
    }

    /// How much that is of a file of this length (bytes, about).
    fn bytes(&self, length: u64) -> u64 {
        let noted = self.pieces.range(..self.cut.div_ceil(PIECE)).count() as u64 * PIECE;
        noted + length.saturating_sub(self.cut)
    }
}

impl Copied {
    /// A range was written.
    pub(super) fn written(&self, range: Range<u64>) {
        if let Some(since) = self.0.lock().as_mut() {
            since.pieces.extend(range.start / PIECE..range.end.div_ceil(PIECE));
        }
    }

    /// The length was set.
    pub(super) fn cut(&self, size: u64) {
        if let Some(since) = self.0.lock().as_mut() {
            since.cut = since.cut.min(size);
        }
    }

    /// Notes from now on, and gives what was noted so far: where the copy is to be cut first, and what has to be copied once more.
    fn restart(&self) -> Since {
        let before = self.0.lock().replace(Since::default());
        before.unwrap_or_default()
    }

    fn end(&self) {
        *self.0.lock() = None;
    }
}

/// A copy of a file in other objects, which is going to be the file.
pub(crate) struct Copy<'a> {
    file: &'a FarFile,
    to: Fresh,
    sources: Sources,
}

impl<'a> Copy<'a> {
    /// Notes from now on what changes. Whoever copies has claimed the file, and nobody writes to it past the node.
    ///
    /// # Errors
    /// A new object does not answer, or something of the file may be lost already.
    pub(crate) fn begin(file: &'a FarFile, to: Arc<FarFile>) -> Result<Self, Unfinished> {
        let sources = file.sources();
        if file.has_lost() {
            return Err(Unfinished::Later(LOST.to_owned()));
        }
        let to = Fresh::begin(to, file.length()?.max(file.stamp().size))?;
        let copy = Self { file, to, sources };
        copy.is_sound()?;
        copy.file.copied.restart();
        Ok(copy)
    }

    /// Nothing old was read, and the new objects have what was written there.
    fn is_sound(&self) -> Result<(), Unfinished> {
        self.file.sources_hold(&self.sources).map_err(Unfinished::Later)?;
        self.to.is_sound()
    }

    /// What is there to be copied (bytes): what another host wrote behind the end, and has yet to tell, is part of it.
    pub(crate) fn length(&self) -> stripe::Result<u64> {
        Ok(self.file.length()?.max(self.file.stamp().size))
    }

    /// Copies what nobody has copied yet, from `at` on; what is zeros stays a hole.
    pub(crate) fn step(&self, at: u64, length: u64) -> Result<u64, Unfinished> {
        let end = length.min(at + STEP);
        self.range(at..end, true)?;
        self.is_sound()?;
        Ok(end)
    }

    fn range(&self, range: Range<u64>, empty: bool) -> Result<(), Unfinished> {
        let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
        self.file.read_there(range.start, &mut bytes)?;
        self.to.write(range, &bytes, empty)
    }

    /// How much has changed since (bytes, about).
    pub(crate) fn behind(&self) -> u64 {
        let length = self.file.stamp().size;
        self.file.copied.0.lock().as_ref().map_or(0, |since| since.bytes(length))
    }

    /// Copies that once more; how much it was (bytes).
    pub(crate) fn catch_up(&self) -> Result<u64, Unfinished> {
        let since = self.file.copied.restart();
        if since.cut < u64::MAX {
            self.to.set_length(since.cut)?;
        }
        // Not before: what was noted may lie behind an earlier end.
        let length = self.length()?;
        let mut bytes = 0;
        for (range, empty) in since.ranges(length) {
            bytes += range.end - range.start;
            self.range(range, empty)?;
        }
        Ok(bytes)
    }

    /// The last step: with nobody writing what has changed, the length, all of it durable; then `admit` has it on record with nobody reading, and
    /// from then on the file is there.
    pub(crate) fn finish(self, admit: impl FnOnce() -> Result<(), String>) -> Result<(), Unfinished> {
        let busy = || {
            Unfinished::Later(
                "it is being written all the time, or read from a target that does not answer".to_owned(),
            )
        };
        let later = |why: &str| Err(Unfinished::Later(why.to_owned()));
        let file = self.file;
        let _alone = file.length.try_write_for(PATIENCE).ok_or_else(busy)?;
        self.catch_up()?;
        let there = self.to.finish(self.length()?)?;
        self.is_sound()?;
        if file.has_lost() {
            return later(LOST);
        }
        let mut place = file.place.try_write_for(PATIENCE).ok_or_else(busy)?;
        admit().map_err(Unfinished::Later)?;
        *place = there.place();
        file.machines.leave();
        file.machines.note(&place.striped);
        file.synced.fetch_max(file.changes.load(Ordering::Acquire), Ordering::AcqRel);
        Ok(())
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        self.file.copied.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_while_a_file_is_copied_is_known_and_what_lies_behind_a_cut_counts_as_changed() {
        let copied = Copied::default();
        let again = |length: u64| copied.restart().ranges(length).map(|(range, _)| range).collect::<Vec<_>>();
        let pieces = |all: &[u64]| all.iter().map(|n| n * PIECE..(n + 1) * PIECE).collect::<Vec<_>>();
        copied.written(0..1);
        assert_eq!(again(9 * PIECE), [], "nobody copied yet");
        copied.written(PIECE - 1..PIECE + 1);
        copied.written(5 * PIECE..5 * PIECE + 1);
        assert_eq!(again(9 * PIECE), pieces(&[0, 1, 5]));
        assert_eq!(again(9 * PIECE), [], "once");
        copied.cut(3 * PIECE + 5);
        copied.cut(7 * PIECE);
        copied.written(0..1);
        let since = copied.restart();
        assert_eq!((since.cut, since.bytes(9 * PIECE)), (3 * PIECE + 5, 7 * PIECE - 5));
        let behind: Vec<bool> = since.ranges(6 * PIECE).map(|(_, empty)| empty).collect();
        assert_eq!(
            behind,
            [false, false, true, true],
            "what lies behind a cut is not written where it is zeros"
        );
        copied.cut(3 * PIECE + 5);
        copied.written(0..1);
        let mut expected = pieces(&[0, 3, 4]);
        expected.push(5 * PIECE..5 * PIECE + 7);
        assert_eq!(again(5 * PIECE + 7), expected, "what was cut may have grown again");
        copied.end();
        copied.written(0..1);
        assert_eq!(again(PIECE), []);
    }
}
