//! Small writes of one host that stay in its memory for a moment while nobody else has the file open.

use e2e::cluster::{lies_on, up};
use e2e::hosts::Hosts;
use e2e::{Bed, Starter, can_mount, noise, put};
use posix::random::Random;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

const PAGE: usize = 4096;
const PAGES: u64 = 256;

/// A file that the first host has made: its paths there and at the other host.
fn file(hosts: &Hosts, name: &str) -> [PathBuf; 2] {
    let paths = [&hosts.here, &hosts.there].map(|dir| dir.join(name));
    fs::write(&paths[0], noise(1, PAGES as usize * PAGE)).unwrap();
    paths
}

/// The same of one that does not lie at the other host.
fn file_on_others(hosts: &Hosts) -> [PathBuf; 2] {
    let on_others = |path: &PathBuf| {
        lies_on(hosts.first(), path).iter().all(|target| hosts.of(*target).pid() != hosts.beds[1].pid())
    };
    let mut paths = (0..30).map(|n| file(hosts, &format!("file{n}")));
    paths.find(|[here, _]| on_others(here)).expect("a file that does not lie there")
}

fn writer(path: &PathBuf) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// A page that says which it is, and of which pass.
fn page(number: u64, pass: u64) -> Vec<u8> {
    let mut bytes = noise(number + 1000 * pass, PAGE);
    bytes[..8].copy_from_slice(&pass.to_le_bytes());
    bytes
}

/// Pages in an order that is not theirs.
fn scattered() -> impl Iterator<Item = u64> {
    (0..PAGES).map(|n| n * 97 % PAGES)
}

fn write_all(file: &File, pass: u64) {
    scattered().for_each(|n| file.write_all_at(&page(n, pass), n * PAGE as u64).unwrap());
}

fn assert_is(bytes: &[u8], pass: u64, what: &str) {
    for n in 0..PAGES {
        let at = n as usize * PAGE;
        assert!(bytes[at..at + PAGE] == page(n, pass), "{what}: page {n}");
    }
}

/// How long that takes.
fn timed(what: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    what();
    begun.elapsed()
}

/// Nodes of targets that stand still, and go on when this is dropped.
struct Still<'h>(Vec<&'h Bed>);

impl<'h> Still<'h> {
    /// Those that serve targets and have no mount.
    fn movers(hosts: &'h Hosts) -> Self {
        Self::of(hosts.beds[2..].iter().collect())
    }

    fn of(beds: Vec<&'h Bed>) -> Self {
        beds.iter().for_each(|bed| bed.signal(Signal::STOP));
        Self(beds)
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|bed| bed.signal(Signal::CONT));
    }
}

/// Writes every page, and then once more some of those that lie at movers that stand still by then, if they are kept: whoever would write them there waits.
fn write_and_keep<'h>(hosts: &'h Hosts, file: &File, pass: u64) -> Still<'h> {
    write_all(file, pass);
    for _ in 0..20 {
        let still = Still::movers(hosts);
        let kept = std::thread::scope(|scope| {
            let writes = || {
                PAGES_KEPT
                    .iter()
                    .for_each(|n| file.write_all_at(&page(*n, pass + 1), n * PAGE as u64).unwrap())
            };
            let writer = scope.spawn(writes);
            let end = Instant::now() + Duration::from_millis(300);
            while !writer.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            let kept = writer.is_finished();
            if !kept {
                still.0.iter().for_each(|bed| bed.signal(Signal::CONT));
            }
            writer.join().unwrap();
            kept
        });
        if kept {
            return still;
        }
        drop(still);
        write_all(file, pass);
    }
    panic!("small writes wait for movers");
}

/// The pages of which a later pass is kept.
const PAGES_KEPT: [u64; 4] = [0, 20, 40, 60];

/// What is there then.
fn assert_kept_is_there(bytes: &[u8], pass: u64, what: &str) {
    for n in 0..PAGES {
        let (at, pass) = (n as usize * PAGE, if PAGES_KEPT.contains(&n) { pass + 1 } else { pass });
        assert!(bytes[at..at + PAGE] == page(n, pass), "{what}: page {n}");
    }
}

#[test]
fn what_one_host_writes_from_memory_everybody_sees_who_opens_the_file_then() {
    if !can_mount("small writes from memory") {
        return;
    }
    let hosts = Hosts::new("0");
    let [here, there] = file(&hosts, "file");
    let one = writer(&there);
    for pass in 1..6 {
        write_all(&one, pass);
        assert_is(&fs::read(&there).unwrap(), pass, "at the same host");
        write_all(&one, pass + 10);
        // It is still open, and was not synced.
        assert_is(&fs::read(&here).unwrap(), pass + 10, "at the first host");
    }
    // Who has had it open for long sees all that was closed.
    let reader = File::open(&here).unwrap();
    write_all(&one, 30);
    drop(one);
    let mut bytes = vec![0; PAGES as usize * PAGE];
    reader.read_exact_at(&mut bytes, 0).unwrap();
    assert_is(&bytes, 30, "of a reader");
    hosts.first().check();
}

#[test]
fn who_opens_a_file_waits_for_what_another_host_has_kept_also_for_a_mover_that_does_not_answer() {
    if !can_mount("opening what is kept elsewhere") {
        return;
    }
    let hosts = Hosts::new("0");
    let [here, there] = file(&hosts, "file");
    let one = writer(&there);
    let still = write_and_keep(&hosts, &one, 1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| fs::read(&here).unwrap());
        std::thread::sleep(Duration::from_secs(3));
        assert!(!reader.is_finished(), "it has been read without what was written before");
        drop(still);
        assert_kept_is_there(&reader.join().unwrap(), 1, "at the first host");
    });
    // Nobody else has it open: it is kept again after a moment.
    std::thread::sleep(Duration::from_secs(1));
    let still = write_and_keep(&hosts, &one, 3);
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| one.sync_all().unwrap());
        std::thread::sleep(Duration::from_millis(500));
        assert!(!syncs.is_finished(), "it is not at its movers");
        drop(still);
    });
    assert_kept_is_there(&fs::read(&here).unwrap(), 3, "after fsync");
    hosts.first().check();
}

/// More opens than may wait at once, and what they leave for others to be done meanwhile.
#[test]
fn who_waits_to_open_what_is_kept_holds_up_no_names() {
    if !can_mount("names beside opens that wait") {
        return;
    }
    let hosts = Hosts::new("0");
    let files: Vec<_> = (0..20).map(|n| file(&hosts, &format!("file{n}"))).collect();
    let writers: Vec<_> = files.iter().map(|[_, there]| writer(there)).collect();
    assert!((0..10).any(|_| opens_wait_alone(&hosts, &files, &writers)), "small writes wait for movers");
    for [here, there] in &files {
        assert_kept_is_there(&fs::read(here).unwrap(), 1, "at the first host");
        assert_kept_is_there(&fs::read(there).unwrap(), 1, "at the same host");
    }
    hosts.first().check();
}

/// False: too few of the files were written from memory when the movers stood still.
fn opens_wait_alone(hosts: &Hosts, files: &[[PathBuf; 2]], writers: &[File]) -> bool {
    let keep = |file: &File| {
        PAGES_KEPT.iter().for_each(|n| file.write_all_at(&page(*n, 2), n * PAGE as u64).unwrap());
    };
    writers.iter().for_each(|file| write_all(file, 1));
    writers.iter().for_each(keep);
    let still = Still::movers(hosts);
    std::thread::scope(|scope| {
        let writes: Vec<_> = writers.iter().map(|file| scope.spawn(|| keep(file))).collect();
        std::thread::sleep(Duration::from_millis(400));
        let kept = files.iter().zip(&writes).filter(|(_, write)| write.is_finished());
        let kept: Vec<_> = kept.map(|(paths, _)| paths).collect();
        let enough = kept.len() > 8;
        let paths = kept.into_iter().flatten().filter(|_| enough);
        let opens =
            paths.flat_map(|path| (0..8).map(move |_| scope.spawn(move || File::open(path).unwrap())));
        let opens: Vec<_> = opens.collect();
        let named =
            [&hosts.there, &hosts.here].map(|dir| scope.spawn(move || uses_names(dir.parent().unwrap())));
        let end = Instant::now() + Duration::from_secs(40);
        while Instant::now() < end && !named.iter().all(|one| one.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let done = named.each_ref().map(|one| one.is_finished());
        let wait = opens.iter().filter(|one| !one.is_finished()).count();
        let look = || timed(|| _ = fs::metadata(&files[0][1]).unwrap());
        let soonest = (0..4).map(|_| look()).min().unwrap();
        drop(still);
        named.into_iter().for_each(|one| one.join().unwrap());
        opens.into_iter().for_each(|one| drop(one.join().unwrap()));
        writes.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(done, [true; 2], "names wait behind {wait} opens");
        assert!(soonest < Duration::from_millis(900), "each look waits for what is in memory: {soonest:?}");
        assert!(!enough || wait > 140, "{wait} opens wait at two hosts");
        enough
    })
}

/// Makes, changes and removes names in a directory, and files: more than the node keeps answers of at once.
fn uses_names(dir: &Path) {
    let name = |n: u32| dir.join(format!("name{n}-{:?}", std::thread::current().id()));
    for n in 0..700 {
        fs::create_dir(name(n)).unwrap();
        if n % 100 == 0 {
            let new = File::create(name(n).join("new")).unwrap();
            new.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
            new.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            drop(new);
            fs::remove_file(name(n).join("new")).unwrap();
            std::os::unix::fs::symlink("nowhere", name(n).join("link")).unwrap();
            fs::set_permissions(name(n), fs::Permissions::from_mode(0o700)).unwrap();
            assert_eq!(fs::read_dir(name(n)).unwrap().count(), 1);
            fs::remove_file(name(n).join("link")).unwrap();
        }
    }
    (0..700).for_each(|n| fs::remove_dir(name(n)).unwrap());
}

#[test]
fn what_is_kept_of_a_file_that_another_host_cuts_was_written_before() {
    if !can_mount("cutting what is kept elsewhere") {
        return;
    }
    let hosts = Hosts::new("0");
    let [here, there] = file(&hosts, "file");
    let one = writer(&there);
    for pass in 0..5 {
        write_all(&one, pass);
        let cut = OpenOptions::new().write(true).truncate(true).open(&here).unwrap();
        assert_eq!(cut.metadata().unwrap().len(), 0);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(
            (cut.metadata().unwrap().len(), one.metadata().unwrap().len()),
            (0, 0),
            "it has come back"
        );
        cut.write_all_at(&noise(1, PAGES as usize * PAGE), 0).unwrap();
    }
    // So it is here.
    write_all(&one, 9);
    one.set_len(100).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::metadata(&here).unwrap().len(), 100);
    hosts.first().check();
}

#[test]
fn what_is_kept_is_there_when_the_node_that_holds_the_names_was_started_anew() {
    if !can_mount("small writes from memory over a crash") {
        return;
    }
    let hosts = Hosts::new("0");
    let [here, there] = file(&hosts, "file");
    let one = writer(&there);
    for pass in 1..4 {
        write_all(&one, pass);
        let start = Starter::of(hosts.first());
        match pass {
            2 => _ = hosts.first().ok(["down"]),
            _ => hosts.first().kill(),
        }
        let took = timed(|| write_all(&one, pass + 10));
        assert!(
            took < Duration::from_secs(20),
            "who writes waits for the node that holds the names: {took:?}"
        );
        start.now();
        hosts.first().ok([OsStr::new("mount"), hosts.first().mount().as_os_str()]);
        hosts.first().wait("the targets", || up(hosts.first()).len() == 3);
        assert_is(&fs::read(&here).unwrap(), pass + 10, "behind the crash");
        write_all(&one, pass + 20);
        one.sync_all().unwrap();
        assert_is(&fs::read(&here).unwrap(), pass + 20, "of one that was synced");
        // The node that serves now gives leases too.
        drop(write_and_keep(&hosts, &one, pass + 30));
        assert_kept_is_there(&fs::read(&here).unwrap(), pass + 30, "from memory again");
    }
    hosts.first().check();
}

#[test]
fn what_a_host_that_stands_still_has_kept_counts_over_a_restart_if_nobody_else_had_the_file_open() {
    if !can_mount("a host that stands still while the node is started anew") {
        return;
    }
    let hosts = Hosts::new("0");
    let [here, there] = file_on_others(&hosts);
    let one = writer(&there);
    for pass in [1, 11, 21] {
        write_all(&one, pass);
        one.sync_all().unwrap();
        let start = Starter::of(hosts.first());
        write_all(&one, pass);
        PAGES_KEPT.iter().for_each(|n| one.write_all_at(&page(*n, pass + 1), n * PAGE as u64).unwrap());
        let still = Still::of(vec![&hosts.beds[1]]);
        hosts.first().signal(Signal::KILL);
        start.now();
        std::thread::sleep(Duration::from_secs(5)); // what was left open is settled by then
        drop(still);
        one.sync_all().unwrap();
        assert_kept_is_there(&fs::read(&there).unwrap(), pass, "at the host that stood still");
        hosts.first().ok([OsStr::new("mount"), hosts.first().mount().as_os_str()]);
        assert_kept_is_there(&fs::read(&here).unwrap(), pass, "at the first host");
    }
    drop(one);
    hosts.first().check();
}

#[test]
fn a_host_that_dies_with_something_kept_holds_nobody_up_and_loses_no_more_than_that() {
    if !can_mount("a host that dies with small writes in memory") {
        return;
    }
    let hosts = Hosts::new("0");
    let [here, there] = file_on_others(&hosts);
    let one = writer(&there);
    write_all(&one, 1);
    one.sync_all().unwrap();
    let still = write_and_keep(&hosts, &one, 1);
    // Its `status` would ask the movers too.
    hosts.beds[1].signal(Signal::KILL);
    drop(still);
    let begun = Instant::now();
    let bytes = fs::read(&here).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for n in 0..PAGES {
        let at = n as usize * PAGE;
        let found = &bytes[at..at + PAGE];
        let kept = PAGES_KEPT.contains(&n) && found == page(n, 2);
        assert!(kept || found == page(n, 1), "page {n} was synced");
    }
    drop(one);
    hosts.beds[1].up();
    hosts.first().wait("its target", || up(hosts.first()).len() == 3);
    hosts.first().check();
}

#[test]
fn what_a_host_that_stands_still_has_kept_does_not_come_over_what_others_write_meanwhile() {
    if !can_mount("a host that stands still with small writes in memory") {
        return;
    }
    let hosts = Hosts::new("0");
    let [here, there] = file_on_others(&hosts);
    let one = writer(&there);
    let mut lost = 0;
    for round in 0..10 {
        let pass = 1 + 10 * round;
        write_all(&one, pass);
        one.sync_all().unwrap();
        write_all(&one, pass);
        PAGES_KEPT.iter().for_each(|n| one.write_all_at(&page(*n, pass + 1), n * PAGE as u64).unwrap());
        let still = Still::of(vec![&hosts.beds[1]]);
        let took = timed(|| {
            let other = writer(&here);
            write_all(&other, pass + 2);
            other.sync_all().unwrap();
        });
        drop(still);
        assert!(took < Duration::from_secs(20), "{took:?}");
        let synced = one.sync_all();
        assert_is(&fs::read(&here).unwrap(), pass + 2, "what was written last");
        assert_is(&fs::read(&there).unwrap(), pass + 2, "the same at the host that stood still");
        let Err(e) = synced else { continue };
        assert_eq!(e.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{e}");
        lost += 1;
        // It goes on.
        write_all(&one, pass + 3);
        one.sync_all().unwrap();
        assert_is(&fs::read(&here).unwrap(), pass + 3, "what was written since");
    }
    assert!(lost > 0, "nothing was kept when it stood still");
    drop(one);
    hosts.first().check();
}

#[test]
fn a_node_that_stops_has_what_is_kept_brought_to_its_targets_although_programs_have_it_open() {
    if !can_mount("stopping with small writes in memory") {
        return;
    }
    let hosts = Hosts::new("0");
    for round in 1..4 {
        let [here, there] = file(&hosts, &format!("file{round}"));
        let one = writer(&there);
        write_all(&one, 1);
        write_all(&one, round + 1);
        hosts.beds[1].ok(["down"]);
        hosts.beds[1].up_mounted();
        hosts.first().wait("its target", || up(hosts.first()).len() == 3);
        assert_is(&fs::read(&here).unwrap(), round + 1, "behind the stop");
        drop(one);
    }
    hosts.first().check();
}

#[test]
fn a_check_finds_nothing_wrong_with_what_is_written_and_closed_meanwhile() {
    if !can_mount("a check beside writers") {
        return;
    }
    let hosts = Hosts::new("0");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writes = |dir: PathBuf, name: &'static str| {
            for n in 0_u64.. {
                let mut file = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(dir.join(format!("{name}{}", n % 8)))
                    .unwrap();
                file.write_all(&noise(n, 3000)).unwrap();
                if n % 400 < 8 {
                    file.set_len(0).unwrap();
                }
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        };
        let writers = [(&hosts.here, "here"), (&hosts.there, "there")]
            .map(|(dir, name)| scope.spawn(move || writes(dir.clone(), name)));
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..15).for_each(|_| hosts.first().check());
        }));
        done.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|one| one.join().unwrap());
        assert!(checked.is_ok(), "a check has found something");
    });
    hosts.first().check();
}

/// Random calls on one file at one host, which the other one looks at now and then.
#[test]
fn what_one_host_does_to_a_file_in_any_order_is_what_everybody_reads() {
    if !can_mount("random calls on what is kept") {
        return;
    }
    let hosts = Hosts::new("0");
    for seed in 0..3 {
        let [here, there] = file(&hosts, &format!("random{seed}"));
        let mut model = fs::read(&here).unwrap();
        let (mut one, other) = (writer(&there), writer(&there));
        let mut at_end = OpenOptions::new().append(true).open(&there).unwrap();
        let mut random = Random::new(seed * 7 + 1);
        for step in 0..400 {
            let at = random.below(model.len() + 1) as u64;
            match random.below(40) {
                0 => {
                    assert!(fs::read(&here).unwrap() == model, "seed {seed}, step {step}: at the first host")
                }
                1 => {
                    model.truncate(at as usize);
                    one.set_len(at).unwrap();
                }
                2 => one.sync_all().unwrap(),
                3 => one = writer(&there),
                4 => {
                    let bytes = noise(step, 5000);
                    at_end.write_all(&bytes).unwrap();
                    model.extend_from_slice(&bytes);
                }
                5 => {
                    let cut = OpenOptions::new().write(true).open(&here).unwrap();
                    model.truncate(at as usize);
                    cut.set_len(at).unwrap();
                }
                6..=12 => {
                    let mut found = vec![0; random.below(20_000).min(model.len() - at as usize)];
                    other.read_exact_at(&mut found, at).unwrap();
                    assert!(
                        found == model[at as usize..][..found.len()],
                        "seed {seed}, step {step}: at {at}"
                    );
                }
                13 | 14 => put(&one, &mut model, at, &noise(step, 200_000)),
                n => {
                    let through = if n % 2 == 0 { &one } else { &other };
                    put(through, &mut model, at, &noise(step, 1 + random.below(9_000)));
                }
            }
        }
        drop((one, other, at_end));
        assert!(fs::read(&here).unwrap() == model, "seed {seed}: at the end");
    }
    hosts.first().check();
}
