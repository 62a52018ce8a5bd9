//! On request, the node is killed in the middle of the copy, as a power failure would end it, and started again.

use super::host::Host;
use super::way::Way;
use anyhow::{Context, Result};
use client::Connection;
use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::StatusView;
use wire::Call;

/// Kills the node once it has `entries` more entries than now, and starts it again. False if `ended` came first.
pub fn crash(host: &Host, way: &Way, entries: u64, ended: &AtomicBool) -> Result<bool> {
    let mut node = Connection::open(&host.socket)?;
    let mut status: StatusView = node.ask(&Call::Status)?;
    let enough = status.inodes + entries;
    while status.inodes < enough {
        if ended.load(Ordering::Relaxed) {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
        status = node.ask(&Call::Status)?;
    }
    let pid =
        i32::try_from(status.pid).ok().and_then(Pid::from_raw).context("the node gave no process id")?;
    kill_process(pid, Signal::KILL).context("killing the node")?;
    // The connection ends when the kernel has taken the process apart.
    while node.ask::<StatusView>(&Call::Status).is_ok() {}
    host.up()?;
    if let Way::Mount(mount) = way {
        let path = crate::context::absolute_text(mount)?;
        Connection::open(&host.socket)?.ask::<()>(&Call::Mount { path, nonblock: None })?;
    }
    Ok(true)
}
