//! A target belongs to one namespace of the cluster, and says so on its disk: nobody else reads or changes anything there.

use crate::common::{CLUSTER, EPOCH, PATIENCE, TARGET, secret};
use mover::{Secrets, Target, TargetError};
use std::fs;
use std::path::Path;

fn of(site: &str) -> Secrets {
    Secrets { site: site.into(), turn: 3, keys: [(data::epoch::of(3, EPOCH), secret())].into() }
}

fn open(dir: &Path, site: &str) -> Result<Target, TargetError> {
    Target::open(TARGET, CLUSTER, dir, of(site))
}

/// Everything below a directory, with its bytes.
fn all(dir: &Path) -> Vec<(std::path::PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all(&path));
            found.push((path, None));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, Some(bytes)));
        }
    }
    found.sort();
    found
}

#[test]
fn a_target_belongs_to_the_namespace_that_had_it_first_and_is_left_as_it_is_by_others() {
    let dir = tempfile::tempdir().unwrap();
    let target = open(dir.path(), "").unwrap();
    assert_eq!(
        Target::site_of(dir.path()).unwrap(),
        "",
        "a namespace that may get another name notes nothing"
    );
    target.set_secrets(of("a"), PATIENCE).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("site")).unwrap(), "a\n");
    let refused = target.set_secrets(Secrets { turn: 9, ..of("b") }, PATIENCE).unwrap_err();
    assert!(
        matches!(&refused, TargetError::Foreign { of, asked, .. } if of == "a" && asked == "b"),
        "{refused}"
    );
    assert_eq!(target.turn(), 3, "it has heard nothing of theirs");
    target.close().unwrap();
    drop(target);
    let before = all(dir.path());
    let refused = open(dir.path(), "b").unwrap_err();
    assert!(matches!(refused, TargetError::Foreign { .. }), "{refused}");
    assert!(all(dir.path()) == before, "nothing there has changed");
    assert_eq!(Target::site_of(dir.path()).unwrap(), "a");
    drop(open(dir.path(), "a").unwrap());
    // The operator says that it is another's.
    fs::write(dir.path().join("site"), "b").unwrap();
    drop(open(dir.path(), "b").unwrap());
    assert!(open(dir.path(), "a").is_err());
    // The same while it is open.
    let target = open(dir.path(), "b").unwrap();
    assert!(target.set_secrets(of("c"), PATIENCE).is_err());
    fs::write(dir.path().join("site"), "c\n").unwrap();
    target.set_secrets(of("c"), PATIENCE).unwrap();
}

/// Power fails before the file has its name, or the disk is damaged.
#[test]
fn what_says_whose_a_target_is_is_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), "").unwrap());
    fs::write(dir.path().join("site.new"), "a").unwrap();
    assert_eq!(Target::site_of(dir.path()).unwrap(), "");
    drop(open(dir.path(), "b").unwrap());
    assert_eq!(Target::site_of(dir.path()).unwrap(), "b");
    for damaged in [&b"\xff"[..], b"a\nb", &[b'x'; 300]] {
        fs::write(dir.path().join("site"), damaged).unwrap();
        let refused = open(dir.path(), "b").unwrap_err().to_string();
        assert!(refused.contains("site"), "{refused}");
        assert!(Target::site_of(dir.path()).is_err());
    }
}
