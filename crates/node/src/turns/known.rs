//! How far this host knows the database to have been. One that comes back with less has lost what was acknowledged: nobody goes on from that before somebody has
//! looked. What is checked and what is not: `docs/design/0014-turns.md`.

use crate::error::failure;
use crate::startup::io;
use kv::{Place, Reached, SeenOwner};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use types::ErrorClass;
use wire::Failure;

/// Below the state directory: one line with epoch, number of the last transaction and name of the owner; a second one where something was given up.
const FILE: &str = "engine-reached";
/// Its name once an operator has given up what was lost.
const GIVEN_UP: &str = "engine-reached.given-up";

/// What a host knows of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    place: Place,
    given_up: Option<GivenUp>,
}

/// What an operator has given up, and no turn of this host has settled.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GivenUp {
    /// How far the engine had been.
    place: Place,
    /// The least opening at which it was found again.
    from: u64,
}

impl GivenUp {
    fn also(before: Option<Self>, place: &Place, from: u64) -> Self {
        match before {
            Some(before) if before.place.reached > place.reached => {
                Self { from: before.from.min(from), ..before }
            }
            before => {
                Self { place: place.clone(), from: before.map_or(from, |before| before.from.min(from)) }
            }
        }
    }

    /// Openings of which nothing is left.
    fn openings(&self) -> u64 {
        self.place.reached.epoch.saturating_sub(self.from)
    }
}

/// Epoch, number and name.
fn place<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Place> {
    let reached = Reached { epoch: words.next()?.parse().ok()?, number: words.next()?.parse().ok()? };
    let owner = words.collect::<Vec<_>>().join(" ");
    (!owner.is_empty()).then_some(Place { reached, owner })
}

impl FromStr for Record {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut lines = text.lines();
        let first = place(&mut lines.next().ok_or(())?.split(' ')).ok_or(())?;
        let given_up = match lines.next() {
            None => None,
            Some(line) => {
                let (from, rest) = line.split_once(' ').ok_or(())?;
                let from = from.parse().map_err(drop)?;
                Some(GivenUp { place: place(&mut rest.split(' ')).ok_or(())?, from })
            }
        };
        if lines.next().is_some() { Err(()) } else { Ok(Self { place: first, given_up }) }
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line =
            |place: &Place| format!("{} {} {}", place.reached.epoch, place.reached.number, place.owner);
        writeln!(f, "{}", line(&self.place))?;
        match &self.given_up {
            Some(given_up) => writeln!(f, "{} {}", given_up.from, line(&given_up.place)),
            None => Ok(()),
        }
    }
}

impl Record {
    fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io(path, &e)),
        };
        text.parse().map(Some).map_err(|()| {
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
        write!(file, "{self}")?;
        file.sync_all()?;
        fs::rename(new, state.join(FILE))?;
        // With both of them this one counts, and with neither nothing would be known.
        File::open(state)?.sync_all()?;
        match fs::remove_file(state.join(GIVEN_UP)) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            removed => removed?,
        }
        File::open(state)?.sync_all()
    }
}

/// What a host knows: in memory as of its last look, and in its state directory as of the end of its own turn, or of when the database did not answer any more.
pub(super) struct Known {
    state: PathBuf,
    now: Option<Record>,
    kept: Option<Record>,
}

impl Known {
    /// What is in the state directory.
    pub(super) fn open(state: &Path) -> Result<Self, Failure> {
        let kept = Record::read(&state.join(FILE))?;
        let given_up = Record::read(&state.join(GIVEN_UP))?;
        Ok(Self { state: state.into(), now: kept.clone().or(given_up), kept })
    }

    /// Where the engine has been.
    pub(super) fn place(&self) -> Option<Place> {
        self.now.as_ref().map(|record| record.place.clone())
    }

    /// Compares what is known with what there is, which is known from then on. Some: an operator has given up so many openings, and nobody is known to have settled
    /// what follows from that; the node `own` may have begun to, and may have been interrupted.
    ///
    /// # Errors
    /// It is older, and nobody has looked.
    pub(super) fn compare(&mut self, own: &str, owner: &SeenOwner) -> Result<Option<u64>, Failure> {
        let found = Place { reached: owner.reached, owner: owner.name.clone() };
        let Some(known) = self.now.clone() else {
            self.now = Some(Record { place: found, given_up: None });
            return Ok(None);
        };
        let (lost, word) = (known.place.is_lost_at(&found), self.is_given_up());
        if lost && !word {
            return Err(self.refuse(&known.place, &found));
        }
        let given_up = match lost {
            true => Some(GivenUp::also(known.given_up.clone(), &known.place, found.reached.epoch)),
            false => known.given_up.clone(),
        };
        let goes_on = |given_up: &GivenUp| found.owner == own || given_up.place.is_lost_at(&found);
        let given_up = given_up.filter(goes_on);
        let openings = given_up.as_ref().map(GivenUp::openings);
        let changed = word || given_up != known.given_up;
        self.now = Some(Record { place: found, given_up });
        // The word of an operator is for what he has seen, and no word on what may be lost later.
        if changed {
            self.write()?;
        }
        Ok(openings)
    }

    fn refuse(&mut self, known: &Place, found: &Place) -> Failure {
        if let Err(e) = self.keep() {
            return e;
        }
        let (path, given_up) = (self.state.join(FILE), self.state.join(GIVEN_UP));
        let message = format!(
            "the database has lost what was acknowledged: it is at {found}, and was at {known} ({}); its server, or another one in its place, came back without it. This node \
             does not take it: bring back the server that has all. To go on without what is missing: `mv {} {}`, here and where else it is said",
            path.display(),
            path.display(),
            given_up.display()
        );
        failure(ErrorClass::Retry, message)
    }

    /// Makes what is known durable, if it is not.
    pub(super) fn keep(&mut self) -> Result<(), Failure> {
        let there = self.kept == self.now && self.state.join(FILE).exists();
        if there || self.is_given_up() { Ok(()) } else { self.write() }
    }

    /// The node of this name has the engine, is so far, and has settled what was given up: what was known before is past.
    pub(super) fn goes_on(&mut self, owner: &str, reached: Reached) -> Result<(), Failure> {
        self.now = Some(Record { place: Place { reached, owner: owner.into() }, given_up: None });
        self.write()
    }

    fn write(&mut self) -> Result<(), Failure> {
        let Some(record) = &self.now else { return Ok(()) };
        record.write(&self.state).map_err(|e| io(&self.state.join(FILE), &e))?;
        self.kept = Some(record.clone());
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
        // Given up: also when the database does not answer meanwhile, after a restart, and until a turn has begun with it.
        fs::rename(state.join(FILE), state.join(GIVEN_UP)).unwrap();
        known.keep().unwrap();
        assert_eq!(known.compare("own", &at("a b", 3, 7)).unwrap(), Some(2));
        assert_eq!(open().compare("own", &at("a b", 3, 7)).unwrap(), Some(2));
        open().goes_on("own", Reached { epoch: 4, number: 2 }).unwrap();
        assert_eq!(open().compare("own", &at("own", 4, 2)).unwrap(), None);
        assert!(open().compare("own", &at("own", 4, 1)).is_err() && !state.join(GIVEN_UP).exists());
    }

    #[test]
    fn however_often_a_start_is_interrupted_all_openings_that_were_lost_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(GIVEN_UP), "5 100 a b\n").unwrap();
        let open = || Known::open(dir.path()).unwrap();
        assert_eq!(open().compare("own", &at("a b", 3, 7)).unwrap(), Some(2));
        // It has opened the engine, and died before it had settled what follows, again and again.
        for epoch in [4, 5, 6] {
            assert_eq!(open().compare("own", &at("own", epoch, 0)).unwrap(), Some(2));
        }
        open().goes_on("own", Reached { epoch: 7, number: 2 }).unwrap();
        assert_eq!(open().compare("own", &at("own", 7, 2)).unwrap(), None);
    }

    #[test]
    fn on_a_host_that_only_waits_what_was_given_up_is_no_word_on_a_later_loss_either() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(GIVEN_UP), "5 100 a\n").unwrap();
        let open = || Known::open(dir.path()).unwrap();
        // Another host goes on with it, below what was lost, and loses again.
        assert_eq!(open().compare("own", &at("b", 4, 10)).unwrap(), Some(1));
        let mut known = open();
        assert_eq!(known.compare("own", &at("b", 4, 20)).unwrap(), Some(1));
        for known in [&mut known, &mut open()] {
            assert!(known.compare("own", &at("b", 4, 9)).is_err() && !known.is_given_up());
        }
        // What was given up before is not forgotten with that.
        fs::rename(dir.path().join(FILE), dir.path().join(GIVEN_UP)).unwrap();
        assert_eq!(open().compare("own", &at("c", 2, 9)).unwrap(), Some(3));
        assert!(open().compare("own", &at("c", 2, 8)).is_err());
        // Beyond all of it somebody else has settled that.
        assert_eq!(open().compare("own", &at("c", 6, 0)).unwrap(), None);
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), "6 0 c\n");
    }

    #[test]
    fn what_was_given_up_once_is_no_word_on_another_loss() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(GIVEN_UP), "5 100 a\n").unwrap();
        let mut known = Known::open(dir.path()).unwrap();
        // Another host went on with it.
        assert_eq!(known.compare("own", &at("b", 6, 10)).unwrap(), None);
        assert!(known.compare("own", &at("b", 6, 9)).is_err());
        for damaged in ["", "5 a\n", "5 100 a\n3\n", "5 100 a\n3 5 100 a\nmore\n"] {
            fs::write(dir.path().join(FILE), damaged).unwrap();
            let refused = Known::open(dir.path()).err().expect(damaged);
            assert!(refused.message.contains("damaged"), "{refused}");
        }
    }
}
