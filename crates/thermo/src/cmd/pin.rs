//! `thermo pin`, `thermo unpin`.

use super::files::Files;
use crate::context::Context;
use crate::exit::Exit;
use anyhow::Result;
use types::plural;
use wire::Act;

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
    let done = files.act(&mut node, Act::Pin(pin))?;
    if context.global.json {
        let left = done.left.json();
        context.out.json(&serde_json::json!({ "changed": done.changed, "pinned": pin, "left_out": left }))?;
    } else {
        context.out.line(format!(
            "{} {}",
            plural(done.changed, "file"),
            if pin { "pinned" } else { "unpinned" }
        ))?;
    }
    Ok(done.left.exit(Exit::OK))
}
