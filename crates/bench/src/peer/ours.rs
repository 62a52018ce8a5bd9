//! This program as its users run it: a node with four targets, and a second one that has joined it and is mounted. Both are processes of their
//! own.

use super::{PARTS, Shape, run};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long targets may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of 127.0.0.0/8 everything is this machine: an address for each node that others will hardly use.
const HOSTS: [&str; 2] = ["127.74.30.1", "127.74.30.2"];

/// Two nodes.
pub struct Cluster {
    dir: PathBuf,
}

impl Cluster {
    /// Starts both, with everything below `dir`.
    pub fn start(dir: &Path) -> Result<Self> {
        let cluster = Self { dir: dir.to_owned() };
        for (number, host) in HOSTS.iter().enumerate() {
            let state = cluster.state(number);
            fs::create_dir_all(&state)?;
            let mut config = format!(
                "[library]\ncartridges = 2\ncartridge_capacity = \"64 MiB\"\n\
                 [[classes]]\nname = \"default\"\ncopies = [\"primary\", \"second\"]\nmigrate_after_s = 86400\n\
                 [cluster]\nlisten = \"{host}:7430\"\ndata_listen = \"{host}:7431\"\n"
            );
            for target in 0..if number == 0 { PARTS } else { 0 } {
                let path = dir.join(format!("target-{target}"));
                // As if each were a host.
                config.push_str(&format!(
                    "[[targets]]\npath = \"{}\"\ndomain = \"{target}\"\n",
                    path.display()
                ));
            }
            fs::write(state.join("config.toml"), config)?;
            cluster.tell(number, &["up"])?;
        }
        cluster.tell(0, &["cluster", "init", "--name", "first"])?;
        cluster.join()?;
        let until = Instant::now() + PATIENCE;
        while cluster.up()? < usize::from(PARTS) {
            ensure!(
                Instant::now() < until,
                "the targets do not come up: {}",
                cluster.tell(0, &["target", "ls"])?
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        fs::create_dir(dir.join("mount"))?;
        cluster.tell(1, &["mount", &cluster.mount().to_string_lossy()])?;
        Ok(cluster)
    }

    fn state(&self, number: usize) -> PathBuf {
        self.dir.join(format!("node-{}", number + 1))
    }

    fn mount(&self) -> PathBuf {
        self.dir.join("mount")
    }

    fn command(&self, number: usize, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("looking for this program")?);
        command.arg("--state-dir").arg(self.state(number)).args(words);
        Ok(command)
    }

    fn tell(&self, number: usize, words: &[&str]) -> Result<String> {
        run(&mut self.command(number, words)?)
    }

    /// The second node joins the first.
    fn join(&self) -> Result<()> {
        let token = self.tell(0, &["cluster", "token"])?;
        let mut command = self.command(1, &["cluster", "join", "--name", "second"])?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        child.stdin.take().context("a pipe")?.write_all(token.as_bytes())?;
        ensure!(child.wait()?.success(), "the second node cannot join");
        Ok(())
    }

    fn up(&self) -> Result<usize> {
        let listed = self.tell(0, &["--json", "target", "ls"])?;
        let listed: Vec<serde_json::Value> = serde_json::from_str(&listed)?;
        Ok(listed.iter().filter(|view| view["state"] == "Up").count())
    }

    /// A directory of this shape.
    pub fn mounted(&self, shape: Shape) -> Result<PathBuf> {
        let (name, layout) = match shape {
            Shape::Distributed => ("distributed", ["--stripes", "4"]),
            Shape::Dispersed => ("dispersed", ["--code", "3+1"]),
        };
        let dir = self.mount().join(name);
        fs::create_dir(&dir)?;
        self.tell(0, &[&["layout", "set", &format!("tc:/{name}")][..], &layout[..]].concat())?;
        Ok(dir)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // What is measured is thrown away with its directory.
        for number in [1, 0] {
            let _ = self.tell(number, &["down"]);
        }
    }
}
