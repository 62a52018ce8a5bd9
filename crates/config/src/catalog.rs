//! Where the catalogue lies and where it is backed up.

use crate::Config;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What names in the namespace begin with, where there is no mount.
const NAMESPACE: &str = "tc:/";

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
    pub(super) fn validate(&self, config: &Config) -> Result<(), String> {
        turns(config)?;
        self.validate_engine()?;
        let Some(to) = &self.backup_to else { return Ok(()) };
        backup_names(to)?;
        if self.backup_dir.is_none() {
            return Err(
                "catalog.backup_to is where backups go that are made in catalog.backup_dir: set that too"
                    .into(),
            );
        }
        Ok(())
    }

    fn validate_engine(&self) -> Result<(), String> {
        let Some(address) = &self.engine else { return Ok(()) };
        kv::check_address(address).map_err(|e| format!("catalog.engine: {e}"))?;
        if self.log_changes {
            return Err("catalog.log_changes is for the embedded engine only: a catalogue in a database comes back as it was at a moment by \
                        the database's own archive of its log; leave it out (backups by catalog.backup_dir work with both)"
                .into());
        }
        Ok(())
    }
}

/// What of the configuration cannot work together.
fn turns(config: &Config) -> Result<(), String> {
    let Some(seconds) = config.catalog.take_turns_s else { return Ok(()) };
    if !config.in_database() {
        return Err("catalog.take_turns_s is for nodes with the same database (catalog.engine); a catalogue in the state directory has a [standby]: take \
                    it out"
            .into());
    }
    if !(3..=30).contains(&seconds) {
        return Err(
            "catalog.take_turns_s is 3 to 30 seconds: other hosts wait a minute for the next one".into()
        );
    }
    if !config.targets.is_empty() || !config.devices.is_empty() {
        return Err("[[targets]] and [[devices]] of a node that takes turns (catalog.take_turns_s) would be away while it waits: a second node on \
                    this host, with a state directory of its own, serves them (`thermo cluster join`)"
            .into());
    }
    Ok(())
}

/// Names of the directories that lead to `catalog.backup_to`.
///
/// # Errors
/// It is no path in the namespace.
pub fn backup_names(to: &str) -> Result<Vec<&str>, String> {
    let inside = to.strip_prefix(NAMESPACE).map(|path| path.split('/').filter(|name| !name.is_empty()));
    let names: Vec<&str> = inside.into_iter().flatten().collect();
    if names.is_empty() || names.iter().any(|name| matches!(*name, "." | "..")) {
        return Err(format!(
            "catalog.backup_to is `{to}`; write a directory of the namespace, such as \"tc:/backups\""
        ));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::backup_names;

    #[test]
    fn backups_go_to_a_directory_of_the_namespace() {
        assert_eq!(backup_names("tc:/backups/catalogue/").unwrap(), ["backups", "catalogue"]);
        for wrong in ["tc:/", "/backups", "backups", "tc:backups", "tc:/a/../b"] {
            assert!(backup_names(wrong).unwrap_err().contains("catalog.backup_to"), "{wrong}");
        }
    }
}
