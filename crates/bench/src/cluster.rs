//! This program as its users run it: a node with targets, and a second one that has joined it. Both are processes of their own.

use anyhow::{Context, Result, ensure};
use client::{ClientError, ClusterFiles, Connection, Names, Remote};
use ident::Credentials;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long targets may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of 127.0.0.0/8 everything is this machine: an address for each node that others will hardly use, nor nodes that a run which was broken off has
/// left.
fn host(number: usize) -> Ipv4Addr {
    let run = std::process::id();
    let last = 1 + run % 64 * 3 + number as u32;
    Ipv4Addr::from(127 << 24 | (64 + (run >> 14) % 64) << 16 | ((run >> 6) % 256) << 8 | last)
}

/// What the nodes are to be.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a> {
    /// Targets of each node.
    pub targets: [u16; 2],
    /// Address of the database that holds the catalogue.
    pub database: Option<&'a str>,
    /// The second node holds a namespace of its own, as a subsystem, whose catalogue is in this database.
    pub subsystem: Option<&'a str>,
}

/// Two nodes.
pub struct Cluster {
    dir: PathBuf,
}

impl Cluster {
    /// Starts both, with everything below `dir`.
    pub fn start(dir: &Path, wanted: &Wanted<'_>) -> Result<Self> {
        let cluster = Self { dir: dir.to_owned() };
        for (number, targets) in wanted.targets.into_iter().enumerate() {
            fs::create_dir_all(cluster.state(number))?;
            let database = if number == 0 { wanted.database } else { wanted.subsystem };
            let subsystem = number == 1 && wanted.subsystem.is_some();
            let config = cluster.config(number, targets, database, subsystem);
            fs::write(cluster.state(number).join("config.toml"), config)?;
            cluster.tell(number, &["up"])?;
        }
        cluster.tell(0, &["cluster", "init", "--name", "first"])?;
        cluster.join()?;
        let until = Instant::now() + PATIENCE;
        while cluster.up()? < wanted.targets.into_iter().map(usize::from).sum() {
            ensure!(
                Instant::now() < until,
                "the targets do not come up: {}",
                cluster.tell(0, &["target", "ls"])?
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(cluster)
    }

    fn config(&self, number: usize, targets: u16, database: Option<&str>, subsystem: bool) -> String {
        let host = host(number);
        let mut config = format!(
            "[library]\ncartridges = 2\ncartridge_capacity = \"64 MiB\"\n\
             [[classes]]\nname = \"default\"\ncopies = [\"primary\", \"second\"]\nmigrate_after_s = 86400\n\
             [cluster]\nlisten = \"{host}:7430\"\ndata_listen = \"{host}:7431\"\n"
        );
        if subsystem {
            config.push_str("subsystem = \"second\"\n");
        }
        if let Some(address) = database {
            config.push_str(&format!("[catalog]\nengine = \"{address}\"\n"));
        }
        for target in 0..targets {
            let path = self.dir.join(format!("target-{number}-{target}"));
            // As if each were a host.
            config.push_str(&format!(
                "[[targets]]\npath = \"{}\"\ndomain = \"{number}-{target}\"\n",
                path.display()
            ));
        }
        config
    }

    fn state(&self, number: usize) -> PathBuf {
        self.dir.join(format!("node-{}", number + 1))
    }

    /// Where programs with the native library reach one of the nodes.
    pub fn socket(&self, number: usize) -> PathBuf {
        self.state(number).join("control.sock")
    }

    fn command(&self, number: usize, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("looking for this program")?);
        command.arg("--state-dir").arg(self.state(number)).args(words);
        Ok(command)
    }

    /// Runs a command for one of the nodes; gives what it printed.
    pub fn tell(&self, number: usize, words: &[&str]) -> Result<String> {
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

    /// Mounts the namespace on one of the nodes.
    pub fn mount(&self, number: usize) -> Result<PathBuf> {
        let mount = self.dir.join(format!("mount-{}", number + 1));
        fs::create_dir(&mount)?;
        self.tell(number, &["mount", &mount.to_string_lossy()])?;
        Ok(mount)
    }

    /// The namespace as the mount of the second node has it, with connections of its own. `session`: another number each time.
    pub fn files(&self, session: u64) -> Result<ClusterFiles> {
        self.files_of(0, session)
    }

    /// The same of the namespace that one of the nodes holds.
    pub fn files_of(&self, number: usize, session: u64) -> Result<ClusterFiles> {
        let at = format!("{}:7430", host(number));
        let member = self.state(1).join("cluster");
        let reach = move || {
            let told = |source| ClientError::Ident { node: member.display().to_string(), source };
            let own = Credentials::load(&member).map_err(told)?;
            let own = own.ok_or_else(|| told(ident::IdentError::NoCertificate))?;
            Ok(vec![Remote::new(&at, &own)?])
        };
        let names = if number == 0 { Names::First } else { Names::Subsystem(None) };
        let files = ClusterFiles::new(Box::new(reach), session, names, None, Some(&self.state(1)));
        files.probe()?;
        Ok(files)
    }

    /// Kills a node, and starts it again at once.
    pub fn kill(&self, number: usize) -> Result<()> {
        let process = Connection::open(&self.socket(number))?.process()?;
        let process = Pid::from_raw(process).context("the node has no process")?;
        kill_process(process, Signal::KILL)?;
        self.tell(number, &["up"]).map(drop)
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

/// Runs a program to its end; gives what it printed.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
