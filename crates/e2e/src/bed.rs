//! A node of its own in a temporary directory.

use crate::Network;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time that one command may take (seconds, for timeout(1)).
const COMMAND_TIMEOUT: &str = "600";

/// The program: the one that the environment names in `THERMO_PROGRAM`, else built with the profile of these tests.
pub fn thermo() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(given) = std::env::var_os("THERMO_PROGRAM") {
            return given.into();
        }
        let own = std::env::current_exe().expect("path of this test");
        // target/<profile>/deps/<test>, or target/<profile>/<program>
        let place = own.parent().expect("a directory with this program");
        let profile = if place.ends_with("deps") { place.parent().expect("target/<profile>") } else { place };
        let target = profile.parent().expect("target/<profile>");
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "-p", "thermo", "--target-dir"]).arg(target);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        // What the cargo that runs this test says of it would make build scripts run again, and all that depends on them be compiled.
        for name in std::env::vars().map(|(name, _)| name).filter(|name| is_of_this_package(name)) {
            build.env_remove(name);
        }
        if profile.file_name() == Some(OsStr::new("release")) {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo starts").success(), "the program cannot be built");
        profile.join("thermo")
    })
}

/// Whether a variable is what cargo says of the package whose program it runs.
fn is_of_this_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

/// Whether this machine lets us mount; if not, says which test is left out.
pub fn can_mount(test: &str) -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("LEFT OUT {test}: it needs root and /dev/fuse");
    }
    can
}

/// A state directory, a mount point, room for trees.
pub struct Bed {
    /// Everything is below this.
    pub dir: TempDir,
    /// Network namespace of its host, if it is not this machine.
    inside: Option<String>,
}

impl Bed {
    /// A node to be, with this configuration (TOML).
    pub fn new(config: &str) -> Self {
        Self::below(&std::env::temp_dir(), config)
    }

    fn below(dir: &Path, config: &str) -> Self {
        let dir = tempfile::tempdir_in(dir).expect("a temporary directory");
        let bed = Self { dir, inside: None };
        std::fs::create_dir(bed.state()).unwrap();
        std::fs::create_dir(bed.mount()).unwrap();
        std::fs::write(bed.state().join("config.toml"), config).unwrap();
        bed
    }

    /// The same on a host of a network.
    pub fn on(network: &Network, host: usize, config: &str) -> Self {
        let mut bed = Self::below(&network.disks(), config);
        bed.inside = Some(network.namespace(host));
        bed
    }

    /// State directory.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Mount point.
    pub fn mount(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    /// Any other path below the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the node.
    pub fn up(&self) {
        self.ok(["up"]);
    }

    /// Starts the node and mounts it.
    pub fn up_mounted(&self) {
        self.up();
        self.ok([OsStr::new("mount"), self.mount().as_os_str()]);
    }

    /// The command, ready to be started.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = match &self.inside {
            // Not ip-netns(8): mounts would be seen there only.
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}")).arg("timeout");
                command
            }
            None => Command::new("timeout"),
        };
        command.args(["-k", "5", COMMAND_TIMEOUT]).arg(thermo()).arg("--state-dir").arg(self.state());
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command(arguments).output().expect("timeout(1) starts")
    }

    /// Runs a command that must succeed; gives its output.
    pub fn ok<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let mut command = self.command(arguments);
        let output = command.output().expect("timeout(1) starts");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "{command:?}: {}\n{out}\n{err}\nlog:\n{}",
            output.status,
            self.log()
        );
        out
    }

    /// Runs a command that must fail; gives its exit code and its message.
    pub fn fails<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> (i32, String) {
        let output = self.run(arguments);
        assert!(!output.status.success(), "succeeded: {}", text(&output.stdout));
        (output.status.code().unwrap_or(-1), text(&output.stderr))
    }

    /// Runs a command that prints one JSON document.
    pub fn json<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Value {
        let mut all = vec![OsStr::new("--json").to_owned()];
        all.extend(arguments.into_iter().map(|a| a.as_ref().to_owned()));
        let out = self.ok(&all);
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{all:?}: {e}\n{out}"))
    }

    /// End of the node's log.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.state().join("thermo.log")).unwrap_or_default();
        text(&log[log.len().saturating_sub(6000)..])
    }

    /// Process id of the node.
    pub fn pid(&self) -> i32 {
        self.json(["status"])["pid"].as_i64().expect("status gives a pid") as i32
    }

    /// Ends the node as a power failure would end its process.
    pub fn kill(&self) {
        let pid = Pid::from_raw(self.pid()).expect("a pid");
        kill_process(pid, Signal::KILL).unwrap();
        self.wait_for_end(pid);
    }

    /// Waits until a node that was killed is gone, with all that it had open: its sockets are closed one after the other.
    pub fn wait_for_end(&self, pid: Pid) {
        let process = format!("/proc/{}", pid.as_raw_nonzero());
        let zombie =
            || std::fs::read_to_string(format!("{process}/stat")).map_or(true, |stat| stat.contains(") Z "));
        // The first thread may have ended while another one still has all that is open.
        let alone = || std::fs::read_dir(format!("{process}/task")).map_or(true, |tasks| tasks.count() <= 1);
        self.wait("the end of its process", || zombie() && alone());
        let socket = self.state().join("control.sock");
        let refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
        let gone = || UnixStream::connect(&socket).is_err_and(refused);
        self.wait("the end of the killed node", gone);
    }

    /// To the node's process, found by its arguments: one that waits until it may serve has no status that names it.
    pub fn signal(&self, signal: Signal) {
        let state = self.state();
        let state = state.to_str().expect("a path of letters").as_bytes();
        for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
            // The arguments of a program that is just being started cannot be read before it has closed what is not for it: on the mount of a node that stands
            // still that takes until it goes on.
            if std::fs::read(entry.path().join("comm")).is_ok_and(|name| name != b"thermo\n") {
                continue;
            }
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let arguments: Vec<&[u8]> = line.split(|b| *b == 0).collect();
            if arguments.contains(&state) && arguments.contains(&b"--detach".as_slice()) {
                let _ = kill_process(Pid::from_raw(pid).expect("a process"), signal); // it may have ended meanwhile
            }
        }
    }

    /// Waits for something, at most two minutes.
    pub fn wait(&self, what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !done() {
            assert!(Instant::now() < end, "waited two minutes for {what}; log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `thermo check` with the cartridges finds nothing that puts data at risk.
    pub fn check(&self) {
        let report = self.json(["check", "--tapes"]);
        let findings = report["findings"].as_array().expect("a list of findings");
        assert!(findings.iter().all(|f| f["grade"] != "serious"), "{findings:#?}");
    }

    /// Directories of all cartridges.
    pub fn cartridges(&self) -> Vec<PathBuf> {
        let list = std::fs::read_dir(self.state().join("library/cartridges")).unwrap();
        let mut list: Vec<PathBuf> = list.map(|e| e.unwrap().path()).filter(|p| p.is_dir()).collect();
        list.sort();
        list
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the node:\n{}", self.log());
        }
        self.run(["down", "--now", "--timeout", "20"]);
        let _ = Command::new("umount").arg("-l").arg(self.mount()).stderr(Stdio::null()).status();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
