//! What programs expect of a file system, through the mount of a real node: on resident files, on files that are on tape
//! only, and at random with files going to tape and back meanwhile. `SEED` repeats a run, `RANDOM_SECONDS` makes it longer.

use e2e::{Bed, can_mount};
use posix::fsx::Fsx;
use posix::twins::{Twins, calls};
use posix::{Exception, Host, Part, Tape, parts, random};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONFIG: &str = "
[library]
cartridge_capacity = \"2 GiB\"
[[classes]]
name = \"default\"
copies = [\"primary\"]
migrate_after_s = 3600
";

struct Node<'a> {
    bed: &'a Bed,
    /// Whether a refusal (the file is open, or has changed) is no surprise.
    may_refuse: bool,
}

impl Host for Node<'_> {
    fn tape(&self, act: Tape, path: &Path) {
        let act = match act {
            Tape::Migrate => "migrate",
            Tape::Purge => "purge",
            Tape::Stage => "stage",
        };
        let command = [OsStr::new(act), OsStr::new("--wait"), path.as_os_str()];
        if self.may_refuse && act == "purge" {
            let ended = self.bed.run(command).status.code();
            assert!(matches!(ended, Some(0 | 1)), "purge of {}: {ended:?}", path.display());
        } else {
            self.bed.ok(command);
        }
    }
}

/// A file system that is known.
struct Native;

impl Host for Native {}

/// A mounted node whose directories everybody may enter.
fn mounted(test: &str) -> Option<Bed> {
    can_mount(test).then(|| {
        let bed = Bed::new(CONFIG);
        std::fs::set_permissions(bed.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        bed.up_mounted();
        std::fs::create_dir(bed.mount().join("tests")).unwrap();
        bed
    })
}

fn suite(part: Part, exceptions: &[Exception]) {
    let Some(bed) = mounted("the POSIX suite through a node") else { return };
    let host = Node { bed: &bed, may_refuse: false };
    posix::run(part, &bed.mount().join("tests"), &host).check(&format!("a node, {part:?}"), exceptions);
    bed.check();
}

#[test]
fn resident_files_behave_as_on_ext4() {
    suite(Part::General, &[posix::MOUNT, posix::NODE].concat());
}

#[test]
fn offline_files_behave_as_on_ext4() {
    suite(Part::Offline, &[]);
}

/// Reads, writes, mappings, truncations, holes and copies through several descriptors of a few files, some of them large
/// enough to come back in parts, compared with their content in memory.
#[test]
fn random_io_with_tape_behind_it() {
    let Some(bed) = mounted("random reads and writes") else { return };
    let seed = random::seed("random_io_with_tape_behind_it");
    let host = Node { bed: &bed, may_refuse: true };
    let mut fsx = Fsx::new(&host, &bed.mount().join("tests"), seed, 3 << 20);
    fsx.run(Instant::now() + random::seconds(8));
    println!("{} calls, {} acts of the tape side", fsx.calls, fsx.acts);
    bed.check();
}

/// Bytes of one process's range of the shared file.
const RANGE: usize = 1 << 20;
const PROCESSES: usize = 3;

/// Several processes read, write and map ranges of their own of a file that comes back from tape meanwhile.
#[test]
fn processes_share_an_offline_file() {
    let Some(bed) = mounted("processes that share a file") else { return };
    let seed = random::seed("processes_share_an_offline_file");
    let host = Node { bed: &bed, may_refuse: false };
    let file = bed.mount().join("tests/shared");
    let own = |n: usize| bed.path(&format!("content-{n}"));
    std::fs::write(&file, vec![0; PROCESSES * RANGE]).unwrap();
    (0..PROCESSES).for_each(|n| std::fs::write(own(n), vec![0; RANGE]).unwrap());
    let end = Instant::now() + random::seconds(4);
    let mut round = 0;
    while round == 0 || Instant::now() < end {
        [Tape::Migrate, Tape::Purge].iter().for_each(|act| host.tape(*act, &file));
        let start = |n: usize| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child
                .args([
                    "--exact",
                    concat!(module_path!(), "::one_of_several").trim_start_matches("e2e::"),
                    "--ignored",
                    "--nocapture",
                ])
                .stdout(Stdio::null());
            child.env("PART_FILE", &file).env("PART_OWN", own(n)).env("PART_NUMBER", n.to_string());
            child.env("SEED", seed.wrapping_add((round * PROCESSES + n) as u64).to_string());
            child.spawn().unwrap()
        };
        let children: Vec<Child> = (0..PROCESSES).map(start).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success(), "round {round}: see above; log:\n{}", bed.log());
        }
        round += 1;
    }
    [Tape::Migrate, Tape::Purge].iter().for_each(|act| host.tape(*act, &file));
    let expected: Vec<u8> = (0..PROCESSES).flat_map(|n| std::fs::read(own(n)).unwrap()).collect();
    assert!(expected.iter().any(|byte| *byte != 0), "the processes did nothing");
    assert!(std::fs::read(&file).unwrap() == expected, "the shared file differs after {round} rounds");
    println!("{round} rounds of {PROCESSES} processes");
    bed.check();
}

#[test]
#[ignore = "runs only as a child of processes_share_an_offline_file"]
fn one_of_several() {
    let Some(file) = std::env::var_os("PART_FILE") else { return };
    let text = |name| std::env::var(name).unwrap();
    let number: usize = text("PART_NUMBER").parse().unwrap();
    let mut content = std::fs::read(text("PART_OWN")).unwrap();
    let range = number * RANGE..(number + 1) * RANGE;
    parts::use_range(Path::new(&file), range, &mut content, text("SEED").parse().unwrap(), 60);
    std::fs::write(text("PART_OWN"), content).unwrap();
}

/// Calls on names by several users do the same as on the file system of the temporary directory.
#[test]
fn random_names_are_as_on_ext4() {
    let Some(bed) = mounted("random names") else { return };
    let seed = random::seed("random_names_are_as_on_ext4");
    let (tested, known) = (bed.mount().join("tests"), bed.path("known"));
    std::fs::create_dir(&known).unwrap();
    let host = Node { bed: &bed, may_refuse: false };
    let mut twins = Twins { tested: (&host, &tested), known: (&Native, &known), runs: 0 };
    let end = Instant::now() + random::seconds(5).max(Duration::from_secs(1));
    let mut round = 0;
    while Instant::now() < end {
        twins.compare(&calls(seed.wrapping_add(round), 400));
        round += 1;
    }
    println!("{round} rounds of 400 calls");
    bed.check();
}
