//! The expectations themselves, on the file system of the temporary directory if that is ext4.

use posix::fsx::Fsx;
use posix::twins::{Twins, calls};
use posix::{Host, Part, random};
use std::path::Path;
use std::time::{Duration, Instant};

struct Native;

impl Host for Native {}

const EXT4: u64 = 0xef53;

/// A directory on ext4 that everybody may enter.
fn on_ext4() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let is_ext4 = rustix::fs::statfs(dir.path()).unwrap().f_type as u64 == EXT4;
    if !is_ext4 {
        println!("LEFT OUT: {} is not on ext4; set TMPDIR to a directory that is", dir.path().display());
    }
    is_ext4.then_some(dir)
}

#[test]
fn ext4_meets_every_expectation() {
    let Some(dir) = on_ext4() else { return };
    for part in [Part::General, Part::Offline] {
        let own = dir.path().join(format!("{part:?}"));
        std::fs::create_dir(&own).unwrap();
        posix::run(part, &own, &Native).check(&format!("ext4, {part:?}"), &[]);
    }
}

#[test]
fn the_random_tests_find_nothing_wrong_with_ext4() {
    let Some(dir) = on_ext4() else { return };
    let seed = random::seed("ext4");
    let mut fsx = Fsx::new(&Native, dir.path(), seed, 1 << 20);
    fsx.run(Instant::now() + Duration::from_secs(2));
    assert!(fsx.calls > 100, "{} calls", fsx.calls);
    let (one, two): (&Path, &Path) = (&dir.path().join("one"), &dir.path().join("two"));
    for d in [one, two] {
        std::fs::create_dir(d).unwrap();
    }
    Twins { tested: (&Native, one), known: (&Native, two), runs: 0 }.compare(&calls(seed, 500));
}

/// A defect is found, and what is reported is short.
#[test]
fn differences_are_found_and_made_short() {
    struct Forgetful;
    impl Host for Forgetful {
        fn tape(&self, _: posix::Tape, path: &Path) {
            std::fs::write(path, b"forgotten").unwrap();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (one, two): (&Path, &Path) = (&dir.path().join("one"), &dir.path().join("two"));
    for d in [one, two] {
        std::fs::create_dir(d).unwrap();
    }
    let mut lines: Vec<String> = (0..40).map(|n| format!("put file-{n} text")).collect();
    lines.insert(20, "offline file-7".into());
    lines.push("cat file-7".into());
    let found = std::panic::catch_unwind(|| {
        Twins { tested: (&Forgetful, one), known: (&Native, two), runs: 0 }.compare(&lines);
    });
    let said = *found.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains("file-7") && said.lines().count() <= 7, "{said}");
    let longest = 64 << 10;
    let found = std::panic::catch_unwind(|| {
        Fsx::new(&Forgetful, dir.path(), 1, longest).run(Instant::now() + Duration::from_secs(5));
    });
    assert!(found.is_err(), "fsx did not see that content changed");
}
