//! `thermo reload`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Tint;
use anyhow::Result;
use wire::{Call, Reloaded};

/// Have the node read its configuration again
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Taken over at once: new [[targets]] and their domains, [[devices]], [[libraries]] and drives behind those that are there, another \
                  device, serial number or path of a drive (when it is opened next), [disk] while its path is the same, [tape] but for what drives are \
                  opened with, [[limits]], [undelete], [reclaim], cluster.move_rate, cluster.scrub_rate, cluster.scrub_every_days, and what is done with \
                  backups in the same catalog.backup_dir. What else differs is named, and counts from the next start on. \
                  A file that is not valid changes nothing.\n\nExample:\n  thermo reload"
)]
pub struct Args {}

/// Runs `thermo reload`.
pub fn run(context: &mut Context) -> Result<Exit> {
    let done: Reloaded = context.connect()?.ask(&Call::Reload)?;
    if context.global.json {
        context.out.json(&done)?;
        return Ok(Exit::OK);
    }
    if done.taken.is_empty() && done.later.is_empty() {
        context.out.line("nothing has changed")?;
    }
    if !done.taken.is_empty() {
        context.out.line(format!("from now on: {}", done.taken.join(", ")))?;
    }
    if !done.later.is_empty() {
        let line = format!("from the next start on: {}", done.later.join(", "));
        let line = context.out.tint(Tint::Yellow, line);
        context.out.line(line)?;
    }
    Ok(Exit::OK)
}
