//! What of the configuration may change while the node runs: its file is read again when somebody asks for that.

use crate::Config;
use crate::Node;
use crate::attached::{Used, changing, in_force, meet_used, replace};
use crate::config::{DeviceConfig, TapeConfig, TargetConfig};
use crate::error::failure;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};
use types::{DriveNo, ErrorClass};
use wire::{Failure, Reloaded};

/// The configuration that is in force.
pub(crate) struct Settings(RwLock<Arc<Config>>);

impl Settings {
    pub(crate) fn new(config: &Config) -> Self {
        Self(RwLock::new(Arc::new(config.clone())))
    }
}

/// A configuration that was read while another one is in force.
struct Judged {
    old: Arc<Config>,
    /// What is to be in force.
    now: Config,
    /// What will be, from the next start on.
    new: Config,
}

impl Node {
    /// The configuration as it is in force now. What is not in [`merged`] is as it was at the start.
    pub(crate) fn settings(&self) -> Arc<Config> {
        self.settings.0.read().clone()
    }

    /// Reads the configuration again, and takes over what may change while the node runs.
    ///
    /// # Errors
    /// The file cannot be read, or is not valid: nothing has changed.
    pub(crate) fn reload(self: &Arc<Self>) -> Result<Reloaded, Failure> {
        let _one = changing();
        let (file, text) = self.read_configuration()?;
        match text {
            Some(text) => Ok(self.put_in_force(self.judge(&file, &text)?)),
            None => Err(in_file(&file, "there is no such file: the node runs with what is built in")),
        }
    }

    /// Writes one more target of this host into the configuration, and takes it over.
    ///
    /// # Errors
    /// It is no directory, or a target already; the configuration cannot be written, or would not be valid: nothing has changed.
    pub(crate) fn add_target(self: &Arc<Self>, path: &Path, domain: &str) -> Result<Reloaded, Failure> {
        let invalid =
            |problem: &str| failure(ErrorClass::Invalid, format!("target {}: {problem}", path.display()));
        let given =
            path.to_str().ok_or_else(|| invalid("its path is not UTF-8, and cannot be configured"))?;
        if given.chars().any(char::is_control) {
            return Err(invalid("its path has control characters"));
        }
        // By whatever other way it is named.
        let is = |one: &TargetConfig| {
            one.path.canonicalize().is_ok_and(|one| path.canonicalize().is_ok_and(|path| path == one))
        };
        if self.settings().targets.iter().any(is) {
            return Err(invalid("is a target already; see `thermo target ls`"));
        }
        if !path.is_absolute() || !path.is_dir() {
            return Err(invalid(
                "is no directory of this host: make its file system, mount it, and name where",
            ));
        }
        if self.config.cluster.data_listen.is_none() {
            return Err(invalid(
                "this node moves no bytes: set cluster.data_listen in its configuration, and start it again",
            ));
        }
        let _one = changing();
        let (file, before) = self.read_configuration()?;
        let text = with_target(&before.unwrap_or_default(), given, domain).map_err(|e| in_file(&file, &e))?;
        // Before it is written: a start with it would fail, too.
        let new = self.judge(&file, &text)?;
        replace(&file, &text).map_err(|e| in_file(&file, &format!("cannot be written: {e}")))?;
        Ok(self.put_in_force(new))
    }

    /// The file itself, not a link to it, and what is in it; None: it is not there.
    fn read_configuration(&self) -> Result<(PathBuf, Option<String>), Failure> {
        let config = &self.config;
        let file = config.file.clone().unwrap_or_else(|| config.state_dir.join("config.toml"));
        let file = file.canonicalize().unwrap_or(file);
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok((file, Some(text))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok((file, None)),
            Err(e) => Err(in_file(&file, &format!("cannot be read: {e}"))),
        }
    }

    /// The configuration of this text, if it is valid, and so is what of it counts at once.
    fn judge(&self, file: &Path, text: &str) -> Result<Judged, Failure> {
        let mut new = Config::parse(text).map_err(|e| in_file(file, &e))?;
        // A command line may have the last word in these, and they count at a start only.
        new.state_dir.clone_from(&self.config.state_dir);
        new.mount.clone_from(&self.config.mount);
        new.file.clone_from(&self.config.file);
        new.validate().map_err(|e| in_file(file, &e))?;
        let old = self.settings();
        // A move of the catalogue writes that itself, and it is in force then.
        new.catalog.engine.clone_from(&old.catalog.engine);
        let now = merged(&old, &new, &|drive| self.has_placed(drive), &self.hardware.used());
        let together =
            |e| format!("what of it counts now does not go with what counts from the next start on: {e}");
        now.validate().map_err(|e| in_file(file, &together(e)))?;
        Ok(Judged { old, now, new })
    }

    fn put_in_force(self: &Arc<Self>, Judged { old, now, new }: Judged) -> Reloaded {
        let reloaded = Reloaded { taken: differences(&old, &now), later: differences(&now, &new) };
        *self.settings.0.write() = Arc::new(now);
        self.apply();
        self.renew_libraries(&self.settings().libraries);
        let tell = |keys: &[String]| if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
        tracing::info!(
            "the configuration was read again: taken over {}; at the next start {}",
            tell(&reloaded.taken),
            tell(&reloaded.later)
        );
        reloaded
    }

    /// Has those know who keep something of the configuration.
    pub(crate) fn apply(&self) {
        let now = self.settings();
        self.space.configure(&now.disk);
        self.writes.renew(&now.limits);
        self.archive.renew(&now.limits);
        self.given.renew(&now.devices);
        self.governor.wake();
    }
}

fn in_file(file: &Path, problem: &str) -> Failure {
    failure(ErrorClass::Invalid, format!("configuration {}: {problem}", file.display()))
}

/// A configuration with what of a new one is taken over while the node runs. `is_placed`: see [`in_force`]; `used`: the drives as they are used.
fn merged(old: &Config, new: &Config, is_placed: &dyn Fn(DriveNo) -> bool, used: &[Used]) -> Config {
    let mut now = old.clone();
    now.cluster.move_rate = new.cluster.move_rate;
    now.cluster.scrub_rate = new.cluster.scrub_rate;
    now.cluster.scrub_every_days = new.cluster.scrub_every_days;
    // Sizes of records and buffers, and what is set in a drive when it is opened, stay as they are.
    now.tape = TapeConfig {
        block_size: old.tape.block_size,
        buffers: old.tape.buffers,
        block_protection: old.tape.block_protection,
        compression: old.tape.compression,
        append_only: old.tape.append_only,
        reserve: old.tape.reserve,
        ..new.tape.clone()
    };
    // What is said of another disk does not count for this one.
    if old.disk.path == new.disk.path {
        now.disk.clone_from(&new.disk);
    }
    now.limits.clone_from(&new.limits);
    if old.catalog.backup_dir.is_some() && old.catalog.backup_dir == new.catalog.backup_dir {
        now.catalog.backup_to.clone_from(&new.catalog.backup_to);
        now.catalog.backup_every_s = new.catalog.backup_every_s;
        now.catalog.backup_keep = new.catalog.backup_keep;
    }
    now.undelete.clone_from(&new.undelete);
    now.reclaim.clone_from(&new.reclaim);
    // One that is served stays so until a start: files lie there.
    if old.cluster.data_listen.is_some() {
        let kept = old.targets.iter().filter(|target| !new.targets.iter().any(|one| one.path == target.path));
        let gone: Vec<TargetConfig> = kept.cloned().collect();
        now.targets = new.targets.iter().cloned().chain(gone).collect();
    }
    let without = now.clone();
    let libraries = in_force(&old.libraries, &new.libraries, is_placed, used);
    if !meet_used(&libraries, used) {
        now.libraries = libraries;
    }
    let is_used = |given: &DeviceConfig| used.iter().any(|one| one.drive.device == given.device);
    if old.cluster.listen.is_some() && !new.devices.iter().any(is_used) {
        now.devices.clone_from(&new.devices);
    }
    // A device may come to where only the next start takes another one away.
    if now.validate().is_ok() { now } else { without }
}

/// Keys whose values are not the same in two configurations.
fn differences(one: &Config, other: &Config) -> Vec<String> {
    let flat = |config: &Config| {
        let mut all = BTreeMap::new();
        if let Ok(table) = toml::Value::try_from(config) {
            flatten("", &table, &mut all);
        }
        all
    };
    let (one, other) = (flat(one), flat(other));
    let keys = one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key));
    keys.cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

fn flatten(name: &str, table: &toml::Value, all: &mut BTreeMap<String, String>) {
    match table {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, all);
            }
        }
        other => drop(all.insert(name.to_owned(), other.to_string())),
    }
}

/// The text of a configuration with one more target; everything else stays as it is.
fn with_target(text: &str, path: &str, domain: &str) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| e.to_string())?;
    let targets = document.entry("targets").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let Some(targets) = targets.as_array_of_tables_mut() else {
        return Err("`targets` is no list of [[targets]]: write it so, or add the target yourself and `thermo reload`".into());
    };
    if targets.iter().any(|target| target.get("path").and_then(Item::as_str) == Some(path)) {
        return Err(format!("{path} is a target already; see `thermo target ls`"));
    }
    let mut target = Table::new();
    target.insert("path", value(path));
    if !domain.is_empty() {
        target.insert("domain", value(domain));
    }
    targets.push(target);
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text).unwrap()
    }

    #[test]
    fn what_may_change_is_taken_over_and_all_else_is_named_for_the_next_start() {
        let old = config("[cluster]\ndata_listen = \"192.0.2.1:7431\"\n[[targets]]\npath = \"/t1\"");
        let new = config(
            "[cluster]\ndata_listen = \"192.0.2.1:7432\"\nmove_rate = \"5 MB\"\n[undelete]\nkeep_days = 3\n[tape]\nindex_every = \"3 GiB\"\nblock_size = \"1 MiB\"\n\
             [[targets]]\npath = \"/t2\"\ndomain = \"room 2\"",
        );
        let now = merged(&old, &new, &|_| true, &[]);
        assert_eq!(
            differences(&old, &now),
            ["cluster.move_rate", "tape.index_every", "targets", "undelete.keep_days"]
        );
        assert_eq!(differences(&now, &new), ["cluster.data_listen", "tape.block_size", "targets"]);
        let paths: Vec<_> = now.targets.iter().map(|target| target.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/t2", "/t1"], "one that is served is served on");
        assert_eq!(now.cluster.move_rate.0, 5_000_000);
        assert_eq!(differences(&new, &new), Vec::<String>::new());
        // What is said of another disk, or of backups that nobody makes yet, does not count for those of now.
        let old = config("[disk]\npath = \"/a\"\ncapacity = \"1 TB\"\n[catalog]\nbackup_dir = \"/b\"");
        let new = config(
            "[disk]\npath = \"/c\"\ncapacity = \"1 GB\"\n[catalog]\nbackup_dir = \"/b\"\nbackup_keep = 2",
        );
        assert_eq!(differences(&old, &merged(&old, &new, &|_| true, &[])), ["catalog.backup_keep"]);
        let none = config("");
        assert_eq!(
            differences(
                &none,
                &merged(&none, &config("[catalog]\nbackup_dir = \"/b\"\nbackup_keep = 2"), &|_| true, &[])
            ),
            [""; 0]
        );
        let new = config("[cluster]\ndata_listen = \"192.0.2.1:7432\"\n[[targets]]\npath = \"/t2\"");
        // Without an address where bytes are moved nothing would come of a target.
        let none = merged(&config(""), &new, &|_| true, &[]);
        assert!(none.targets.is_empty());
    }

    #[test]
    fn drives_and_libraries_are_taken_over_as_far_as_they_go_together() {
        let listen = "[cluster]\nlisten = \"192.0.2.1:7430\"\n";
        let device = |at: &str| format!("[[devices]]\nname = \"d\"\ndevice = \"unix:/{at}\"\nnode = 1\n");
        let library = |name: &str, drives: &[&str]| {
            let drive =
                |at: &&str| format!("[[libraries.drives]]\ndevice = \"unix:/{at}\"\nserial = \"{at}\"\n");
            let drives: String = drives.iter().map(drive).collect();
            format!("[[libraries]]\nname = \"{name}\"\nchanger = \"unix:/{name}\"\n{drives}")
        };
        let old = config(&[listen, &device("x"), &library("a", &["1", "2"])].concat());
        let used = |config: &Config| -> Vec<_> {
            let all = (0..).map(DriveNo).zip(config.libraries.iter().flat_map(|one| one.drives.clone()));
            all.map(|(no, drive)| Used { no, drive, opened: true }).collect()
        };
        let in_use = used(&old);
        let told = |old: &Config, new: &[&str]| {
            let new = config(&new.concat());
            let now = merged(old, &new, &|_| true, &in_use);
            (differences(old, &now), differences(&now, &new))
        };
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (longer, more) = (library("a", &["1", "2", "3"]), library("b", &["4"]));
        assert_eq!(
            told(&old, &[listen, &device("y"), &longer, &more]),
            (names(&["devices", "libraries"]), names(&[]))
        );
        assert_eq!(
            told(&old, &[listen, &device("x"), &library("a", &["2"])]),
            (names(&[]), names(&["libraries"]))
        );
        // Drive 2 is given to another node, once the library has let go of it.
        let both = names(&["devices", "libraries"]);
        assert_eq!(told(&old, &[listen, &device("2"), &library("a", &["1"])]), (names(&[]), both));
        // Another one comes in its place, and it is at work until that one is opened.
        let (new, first) = ([listen, &device("2"), &library("a", &["1", "5"])], names(&["libraries"]));
        assert_eq!(told(&old, &new), (first, names(&["devices"])));
        let replaced = config(&[listen, &device("x"), &library("a", &["1", "5"])].concat());
        assert_eq!(told(&replaced, &new), (names(&[]), names(&["devices"])));
        let now = merged(&replaced, &config(&new.concat()), &|_| true, &used(&replaced));
        assert_eq!(now.devices.len(), 1);
        assert_eq!(differences(&replaced, &now), ["devices"]);
        // Nobody could call for a device.
        let alone = config(&library("a", &["1", "2"]));
        let (taken, later) = told(&alone, &[listen, &device("x"), &library("a", &["1", "5"])]);
        assert_eq!((taken, later), (names(&["libraries"]), names(&["cluster.listen", "devices"])));
    }

    #[test]
    fn a_target_is_added_and_the_rest_of_the_file_stays() {
        let text = "# ours\n[cluster] # here\ndata_listen = \"192.0.2.1:7431\"\n\n[[targets]]\npath = \"/t1\" # shelf 1\n\n[undelete]\nkeep_days = 3\n";
        let new = with_target(text, "/t 2", "shelf 2").unwrap();
        for line in text.lines() {
            assert!(new.contains(line), "{new}");
        }
        let targets = config(&new).targets;
        assert_eq!(
            (targets.len(), targets[1].path.to_str(), targets[1].domain.as_str()),
            (2, Some("/t 2"), "shelf 2")
        );
        assert!(with_target(&new, "/t1", "").unwrap_err().contains("already"));
        let alone = with_target("", "/t1", "").unwrap();
        assert_eq!(alone, "[[targets]]\npath = \"/t1\"\n");
        assert!(with_target("targets = []", "/t1", "").is_err());
    }
}
