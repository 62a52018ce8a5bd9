//! A node and its standby as real processes: what was acknowledged is there after a take-over, and the old node does not serve again.

use e2e::Bed;
use e2e::cluster::address;
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LIBRARY: &str = "[library]\ncartridges = 2\ncartridge_capacity = \"64 MiB\"\n";
/// Longest wait for what needs no more than a moment.
const SOON: Duration = Duration::from_secs(120);

fn configure(bed: &Bed, text: &str) {
    std::fs::write(bed.state().join("config.toml"), text).unwrap();
}

struct Pair {
    first: Bed,
    second: Bed,
    at_first: String,
    at_second: String,
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A stopped one would not end.
        for bed in [&self.first, &self.second] {
            signal(bed, Signal::CONT);
            signal(bed, Signal::KILL);
        }
    }
}

/// A second node that joins the cluster of `first` and follows it, and where it listens.
fn standby_of(first: &Bed, name: &str) -> (Bed, String) {
    let at = address();
    let bed = Bed::new(&follows(1, &at));
    join(first, &bed, name);
    assert!(bed.ok(["up"]).contains("as a standby"));
    (bed, at)
}

/// Without starting it.
fn join(first: &Bed, bed: &Bed, name: &str) {
    let token = first.ok(["cluster", "token"]);
    let mut join = bed.command(["cluster", "join", "--name", name]);
    let mut join = join.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    join.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
    assert!(join.wait().unwrap().success());
}

fn follows(node: u32, at: &str) -> String {
    format!("{LIBRARY}[cluster]\nlisten = \"{at}\"\n[standby]\nof = {node}\nlease_s = 4\n")
}

fn is_followed(at: &str, by: &str, settings: &str) -> String {
    format!("{LIBRARY}[cluster]\nlisten = \"{at}\"\n[standby]\nto = [\"{by}\"]\nlease_s = 4\n{settings}")
}

/// A node, and a second one that follows it with these settings.
fn pair(settings: &str) -> Pair {
    pair_whose_certificates_last(None, settings)
}

fn pair_whose_certificates_last(time: Option<Duration>, settings: &str) -> Pair {
    let lasts = time.map(|time| format!("[cluster]\ncertificate_s = {}", time.as_secs()));
    let lasts = |config: &str| config.replace("[cluster]", lasts.as_deref().unwrap_or("[cluster]"));
    let at_first = address();
    let first = Bed::new(&lasts(&format!("{LIBRARY}[cluster]\nlisten = \"{at_first}\"\n")));
    first.up();
    first.ok(["cluster", "init", "--name", "first"]);
    let (second, at_second) = standby_of(&first, "second");
    first.ok(["down"]);
    configure(&first, &lasts(&is_followed(&at_first, &at_second, settings)));
    first.up();
    Pair { first, second, at_first, at_second }
}

fn until(what: &str, mut f: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !f() {
        assert!(begin.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn standby(bed: &Bed) -> Value {
    bed.json(["standby", "status"])
}

fn signal(bed: &Bed, signal: Signal) {
    bed.signal(signal);
}

fn put(bed: &Bed, name: &str) -> Result<(), String> {
    let source = bed.path(&format!("source-{name}"));
    std::fs::write(&source, name).unwrap();
    let output = bed.run(["put", source.to_str().unwrap(), &format!("tc:/{name}")]);
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn has(bed: &Bed, name: &str) -> bool {
    bed.run(["stat", &format!("tc:/{name}")]).status.success()
}

/// Kills the node while four threads put files, and goes on with `then`; what was acknowledged.
fn kill_under_load(bed: &Bed, prefix: &str, then: impl FnOnce()) -> Vec<String> {
    let stop = AtomicBool::new(false);
    let acknowledged = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for thread in 0..4 {
            let (stop, acknowledged) = (&stop, &acknowledged);
            s.spawn(move || {
                for n in 0.. {
                    let name = format!("{prefix}-{thread}-{n}");
                    if stop.load(Ordering::Acquire) || put(bed, &name).is_err() {
                        return;
                    }
                    acknowledged.lock().unwrap().push(name);
                }
            });
        }
        until("files are put", || acknowledged.lock().unwrap().len() >= 8);
        signal(bed, Signal::KILL);
        stop.store(true, Ordering::Release);
        then();
    });
    acknowledged.into_inner().unwrap()
}

/// How often the standby has begun a copy.
fn copies(bed: &Bed) -> usize {
    let log = std::fs::read_to_string(bed.state().join("thermo.log")).unwrap();
    log.matches("a new copy of the catalogue").count()
}

fn is_armed(standby_bed: &Bed) -> bool {
    standby(standby_bed)["promised"] == true
}

#[test]
fn what_was_acknowledged_is_there_after_a_take_over_and_the_old_node_does_not_serve() {
    let pair = pair("mode = \"wait\"\npatience_s = 2\n");
    let (first, second) = (&pair.first, &pair.second);
    until("the copy becomes complete", || standby(second)["promised"] == true);
    put(first, "before").unwrap();
    let (_, error) = second.fails(["status"]);
    assert!(error.contains("is the standby of node 1"), "{error}");
    let (_, error) = second.fails(["standby", "take-over"]);
    assert!(error.contains("may be alive"), "{error}");

    // The standby is cut off: changes wait, then it is said why.
    signal(second, Signal::STOP);
    let begin = Instant::now();
    let refused = put(first, "cut").unwrap_err();
    assert!(begin.elapsed() >= Duration::from_secs(2), "{refused}");
    until("the status says why", || first.ok(["status"]).contains("changes are refused until it answers"));
    signal(second, Signal::CONT);
    until("all goes on", || put(first, "again").is_ok());

    // Killed under load, and started again: what the standby lacks is sent, and its copy stays.
    let mut acknowledged = vec!["before".to_owned(), "again".to_owned()];
    let begun = copies(second);
    for life in 0..3 {
        acknowledged.extend(kill_under_load(first, &format!("life-{life}"), || first.up()));
    }
    assert_eq!((begun, copies(second)), (1, 1), "no second copy was needed");
    acknowledged.extend(kill_under_load(first, "last", || {
        let killed = Instant::now();
        until("its lease runs out", || second.run(["standby", "take-over"]).status.success());
        // One and a half leases, less the second between two signs of life.
        assert!(killed.elapsed() > Duration::from_secs(5), "{:?}", killed.elapsed());
    }));
    for name in &acknowledged {
        assert!(has(second, name), "{name} was acknowledged");
    }
    put(second, "after").unwrap();
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("has taken over from this node"), "{error}");
    // It remembers, whether the other one can be asked or not.
    signal(second, Signal::KILL);
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("has taken over from this node"), "{error}");
    second.up();
    assert!(has(second, "after") && has(second, "before"), "it serves again after a crash of its own");
}

#[test]
fn a_standby_that_was_off_until_its_certificate_ended_goes_on_and_so_do_both() {
    let time = Duration::from_secs(10);
    let pair = pair_whose_certificates_last(Some(time), "mode = \"wait\"\npatience_s = 2\n");
    let (first, second) = (&pair.first, &pair.second);
    until("the copy becomes complete", || is_armed(second));
    put(first, "before").unwrap();

    // Nothing can be changed meanwhile, so nobody gets a new certificate either.
    signal(second, Signal::KILL);
    std::thread::sleep(time + Duration::from_secs(2));
    assert!(put(first, "refused").is_err());
    second.up();
    until("all goes on", || put(first, "again").is_ok());
    until("the standby has a new certificate", || {
        let log = std::fs::read_to_string(second.state().join("thermo.log")).unwrap();
        log.rfind("has a new certificate") > log.rfind("follows")
    });

    signal(first, Signal::KILL);
    signal(second, Signal::KILL);
    std::thread::sleep(time + Duration::from_secs(2));
    second.up();
    first.up();
    until("all goes on", || put(first, "after").is_ok());
    assert!(is_armed(first) && has(first, "before") && has(first, "again"));
}

#[test]
fn who_was_away_during_a_take_over_hears_where_the_namespace_is_though_its_certificate_has_ended() {
    let time = Duration::from_secs(10);
    let pair = pair_whose_certificates_last(Some(time), "mode = \"wait\"\n");
    let (first, second) = (&pair.first, &pair.second);
    // It hears of the first node only, from the token, and is not started.
    let third = Bed::new(&format!("[cluster]\nlisten = \"{}\"\n", address()));
    join(first, &third, "third");
    let joined = Instant::now();
    until("the copy becomes complete", || is_armed(second));
    std::thread::sleep(Duration::from_secs(1));
    let log = std::fs::read_to_string(first.state().join("thermo.log")).unwrap();
    assert!(!log.contains("is not fed"), "the standby is told too, which does not end what feeds it: {log}");
    signal(first, Signal::KILL);
    until("its lease runs out", || second.run(["standby", "take-over"]).status.success());
    std::thread::sleep((time + Duration::from_secs(2)).saturating_sub(joined.elapsed()));
    third.up();
    until("it finds the other node, and is believed", || {
        let log = std::fs::read_to_string(third.state().join("thermo.log")).unwrap();
        log.contains(&pair.at_second) && log.contains("has a new certificate")
    });
    let status = third.json(["cluster", "status"]);
    assert!(status.to_string().contains("\"third\""), "{status}");
}

#[test]
fn one_that_only_follows_shows_how_far_it_is_and_takes_over_by_force_alone() {
    let pair = pair("mode = \"follow\"\n");
    let (first, second) = (&pair.first, &pair.second);
    put(first, "early").unwrap();
    until("it catches up", || {
        let view = standby(second);
        view["complete"] == true && view["number"] == standby(first)["last"]
    });
    signal(second, Signal::STOP);
    put(first, "late").expect("nobody waits for it");
    until("the lag is shown", || {
        let view = standby(first);
        view["last"].as_u64() > view["number"].as_u64() && view["promised"] == false
    });
    signal(first, Signal::KILL);
    signal(second, Signal::CONT);
    let mut said = String::new();
    until("the lease runs out", || {
        said = second.fails(["standby", "take-over"]).1;
        !said.contains("may be alive")
    });
    assert!(said.contains("acknowledges changes without this standby"), "{said}");
    second.ok(["standby", "take-over", "--force"]);
    assert!(has(second, "early"));
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("has taken over from this node"), "{error}");
}

#[test]
fn a_forced_take_over_trusts_no_volume_and_an_interrupted_one_goes_on() {
    let pair = pair("mode = \"follow\"\n");
    let (first, second) = (&pair.first, &pair.second);
    put(first, "early").unwrap();
    first.ok(["migrate", "--wait", "tc:/early"]);
    until("it catches up", || {
        let view = standby(second);
        view["complete"] == true && view["number"] == standby(first)["last"]
    });
    signal(first, Signal::KILL);
    // What cannot be written down does not happen.
    std::fs::create_dir(second.state().join("standby.new")).unwrap();
    let (_, error) = second.fails(["standby", "take-over", "--force"]);
    assert!(error.contains("standby.new") || error.contains("state directory"), "{error}");
    assert_eq!(standby(second)["standby"], true);
    std::fs::remove_dir(second.state().join("standby.new")).unwrap();
    // Interrupted as soon as it is written down.
    signal(second, Signal::KILL);
    let record = second.state().join("standby");
    let text = std::fs::read_to_string(&record).unwrap();
    assert!(text.contains("role = \"follows\""), "{text}");
    let text =
        text.replace("role = \"follows\"", "role = \"taking\"").replace("behind = false", "behind = true");
    std::fs::write(&record, text).unwrap();
    second.up();
    assert!(has(second, "early"));
    let volumes = second.json(["volume", "ls"]);
    let states: Vec<_> = volumes.as_array().unwrap().iter().map(|v| v["volume"]["state"].clone()).collect();
    assert!(states.iter().any(|s| s == "unverified"), "{volumes}");
    let text = std::fs::read_to_string(&record).unwrap();
    assert!(text.contains("role = \"serves\"") && text.contains("behind = false"), "{text}");
}

#[test]
fn a_catalogue_that_is_restored_is_copied_anew_before_anything_is_promised() {
    let pair = pair("mode = \"wait\"\n");
    let (first, second) = (&pair.first, &pair.second);
    until("the copy becomes complete", || is_armed(second));
    let backups = first.path("backups");
    std::fs::create_dir(&backups).unwrap();
    first.ok(["catalog", "backup", backups.to_str().unwrap()]);
    (0..10).for_each(|n| put(first, &format!("lost-{n}")).unwrap());
    first.ok(["down"]);
    // It has promised: without the standby it does not start, whatever its catalogue is now.
    signal(second, Signal::STOP);
    first.ok(["catalog", "restore", backups.to_str().unwrap()]);
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("whether it has taken over is not known"), "{error}");
    signal(second, Signal::CONT);
    first.up();
    put(first, "after").unwrap();
    until("it has the restored one", || copies(second) == 2 && is_armed(second));
    put(first, "armed").unwrap();
    signal(first, Signal::KILL);
    until("its lease runs out", || second.run(["standby", "take-over"]).status.success());
    assert!(has(second, "after") && has(second, "armed") && !has(second, "lost-0"));
}

#[test]
fn a_promise_is_for_one_standby_and_is_taken_back_before_another_gets_it() {
    let Pair { first, second, at_first, at_second } = &pair("mode = \"wait\"\n");
    until("the copy becomes complete", || is_armed(second));
    let (third, at_third) = standby_of(first, "third");
    let third =
        Pair { first: Bed::new(""), second: third, at_first: String::new(), at_second: String::new() };
    first.ok(["down"]);
    for mode in ["mode = \"wait\"\n", "mode = \"follow\"\n"] {
        configure(first, &is_followed(at_first, &at_third, mode));
        let (_, error) = first.fails(["up"]);
        assert!(error.contains("node 2 was promised"), "{error}");
    }
    configure(first, &is_followed(at_first, at_second, "mode = \"follow\"\n"));
    first.up();
    assert!(!is_armed(second), "it has heard that nothing is promised any more");
    first.ok(["down"]);
    configure(first, &is_followed(at_first, &at_third, "mode = \"wait\"\n"));
    first.up();
    until("the third has everything", || is_armed(&third.second));
    put(first, "later").unwrap();
    signal(first, Signal::KILL);
    until("its lease runs out", || third.second.run(["standby", "take-over"]).status.success());
    assert!(has(&third.second, "later"));
    let (_, error) = second.fails(["standby", "take-over"]);
    assert!(error.contains("acknowledges changes without this standby"), "{error}");
}

#[test]
fn after_a_take_over_the_two_change_places_and_back() {
    let Pair { first, second, at_first, at_second } = &pair("mode = \"wait\"\n");
    until("the copy becomes complete", || is_armed(second));
    put(first, "one").unwrap();
    signal(first, Signal::KILL);
    until("its lease runs out", || second.run(["standby", "take-over"]).status.success());
    put(second, "two").unwrap();
    // One that has not heard of it must not be turned into a standby, nor serve.
    configure(first, &follows(2, at_first));
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("does not know that another node has taken over"), "{error}");
    configure(first, &is_followed(at_first, at_second, "mode = \"wait\"\n"));
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("has taken over from this node"), "{error}");
    configure(first, &follows(2, at_first));
    assert!(first.ok(["up"]).contains("as a standby"));
    assert!(first.ok(["up"]).contains("already up, as a standby"));
    assert!(first.ok(["down"]).contains("has stopped"));
    assert!(first.ok(["up"]).contains("as a standby"));
    second.ok(["down"]);
    configure(second, &is_followed(at_second, at_first, "mode = \"wait\"\n"));
    second.up();
    until("the copy becomes complete", || is_armed(first));
    put(second, "three").unwrap();
    signal(second, Signal::KILL);
    until("its lease runs out", || first.run(["standby", "take-over"]).status.success());
    for name in ["one", "two", "three"] {
        assert!(has(first, name), "{name}");
    }
    // The configuration from its first life as a standby does not make it serve what it had.
    configure(second, &follows(1, at_second));
    let (_, error) = second.fails(["up"]);
    assert!(error.contains("does not know that another node has taken over"), "{error}");
}

fn piece(n: usize) -> Vec<u8> {
    e2e::noise(n as u64, 64 << 10)
}

/// Programs that write a large file and make small ones.
#[derive(Default)]
struct Programs {
    stop: AtomicBool,
    /// Pieces of the large file.
    written: AtomicUsize,
    /// Small files.
    made: AtomicUsize,
}

/// Whatever becomes of the test: they end.
struct End<'a>(&'a Programs);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

impl Programs {
    fn done(&self) -> (usize, usize) {
        (self.written.load(Ordering::Acquire), self.made.load(Ordering::Acquire))
    }

    fn write(&self, path: &Path) {
        let file = std::fs::File::create(path).unwrap();
        for n in 0.. {
            if self.stop.load(Ordering::Acquire) {
                return file.sync_all().unwrap();
            }
            file.write_all_at(&piece(n), (n as u64) << 16).unwrap();
            if n % 8 == 0 {
                file.sync_all().unwrap();
            }
            self.written.store(n + 1, Ordering::Release);
        }
    }

    /// Each call succeeds once: one that was under way when the node died is known to have been done, if it was.
    fn make(&self, dir: &Path) {
        for n in 0.. {
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let mut file = std::fs::File::create_new(dir.join(format!("small-{n}"))).unwrap();
            file.write_all(&piece(n)[..100]).unwrap();
            file.sync_all().unwrap();
            self.made.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// A third host, with a target and a mount, uses the namespace: nobody gives an order.
#[test]
fn a_cluster_goes_on_by_itself_when_its_first_host_dies() {
    if !e2e::can_mount("a host that goes on at the standby") {
        return;
    }
    let Pair { first, second, at_second, .. } = &pair("mode = \"wait\"\n");
    second.ok(["down"]);
    configure(second, &format!("{}take_over_after_s = 2\n", follows(1, at_second)));
    second.ok(["up"]);
    let third = e2e::cluster::node();
    e2e::cluster::join(first, &third, "third");
    third.ok(["down"]); // as it is started it hears of the standby
    third.up_mounted();
    first.wait("the target", || e2e::cluster::up(first) == [3]);
    until("the copy becomes complete", || is_armed(second));
    let striped = third.mount().join("striped");
    std::fs::create_dir(&striped).unwrap();
    first.ok(["layout", "set", "tc:/striped", "--stripes", "1"]);

    let programs = Programs::default();
    std::thread::scope(|scope| {
        let end = End(&programs);
        scope.spawn(|| programs.write(&striped.join("big")));
        scope.spawn(|| programs.make(&striped));
        until("there is work", || programs.done().0 > 20 && programs.done().1 > 3);
        signal(first, Signal::KILL);
        let (before, killed) = (programs.done(), Instant::now());
        until("both go on", || programs.done().0 > before.0 + 20 && programs.done().1 > before.1 + 3);
        eprintln!("all went on {:?} after the first host had died", killed.elapsed());
        drop(end);
    });
    let big = std::fs::read(striped.join("big")).unwrap();
    assert!(big.chunks(64 << 10).enumerate().all(|(n, bytes)| bytes == piece(n)));
    assert!(big.len() >> 16 >= programs.done().0);
    let small = std::fs::read_dir(&striped).unwrap().count() - 1;
    assert_eq!(small, programs.done().1, "names");

    // The second node has what the first one had: it signs, and its word counts with targets.
    second.ok(["cluster", "token"]);
    assert_eq!(e2e::cluster::up(second), [3]);
    put(second, "after").unwrap();
    assert!(third.mount().join("after").exists());
    second.check();
    let (_, error) = first.fails(["up"]);
    assert!(error.contains("has taken over from this node"), "{error}");
}
