//! Programs that know nothing of it, with the preload library: every byte is where it is without it.

use e2e::{Bed, can_mount, digests, noise};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes go past the mount only where it does not hand files to the kernel: there it makes a difference.
const SERVED: &str = "passthrough = false\n[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\n";
const PASSED: &str = "[[classes]]\nname = \"default\"\ncopies = [\"primary\"]\n";

fn mounted(config: &str) -> Option<Bed> {
    can_mount("programs with the preload library").then(|| {
        let bed = Bed::new(config);
        bed.up_mounted();
        bed
    })
}

fn log(bed: &Bed) -> PathBuf {
    bed.path("preload.log")
}

fn said(bed: &Bed) -> String {
    fs::read_to_string(log(bed)).unwrap_or_default()
}

/// The command with the library, which is to take every file at once.
fn preloaded(bed: &Bed, command: &mut Command) {
    let library = std::env::current_exe().unwrap().with_file_name("libthermo_preload.so");
    assert!(library.exists(), "{}", library.display());
    command.env("LD_PRELOAD", library).env("THERMO_PRELOAD_LOG", log(bed)).env("THERMO_PRELOAD_AFTER", "0");
}

fn run(command: &mut Command) -> String {
    let done = command.output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && err.is_empty(), "{command:?}: {}: {out}{err}", done.status);
    out.into_owned()
}

fn judge() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/judges/descriptors.py")
}

/// Programs, each in a directory with `data`; how many of their files at least go past the mount.
const PROGRAMS: &[(&str, usize, &str)] = &[
    ("dd", 3, "dd if=data of=out bs=4k status=none; dd if=data of=out bs=64k seek=3 skip=1 count=20 conv=notrunc status=none"),
    ("dd that syncs", 1, "dd if=data of=out bs=1M conv=fsync status=none; dd if=out bs=7k status=none | sha256sum"),
    ("cat", 1, "cat data data > out; cat < data >> out; cat out out | tail -c 100000 > end"),
    ("cp", 0, "cp data copy; cp --sparse=always data holes; cp -r ../common tree; cmp data copy"),
    ("tar", 2, "tar --mtime=@0 -cf all.tar ../common data 2>/dev/null; mkdir x; tar xf all.tar -C x; sha256sum data x/data; tar df all.tar -C x"),
    ("bsdtar", 1, "bsdtar cf - data | bsdtar xf - -s /data/out/"),
    ("appends", 0, "for n in 1 2 3 4 5; do echo $n >> log; (head -c 70000 data >> log; echo inner $n >> log) & wait; done"),
    ("children share the position", 0, "(echo a; head -c 100000 data; sh -c 'echo b; head -c 50000 data'; echo c) > out"),
    ("many at once on one descriptor", 0, "(for n in 1 2 3 4; do head -c 200000 data & done; wait) > out; wc -c < out > length; rm out"),
    ("sort", 0, "od -An -tx1 data | sort -S 1M -T . > sorted"),
    ("grep, sed, awk", 0, "od -An -tx1 data | sed s/0/1/ | tee t | grep -c 11 > count; awk '{n+=NF} END {print n}' t > words"),
    ("gzip", 1, "gzip -nk data; gzip -dc data.gz > back; cmp data back"),
    (
        "python",
        2,
        "python3 -c \"
import shutil
d = open('data', 'rb').read()
with open('text', 'w') as f:
    for n in range(30000): f.write('line %d\\n' % n)
with open('out', 'w+b') as f:
    f.write(d); f.seek(1000); f.write(b'x' * 100000); f.seek(0); assert len(f.read()) == len(d)
    f.truncate(400000)
with open('out', 'r+b', buffering=0) as f:
    f.seek(0, 2); f.write(d); assert f.tell() == 400000 + len(d)
shutil.copyfile('out', 'copy')
\"",
    ),
    (
        "sqlite",
        1,
        "python3 -c \"
import sqlite3
for mode in ['delete', 'wal', 'truncate']:
    c = sqlite3.connect(mode + '.db'); c.execute('pragma journal_mode=' + mode); c.execute('create table t(a, b)')
    for n in range(20):
        with c: c.executemany('insert into t values(?, ?)', [(m, 'x' * (m % 300)) for m in range(300)])
    with c: c.execute('delete from t where a % 3 = 0')
    c.execute('vacuum')
    assert c.execute('pragma integrity_check').fetchone() == ('ok',)
    print(c.execute('select count(*), sum(a), sum(length(b)) from t').fetchone()); c.close()
\"; rm *.db*",
    ),
];

/// Every file and all that is printed is the same with the library and without.
#[test]
fn programs_do_what_they_do_without_it() {
    for config in [SERVED, PASSED] {
        let Some(bed) = mounted(config) else { return };
        let data = noise(1, 1_700_003);
        for (n, (name, past, script)) in PROGRAMS.iter().enumerate() {
            let act = |with: bool| {
                let root = bed.mount().join(format!("{n}{}", if with { "with" } else { "without" }));
                let dir = root.join("dir");
                fs::create_dir_all(root.join("common")).unwrap();
                fs::create_dir(&dir).unwrap();
                fs::write(root.join("common/small"), b"small").unwrap();
                fs::write(root.join("common/large"), &data[..900_000]).unwrap();
                fs::write(dir.join("data"), &data).unwrap();
                let mut command = Command::new("bash");
                command.args(["-e", "-c", script]).current_dir(&dir);
                if with {
                    preloaded(&bed, &mut command);
                }
                let out = run(&mut command);
                (out, digests(&dir))
            };
            let without = act(false);
            let _ = fs::remove_file(log(&bed));
            let with = act(true);
            assert!(with == without, "{name}: {with:?} and without the library {without:?}");
            let went = said(&bed).lines().filter(|line| line.contains("goes past the mount")).count();
            assert!(went >= *past, "{name}: {went} files went past the mount\n{}", said(&bed));
            assert!(!said(&bed).contains("again"), "{name}: {}", said(&bed));
        }
        bed.check();
    }
}

/// Random calls on a descriptor, its copies, in children and other programs, by mappings and lengths set.
#[test]
fn random_calls_on_descriptors_give_what_was_written() {
    for config in [SERVED, PASSED] {
        let Some(bed) = mounted(config) else { return };
        for seed in 1..9 {
            let mut command = Command::new("python3");
            command.arg(judge()).arg(bed.mount().join(seed.to_string())).args([&seed.to_string(), "150"]);
            preloaded(&bed, &mut command);
            run(&mut command);
        }
        assert!(said(&bed).contains("written past the mount"), "{}", said(&bed));
        bed.check();
    }
}

/// A program that does a call for each line that it is given.
const OBEDIENT: &str = "
import os, sys
to = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
fd = os.open(sys.argv[1], os.O_RDONLY)
for line in sys.stdin:
    print(eval(line), flush=True)
";

/// What one program with the library writes others see at once without it, and the other way round.
#[test]
fn programs_with_it_and_without_see_what_the_others_write() {
    for config in [SERVED, PASSED] {
        let Some(bed) = mounted(config) else { return };
        let path = bed.mount().join("shared");
        let mut command = Command::new("python3");
        command.args(["-c", OBEDIENT]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
        preloaded(&bed, &mut command);
        let mut child = command.spawn().unwrap();
        let (mut orders, mut answers) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut ask = |order: &str| {
            writeln!(orders, "{order}").unwrap();
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        // Nobody has it open for reading and writing: of such files the kernel remembers nothing anyway.
        let to = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        let here = fs::File::open(&path).unwrap();
        for n in 1..5 {
            assert_eq!(ask("os.write(to, b'x' * 1000)"), "1000");
            assert_eq!(fs::metadata(&path).unwrap().len(), n * 1000);
        }
        assert_eq!(ask("os.lseek(to, 0, os.SEEK_SET)"), "0");
        to.set_len(0).unwrap();
        for n in 1..20_usize {
            let (mut bytes, letter) = (vec![0; 5000], (b'a' + n as u8) as char);
            assert_eq!(ask(&format!("os.write(to, b'{letter}' * 5000)")), "5000");
            assert_eq!(
                (fs::metadata(&path).unwrap().len(), here.metadata().unwrap().len()),
                (n as u64 * 5000, n as u64 * 5000)
            );
            here.read_exact_at(&mut bytes, (n as u64 - 1) * 5000).unwrap();
            assert!(bytes.iter().all(|b| *b == letter as u8), "{n}");
            to.write_all_at(b"here", 10).unwrap();
            assert_eq!(ask("os.pread(fd, 4, 10)"), "b'here'");
            to.write_all_at(&[b'0'; 10], 0).unwrap();
            assert_eq!(ask(&format!("os.pwrite(to, b'%03d' % {n}, 4)")), "3");
            here.read_exact_at(&mut bytes[..10], 0).unwrap();
            assert_eq!(bytes[..10], *format!("0000{n:03}000").as_bytes());
        }
        to.set_len(7).unwrap();
        assert_eq!(ask("os.fstat(fd).st_size, os.pread(fd, 100, 0)"), "(7, b'0000019')");
        assert!(said(&bed).contains("goes past the mount"), "{}", said(&bed));
        drop((orders, answers));
        assert!(child.wait().unwrap().success());
        bed.check();
    }
}

/// What stands in the way of going past the mount costs nothing but time.
#[test]
fn what_cannot_go_past_the_mount_goes_through_it() {
    let Some(bed) = mounted(SERVED) else { return };
    let (socket, aside) = (bed.state().join("control.sock"), bed.state().join("aside.sock"));
    let act = |told: &str| {
        let mut command = Command::new("python3");
        command.arg(judge()).arg(bed.mount().join(told)).args(["7", "60"]);
        preloaded(&bed, &mut command);
        run(&mut command);
        assert!(said(&bed).contains(told), "{told}: {}", said(&bed));
        assert!(!said(&bed).contains("written past"), "{told}: {}", said(&bed));
    };
    fs::rename(&socket, &aside).unwrap();
    act("no node listens");
    // Another node, with other inodes, where the one that serves the mount was.
    let other = Bed::new(PASSED);
    other.up();
    std::os::unix::fs::symlink(other.state().join("control.sock"), &socket).unwrap();
    fs::copy(judge(), other.path("some")).unwrap();
    for n in 0..40 {
        other.ok([OsStr::new("put"), other.path("some").as_os_str(), OsStr::new(&format!("tc:/{n}"))]);
    }
    act("is not the one that serves it");
    fs::remove_file(&socket).unwrap();
    fs::rename(&aside, &socket).unwrap();
    bed.check();
}

/// A program that closes all that it finds open, or takes any number, does not get between the library and the node.
#[test]
fn the_descriptors_of_the_library_are_out_of_the_programs_way() {
    let Some(bed) = mounted(SERVED) else { return };
    let mut command = Command::new("python3");
    command.arg("-c").arg(
        "
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
path, local = sys.argv[1:]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.write(fd, b'a' * 300000)
assert fd == 3 and os.open('/dev/null', os.O_RDONLY) == 4
os.closerange(4, 70000)
for n in range(4, 3000):
    try: os.close(n)
    except OSError: pass
others = [os.open(local + str(n), os.O_RDWR | os.O_CREAT) for n in range(20)]
assert others == list(range(4, 24)), others
os.write(fd, b'b' * 300000)
assert os.pread(fd, 2, 299999) == b'ab'
for n in range(100, 1020): os.dup2(others[0], n)
os.write(fd, b'c' * 300000)
assert os.pread(fd, 2, 599999) == b'bc' and os.fstat(fd).st_size == 900000
assert all(os.fstat(o).st_size == 0 for o in others)
",
    );
    command.arg(bed.mount().join("file")).arg(bed.path("local"));
    preloaded(&bed, &mut command);
    run(&mut command);
    assert!(
        said(&bed).contains("goes past the mount") && said(&bed).contains("takes descriptor"),
        "{}",
        said(&bed)
    );
    bed.check();
}

/// Rights at the node are those of the user that the program was when it connected, and only mounts say which node serves them.
#[test]
fn another_user_and_files_of_other_file_systems_ask_no_node() {
    let Some(bed) = mounted(SERVED) else { return };
    let elsewhere = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let program = |script: &str| {
        let mut command = Command::new("python3");
        command.arg("-c").arg(format!("import os, sys\nmount, elsewhere = sys.argv[1:]\n{script}"));
        command.arg(bed.mount()).arg(elsewhere.path());
        preloaded(&bed, &mut command);
        run(&mut command);
        let log = said(&bed);
        let _ = fs::remove_file(self::log(&bed));
        log
    };
    let log = program(
        "
os.close(os.open(mount + '/one', os.O_RDWR | os.O_CREAT))
os.setxattr(elsewhere, 'user.thermo.node', os.getxattr(mount + '/one', 'user.thermo.node'))
fd = os.open(elsewhere, os.O_RDWR)
assert os.write(fd, b'a' * 300000) == 300000 and os.fstat(fd).st_size == 300000
fd = os.open(mount + '/one', os.O_RDWR)
os.write(fd, b'b' * 300000)
",
    );
    assert!(log.contains("goes past the mount") && !log.contains("stays with the mount"), "{log}");
    assert!(fs::read(elsewhere.path()).unwrap() == [b'a'; 300_000]);
    assert!(fs::read(bed.mount().join("one")).unwrap() == [b'b'; 300_000]);
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can become another user: not tried");
        return;
    }
    let log = program(
        "
os.mkdir(mount + '/all'); os.chmod(mount + '/all', 0o777)
for name, user in [('root', 0), ('nobody', 65534), ('root again', 0)]:
    os.seteuid(user)
    fd = os.open(mount + '/all/' + name, os.O_RDWR | os.O_CREAT)
    os.write(fd, b'c' * 300000)
    assert os.pread(fd, 2, 299998) == b'cc'
    os.close(fd)
",
    );
    assert_eq!(log.matches("goes past the mount").count(), 1, "{log}");
    bed.check();
}
