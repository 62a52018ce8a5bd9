//! The note of a move that is being finished: with it, and only with it, an engine opens that was set aside for that move.

use std::fs::{self, File};
use std::io::{ErrorKind, Result, Write};
use std::path::Path;

/// First line: the number of the move. Second line, once an engine was chosen: which (`embedded` or `database`).
const FILE: &str = "engine-move";

/// The note.
pub(super) struct Note {
    id: String,
    chosen: Option<String>,
}

impl Note {
    /// Number of the move, for the engine `kind` unless the other one was chosen.
    pub(super) fn id_for(&self, kind: &str) -> Option<&str> {
        let chosen = self.chosen.as_deref();
        chosen.is_none_or(|chosen| chosen == kind).then_some(self.id.as_str())
    }
}

pub(super) fn read(state: &Path) -> Result<Option<Note>> {
    match fs::read_to_string(state.join(FILE)) {
        Ok(text) => {
            let mut lines = text.lines().map(String::from);
            Ok(Some(Note { id: lines.next().unwrap_or_default(), chosen: lines.next() }))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Notes durably that both engines of the move `id` hold the same.
pub(super) fn write(state: &Path, id: &str) -> Result<()> {
    put(state, &format!("{id}\n"))
}

/// Notes durably that of these the engine `kind` counts: from now on the other one does not open.
pub(super) fn choose(state: &Path, id: &str, kind: &str) -> Result<()> {
    put(state, &format!("{id}\n{kind}\n"))
}

fn put(state: &Path, text: &str) -> Result<()> {
    let new = state.join(format!("{FILE}.new"));
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, state.join(FILE))?;
    File::open(state)?.sync_all()
}

/// Takes it away durably: whatever is still set aside stays so.
pub(crate) fn remove(state: &Path) -> Result<()> {
    match fs::remove_file(state.join(FILE)) {
        Ok(()) => File::open(state)?.sync_all(),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_an_engine_is_chosen_the_other_one_does_not_know_of_the_move() {
        let dir = tempfile::tempdir().unwrap();
        let known = |kind| {
            let note = read(dir.path()).unwrap().expect("a note");
            note.id_for(kind).map(String::from)
        };
        assert!(read(dir.path()).unwrap().is_none());
        write(dir.path(), "7").unwrap();
        assert_eq!(["embedded", "database"].map(known), [Some("7".into()), Some("7".into())]);
        choose(dir.path(), "7", "database").unwrap();
        assert_eq!(["embedded", "database"].map(known), [None, Some("7".into())]);
        remove(dir.path()).unwrap();
        remove(dir.path()).unwrap();
        assert!(read(dir.path()).unwrap().is_none());
    }
}
