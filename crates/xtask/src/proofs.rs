//! Documentation names tests as proof; this looks that they exist.

use std::collections::BTreeMap;
use std::path::Path;

/// Documents whose code spans like `module::test_name` are names of tests.
const DOCUMENTS: &[&str] =
    &["docs/ARCHITECTURE.md", "docs/SEMANTICS.md", "docs/STATUS.md", "docs/OPERATIONS.md"];
/// The document of which every list item must name a test.
const PROVEN: &str = "docs/SEMANTICS.md";
/// What an item says that no test can prove.
const EXCUSE: &str = "(Not tested:";

/// Tests of the workspace: name of the function, and the words of the path that leads to it (crate, directories, file,
/// modules within the file).
#[derive(Default)]
pub struct Tests {
    paths: BTreeMap<String, Vec<Vec<String>>>,
}

impl Tests {
    /// Adds the tests of one source file, given with its path below the root.
    pub fn add(&mut self, file: &str, source: &str) {
        let path = Path::new(file).with_extension("");
        let mut words: Vec<String> =
            path.components().map(|part| part.as_os_str().to_string_lossy().replace('-', "_")).collect();
        let modules = source.lines().filter_map(|line| line.trim().strip_prefix("mod "));
        words.extend(modules.map(|rest| rest.trim_end_matches([' ', '{', ';']).to_owned()));
        let mut marked = false;
        for line in source.lines().map(str::trim) {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            if line.starts_with("#[test]") {
                marked = true;
            } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| marked) {
                let name = &rest[..rest.find('(').unwrap_or(rest.len())];
                self.paths.entry(name.to_owned()).or_default().push(words.clone());
                marked = false;
            }
        }
    }

    /// Whether a name such as `crash::fsynced_files_are_whole`, `posix::*` or `a_bare_name` is that of a test.
    fn has(&self, span: &str) -> bool {
        let mut words: Vec<&str> = span.split("::").collect();
        let name = words.pop().unwrap_or_default();
        let leads_here = |path: &Vec<String>| words.iter().all(|word| path.iter().any(|part| part == word));
        match name {
            "*" => self.paths.values().flatten().any(leads_here),
            _ => self.paths.get(name).is_some_and(|paths| paths.iter().any(leads_here)),
        }
    }
}

/// Names of tests that do not exist, and promises without a test.
pub fn problems(file: &str, text: &str, tests: &Tests) -> Vec<String> {
    if !DOCUMENTS.contains(&file) {
        return Vec::new();
    }
    let mut problems: Vec<String> = spans(text)
        .filter(|span| names_a_test(span) && !tests.has(span))
        .map(|span| format!("{file}: there is no test {span}"))
        .collect();
    if file == PROVEN {
        let unproven =
            items(text).filter(|item| !item.contains(EXCUSE) && !spans(item).any(|s| tests.has(s)));
        problems.extend(unproven.map(|item| {
            let start: String = item.chars().take(60).collect();
            format!("{file}: names no test: {start}")
        }));
    }
    problems
}

/// Words in code quotes that can only be meant as a test: lower case, with a module or of several words.
fn names_a_test(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | ':' | '*');
    let of_words = span.matches('_').count() >= 3;
    span.chars().all(plain) && (span.contains("::") || of_words)
}

fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// List items, each with the lines that belong to it.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = text.match_indices("\n- ").map(|(at, _)| at + 1).collect();
    starts.into_iter().map(|start| {
        let rest = &text[start..];
        let end = ["\n- ", "\n\n", "\n#"].iter().filter_map(|mark| rest.find(mark)).min();
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Tests {
        let mut tests = Tests::default();
        tests.add(
            "crates/disk/tests/loss.rs",
            "mod deep {\n    #[test]\n    fn a_b_c_d() {}\n}\nfn helper() {}\n",
        );
        tests
    }

    #[test]
    fn names_of_tests_are_checked() {
        let text = "`loss::a_b_c_d` `disk::loss::*` `deep::a_b_c_d` `a_b_c_d` `st_mode` `Engine::x`\n`loss::helper` `gone::*` `a_b_c_e`\n";
        let found = problems("docs/STATUS.md", text, &known());
        let gone = ["loss::helper", "gone::*", "a_b_c_e"];
        assert_eq!(found, gone.map(|name| format!("docs/STATUS.md: there is no test {name}")));
        assert_eq!(problems("docs/OTHER.md", text, &known()), Vec::<String>::new());
    }

    #[test]
    fn promises_need_a_proof() {
        let text = "# S\n\n- one\n  `a_b_c_d`\n- two\n- three (Not tested: needs a tape drive)\n\nText.\n";
        assert_eq!(problems(PROVEN, text, &known()), ["docs/SEMANTICS.md: names no test: - two"]);
    }
}
