//! Small writes to coded files that stay in a node's memory until they fill rows, and programs and targets that come between.

use e2e::can_mount;
use e2e::cluster::{cluster, directory, words};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
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

/// Programs of one mount may have several writes to one file under way.
#[test]
fn of_writes_of_one_mount_to_the_same_bytes_one_comes_behind_the_other() {
    const LENGTH: usize = 512 << 10;
    const ROUNDS: usize = 60; // three letters each
    if !can_mount("writes of one mount") {
        return;
    }
    let beds = cluster();
    let dir = directory(&beds, CODED);
    for layout in [CODED, "--stripes 3 --stripe-size 64KiB", "--copies 2"] {
        beds[0].ok(words("layout set", &dir, layout));
        let path = dir.join("file");
        fs::write(&path, vec![0; LENGTH]).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let reader = open();
        for round in 0..ROUNDS {
            std::thread::scope(|scope| {
                for writer in 0..3 {
                    let file = open();
                    let letter = 1 + (round * 3 + writer) as u8;
                    scope.spawn(move || file.write_all_at(&[letter; LENGTH], 0).unwrap());
                }
            });
            let mut found = vec![0; LENGTH];
            reader.read_exact_at(&mut found, 0).unwrap();
            let letters = (round * 3 + 1) as u8..(round * 3 + 4) as u8;
            assert!(letters.contains(&found[0]), "what was written before");
            assert!(found.iter().all(|byte| *byte == found[0]), "{layout}: bytes of two writes");
        }
        fs::remove_file(&path).unwrap();
    }
    beds[0].check();
}

#[test]
fn who_waits_for_a_target_holds_up_no_other_writes_of_the_file() {
    if !can_mount("writes of one mount") {
        return;
    }
    let beds = cluster();
    let path = directory(&beds, CODED).join("file");
    let row = 128 << 10;
    fs::write(&path, vec![1; row]).unwrap();
    // Not closed by who writes: that waits for targets.
    let open = || Arc::new(File::options().read(true).write(true).open(&path).unwrap());
    let files @ [slow, file] = &[open(), open()];
    file.set_len(8 * row as u64).unwrap();
    // Its log has been looked at then.
    file.write_all_at(&[1; 10], 7).unwrap();
    file.sync_all().unwrap();
    let [slow, file] = [slow.clone(), file.clone()];
    beds[2].signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(200)); // until all its threads stand still
    // A whole row that is new goes to all three.
    let slow = aside(move || slow.write_all_at(&vec![2; row], row as u64));
    let waits = slow.recv_timeout(Duration::from_millis(500));
    assert!(waits.is_err(), "a write without a target that it needs: {waits:?}");
    let quick = aside(move || file.write_all_at(&[3; 100], 5 * row as u64));
    let quick = quick.recv_timeout(Duration::from_secs(3));
    let waits = slow.try_recv().is_err();
    beds[2].signal(Signal::CONT);
    quick.expect("what stays in memory waits for nobody").unwrap();
    assert!(waits, "nobody has waited");
    slow.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    files.iter().for_each(|file| file.sync_all().unwrap());
    let found = fs::read(&path).unwrap();
    assert!(found[row..2 * row].iter().all(|byte| *byte == 2) && found[5 * row..][..100] == [3; 100]);
    beds[0].check();
}
