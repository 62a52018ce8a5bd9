//! Writing a library into a configuration file without touching anything else in it.

use super::{AttachedDrive, AttachedLibrary};
use crate::config::{Config, ConfigError};
use parking_lot::{Mutex, MutexGuard};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

/// Puts `library` into the configuration file at `path` (made if it is not there). A library that the file has under the
/// same serial number or, without one, the same changer is replaced and keeps its name; any other stays. Comments, order
/// and formatting of everything else stay as they are. The file is replaced as a whole, or not at all.
///
/// # Errors
/// The file cannot be read, is no valid configuration, would not be one afterwards, or cannot be written.
pub fn write_library(path: &Path, library: &AttachedLibrary) -> Result<(), ConfigError> {
    let fail = |problem: String| ConfigError { path: path.to_owned(), problem };
    // The file itself is replaced, not a link to it.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let text = match fs::read_to_string(&real) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        Err(e) => return Err(fail(format!("cannot be read: {e}"))),
    };
    let text = edited(&text, library).map_err(fail)?;
    replace(&real, &text).map_err(|e| fail(format!("cannot be written: {e}; it is unchanged")))
}

fn edited(text: &str, library: &AttachedLibrary) -> Result<String, String> {
    let before = Config::parse(text)?;
    let at = before.libraries.iter().position(|other| other.is(library));
    let mut library = library.clone();
    match at {
        Some(at) => keep(&mut library, &before.libraries[at]),
        None => library.name = free_name(&before.libraries, &library.name),
    }
    let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| e.to_string())?;
    let item = document.entry("libraries").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let Some(list) = item.as_array_of_tables_mut() else {
        return Err("`libraries` is written in one line; write it as [[libraries]] sections".into());
    };
    match at.and_then(|at| list.get_mut(at)) {
        Some(old) => fill(old, &library),
        None => {
            let mut new = Table::new();
            fill(&mut new, &library);
            list.push(new);
        }
    }
    let text = document.to_string();
    Config::parse(&text).map_err(|e| format!("would not be valid with library {}: {e}", library.name))?;
    Ok(text)
}

/// What no device tells stays as it was.
fn keep(library: &mut AttachedLibrary, before: &AttachedLibrary) {
    library.name.clone_from(&before.name);
    for drive in &mut library.drives {
        drive.path = before.drives.iter().find(|old| old.is(drive)).and_then(|old| old.path.clone());
    }
}

/// `wanted`, with a number behind it if another library has that name.
fn free_name(libraries: &[AttachedLibrary], wanted: &str) -> String {
    let taken = |name: &String| libraries.iter().any(|l| &l.name == name);
    let numbered = (2..).map(|n| format!("{wanted}-{n}"));
    std::iter::once(wanted.to_owned()).chain(numbered).find(|n| !taken(n)).unwrap_or_default()
}

fn fill(table: &mut Table, library: &AttachedLibrary) {
    put(table, "name", Some(library.name.as_str().into()));
    put(table, "changer", Some(library.changer.0.to_string().into()));
    put(table, "serial", library.serial.as_deref().map(Into::into));
    let mut drives = ArrayOfTables::new();
    for drive in &library.drives {
        drives.push(entry(drive));
    }
    table.insert("drives", Item::ArrayOfTables(drives));
}

fn entry(drive: &AttachedDrive) -> Table {
    let mut table = Table::new();
    put(&mut table, "device", Some(drive.device.0.to_string().into()));
    put(&mut table, "serial", drive.serial.as_deref().map(Into::into));
    put(&mut table, "element", drive.element.map(|e| i64::from(e).into()));
    put(&mut table, "path", drive.path.as_deref().map(Into::into));
    table
}

/// Sets or removes a key; a comment behind the old value stays.
fn put(table: &mut Table, key: &str, new: Option<toml_edit::Value>) {
    let Some(mut new) = new else {
        table.remove(key);
        return;
    };
    if let Some(old) = table.get(key).and_then(Item::as_value) {
        *new.decor_mut() = old.decor().clone();
    }
    table.insert(key, value(new));
}

/// Held by whoever of this process reads a configuration file to change it: what somebody else changes in between would be lost, such as which engine counts.
static CHANGING: Mutex<()> = Mutex::new(());

/// Waits until nobody else in this process changes a configuration file.
pub(crate) fn changing() -> MutexGuard<'static, ()> {
    CHANGING.lock()
}

/// Writes a new file beside the old one and puts it in its place.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let (dir, new) = beside(path)?;
    let write = || {
        let old = fs::metadata(path);
        // Nobody else reads it before it is as the old one.
        let mode = if old.is_ok() { 0o600 } else { 0o666 };
        let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(&new)?;
        if let Ok(old) = old {
            use std::os::unix::fs::MetadataExt;
            fs::set_permissions(&new, old.permissions())?;
            // Who may not give files away keeps the new one.
            let _ = std::os::unix::fs::chown(&new, Some(old.uid()), Some(old.gid()));
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(&dir)?.sync_all()
    };
    let done = write();
    if done.is_err() {
        let _ = fs::remove_file(&new);
    }
    done
}

/// Whether [`replace`] would succeed, as far as that can be known before.
pub(crate) fn may_replace(path: &Path) -> std::io::Result<()> {
    let (_, new) = beside(path)?;
    File::create(&new)?;
    fs::remove_file(&new)
}

/// The directory of a file, and the place of the one that is to take its place.
fn beside(path: &Path) -> std::io::Result<(PathBuf, PathBuf)> {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    Ok((dir.to_owned(), dir.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attached::Device;

    const FILE: &str = r#"# our archive
mount = "/mnt/tc"   # everybody's

[disk]
capacity   = "6 TB"

# the old one
[[libraries]]
name = "hall-a"        # first floor
changer = "sg:/dev/sg4"
serial = "78A1234"
[[libraries.drives]]
device = "sg:/dev/sg1"
serial = "D1"
[[libraries.drives]]
device = "sg:/dev/sg2"
serial = "D2"

[tape]
auto_label = false     # by hand
"#;

    fn library(serial: Option<&str>, changer: &str, drives: &[(&str, &str, u16)]) -> AttachedLibrary {
        let device = |text: &str| Device(text.parse().unwrap());
        AttachedLibrary {
            name: "new".into(),
            changer: device(changer),
            serial: serial.map(str::to_owned),
            drives: drives
                .iter()
                .map(|(at, serial, element)| AttachedDrive {
                    device: device(at),
                    serial: Some((*serial).into()),
                    element: Some(*element),
                    path: None,
                })
                .collect(),
        }
    }

    /// Lines of `text` without those of the sections of libraries.
    fn others(text: &str) -> Vec<String> {
        let mut inside = false;
        let mut lines = Vec::new();
        for line in text.lines() {
            if line.starts_with('[') {
                inside = line.starts_with("[[libraries");
            }
            if !inside && !line.is_empty() {
                lines.push(line.to_owned());
            }
        }
        lines
    }

    #[test]
    fn a_known_library_is_replaced_and_nothing_else_changes() {
        let moved = library(
            Some("78A1234"),
            "sg:/dev/sg9",
            &[("sg:/dev/sg7", "D2", 256), ("sg:/dev/sg8", "D3", 257)],
        );
        let text = edited(FILE, &moved).unwrap();
        assert_eq!(others(&text), others(FILE));
        for kept in ["# the old one", "# first floor", "# by hand", "# everybody's"] {
            assert!(text.contains(kept), "{kept} is missing in\n{text}");
        }
        let config = Config::parse(&text).unwrap();
        let expected = AttachedLibrary { name: "hall-a".into(), ..moved.clone() };
        assert_eq!(config.libraries, [expected]);
        assert_eq!(edited(&text, &moved).unwrap(), text, "once more changes nothing");
    }

    #[test]
    fn the_data_path_that_somebody_gave_a_drive_stays_with_it() {
        let found = library(
            Some("78A1234"),
            "sg:/dev/sg9",
            &[("sg:/dev/sg7", "D2", 256), ("sg:/dev/sg8", "D3", 257)],
        );
        let text = edited("", &found).unwrap();
        let given = text.replacen("serial = \"D3\"", "serial = \"D3\"\npath = \"left\"", 1);
        let moved = library(
            Some("78A1234"),
            "sg:/dev/sg9",
            &[("sg:/dev/sg1", "D3", 257), ("sg:/dev/sg8", "D4", 258)],
        );
        let drives = &Config::parse(&edited(&given, &moved).unwrap()).unwrap().libraries[0].drives;
        let paths: Vec<Option<&str>> = drives.iter().map(|drive| drive.path.as_deref()).collect();
        assert_eq!(paths, [Some("left"), None]);
    }

    #[test]
    fn a_new_library_is_added_under_a_free_name() {
        let mut new = library(None, "unix:/run/b.sock", &[("unix:/run/d.sock", "D9", 1)]);
        new.name = "hall-a".into();
        let text = edited(FILE, &new).unwrap();
        assert_eq!(others(&text), others(FILE));
        let config = Config::parse(&text).unwrap();
        assert_eq!(config.libraries.len(), 2);
        assert_eq!(config.libraries[1].name, "hall-a-2");
        let alone = edited("", &new).unwrap();
        assert_eq!(Config::parse(&alone).unwrap().libraries, [new]);
    }

    #[test]
    fn what_would_not_be_valid_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, FILE).unwrap();
        let twice = library(None, "unix:/run/b.sock", &[("sg:/dev/sg1", "D1", 1)]);
        let error = write_library(&path, &twice).unwrap_err().to_string();
        assert!(error.contains("sg:/dev/sg1 is named twice"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), FILE);
        fs::write(&path, "[disk]\ncapacty = 1\n").unwrap();
        assert!(write_library(&path, &twice).unwrap_err().to_string().contains("did you mean `capacity`?"));
    }

    #[test]
    fn a_link_stays_a_link_and_the_mode_stays() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("real.toml"), dir.path().join("config.toml"));
        fs::write(&file, FILE).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_library(&link, &library(Some("N"), "sg:/dev/sg0", &[("sg:/dev/sg5", "D5", 3)])).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(Config::load(&file).unwrap().libraries.len(), 2);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no half-written file is left");
    }
}
