//! `thermo mount`, `thermo umount`.

use crate::context::{Context, absolute_text};
use crate::exit::Exit;
use anyhow::Result;
use std::path::PathBuf;
use wire::Call;

/// Mount the namespace at an empty directory of the node's host
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo mount /mnt/tc")]
pub struct Args {
    /// Mount point
    path: PathBuf,
}

/// Unmount the namespace
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo umount /mnt/tc")]
pub struct UmountArgs {
    /// Mount point
    path: PathBuf,
}

/// Runs `thermo mount`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let path = absolute_text(&args.path)?;
    context.connect()?.ask::<()>(&Call::Mount { path: path.clone() })?;
    context.out.line(format!("mounted at {path}"))?;
    Ok(Exit::OK)
}

/// Runs `thermo umount`.
pub fn unmount(context: &mut Context, args: UmountArgs) -> Result<Exit> {
    let path = absolute_text(&args.path)?;
    context.connect()?.ask::<()>(&Call::Umount { path: path.clone() })?;
    context.out.line(format!("unmounted {path}"))?;
    Ok(Exit::OK)
}
