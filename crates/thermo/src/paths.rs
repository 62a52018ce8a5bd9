//! From what a user types to a path of the namespace.
//!
//! `tc:/dir/file` is a path of the namespace. Anything else is a path of this machine and must lie below a mount point of the
//! node. A symlink at the end is meant itself; those on the way are followed.

use crate::exit::usage;
use anyhow::Result;
use client::escape;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// What begins a path of the namespace.
pub const PREFIX: &[u8] = b"tc:";

/// Translates a path; `mounts` are the mount points of the node.
pub fn namespace_path(typed: &OsStr, mounts: &[String]) -> Result<Vec<u8>> {
    if let Some(rest) = typed.as_bytes().strip_prefix(PREFIX) {
        return match rest {
            b"" => Ok(b"/".to_vec()),
            [b'/', ..] => Ok(tidy(Path::new(OsStr::from_bytes(rest)))),
            _ => Err(usage(format!(
                "{}: write tc:/ and then the path in the namespace",
                escape(typed.as_bytes())
            ))),
        };
    }
    let path = absolute(Path::new(typed))?;
    let below = mounts.iter().filter_map(|m| path.strip_prefix(m).ok()).min_by_key(|p| p.as_os_str().len());
    match below {
        Some(rest) => Ok(tidy(&Path::new("/").join(rest))),
        None => Err(usage(format!(
            "{}: is not below a mount of the node ({}); for a path of the namespace write tc:/...",
            escape(typed.as_bytes()),
            if mounts.is_empty() { "there is none".to_owned() } else { mounts.join(", ") }
        ))),
    }
}

/// Absolute, with the directories on the way resolved; the last component stays as it is and need not exist.
fn absolute(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let (Some(parent), Some(Component::Normal(name))) = (path.parent(), path.components().next_back()) else {
        return Ok(path.canonicalize()?);
    };
    Ok(parent.canonicalize().map(|p| p.join(name)).unwrap_or(path))
}

/// Without `.`, `..` and doubled slashes.
fn tidy(path: &Path) -> Vec<u8> {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean.into_os_string().into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(typed: &[u8], mounts: &[&str]) -> Result<Vec<u8>> {
        let mounts: Vec<_> = mounts.iter().map(|m| m.to_string()).collect();
        namespace_path(OsStr::from_bytes(typed), &mounts)
    }

    #[test]
    fn namespace_paths_are_taken_as_written() {
        assert_eq!(translate(b"tc:/a//b/./../c", &[]).unwrap(), b"/a/c");
        assert_eq!(translate(b"tc:", &[]).unwrap(), b"/");
        assert_eq!(translate(b"tc:/odd \xff", &[]).unwrap(), b"/odd \xff");
        assert!(translate(b"tc:a", &[]).is_err());
    }

    #[test]
    fn local_paths_are_cut_at_the_deepest_mount() {
        assert_eq!(translate(b"/mnt/tc/x/y", &["/mnt", "/mnt/tc"]).unwrap(), b"/x/y");
        assert_eq!(translate(b"/mnt/tc", &["/mnt/tc"]).unwrap(), b"/");
        let error = translate(b"/mnt/tcx/y", &["/mnt/tc"]).unwrap_err().to_string();
        assert!(error.contains("/mnt/tc)") && error.contains("tc:/"), "{error}");
    }

    #[test]
    fn a_symlink_at_the_end_is_meant_itself() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("mnt")).unwrap();
        std::os::unix::fs::symlink("mnt", root.join("way")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("mnt/link")).unwrap();
        let mount = root.join("mnt").display().to_string();
        let typed = root.join("way/link");
        assert_eq!(translate(typed.as_os_str().as_bytes(), &[&mount]).unwrap(), b"/link");
    }
}
