//! A warm standby of a node with the embedded engine: who follows whom, written down (`standby` in the state directory), and both ends.
//! How and why: `docs/design/0012-standby.md`.

mod feeder;
mod follow;
mod settings;

pub(crate) use feeder::{Feeding, before_start};
pub use follow::{Followed, follow};
pub use settings::{StandbyConfig, StandbyMode, WhenAway};

use crate::error::failure;
use crate::startup::io;
use crate::{Config, Node};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use types::ErrorClass;
use wire::{Failure, StandbyView};

/// File of the state directory.
const NAME: &str = "standby";

/// What a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    /// It serves the catalogue.
    #[default]
    Serves,
    /// It follows another node.
    Follows,
    /// It was a standby, and is taking over: its engine may not be an ordinary one yet.
    Taking,
}

/// What of a node and its standby must be known after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Record {
    role: Role,
    /// Raised by each take-over.
    epoch: u64,
    /// Of a node that serves: nothing is acknowledged without the standby. Of a standby: it was told so.
    promised: bool,
    /// Who has taken over.
    replaced_by: Option<String>,
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
            let new = state.join("standby.new");
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, state.join(NAME))?;
            File::open(state)?.sync_all()
        };
        write().map_err(|e| io(state, &e))
    }
}

/// Whether the node of this configuration is a standby, or becomes one now.
///
/// # Errors
/// Its state directory says something else than its configuration.
pub fn is_standby(config: &Config) -> Result<bool, Failure> {
    follow::is_standby(config)
}

impl Node {
    pub(crate) fn standby_view(&self) -> Result<StandbyView, Failure> {
        let none =
            || failure(ErrorClass::NotFound, "this node has no standby ([standby] in its configuration)");
        self.feeding.get().ok_or_else(none)?.view(&self.config)
    }
}

/// The highest epoch that a node knows which serves.
pub(crate) fn epoch(config: &Config) -> Result<u64, Failure> {
    Ok(Record::read(&config.state_dir)?.map_or(0, |record| record.epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_comes_back_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), None);
        let record =
            Record { role: Role::Taking, epoch: 3, promised: true, replaced_by: Some("node \"2\"".into()) };
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), Some(record));
        fs::write(dir.path().join(NAME), "role = \"serv").unwrap();
        assert!(Record::read(dir.path()).unwrap_err().message.contains("neither is safe"));
    }
}
