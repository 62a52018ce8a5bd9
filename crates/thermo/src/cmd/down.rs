//! `thermo down`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use anyhow::{Result, bail};
use client::{ClientError, Connection};
use std::time::{Duration, Instant};
use types::StatusView;
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
    let pid = node.ask::<StatusView>(&Call::Status)?.pid;
    match node.ask::<()>(&Call::Down { graceful: !args.now }) {
        // It may be gone before its answer is sent; whether it stops is seen below.
        Ok(()) | Err(ClientError::Lost { .. }) => {}
        Err(refused) => return Err(refused.into()),
    }
    drop(node);
    let end = Instant::now() + Duration::from_secs(args.timeout);
    while alive(pid)? {
        if Instant::now() > end {
            bail!(
                "process {pid} has not ended within {} s; see the log in {}, or use `thermo down --now`",
                args.timeout,
                context.global.state_dir().display()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    context.out.line("the node has stopped")?;
    Ok(Exit::OK)
}

fn alive(pid: u32) -> Result<bool> {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| usage("the node gave no process id"))?;
    // A child that ended but was not waited for counts as ended.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    Ok(!matches!(state, None | Some('Z' | 'X')))
}
