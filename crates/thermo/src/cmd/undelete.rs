//! `thermo undelete` and `thermo versions`.

use crate::context::Context;
use crate::exit::{Exit, not_found, usage};
use crate::out::Table;
use crate::render::{time, time_or_dash};
use crate::units::size;
use anyhow::Result;
use client::Connection;
use std::ffi::OsString;
use types::{EndedView, FileView, Ino, Version};
use wire::{Call, Reply};

/// Restore deleted or overwritten files that are still on tape
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A version stays on tape until its volume is emptied (repack) or labelled anew. Restoring reads nothing: the \
                  file is offline, with owner, mode and class as they went to tape.\n\nExample:\n  thermo undelete --list \
                  /mnt/tc/project\n  thermo undelete /mnt/tc/project/data.tar\n  thermo undelete tc:/a/log --version 3 --to \
                  tc:/a/log.old"
)]
pub struct Args {
    /// File that was deleted or overwritten; with --list also a directory
    path: OsString,
    /// Show what could be restored at or below the path
    #[arg(long, conflicts_with_all = ["version", "to"])]
    list: bool,
    /// Version [default: the last that can be restored]
    #[arg(long)]
    version: Option<u32>,
    /// Where it is put [default: where it was]
    #[arg(long)]
    to: Option<OsString>,
}

/// Show all versions of a file, also of one that was deleted
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo versions /mnt/tc/project/data.tar")]
pub struct VersionsArgs {
    /// File
    path: OsString,
}

/// Runs `thermo undelete`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut node = context.connect()?;
    let path = one_path(context, &mut node, &args.path)?;
    if args.list {
        let mut found = ended(&mut node, &path, true)?;
        found.sort_by(|a, b| (&a.path, a.version).cmp(&(&b.path, b.version)));
        let utc = context.global.utc;
        return context.print(&found, |found| ended_table(found, utc));
    }
    let wanted = |v: &EndedView| args.version.is_none_or(|n| v.version == Version(n));
    let mut found = all_versions(&mut node, &path)?.1;
    found.retain(wanted);
    let Some(chosen) = found.iter().rfind(|v| v.restorable).or(found.last()) else {
        let what = args.version.map_or_else(String::new, |n| format!("version {n} of "));
        let shown = client::escape(&path);
        return Err(not_found(format!(
            "no ended {what}{shown} that you may restore is on tape; see `thermo undelete --list` and `thermo versions`"
        )));
    };
    let to = match &args.to {
        Some(to) => one_path(context, &mut node, to)?,
        None => path,
    };
    let call = Call::Undelete { ino: chosen.ino, version: chosen.version, to };
    let made: FileView = node.ask(&call)?;
    if context.global.json {
        context.out.json(&made)?;
    } else {
        context.out.line(format!(
            "{} is version {} again, {} on tape",
            made.path,
            chosen.version,
            size(chosen.size)
        ))?;
    }
    Ok(Exit::OK)
}

/// Runs `thermo versions`.
pub fn versions(context: &mut Context, args: VersionsArgs) -> Result<Exit> {
    let mut node = context.connect()?;
    let path = one_path(context, &mut node, &args.path)?;
    let (current, ended) = all_versions(&mut node, &path)?;
    if current.is_none() && ended.is_empty() {
        return Err(not_found(format!(
            "{}: there is no such file, nor was one that is on tape",
            client::escape(&path)
        )));
    }
    if context.global.json {
        context.out.json(&serde_json::json!({ "current": current, "ended": ended }))?;
        return Ok(Exit::OK);
    }
    let utc = context.global.utc;
    let mut table = ended_table(&ended, utc);
    if let Some(file) = current {
        let version = file.file.as_ref().map_or(Version(0), |f| f.version);
        let copies = file.versions.iter().filter(|v| v.current).flat_map(|v| &v.copies);
        let volumes: Vec<&str> = copies.flat_map(|c| c.segments.iter().map(|s| s.volume.as_str())).collect();
        table.row(vec![
            version.to_string(),
            size(file.attr.size),
            time(file.attr.mtime, utc),
            "-".into(),
            "current".into(),
            volumes.join(","),
            file.path.to_string(),
        ]);
    }
    context.out.table(&table)?;
    Ok(Exit::OK)
}

fn one_path(context: &Context, node: &mut Connection, typed: &OsString) -> Result<Vec<u8>> {
    context.path(node, typed)
}

/// The file as it is, if it is there, and its versions that ended, oldest first: of its inode, or called so last.
fn all_versions(node: &mut Connection, path: &[u8]) -> Result<(Option<FileView>, Vec<EndedView>)> {
    let current = match node.ask::<FileView>(&Call::Stat { path: path.to_vec() }) {
        Err(e) if matches!(e.class(), types::ErrorClass::NotFound | types::ErrorClass::Namespace) => None,
        found => Some(found?),
    };
    let mut found = ended(node, path, false)?;
    found.sort_by_key(|v| (v.ended, v.version));
    Ok((current, found))
}

fn ended(node: &mut Connection, path: &[u8], below: bool) -> Result<Vec<EndedView>> {
    let (mut all, mut after): (Vec<EndedView>, Option<(Ino, Version)>) = (Vec::new(), None);
    loop {
        let call = Call::Ended { path: path.to_vec(), below, after };
        let (Reply::Ended { found, next }, _) = node.call(&call)? else {
            return Err(usage("the node gave another answer than was asked for"));
        };
        all.extend(found);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

fn ended_table(found: &[EndedView], utc: bool) -> Table {
    let heading = ["VERSION>", "SIZE>", "MODIFIED", "ENDED", "WHY", "VOLUMES", "PATH"];
    let mut table = Table::new(&heading);
    for v in found {
        let why = match (v.restorable, v.overwritten) {
            (false, _) => "lost: no copy can be read",
            (true, true) => "overwritten",
            (true, false) => "deleted",
        };
        table.row(vec![
            v.version.to_string(),
            size(v.size),
            time(v.mtime, utc),
            time_or_dash(v.ended, utc),
            why.into(),
            v.volumes.iter().map(|v| v.as_str()).collect::<Vec<_>>().join(","),
            v.path.to_string(),
        ]);
    }
    table
}
