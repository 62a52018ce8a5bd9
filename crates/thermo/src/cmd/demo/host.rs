//! The node of the demonstration: its state directory, its configuration, starting it, the way to its files.

use super::plan::Plan;
use super::ui::Ui;
use super::way::Way;
use crate::exit::usage;
use anyhow::{Context, Result};
use client::{ClientError, Connection};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use types::StatusView;
use wire::Call;

/// Marks a state directory that a demonstration made.
const MARKER: &str = "made-by-demo";

/// A state directory.
pub struct Host {
    /// The directory.
    pub dir: PathBuf,
    /// Control socket.
    pub socket: PathBuf,
}

impl Host {
    /// Looks at the directory; it must be of a demonstration, or new.
    ///
    /// # Errors
    /// It is in other use.
    pub fn new(dir: PathBuf) -> Result<Self> {
        let dir = std::path::absolute(&dir)?;
        let used = fs::read_dir(&dir).is_ok_and(|mut list| list.next().is_some());
        if used && !dir.join(MARKER).exists() {
            return Err(usage(format!(
                "{} is in use and was not made by `thermo demo`; name another directory with --state-dir",
                dir.display()
            )));
        }
        Ok(Self { socket: dir.join("control.sock"), dir })
    }

    /// Whether an earlier demonstration left its node here.
    pub fn exists(&self) -> bool {
        self.dir.join("config.toml").exists()
    }

    /// Stops the node and removes everything.
    pub fn remove(&self) -> Result<()> {
        self.down()?;
        if self.exists() {
            fs::remove_dir_all(&self.dir).with_context(|| format!("removing {}", self.dir.display()))?;
        }
        Ok(())
    }

    /// Makes the directory with a configuration.
    pub fn prepare(&self, plan: &Plan) -> Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| format!("making {}", self.dir.display()))?;
        fs::write(self.dir.join(MARKER), "")?;
        let path = self.dir.join("config.toml");
        fs::write(&path, configuration(plan)).with_context(|| format!("writing {}", path.display()))
    }

    /// Bytes free for ordinary users on the file system of the directory (which need not exist yet).
    pub fn free(&self) -> Result<u64> {
        let there = self.dir.ancestors().find(|d| d.exists()).unwrap_or(Path::new("/"));
        let fs = rustix::fs::statvfs(there).with_context(|| there.display().to_string())?;
        Ok(fs.f_bavail * fs.f_frsize)
    }

    /// Starts the node, or finds it running.
    pub fn up(&self) -> Result<StatusView> {
        self.thermo(&["up"]).context("starting the node")?;
        Ok(Connection::open(&self.socket)?.ask(&Call::Status)?)
    }

    /// Stops the node.
    pub fn down(&self) -> Result<()> {
        self.thermo(&["down"]).context("stopping the node")
    }

    fn thermo(&self, arguments: &[&str]) -> Result<()> {
        let program = std::env::current_exe().context("finding this program")?;
        let output = Command::new(program).arg("--state-dir").arg(&self.dir).args(arguments).output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim_end());
        Ok(())
    }

    /// Mounts at `mount` and goes that way; without permission or FUSE, goes through the socket and says so.
    pub fn way(&self, ui: &Ui, mount: Option<&Path>, status: &StatusView) -> Result<Way> {
        let Some(mount) = mount else { return Ok(self.by_socket()) };
        if let Some(mounted) = status.mounts.first() {
            return Ok(Way::Mount(mounted.into()));
        }
        let tried = fs::create_dir_all(mount).map_err(|e| e.to_string()).and_then(|()| {
            let path = crate::context::absolute_text(mount).map_err(|e| e.to_string())?;
            match Connection::open(&self.socket)
                .and_then(|mut node| node.ask(&Call::Mount { path: path.clone(), nonblock: None }))
            {
                Ok(()) => Ok(path),
                Err(ClientError::Refused(failure)) => Err(failure.message),
                Err(other) => Err(other.to_string()),
            }
        });
        match tried {
            Ok(path) => Ok(Way::Mount(path.into())),
            Err(why) => {
                ui.say(format!("   No mount: {why}. Mounting needs root and /dev/fuse."))?;
                ui.say("   Going on without it: files go in and out through `thermo put` and `thermo get`.")?;
                Ok(self.by_socket())
            }
        }
    }

    fn by_socket(&self) -> Way {
        Way::Socket { socket: self.socket.clone(), scratch: self.dir.join("scratch") }
    }
}

/// Whether a mount is likely to be allowed.
pub fn may_mount() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists()
}

fn configuration(plan: &Plan) -> String {
    format!(
        "# Made by `thermo demo`. All keys: docs/OPERATIONS.md\n\n\
         [disk]\ncapacity = {}\n\n\
         [library]\ndrives = 2\nslots = 8\nimport_export = 1\ncartridges = 8\ncartridge_capacity = {}\n\n\
         [[classes]]\nname = \"default\"\ncopies = [\"primary\", \"second\"]\nmigrate_after_s = 5\n\
         migrate_bytes = \"256 MiB\"\n",
        plan.disk_pool, plan.cartridge
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_understands_the_configuration() {
        let plan = Plan { big: 1, disk_pool: 5 << 30, cartridge: 3 << 30, notes: Vec::new() };
        let config = node::Config::parse(&configuration(&plan)).unwrap();
        assert_eq!(config.disk.capacity, Some(node::Size::gib(5)));
        assert_eq!(config.library.cartridge_capacity, node::Size::gib(3));
        assert_eq!((config.classes.len(), config.classes[0].migrate_after_s), (1, 5));
        assert_eq!(config.library.sockets, None);
    }

    #[test]
    fn a_directory_in_other_use_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Host::new(dir.path().join("new")).is_ok());
        fs::write(dir.path().join("config.toml"), "").unwrap();
        assert!(Host::new(dir.path().into()).err().unwrap().to_string().contains("not made by"));
        fs::write(dir.path().join(MARKER), "").unwrap();
        assert!(Host::new(dir.path().into()).unwrap().exists());
    }
}
