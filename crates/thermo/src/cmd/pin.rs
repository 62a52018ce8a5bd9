//! `thermo pin`, `thermo unpin`.

use super::act::Files;
use crate::context::Context;
use crate::exit::Exit;
use anyhow::Result;
use wire::Call;

/// Keep files on disk: they are never purged
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo pin -r /mnt/tc/project/index")]
pub struct PinArgs {
    #[command(flatten)]
    files: Files,
}

/// Allow files to be purged again
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo unpin tc:/project/index/a.db")]
pub struct UnpinArgs {
    #[command(flatten)]
    files: Files,
}

/// Runs `thermo pin`.
pub fn pin(context: &mut Context, args: PinArgs) -> Result<Exit> {
    change(context, args.files, true)
}

/// Runs `thermo unpin`.
pub fn unpin(context: &mut Context, args: UnpinArgs) -> Result<Exit> {
    change(context, args.files, false)
}

fn change(context: &mut Context, files: Files, pin: bool) -> Result<Exit> {
    let mut node = context.connect_patiently()?;
    let mut changed = 0;
    for files in files.resolve(context, &mut node)? {
        changed += node.ask::<u64>(&Call::Pin { files, pin })?;
    }
    if context.global.json {
        context.out.json(&serde_json::json!({ "changed": changed, "pinned": pin }))?;
    } else {
        context.out.line(format!("{changed} files {}", if pin { "pinned" } else { "unpinned" }))?;
    }
    Ok(Exit::OK)
}
