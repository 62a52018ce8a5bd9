//! One node that is started, killed and asked, as a child of this process.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a start, or a command, may take.
const PATIENCE: Duration = Duration::from_secs(240);
const PATIENCE_S: &str = "240";

/// Small tier, small batches, everything migrates at once: so that a crash meets all of it.
const CONFIG: &str = "
[disk]
capacity = \"6 MiB\"
high_watermark = 70
low_watermark = 45
space_wait_s = 30
[library]
cartridge_capacity = \"CAPACITY\"
[tape]
block_size = \"64 KiB\"
flush_files = 12
flush_every = \"3 MiB\"
index_every = \"12 MiB\"
idle_unmount_s = 1
[[classes]]
name = \"default\"
copies = [\"primary\", \"second\"]
migrate_after_s = 0
";

/// A node's directories and its process.
pub struct Rig {
    state: PathBuf,
    mount: PathBuf,
    /// What the node says; outside of the state directory, so that it survives a power failure.
    log: PathBuf,
    child: Option<Child>,
}

impl Rig {
    /// A node to be: state directory `state` (its parent must exist), mount point and log in `outside`.
    pub fn new(state: &Path, outside: &Path, cartridge: &str) -> io::Result<Self> {
        let rig =
            Self { state: state.into(), mount: outside.join("mount"), log: outside.join("log"), child: None };
        fs::create_dir_all(&rig.mount)?;
        fs::write(outside.join("config.toml"), CONFIG.replace("CAPACITY", cartridge))?;
        Ok(rig)
    }

    /// Mount point.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// Where the log is.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Starts the node and does not wait for anything.
    pub fn spawn(&mut self) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(crate::thermo());
        command.arg("--state-dir").arg(&self.state).args(["up", "--foreground", "--config"]);
        command.arg(self.log.with_file_name("config.toml")).arg("--mount").arg(&self.mount);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Starts the node and waits until it is mounted.
    pub fn start(&mut self) -> Result<(), String> {
        self.spawn().map_err(|e| format!("the node cannot be started: {e}"))?;
        let end = Instant::now() + PATIENCE;
        while !self.is_mounted() {
            let ended = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(format!("the node ended at its start: {status}\n{}", self.log_end()));
            }
            if Instant::now() > end {
                return Err(format!("the node is not up after {PATIENCE:?}\n{}", self.log_end()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn is_mounted(&self) -> bool {
        let outside = self.mount.parent().and_then(|p| fs::metadata(p).ok());
        let (Some(outside), Ok(root)) = (outside, fs::metadata(&self.mount)) else { return false };
        // The attributes of a dead mount may be cached: ask for a name that nobody has asked for.
        let probe = self.mount.join(format!(".probe{}", self.child.as_ref().map_or(0, Child::id)));
        root.dev() != outside.dev() && fs::metadata(probe).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }

    /// kill -9, and waits until the process is gone.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        let mut child = self.child.take()?;
        // It may have ended by itself already.
        let _ = kill_process(Pid::from_child(&child), Signal::KILL);
        child.wait().ok()
    }

    /// Process of the node.
    pub fn pid(&self) -> Option<Pid> {
        self.child.as_ref().map(Pid::from_child)
    }

    /// Whether the node is running; if it ended by itself, how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|c| c.try_wait().ok().flatten())
    }

    /// A command of the program, ready to run, ended by force if it takes too long.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "3", PATIENCE_S]).arg(crate::thermo()).arg("--state-dir").arg(&self.state);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a command that prints one JSON document, whatever its exit code.
    pub fn json<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<Value, String> {
        let mut command = self.command(["--json"]);
        command.args(arguments);
        let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        serde_json::from_slice(&output.stdout).map_err(|e| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            format!("{command:?}: {}: {e}\n{said}\n{}", output.status, self.log_end())
        })
    }

    /// Lets the disk tier release everything again; how many files have nothing on disk.
    pub fn settle(&self) -> u64 {
        // A namespace that is still empty has nothing to unpin.
        let _ = self.command(["unpin", "-r", "tc:/"]).output();
        let listed = self.json(["ls", "-R", "tc:/"]).unwrap_or_default();
        let offline = |v: &&Value| v["residency"] == "offline";
        listed.as_array().map_or(0, |l| l.iter().filter(offline).count() as u64)
    }

    /// End of the log.
    pub fn log_end(&self) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.log)?;
            let from = file.metadata()?.len().saturating_sub(6000);
            file.seek(SeekFrom::Start(from))?;
            let mut end = Vec::new();
            file.read_to_end(&mut end)?;
            Ok(String::from_utf8_lossy(&end).into_owned())
        };
        read().unwrap_or_default()
    }

    /// Lines of the log that tell of a defect.
    pub fn defects(&self) -> Vec<String> {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        log.lines().filter(|l| l.contains("panicked at")).map(str::to_owned).collect()
    }

    /// Kills the node and takes the dead mount away.
    pub fn end(&mut self) {
        self.kill();
        let _ = rustix::mount::unmount(&self.mount, rustix::mount::UnmountFlags::DETACH);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.end();
    }
}
