//! What several modules need.

use e2e::Bed;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A node to be whose cartridges outlive the state directory: `library` are lines of that section, then other sections.
pub fn bed_with_library_outside(library: &str) -> Bed {
    let bed = Bed::new("");
    let config = format!("[library]\npath = {:?}\n{library}", bed.path("library"));
    fs::write(bed.state().join("config.toml"), config).unwrap();
    bed
}

/// All is lost but the configuration and the cartridges.
pub fn disaster(bed: &Bed) {
    let config = fs::read(bed.state().join("config.toml")).unwrap();
    fs::remove_dir_all(bed.state()).unwrap();
    fs::create_dir(bed.state()).unwrap();
    fs::write(bed.state().join("config.toml"), config).unwrap();
}

/// What a program writes to its standard output.
pub fn output(program: &str, arguments: &[&str], dir: &Path) -> Vec<u8> {
    let done = Command::new(program).args(arguments).current_dir(dir).output().expect("it starts");
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&str], dir: &Path) {
    output(program, arguments, dir);
}

/// The data of each section of a cartridge of ANSI labels and tar, as any program would copy it from tape.
pub fn sections(cartridge: &Path) -> Vec<Vec<u8>> {
    let mut files = vec![Vec::new()];
    for block in 0.. {
        match fs::read(cartridge.join(format!("0_{block}_R"))) {
            Ok(record) => files.last_mut().unwrap().extend(record),
            Err(_) if cartridge.join(format!("0_{block}_F")).exists() => files.push(Vec::new()),
            Err(_) => break,
        }
    }
    files.into_iter().skip(1).step_by(3).collect()
}

/// Fails with the first few differences.
pub fn same<V: PartialEq + Debug>(was: &BTreeMap<PathBuf, V>, is: &BTreeMap<PathBuf, V>) {
    let all: BTreeSet<&PathBuf> = was.keys().chain(is.keys()).collect();
    let differ = all.into_iter().filter(|path| was.get(*path) != is.get(*path));
    let told: Vec<_> = differ.take(5).map(|path| (path, was.get(path), is.get(path))).collect();
    assert!(told.is_empty(), "was, is: {told:#?}");
}

/// The request made last.
pub fn newest(bed: &Bed) -> serde_json::Value {
    bed.json(["request", "ls", "--all"])[0]["request"].clone()
}

/// The file that the message of the request made last names.
pub fn report(bed: &Bed) -> String {
    let request = newest(bed);
    let message = request["message"].as_str().unwrap();
    let path = message.rsplit(": ").next().unwrap();
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{message}: {e}"))
}
