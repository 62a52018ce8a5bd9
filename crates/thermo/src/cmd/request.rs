//! `thermo request`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::progress::follow;
use crate::render::{request_line, request_state, time, time_or_dash, word, words};
use crate::units::{size, span};
use anyhow::Result;
use client::Connection;
use types::{Ino, ItemState, RequestId, RequestItemView, RequestView};
use wire::Call;

/// Requests: stage, migrate, purge, label
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List requests, newest first
    #[command(
        after_help = "Example:\n  thermo request ls\n  thermo request ls --all --limit 20\n  thermo request ls --by pool"
    )]
    Ls {
        /// Ended ones too
        #[arg(short, long)]
        all: bool,
        /// Most rows
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Sum up how far the open recalls and migrates are
        #[arg(long, conflicts_with = "all")]
        by: Option<By>,
    },
    /// Show a request and its files
    #[command(after_help = "Example:\n  thermo request show 12\n  thermo request show 12 --failed")]
    Show {
        /// Request
        id: u64,
        /// Only files that failed
        #[arg(long)]
        failed: bool,
    },
    /// Follow a request, or all open ones, to the end
    #[command(after_help = "Example:\n  thermo request watch 12\n  thermo request watch")]
    Watch {
        /// Request
        id: Option<u64>,
    },
    /// Withdraw a request; what is done stays done
    #[command(after_help = "Example:\n  thermo request cancel 12")]
    Cancel {
        /// Request
        id: u64,
    },
}

/// By what requests are summed up.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum By {
    /// Who asked
    Owner,
    /// Class of the files
    Class,
    /// Pool: of a migrate each of the class, of a recall that of the first copy
    Pool,
}

impl From<By> for types::SumBy {
    fn from(by: By) -> Self {
        match by {
            By::Owner => Self::Owner,
            By::Class => Self::Class,
            By::Pool => Self::Pool,
        }
    }
}

/// Runs `thermo request`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut node = context.connect_patiently()?;
    match args.command {
        Command::Ls { by: Some(by), .. } => crate::cmd::quote::sums(context, &mut node, by.into()),
        Command::Ls { all, limit, by: None } => list(context, &mut node, all, limit),
        Command::Show { id, failed } => show(context, &mut node, RequestId(id), failed),
        Command::Watch { id: Some(id) } => {
            let view = node.ask(&Call::Request(RequestId(id)))?;
            follow(context, &mut node, vec![view])
        }
        Command::Watch { id: None } => {
            let mut open: Vec<RequestView> = node.ask(&Call::Requests { all: false, limit: 1000 })?;
            open.reverse();
            if open.is_empty() && !context.global.json {
                context.out.line("no request is open")?;
            }
            follow(context, &mut node, open)
        }
        Command::Cancel { id } => {
            node.ask::<()>(&Call::Cancel(RequestId(id)))?;
            context.out.line(format!("request {id} is withdrawn"))?;
            Ok(Exit::OK)
        }
    }
}

fn list(context: &mut Context, node: &mut Connection, all: bool, limit: u32) -> Result<Exit> {
    let views: Vec<RequestView> = node.ask(&Call::Requests { all, limit })?;
    let utc = context.global.utc;
    context.print(&views, |views| table(views, utc))
}

fn table(views: &[RequestView], utc: bool) -> Table {
    let mut table =
        Table::new(&["ID>", "KIND", "STATE", "DONE>", "FILES>", "BYTES>", "ETA>", "P90>", "MADE", "WHAT"]);
    for view in views {
        let r = &view.request;
        table.row(vec![
            r.id.to_string(),
            word(&r.kind),
            word(&r.state),
            format!("{}%", view.percent),
            format!("{}/{}", r.files_done, r.files_total),
            size(r.bytes_total),
            view.eta_s.map_or_else(|| "-".into(), span),
            view.estimate.map_or_else(|| "-".into(), |e| span(e.finish_p90_s)),
            time(r.created, utc),
            words(&r.subject),
        ]);
    }
    table
}

fn show(context: &mut Context, node: &mut Connection, id: RequestId, failed: bool) -> Result<Exit> {
    let view: RequestView = node.ask(&Call::Request(id))?;
    if context.global.json {
        let mut items = Vec::new();
        each_item(node, id, failed, &mut |item| {
            items.push(item);
            Ok(())
        })?;
        context.out.json(&serde_json::json!({ "request": view, "items": items }))?;
        return Ok(Exit::OK);
    }
    let (r, utc) = (&view.request, context.global.utc);
    let state = request_state(&context.out, r.state);
    let out = &mut context.out;
    out.line(request_line(&view))?;
    out.line(format!("  state     {state} {}", view.doing))?;
    out.line(format!("  what      {}", words(&r.subject)))?;
    out.line(format!("  owner     uid {}", r.owner))?;
    if r.kind == types::RequestKind::Stage {
        let by = r.deadline.map_or_else(String::new, |by| format!(", wanted by {}", time(by, utc)));
        out.line(format!("  priority  {}{by}", r.priority))?;
    }
    out.line(format!("  made      {}", time(r.created, utc)))?;
    out.line(format!("  started   {}", time_or_dash(r.started, utc)))?;
    out.line(format!("  ended     {}", time_or_dash(r.finished, utc)))?;
    if view.queue_position > 0 {
        out.line(format!("  position  {} in the queue", view.queue_position))?;
    }
    if let Some(e) = view.estimate {
        let [start, start_p90, end, end_p90] =
            [e.start_p50_s, e.start_p90_s, e.finish_p50_s, e.finish_p90_s].map(span);
        out.line(format!("  begins    in {start}, in nine cases of ten within {start_p90}"))?;
        out.line(format!("  ends      in {end}, in nine cases of ten within {end_p90}"))?;
    }
    for line in &view.why {
        out.line(format!("  why       {line}"))?;
    }
    if !r.message.is_empty() {
        out.line(format!("  message   {}", r.message))?;
    }
    each_item(node, id, failed, &mut |item| {
        let path = &item.path;
        match &item.state {
            ItemState::Failed(why) => out.line(format!("  {:<9} {path}: {why}", "failed")),
            other => out.line(format!("  {:<9} {path}", word(other))),
        }
    })?;
    Ok(Exit::OK)
}

fn each_item(
    node: &mut Connection,
    id: RequestId,
    failed: bool,
    each: &mut dyn FnMut(RequestItemView) -> Result<()>,
) -> Result<()> {
    let mut after = Ino(0);
    loop {
        let page: Vec<RequestItemView> = node.ask(&Call::RequestItems { id, after, limit: 1000 })?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.ino;
        let wanted = |item: &RequestItemView| !failed || matches!(item.state, ItemState::Failed(_));
        page.into_iter().filter(wanted).try_for_each(&mut *each)?;
    }
}
