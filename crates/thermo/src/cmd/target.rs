//! `thermo target`.

use crate::context::{Context, absolute_text};
use crate::exit::Exit;
use crate::out::{Table, Tint};
use crate::progress::begun;
use crate::render::time;
use crate::units::size;
use anyhow::Result;
use types::{RequestView, TargetAct, TargetId, TargetView};
use wire::{Call, TargetPoolOrder};

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
    Pool(PoolArgs),
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

/// Say which targets belong to a pool that layouts may name; what lies on them stays where it is
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Files of a layout with `--pool NAME` lie on targets of that pool only, whatever moves later: a drain, a rebuild, a full target. The first \
                        target makes the pool. One that is taken out of it keeps what it has: drain it to have that moved. Files of layouts that name no pool \
                        may lie on any target.\n\nExample:\n  thermo target pool fast --add 3 4\n  thermo target pool fast --remove 4\n  \
                        thermo layout set /mnt/tc/scratch --stripes 2 --pool fast"
)]
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true).args(["add", "remove", "delete"])))]
struct PoolArgs {
    /// Name of the pool
    #[arg(value_name = "NAME")]
    name: String,
    /// Targets that belong to it from now on
    #[arg(long, value_name = "TARGET", num_args = 1..)]
    add: Vec<u32>,
    /// Targets that do not belong to it any more
    #[arg(long, value_name = "TARGET", num_args = 1..)]
    remove: Vec<u32>,
    /// Take the pool away, which has no targets any more
    #[arg(long, conflicts_with_all = ["add", "remove"])]
    delete: bool,
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
            show(context, &mut node, &targets)
        }
        Command::Pool(args) => pool(context, args),
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

fn pool(context: &mut Context, args: PoolArgs) -> Result<Exit> {
    let ids = |all: Vec<u32>| all.into_iter().map(TargetId).collect();
    let PoolArgs { name, add, remove, delete } = args;
    let line = match delete {
        true => format!("there is no target pool {name} any more"),
        false => format!("target pool {name} is changed: see `thermo target ls`"),
    };
    let order = TargetPoolOrder { name, add: ids(add), remove: ids(remove), delete };
    context.connect()?.ask::<()>(&Call::TargetPool(order))?;
    context.out.line(line)?;
    Ok(Exit::OK)
}

/// Shows targets, and what is the matter with those that are down, refused or nearly full, and with their pools.
pub fn show(context: &mut Context, node: &mut client::Connection, targets: &Vec<TargetView>) -> Result<Exit> {
    let utc = context.global.utc;
    let done = context.print(targets, |targets| table(targets, utc))?;
    for view in targets.iter().filter(|_| !context.global.json) {
        if let Some((why, remedy)) = view.trouble(targets) {
            let line = context.out.tint(Tint::Yellow, format!("target {} {why}: {remedy}", view.target.id));
            context.out.line(line)?;
        }
    }
    if !context.global.json {
        for told in node.ask::<Vec<String>>(&Call::RefusedTargets)? {
            let line = context.out.tint(Tint::Yellow, told);
            context.out.line(line)?;
        }
    }
    Ok(done)
}

fn table(targets: &[TargetView], utc: bool) -> Table {
    let head =
        ["TARGET>", "STATE", "NODE>", "DATA", "DOMAIN", "POOLS", "USED>", "FREE>", "SIZE>", "LAST SEEN"];
    let mut table = Table::new(&head);
    for TargetView { target, state, pools } in targets {
        table.row(vec![
            target.id.to_string(),
            state.to_string(),
            target.node.to_string(),
            target.data.join(" "),
            target.domain.clone(),
            if pools.is_empty() { "-".to_owned() } else { pools.join(" ") },
            size(target.capacity.saturating_sub(target.free)),
            size(target.free),
            size(target.capacity),
            time(target.seen, utc),
        ]);
    }
    table
}
