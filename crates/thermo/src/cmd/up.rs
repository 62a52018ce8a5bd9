//! `thermo up`: starts the node, in the background unless told otherwise.

use super::status;
use crate::context::{Context, absolute_text};
use crate::exit::{Exit, usage};
use crate::serve;
use anyhow::{Context as _, Result, bail};
use client::{ClientError, Connection};
use node::Config;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use types::{ErrorClass, StatusView};
use wire::Call;

/// Longest part of the log shown when the start fails (bytes).
const LOG_SHOWN: u64 = 4000;

/// Start the node (all roles on this machine)
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo up --mount /mnt/tc\n  thermo up --config /etc/thermo.toml\n  thermo --state-dir /tmp/try up\n\n\
                        The configuration is --config, else config.toml in the state directory, else built in. The log is \
                        thermo.log in the state directory; THERMO_LOG=debug makes it talkative."
)]
pub struct Args {
    /// Stay in the foreground and log to standard error
    #[arg(long)]
    foreground: bool,
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Mount the namespace here (made if it does not exist)
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Longest wait until it answers (seconds)
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,
    /// Take library and drives from another host that has reserved them: only if that host no longer uses them
    #[arg(long)]
    preempt: bool,
    /// The disk tier of the last start is lost: begin with the one that the configuration names now
    #[arg(long)]
    new_disk_tier: bool,
    /// Leave the terminal: for the background process of `up` itself
    #[arg(long, hide = true)]
    detach: bool,
}

/// Runs `thermo up`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let config = config(context, &args)?;
    if args.foreground {
        if args.detach {
            leave_the_terminal()?;
        }
        return serve::run(config);
    }
    match Connection::open(&config.socket_path()).and_then(|mut node| node.ask::<StatusView>(&Call::Status)) {
        Ok(view) => {
            if !context.global.json {
                let not = " (--preempt counts when it starts: `thermo down` first, or `thermo drive up N --preempt` for a drive)";
                let not = if args.preempt { not } else { "" };
                context.out.line(format!("the node is already up{not}"))?;
            }
            return report(context, &view);
        }
        // A node that was killed a moment ago may still seem to listen.
        Err(ClientError::Unreachable { .. } | ClientError::Lost { .. }) => {}
        Err(other) => {
            let Some(waits) = waits(&config) else { return Err(other.into()) };
            context.out.line(format!("the node is already up, {waits}"))?;
            return Ok(Exit::OK);
        }
    }
    match start(&config, &args)? {
        Started::Ready(view) => report(context, &view),
        Started::Waits(waits) => {
            context.out.line(format!("the node is up, {waits}"))?;
            Ok(Exit::OK)
        }
        Started::Ended(exit) => Ok(exit),
    }
}

/// Begins a session of its own, if this process has none yet: one that begins anew has left the terminal before.
///
/// Who is started by `up` leads no process group, so only one that has its session already is refused (setsid(2)).
/// Its id is not asked for: to a process in a container that of a session from outside is 0.
fn leave_the_terminal() -> Result<()> {
    match rustix::process::setsid() {
        Ok(_) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(error).context("leaving the terminal"),
    }
}

fn report(context: &mut Context, view: &StatusView) -> Result<Exit> {
    if context.global.json {
        context.out.json(view)?;
    } else {
        status::summary(&mut context.out, view)?;
    }
    Ok(Exit::OK)
}

/// The configuration, with what the command line says on top.
fn config(context: &Context, args: &Args) -> Result<Config> {
    let global = &context.global;
    let mut config = context.config(args.config.as_deref())?;
    if global.socket.as_ref().is_some_and(|s| *s != config.socket_path()) {
        return Err(usage(format!("the control socket is always {}", config.socket_path().display())));
    }
    config.preempt = args.preempt;
    config.new_disk_tier = args.new_disk_tier;
    if let Some(mount) = &args.mount {
        config.mount = Some(absolute_text(mount)?.into());
    }
    if let Some(mount) = &config.mount
        && mount.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    {
        fs::create_dir_all(mount)
            .with_context(|| format!("cannot make the mount point {}", mount.display()))?;
    }
    Ok(config)
}

/// Starts the background process and waits until it answers.
fn start(config: &Config, args: &Args) -> Result<Started> {
    let dir = &config.state_dir;
    fs::create_dir_all(dir).with_context(|| format!("cannot make the state directory {}", dir.display()))?;
    let log_path = dir.join("thermo.log");
    let log = File::options().create(true).append(true).open(&log_path);
    let log = log.with_context(|| format!("cannot write the log {}", log_path.display()))?;
    let log_start = log.metadata()?.len();
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.arg("--state-dir").arg(dir).args(["up", "--foreground", "--detach"]);
    if let Some(path) = &args.config {
        command.arg("--config").arg(std::path::absolute(path)?);
    }
    if let Some(mount) = &config.mount {
        command.arg("--mount").arg(mount);
    }
    if args.preempt {
        command.arg("--preempt");
    }
    if args.new_disk_tier {
        command.arg("--new-disk-tier");
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir("/");
    let mut child = command.spawn().context("starting the background process")?;
    match wait_ready(&mut child, config, Duration::from_secs(args.timeout))? {
        Started::Ready(view) => Ok(Started::Ready(view)),
        Started::Waits(how) => Ok(Started::Waits(how)),
        Started::Ended(exit) => {
            eprintln!("thermo: the node could not start; its log {} ends:", log_path.display());
            eprintln!("{}", tail(&log_path, log_start));
            Ok(Started::Ended(exit))
        }
    }
}

/// What became of the background process.
enum Started {
    /// It answers.
    Ready(Box<StatusView>),
    /// It answers, and waits until it may serve: how.
    Waits(&'static str),
    /// It ended; its exit code says why.
    Ended(Exit),
}

fn wait_ready(child: &mut Child, config: &Config, patience: Duration) -> Result<Started> {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            let code = status.code().and_then(|c| u8::try_from(c).ok()).filter(|&c| c > 0);
            return Ok(Started::Ended(code.map_or(Exit::SOME_FAILED, Exit)));
        }
        match Connection::open(&config.socket_path())
            .and_then(|mut node| node.ask::<StatusView>(&Call::Status))
        {
            Ok(view) if ready(&view, config) => return Ok(Started::Ready(Box::new(view))),
            Ok(_) | Err(ClientError::Unreachable { .. } | ClientError::Lost { .. }) => {}
            Err(other) => match waits(config) {
                Some(waits) => return Ok(Started::Waits(waits)),
                None if other.class() == ErrorClass::Busy => {} // whether it waits is not known yet
                None => return Err(other.into()),
            },
        }
        if Instant::now() > end {
            bail!(
                "the node (process {}) does not answer yet; it goes on starting, ask with `thermo status`",
                child.id()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How it waits, if it does.
fn waits(config: &Config) -> Option<&'static str> {
    let mut node = Connection::open(&config.socket_path()).ok()?;
    if node.ask::<wire::StandbyView>(&Call::Standby).is_ok_and(|view| view.standby) {
        return Some("as a standby (`thermo standby status`)");
    }
    let view: wire::TurnsView = node.ask(&Call::Turns).ok()?;
    // Before it has looked it may find that it is its turn.
    let waits = view.waits && (!view.nodes.is_empty() || view.trouble.is_some());
    waits.then_some("and waits for its turn (`thermo cluster status`)")
}

/// A node that cannot mount says so in its log and ends, so a missing mount is only not there yet.
fn ready(view: &StatusView, config: &Config) -> bool {
    config.mount.is_none() || !view.mounts.is_empty()
}

/// What was written to the log since the start.
fn tail(path: &Path, from: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let from = from.max(file.metadata()?.len().saturating_sub(LOG_SHOWN));
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(LOG_SHOWN).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    };
    read().unwrap_or_else(|e| format!("({e})"))
}
