//! `thermo stat`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Out;
use crate::render::{copies, mode, residency, time, word};
use crate::units::{size, span};
use anyhow::Result;
use client::Connection;
use std::ffi::OsString;
use types::{Extent, FileKind, FileView, Junction, JunctionView, VersionRecord, plural};
use wire::Call;

/// Show everything about files: layout, copies with volumes and positions, digest, request
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo stat /mnt/tc/project/data.tar\n  thermo stat --json tc:/project")]
pub struct Args {
    /// Files or directories
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// Runs `thermo stat`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut node = context.connect()?;
    let mut shown = Vec::new();
    for path in context.paths(&mut node, &args.paths)? {
        shown.push(Shown { view: node.ask(&Call::Stat { path })?, junction: None });
    }
    find_junctions(&mut node, &mut shown);
    if context.global.json {
        context.out.json(&shown)?;
        return Ok(Exit::OK);
    }
    for one in &shown {
        print(&mut context.out, one, context.global.utc)?;
    }
    Ok(Exit::OK)
}

/// What is shown of one path.
#[derive(serde::Serialize)]
struct Shown {
    #[serde(flatten)]
    view: FileView,
    /// Where a directory leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    junction: Option<Junction>,
}

/// Only an empty directory leads to a subsystem. A node of an earlier release has none that does.
fn find_junctions(node: &mut Connection, shown: &mut [Shown]) {
    let may_lead = |one: &Shown| one.view.attr.kind == FileKind::Directory && one.view.attr.size == 0;
    if !shown.iter().any(may_lead) {
        return;
    }
    let known: Vec<JunctionView> = node.ask(&Call::Junctions).unwrap_or_default();
    for one in shown {
        let here = known.iter().find(|known| known.ino == one.view.attr.ino);
        one.junction = here.map(|here| here.junction.clone());
    }
}

fn print(out: &mut Out, Shown { view, junction }: &Shown, utc: bool) -> Result<()> {
    let a = &view.attr;
    out.line(&view.path)?;
    if let Some(Junction { subsystem, addresses, .. }) = junction {
        field(out, "leads to", format!("subsystem {subsystem} at {}", addresses.join(" or ")))?;
    }
    if let Some(target) = &view.link_target {
        field(out, "link to", target)?;
    }
    field(out, "inode", format!("{} ({}, {})", a.ino, word(&a.kind), plural(a.nlink, "link")))?;
    field(out, "size", format!("{} bytes ({}), {} on disk", a.size, size(a.size), size(a.disk_bytes)))?;
    field(out, "mode", format!("{} uid {} gid {}", mode(a), a.uid, a.gid))?;
    let times = [a.mtime, a.ctime, a.atime, a.btime].map(|t| time(t, utc));
    field(out, "modified", &times[0])?;
    field(out, "changed", &times[1])?;
    field(out, "accessed", &times[2])?;
    field(out, "created", &times[3])?;
    if let Some(class) = &view.directory_class {
        field(out, "class", format!("{class} (for new files below)"))?;
    }
    if let Some(file) = &view.file {
        let pinned = if file.pinned { ", pinned" } else { "" };
        field(out, "where", format!("{}, {} copies on tape{pinned}", residency(view), copies(view)))?;
        if view.directory_class.is_none() {
            field(out, "class", &file.class)?;
        }
        field(out, "version", file.version)?;
        if a.kind == FileKind::File {
            field(out, "sha-256", file.digest.map_or("known after migration".into(), |d| d.to_string()))?;
            field(out, "disk object", file.object.map_or("none".into(), |o| format!("{:016x}", o.0)))?;
        }
    }
    if let Some(request) = view.request {
        let eta = view.eta_s.map_or(String::new(), |s| format!(", about {} left", span(s)));
        let percent = view.percent.map_or(String::new(), |p| format!(", {p}% here"));
        field(out, "request", format!("{request}{percent}{eta}"))?;
    }
    view.versions.iter().try_for_each(|version| print_version(out, version, utc))?;
    out.line("")
}

fn field(out: &mut Out, name: &str, value: impl std::fmt::Display) -> Result<()> {
    out.line(format!("  {name:<12} {value}"))
}

fn print_version(out: &mut Out, version: &VersionRecord, utc: bool) -> Result<()> {
    let current = if version.current { "" } else { " (no longer current)" };
    for copy in &version.copies {
        out.line(format!(
            "  version {} copy {}{current}, recorded {}",
            version.version,
            copy.copy,
            time(copy.recorded, utc)
        ))?;
        for segment in &copy.segments {
            out.line(format!(
                "    {} bytes {}..{}, {}, {}",
                segment.volume,
                segment.file_offset,
                segment.file_offset + segment.length,
                positions(&segment.extents),
                client::escape(segment.tape_name.as_bytes())
            ))?;
        }
    }
    Ok(())
}

fn positions(extents: &[Extent]) -> String {
    match extents {
        [] => "no data".into(),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            format!("block {} + {} bytes{more}", first.start_block, first.byte_offset)
        }
    }
}
