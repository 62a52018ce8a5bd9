//! What every command needs: where the node is, how to print.

use crate::exit::Exit;
use crate::out::{Out, Table};
use crate::paths;
use anyhow::Result;
use client::{Connection, Remote};
use ident::Credentials;
use node::Config;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::StatusView;
use wire::Call;

/// Options that all commands share.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of all commands")]
pub struct Global {
    /// Directory of the node's catalogue, socket and log [default: $THERMO_STATE, else /var/lib/thermo for root, else
    /// ~/.local/share/thermo]
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Control socket of the node [default: control.sock in the state directory]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Ask the node of a cluster at this address, with the certificate in the state directory's `cluster`
    #[arg(long, global = true, value_name = "HOST:PORT", conflicts_with = "socket")]
    pub node: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Show times in UTC
    #[arg(long, global = true)]
    pub utc: bool,
}

impl Global {
    /// State directory in force.
    pub fn state_dir(&self) -> PathBuf {
        let given = self.state_dir.clone();
        let given = given.or_else(|| std::env::var_os("THERMO_STATE").map(PathBuf::from));
        given.unwrap_or_else(default_state_dir)
    }

    /// Control socket in force.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.state_dir().join("control.sock"))
    }
}

fn default_state_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/thermo");
    }
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let data = data.or_else(|| std::env::home_dir().map(|h| h.join(".local/share")));
    data.unwrap_or_else(std::env::temp_dir).join("thermo")
}

/// One run of the program.
pub struct Context {
    /// Shared options.
    pub global: Global,
    /// Standard output.
    pub out: Out,
}

impl Context {
    /// Connects to the node.
    pub fn connect(&self) -> Result<Connection> {
        self.connect_within(Duration::ZERO)
    }

    /// Connects, and stays with a node that restarts.
    pub fn connect_patiently(&self) -> Result<Connection> {
        self.connect()?;
        self.connect_within(Duration::from_secs(60))
    }

    fn connect_within(&self, patience: Duration) -> Result<Connection> {
        let Some(address) = &self.global.node else {
            return Ok(Connection::open_patient(&self.global.socket(), patience)?);
        };
        let dir = self.global.state_dir().join("cluster");
        let member = Credentials::load(&dir)?.ok_or_else(|| {
            let message = format!(
                "there is no {}, so no certificate to show to {address}; join the cluster with `thermo cluster join`",
                dir.display()
            );
            crate::exit::not_found(message)
        })?;
        let member = renewed(&dir, member, address);
        Ok(Connection::open_remote(Remote::new(address, &member)?, patience)?)
    }

    /// The configuration of the node on this machine: the file named, else its own, else built in.
    pub fn config(&self, named: Option<&Path>) -> Result<Config> {
        let state_dir = self.global.state_dir();
        let own = state_dir.join("config.toml");
        let load =
            |path: &Path| Config::load_for(path, &state_dir).map_err(|e| crate::exit::usage(e.to_string()));
        let mut config = match named {
            Some(path) => load(path)?,
            None if own.exists() => load(&own)?,
            None => Config::default(),
        };
        config.file = named.map(std::path::absolute).transpose()?;
        // Only a file that was named may say where the state is, and the command line has the last word.
        if named.is_none() || self.global.state_dir.is_some() {
            config.state_dir = state_dir;
        }
        config.state_dir = std::path::absolute(&config.state_dir)?;
        Ok(config)
    }

    /// Prints what the node answered: as JSON if that was asked for, else as a table.
    pub fn print<T: serde::Serialize>(
        &mut self,
        answer: &T,
        table: impl FnOnce(&T) -> Table,
    ) -> Result<Exit> {
        if self.global.json {
            self.out.json(answer)?;
        } else {
            self.out.table(&table(answer))?;
        }
        Ok(Exit::OK)
    }

    /// Namespace paths of what the user typed. The node is asked for its mounts only if needed.
    pub fn paths(&self, node: &mut Connection, typed: &[OsString]) -> Result<Vec<Vec<u8>>> {
        let local = typed.iter().any(|t| !t.as_encoded_bytes().starts_with(paths::PREFIX));
        let mounts = if local { node.ask::<StatusView>(&Call::Status)?.mounts } else { Vec::new() };
        typed.iter().map(|t| paths::namespace_path(t, &mounts)).collect()
    }

    /// Namespace path of one argument.
    pub fn path(&self, node: &mut Connection, typed: &OsStr) -> Result<Vec<u8>> {
        Ok(self.paths(node, &[typed.to_owned()])?.remove(0))
    }
}

/// An absolute path for the node, which has another working directory.
pub fn absolute_text(path: &Path) -> Result<String> {
    let path = std::path::absolute(path)?;
    let text = path.into_os_string().into_string();
    text.map_err(|p| crate::exit::usage(format!("{}: it must be UTF-8", p.display())))
}

/// A client's certificate is renewed when two thirds of its time have gone (a node renews its own). If that fails, the present one is
/// as good as before.
fn renewed(dir: &Path, member: Credentials, at: &str) -> Credentials {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_secs());
    match client::renew_if_due(dir, &member, at, now) {
        Ok(new) => new.unwrap_or(member),
        Err(e) => {
            eprintln!("thermo: this certificate ends soon, and there is no new one: {e}");
            member
        }
    }
}
