//! `thermo mount`, `thermo umount`.

use crate::context::{Context, absolute_text};
use crate::exit::Exit;
use anyhow::Result;
use std::path::PathBuf;
use types::NonBlock;
use wire::Call;

/// Mount the namespace at an empty directory of the node's host
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo mount /mnt/tc\n  thermo mount --nonblock wait /mnt/backup    # for GNU tar"
)]
pub struct Args {
    /// Mount point
    path: PathBuf,
    /// What O_NONBLOCK means for files on tape: eagain (they cannot be read yet) or wait (as without it); GNU tar
    /// needs `wait` [default: `nonblock` of the configuration]
    #[arg(long, value_name = "eagain|wait")]
    nonblock: Option<NonBlock>,
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
    context.connect()?.ask::<()>(&Call::Mount { path: path.clone(), nonblock: args.nonblock })?;
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
