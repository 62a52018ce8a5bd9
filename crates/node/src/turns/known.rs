//! How far this host knows the database to have been. One that comes back with less has lost what was acknowledged: nobody goes on from that before somebody has
//! looked. What is checked and what is not: `docs/design/0014-turns.md`.

use crate::error::failure;
use crate::startup::io;
use kv::{Reached, SeenOwner};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use types::ErrorClass;
use wire::Failure;

/// Below the state directory: one line with epoch, number of the last transaction and name of the owner.
const FILE: &str = "engine-reached";
/// Its name once an operator has given up what was lost.
const GIVEN_UP: &str = "engine-reached.given-up";

/// A place in the history of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    reached: Reached,
    owner: String,
}

impl Place {
    /// Whether an engine that is there cannot have been here, or not with what was done then.
    fn is_lost_at(&self, there: &Self) -> bool {
        let same = there.reached.epoch == self.reached.epoch;
        there.reached < self.reached || same && there.owner != self.owner
    }

    fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io(path, &e)),
        };
        let mut words = text.trim_end_matches('\n').splitn(3, ' ');
        let mut number = || words.next()?.parse().ok();
        let reached = number().zip(number()).map(|(epoch, number)| Reached { epoch, number });
        let place = reached.zip(words.next()).map(|(reached, owner)| Self { reached, owner: owner.into() });
        place.map(Some).ok_or_else(|| {
            let message = format!(
                "{} is damaged: it says how far the database was that this node takes turns with. See that the database has lost nothing, then remove it",
                path.display()
            );
            failure(ErrorClass::Corrupt, message)
        })
    }

    fn write(&self, state: &Path) -> std::io::Result<()> {
        let new = state.join("engine-reached.new");
        let mut file = File::create(&new)?;
        writeln!(file, "{} {} {}", self.reached.epoch, self.reached.number, self.owner)?;
        file.sync_all()?;
        fs::rename(new, state.join(FILE))?;
        match fs::remove_file(state.join(GIVEN_UP)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        File::open(state)?.sync_all()
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "change {} of opening {} by {}", self.reached.number, self.reached.epoch, self.owner)
    }
}

/// What a host knows: in memory as of its last look, and in its state directory as of the end of its own turn, or of when the database did not answer any more.
pub(super) struct Known {
    state: PathBuf,
    place: Option<Place>,
    kept: Option<Place>,
}

impl Known {
    /// What is in the state directory.
    pub(super) fn open(state: &Path) -> Result<Self, Failure> {
        let kept = Place::read(&state.join(FILE))?;
        let given_up = Place::read(&state.join(GIVEN_UP))?;
        Ok(Self { state: state.into(), place: kept.clone().or(given_up), kept })
    }

    /// Whether it knows anything.
    pub(super) fn is_any(&self) -> bool {
        self.place.is_some()
    }

    /// Compares what is known with what there is, which is known from then on. Some: it is older, by so many openings, and an operator has given up the rest; or the
    /// node `own` has begun to go on with that, and was interrupted before it had settled what follows from it.
    ///
    /// # Errors
    /// It is older, and nobody has looked.
    pub(super) fn compare(&mut self, own: &str, owner: &SeenOwner) -> Result<Option<u64>, Failure> {
        let found = Place { reached: owner.reached, owner: owner.name.clone() };
        let unsettled = found.owner == own && self.is_given_up();
        let Some(known) = self.place.as_ref().filter(|known| unsettled || known.is_lost_at(&found)) else {
            self.place = Some(found);
            // What was given up then is no word on what may be lost later.
            return if self.is_given_up() { self.write().map(|()| None) } else { Ok(None) };
        };
        if self.is_given_up() {
            return Ok(Some(known.reached.epoch.saturating_sub(found.reached.epoch)));
        }
        let (path, given_up) = (self.state.join(FILE), self.state.join(GIVEN_UP));
        let message = format!(
            "the database has lost what was acknowledged: it is at {found}, and was at {known} ({}); its server, or another one in its place, came back without it. This node \
             does not take it: bring back the server that has all. To go on without what is missing: `mv {} {}`, here and where else it is said",
            path.display(),
            path.display(),
            given_up.display()
        );
        self.keep()?;
        Err(failure(ErrorClass::Retry, message))
    }

    /// Makes what is known durable, if it is not.
    pub(super) fn keep(&mut self) -> Result<(), Failure> {
        let there = self.kept == self.place && self.state.join(FILE).exists();
        if self.place.is_none() || there || self.is_given_up() { Ok(()) } else { self.write() }
    }

    /// The node of this name has the engine, and is so far: what was known before is past.
    pub(super) fn goes_on(&mut self, owner: &str, reached: Reached) -> Result<(), Failure> {
        self.place = Some(Place { reached, owner: owner.into() });
        self.write()
    }

    fn write(&mut self) -> Result<(), Failure> {
        let Some(place) = &self.place else { return Ok(()) };
        place.write(&self.state).map_err(|e| io(&self.state.join(FILE), &e))?;
        self.kept = Some(place.clone());
        Ok(())
    }

    fn is_given_up(&self) -> bool {
        self.state.join(GIVEN_UP).exists() && !self.state.join(FILE).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, epoch: u64, number: u64) -> SeenOwner {
        SeenOwner { name: name.into(), reached: Reached { epoch, number }, live: false }
    }

    #[test]
    fn a_database_that_comes_back_older_is_refused_until_somebody_has_given_up_what_it_lost() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path();
        let open = || Known::open(state).unwrap();
        let mut known = open();
        for seen in [at("a b", 3, 0), at("a b", 3, 70), at("c", 4, 0), at("a b", 5, 100)] {
            assert_eq!(known.compare("own", &seen).unwrap(), None);
        }
        assert!(!state.join(FILE).exists(), "not with each look");
        known.keep().unwrap();
        assert_eq!(fs::read_to_string(state.join(FILE)).unwrap(), "5 100 a b\n");
        // Older; and one of whom two have thought that it was theirs. The same after a restart of this host.
        for older in [at("a b", 5, 99), at("a b", 3, 170), at("c", 5, 200)] {
            for known in [&mut known, &mut open()] {
                let refused = known.compare("own", &older).unwrap_err();
                assert!(
                    refused.class == ErrorClass::Retry && refused.message.contains("given-up"),
                    "{refused}"
                );
            }
        }
        assert_eq!(open().compare("own", &at("a b", 5, 100)).unwrap(), None);
        assert_eq!(open().compare("own", &at("c", 6, 0)).unwrap(), None);
        // Given up: also after a restart, and when the database does not answer meanwhile; until a turn has begun with it.
        fs::rename(state.join(FILE), state.join(GIVEN_UP)).unwrap();
        for known in [&mut known, &mut open()] {
            known.keep().unwrap();
            assert_eq!(known.compare("own", &at("a b", 3, 7)).unwrap(), Some(2));
        }
        // Interrupted when it had begun to go on with it.
        assert_eq!(open().compare("own", &at("own", 6, 0)).unwrap(), Some(0));
        let mut next = open();
        assert_eq!(next.compare("own", &at("a b", 3, 7)).unwrap(), Some(2));
        next.goes_on("own", Reached { epoch: 4, number: 2 }).unwrap();
        assert_eq!(open().compare("own", &at("own", 4, 2)).unwrap(), None);
        assert!(open().compare("own", &at("own", 4, 1)).is_err() && !state.join(GIVEN_UP).exists());
    }

    #[test]
    fn what_was_given_up_once_is_no_word_on_another_loss() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(GIVEN_UP), "5 100 a\n").unwrap();
        let mut known = Known::open(dir.path()).unwrap();
        // Another host went on with it.
        assert_eq!(known.compare("own", &at("b", 6, 10)).unwrap(), None);
        assert!(known.compare("own", &at("b", 6, 9)).is_err());
        fs::write(dir.path().join(FILE), "5 a\n").unwrap();
        assert!(Known::open(dir.path()).err().unwrap().message.contains("damaged"));
    }
}
