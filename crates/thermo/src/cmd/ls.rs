//! `thermo ls`.

use crate::context::Context;
use crate::exit::{self, Exit};
use crate::out::Table;
use crate::render::{copies, mode, residency, time};
use crate::units::size;
use anyhow::Result;
use client::{ClientError, Connection};
use std::ffi::OsString;
use types::{FileKind, FileView, plural};
use wire::Call;

/// Entries asked for at a time.
const PAGE: u32 = 1000;

/// List files with where they are and how many copies are on tape
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo ls /mnt/tc/project\n  thermo ls -lR tc:/\n\n\
                        WHERE: disk (only there), both (disk and tape), tape (only there), or per cent while coming back. \
                        COPIES: on tape and counting / required; * pinned. Nothing is recalled.")]
pub struct Args {
    /// Directories or files [default: the root of the namespace]
    paths: Vec<OsString>,
    /// Also mode, links, owner, group and class
    #[arg(short)]
    long: bool,
    /// Subdirectories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// A directory itself, not what it holds
    #[arg(short)]
    directory: bool,
}

type Entries = Vec<(Vec<u8>, FileView)>;

/// Runs `thermo ls`.
pub fn run(context: &mut Context, mut args: Args) -> Result<Exit> {
    let mut node = context.connect()?;
    if args.paths.is_empty() {
        args.paths.push("tc:/".into());
    }
    let heading = args.recursive || args.paths.len() > 1;
    let mut todo = context.paths(&mut node, &args.paths)?;
    todo.reverse();
    let mut worst = Exit::OK;
    let mut all = Vec::new();
    while let Some(path) = todo.pop() {
        let entries = match list(&mut node, &path, args.directory) {
            Err(ClientError::Refused(failure)) => {
                eprintln!("thermo: {failure}");
                worst = exit::of_class(failure.class);
                continue;
            }
            other => other?,
        };
        if args.recursive {
            let below =
                entries.iter().filter(|(name, v)| !name.is_empty() && is_dir(v) && !is_self(name, &path));
            todo.extend(below.rev().map(|(name, _)| client::join(&path, name)));
        }
        if context.global.json {
            all.extend(entries.into_iter().map(|(name, view)| json(&path, &name, &view)));
        } else {
            if heading {
                context.out.line(format!("{}:", client::escape(&path)))?;
            }
            context.out.table(&table(&entries, args.long, context.global.utc))?;
            if heading {
                context.out.line("")?;
            }
        }
    }
    if context.global.json {
        context.out.json(&all)?;
    }
    Ok(worst)
}

/// All entries, sorted by name.
fn list(node: &mut Connection, path: &[u8], directory: bool) -> Result<Entries, ClientError> {
    if directory {
        let view: FileView = node.ask(&Call::Stat { path: path.to_vec() })?;
        return Ok(vec![(path.to_vec(), view)]);
    }
    let mut entries = Entries::new();
    let mut after = 0;
    loop {
        let call = Call::List { path: path.to_vec(), after, limit: PAGE };
        let (page, next): (Entries, Option<u64>) = node.ask(&call)?;
        entries.extend(page);
        match next {
            Some(next) => after = next,
            None => break,
        }
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
}

fn is_dir(view: &FileView) -> bool {
    view.attr.kind == FileKind::Directory
}

/// The answer about a path that is no directory is that path itself.
fn is_self(name: &[u8], path: &[u8]) -> bool {
    name == path
}

fn shown_name(name: &[u8], view: &FileView) -> String {
    let mut shown = client::escape(name);
    if is_dir(view) && !shown.ends_with('/') {
        shown.push('/');
    }
    match &view.link_target {
        Some(target) => format!("{shown} -> {target}"),
        None => shown,
    }
}

fn table(entries: &Entries, long: bool, utc: bool) -> Table {
    let mut heading = vec!["WHERE", "COPIES"];
    if long {
        heading.extend(["MODE", "LINKS>", "UID>", "GID>", "CLASS"]);
    }
    heading.extend(["SIZE>", "MODIFIED", "NAME"]);
    let mut table = Table::new(&heading);
    for (name, view) in entries {
        let attr = &view.attr;
        // No links: the catalogue's record of it is damaged.
        let damaged = attr.nlink == 0;
        let mut row = vec![if damaged { "DAMAGED".into() } else { residency(view) }, copies(view)];
        if long {
            let class = view.file.as_ref().map(|f| &f.class).or(view.directory_class.as_ref());
            row.extend([mode(attr), attr.nlink.to_string(), attr.uid.to_string(), attr.gid.to_string()]);
            row.push(class.map_or_else(|| "-".into(), ToString::to_string));
        }
        let length = if is_dir(view) { plural(attr.size, "entry") } else { size(attr.size) };
        row.extend([length, time(attr.mtime, utc), shown_name(name, view)]);
        table.row(row);
    }
    table
}

fn json(dir: &[u8], name: &[u8], view: &FileView) -> serde_json::Value {
    let mut value = serde_json::to_value(view).unwrap_or_default();
    value["name"] = name.into();
    value["directory"] = dir.into();
    value
}
