//! `thermo status`.

use super::{drive, overview, pool};
use crate::context::Context;
use crate::exit::Exit;
use crate::out::{Out, Tint};
use crate::render::percent;
use crate::units::{size, span};
use anyhow::Result;
use client::{ClientError, Connection};
use serde::Serialize;
use types::{ErrorClass, StatusView, plural};
use wire::{Call, ClusterStatus, WireError};

/// Show the state of the node, and of the cluster that it belongs to
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Of a cluster it shows which members answer and what each does, the targets and what is done with them, standby, subsystems, and all \
                  warnings. A node that has joined asks the one that holds its names.\n\nExample:\n  thermo status\n  thermo status --json"
)]
pub struct Args {}

/// What is shown: without a cluster, as the node alone.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    node: StatusView,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterStatus>,
}

/// Runs `thermo status`.
pub fn run(context: &mut Context) -> Result<Exit> {
    let mut connection = context.connect()?;
    let mut whole = Whole { node: connection.ask(&Call::Status)?, cluster: None };
    match cluster(&mut connection) {
        Ok(cluster) => whole.cluster = cluster,
        Err(e) => whole.node.warnings.push(format!("how the cluster is cannot be told now: {e}")),
    }
    if context.global.json {
        context.out.json(&whole)?;
        return Ok(Exit::OK);
    }
    let utc = context.global.utc;
    let out = &mut context.out;
    print(out, &whole.node)?;
    let mut warnings = whole.node.warnings;
    if let Some(cluster) = &whole.cluster {
        out.line("")?;
        overview::show(out, cluster, utc)?;
        let others = overview::warnings(cluster).into_iter();
        let new: Vec<String> = others.filter(|warning| !warnings.contains(warning)).collect();
        warnings.extend(new);
    }
    for warning in &warnings {
        let line = out.tint(Tint::Yellow, format!("warning: {warning}"));
        out.line(line)?;
    }
    Ok(Exit::OK)
}

/// None: the node belongs to none, or is of a release that does not tell.
fn cluster(connection: &mut Connection) -> Result<Option<ClusterStatus>, ClientError> {
    match connection.ask(&Call::ClusterStatus) {
        Ok(status) => Ok(Some(status)),
        Err(ClientError::Refused(no)) if no.class == ErrorClass::NotFound => Ok(None),
        Err(ClientError::Wire { source: WireError::NotYet { .. }, .. }) => Ok(None),
        Err(e) => Err(e),
    }
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
    out.table(&pool::table(&s.pools, &[]))
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
