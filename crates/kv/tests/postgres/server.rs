//! A private PostgreSQL server for tests: in a directory of its own, reached over a socket there, with fsync on.
// Tests of several crates take what they need; a server needs time to start.
#![allow(dead_code, clippy::disallowed_methods)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};

/// Where Debian puts the programs of the server.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const PREFIX: &str = "thermo-pg-";
/// Longest wait for a server on a slow machine.
const LONG: Duration = Duration::from_secs(120);

/// A server. Ends, and its directory goes, when it is dropped.
pub struct Server {
    dir: PathBuf,
    /// User and group it runs as; a server refuses to run as root.
    user: Option<(u32, u32)>,
    /// What it is told beyond its files (`NAME=VALUE`).
    settings: Vec<String>,
    running: Mutex<Option<Child>>,
}

static NEXT: AtomicU32 = AtomicU32::new(1);
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

impl Server {
    /// One server for all tests of this process that run at the same time.
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(|e| e.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Makes and starts a server.
    pub fn start() -> Self {
        let server = Self::made(vec!["listen_addresses=".into()]);
        server.up();
        server
    }

    /// The same one, that listens at an address of this machine, too: with this certificate and key, this authority of its clients (PEM), and these
    /// rules of who may come (`pg_hba.conf`).
    pub fn start_at(address: &str, [cert, key, authority]: [&str; 3], rules: &str) -> Self {
        let settings = [format!("listen_addresses={address}"), "port=5432".into(), "ssl=on".into()];
        let server = Self::made([&settings[..], &["ssl_ca_file=root.crt".into()]].concat());
        for (name, content) in
            [("server.crt", cert), ("server.key", key), ("root.crt", authority), ("pg_hba.conf", rules)]
        {
            let path = server.dir.join("data").join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if let Some((uid, gid)) = server.user {
                chown(&path, Some(uid), Some(gid)).unwrap();
            }
        }
        server.up();
        server
    }

    /// A directory with a server that does not run yet.
    fn made(settings: Vec<String>) -> Self {
        let parent = std::env::temp_dir();
        sweep(&parent);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("{PREFIX}{}-{n}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let user = getuid().is_root().then(ordinary_user);
        if let Some((uid, gid)) = user {
            chown(&dir, Some(uid), Some(gid)).unwrap();
        }
        let server = Self { dir, user, settings, running: Mutex::new(None) };
        let made = server
            .program("initdb")
            .args([
                "--auth=trust",
                "--username=thermo",
                "--no-locale",
                "--encoding=UTF8",
                "--no-sync",
                "-D",
                "data",
            ])
            .output()
            .expect("initdb runs: is the Debian package postgresql installed?");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server
    }

    /// Address of the engine `name`, which has a schema of its own; `settings` begin with `&`.
    pub fn address(&self, name: &str, settings: &str) -> String {
        self.sql(&format!("CREATE SCHEMA IF NOT EXISTS {name}"));
        self.address_by(&self.dir, name, settings)
    }

    /// The same over a socket in another directory.
    pub fn address_by(&self, dir: &Path, name: &str, settings: &str) -> String {
        let host = dir.to_str().unwrap().replace('/', "%2F");
        format!("postgres://thermo@{host}/postgres?options=-csearch_path%3D{name}{settings}")
    }

    /// The server's socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(".s.PGSQL.5432")
    }

    /// Runs statements; what they print.
    pub fn sql(&self, text: &str) -> String {
        let mut command = self.program("psql");
        command.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "thermo",
            "-d",
            "postgres",
            "-c",
            text,
            "-h",
        ]);
        let said = command.arg(&self.dir).stdout(Stdio::piped()).output().unwrap();
        assert!(said.status.success(), "{text}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap().trim().into()
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(Path::new(PROGRAMS).join(name));
        command.current_dir(&self.dir).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn answers(&self) -> bool {
        let asked = self.program("pg_isready").arg("-h").arg(&self.dir).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    }

    /// Starts the server and waits until it answers. While processes of a server that was killed live, another one refuses to start.
    pub fn up(&self) {
        let end = Instant::now() + LONG;
        let mut child = self.spawn();
        while !self.answers() {
            if child.try_wait().unwrap().is_some() {
                child = self.spawn();
            }
            let log = || fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "the server does not start: {}", log());
            thread::sleep(Duration::from_millis(20));
        }
        *self.running.lock().unwrap() = Some(child);
    }

    fn spawn(&self) -> Child {
        let log = fs::File::options().create(true).append(true).open(self.dir.join("log")).unwrap();
        let mut command = self.program("postgres");
        command.args(["-D", "data", "-k"]).arg(&self.dir).stderr(log);
        for setting in
            ["fsync=on", "max_connections=200"].into_iter().chain(self.settings.iter().map(String::as_str))
        {
            command.args(["-c", setting]);
        }
        command.spawn().unwrap()
    }

    /// Ends the server as a failure does: its first process is killed, or all stop at once (`pg_ctl stop -m immediate`).
    pub fn crash(&self, kill: bool) {
        let Some(mut child) = self.running.lock().unwrap().take() else { return };
        let signal = if kill { Signal::KILL } else { Signal::QUIT };
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.crash(false);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Users that Debian always has, or that come with the server.
fn ordinary_user() -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let line = passwd.lines().find(|l| l.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map_while(|n| n.parse().ok());
        Some((numbers.next()?, numbers.next()?))
    };
    find("postgres").or_else(|| find("nobody")).expect("an ordinary user")
}

/// Ends servers of test processes that were killed.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).unwrap().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|n| n.strip_prefix(PREFIX)).and_then(|n| n.split('-').next());
        let Some(owner) = owner else { continue };
        if Path::new("/proc").join(owner).exists() {
            continue;
        }
        let pid = fs::read_to_string(entry.path().join("data/postmaster.pid"));
        let pid = pid.ok().and_then(|text| Pid::from_raw(text.lines().next()?.parse().ok()?));
        let ours = |pid: Pid| {
            let cwd = fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero()));
            cwd.is_ok_and(|cwd| cwd.starts_with(entry.path()))
        };
        if let Some(pid) = pid.filter(|pid| ours(*pid)) {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let _ = fs::remove_dir_all(entry.path());
    }
}
