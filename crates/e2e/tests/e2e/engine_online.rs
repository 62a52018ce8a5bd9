//! The catalogue of a running node moves from one engine to another while files are made, renamed and removed through its mount.

use crate::server::Server;

use crate::support::newest;
use e2e::{Bed, can_mount, make_files};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CONFIG: &str = "# of this site\n[library]\ncartridge_capacity = \"256 MiB\"\n[[classes]]\nname = \"default\"\n\
                      copies = [\"primary\", \"second\"]\nmigrate_after_s = 3600\n";
const EMBEDDED: &str = "embedded";
/// Directories, each with a thread that works in it.
const WORKERS: usize = 3;
/// Changes of a directory between two that are made durable.
const BETWEEN: usize = 4;

fn settings(bed: &Bed) -> String {
    fs::read_to_string(bed.state().join("config.toml")).unwrap()
}

fn in_database(bed: &Bed) -> bool {
    settings(bed).contains("postgres://")
}

/// Names of a directory, with what the files hold.
type Names = BTreeMap<String, String>;

fn names(dir: &Path) -> Names {
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    };
    fs::read_dir(dir).unwrap().map(|entry| read(entry.unwrap())).collect()
}

/// What may be in a directory: as it was when it was durable last, and after each change since, the last of which may have failed.
struct Model {
    dir: PathBuf,
    may_be: Vec<Names>,
    next: u64,
}

impl Model {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir(&dir).unwrap();
        Self { dir, may_be: vec![Names::new()], next: 0 }
    }

    /// Makes a change: a file, another name for the one made last, or one less.
    fn change(&mut self) -> std::io::Result<()> {
        let mut names = self.may_be.last().expect("a state").clone();
        let (n, kind) = (self.next / 3, self.next % 3);
        let (new, made) = (format!("new{n}"), format!("made{n}"));
        let path = |name: &str| self.dir.join(name);
        self.next += 1;
        let mut gone = None;
        match kind {
            0 => drop(names.insert(new.clone(), new.clone())),
            1 => {
                let content = names.remove(&new).expect("it was made");
                names.insert(made.clone(), content);
            }
            _ => {
                gone = names.keys().find(|name| name.starts_with("made")).cloned().filter(|_| names.len() > 5)
            }
        }
        if let Some(gone) = &gone {
            names.remove(gone);
        }
        self.may_be.push(names);
        match kind {
            0 => {
                // A file whose bytes have not come may be empty after a kill: its name comes when they are there.
                let hidden = self.dir.with_extension(&new);
                let mut file = File::create(&hidden)?;
                file.write_all(new.as_bytes())?;
                file.sync_all()?;
                fs::rename(hidden, path(&new))
            }
            1 => fs::rename(path(&new), path(&made)),
            _ => gone.map_or(Ok(()), |gone| fs::remove_file(path(&gone))),
        }
    }

    fn make_durable(&mut self) -> std::io::Result<()> {
        File::open(&self.dir)?.sync_all()?;
        self.may_be.drain(..self.may_be.len() - 1);
        Ok(())
    }

    /// Works until it is told to stop, or something fails: then why.
    fn work(&mut self, stop: &AtomicBool) -> Option<std::io::Error> {
        while !stop.load(Ordering::Acquire) {
            for _ in 0..BETWEEN {
                if let Err(e) = self.change() {
                    return Some(e);
                }
            }
            if let Err(e) = self.make_durable() {
                return Some(e);
            }
        }
        None
    }

    /// After a kill: what was durable is there, and of the rest a beginning.
    fn compare(&mut self) {
        let found = names(&self.dir);
        let known = self.may_be.iter().position(|names| *names == found);
        assert!(known.is_some(), "{}: {found:#?} is none of {:#?}", self.dir.display(), self.may_be);
        // It goes on with other names.
        self.next = (self.next / 3 + 7) * 3;
        self.may_be = vec![found];
    }
}

/// Removes what changes that failed have left beside the directories.
fn sweep(bed: &Bed) {
    for entry in fs::read_dir(bed.mount()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && path.extension().is_some() {
            fs::remove_file(path).unwrap();
        }
    }
}

fn models(bed: &Bed) -> Vec<Model> {
    (0..WORKERS).map(|n| Model::new(bed.mount().join(format!("w{n}")))).collect()
}

/// Runs `f` while threads work in the directories of the models; whether nothing they did has failed.
fn beside<T>(models: &mut [Model], f: impl FnOnce() -> T) -> (T, bool) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = models.iter_mut().map(|model| scope.spawn(|| model.work(&stop))).collect();
        let done = f();
        stop.store(true, Ordering::Release);
        let failed: Vec<_> = threads.into_iter().filter_map(|t| t.join().unwrap()).collect();
        failed.iter().for_each(|e| eprintln!("a change failed: {e}"));
        (done, failed.is_empty())
    })
}

/// Moves there and waits.
fn moved(bed: &Bed, to: &str) -> String {
    let view = bed.json(["engine", "move", "--wait", "--to", to]);
    assert_eq!(view["request"]["state"], "done", "{view}");
    view["request"]["message"].as_str().unwrap().into()
}

fn pause_ms(message: &str) -> u64 {
    let (_, rest) = message.split_once("held back for ").expect("the pause");
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// There and back, twice, while files are changed and one stays open: no call fails, and everything is there, after a restart too.
#[test]
fn a_catalogue_moves_there_and_back_while_files_change() {
    if !can_mount("a_catalogue_moves_there_and_back_while_files_change") {
        return;
    }
    let (server, bed) = (Server::start(), Bed::new(CONFIG));
    bed.up_mounted();
    let mut models = models(&bed);
    let mut open =
        File::options().create_new(true).read(true).write(true).open(bed.mount().join("open")).unwrap();
    let mut expected = String::new();
    for round in 0..2 {
        let address = server.address(&format!("round{round}"), "&connections=4");
        for to in [address.as_str(), EMBEDDED] {
            let (message, well) = beside(&mut models, || {
                thread::sleep(Duration::from_millis(100)); // there is something to be moved
                moved(&bed, to)
            });
            assert!(well && message.contains("sha256"), "{message}");
            eprintln!("held back for {} ms: {message}", pause_ms(&message));
            assert_eq!(in_database(&bed), to != EMBEDDED);
            assert!(settings(&bed).starts_with("# of this site\n"));
            assert!(!bed.state().join("engine-move").exists());
            let line = format!("{round} {to}\n");
            open.write_all(line.as_bytes()).unwrap();
            expected += &line;
            let (_, there) = bed.fails(["engine", "move", "--to", to]);
            assert!(there.contains("is there already"), "{there}");
        }
        models.iter_mut().for_each(Model::compare);
    }
    let address = server.address("last", "&connections=4");
    moved(&bed, &address);
    open.sync_all().unwrap();
    drop(open);
    bed.check();
    bed.ok(["down"]);
    bed.up_mounted();
    let mut read = String::new();
    File::open(bed.mount().join("open")).unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read, expected);
    models.iter_mut().for_each(Model::compare);
    bed.check();
    bed.ok(["down"]);
    fs::write(bed.state().join("config.toml"), CONFIG).unwrap();
    let (_, left) = bed.fails(["up"]);
    assert!(left.contains("the catalogue was moved to"), "{left}");
}

/// Begins a move in the background.
fn begun(bed: &Bed, to: &str) -> Child {
    let mut command = bed.command(["engine", "move", "--wait", "--to", to]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The state of the request made last agrees with where the catalogue is.
fn tells_the_truth(bed: &Bed, to: &str) {
    let request = newest(bed);
    let there = in_database(bed) == (to != EMBEDDED);
    // A server that fails behind the decision leaves it there, for the next start, which the request says.
    let decided = request["message"].as_str().is_some_and(|said| said.contains("now, and the next start"));
    let says = request["state"] == "done" || decided;
    assert!(request["kind"] != "move-engine" || says == there, "{there}: {request}");
}

/// When the node is killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// So many hundredths of a whole move after its beginning.
    After(u32),
    /// So long after the note of the move came.
    Note(Duration),
}

/// Moves there, and kills the node meanwhile, or at the end if the move was faster. Nothing that was durable is lost.
fn kill_during(bed: &Bed, models: &mut [Model], to: &str, whole: Duration, kill: Kill) {
    let node = Pid::from_raw(bed.pid()).expect("a pid");
    let (mut child, _) = beside(models, || {
        let mut child = begun(bed, to);
        let from = Instant::now();
        match kill {
            Kill::After(share) => thread::sleep(whole * share / 100),
            Kill::Note(later) => {
                // It may come and go between two looks.
                while !bed.state().join("engine-move").exists() && child.try_wait().unwrap().is_none() {
                    std::hint::spin_loop();
                }
                thread::sleep(later);
            }
        }
        kill_process(node, Signal::KILL).unwrap();
        eprintln!("{kill:?}: killed after {:?} of {whole:?}", from.elapsed());
        child
    });
    // It waits for the node to come back.
    let _ = child.kill();
    child.wait().unwrap();
    let unmounted = Command::new("umount").arg("-l").arg(bed.mount()).status().unwrap();
    assert!(unmounted.success());
    bed.up_mounted();
    models.iter_mut().for_each(Model::compare);
    sweep(bed);
    tells_the_truth(bed, to);
}

/// Killed at any moment of a move, in both directions, the node goes on from the one engine that counts, with all that was durable.
#[test]
fn a_node_that_is_killed_while_it_moves_has_one_engine_that_counts() {
    if !can_mount("a_node_that_is_killed_while_it_moves_has_one_engine_that_counts") {
        return;
    }
    let (server, bed) = (Server::start(), Bed::new(CONFIG));
    bed.up_mounted();
    let mut models = models(&bed);
    let begin = Instant::now();
    moved(&bed, &server.address("first", "&connections=4"));
    let whole = begin.elapsed();
    moved(&bed, EMBEDDED);
    let kills = [
        [Kill::After(40), Kill::Note(Duration::ZERO)],
        [Kill::Note(Duration::from_millis(5)), Kill::After(70)],
        [Kill::Note(Duration::from_millis(20)), Kill::Note(Duration::from_millis(10))],
        [Kill::After(90), Kill::Note(Duration::from_millis(30))],
    ];
    for (round, kills) in kills.into_iter().enumerate() {
        let address = server.address(&format!("killed{round}"), "&connections=4");
        for (to, kill) in [address.as_str(), EMBEDDED].into_iter().zip(kills) {
            kill_during(&bed, &mut models, to, whole, kill);
            if in_database(&bed) != (to != EMBEDDED) {
                moved(&bed, to);
                models.iter_mut().for_each(Model::compare);
            }
        }
    }
    bed.check();
    bed.ok(["down"]);
}

/// A server that fails during a move is a pause, or the end of the move; never of anything else.
#[test]
fn a_server_that_fails_during_a_move_harms_nobody() {
    if !can_mount("a_server_that_fails_during_a_move_harms_nobody") {
        return;
    }
    let (server, bed) = (Server::start(), Bed::new(CONFIG));
    bed.up_mounted();
    let mut models = models(&bed);
    for wait_ms in [60, 120, 200] {
        let address = server.address(&format!("failing{wait_ms}"), "&connections=4");
        let ((), well) = beside(&mut models, || {
            let mut child = begun(&bed, &address);
            thread::sleep(Duration::from_millis(wait_ms));
            server.crash(true);
            server.up();
            child.wait().unwrap();
        });
        tells_the_truth(&bed, &address);
        eprintln!("{}", newest(&bed));
        if in_database(&bed) {
            // With changes that were not durable it may have to start anew, as always.
            bed.ok(["down"]);
            bed.up_mounted();
            moved(&bed, EMBEDDED);
        } else {
            assert!(well, "a change failed while the old engine counted");
        }
        models.iter_mut().for_each(Model::compare);
        sweep(&bed);
    }
    moved(&bed, &server.address("works", "&connections=4"));
    models.iter_mut().for_each(Model::compare);
    bed.check();
    bed.ok(["down"]);
}

/// Until the switch a move can be withdrawn: the catalogue stays, and moves when it is asked again.
#[test]
fn a_move_that_is_withdrawn_leaves_the_catalogue_where_it_is() {
    let (server, bed) = (Server::start(), Bed::new(CONFIG));
    let address = server.address("held", "&connections=4");
    make_files(&bed.path("tree"), 20, 1_000);
    bed.up();
    bed.ok(["put".as_ref(), "-T".as_ref(), bed.path("tree").as_os_str(), "tc:/tree".as_ref()]);
    for to in [address.as_str(), EMBEDDED] {
        moved(&bed, to);
    }
    bed.ok(["down"]);
    bed.ok(["engine", "clear", "--at", address.as_str()]);
    bed.up();
    server.sql("CREATE TABLE held.let_go (one int)");
    let waits = "LOCK TABLE held.kv; WHILE NOT EXISTS (SELECT 1 FROM held.let_go) LOOP PERFORM pg_sleep(0.02); END LOOP;";
    thread::scope(|scope| {
        scope.spawn(|| server.sql(&format!("DO $$ BEGIN {waits} END $$")));
        let locked = "SELECT count(*) FROM pg_locks WHERE relation = 'held.kv'::regclass AND granted AND mode = 'AccessExclusiveLock'";
        bed.wait("the lock", || server.sql(locked) == "1");
        let view = bed.json(["engine", "move", "--to", address.as_str()]);
        let id = view["request"]["id"].to_string();
        let (_, busy) = bed.fails(["engine", "move", "--to", address.as_str()]);
        assert!(busy.contains("is being moved already"), "{busy}");
        bed.ok(["request", "cancel", id.as_str()]);
        assert_eq!(newest(&bed)["state"], "cancelled");
        server.sql("INSERT INTO held.let_go VALUES (1)");
    });
    bed.wait("the end of the move that was withdrawn", || {
        bed.run(["engine", "move", "--wait", "--to", address.as_str()]).status.success()
    });
    assert_eq!(newest(&bed)["state"], "done");
    let requests = bed.json(["request", "ls", "--all"]);
    let states: Vec<_> = requests.as_array().unwrap().iter().map(|r| r["request"]["state"].clone()).collect();
    assert!(states.contains(&"cancelled".into()), "{requests}");
    assert!(in_database(&bed));
    bed.ok(["stat", "tc:/tree"]);
    bed.check();
    bed.ok(["down"]);
}
