//! Programs that know nothing of it, with the preload library.

use crate::{digests, noise};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// How such programs are started, and what the library says of them.
pub struct Preloaded(PathBuf);

impl Preloaded {
    /// It writes to this file.
    pub fn new(log: PathBuf) -> Self {
        Self(log)
    }

    /// The command with the library, which is to take every file at once.
    pub fn with(&self, command: &mut Command) {
        let library = std::env::current_exe().unwrap().with_file_name("libthermo_preload.so");
        assert!(library.exists(), "{}", library.display());
        command
            .env("LD_PRELOAD", library)
            .env("THERMO_PRELOAD_LOG", &self.0)
            .env("THERMO_PRELOAD_AFTER", "0");
    }

    /// Runs it; what it prints.
    pub fn with_run(&self, command: &mut Command) -> String {
        self.with(command);
        run(command)
    }

    /// The same; it takes files when it usually does.
    pub fn with_run_as_usual(&self, command: &mut Command) -> String {
        self.with(command);
        run(command.env_remove("THERMO_PRELOAD_AFTER"))
    }

    /// What it has said.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }

    /// Forgets that.
    pub fn forget(&self) {
        let _ = fs::remove_file(&self.0);
    }

    /// Every file in a directory, and all that is printed, is the same with the library and without.
    pub fn does_the_same(&self, dir: &Path) {
        let data = noise(1, 1_700_003);
        for (n, (name, past, script)) in PROGRAMS.iter().enumerate() {
            let act = |with: bool| {
                let root = dir.join(format!("{n}{}", if with { "with" } else { "without" }));
                let dir = root.join("dir");
                fs::create_dir_all(root.join("common")).unwrap();
                fs::create_dir(&dir).unwrap();
                fs::write(root.join("common/small"), b"small").unwrap();
                fs::write(root.join("common/large"), &data[..900_000]).unwrap();
                fs::write(dir.join("data"), &data).unwrap();
                let mut command = Command::new("bash");
                command.args(["-e", "-c", script]).current_dir(&dir);
                if with {
                    self.with(&mut command);
                }
                let out = run(&mut command);
                (out, digests(&dir))
            };
            let without = act(false);
            self.forget();
            let with = act(true);
            assert!(with == without, "{name}: {with:?} and without the library {without:?}");
            let went = self.said().lines().filter(|line| line.contains("goes past the mount")).count();
            assert!(went >= *past, "{name}: {went} files went past the mount\n{}", self.said());
            assert!(!self.said().contains("again"), "{name}: {}", self.said());
        }
    }

    /// Random calls on a descriptor, its copies, in children and other programs, by mappings and lengths set, compared with a list of bytes.
    pub fn calls_at_random(&self, dir: &Path, seeds: std::ops::Range<u32>) {
        for seed in seeds {
            let mut command = Command::new("python3");
            command.arg(judge()).arg(dir.join(seed.to_string())).args([&seed.to_string(), "150"]);
            self.with(&mut command);
            run(&mut command);
        }
        assert!(self.said().contains("written past the mount"), "{}", self.said());
    }

    /// What such a program writes to `mine` others see at once in `others`, which is the same file, and the other way round.
    pub fn sees_what_others_write(&self, mine: &Path, others: &Path) {
        let mut program = self.obeys(mine, "to = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)");
        let mut ask = |order: &str| program.ask(order);
        // Nobody has it open for reading and writing: of such files the kernel remembers nothing anyway.
        let to = fs::OpenOptions::new().write(true).create(true).truncate(false).open(others).unwrap();
        let here = fs::File::open(others).unwrap();
        for n in 1..5 {
            assert_eq!(ask("os.write(to, b'x' * 1000)"), "1000");
            assert_eq!(fs::metadata(others).unwrap().len(), n * 1000);
        }
        assert_eq!(ask("os.lseek(to, 0, os.SEEK_SET)"), "0");
        to.set_len(0).unwrap();
        for n in 1..20_usize {
            let (mut bytes, letter) = (vec![0; 5000], (b'a' + n as u8) as char);
            assert_eq!(ask(&format!("os.write(to, b'{letter}' * 5000)")), "5000");
            assert_eq!(
                (fs::metadata(others).unwrap().len(), here.metadata().unwrap().len()),
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
        assert!(self.said().contains("goes past the mount"), "{}", self.said());
        program.end();
    }

    /// Starts a program with a file open for reading as `fd`, which does what it is told; with more lines before that.
    pub fn obeys(&self, file: &Path, before: &str) -> Obedient {
        let mut command = Command::new("python3");
        command.args(["-c", &format!("import os, sys\n{before}\n{OBEYS}")]).arg(file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.with(&mut command);
        let mut child = command.spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        Obedient { answers: BufReader::new(child.stdout.take().unwrap()), orders, child }
    }

    /// A program that closes all that it finds open, or takes any number, does not get between the library and the node. Its own files have names that begin with `local`.
    pub fn keeps_out_of_the_way(&self, file: &Path, local: &Path) {
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
        command.arg(file).arg(local);
        self.with(&mut command);
        run(&mut command);
        assert!(
            self.said().contains("goes past the mount") && self.said().contains("takes descriptor"),
            "{}",
            self.said()
        );
    }
}

/// A program that does a call for each line that it is given.
const OBEYS: &str = "
fd = os.open(sys.argv[1], os.O_RDONLY)
for line in sys.stdin:
    print(eval(line), flush=True)
";

/// A program that does as it is told. Ends with this.
pub struct Obedient {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Obedient {
    /// What comes of an expression.
    pub fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// It ends.
    pub fn end(self) {
        let Self { mut child, orders, answers } = self;
        drop((orders, answers));
        assert!(child.wait().unwrap().success());
    }
}

/// What a command prints; it succeeds, and complains of nothing.
pub fn run(command: &mut Command) -> String {
    let done = command.output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && err.is_empty(), "{command:?}: {}: {out}{err}", done.status);
    out.into_owned()
}

/// The program that makes random calls.
pub fn judge() -> PathBuf {
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
