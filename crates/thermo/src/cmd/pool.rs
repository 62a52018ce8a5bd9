//! `thermo pool`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::percent;
use crate::units::size;
use anyhow::Result;
use types::{PoolName, PoolView};
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
    /// Make a pool, or change how many volumes it may hold
    #[command(
        after_help = "A lower limit takes no volume out of the pool, but none joins it.\n\nExample:\n  thermo pool set primary \
                      --max-volumes 40\n  thermo pool set offsite --create"
    )]
    Set {
        /// Name
        pool: String,
        /// Make it
        #[arg(long)]
        create: bool,
        /// Most volumes that it may hold, 0 for no limit
        #[arg(long, required_unless_present = "create")]
        max_volumes: Option<u32>,
    },
}

/// Runs `thermo pool`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Ls => {
            let pools: Vec<PoolView> = context.connect()?.ask(&Call::Pools)?;
            context.print(&pools, |pools| table(pools))
        }
        Command::Set { pool, create, max_volumes } => {
            let name = PoolName(pool);
            let call = Call::SetPool { name: name.clone(), create, max_volumes };
            context.connect()?.ask::<()>(&call)?;
            context.out.line(format!("pool {name} is {}", if create { "made" } else { "changed" }))?;
            Ok(Exit::OK)
        }
    }
}

/// Pools as a table.
pub fn table(pools: &[PoolView]) -> Table {
    let heading = [
        "POOL",
        "VOLUMES>",
        "LIMIT>",
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
            if pool.max_volumes == 0 { "-".into() } else { pool.max_volumes.to_string() },
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
