//! What hosts remember of names and attributes is never older than what was answered: two hosts that have joined, and the first one.

use e2e::cluster::{join, node, pair};
use e2e::{Bed, noise};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Three nodes of a cluster, all mounted.
fn three(test: &str) -> Option<([Bed; 3], [PathBuf; 3])> {
    let [first, second] = pair(test)?;
    let third = node();
    join(&first, &third, "third");
    fs::set_permissions(third.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    third.ok([OsStr::new("mount"), third.mount().as_os_str()]);
    let beds = [first, second, third];
    let dirs = beds.each_ref().map(|bed| bed.mount().join("dir"));
    fs::create_dir(&dirs[0]).unwrap();
    Some((beds, dirs))
}

/// What a look at a name tells; None: there is no such name. Times are left out: while a file is being closed it is that of its bytes, then the later
/// one of these and of its name, by clocks of different grain.
fn look(path: &Path) -> Option<(u64, u32, u64, u64)> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some((meta.ino(), meta.mode(), meta.nlink(), meta.len()))
}

fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// One change after the other, by hosts in turn, to few names.
fn change(dir: &Path, round: u64) {
    let dice = noise(round, 4);
    let [a, b] = [dice[0], dice[1]].map(|byte| dir.join(format!("name-{}", byte % 4)));
    let done = match dice[2] % 9 {
        0 => fs::write(&a, &dice[..usize::from(dice[3] % 4)]),
        1 => fs::remove_file(&a).or_else(|_| fs::remove_dir(&a)),
        2 => fs::rename(&a, &b),
        3 => fs::create_dir(&a),
        4 => fs::hard_link(&a, &b),
        5 => fs::set_permissions(&a, fs::Permissions::from_mode(0o600 + u32::from(dice[3] % 8))),
        6 => OpenOptions::new().write(true).open(&a).and_then(|file| file.set_len(dice[3].into())),
        7 => symlink(&b, &a),
        _ => File::options().append(true).open(&a).and_then(|file| file.write_at(b"more", 0).map(drop)),
    };
    // Many cannot be done; what counts is that all see the same.
    drop(done);
}

#[test]
fn what_a_host_remembers_is_never_older_than_what_was_answered() {
    let Some((beds, dirs)) = three("what hosts remember") else { return };
    let over = AtomicBool::new(false);
    let changes = std::thread::scope(|scope| {
        // They see to it that all hosts remember as much as they may, of every moment.
        let over = &over;
        for dir in &dirs[1..] {
            scope.spawn(move || {
                while !over.load(Ordering::Acquire) {
                    (0..4).for_each(|n| {
                        look(&dir.join(format!("name-{n}")));
                    });
                    drop(fs::read_dir(dir).map(|entries| entries.flatten().for_each(|e| drop(e.metadata()))));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(8);
        let mut round = 0;
        while Instant::now() < end {
            round += 1;
            change(&dirs[round as usize % 3], round);
            let seen = |dir: &PathBuf| {
                let each = [0, 1, 2, 3].map(|n| look(&dir.join(format!("name-{n}"))));
                (each, names(dir), look(dir))
            };
            let [first, second, third] = dirs.each_ref().map(seen);
            if (&second, &third) != (&first, &first) {
                over.store(true, Ordering::Release);
                panic!("after change {round}: {first:?}\nand {second:?}\nand {third:?}");
            }
        }
        over.store(true, Ordering::Release);
        round
    });
    assert!(changes > 20, "only {changes} changes in 8 s");
    beds[0].check();
}

#[test]
fn a_host_that_stands_still_holds_changes_up_for_a_moment_and_sees_them_when_it_goes_on() {
    let Some((beds, dirs)) = three("a host that stands still") else { return };
    let still = Pid::from_raw(beds[2].pid()).unwrap();
    let mut longest = Duration::ZERO;
    for n in 0..4 {
        // What was just taken from somebody rests for a moment.
        std::thread::sleep(Duration::from_millis(300));
        let [here, there] = [&dirs[1], &dirs[2]].map(|dir| dir.join(format!("name-{n}")));
        assert_eq!(look(&there), None);
        assert_eq!(names(&dirs[2]).len(), n);
        kill_process(still, Signal::STOP).unwrap();
        let begun = Instant::now();
        fs::write(&here, b"new").unwrap();
        fs::set_permissions(&here, fs::Permissions::from_mode(0o640)).unwrap();
        let waited = begun.elapsed();
        kill_process(still, Signal::CONT).unwrap();
        assert!(waited < Duration::from_secs(10), "{waited:?}");
        longest = longest.max(waited);
        assert_eq!(look(&there), look(&here));
        assert_eq!(look(&there).unwrap().1 & 0o777, 0o640);
    }
    assert!(longest > Duration::from_millis(500), "nothing was remembered there: {longest:?}");
    beds[0].check();
}

#[test]
fn an_open_file_is_as_long_as_it_was_written_when_the_first_node_was_started_anew() {
    let Some((beds, dirs)) = three("an open file over a restart") else { return };
    let path = dirs[1].join("open");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let mut length = 0;
    for round in 0..3 {
        file.write_all_at(b"part", length).unwrap();
        file.sync_all().unwrap();
        length += 4;
        beds[0].kill();
        beds[0].up_mounted();
        // Who looks at it before it is opened anew, by what is written next, does not remember that.
        let end = Instant::now() + Duration::from_millis(400);
        while Instant::now() < end {
            assert_eq!(file.metadata().unwrap().len(), length, "after restart {round}");
            assert_eq!(look(&path).unwrap().3, length);
        }
        file.write_all_at(b"more", length).unwrap();
        length += 4;
        assert_eq!(file.metadata().unwrap().len(), length, "after restart {round}");
        assert_eq!(look(&dirs[2].join("open")).unwrap().3, length);
    }
    drop(file);
    beds[0].check();
}

#[test]
fn names_that_a_host_has_learned_of_before_it_looks_at_them_are_never_older_than_what_was_answered() {
    let Some((_beds, dirs)) = three("what hosts look at one after the other") else { return };
    let path = |dir: &Path, n: u32| dir.join(format!("file-{n:03}"));
    (0..300).for_each(|n| fs::write(path(&dirs[0], n), "text").unwrap());
    for n in 0..280 {
        let seen = dirs.each_ref().map(|dir| look(&path(dir, n)));
        assert_eq!([seen[1], seen[2]], [seen[0]; 2], "{n}");
        // What they will look at next, and have learned of already.
        match n % 5 {
            0 => fs::set_permissions(path(&dirs[2], n + 1), fs::Permissions::from_mode(0o600)).unwrap(),
            2 => fs::set_permissions(path(&dirs[0], n + 1), fs::Permissions::from_mode(0o640)).unwrap(),
            // A change of the directory has all its names forgotten: seldom.
            _ if n % 50 == 48 => fs::remove_file(path(&dirs[2], n + 1)).unwrap(),
            _ => {}
        }
    }
}

/// Says that it has ended, however that comes.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The kernel answers from attributes for a moment, in which many looks fit.
#[test]
fn what_a_kernel_keeps_for_a_moment_is_never_older_than_what_was_answered() {
    let Some((_beds, dirs)) = three("what kernels keep for a moment") else { return };
    let path = |host: usize, name: &str| dirs[host].join(name);
    fs::create_dir(path(0, "within")).unwrap();
    fs::write(path(0, "within/file"), "text").unwrap();
    let hold = |name| [0, 1, 2].map(|host| open(path(host, name), OFlags::PATH, Mode::empty()).unwrap());
    let (dirs_held, files_held) = (hold("within"), hold("within/file"));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&ended);
        for host in [1, 2] {
            let (looked, ended) = (path(host, "within/file"), &ended);
            // Whoever looks all the time has the kernel know it all the time.
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    fs::symlink_metadata(&looked).unwrap();
                }
            });
        }
        for round in 0..300_u32 {
            let name = if round % 3 == 0 { "within" } else { "within/file" };
            let host = (round as usize / 2) % 3;
            let mode = 0o700 + round % 64;
            fs::set_permissions(path(host, name), fs::Permissions::from_mode(mode)).unwrap();
            // Names are looked up each time, what is held is not.
            let held = if round % 3 == 0 { &dirs_held } else { &files_held };
            let seen = [0, 1, 2].map(|host| fstat(&held[host]).unwrap().st_mode & 0o777);
            assert_eq!(seen, [mode; 3], "{round}: changed by host {host}");
            let seen = [0, 1, 2].map(|host| look(&path(host, name)).unwrap().1 & 0o777);
            assert_eq!(seen, [mode; 3], "{round}: changed by host {host}");
        }
    });
}

/// Other hosts see at once that a directory leads to a subsystem, and that it does no more; members are told of all junctions.
#[test]
fn what_a_host_remembers_of_a_directory_is_forgotten_when_it_leads_elsewhere() {
    let Some((beds, dirs)) = three("junctions and what hosts remember") else { return };
    let members = beds[0].json(["cluster", "status"]);
    let at_first = members["members"][0]["control"][0].as_str().unwrap().to_owned();
    let errno = |done: std::io::Result<()>| done.err().and_then(|e| e.raw_os_error());
    let changed = |dir: &Path| fs::symlink_metadata(dir).map(|m| (m.ctime(), m.ctime_nsec())).unwrap();
    let at = dirs.each_ref().map(|dir| dir.join("leads"));
    fs::create_dir(&at[0]).unwrap();
    for round in 0..5 {
        // What was just taken from somebody rests for a moment.
        std::thread::sleep(Duration::from_millis(300));
        let before = at[1..].iter().map(|dir| (changed(dir), names(dir).len())).collect::<Vec<_>>();
        beds[0].ok([
            "junction".as_ref(),
            "make".as_ref(),
            at[0].as_os_str(),
            "far".as_ref(),
            "--at=127.0.0.1:1".as_ref(),
        ]);
        for (dir, before) in at[1..].iter().zip(&before) {
            assert!(changed(dir) > before.0, "round {round}: {before:?}");
            assert_eq!(before.1, 0);
            assert_eq!(errno(fs::create_dir(dir.join("x"))), Some(66), "EREMOTE");
            assert_eq!(errno(fs::write(dir.join("x"), b"x")), Some(66), "EREMOTE");
            assert_eq!(errno(fs::remove_dir(dir)), Some(16), "EBUSY");
            assert_eq!(errno(fs::rename(dir, dir.with_extension("new"))), Some(16), "EBUSY");
        }
        let told = beds[1].json(["junction", "ls", "--node", &at_first]);
        assert_eq!(
            (&told[0]["path"], &told[0]["junction"]["subsystem"]),
            (&"/dir/leads".into(), &"far".into())
        );
        let (code, said) = beds[1].fails(["junction", "rm", "tc:/dir/leads", "--node", &at_first]);
        assert_eq!(code, 4, "a member may not change it: {said}");
        beds[0].ok(["junction".as_ref(), "rm".as_ref(), at[0].as_os_str()]);
        fs::write(at[2].join("x"), b"x").unwrap();
        assert_eq!(names(&at[1]), ["x"]);
        fs::remove_file(at[1].join("x")).unwrap();
    }
    beds[0].check();
}
