//! The node is killed in the middle of its work and started again.

mod support;

use node::{Config, Node, Size};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::medium::counted_copies_are_there;
use support::{Bed, READ, WRITE, config, cx, pattern};
use types::api::FileApi;
use types::*;
use wire::{Call, VolumeChoice};

const DIR: &str = "NODE_TEST_DIR";
const WORK: &str = "NODE_TEST_WORK";

fn small(dir: &std::path::Path) -> Config {
    let mut c = config(dir);
    c.library.drive_rate = Size(8 << 20);
    c.tape.block_size = Size(64 << 10);
    c.tape.flush_files = 3;
    c
}

fn size_of(i: u64) -> usize {
    (i as usize * 37_777) % 400_000
}

fn write_synced(node: &Node, i: u64) {
    let opened = node.create(&cx(), Ino::ROOT, format!("f{i}").as_bytes(), 0o644, WRITE).unwrap();
    node.write(opened.handle, 0, &pattern(size_of(i), i)).unwrap();
    node.fsync(opened.handle, false).unwrap();
    node.release(opened.handle);
    println!("synced {i}");
}

/// What the process does that is going to be killed; says how far it got.
#[test]
fn victim() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let bed =
        Bed { node: Node::start(small(dir.as_ref())).unwrap().into(), dir: tempfile::tempdir().unwrap() };
    match std::env::var(WORK).unwrap().as_str() {
        "write" => (0..1_000_000).for_each(|i| write_synced(&bed.node, i)),
        "migrate" => {
            (0..30).for_each(|i| write_synced(&bed.node, i));
            bed.begin(Call::Migrate(bed.all()));
            println!("migrating");
            bed.until("never", |_| false);
        }
        "recall" => {
            (0..20).for_each(|i| write_synced(&bed.node, i));
            bed.migrate_and_purge();
            let request = bed.begin(Call::Stage(bed.all())).request;
            bed.until("some are back", |b| b.request(request.id).request.files_done > 2);
            println!("recalling");
            bed.until("never", |_| false);
        }
        work => match work.strip_prefix("repack-") {
            Some(left) => repack_until(&bed, left.parse().unwrap()),
            None => panic!("{work}"),
        },
    }
}

/// Empties the first volume until only so many files are left on it.
fn repack_until(bed: &Bed, left: u64) {
    (0..24).for_each(|i| write_synced(&bed.node, i));
    bed.migrate_and_purge();
    for i in 24..30 {
        write_synced(&bed.node, i);
        bed.node.unlink(&cx(), Ino::ROOT, format!("f{i}").as_bytes()).unwrap();
    }
    bed.node.sync_names().unwrap();
    let volume = bed.volumes_of("/f1").remove(0);
    let volumes = VolumeChoice::These(vec![volume.clone()]);
    bed.begin(Call::Repack { volumes, dead_percent: None, generation: None });
    bed.until("some have moved", |b| b.volume(&volume).live_files <= left);
    println!("repacking");
    bed.until("never", |_| false);
}

struct Victim {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(dir: &std::path::Path, work: &str) -> Victim {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--nocapture", "--test-threads", "1"])
        .envs([(DIR, dir.as_os_str()), (WORK, work.as_ref())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let (line, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        use std::io::BufRead;
        std::io::BufReader::new(out).lines().map_while(Result::ok).for_each(|l| drop(line.send(l)));
    });
    Victim { child, lines }
}

impl Victim {
    /// Lets it work until it says `word`, and `after` that, kills it; the files that it synced.
    fn kill(mut self, word: &str, after: Duration) -> Vec<u64> {
        let mut synced = Vec::new();
        let mut note = |line: &str| {
            synced.extend(line.rsplit_once("synced ").and_then(|(_, n)| n.trim().parse::<u64>().ok()));
        };
        let deadline = Instant::now() + support::PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).expect("the victim works");
            note(&line);
            if line.contains(word) {
                break;
            }
        }
        std::thread::sleep(after);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.iter().for_each(|line| note(&line));
        synced
    }
}

/// Starts again and looks at everything.
fn survives(work: &str, word: &str, after: Duration) -> (Bed, Vec<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let synced = start(dir.path(), work).kill(word, after);
    assert!(!synced.is_empty());
    let node = Node::start(small(dir.path())).unwrap();
    let bed = Bed { node: node.into(), dir };
    for i in &synced {
        let ino = bed.stat(&format!("/f{i}")).attr.ino;
        let data = bed.read(ino);
        assert!(data == pattern(size_of(*i), *i), "file {i}: {} of {} bytes", data.len(), size_of(*i));
    }
    bed.settle();
    (bed, synced)
}

fn sound(bed: &Bed) {
    let report = bed.check(true);
    assert_eq!(report.findings, [], "{report:?}");
}

#[test]
fn what_was_synced_is_there_after_a_kill_while_writing() {
    let (bed, _) = survives("write", "synced 25", Duration::from_millis(3));
    sound(&bed);
    bed.migrate_and_purge();
    sound(&bed);
}

#[test]
fn a_kill_during_migration_loses_nothing_and_the_volumes_get_their_index() {
    for after in [150, 600] {
        let (bed, synced) = survives("migrate", "migrating", Duration::from_millis(after));
        // The request goes on by itself.
        bed.migrate_and_purge();
        for i in synced {
            let ino = bed.stat(&format!("/f{i}")).attr.ino;
            assert!(bed.read(ino) == pattern(size_of(i), i));
        }
        bed.settle();
        sound(&bed);
        bed.node.stop(true);
        for volume in bed.volumes() {
            assert_eq!(volume.indexed_to, volume.append_block, "{volume:?}");
        }
    }
}

#[test]
fn a_kill_during_a_recall_lets_the_request_end_after_the_restart() {
    let (bed, synced) = survives("recall", "recalling", Duration::from_millis(20));
    for i in synced {
        assert_eq!(bed.stat(&format!("/f{i}")).residency, Some(Residency::Dual));
    }
    sound(&bed);
    let opened = bed.open(bed.stat("/f1").attr.ino, READ);
    assert!(opened.backing.is_some());
    bed.node.release(opened.handle);
}

/// At the beginning, in the middle, and when nothing is left and the volume gets its fresh label.
#[test]
fn a_kill_while_a_volume_is_emptied_loses_no_copy_and_it_goes_on() {
    for left in [22, 10, 0, 0, 0] {
        let dir = tempfile::tempdir().unwrap();
        start(dir.path(), &format!("repack-{left}")).kill("repacking", Duration::from_millis(left % 7));
        let node = Node::start(small(dir.path())).unwrap();
        let bed = Bed { node: node.into(), dir };
        for i in 0..24 {
            let data = pattern(size_of(i), i);
            assert_eq!(counted_copies_are_there(&bed, &format!("/f{i}"), &data), 2, "{left}: file {i}");
        }
        bed.settle();
        let states: Vec<_> = bed.volumes().into_iter().map(|v| (v.barcode, v.state, v.reason)).collect();
        let scratch = states.iter().filter(|(_, state, _)| *state == VolumeState::Scratch).count();
        assert_eq!(scratch, 1, "{left}: it was emptied to its end: {states:?}");
        for i in 0..24 {
            let data = pattern(size_of(i), i);
            assert_eq!(counted_copies_are_there(&bed, &format!("/f{i}"), &data), 2, "{left}: file {i}");
            assert!(bed.read(bed.stat(&format!("/f{i}")).attr.ino) == data);
        }
        bed.settle();
        sound(&bed);
    }
}
