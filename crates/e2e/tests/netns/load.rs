//! What runs on the clients: fio with verification, programs that write one file at once, tar, and files that go to tape and come back.

use crate::site::{CLIENTS, Site};
use e2e::record::{RECORD, RECORDS, bytes, last_pass};
use e2e::{Bed, digests, make_files, noise};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Programs that write a shared file, on both clients in turn.
const RANKS: usize = 4;
/// Those of one with parity from here on have the native library.
const BY_LIBRARY: usize = 2;
/// Files without redundancy. The first is a shared one.
pub const STRIPED: [&str; 3] = ["striped/shared", "striped/fio-0", "striped/fio-1"];
/// Files that programs write together.
const SHARED: [&str; 2] = [STRIPED[0], "coded/shared"];

pub struct Load {
    stop: Arc<AtomicBool>,
    ranks: Vec<(Rank, Child)>,
    rounds: Vec<Rounds>,
}

/// One of those that write a shared file.
#[derive(Clone, Copy, Debug)]
struct Rank {
    file: usize,
    number: usize,
}

/// All of them.
fn ranks() -> impl Iterator<Item = Rank> {
    (0..SHARED.len()).flat_map(|file| (0..RANKS).map(move |number| Rank { file, number }))
}

/// Something that is done again and again.
struct Rounds {
    what: &'static str,
    pause: Arc<Pause>,
    /// How often it was through.
    done: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

/// Between two rounds.
#[derive(Default)]
struct Pause {
    wanted: AtomicBool,
    /// Held while a round lasts.
    round: Mutex<()>,
}

impl Load {
    pub fn begin(site: &Site) -> Self {
        let [one, other] = CLIENTS.map(|client| site.bed(client).mount());
        site.on_two_targets(|| {
            for name in STRIPED {
                File::create(one.join(name)).unwrap();
            }
        });
        File::create(one.join(SHARED[1])).unwrap();
        let tree = site.bed(CLIENTS[1]).path("tree");
        fs::create_dir(&tree).unwrap();
        make_files(&tree, 12, 150_000);
        let stop = Arc::new(AtomicBool::new(false));
        let [in_stripes, in_copies] = [("striped", &one, &other), ("copies", &other, &one)]
            .map(|(name, dir, elsewhere)| (dir.join(name), elsewhere.join(name)));
        let in_code = (other.join("coded"), one.join("coded"));
        let taped = (site.both(), one.join("taped"), other.join("taped"));
        let rounds = vec![
            again("fio in stripes", &stop, move |n| fio(&in_stripes.0, &in_stripes.1, n)),
            again("fio in copies", &stop, move |n| fio(&in_copies.0, &in_copies.1, n)),
            again("tar", &stop, move |n| tar(&tree, &in_code.0, &in_code.1, n)),
            again("tape", &stop, move |n| tape(&taped.0, &taped.1, &taped.2, n)),
        ];
        let ranks = ranks().map(|rank| (rank, rank.begin(site))).collect();
        Self { stop, ranks, rounds }
    }

    /// Nobody has ended.
    pub fn goes_on(&mut self) {
        for (rank, program) in &mut self.ranks {
            assert_eq!(program.try_wait().unwrap(), None, "{rank:?} has ended");
        }
        for round in &self.rounds {
            assert!(!round.thread.is_finished(), "{} has ended", round.what);
        }
    }

    /// Waits until each has done something more.
    pub fn makes_progress(&self, site: &Site) {
        let done = || {
            let ranks = ranks().map(|rank| rank.written(site));
            let rounds = self.rounds.iter().map(|round| round.done.load(Ordering::Acquire));
            ranks.chain(rounds).collect::<Vec<u64>>()
        };
        let before = done();
        site.first()
            .wait("all programs to go on", || done().iter().zip(&before).all(|(now, before)| now > before));
    }

    /// Does something while no round goes on.
    pub fn without<T>(&self, work: impl FnOnce() -> T) -> T {
        let pauses = || self.rounds.iter().map(|round| &round.pause);
        pauses().for_each(|pause| pause.wanted.store(true, Ordering::Release));
        let held: Vec<_> = pauses().map(|pause| pause.round.lock()).collect();
        let done = work();
        pauses().for_each(|pause| pause.wanted.store(false, Ordering::Release));
        drop(held);
        done
    }

    /// The second client has died, and its programs with it; it is back.
    pub fn begin_again(&mut self, site: &Site) {
        for (rank, program) in self.ranks.iter_mut().filter(|(rank, _)| rank.client() == CLIENTS[1]) {
            let _ = program.kill(); // it may have met an error first
            program.wait().unwrap();
            *program = rank.begin(site);
        }
    }

    /// Lets all end by themselves; every byte is right on both clients.
    pub fn end(mut self, site: &Site) {
        self.stop.store(true, Ordering::Release);
        for Rounds { what, thread, done, .. } in std::mem::take(&mut self.rounds) {
            thread.join().unwrap_or_else(|_| panic!("{what} has failed"));
            println!("{what}: {} rounds", done.load(Ordering::Acquire));
        }
        for (rank, mut program) in std::mem::take(&mut self.ranks) {
            drop(program.stdin.take());
            assert!(program.wait().unwrap().success(), "see what {rank:?} says");
        }
        for (file, name) in SHARED.into_iter().enumerate() {
            let written: Vec<u64> = (0..RANKS).map(|number| Rank { file, number }.written(site)).collect();
            println!("records written of {name}: {written:?}");
            for client in CLIENTS {
                let read = fs::read(site.dir(client, name)).unwrap();
                assert_eq!(read.len() as u64, RECORD * RECORDS * RANKS as u64);
                for (n, record) in (0..).zip(read.chunks(RECORD as usize)) {
                    let pass =
                        last_pass(n / RANKS as u64, written[n as usize % RANKS]).expect("written once");
                    assert!(
                        record == bytes(n, pass),
                        "client {client}: {name}, record {n} of pass {pass}{}",
                        instead(record, n, pass)
                    );
                }
            }
        }
    }
}

/// What is there of a record instead of what was written in this pass.
fn instead(record: &[u8], n: u64, pass: u64) -> String {
    let expected = bytes(n, pass);
    let differs: Vec<usize> = (0..record.len()).filter(|at| record[*at] != expected[*at]).collect();
    let Some((first, last)) = differs.first().zip(differs.last()) else { return String::new() };
    let there = &record[*first..=*last];
    let of = (0..pass + 2).find(|other| there == &bytes(n, *other)[*first..=*last]);
    let zeros = there.iter().all(|byte| *byte == 0);
    format!(": bytes {first} to {last} are of pass {of:?}, zeros: {zeros}, {} differ", differs.len())
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for (_, program) in &mut self.ranks {
            let _ = program.kill(); // it may have ended
        }
    }
}

impl Rank {
    /// Its host.
    fn client(self) -> usize {
        CLIENTS[self.number % 2]
    }

    fn progress(self, site: &Site) -> PathBuf {
        site.bed(self.client()).path(&format!("rank-{}-{}", self.file, self.number))
    }

    /// Records that it has written durably.
    fn written(self, site: &Site) -> u64 {
        fs::read_to_string(self.progress(site)).map_or(0, |text| text.parse().unwrap())
    }

    fn begin(self, site: &Site) -> Child {
        let (client, name) = (self.client(), SHARED[self.file]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_rank"));
        let by_library = self.file == 1 && self.number >= BY_LIBRARY;
        match by_library {
            true => command.arg(format!("/{name}")),
            false => command.arg(site.dir(client, name)),
        };
        command.arg(self.number.to_string()).arg(RANKS.to_string()).arg(self.progress(site));
        if by_library {
            command.arg(site.bed(client).state().join("control.sock"));
        }
        command.stdin(Stdio::piped()).spawn().unwrap()
    }
}

/// Does something again and again in a thread until it is told to stop.
fn again(what: &'static str, stop: &Arc<AtomicBool>, work: impl Fn(usize) + Send + 'static) -> Rounds {
    let (stop, pause, done) = (stop.clone(), Arc::new(Pause::default()), Arc::new(AtomicU64::new(0)));
    let (held, counted) = (pause.clone(), done.clone());
    let thread = std::thread::spawn(move || {
        let rounds = || counted.load(Ordering::Acquire);
        while rounds() == 0 || !stop.load(Ordering::Acquire) {
            if held.wanted.load(Ordering::Acquire) {
                sleep(Duration::from_millis(10));
                continue;
            }
            let _round = held.round.lock();
            work(rounds() as usize);
            counted.fetch_add(1, Ordering::AcqRel);
        }
    });
    Rounds { what, pause, done, thread }
}

/// Writes a file at random places, reads it back and verifies it; then the other client does.
fn fio(dir: &Path, elsewhere: &Path, round: usize) {
    let name = format!("fio-{}", round % 2);
    let run = |dir: &Path, how: &[&str]| {
        let mut command = Command::new("fio");
        command.args(["--name=proof", "--rw=randwrite", "--bs=32k", "--size=4m", "--fallocate=none"]);
        command
            .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--fsync=16"])
            .args(how);
        command.arg(format!("--randseed={round}")).arg(format!("--filename={}", dir.join(&name).display()));
        let output = command.stdin(Stdio::null()).output().expect("fio starts");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "round {round}, {}: {said}", dir.display());
    };
    run(dir, &["--verify_backlog=32", "--rate=2m"]);
    run(elsewhere, &["--verify_only"]);
}

/// Packs a tree into an archive on the mount, unpacks it there at the other client, compares and removes it.
fn tar(tree: &Path, dir: &Path, elsewhere: &Path, round: usize) {
    let (archive, copy) = ("tree.tar", format!("copy-{round}"));
    let tar = |arguments: &[&str], at: &Path| {
        let output = Command::new("tar").args(arguments).current_dir(at).output().expect("tar starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "round {round}: tar {arguments:?}: {said}");
    };
    let path = dir.join(archive);
    tar(&["-cf", path.to_str().unwrap(), "."], tree);
    fs::create_dir(elsewhere.join(&copy)).unwrap();
    tar(&["-xf", &format!("../{archive}")], &elsewhere.join(&copy));
    assert!(digests(tree) == digests(&dir.join(&copy)), "round {round}: what tar has unpacked");
    fs::remove_dir_all(dir.join(&copy)).unwrap();
}

/// Writes files, has them brought to tape and back, and reads them at the other client; then they are released again. Commands that fail because a host is
/// away are given again, as an operator would.
fn tape(nodes: &[Arc<Bed>], dir: &Path, elsewhere: &Path, round: usize) {
    let names = [0, 1].map(|n| format!("file-{}-{n}", round % 2));
    let data = |n: usize| noise((2 * round + n) as u64, 1_500_000);
    for (n, name) in names.iter().enumerate() {
        let _ = fs::remove_file(dir.join(name)); // that of the round before the last
        fs::write(dir.join(name), data(n)).unwrap_or_else(|e| panic!("round {round}: {name}: {e}"));
    }
    let paths = names.each_ref().map(|name| format!("tc:/taped/{name}"));
    let order = |words: &[&str]| {
        let begun = Instant::now();
        loop {
            let given =
                |node: &Arc<Bed>| node.run(words.iter().copied().chain(paths.iter().map(String::as_str)));
            let said: Vec<_> = nodes.iter().map(given).take_while(|said| !said.status.success()).collect();
            if said.len() < nodes.len() {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(150), "round {round}: {words:?}: {said:?}");
            sleep(Duration::from_millis(200));
        }
    };
    order(&["migrate", "--wait"]);
    order(&["purge"]);
    order(&["stage", "--wait"]);
    for (n, name) in names.iter().enumerate() {
        let read = fs::read(elsewhere.join(name)).unwrap_or_else(|e| panic!("round {round}: {name}: {e}"));
        assert!(read == data(n), "round {round}: {name}, as it came from tape");
    }
    order(&["purge"]);
}
