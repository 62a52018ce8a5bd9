//! Where the catalogue lies and where it is backed up.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The catalogue's engine and backups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogConfig {
    /// Address of the database that holds the catalogue (`postgres://USER@HOST/DATABASE`, `tikv://HOST:PORT/NAME`); none: the embedded engine in the state directory.
    pub engine: Option<String>,
    /// Several nodes with the same database take turns: one serves, and when it has given no sign of life for so long (seconds) another one goes on in
    /// its place; none: the database belongs to this node alone.
    pub take_turns_s: Option<u32>,
    /// Directory of the backups, on another disk than the state directory; none: no backups are made by themselves.
    pub backup_dir: Option<PathBuf>,
    /// Directory of the namespace (`tc:/backups`) into which they are put as well, to go to tape; none: they stay outside of it.
    pub backup_to: Option<String>,
    /// Time between two backups (seconds).
    pub backup_every_s: u32,
    /// Backups that are kept in each place; older ones are removed.
    pub backup_keep: u32,
    /// Log all changes of the catalogue beside the backups, so that it can be restored as it was at any moment; the directory
    /// must not lie below a mount of this node.
    pub log_changes: bool,
}

impl Default for CatalogConfig {
    fn default() -> Self {
        Self {
            engine: None,
            take_turns_s: None,
            backup_dir: None,
            backup_to: None,
            backup_every_s: 24 * 3600,
            backup_keep: 7,
            log_changes: false,
        }
    }
}

impl CatalogConfig {
    /// Checks what the types cannot.
    pub(super) fn validate(&self) -> Result<(), String> {
        let Some(to) = &self.backup_to else { return Ok(()) };
        crate::backup_to::names(to)?;
        if self.backup_dir.is_none() {
            return Err(
                "catalog.backup_to is where backups go that are made in catalog.backup_dir: set that too"
                    .into(),
            );
        }
        Ok(())
    }
}
