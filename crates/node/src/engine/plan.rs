//! Where a move goes: the other engine, and the configuration that names it.

use super::{EMBEDDED, Opened, class, kind, owner};
use crate::Config;
use crate::attached::{changing, may_replace, replace};
use crate::config::CatalogConfig;
use crate::error::failure;
use crate::restore::put_in_place;
use crate::startup::{io, open_engine};
use kv::{Aside, DatabaseOptions, LmdbEngine, Role};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toml_edit::{DocumentMut, Item, Table, value};
use types::ErrorClass;
use wire::Failure;

/// Between two attempts, and how many there are.
const AGAIN: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 30;
/// Where an embedded engine is filled.
const FILLING: &str = "catalog.moving";

/// What is to be made of the configuration.
#[derive(Clone)]
pub(super) struct Plan {
    /// With the other engine.
    pub(super) config: Config,
    /// How the note of a move calls the engine that is left.
    from: &'static str,
}

impl Plan {
    /// To the address `to`, or to the state directory (`None`), from where `config` says that the catalogue is.
    pub(super) fn of(config: &Config, to: Option<&str>) -> Result<Self, Failure> {
        let invalid = |message: String| failure(ErrorClass::Invalid, message);
        if config.catalog.engine.as_deref() == to {
            return Err(invalid(
                "the catalogue is there already (catalog.engine in the configuration)".into(),
            ));
        }
        if config.in_database() && to.is_some() {
            let message = "from one database to another the catalogue goes by way of the state directory: move it there first (--to embedded)";
            return Err(invalid(message.into()));
        }
        let mut new = config.clone();
        new.catalog.engine = to.map(Into::into);
        new.validate().map_err(|e| invalid(format!("configuration: {e}")))?;
        let plan = Self { config: new, from: kind(config) };
        let (file, _) = plan.file()?;
        match may_replace(&file) {
            Ok(()) => Ok(plan),
            Err(e) => Err(plan.unwritten(&file, &e)),
        }
    }

    fn unwritten(&self, file: &Path, e: &std::io::Error) -> Failure {
        let (file, engine) = (file.display(), self.config.catalog.engine.as_deref());
        let line = engine.map_or("no line `engine`".to_owned(), |to| format!("engine = \"{to}\""));
        let message = format!(
            "configuration {file}: it cannot be written ({e}), and the move ends with its [catalog] having {line}: let the node write it, then move"
        );
        failure(ErrorClass::Denied, message)
    }

    /// The configuration file itself, not a link to it, and what it is to be; read anew, since somebody may change something else in it meanwhile.
    fn file(&self) -> Result<(PathBuf, String), Failure> {
        let config = &self.config;
        let file = config.file.clone().unwrap_or_else(|| config.state_dir.join("config.toml"));
        let file = file.canonicalize().unwrap_or(file);
        let in_file = |problem: String| {
            failure(ErrorClass::Invalid, format!("configuration {}: {problem}", file.display()))
        };
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            Err(e) => return Err(in_file(format!("cannot be read: {e}"))),
        };
        let text = edited(&text, config.catalog.engine.as_deref()).map_err(in_file)?;
        let parsed =
            Config::parse(&text).map_err(|e| in_file(format!("would not be valid afterwards: {e}")))?;
        // What a node takes over while it runs matters to no engine.
        let same = CatalogConfig {
            backup_to: parsed.catalog.backup_to.clone(),
            backup_every_s: parsed.catalog.backup_every_s,
            backup_keep: parsed.catalog.backup_keep,
            ..config.catalog.clone()
        };
        if parsed.catalog != same {
            return Err(in_file(
                "its section [catalog] is not the one that was read: put it back, or restart the node, and try again"
                    .into(),
            ));
        }
        Ok((file, text))
    }

    /// How the note of the move calls both engines: the one that is left, and the new one.
    pub(super) fn kinds(&self) -> (&'static str, &'static str) {
        (self.from, kind(&self.config))
    }

    /// A new engine, set aside as a copy, or where nobody opens it.
    pub(super) fn target(&self, mark: &Aside) -> Result<Opened, Failure> {
        let state = &self.config.state_dir;
        let fail = |e: std::io::Error| io(state, &e);
        match &self.config.catalog.engine {
            None => {
                let dir = state.join(FILLING); // nobody opens it under this name
                if dir.exists() {
                    fs::remove_dir_all(&dir).map_err(fail)?;
                }
                Ok(Opened::Embedded(Arc::new(open_engine(&dir, None, None, None)?)))
            }
            Some(address) => {
                let mut options = DatabaseOptions::new(&owner(state).map_err(fail)?);
                (options.take_over, options.fill) = (false, Some(mark.clone()));
                let opened = kv::open_database(address, options);
                let engine = opened.map_err(|e| failure(class(&e), e.to_string()))?;
                Ok(Opened::Database { engine, address: address.clone() })
            }
        }
    }

    /// Puts a copy, still set aside, where it will be looked for.
    pub(super) fn place(&self, copy: Opened, mark: &Aside) -> Result<Opened, Failure> {
        if matches!(copy, Opened::Database { .. }) {
            return Ok(copy);
        }
        let state = &self.config.state_dir;
        copy.set_aside(Some(mark))?;
        drop(copy);
        let place = || {
            let kept = put_in_place(state, &state.join(FILLING), &state.join(EMBEDDED), crate::now().secs)?;
            File::open(state)?.sync_all()?;
            let unfinished = |dir: &PathBuf| {
                LmdbEngine::aside(dir).is_ok_and(|mark| mark.is_some_and(|mark| mark.role == Role::Copy))
            };
            kept.filter(unfinished).map_or(Ok(()), fs::remove_dir_all)
        };
        place().map_err(|e| io(state, &e))?;
        let engine = open_engine(&state.join(EMBEDDED), None, Some(&mark.id), None)?;
        Ok(Opened::Embedded(Arc::new(engine)))
    }

    /// Changes the configuration, durably: this decides.
    pub(super) fn decide(&self) -> Result<(), Failure> {
        let _one = changing();
        let (file, text) = self.file()?;
        match replace(&file, &text) {
            Ok(()) => Ok(()),
            // It has failed behind the renaming.
            Err(_) if fs::read_to_string(&file).is_ok_and(|now| now == text) => {
                let dir = file.parent().unwrap_or(&self.config.state_dir);
                surely("the name of the configuration", || File::open(dir)?.sync_all());
                Ok(())
            }
            Err(e) => Err(self.unwritten(&file, &e)),
        }
    }
}

/// Makes something durable on which it depends which of two engines counts. While it is not known to be, neither may acknowledge a change: if the
/// disk refuses for half a minute, the process ends, and the next start decides.
pub(super) fn surely(what: &str, mut sync: impl FnMut() -> std::io::Result<()>) {
    for _ in 0..ATTEMPTS {
        let Err(e) = sync() else { return };
        tracing::error!(
            "moving the catalogue: {what} is not durable: {e}; tried again, nothing changes meanwhile"
        );
        crate::clock::sleep(AGAIN);
    }
    tracing::error!(
        "moving the catalogue: {what} does not get durable; this process ends: look at the disk, then start the node again"
    );
    std::process::abort();
}

/// The text of a configuration with another engine; everything else stays as it is.
fn edited(text: &str, engine: Option<&str>) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| e.to_string())?;
    let section = document.entry("catalog").or_insert_with(|| Item::Table(Table::new()));
    let Some(section) = section.as_table_like_mut() else {
        return Err("`catalog` is no section; write it as [catalog]".into());
    };
    match engine {
        None => drop(section.remove("engine")),
        Some(address) => {
            let mut new = toml_edit::Value::from(address);
            if let Some(old) = section.get("engine").and_then(Item::as_value) {
                *new.decor_mut() = old.decor().clone();
            }
            section.insert("engine", value(new));
        }
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_written_is_found_before_anything_is_copied() {
        let mut config = Config { file: Some("/proc/self/config.toml".into()), ..Config::default() };
        let to = "postgres://thermo@db/thermo";
        let refused = Plan::of(&config, Some(to)).err().unwrap().message;
        assert!(refused.contains("cannot be written") && refused.contains(to), "{refused}");
        let dir = tempfile::tempdir().unwrap();
        config.file = Some(dir.path().join("config.toml"));
        assert!(Plan::of(&config, Some(to)).is_ok());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_configuration_changes_in_one_line_only() {
        let address = "postgres://thermo@db/thermo?connections=8";
        let before = "# ours\nmount = \"/mnt\"\n\n[catalog] # names\nbackup_keep = 3\n";
        let with = edited(before, Some(address)).unwrap();
        assert_eq!(with, format!("{before}engine = \"{address}\"\n"));
        assert_eq!(edited(&with, None).unwrap(), before);
        assert_eq!(edited("", Some(address)).unwrap(), format!("[catalog]\nengine = \"{address}\"\n"));
        let inline = edited("catalog = { backup_keep = 3 }\n", Some(address)).unwrap();
        assert_eq!(Config::parse(&inline).unwrap().catalog.engine.as_deref(), Some(address));
        assert!(edited("catalog = 3\n", Some(address)).is_err());
    }
}
