//! What the documentation shows is what was measured: its tables and pictures come from the results that are kept beside it.

use bench::{Results, pictures, rewrite};
use std::fs;
use std::path::{Path, PathBuf};

const AGAIN: &str =
    "run `thermo bench report docs/performance/*.json --into docs/PERFORMANCE.md --pictures docs/pictures`";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Names in a directory that begin and end like this, sorted.
fn names(dir: &Path, begin: &str, end: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|n| n.starts_with(begin) && n.ends_with(end)).collect();
    names.sort();
    names
}

fn published() -> Vec<Results> {
    let dir = docs().join("performance");
    let files = names(&dir, "", ".json");
    files.iter().map(|name| Results::load(&dir.join(name)).unwrap()).collect()
}

#[test]
fn tables_and_pictures_are_those_of_the_results() {
    let runs = published();
    let document = fs::read_to_string(docs().join("PERFORMANCE.md")).unwrap();
    assert!(rewrite(&document, &runs).unwrap() == document, "docs/PERFORMANCE.md differs: {AGAIN}");
    let drawn = pictures(&runs);
    for (name, picture) in &drawn {
        let known = fs::read_to_string(docs().join("pictures").join(name)).unwrap_or_default();
        assert!(known == *picture, "docs/pictures/{name} differs: {AGAIN}");
        assert!(document.contains(name), "docs/PERFORMANCE.md does not show {name}");
    }
    let mut expected: Vec<String> = drawn.into_iter().map(|(name, _)| name).collect();
    expected.sort();
    assert_eq!(names(&docs().join("pictures"), "perf-", ".svg"), expected);
}

/// Every group was measured, and every figure of the mount on every file system that the targets speak of.
#[test]
fn nothing_is_missing() {
    let runs = published();
    for group in bench::Group::ALL {
        let mut measured = runs.iter().flat_map(|run| &run.groups).filter(|m| m.group == group).peekable();
        assert!(measured.peek().is_some(), "{} was not measured", group.name());
        for comparison in measured.flat_map(|m| &m.comparisons) {
            assert_eq!(comparison.bases().len(), 3, "{}: an image is missing", comparison.name);
        }
    }
}
