//! Links of Markdown files that point into the repository must point to something.

use std::path::Path;

/// Targets of `[text](target)` that are files which do not exist. `file` is the Markdown file itself.
pub fn broken(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        found.extend(targets(line).filter(|target| !exists(root, file, target)).map(str::to_owned));
    }
    found
}

fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(|target| target.trim())
}

fn exists(root: &Path, file: &Path, target: &str) -> bool {
    let path = target.split(['#', ' ']).next().unwrap_or_default();
    if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    match path.strip_prefix('/') {
        Some(path) => root.join(path).exists(),
        None => root.join(file).parent().unwrap_or(root).join(path).exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_missing() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(root.path().join("docs/A.md"), "").unwrap();
        let text =
            "[a](A.md#x) [b](B.md) ![c](/docs/A.md) [d](https://x.y/z) [e](#here)\n```\n[f](no)\n```\n";
        assert_eq!(broken(root.path(), Path::new("docs/README.md"), text), ["B.md"]);
    }
}
