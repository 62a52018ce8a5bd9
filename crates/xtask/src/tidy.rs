//! Style as a test: short files and functions, no leftovers, working links.

use crate::proofs::{self, Tests};
use crate::{functions, links, modules};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Most lines of a source file.
const FILE_LINES: usize = 600;
/// Most lines of a function.
const FUNCTION_LINES: usize = 70;

/// Files that may be longer, with the reason.
const LONG_FILES: &[(&str, &str)] =
    &[("crates/fuse/tests/support/loopback.rs", "a whole file interface over a directory, for tests")];
/// Functions (`file::name`) that may be longer, with the reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("crates/catalog/tests/model/main.rs::data", "a table of operations"),
    ("crates/client/tests/common/mod.rs::file", "a table of calls"),
];

/// Endings of files that are looked at; lock files and samples are not ours to format.
const ENDINGS: &[&str] = &["rs", "toml", "md", "py", "sh", "c", "h", "yml", "yaml"];
/// This directory names what it forbids.
const SELF: &str = "crates/xtask/";

/// Looks at every file that git tracks or would track; gives one line per problem.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files could not be started")?;
    anyhow::ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let list = String::from_utf8(output.stdout).context("a file name that is not UTF-8")?;
    let mut texts = Vec::new();
    for file in list.split('\0').filter(|file| !file.is_empty()) {
        let ending = Path::new(file).extension().and_then(|e| e.to_str()).unwrap_or_default();
        let path = root.join(file);
        if !ENDINGS.contains(&ending) || !path.is_file() {
            continue;
        }
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("{file} could not be read as text"))?;
        texts.push((file, text));
    }
    let mut tests = Tests::default();
    texts.iter().filter(|(file, _)| file.ends_with(".rs")).for_each(|(file, text)| tests.add(file, text));
    let mut problems: Vec<String> = texts
        .iter()
        .flat_map(|(file, text)| [one_file(root, file, text), proofs::problems(file, text, &tests)].concat())
        .collect();
    problems.extend(stale_exceptions(&texts));
    let sources = texts.iter().filter(|(file, _)| file.ends_with(".rs"));
    let sources: Vec<(&str, &str)> = sources.map(|(file, text)| (*file, text.as_str())).collect();
    problems.extend(modules::problems(&sources));
    Ok(problems)
}

fn one_file(root: &Path, file: &str, text: &str) -> Vec<String> {
    let mut problems = layout(file, text);
    if file.ends_with(".rs") || file.ends_with(".py") {
        problems.extend(lengths(file, text));
    }
    if !file.starts_with(SELF) {
        problems.extend(leftovers(file, text));
    }
    if file.ends_with(".md") {
        let broken = links::broken(root, Path::new(file), text);
        problems.extend(
            broken.into_iter().map(|target| format!("{file}: link to {target}, which does not exist")),
        );
    }
    problems
}

fn layout(file: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if !text.is_empty() && !text.ends_with('\n') {
        problems.push(format!("{file}: no newline at its end"));
    }
    for (line, content) in text.lines().enumerate() {
        if content.contains('\t') {
            problems.push(format!("{file}:{}: a tab", line + 1));
        }
        if content.ends_with([' ', '\r']) {
            problems.push(format!("{file}:{}: space at the end of the line", line + 1));
        }
    }
    problems
}

fn lengths(file: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES && !LONG_FILES.iter().any(|(listed, _)| *listed == file) {
        problems.push(format!("{file}: {lines} lines, {FILE_LINES} are allowed: split it"));
    }
    if !file.ends_with(".rs") {
        return problems;
    }
    for long in functions::longer_than(FUNCTION_LINES, text) {
        let key = format!("{file}::{}", long.name);
        if !LONG_FUNCTIONS.iter().any(|(listed, _)| *listed == key) {
            let functions::Long { name, line, length } = long;
            problems.push(format!(
                "{file}:{line}: function {name} has {length} lines, {FUNCTION_LINES} are allowed"
            ));
        }
    }
    problems
}

/// Unfinished code in Rust, and paths of the machine that a text was written on anywhere.
fn leftovers(file: &str, text: &str) -> Vec<String> {
    let unfinished = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore]"];
    let machine = ["work", "root"].map(|directory| format!("/{directory}/"));
    let mut problems = Vec::new();
    for (line, content) in text.lines().enumerate() {
        if file.ends_with(".rs") {
            let found = unfinished.iter().filter(|mark| content.contains(**mark));
            problems.extend(found.map(|mark| format!("{file}:{}: {mark} is unfinished work", line + 1)));
        }
        let found = machine.iter().filter(|path| starts_a_path(content, path));
        problems.extend(found.map(|path| format!("{file}:{}: {path} is a path of one machine", line + 1)));
    }
    problems
}

/// Whether `path` occurs as the start of an absolute path, not in the middle of a longer one.
fn starts_a_path(line: &str, path: &str) -> bool {
    let before = |at: usize| line[..at].chars().next_back();
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '}' | '$' | '~' | '*');
    line.match_indices(path).any(|(at, _)| !before(at).is_some_and(inside))
}

/// Exceptions that nothing needs any more are taken out again, so that the lists only shrink.
fn stale_exceptions(texts: &[(&str, String)]) -> Vec<String> {
    let text = |file: &str| texts.iter().find(|(name, _)| *name == file).map_or("", |(_, text)| text);
    let long_file = |file: &str| text(file).lines().count() > FILE_LINES;
    let long_function = |key: &str| {
        let (file, function) = key.split_once("::").unwrap_or_default();
        functions::longer_than(FUNCTION_LINES, text(file)).iter().any(|long| long.name == function)
    };
    let files = LONG_FILES.iter().map(|(file, _)| *file).filter(|file| !long_file(file));
    let functions = LONG_FUNCTIONS.iter().map(|(key, _)| *key).filter(|key| !long_function(key));
    let stale = files.chain(functions);
    stale.map(|one| format!("{one}: listed as an exception in {SELF}src/tidy.rs, but not long")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        one_file(Path::new("/nowhere"), file, text)
    }

    #[test]
    fn exceptions_that_nothing_needs_are_found() {
        let all = LONG_FILES.len() + LONG_FUNCTIONS.len();
        assert_eq!(stale_exceptions(&[]).len(), all);
        let (file, _) = LONG_FILES[0];
        assert_eq!(stale_exceptions(&[(file, "x\n".repeat(FILE_LINES))]).len(), all);
        assert_eq!(stale_exceptions(&[(file, "x\n".repeat(FILE_LINES + 1))]).len(), all - 1);
    }

    #[test]
    fn each_problem_is_found() {
        let long = format!("fn f() {{\n{}}}\n", "    x();\n".repeat(FUNCTION_LINES));
        let cases = [
            ("a.rs", "x".to_owned(), "no newline"),
            ("a.rs", "\tx\n".to_owned(), "a tab"),
            ("a.md", "x \n".to_owned(), "space at the end"),
            ("a.py", "x\n".repeat(FILE_LINES + 1), "601 lines"),
            ("a.rs", long, "function f has 72 lines"),
            ("a.rs", "    todo!()\n".to_owned(), "unfinished"),
            ("a.sh", format!("cd /{}/main\n", "work"), "path of one machine"),
            ("a.md", "[x](gone.md)\n".to_owned(), "does not exist"),
        ];
        for (file, text, expected) in cases {
            let problems = found(file, &text);
            assert!(problems.len() == 1 && problems[0].contains(expected), "{file} {expected}: {problems:?}");
        }
        assert_eq!(found("a.rs", "//! Fine: docs/work/x and ~/home/x.\nfn f() {}\n"), Vec::<String>::new());
    }
}
