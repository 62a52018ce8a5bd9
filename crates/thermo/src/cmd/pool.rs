//! `thermo pool`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::percent;
use crate::units::size;
use anyhow::Result;
use types::PoolView;
use wire::Call;

/// Pools of volumes
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List pools with their fill and backlog
    #[command(after_help = "Example:\n  thermo pool ls")]
    Ls,
}

/// Runs `thermo pool`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let Command::Ls = args.command;
    let pools: Vec<PoolView> = context.connect()?.ask(&Call::Pools)?;
    context.print(&pools, |pools| table(pools))
}

/// Pools as a table.
pub fn table(pools: &[PoolView]) -> Table {
    let heading = [
        "POOL",
        "VOLUMES>",
        "FILLING>",
        "CAPACITY>",
        "WRITTEN>",
        "FULL>",
        "LIVE>",
        "WAITING FILES>",
        "WAITING>",
    ];
    let mut table = Table::new(&heading);
    for pool in pools {
        table.row(vec![
            pool.name.to_string(),
            pool.volumes.to_string(),
            pool.filling.to_string(),
            size(pool.capacity),
            size(pool.written),
            percent(pool.written, pool.capacity),
            size(pool.live),
            pool.backlog_files.to_string(),
            size(pool.backlog_bytes),
        ]);
    }
    table
}
