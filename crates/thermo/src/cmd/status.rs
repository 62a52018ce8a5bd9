//! `thermo status`.

use super::{drive, pool};
use crate::context::Context;
use crate::exit::Exit;
use crate::out::{Out, Tint};
use crate::render::percent;
use crate::units::{size, span};
use anyhow::Result;
use types::{StatusView, plural};
use wire::Call;

/// Show the state of the node
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo status\n  thermo status --json")]
pub struct Args {}

/// Runs `thermo status`.
pub fn run(context: &mut Context) -> Result<Exit> {
    let status: StatusView = context.connect()?.ask(&Call::Status)?;
    if context.global.json {
        context.out.json(&status)?;
    } else {
        print(&mut context.out, &status)?;
    }
    Ok(Exit::OK)
}

fn print(out: &mut Out, s: &StatusView) -> Result<()> {
    summary(out, s)?;
    let disk = &s.disk;
    out.line(format!(
        "disk       {} of {} used ({}), {} purgeable, purge from {} down to {}, {} free below",
        size(disk.used),
        size(disk.capacity),
        percent(disk.used, disk.capacity),
        size(disk.purgeable),
        size(disk.high_watermark),
        size(disk.low_watermark),
        size(disk.fs_free)
    ))?;
    out.line(format!(
        "waiting    {}, {} to be written to tape; {} open",
        plural(s.migrate_backlog_files, "file"),
        size(s.migrate_backlog_bytes),
        plural(s.requests_open, "request")
    ))?;
    out.line("")?;
    out.table(&drive::table(&s.drives))?;
    out.line("")?;
    out.table(&pool::table(&s.pools, &[]))?;
    for warning in &s.warnings {
        let line = out.tint(Tint::Yellow, format!("warning: {warning}"));
        out.line(line)?;
    }
    Ok(())
}

/// The first lines, also shown by `thermo up`.
pub fn summary(out: &mut Out, s: &StatusView) -> Result<()> {
    out.line(format!(
        "node       thermo {}, process {}, up {}, state in {}",
        s.version,
        s.pid,
        span(s.uptime_s),
        s.state_dir
    ))?;
    let mounts = if s.mounts.is_empty() { "nowhere (thermo mount DIR)".into() } else { s.mounts.join(", ") };
    out.line(format!("mounted    {mounts}"))?;
    out.line(format!("namespace  {} inodes, {}", s.inodes, size(s.bytes)))
}
