//! What of a node and its standby must be known after a crash: the file `standby` of the state directory.

use crate::error::failure;
use crate::startup::io;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use types::ErrorClass;
use wire::{Failure, StandbyPromise};

/// File of the state directory.
pub(super) const NAME: &str = "standby";
/// It is written here first.
const NEW: &str = "standby.new";

/// What a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// It serves the catalogue.
    #[default]
    Serves,
    /// It follows another node.
    Follows,
    /// It was a standby and takes over: its engine may not be an ordinary one yet, and the node has not started with it yet.
    Taking,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Record {
    pub(super) role: Role,
    /// Raised by each take-over.
    pub(super) epoch: u64,
    /// Number of the node that follows this one, or did last: nobody else can have taken over.
    pub(super) standby: Option<u32>,
    /// Number of the node that this one follows, or that it took over from and has had no standby since.
    pub(super) of: Option<u32>,
    /// Of a standby: how long after its last answer it does not take over (milliseconds).
    pub(super) lease_ms: u32,
    /// It took over without all that was acknowledged: the catalogue is to be treated as one from a backup.
    pub(super) behind: bool,
    /// Who has taken over.
    pub(super) replaced_by: Option<String>,
    /// Of a node that serves: what its standby was told, or is about to be. Of a standby: what it was told.
    pub(super) promise: Option<StandbyPromise>,
}

impl Record {
    fn read(state: &Path) -> Result<Option<Self>, Failure> {
        let text = match fs::read_to_string(state.join(NAME)) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io(state, &e)),
        };
        toml::from_str(&text).map(Some).map_err(|e| {
            let message = format!(
                "{}: {e}; it says whether this node serves or follows, and without it neither is safe: bring it back from a backup of the state \
                 directory",
                state.join(NAME).display()
            );
            failure(ErrorClass::Corrupt, message)
        })
    }

    /// On stable storage when this returns.
    fn write(&self, state: &Path) -> Result<(), Failure> {
        let text = toml::to_string(self)
            .map_err(|e| failure(ErrorClass::Bug, format!("the record of the standby: {e}")))?;
        let write = || -> std::io::Result<()> {
            let new = state.join(NEW);
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, state.join(NAME))?;
            File::open(state)?.sync_all()
        };
        write().map_err(|e| io(state, &e))
    }
}

/// The record, as it is on stable storage.
#[derive(Debug)]
pub(crate) struct Ledger {
    state: PathBuf,
    /// None: there is none, as at a node that never had to do with a standby.
    record: Mutex<Option<Record>>,
}

impl Ledger {
    /// Of the node with this state directory.
    pub(crate) fn open(state: &Path) -> Result<Self, Failure> {
        Ok(Self { state: state.into(), record: Mutex::new(Record::read(state)?) })
    }

    /// Whether it was ever written.
    pub(super) fn exists(&self) -> bool {
        self.record.lock().is_some()
    }

    pub(super) fn get(&self) -> Record {
        self.record.lock().clone().unwrap_or_default()
    }

    /// Changes it. After an error everybody goes on with what was there; on disk may be either, unless [`Ledger::is_certain`].
    pub(super) fn change(&self, f: impl FnOnce(&mut Record)) -> Result<(), Failure> {
        let mut record = self.record.lock();
        let mut new = record.clone().unwrap_or_default();
        f(&mut new);
        if record.as_ref() != Some(&new) {
            new.write(&self.state)?;
            *record = Some(new);
        }
        Ok(())
    }

    /// Whether what is known here is what the next start finds, also after an error.
    pub(super) fn is_certain(&self) -> bool {
        Record::read(&self.state).is_ok_and(|found| found == *self.record.lock())
    }

    /// This node has just taken over, and has not started since.
    pub(crate) fn has_taken_over(&self) -> bool {
        self.get().role == Role::Taking
    }

    /// The first start after a take-over is through.
    pub(crate) fn serves(&self) -> Result<(), Failure> {
        self.change(|r| (r.role, r.behind) = (Role::Serves, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_comes_back_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path()).unwrap();
        assert!(!ledger.exists() && ledger.get() == Record::default());
        let record = Record {
            role: Role::Taking,
            epoch: 3,
            standby: Some(2),
            of: Some(1),
            lease_ms: 4000,
            behind: true,
            replaced_by: Some("node \"2\"".into()),
            promise: Some(StandbyPromise { lineage: [7; 16], from: 9 }),
        };
        ledger.change(|r| *r = record.clone()).unwrap();
        assert_eq!(Ledger::open(dir.path()).unwrap().get(), record);
        fs::write(dir.path().join(NAME), "role = \"serv").unwrap();
        assert!(Ledger::open(dir.path()).unwrap_err().message.contains("neither is safe"));
    }

    #[test]
    fn what_could_not_be_written_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path()).unwrap();
        ledger.change(|r| r.epoch = 1).unwrap();
        let before = ledger.get();
        fs::create_dir(dir.path().join(NEW)).unwrap(); // no file can be made in its place
        assert!(ledger.change(|r| r.promise = Some(StandbyPromise::default())).is_err());
        assert!(ledger.get() == before && ledger.is_certain());
        fs::remove_dir(dir.path().join(NEW)).unwrap();
        // Renamed, and then an error.
        Record { epoch: 2, ..before.clone() }.write(dir.path()).unwrap();
        assert!(!ledger.is_certain());
    }
}
