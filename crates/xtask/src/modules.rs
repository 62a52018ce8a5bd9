//! Source files that no `mod` line names: the compiler never sees them, so that their tests pass by not running.

use std::collections::BTreeSet;
use std::path::Path;

/// Names of files that cargo or the compiler look for by themselves.
const ROOTS: &[&str] = &["lib", "main", "mod", "build"];

/// One line per file that is not compiled. `files` are all Rust sources, by their path below the root, with their text.
pub fn problems(files: &[(&str, &str)]) -> Vec<String> {
    let declared: BTreeSet<(&Path, &str)> =
        files.iter().flat_map(|(file, text)| names(text).map(move |name| (folder(file), name))).collect();
    let included: Vec<&str> = files.iter().flat_map(|(_, text)| paths(text)).collect();
    let is_lost = |file: &str| {
        let stem = Path::new(file).file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        let here = folder(file);
        let above = here.parent().unwrap_or(here);
        let named = declared.contains(&(here, stem)) || declared.contains(&(above, stem));
        let by_path = || included.iter().any(|path| file.ends_with(path.trim_start_matches("../")));
        !(ROOTS.contains(&stem) || is_a_program(here) || named || by_path())
    };
    let lost = files.iter().filter(|(file, _)| is_lost(file));
    lost.map(|(file, _)| format!("{file}: no `mod` line names it: it is not compiled")).collect()
}

fn folder(file: &str) -> &Path {
    Path::new(file).parent().unwrap_or(Path::new(""))
}

/// Each file of these directories is a program.
fn is_a_program(folder: &Path) -> bool {
    folder.ends_with("tests") || folder.ends_with("bin") || folder.ends_with("examples")
}

/// Modules that a source declares in other files.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim).filter_map(|line| line.strip_suffix(';'));
    lines.filter_map(|line| {
        let (before, name) = line.split_once("mod ")?;
        (before.is_empty() || before.starts_with("pub")).then_some(name)
    })
}

/// Files that a source includes as modules by their path.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_compiled_are_found() {
        let files = [
            ("crates/a/src/lib.rs", "pub mod one;\n#[cfg(test)]\nmod two;\nmod inner {\n}\n"),
            ("crates/a/src/one.rs", "mod below;\n"),
            ("crates/a/src/one/below.rs", ""),
            ("crates/a/src/two/mod.rs", ""),
            ("crates/a/src/bin/program.rs", ""),
            ("crates/a/src/inner.rs", ""),
            ("crates/a/tests/program.rs", "#[path = \"../../b/tests/help/server.rs\"]\nmod server;\n"),
            ("crates/b/tests/help/server.rs", ""),
            ("crates/e2e/tests/e2e/main.rs", "mod used;\n"),
            ("crates/e2e/tests/e2e/used.rs", ""),
            ("crates/e2e/tests/e2e/lost.rs", ""),
        ];
        let found = problems(&files);
        let expected = ["crates/a/src/inner.rs: no", "crates/e2e/tests/e2e/lost.rs: no"];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(found, start)| found.starts_with(start)), "{found:?}");
    }
}
