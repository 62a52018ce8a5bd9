//! `thermo target`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::time;
use crate::units::size;
use anyhow::Result;
use types::TargetView;
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
}

/// Runs `thermo target`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Ls => {
            let targets: Vec<TargetView> = context.connect()?.ask(&Call::Targets)?;
            let utc = context.global.utc;
            context.print(&targets, |targets| table(targets, utc))
        }
    }
}

/// Targets as a table.
pub fn table(targets: &[TargetView], utc: bool) -> Table {
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
