//! `thermo migrate`, `thermo protect`, `thermo purge`, `thermo stage`: requests about files.

use super::files::Files;
use super::layout::RuleArgs;
use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::progress::{follow_and_tell, print_request};
use crate::render::request_line;
use anyhow::Result;
use client::Connection;
use types::{Ino, ItemState, RequestId, RequestItemView};
use wire::{Act, Call};

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

/// Give files a layout on disk targets, or another one, while they are used; directories with -r give it to new files, too
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The options are those of `thermo layout set`. What a file has now says `thermo layout get`.\n\nExample:\n  thermo protect --copies 2 --wait /mnt/tc/runs/field.nc\n  thermo protect --code 4+2 -r /mnt/tc/home\n  thermo protect --copies 1 --stripes 4 -r /mnt/tc/scratch\n  thermo protect --copies 1 --then 64MiB:4 --then 1GiB:16 -r /mnt/tc/runs"
)]
pub struct ProtectArgs {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    rule: RuleArgs,
    #[command(flatten)]
    wait: Wait,
}

/// Runs `thermo protect`.
pub fn protect(context: &mut Context, args: ProtectArgs) -> Result<Exit> {
    if !args.rule.is_about_redundancy() {
        return Err(usage("say what may be lost: --copies 2, --code 4+2, or --copies 1 for no redundancy"));
    }
    act(context, args.files, args.wait, Act::Protect(args.rule.rule()?))
}

/// Runs `thermo migrate`.
pub fn migrate(context: &mut Context, args: MigrateArgs) -> Result<Exit> {
    act(context, args.files, args.wait, Act::Migrate)
}

/// Runs `thermo purge`.
pub fn purge(context: &mut Context, args: PurgeArgs) -> Result<Exit> {
    if args.list {
        return crate::cmd::quote::purge_list(context, args.all, args.limit);
    }
    act(context, args.files, args.wait, Act::Purge)
}

/// Runs `thermo stage`.
pub fn stage(context: &mut Context, args: StageArgs) -> Result<Exit> {
    if args.dry_run {
        return crate::cmd::quote::quote(context, args.files);
    }
    let order = Act::Stage { priority: args.priority, by: args.by };
    act(context, args.files, args.wait, order)
}

fn act(context: &mut Context, files: Files, wait: Wait, act: Act) -> Result<Exit> {
    let mut node = context.connect_patiently()?;
    let done = files.act(&mut node, act)?;
    let (views, left) = (done.requests, done.left);
    if context.global.json && views.is_empty() {
        context.out.json(&serde_json::json!({ "left_out": left.json() }))?;
    }
    if wait.wait {
        let exit = follow_and_tell(context, &mut node, views, Some(&left.json()))?;
        return Ok(left.exit(exit));
    }
    for view in &views {
        if context.global.json {
            print_request(context, view, Some(&left.json()))?;
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
    let failed = views.iter().any(|v| v.request.files_failed > 0);
    Ok(left.exit(if failed { Exit::SOME_FAILED } else { Exit::OK }))
}

/// The first file of a request that failed, and why.
fn first_failed(node: &mut Connection, id: RequestId) -> Result<Option<String>> {
    let mut after = Ino(0);
    loop {
        let page: Vec<RequestItemView> = node.ask(&Call::RequestItems { id, after, limit: 1000 })?;
        let Some(last) = page.last() else { return Ok(None) };
        after = last.ino;
        let failed = |item: RequestItemView| match item.state {
            ItemState::Failed(why) => Some(format!("{}: {why}", item.path)),
            _ => None,
        };
        if let Some(found) = page.into_iter().find_map(failed) {
            return Ok(Some(found));
        }
    }
}
