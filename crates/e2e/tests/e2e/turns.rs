//! Hosts with one database that take turns: one serves, and whatever becomes of it another one goes on.

use crate::server::Server;
use e2e::Bed;
use e2e::cluster::address;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vtl::{Library, VtlConfig, serve};

/// The tape library that both hosts reach, each as an initiator of its own.
struct Hall {
    dir: tempfile::TempDir,
    library: Arc<Library>,
    cables: Vec<vtl::Server>,
}

impl Hall {
    const SERIAL: &str = "HALLT001";

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let serial = Self::SERIAL.into();
        let config = VtlConfig {
            capacity_bytes: 64 << 20,
            cartridges: 2,
            serial,
            ..VtlConfig::new(dir.path().join("hall"))
        };
        Self { library: Library::open(config).unwrap(), cables: Vec::new(), dir }
    }

    /// One more host has cables: how a device is called there.
    fn cable(&mut self) -> impl Fn(&str) -> String + use<> {
        let sockets = self.dir.path().join(format!("cables-{}", self.cables.len()));
        self.cables.push(serve(self.library.clone(), &sockets).unwrap());
        move |name| format!("unix:{}", sockets.join(name).display())
    }

    /// What the configuration of one more host says that uses it; the second drive may be at a host that gives it to others.
    fn config(&mut self, elsewhere: Option<&str>) -> String {
        let at = self.cable();
        let drive = |n: usize, device: &str| {
            format!("[[libraries.drives]]\ndevice = {device:?}\nserial = \"{}D0{n}\"\n", Self::SERIAL)
        };
        let far = elsewhere.map(|host| format!("thermo://{host}/drive1"));
        let drives = drive(0, &at("drive0.sock")) + &drive(1, &far.unwrap_or_else(|| at("drive1.sock")));
        let robot = at("changer.sock");
        format!("[tape]\ndrive_retry_s = 1\n[[libraries]]\nname = \"hall\"\nchanger = {robot:?}\n{drives}")
    }
}

/// Of one of those that take turns.
fn config(database: &str, hall: &mut Hall, far_drive: Option<&str>) -> String {
    format!(
        "[catalog]\nengine = {database:?}\ntake_turns_s = 5\n[cluster]\nlisten = \"{}\"\n{}",
        address(),
        hall.config(far_drive)
    )
}

/// Two hosts that take turns, and a third one with a target, a drive for both, and a mount.
struct Site {
    first: Bed,
    second: Bed,
    third: Bed,
    server: Server,
    _hall: Hall,
}

impl Drop for Site {
    fn drop(&mut self) {
        // One that is stopped would not end.
        for bed in [&self.first, &self.second] {
            bed.signal(Signal::CONT);
            bed.signal(Signal::KILL);
        }
    }
}

impl Site {
    /// `by`: the socket by which the first one reaches the server, if it is another one.
    fn new(server: Server, by: Option<&Path>) -> Self {
        let settings = "&connections=6&relaxed=no";
        let there = server.address("turns", settings);
        let at_first = by.map_or(there.clone(), |dir| server.address_by(dir, "turns", settings));
        let mut hall = Hall::new();
        let third = e2e::cluster::node();
        let path = third.state().join("config.toml");
        let text = fs::read_to_string(&path).unwrap();
        let listens = text.split("\nlisten = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let [first, second] =
            [&at_first, &there].map(|database| Bed::new(&config(database, &mut hall, Some(listens))));
        let drive = hall.cable()("drive1.sock");
        let given = format!("[[devices]]\nname = \"drive1\"\ndevice = {drive:?}\nnode = [1, 2]\n");
        fs::write(&path, text.clone() + &given).unwrap();
        first.up();
        first.ok(["cluster", "init", "--name", "first"]);
        e2e::cluster::join(&first, &second, "second");
        assert!(second.ok(["up"]).contains("and waits for its turn"));
        second.wait("the keys", || {
            let own = &waits(&second)["nodes"][1];
            own["state"] == "Waits" && own["lacks"].is_null()
        });
        e2e::cluster::join(&first, &third, "third");
        third.ok(["down"]); // as it is started it hears where the namespace may be
        third.up_mounted();
        first.wait("the target", || e2e::cluster::up(&first) == [3]);
        fs::create_dir(third.mount().join("striped")).unwrap();
        first.ok(["layout", "set", "tc:/striped", "--stripes", "1"]);
        Self { first, second, third, server, _hall: hall }
    }

    /// Who serves, and who waits; on a busy machine that may have changed without a fault.
    fn who(&self) -> [&Bed; 2] {
        let waits_for = |bed: &Bed| waits(bed)["nodes"][0]["state"] == "Serves";
        let mut found = [&self.first, &self.second];
        self.third.wait("one to serve and one to wait", || {
            found.reverse();
            serves(found[0]) && waits_for(found[1])
        });
        found
    }

    /// The drive of the third host is in use by whoever serves, in his turn, which is later than `before`: nobody of an earlier turn gets it any more. Which turn it is.
    fn has_the_far_drive(&self, serving: &Bed, before: u64) -> u64 {
        let usable = |status: &Value| status == "free" || status == "idle";
        serving.wait("the far drive", || usable(&serving.json(["drive", "ls"])[1]["status"]));
        let number = |bed: &Bed, file: &str, key: &str| -> u64 {
            let text = fs::read_to_string(bed.state().join(file)).unwrap();
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = ")).unwrap();
            value.parse().unwrap()
        };
        let turn = number(serving, "standby", "epoch");
        assert_eq!(number(&self.third, "devices", "drive1"), turn);
        assert!(turn > before, "turn {turn} after {before}");
        turn
    }

    /// While somebody at the third host makes files, something happens; he goes on after it. What he has made is there, once.
    fn through(&self, done: &Made, what: &str, happens: impl FnOnce()) {
        let begin = Instant::now();
        happens();
        let before = done.0.load(Ordering::Acquire);
        self.third.wait(what, || done.0.load(Ordering::Acquire) > before + 3);
        eprintln!("{what}: gone on {:?} after it began", begin.elapsed());
        let names = fs::read_dir(self.third.mount().join("striped")).unwrap().count();
        let made = done.0.load(Ordering::Acquire);
        assert!((before..=made + 1).contains(&names), "{what}: {names} names, {before} to {made} were made");
    }

    /// Makes files at the third host as long as something is done.
    fn while_names_are_made(&self, f: impl FnOnce(&Made)) {
        let (dir, done, stop) = (self.third.mount().join("striped"), Made::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| done.make(&dir, &stop));
            let end = End(&stop);
            f(&done);
            drop(end);
        });
        assert_eq!(fs::read_dir(&dir).unwrap().count(), done.0.load(Ordering::Acquire), "names");
    }
}

/// Files that were made.
#[derive(Default)]
struct Made(AtomicUsize);

impl Made {
    /// Each call succeeds once: one that was under way when the node died is known to have been done, if it was.
    fn make(&self, dir: &Path, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let n = self.0.load(Ordering::Acquire);
            let mut file = fs::File::create_new(dir.join(format!("file-{n}"))).unwrap();
            file.write_all(b"bytes").unwrap();
            file.sync_all().unwrap();
            self.0.store(n + 1, Ordering::Release);
        }
    }
}

/// Whatever becomes of the test: he ends.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What one that waits sees.
fn waits(bed: &Bed) -> Value {
    let shown = bed.run(["--json", "cluster", "status"]);
    let view: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
    if view["waits"] == true { view } else { Value::Null }
}

fn serves(bed: &Bed) -> bool {
    bed.run(["status"]).status.success()
}

#[test]
fn one_serves_and_the_other_goes_on_when_it_is_killed_stopped_or_told_to_end() {
    if !e2e::can_mount("hosts that take turns") {
        return;
    }
    let site = Site::new(Server::start(), None);
    let (first, second) = (&site.first, &site.second);
    let (_, error) = second.fails(["ls", "tc:/"]);
    assert!(error.contains("waits for its turn: the names are at"), "{error}");
    let shown = first.ok(["cluster", "status"]);
    assert!(shown.contains("this node serves") && shown.contains("waits"), "{shown}");
    site.while_names_are_made(|done| {
        first.wait("work", || done.0.load(Ordering::Acquire) > 3);
        let mut turn = 0;
        for n in 0..2 {
            let [serving, _] = site.who();
            turn = site.has_the_far_drive(serving, turn);
            // Each has the drives of the library that both reach.
            let file = format!("tc:/striped/file-{n}");
            serving.wait("its copies", || serving.run(["migrate", "--wait", &file]).status.success());
            site.through(done, "who serves is killed", || serving.signal(Signal::KILL));
            assert!(serving.ok(["up"]).contains("and waits for its turn"));
        }
        let [stopped, other] = site.who();
        turn = site.has_the_far_drive(stopped, turn);
        site.through(done, "who serves stands still", || {
            stopped.signal(Signal::STOP);
            other.wait("its turn", || serves(other));
        });
        turn = site.has_the_far_drive(other, turn);
        stopped.signal(Signal::CONT);
        stopped.wait("it to wait", || !waits(stopped).is_null());
        assert!(stopped.log().contains("the turn of this node is over"), "{}", stopped.log());
        let [serving, _] = site.who();
        site.through(done, "who serves is told to end", || {
            serving.ok(["down"]);
        });
        assert!(serving.ok(["up"]).contains("and waits for its turn"));
        let [serving, _] = site.who();
        site.has_the_far_drive(serving, turn);
    });
    let [serving, other] = site.who();
    // Whichever it is: it signs, and its word counts with targets.
    serving.ok(["cluster", "token"]);
    assert_eq!(e2e::cluster::up(serving), [3]);
    serving.check();
    other.ok(["down"]);
    serving.wait("nobody to wait", || serving.ok(["status"]).contains("no other node waits"));
}

/// A way to a server that can be cut: nothing that is sent arrives, and nobody is told.
struct Way {
    dir: PathBuf,
    cut: Arc<AtomicBool>,
}

impl Way {
    fn to(server: &Server, dir: &Path) -> Self {
        let way = Self { dir: dir.into(), cut: Arc::default() };
        let real = server.socket();
        let listener = UnixListener::bind(dir.join(real.file_name().unwrap())).unwrap();
        let cut = way.cut.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&real));
                let Ok(server) = server else { continue };
                for (mut from, mut to) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    let cut = cut.clone();
                    thread::spawn(move || {
                        let mut bytes = [0; 1 << 16];
                        while let Ok(got @ 1..) = from.read(&mut bytes) {
                            while cut.load(Ordering::Acquire) {
                                thread::sleep(Duration::from_millis(10));
                            }
                            if to.write_all(&bytes[..got]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both); // it may be gone already
                    });
                }
            }
        });
        way
    }
}

#[test]
fn a_host_that_is_cut_off_from_the_database_gives_way_and_one_that_dies_is_waited_for() {
    if !e2e::can_mount("hosts that take turns, and their database") {
        return;
    }
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let way = Way::to(&server, dir.path());
    let site = Site::new(server, Some(&way.dir));
    let (first, second) = (&site.first, &site.second);
    site.while_names_are_made(|done| {
        first.wait("work", || done.0.load(Ordering::Acquire) > 3);
        // The third host reaches the first one all the time.
        site.through(done, "the way to the database is cut", || {
            way.cut.store(true, Ordering::Release);
            second.wait("its turn", || serves(second));
        });
        assert!(!serves(first));
        way.cut.store(false, Ordering::Release);
        first.wait("the other one to serve", || waits(first)["nodes"][0]["state"] == "Serves");
        site.through(done, "the database dies", || {
            site.server.crash(true);
            thread::sleep(Duration::from_secs(7)); // longer than the lease
            assert!(!serves(second) && !serves(first));
            site.server.up();
        });
        first.wait("one of them", || serves(first) || serves(second));
    });
}

/// Nobody is there who would start it again.
#[test]
fn a_host_whose_turn_fails_late_waits_for_the_next_one() {
    let (server, address) = (Server::start(), address());
    let database = server.address("alone", "&connections=3");
    let bed = Bed::new("");
    // A mount point where nothing can be mounted.
    fs::write(bed.path("file"), "").unwrap();
    let config = format!(
        "mount = {:?}\n[catalog]\nengine = {database:?}\ntake_turns_s = 3\n[cluster]\nlisten = \"{address}\"\n",
        bed.path("file")
    );
    fs::write(bed.state().join("config.toml"), config).unwrap();
    let taken = std::net::TcpListener::bind(&address).unwrap();
    bed.run(["up", "--timeout", "1"]);
    let fails = || bed.log().matches("cannot take its turn").count();
    bed.wait("its second turn to fail", || fails() >= 2);
    drop(taken);
    bed.wait("it to serve", || serves(&bed));
    assert!(bed.log().contains("serves without it"), "{}", bed.log());
    bed.ok(["down"]);
}

/// However long it was away: a replica in its place may not have been told all.
#[test]
fn a_database_that_comes_back_without_what_it_had_is_not_taken() {
    let server = Server::start();
    let database = server.address("older", "&connections=3&relaxed=no");
    let bed = Bed::new(&format!("[catalog]\nengine = {database:?}\ntake_turns_s = 3\n"));
    bed.up();
    bed.wait("it to serve", || serves(&bed));
    let file = bed.path("file");
    fs::write(&file, "bytes").unwrap();
    bed.ok(["put".as_ref(), file.as_os_str(), "tc:/kept".as_ref()]);
    server.crash(true);
    bed.wait("the end of its turn", || bed.log().contains("the turn of this node is over"));
    bed.wait("it to wait", || !waits(&bed).is_null());
    bed.signal(Signal::STOP);
    server.up();
    let row = "older.kv_session SET seq = seq";
    server.sql(&format!("UPDATE {row} - 1"));
    bed.signal(Signal::CONT);
    let trouble = || waits(&bed)["trouble"].as_str().unwrap_or_default().to_owned();
    bed.wait("it to refuse", || trouble().contains("has lost what was acknowledged"));
    let (_, refused) = bed.fails(["ls", "tc:/"]);
    assert!(refused.contains("waits for its turn"), "{refused}");
    // Refused again by another process, and taken once it has all again.
    bed.signal(Signal::KILL);
    bed.run(["up"]);
    bed.wait("it to refuse", || trouble().contains("has lost what was acknowledged"));
    server.sql(&format!("UPDATE {row} + 1"));
    bed.wait("it to serve", || serves(&bed));
    assert!(bed.ok(["ls", "tc:/"]).contains("kept"));
    bed.ok(["down"]);
}

/// Whoever waits for long looks whether another node serves: a second address of the same node is none.
#[test]
fn a_node_with_two_addresses_is_not_taken_for_two() {
    if !e2e::can_mount("a node with two addresses") {
        return;
    }
    let port = 20_000 + std::process::id() % 20_000;
    let first = Bed::new(&format!(
        "[cluster]\nlisten = \"0.0.0.0:{port}\"\ncontrol = [\"127.0.0.1:{port}\", \"127.0.0.2:{port}\"]\n"
    ));
    first.up();
    first.ok(["cluster", "init", "--name", "first"]);
    let third = e2e::cluster::node();
    e2e::cluster::join(&first, &third, "third");
    third.ok(["down"]);
    third.up_mounted();
    let path = third.mount().join("locked");
    let holds = fs::File::create(&path).unwrap();
    holds.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| fs::File::open(&path).unwrap().lock().unwrap());
        thread::sleep(Duration::from_secs(8)); // looked for twice
        holds.unlock().unwrap();
    });
    assert!(!third.log().contains("does not answer"), "{}", third.log());
}

/// It knows more than is stored: also when it is started again, somebody has to look before it goes on from there.
#[test]
fn what_a_node_has_seen_its_database_lose_is_not_taken_by_it_when_it_is_started_again() {
    let server = Server::start();
    let database = server.address("rewound", "&connections=3&relaxed=no");
    let bed = Bed::new(&format!("[catalog]\nengine = {database:?}\ntake_turns_s = 3\n"));
    let (file, reached) = (bed.path("file"), bed.state().join("engine-reached"));
    fs::write(&file, "bytes").unwrap();
    let put = |name: &str| bed.run(["put".as_ref(), file.as_os_str(), name.as_ref()]).status.success();
    let trouble = || waits(&bed)["trouble"].as_str().unwrap_or_default().to_owned();
    let row = "rewound.kv_session SET seq = seq";
    bed.up();
    for in_order in [false, true] {
        bed.wait("it to serve", || serves(&bed));
        assert!(put("tc:/kept") || in_order);
        let before = fs::read(&reached).unwrap();
        server.sql(&format!("UPDATE {row} - 1"));
        bed.wait("it to notice", || !put("tc:/other"));
        bed.wait("it to write that down", || fs::read(&reached).unwrap() != before);
        match in_order {
            true => drop(bed.ok(["down"])),
            false => bed.signal(Signal::KILL),
        }
        bed.run(["up"]);
        bed.wait("it to refuse", || trouble().contains("has lost what was acknowledged"));
        if !in_order {
            server.sql(&format!("UPDATE {row} + 1"));
        }
    }
    fs::rename(&reached, bed.state().join("engine-reached.given-up")).unwrap();
    bed.wait("it to serve", || serves(&bed));
    assert!(bed.ok(["ls", "tc:/"]).contains("kept"));
    bed.ok(["down"]);
}

/// Nobody would believe it when its turn comes.
#[test]
fn a_host_that_waits_for_longer_than_its_certificate_is_good_gets_others() {
    let server = Server::start();
    let database = server.address("certificates", "&connections=6&relaxed=no");
    let mut hall = Hall::new();
    let mut host = || {
        Bed::new(
            &config(&database, &mut hall, None).replace("[cluster]\n", "[cluster]\ncertificate_s = 12\n"),
        )
    };
    let (first, second) = (host(), host());
    first.up();
    first.ok(["cluster", "init", "--name", "first"]);
    e2e::cluster::join(&first, &second, "second");
    assert!(second.ok(["up"]).contains("and waits for its turn"));
    let renewed = || second.log().matches("waits for its turn, has a new certificate").count();
    second.wait("certificates", || renewed() >= 3);
    let own = &waits(&second)["nodes"][1];
    assert!(own["state"] == "Waits" && own["lacks"].is_null(), "{own}");
    first.kill();
    second.wait("its turn", || serves(&second));
    assert!(first.ok(["up"]).contains("and waits for its turn"));
    first.wait("the keys", || waits(&first)["nodes"][1]["lacks"].is_null());
    first.ok(["down"]);
    second.ok(["down"]);
}
