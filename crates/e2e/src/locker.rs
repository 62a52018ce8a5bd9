//! Processes that lock files as they are told: at a mount or with the native library.

use crate::Bed;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Does what it is told with locks of a file, and says what came of it.
const LOCKER: &str = r#"
import errno, fcntl, os, signal, struct, sys

class Alarm(Exception):
    pass

def alarm(*_):
    raise Alarm

signal.signal(signal.SIGALRM, alarm)
path = sys.argv[1]
kinds = {'sh': fcntl.LOCK_SH, 'ex': fcntl.LOCK_EX, 'un': fcntl.LOCK_UN}
types = {'sh': fcntl.F_RDLCK, 'ex': fcntl.F_WRLCK, 'un': fcntl.F_UNLCK}
layout = 'hhqqi4x'

def at_mount():
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def act(do, *words):
        wait = 0 if do.endswith('w') or words[:1] == ('un',) else fcntl.LOCK_NB
        if do in ('lock', 'lockw'):
            fcntl.lockf(fd, kinds[words[0]] | wait, int(words[2]), int(words[1]))
        elif do in ('flock', 'flockw'):
            fcntl.flock(fd, kinds[words[0]] | wait)
        elif do in ('ofd', 'ofdw'):
            command = 37 if wait else 38
            fcntl.fcntl(fd, command, struct.pack(layout, types[words[0]], 0, int(words[1]), int(words[2]), 0))
        elif do == 'test':
            asked = struct.pack(layout, types[words[0]], 0, int(words[1]), int(words[2]), 0)
            kind, _, start, length, pid = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
            return 'free' if kind == fcntl.F_UNLCK else f'{kind} {start} {length} {pid}'
        elif do == 'reopen':
            os.close(os.open(path, os.O_RDONLY))
        elif do == 'write':
            os.pwrite(fd, words[0].encode(), 0)
        elif do == 'alarm':
            signal.alarm(int(words[0]))
        elif do == 'count':
            for _ in range(int(words[0])):
                fcntl.lockf(fd, fcntl.LOCK_EX, 0, 0)
                n = int(os.pread(fd, 20, 0) or b'0')
                os.pwrite(fd, str(n + 1).encode(), 0)
                fcntl.lockf(fd, fcntl.LOCK_UN, 0, 0)
        return 'ok'

    return act

def with_library(socket, descriptors):
    import thermocline
    session = thermocline.connect(socket, descriptors=descriptors == 'descriptors')
    try:
        file = session.open(path, 'x+', buffering=0)
    except FileExistsError:
        file = session.open(path, 'r+', buffering=0)

    def act(do, *words):
        if do in ('ofd', 'ofdw', 'test'):
            wait = None if do == 'ofdw' else 0
            start, length, exclusive = int(words[1]), int(words[2]), words[0] == 'ex'
            if do == 'test':
                held = file.test_lock(start, length, exclusive=exclusive)
                return f'{int(held.exclusive)} {held.start} {held.length} {held.pid}' if held else 'free'
            elif words[0] == 'un':
                file.unlock(start, length)
            else:
                file.lock(start, length, exclusive=exclusive, wait=wait)
        elif do in ('flock', 'flockw'):
            if words[0] == 'un':
                file.funlock()
            else:
                file.flock(exclusive=words[0] == 'ex', wait=None if do == 'flockw' else 0)
        elif do == 'within':
            file.lock(wait=float(words[0]))
        elif do == 'close':
            file.close()
        elif do == 'alarm':
            signal.alarm(int(words[0]))
        elif do == 'count':
            for _ in range(int(words[0])):
                with file.locked():
                    n = int(file.pread(20, 0) or b'0')
                    file.pwrite(str(n + 1).encode(), 0)
        return 'ok'

    return act

act = with_library(*sys.argv[2:]) if len(sys.argv) > 2 else at_mount()
print('ready', flush=True)
for line in sys.stdin:
    try:
        print(act(*line.split()), flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
    except Alarm:
        print('EINTR', flush=True)
"#;

/// A process with a file open, which holds and waits for locks of it.
pub struct Locker {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Locker {
    /// At a mount.
    pub fn new(path: &Path) -> Self {
        Self::run(Command::new("python3").args([OsStr::new("-c"), OsStr::new(LOCKER), path.as_os_str()]))
    }

    /// With the native library, past any mount; `library`: the file, `descriptors`: whether bytes go straight to the object.
    pub fn with_library(bed: &Bed, library: &Path, path: &str, descriptors: bool) -> Self {
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/python");
        let how = if descriptors { "descriptors" } else { "connections" };
        let socket = bed.state().join("control.sock");
        let words = [OsStr::new("-c"), OsStr::new(LOCKER), path.as_ref(), socket.as_os_str(), how.as_ref()];
        Self::run(Command::new("python3").args(words).env("PYTHONPATH", module).env("LIBTHERMO", library))
    }

    fn run(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is there");
        let (said, answers) = channel();
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| said.send(line)));
        let orders = child.stdin.take().expect("piped");
        let locker = Self { child, orders, answers };
        assert_eq!(locker.hear(), "ready");
        locker
    }

    /// Tells it to do something.
    pub fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("it listens");
    }

    /// What it says next.
    pub fn hear(&self) -> String {
        self.answers.recv_timeout(Duration::from_secs(100)).expect("an answer")
    }

    /// Tells it to do something, and hears what came of it.
    pub fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.hear()
    }

    /// It is told something and waits.
    pub fn waits(&mut self, order: &str) {
        self.tell(order);
        let answer = self.answers.recv_timeout(Duration::from_millis(400));
        assert!(answer.is_err(), "`{order}` does not wait: {answer:?}");
    }

    /// Number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
