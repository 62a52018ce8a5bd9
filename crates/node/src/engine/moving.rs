//! Moving the catalogue of a node that is not running from one engine to another.
//!
//! At every moment one engine opens: the one that the configuration names. Each end is marked before the configuration changes, and a marked
//! engine opens only together with the note of the move ([`pending`]), which whoever opens an engine takes away before he changes
//! anything: he writes into it which one was chosen, takes the mark of that one away, and removes the note. So the other one stays refused from
//! then on, whatever a configuration says.
//!
//! 1. The copy is made, marked as one from its first moment, and compared.
//! 2. The note is written, for the source.
//! 3. The source is marked.
//! 4. The note is written for both.
//! 5. The configuration names the copy: this decides.
//! 6. The copy is opened as a start of the node opens it: its mark goes, then the note.

use super::pairs::{self, Content};
use super::{EMBEDDED, Opened, class, kind, open_counting, owner, pending};
use crate::Config;
use crate::attached::replace;
use crate::error::failure;
use crate::restore::put_in_place;
use crate::startup::{io, open_engine, patiently, prepare};
use kv::{Aside, DatabaseOptions, KvError, LmdbEngine, Role};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Table, value};
use types::ErrorClass;
use wire::Failure;

/// Where an embedded engine is filled.
const FILLING: &str = "catalog.moving";

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// So many pairs, of so many bytes in all, are copied.
    Copied {
        /// Keys with their values.
        pairs: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The copy is complete; it is read again and compared.
    Compares,
    /// Both are the same; the source is set aside.
    Marks,
    /// The configuration names the copy now.
    Switched,
}

/// What a move did.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Keys with their values.
    pub pairs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Digest of all of them, the same at both ends.
    pub digest: String,
    /// The engine that was left; it is kept.
    pub from: String,
    /// The engine that counts now.
    pub to: String,
}

/// Moves the catalogue into the database at the address `to`, or into an embedded engine (`None`), and changes the configuration in
/// `file` (made if it is not there). The node must not run. After an error, and after a kill at any moment, the engine that the configuration
/// names is whole and the only one that opens.
///
/// # Errors
/// The node runs; either engine cannot be opened or written; the place is not empty; the copies differ; the configuration cannot be changed.
pub fn move_engine(
    config: &Config,
    file: &Path,
    to: Option<&str>,
    told: &mut dyn FnMut(MoveStep),
) -> Result<Moved, Failure> {
    let plan = Plan::of(config, file, to)?;
    let state = &config.state_dir;
    let (_lock, fresh) = patiently(|| prepare(state))?;
    if fresh {
        let message = format!(
            "there is no node in {} yet, so there is nothing to move: write the address into the configuration (catalog.engine) and start it",
            state.display()
        );
        return Err(failure(ErrorClass::NotFound, message));
    }
    let source = open_counting(config, false, None, None)?;
    let from = source.shown(state);
    let id = uuid::Uuid::new_v4().to_string();
    let copy = plan.target(&mark_copy(&id, &from))?;
    let shown = match &copy {
        Opened::Embedded(_) => state.join(EMBEDDED).display().to_string(),
        Opened::Database(_) => copy.shown(state),
    };
    let content = transfer(&source, &copy, told)?;
    told(MoveStep::Marks);
    plan.place(copy, &mark_copy(&id, &from))?;
    let fail = |e: std::io::Error| io(state, &e);
    pending::choose(state, &id, kind(config)).map_err(fail)?;
    source.set_aside(Some(&mark_left(&id, &shown)))?;
    drop(source);
    pending::write(state, &id).map_err(fail)?;
    replace(&plan.file, &plan.text).map_err(|e| plan.unwritten(&e))?;
    told(MoveStep::Switched);
    open_counting(&plan.config, false, None, None).map(drop).map_err(|e| {
        let message = format!(
            "{}; the catalogue is in {shown} now, and the next start of the node goes on from there",
            e.message
        );
        failure(e.class, message)
    })?;
    let digest = content.digest.iter().map(|b| format!("{b:02x}")).collect();
    Ok(Moved { pairs: content.pairs, bytes: content.bytes, digest, from, to: shown })
}

fn mark_copy(id: &str, from: &str) -> Aside {
    let why = format!(
        "it is a copy of {from} that `thermo engine move` has not finished: let the configuration (catalog.engine) name that one, or run \
         the command again"
    );
    Aside { role: Role::Copy, id: id.into(), why }
}

fn mark_left(id: &str, to: &str) -> Aside {
    let why = format!(
        "the catalogue was moved to {to}, and this one is older: let the configuration (catalog.engine) name that one (no line for one in \
         the state directory); remove this one when it is not needed any more"
    );
    Aside { role: Role::Left, id: id.into(), why }
}

/// Copies and compares.
fn transfer(from: &Opened, to: &Opened, told: &mut dyn FnMut(MoveStep)) -> Result<Content, Failure> {
    let fail = |e: KvError| failure(class(&e), e.to_string());
    let copied =
        pairs::copy(from.engine(), to.engine(), &mut |pairs, bytes| told(MoveStep::Copied { pairs, bytes }));
    let sent = copied.map_err(fail)?;
    told(MoveStep::Compares);
    let stored = pairs::content(to.engine()).map_err(fail)?;
    if sent == stored {
        return Ok(sent);
    }
    let message = format!(
        "the copy differs from what was read ({} keys there, {} here); nothing was changed but the copy, which is not used: check the memory and \
         the disks of both ends, then try again",
        stored.pairs, sent.pairs
    );
    Err(failure(ErrorClass::Corrupt, message))
}

/// What is to be made of the configuration.
struct Plan {
    /// With the other engine.
    config: Config,
    /// The configuration file itself, not a link to it.
    file: PathBuf,
    /// Its new content.
    text: String,
}

impl Plan {
    fn of(config: &Config, file: &Path, to: Option<&str>) -> Result<Self, Failure> {
        let invalid = |message: String| failure(ErrorClass::Invalid, message);
        let in_file = |problem: String| invalid(format!("configuration {}: {problem}", file.display()));
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
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            Err(e) => return Err(in_file(format!("cannot be read: {e}"))),
        };
        let text = edited(&text, to).map_err(in_file)?;
        let parsed =
            Config::parse(&text).map_err(|e| in_file(format!("would not be valid afterwards: {e}")))?;
        if parsed.catalog != new.catalog {
            return Err(in_file("was changed meanwhile; try again".into()));
        }
        Ok(Self { config: new, file, text })
    }

    /// A new engine, set aside as a copy.
    fn target(&self, mark: &Aside) -> Result<Opened, Failure> {
        let state = &self.config.state_dir;
        let fail = |e: std::io::Error| io(state, &e);
        match &self.config.catalog.engine {
            None => {
                let dir = state.join(FILLING); // nobody opens it under this name
                if dir.exists() {
                    fs::remove_dir_all(&dir).map_err(fail)?;
                }
                Ok(Opened::Embedded(open_engine(&dir, None, None, None)?))
            }
            Some(address) => {
                let mut options = DatabaseOptions::new(&owner(state).map_err(fail)?);
                (options.take_over, options.fill) = (false, Some(mark.clone()));
                let opened = kv::open_database(address, options);
                Ok(Opened::Database(opened.map_err(|e| failure(class(&e), e.to_string()))?))
            }
        }
    }

    /// Closes a copy that is complete and puts it, still set aside, where it will be looked for.
    fn place(&self, copy: Opened, mark: &Aside) -> Result<(), Failure> {
        let state = &self.config.state_dir;
        let embedded = matches!(copy, Opened::Embedded(_));
        copy.set_aside(Some(mark))?;
        drop(copy);
        if !embedded {
            return Ok(());
        }
        let place = || {
            let kept = put_in_place(state, &state.join(FILLING), &state.join(EMBEDDED), crate::now().secs)?;
            File::open(state)?.sync_all()?;
            let unfinished = |dir: &PathBuf| {
                LmdbEngine::aside(dir).is_ok_and(|mark| mark.is_some_and(|mark| mark.role == Role::Copy))
            };
            kept.filter(unfinished).map_or(Ok(()), fs::remove_dir_all)
        };
        place().map_err(|e| io(state, &e))
    }

    fn unwritten(&self, e: &std::io::Error) -> Failure {
        let message = format!(
            "configuration {}: cannot be written: {e}; the engine that it names is the one that counts, and the next start uses it",
            self.file.display()
        );
        failure(ErrorClass::Denied, message)
    }
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
