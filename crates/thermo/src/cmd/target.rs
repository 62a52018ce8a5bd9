//! `thermo target`.

use crate::context::{Context, absolute_text};
use crate::exit::Exit;
use crate::out::{Table, Tint};
use crate::progress::begun;
use crate::render::time;
use crate::units::size;
use anyhow::Result;
use types::{RequestView, TargetAct, TargetId, TargetView};
use wire::Call;

/// Disk targets of the cluster
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the targets, who serves them, and how full they are
    #[command(
        after_help = "A node serves the targets that its configuration names, as soon as it belongs to the cluster. One whose node has \
                            not been heard of for 20 seconds is down.\n\nExample:\n  thermo target ls"
    )]
    Ls,
    /// Have this host serve one more target, from now on and after each start
    #[command(
        after_help = "It is written into the configuration of the node of this host ([[targets]]), which has to have cluster.data_listen. Its directory \
                            should be where a file system of its own is mounted.\n\nExample:\n  thermo target add /mnt/disk7 --domain shelf2"
    )]
    Add {
        /// Directory on this host
        #[arg(value_name = "DIR")]
        dir: std::path::PathBuf,
        /// What fails together with it (host, shelf, room); all targets of this host without it
        #[arg(long, default_value = "", hide_default_value = true)]
        domain: String,
    },
    /// Move what lies on a target to others; it gets no new files from now on
    #[command(after_help = "Example:\n  thermo target drain 3 --wait")]
    Drain(Which),
    /// Have what a lost target had rebuilt on others, or come from tape; it is waited for no more
    #[command(
        after_help = "Files whose bytes lay there only come from tape. One that is not on tape stays as it is, and is named.\n\n\
                            Example:\n  thermo target replace 3 --wait"
    )]
    Replace(Which),
    /// Compare what lies on a target with its sums, and repair what is not what was written
    #[command(
        after_help = "The mover reads and compares; blocks that rot are made from other copies or parity, else the file comes from tape. \
                            What nothing can repair is named in the log and by a check.\n\nExample:\n  thermo target scrub 3 --wait"
    )]
    Scrub(Which),
    /// Let a target that was drained, or was lost and is back, get new files again
    #[command(after_help = "Example:\n  thermo target return 3")]
    Return {
        /// Number of the target
        #[arg(value_name = "TARGET")]
        target: u32,
    },
    /// Take a target that was drained, or is lost, out of the list
    #[command(
        after_help = "Nothing may lie there: `thermo target drain` moves what does, `thermo target replace` has what a lost one had made anew. Its number \
                            is given to no other target, and nothing on its disk is touched. Take its [[targets]] lines out of the configuration of its \
                            node, too: otherwise that node is told, again and again, that it was removed.\n\nExample:\n  thermo target rm 3"
    )]
    Rm {
        /// Number of the target
        #[arg(value_name = "TARGET")]
        target: u32,
    },
    /// Move what lies on the fuller targets to the emptier ones until they are about equally full
    #[command(after_help = "Example:\n  thermo target balance --wait")]
    Balance {
        /// Wait until it is done
        #[arg(short, long)]
        wait: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Number of the target
    #[arg(value_name = "TARGET")]
    target: u32,
    /// Wait until it is done
    #[arg(short, long)]
    wait: bool,
}

/// Runs `thermo target`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Ls => {
            let mut node = context.connect()?;
            let targets: Vec<TargetView> = node.ask(&Call::Targets)?;
            let done = show(context, &targets)?;
            if !context.global.json {
                for told in node.ask::<Vec<String>>(&Call::RefusedTargets)? {
                    let line = context.out.tint(Tint::Yellow, told);
                    context.out.line(line)?;
                }
            }
            Ok(done)
        }
        Command::Add { dir, domain } => {
            let path = absolute_text(&dir)?;
            let done: wire::Reloaded =
                context.connect()?.ask(&Call::AddTarget { path: path.clone(), domain })?;
            if context.global.json {
                context.out.json(&done)?;
            } else {
                context.out.line(format!("{path} is served in some seconds: see `thermo target ls`"))?;
            }
            Ok(Exit::OK)
        }
        Command::Drain(Which { target, wait }) => act(context, TargetAct::Drain(TargetId(target)), wait),
        Command::Replace(Which { target, wait }) => act(context, TargetAct::Replace(TargetId(target)), wait),
        Command::Scrub(Which { target, wait }) => act(context, TargetAct::Scrub(TargetId(target)), wait),
        Command::Balance { wait } => act(context, TargetAct::Balance, wait),
        Command::Rm { target } => {
            context.connect()?.ask::<()>(&Call::MoveTargets(TargetAct::Remove(TargetId(target))))?;
            context.out.line(format!(
                "target {target} is out of the list; take it out of the configuration of its node, too"
            ))?;
            Ok(Exit::OK)
        }
        Command::Return { target } => {
            context.connect()?.ask::<()>(&Call::MoveTargets(TargetAct::Return(TargetId(target))))?;
            context.out.line(format!("target {target} gets new files again"))?;
            Ok(Exit::OK)
        }
    }
}

fn act(context: &mut Context, act: TargetAct, wait: bool) -> Result<Exit> {
    let mut node = context.connect()?;
    let view: RequestView = node.ask(&Call::MoveTargets(act))?;
    begun(context, &mut node, view, wait)
}

/// Shows targets, and what is the matter with those that are down.
pub fn show(context: &mut Context, targets: &Vec<TargetView>) -> Result<Exit> {
    let utc = context.global.utc;
    let done = context.print(targets, |targets| table(targets, utc))?;
    for view in targets.iter().filter(|_| !context.global.json) {
        if let Some((why, remedy)) = view.trouble(targets) {
            let line = context.out.tint(Tint::Yellow, format!("target {} {why}: {remedy}", view.target.id));
            context.out.line(line)?;
        }
    }
    Ok(done)
}

fn table(targets: &[TargetView], utc: bool) -> Table {
    let mut table =
        Table::new(&["TARGET>", "STATE", "NODE>", "DATA", "DOMAIN", "USED>", "FREE>", "SIZE>", "LAST SEEN"]);
    for TargetView { target, state } in targets {
        table.row(vec![
            target.id.to_string(),
            state.to_string(),
            target.node.to_string(),
            target.data.join(" "),
            target.domain.clone(),
            size(target.capacity.saturating_sub(target.free)),
            size(target.free),
            size(target.capacity),
            time(target.seen, utc),
        ]);
    }
    table
}
