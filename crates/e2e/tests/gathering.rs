//! Small writes to coded files that stay in a node's memory until they fill rows, and programs and targets that come between.

use e2e::can_mount;
use e2e::cluster::{cluster, directory};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const CODED: &str = "--code 2+1 --stripe-size 64KiB";

/// Runs something that may not end on a thread of its own.
fn aside<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, ended) = channel();
    std::thread::spawn(move || done.send(what()));
    ended
}

/// Files with something in memory that is not in any row.
fn open_many(dir: &Path, name: &str, count: usize) -> Vec<File> {
    let one = |n: usize| {
        let path = dir.join(format!("{name}{n}"));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        file.write_all_at(&[n as u8; 100], 70_000).unwrap();
        file
    };
    (0..count).map(one).collect()
}

fn runs(program: &Path) {
    let ran = Command::new(program).arg("x").status().unwrap();
    assert!(ran.success(), "{}", program.display());
}

#[test]
fn a_process_with_many_files_open_starts_programs() {
    if !can_mount("programs that start others") {
        return;
    }
    let beds = cluster();
    let dir = directory(&beds, CODED);
    let program = dir.join("program");
    fs::copy("/bin/true", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let here = dir.clone();
    let all = aside(move || {
        let files = open_many(&here, "one", 40);
        for _ in 0..3 {
            runs(Path::new("/bin/true"));
            runs(&program);
            files.iter().for_each(|file| file.write_all_at(b"more", 10).unwrap());
        }
        std::thread::scope(|scope| {
            for n in 0..6 {
                let (here, program) = (&here, &program);
                scope.spawn(move || {
                    let files = open_many(here, &format!("thread{n}-"), 20);
                    for round in 0..5 {
                        runs(Path::new("/bin/true"));
                        runs(program);
                        files.iter().for_each(|file| file.write_all_at(b"more", round * 10).unwrap());
                    }
                });
            }
        });
        files.iter().for_each(|file| file.sync_all().unwrap());
    });
    let ended = all.recv_timeout(Duration::from_secs(120));
    assert!(ended.is_ok(), "the mount stands still, or: {ended:?}");
    beds[0].check();
}
