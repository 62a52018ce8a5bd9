//! Which real files are shown.

use crate::exit::usage;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tree that shows something has at least this many files.
const ENOUGH: u64 = 20_000;

/// The chosen trees.
pub struct Sources {
    /// Directories with different last components.
    pub roots: Vec<PathBuf>,
    /// What to tell about the choice.
    pub note: String,
}

/// The trees that the user named, or the first of the system's trees with enough files.
///
/// # Errors
/// Unusable trees.
pub fn choose(given: &[PathBuf], forbidden: &[&Path]) -> Result<Sources> {
    if !given.is_empty() {
        return named(given, forbidden);
    }
    let mut all: Vec<PathBuf> = Vec::new();
    for roots in candidates() {
        let roots: Vec<PathBuf> = roots.into_iter().filter(|r| r.is_dir()).collect();
        let mut files = 0;
        if !roots.is_empty() && roots.iter().all(|r| count(r, &mut files).is_ok()) {
            if files >= ENOUGH {
                return Ok(Sources {
                    note: format!("{} (the first with {ENOUGH} files)", shown(&roots)),
                    roots,
                });
            }
            all.extend(roots);
        }
    }
    all.dedup();
    let inside: Vec<bool> = all.iter().map(|r| all.iter().any(|o| o != r && r.starts_with(o))).collect();
    let mut outermost = inside.iter().map(|i| !i);
    all.retain(|_| outermost.next().unwrap_or(false));
    anyhow::ensure!(
        !all.is_empty(),
        "found no readable documentation on this machine; name a tree with --tree"
    );
    Ok(Sources { note: format!("{} (all there is; no tree has {ENOUGH} files)", shown(&all)), roots: all })
}

fn candidates() -> Vec<Vec<PathBuf>> {
    let mut sets = vec![vec!["/usr/share/doc".into(), "/usr/share/man".into()], vec!["/usr/share".into()]];
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).output();
    if let Ok(output) = rustc
        && let Ok(text) = String::from_utf8(output.stdout)
        && !text.trim().is_empty()
    {
        let sysroot = PathBuf::from(text.trim());
        sets.push(vec![sysroot.join("share/doc")]);
        sets.push(vec![sysroot.join("lib")]);
    }
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    if let Some(cargo) = cargo.or_else(|| std::env::home_dir().map(|h| h.join(".cargo"))) {
        sets.push(vec![cargo.join("registry/src")]);
    }
    sets
}

fn named(given: &[PathBuf], forbidden: &[&Path]) -> Result<Sources> {
    let mut roots: Vec<PathBuf> = Vec::new();
    for path in given {
        let root = path.canonicalize().with_context(|| format!("--tree {}", path.display()))?;
        if !root.is_dir() || root.file_name().is_none() {
            return Err(usage(format!("--tree {}: must be a directory with a name", path.display())));
        }
        if let Some(place) = forbidden.iter().find(|p| p.starts_with(&root)) {
            return Err(usage(format!(
                "--tree {} contains {}, where the node keeps or shows its files: they would be copied into themselves",
                path.display(),
                place.display()
            )));
        }
        if root.file_name() == Some("odd".as_ref()) || roots.iter().any(|r| r.file_name() == root.file_name())
        {
            return Err(usage(format!("--tree {}: another tree has the same last name", path.display())));
        }
        roots.push(root);
    }
    Ok(Sources { note: shown(&roots), roots })
}

fn shown(roots: &[PathBuf]) -> String {
    roots.iter().map(|r| r.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// Counts what is not a directory, up to [`ENOUGH`]; fails where something cannot be read.
fn count(dir: &Path, files: &mut u64) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        if *files >= ENOUGH {
            return Ok(());
        }
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => count(&entry.path(), files)?,
            false => *files += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_around_the_node_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("tree/state")).unwrap();
        let state = base.join("tree/state");
        let error = choose(&[base.join("tree")], &[&state]).err().unwrap();
        assert!(error.to_string().contains("into themselves"), "{error}");
        let twice = [base.join("tree"), base.join("tree")];
        assert!(choose(&twice, &[]).err().unwrap().to_string().contains("same last name"));
        assert_eq!(choose(&[base.join("tree")], &[Path::new("/else")]).unwrap().roots, [base.join("tree")]);
    }
}
