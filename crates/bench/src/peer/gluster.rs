//! GlusterFS on this machine: its daemon, volumes of four bricks, its mounts. Everything is removed again.

use super::{PARTS, Shape};
use crate::cluster::run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long its daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
const DAEMON: &str = "/usr/sbin/glusterd";

/// What is installed, in its own words.
pub fn version() -> Option<String> {
    let output = Command::new("gluster").arg("--version").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Path::new(DAEMON).exists().then(|| text.lines().next().unwrap_or("glusterfs").to_owned())
}

/// The daemon with its volumes.
pub struct Gluster {
    daemon: Child,
    dir: PathBuf,
    /// Under which this machine calls itself: its own bricks may not be on "localhost".
    host: String,
}

impl Gluster {
    /// Starts the daemon, which keeps its state below `dir`.
    pub fn start(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir.join("state"))?;
        let config = format!(
            "volume management\n    type mgmt/glusterd\n    option working-directory {}\n    option run-directory {}\n    \
             option transport-type socket\n    option transport.address-family inet\nend-volume\n",
            dir.join("state").display(),
            dir.join("state").display()
        );
        let volfile = dir.join("glusterd.vol");
        fs::write(&volfile, config)?;
        let mut command = Command::new(DAEMON);
        command.arg("--no-daemon").arg("--volfile").arg(&volfile).arg("--log-file").arg(dir.join("log"));
        command.arg("--pid-file").arg(dir.join("pid"));
        let daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let daemon = daemon.context("starting glusterd")?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let gluster = Self { daemon, dir: dir.to_owned(), host };
        let until = Instant::now() + PATIENCE;
        while let Err(e) = gluster.ask(&["volume", "list"]) {
            if Instant::now() > until {
                return Err(e.context(format!("glusterd does not answer: {}", dir.join("log").display())));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(gluster)
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        run(Command::new("gluster").arg("--mode=script").args(words))
    }

    /// A mount of a new volume of this shape.
    pub fn mounted(&self, shape: Shape) -> Result<PathBuf> {
        let volume = format!("bench-{}", if shape == Shape::Dispersed { "disperse" } else { "distribute" });
        let mut words = vec!["volume".to_owned(), "create".to_owned(), volume.clone()];
        if shape == Shape::Dispersed {
            words.extend(["disperse", "4", "redundancy", "1"].map(str::to_owned));
        }
        for brick in 0..PARTS {
            let path = self.dir.join(format!("{volume}-{brick}"));
            fs::create_dir(&path)?;
            words.push(format!("{}:{}", self.host, path.join("brick").display()));
        }
        words.push("force".to_owned());
        self.ask(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        self.ask(&["volume", "start", &volume])?;
        let at = self.dir.join(format!("{volume}-mount"));
        fs::create_dir(&at)?;
        let what = format!("{}:/{volume}", self.host);
        run(Command::new("mount").args(["-t", "glusterfs", &what]).arg(&at))?;
        if rustix::fs::statvfs(&at)?.f_fsid == rustix::fs::statvfs(&self.dir)?.f_fsid {
            bail!("{} was not mounted; see /var/log/glusterfs", at.display());
        }
        Ok(at)
    }
}

impl Drop for Gluster {
    fn drop(&mut self) {
        // What is measured is thrown away; what cannot be ended is told by the next start.
        for volume in ["bench-disperse", "bench-distribute"] {
            let at = self.dir.join(format!("{volume}-mount"));
            if at.exists() {
                let _ = Command::new("umount").arg("--lazy").arg(&at).status();
                let _ = self.ask(&["volume", "stop", volume, "force"]);
                let _ = self.ask(&["volume", "delete", volume]);
            }
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
