//! `thermo migrate`, `thermo purge`, `thermo stage`: requests about files.

use crate::context::{Context, selections};
use crate::exit::{Exit, usage};
use crate::progress::follow;
use crate::render::request_line;
use anyhow::{Context as _, Result};
use client::Connection;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use types::{Ino, ItemState, RequestId, RequestItemView, RequestView};
use wire::{Call, Selection};

/// Longest list of paths read from standard input (bytes).
const MOST_INPUT: u64 = 4 << 30;

/// Which files, and whether to wait.
#[derive(Debug, clap::Args)]
pub struct Files {
    /// Files and directories; `-` reads a list from standard input
    pub paths: Vec<OsString>,
    /// Directories with all files below them
    #[arg(short, long)]
    pub recursive: bool,
    /// Read paths from standard input, one per line, or separated by NUL if there is a NUL
    #[arg(long)]
    pub from_stdin: bool,
}

#[derive(Debug, clap::Args)]
pub struct Wait {
    /// Wait until it is done and show progress; Ctrl-C ends the waiting only
    #[arg(short, long)]
    wait: bool,
}

/// Write the copies to tape that files still lack
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo migrate --wait -r /mnt/tc/project\n  find /mnt/tc -name '*.nc' -print0 | thermo migrate --from-stdin"
)]
pub struct MigrateArgs {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    wait: Wait,
}

/// Release the disk space of files whose copies are all on tape
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo purge -r tc:/project/2024\n  thermo purge --list --limit 20\n  thermo purge --list --all"
)]
pub struct PurgeArgs {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    wait: Wait,
    /// Release nothing: list the files that may go, in the order in which space would be released
    #[arg(long, conflicts_with_all = ["paths", "from_stdin", "recursive", "wait"])]
    list: bool,
    /// With --list: also files that stay for the moment, because somebody has them open
    #[arg(long, requires = "list")]
    all: bool,
    /// With --list: most rows
    #[arg(long, requires = "list", default_value_t = 100)]
    limit: u32,
}

/// Bring files back to disk
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo stage --wait /mnt/tc/project/data.tar\n  thermo stage -r tc:/project\n  thermo stage --priority 3 --by 6h -r tc:/project\n  find /mnt/tc/in -type f -print0 | thermo stage --dry-run --from-stdin"
)]
pub struct StageArgs {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    wait: Wait,
    /// 1 to 9, greater goes first; as high as the node's limits allow unless given
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=9))]
    priority: Option<u8>,
    /// When the files are wanted: a span from now (90m, 6h, 2d) or a time (2026-11-30T18:00)
    #[arg(long, value_name = "TIME", value_parser = crate::units::parse_when)]
    by: Option<types::Time>,
    /// Change nothing: say what it would take
    #[arg(long, conflicts_with_all = ["wait", "priority", "by"])]
    dry_run: bool,
}

/// Runs `thermo migrate`.
pub fn migrate(context: &mut Context, args: MigrateArgs) -> Result<Exit> {
    act(context, args.files, args.wait, &Call::Migrate)
}

/// Runs `thermo purge`.
pub fn purge(context: &mut Context, args: PurgeArgs) -> Result<Exit> {
    if args.list {
        return crate::cmd::quote::purge_list(context, args.all, args.limit);
    }
    act(context, args.files, args.wait, &Call::Purge)
}

/// Runs `thermo stage`.
pub fn stage(context: &mut Context, args: StageArgs) -> Result<Exit> {
    if args.dry_run {
        return crate::cmd::quote::quote(context, args.files);
    }
    let (priority, by) = (args.priority, args.by);
    act(context, args.files, args.wait, &|files| match (priority, by) {
        (None, None) => Call::Stage(files),
        _ => Call::StageAs { files, priority, by },
    })
}

fn act(context: &mut Context, files: Files, wait: Wait, call: &dyn Fn(Selection) -> Call) -> Result<Exit> {
    let mut node = context.connect_patiently()?;
    let mut views: Vec<RequestView> = Vec::new();
    for selection in files.resolve(context, &mut node)? {
        views.push(node.ask(&call(selection))?);
    }
    if wait.wait {
        return follow(context, &mut node, views);
    }
    for view in &views {
        if context.global.json {
            context.out.json(view)?;
        } else {
            context.out.line(request_line(view))?;
            if view.request.files_failed > 0 {
                let id = view.request.id;
                let why = first_failed(&mut node, id)?.unwrap_or_else(|| view.request.message.clone());
                context.out.line(format!("  {why}\n  every reason: thermo request show {id} --failed"))?;
            }
        }
    }
    if !context.global.json && views.iter().any(|v| v.request.finished.is_none()) {
        let open: Vec<String> = views
            .iter()
            .filter(|v| v.request.finished.is_none())
            .map(|v| format!("thermo request watch {}", v.request.id))
            .collect();
        context.out.line(format!("watch with: {}", open.join("; ")))?;
    }
    if views.iter().any(|v| v.request.files_failed > 0) {
        return Ok(Exit::SOME_FAILED);
    }
    Ok(Exit::OK)
}

/// The first file of a request that failed, and why.
fn first_failed(node: &mut Connection, id: RequestId) -> Result<Option<String>> {
    let mut after = Ino(0);
    loop {
        let page: Vec<RequestItemView> = node.ask(&Call::RequestItems { id, after, limit: 1000 })?;
        let Some(last) = page.last() else { return Ok(None) };
        after = last.ino;
        let failed = |item: RequestItemView| match item.state {
            ItemState::Failed(why) => Some(format!("{}: {why}", client::escape(item.path.as_bytes()))),
            _ => None,
        };
        if let Some(found) = page.into_iter().find_map(failed) {
            return Ok(Some(found));
        }
    }
}

impl Files {
    /// The calls' selections, at least one.
    pub fn resolve(self, context: &Context, node: &mut Connection) -> Result<Vec<Selection>> {
        let mut typed: Vec<OsString> = self.paths;
        let dash = typed.iter().any(|p| p == "-");
        typed.retain(|p| p != "-");
        if dash || self.from_stdin {
            typed.extend(read_list(std::io::stdin().lock())?);
        }
        let parts = selections(context.paths(node, &typed)?, self.recursive);
        if parts.is_empty() {
            return Err(usage("no files are named; give paths, or a list with --from-stdin"));
        }
        Ok(parts)
    }
}

fn read_list(input: impl Read) -> Result<Vec<OsString>> {
    let mut bytes = Vec::new();
    input.take(MOST_INPUT).read_to_end(&mut bytes).context("reading the list of files")?;
    let separator = if bytes.contains(&0) { 0 } else { b'\n' };
    let names = bytes.split(|&b| b == separator).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_at_lines_or_at_nul() {
        let lines = read_list(&b"/a\n/b c\n\n/d"[..]).unwrap();
        assert_eq!(lines, ["/a", "/b c", "/d"]);
        let nul = read_list(&b"/a\nb\0/c\0"[..]).unwrap();
        assert_eq!(nul, ["/a\nb", "/c"]);
        assert!(read_list(&b""[..]).unwrap().is_empty());
    }
}
