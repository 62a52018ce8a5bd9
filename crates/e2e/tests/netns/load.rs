//! What runs on the clients: fio with verification, programs that write one file at once, tar.

use crate::site::{CLIENTS, Site};
use e2e::record::{RECORD, RECORDS, bytes};
use e2e::{digests, make_files};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Programs that write the shared file, on both clients in turn.
const RANKS: usize = 4;
/// The file that they write.
const SHARED: &str = "striped/shared";

pub struct Load {
    stop: Arc<AtomicBool>,
    ranks: Vec<Child>,
    /// Each says how often it was through.
    rounds: Vec<(&'static str, JoinHandle<usize>)>,
}

impl Load {
    pub fn begin(site: &Site) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ranks = (0..RANKS).map(|rank| begin_rank(&site.dir(CLIENTS[rank % 2], SHARED), rank)).collect();
        let [one, other] = CLIENTS.map(|client| site.bed(client).mount());
        let tree = site.bed(CLIENTS[1]).path("tree");
        fs::create_dir(&tree).unwrap();
        make_files(&tree, 12, 150_000);
        let rounds = vec![
            again("fio in stripes", &stop, {
                let (a, b) = (one.join("striped"), other.join("striped"));
                move |n| fio(&a, &b, n)
            }),
            again("fio in copies", &stop, {
                let (a, b) = (other.join("copies"), one.join("copies"));
                move |n| fio(&a, &b, n)
            }),
            again("tar", &stop, {
                let (a, b) = (other.join("coded"), one.join("coded"));
                move |n| tar(&tree, &a, &b, n)
            }),
        ];
        Self { stop, ranks, rounds }
    }

    /// Nobody has ended.
    pub fn goes_on(&mut self) {
        for (n, rank) in self.ranks.iter_mut().enumerate() {
            assert_eq!(rank.try_wait().unwrap(), None, "rank {n} has ended");
        }
        for (what, thread) in &self.rounds {
            assert!(!thread.is_finished(), "{what} has ended");
        }
    }

    /// Lets all end by themselves; every byte is right on both clients.
    pub fn end(mut self, site: &Site) {
        self.stop.store(true, Ordering::Release);
        for (what, thread) in std::mem::take(&mut self.rounds) {
            let rounds = thread.join().unwrap_or_else(|_| panic!("{what} has failed"));
            println!("{what}: {rounds} rounds");
            assert!(rounds > 0, "{what}");
        }
        let ranks: Vec<(u64, u64)> = std::mem::take(&mut self.ranks).into_iter().map(end_rank).collect();
        println!("passes of the shared file, and records more: {ranks:?}");
        for client in CLIENTS {
            let read = fs::read(site.dir(client, SHARED)).unwrap();
            assert_eq!(read.len() as u64, RECORD * RECORDS * RANKS as u64);
            for (n, record) in (0..).zip(read.chunks(RECORD as usize)) {
                let (passes, more) = ranks[n as usize % RANKS];
                let last = if n / (RANKS as u64) < more { passes } else { passes - 1 };
                assert!(record == bytes(n, last), "client {client}: record {n} of pass {last}");
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for rank in &mut self.ranks {
            let _ = rank.kill();
        }
    }
}

fn begin_rank(path: &Path, rank: usize) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rank"));
    command.arg(path).arg(rank.to_string()).arg(RANKS.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// How often all its records were written, and how many once more.
fn end_rank(mut rank: Child) -> (u64, u64) {
    drop(rank.stdin.take());
    let output = rank.wait_with_output().unwrap();
    assert!(output.status.success(), "see what the rank says");
    let said = String::from_utf8(output.stdout).unwrap();
    let (passes, more) = said.trim().split_once(' ').expect("two numbers");
    (passes.parse().unwrap(), more.parse().unwrap())
}

/// Does something again and again in a thread until it is told to stop.
fn again(
    what: &'static str,
    stop: &Arc<AtomicBool>,
    work: impl Fn(usize) + Send + 'static,
) -> (&'static str, JoinHandle<usize>) {
    let stop = stop.clone();
    let work = move || {
        let mut rounds = 0;
        while rounds == 0 || !stop.load(Ordering::Acquire) {
            work(rounds);
            rounds += 1;
        }
        rounds
    };
    (what, std::thread::spawn(work))
}

/// Writes a file at random places, reads it back and verifies it; then the other client does.
fn fio(dir: &Path, elsewhere: &Path, round: usize) {
    let name = format!("fio-{}", round % 2);
    let run = |dir: &Path, how: &[&str]| {
        let mut command = Command::new("fio");
        command.args(["--name=proof", "--rw=randwrite", "--bs=32k", "--size=4m", "--fallocate=none"]);
        command.args(["--verify=crc32c", "--verify_fatal=1", "--fsync=16"]).args(how);
        command.arg(format!("--randseed={round}")).arg(format!("--filename={}", dir.join(&name).display()));
        let output = command.stdin(Stdio::null()).output().expect("fio starts");
        let said = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success(),
            "round {round}, {}: {}",
            dir.display(),
            String::from_utf8_lossy(&said)
        );
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
    let path: PathBuf = dir.join(archive);
    tar(&["-cf", path.to_str().unwrap(), "."], tree);
    fs::create_dir(elsewhere.join(&copy)).unwrap();
    tar(&["-xf", &format!("../{archive}")], &elsewhere.join(&copy));
    assert!(digests(tree) == digests(&dir.join(&copy)), "round {round}: what tar has unpacked");
    fs::remove_dir_all(dir.join(&copy)).unwrap();
}
