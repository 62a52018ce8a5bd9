//! Locks between programs of two hosts: what fcntl(2) and flock(2) promise on one, with hosts and nodes that die meanwhile.

use e2e::Bed;
use e2e::cluster::pair;
use e2e::locker::Locker;
use rustix::process::{Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A process at each of two hosts with the same file open.
fn two(beds: &[Bed; 2], name: &str) -> [Locker; 2] {
    [0, 1].map(|n| Locker::new(&beds[n].mount().join(name)))
}

#[test]
fn locks_hold_between_hosts_as_on_one() {
    let Some(beds) = pair("locks between hosts") else { return };
    for (name, turned) in [("one", false), ("other", true)] {
        let mut lockers = two(&beds, name);
        if turned {
            lockers.reverse();
        }
        let [a, b] = &mut lockers;
        assert_eq!(a.ask("lock ex 0 10"), "ok");
        assert_eq!(b.ask("lock sh 5 1"), "EAGAIN");
        assert_eq!(b.ask("test sh 5 1"), "1 0 10 0");
        assert_eq!(b.ask("lock ex 10 10"), "ok");
        assert_eq!(a.ask("test ex 0 0"), "1 10 10 0");
        // flock(2) is another matter.
        assert_eq!(b.ask("flock ex"), "ok");
        assert_eq!(a.ask("flock sh"), "EAGAIN");
        assert_eq!(a.ask("lock ex 2 2"), "ok");
        // Who would wait for each other.
        b.waits("lockw ex 0 1");
        assert_eq!(a.ask("lockw ex 12 1"), "EDEADLOCK");
        assert_eq!(a.ask("lock un 0 5"), "ok");
        assert_eq!(b.hear(), "ok");
        assert_eq!(a.ask("test sh 0 4"), "1 0 1 0");
        assert_eq!(b.ask("test sh 0 20"), "1 5 5 0");
        // Less is given at once to who waits for it.
        a.waits("flockw sh");
        assert_eq!(b.ask("flock sh"), "ok");
        assert_eq!(a.hear(), "ok");
        assert_eq!(b.ask("flock ex"), "EAGAIN");
        // What is given up when it was to become more is gone, as in the kernel.
        assert_eq!(a.ask("flock ex"), "ok");
        assert_eq!(a.ask("flock un"), "ok");
        // A process that closes any descriptor of the file loses its record locks, and keeps what belongs to the open file.
        assert_eq!(
            (a.ask("ofd ex 50 1"), a.ask("flock sh"), a.ask("reopen")),
            ("ok".into(), "ok".into(), "ok".into())
        );
        assert_eq!(b.ask("lock ex 5 5"), "ok");
        assert_eq!((b.ask("lock sh 50 1"), b.ask("flock ex")), ("EAGAIN".into(), "EAGAIN".into()));
        assert_eq!((a.ask("ofd un 0 0"), b.ask("lock sh 50 1")), ("ok".into(), "ok".into()));
        // A signal ends a wait, and the wait is no more.
        assert_eq!(a.ask("alarm 1"), "ok");
        assert_eq!(a.ask("lockw ex 5 1"), "EINTR");
        assert_eq!(b.ask("lock un 0 0"), "ok");
        assert_eq!(b.ask("lock ex 5 1"), "ok");
        // Who is killed waits for nothing, and holds nothing.
        a.waits("lockw ex 5 1");
        a.kill();
        assert_eq!(b.ask("lock un 0 0"), "ok");
        let mut third = Locker::new(&beds[0].mount().join(name));
        assert_eq!((third.ask("lock ex 0 0"), b.ask("flock ex")), ("ok".into(), "ok".into()));
        third.waits("flockw ex");
        assert_eq!(b.ask("lock sh 7 1"), "EAGAIN");
        b.kill();
        assert_eq!(third.hear(), "ok");
    }
    beds[0].check();
}

/// The node keeps answers for a while; not for as long as somebody waits.
#[test]
fn thousands_of_files_are_made_while_somebody_waits_for_a_lock() {
    let Some(beds) = pair("a wait and much else") else { return };
    let [a, b] = &mut two(&beds, "file");
    assert_eq!(a.ask("flock ex"), "ok");
    b.waits("flockw ex");
    let dir = beds[1].mount().join("many");
    fs::create_dir(&dir).unwrap();
    (0..1_100).for_each(|n| drop(File::create(dir.join(n.to_string())).unwrap()));
    assert_eq!(a.ask("flock un"), "ok");
    assert_eq!(b.hear(), "ok");
}

#[test]
fn two_hosts_count_under_a_lock() {
    let Some(beds) = pair("counting under a lock") else { return };
    let mut lockers = two(&beds, "counter");
    lockers.iter_mut().for_each(|locker| locker.tell("count 500"));
    lockers.iter().for_each(|locker| assert_eq!(locker.hear(), "ok"));
    assert_eq!(fs::read_to_string(beds[1].mount().join("counter")).unwrap(), "1000");
}

const WRITES: &str = r"
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=200, isolation_level=None)
base.execute('pragma journal_mode=delete')
for n in range(int(sys.argv[3])):
    base.execute('begin immediate')
    seen, = base.execute('select count(*) from rows').fetchone()
    base.execute('insert into rows values (?, ?, ?)', (sys.argv[2], n, seen))
    base.execute('commit')
";

const JUDGES: &str = r"
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
assert base.execute('pragma integrity_check').fetchall() == [('ok',)]
seen = [row for row, in base.execute('select seen from rows order by rowid')]
assert seen == list(range(int(sys.argv[2]))), seen
";

fn python(program: &str, arguments: &[&str]) -> Child {
    Command::new("python3").args(["-c", program]).args(arguments).spawn().expect("python3 is there")
}

#[test]
fn two_hosts_write_one_sqlite_database() {
    let Some(beds) = pair("a database of two hosts") else { return };
    let [here, there] = [0, 1].map(|n| beds[n].mount().join("base").display().to_string());
    let make =
        "import sqlite3, sys\nsqlite3.connect(sys.argv[1]).execute('create table rows (host, n, seen)')";
    assert!(python(make, &[&here]).wait().unwrap().success());
    let writers = [python(WRITES, &[&here, "first", "60"]), python(WRITES, &[&there, "second", "60"])];
    writers.into_iter().for_each(|mut writer| assert!(writer.wait().unwrap().success()));
    [&here, &there].iter().for_each(|base| {
        assert!(python(JUDGES, &[base, "120"]).wait().unwrap().success(), "at {base}");
    });
    beds[0].check();
}

#[test]
fn locks_outlive_a_restart_of_the_node_and_end_with_their_host() {
    let Some(beds) = pair("locks and nodes that die") else { return };
    let [first, second] = &beds;
    let there = second.mount().join("file");
    let (mut holds, mut waits) = (Locker::new(&there), Locker::new(&there));
    assert_eq!((holds.ask("lock ex 0 10"), holds.ask("lock sh 3 2")), ("ok".into(), "ok".into()));
    assert_eq!(holds.ask("flock sh"), "ok");
    waits.waits("lockw ex 0 1");
    let pid = rustix::process::Pid::from_raw(second.pid()).expect("a pid");
    kill_process(pid, Signal::STOP).unwrap();
    first.kill();
    first.up_mounted();
    // Nobody is faster than who held it.
    let mut other = Locker::new(&first.mount().join("file"));
    other.waits("lock sh 0 1");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!((other.hear(), other.ask("lock sh 3 2")), ("EAGAIN".into(), "ok".into()));
    assert_eq!((other.ask("flock ex"), other.ask("lock un 0 0")), ("EAGAIN".into(), "ok".into()));
    assert!(first.log().contains("all locks that other hosts held before the restart are claimed"));
    assert_eq!((holds.ask("write x"), holds.ask("lock un 0 3")), ("ok".into(), "ok".into()));
    assert_eq!(waits.hear(), "ok");
    // Who holds nothing keeps nobody waiting.
    assert_eq!((holds.ask("lock un 0 0"), holds.ask("flock un")), ("ok".into(), "ok".into()));
    assert_eq!(waits.ask("lock un 0 0"), "ok");
    first.kill();
    let again = Instant::now();
    first.up_mounted();
    let mut other = Locker::new(&first.mount().join("file"));
    assert_eq!(other.ask("lock ex 0 0"), "ok");
    assert!(again.elapsed() < Duration::from_secs(25), "it waited for somebody who held nothing");
    assert_eq!((other.ask("lock un 0 0"), holds.ask("lock ex 0 10")), ("ok".into(), "ok".into()));
    // The host is gone: for half a minute it might come back.
    other.tell("lockw ex 0 0");
    let gone = Instant::now();
    second.kill();
    assert_eq!(other.hear(), "ok");
    let took = gone.elapsed();
    assert!(took > Duration::from_secs(28) && took < Duration::from_secs(60), "{took:?}");
    // It is not remembered as one that may claim anything.
    first.kill();
    let again = Instant::now();
    first.up_mounted();
    let mut other = Locker::new(&first.mount().join("file"));
    assert_eq!(other.ask("lock ex 0 0"), "ok");
    assert!(again.elapsed() < Duration::from_secs(25), "it waited for nobody");
}

#[test]
fn who_comes_back_too_late_has_lost_his_locks_and_is_told() {
    let Some(beds) = pair("locks that are lost") else { return };
    let [first, second] = &beds;
    let there = second.mount().join("file");
    let mut late = Locker::new(&there);
    assert_eq!((late.ask("lock ex 0 10"), late.ask("write before")), ("ok".into(), "ok".into()));
    let pid = rustix::process::Pid::from_raw(second.pid()).expect("a pid");
    kill_process(pid, Signal::STOP).unwrap();
    first.kill();
    first.up_mounted();
    let mut other = Locker::new(&first.mount().join("file"));
    assert_eq!(other.ask("lockw ex 0 10"), "ok");
    assert_eq!(other.ask("write others"), "ok");
    assert!(first.log().contains("did not claim in time"));
    kill_process(pid, Signal::CONT).unwrap();
    // It may not write what it thinks to be protected.
    assert_eq!((late.ask("write late"), late.ask("lock ex 20 1")), ("EIO".into(), "EIO".into()));
    let mut anew = OpenOptions::new().append(true).open(&there).unwrap();
    anew.write_all(b"!").unwrap();
    assert_eq!(fs::read_to_string(&there).unwrap(), "others!");
}
