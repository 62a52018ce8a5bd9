//! Which backup a catalogue is restored from, and how far the log of changes brings it.

use crate::error::failure;
use crate::restore::backups;
use kv::log::{Position, Replayed};
use kv::{Engine, KvError};
use std::path::{Path, PathBuf};
use types::{ErrorClass, Time};
use wire::Failure;

/// The log of changes, below the directory of the backups.
pub const CHANGES: &str = "changes";

/// Where a catalogue comes from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The backup.
    pub backup: PathBuf,
    /// What of the log follows it; None: nothing.
    forward: Option<Forward>,
}

#[derive(Clone, Debug)]
struct Forward {
    logs: PathBuf,
    from: Position,
    until_ms: i64,
}

impl Source {
    /// `from` is a backup, which is taken as it was made unless `at` says how far to bring it forward; or a directory of
    /// backups, of which the newest is taken that is not later than `at`, and brought forward to then (None: as far as the log
    /// goes).
    ///
    /// # Errors
    /// There is no such backup, or it has no log.
    pub fn choose(from: &Path, at: Option<Time>) -> Result<Self, Failure> {
        let until_ms = at.map_or(i64::MAX, |at| milliseconds(at).saturating_add(1));
        if from.join("data.mdb").is_file() {
            let forward = at.map(|_| Self::forward(from, until_ms)).transpose()?;
            return Ok(Self { backup: from.into(), forward });
        }
        let all = backups(from);
        let Some(newest) = all.last() else {
            let message = format!("{} is no backup of a catalogue, and holds none", from.display());
            return Err(failure(ErrorClass::NotFound, message));
        };
        let early = |backup: &&PathBuf| {
            kv::log::position(backup).is_ok_and(|found| found.is_some_and(|p| p.time_ms <= until_ms))
        };
        match (all.iter().rev().find(early), at) {
            (Some(backup), _) if at.is_some() || backup == newest => {
                Ok(Self { backup: backup.clone(), forward: Some(Self::forward(backup, until_ms)?) })
            }
            (_, None) => Ok(Self { backup: newest.clone(), forward: None }),
            (_, Some(_)) => {
                let message = format!(
                    "no backup in {} with a log of changes is as old as that: give a later time, or the directory of one of \
                     the backups",
                    from.display()
                );
                Err(failure(ErrorClass::NotFound, message))
            }
        }
    }

    fn forward(backup: &Path, until_ms: i64) -> Result<Forward, Failure> {
        let position = kv::log::position(backup).map_err(|e| refusal(backup, &e))?;
        let Some(from) = position else {
            let message = format!(
                "backup {} has no log of changes: it can be restored only as it was made, without a time",
                backup.display()
            );
            return Err(failure(ErrorClass::NotFound, message));
        };
        if from.time_ms > until_ms {
            let message = format!("backup {} was made later than that: take an older one", backup.display());
            return Err(failure(ErrorClass::Invalid, message));
        }
        let logs = backup.parent().unwrap_or(Path::new("/")).join(CHANGES);
        Ok(Forward { logs, from, until_ms })
    }

    /// Brings a copy of the backup, open as `engine`, to the moment asked for.
    ///
    /// # Errors
    /// The log is not there, has a gap, or is damaged.
    pub fn bring_forward(&self, engine: &dyn Engine) -> Result<Replayed, Failure> {
        let Some(Forward { logs, from, until_ms }) = &self.forward else { return Ok(Replayed::default()) };
        kv::log::replay(engine, logs, from, *until_ms).map_err(|e| refusal(logs, &e))
    }
}

/// Milliseconds since 1970.
pub fn milliseconds(time: Time) -> i64 {
    time.secs.saturating_mul(1000).saturating_add(i64::from(time.nanos / 1_000_000))
}

fn refusal(path: &Path, e: &KvError) -> Failure {
    let message =
        format!("change log of backup {}: {e}; the backup can be restored as it was made", path.display());
    failure(ErrorClass::Corrupt, message)
}
