//! `thermo down`.

use crate::context::Context;
use crate::exit::Exit;
use anyhow::{Context as _, Result, bail};
use client::{ClientError, Connection};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::PidfdFlags;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use wire::Call;

/// Stop the node
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo down\n  thermo down --now\n\n\
                        Without --now the running batch is finished and indexes are written to the mounted volumes. With --now \
                        the batch is abandoned; nothing is lost, its files are written again later.")]
pub struct Args {
    /// Abandon running batches
    #[arg(long)]
    now: bool,
    /// Longest wait for the end (seconds)
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    timeout: u64,
}

/// Runs `thermo down`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut node = match Connection::open(&context.global.socket()) {
        Err(ClientError::Unreachable { .. }) => {
            context.out.line("the node is not running")?;
            return Ok(Exit::OK);
        }
        other => other?,
    };
    let pid = node.process().context("finding the process of the node")?;
    let process = Process::open(pid)?;
    match node.ask::<()>(&Call::Down { graceful: !args.now }) {
        // It may be gone before its answer is sent; whether it stops is seen below.
        Ok(()) | Err(ClientError::Lost { .. }) => {}
        Err(refused) => return Err(refused.into()),
    }
    drop(node);
    if !process.ended_within(Duration::from_secs(args.timeout))? {
        bail!(
            "process {pid} has not ended within {} s; see the log in {}, or use `thermo down --now`",
            args.timeout,
            context.global.state_dir().display()
        );
    }
    context.out.line("the node has stopped")?;
    Ok(Exit::OK)
}

/// A process whose end can be waited for; `None` if it had ended already.
struct Process(Option<OwnedFd>);

impl Process {
    fn open(pid: i32) -> Result<Process> {
        let pid = rustix::process::Pid::from_raw(pid);
        let pid = pid.context("the process of the node cannot be seen from here")?;
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Process(Some(fd))),
            Err(rustix::io::Errno::SRCH) => Ok(Process(None)),
            Err(e) => Err(e).context(format!("process {} of the node", pid.as_raw_nonzero())),
        }
    }

    /// Waits for the end of the last thread, not of the first: only then are all locks of the node free (pidfd_open(2)).
    fn ended_within(&self, time: Duration) -> Result<bool> {
        let Some(fd) = &self.0 else { return Ok(true) };
        let end = Instant::now() + time;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now()))?;
            match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e).context("waiting for the end of the node"),
            }
        }
    }
}
