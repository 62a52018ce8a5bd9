//! `thermo pool`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::out::Table;
use crate::render::{or_dash, percent};
use crate::units::size;
use anyhow::Result;
use types::{Collocate, FormatRule, PoolName, PoolView};
use wire::{Call, PoolChange};

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
    /// Make a pool, or change how much it may hold and which format its volumes get
    #[command(
        after_help = "A lower limit takes no volume out of the pool, but none joins it; and nothing is written to it while it holds \
                      more than its limit of bytes. Volumes that are labelled keep their format. What is kept together is read \
                      with few mounts; when no volume is left for a family, it shares those of others.\n\nExample:\n  thermo \
                      pool set primary --max-volumes 40 --max-bytes 500TiB\n  thermo pool set primary --collocate \
                      directory:2\n  thermo pool set offsite --create\n  thermo pool set old --format ansi-tar\n  thermo pool set records --create --worm true\n  thermo pool set secret --create --key k2026\n  thermo pool set second --library hall-b"
    )]
    Set {
        /// Name
        pool: String,
        /// Make it
        #[arg(long)]
        create: bool,
        /// Most volumes that it may hold, 0 for no limit
        #[arg(long)]
        max_volumes: Option<u32>,
        /// Most bytes that files may need of its volumes, 0 for no limit
        #[arg(long, value_name = "SIZE", value_parser = crate::units::parse_size)]
        max_bytes: Option<u64>,
        /// Format of its new volumes: auto, ltfs or ansi-tar (for media that cannot be partitioned)
        #[arg(long, value_parser = format_rule)]
        format: Option<FormatRule>,
        /// Keep files of one owner, group, class or project (directory at this depth) on volumes of their own: off, owner, group,
        /// class, directory:DEPTH
        #[arg(long, value_name = "BY", value_parser = parse_collocate)]
        collocate: Option<Collocate>,
        /// Take WORM media (written once) and no others: for a pool that has no volumes yet
        #[arg(long, value_name = "BOOL")]
        worm: Option<bool>,
        /// Encrypt its new volumes with the key of this name; an empty name: as the configuration says
        #[arg(long, value_name = "NAME")]
        key: Option<String>,
        /// Write only volumes in this library, so that pools of two libraries keep copies apart; `any` lifts that
        #[arg(long, value_name = "NAME")]
        library: Option<String>,
    },
}

fn parse_collocate(text: &str) -> Result<Collocate, String> {
    let depth = |depth: &str| depth.parse().ok().filter(|depth| *depth > 0).map(Collocate::Directory);
    let found = match text {
        "off" => Some(Collocate::Off),
        "owner" => Some(Collocate::Owner),
        "group" => Some(Collocate::Group),
        "class" => Some(Collocate::Class),
        other => other.strip_prefix("directory:").and_then(depth),
    };
    found.ok_or_else(|| "give off, owner, group, class, or directory:DEPTH with a depth of 1 to 255".into())
}

fn collocate(by: Collocate) -> String {
    match by {
        Collocate::Off => "-".into(),
        Collocate::Owner => "owner".into(),
        Collocate::Group => "group".into(),
        Collocate::Class => "class".into(),
        Collocate::Directory(depth) => format!("directory:{depth}"),
    }
}

/// Runs `thermo pool`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Ls => {
            let pools: Vec<PoolView> = context.connect()?.ask(&Call::Pools)?;
            context.print(&pools, |pools| table(pools))
        }
        Command::Set { pool, create, max_volumes, max_bytes, format, collocate, worm, key, library } => {
            let library = library.map(|name| if name == "any" { String::new() } else { name });
            let name = PoolName(pool);
            let change = PoolChange { max_volumes, max_bytes, format, collocate, worm, key, library };
            if !create && change == PoolChange::default() {
                return Err(usage(format!("nothing to change in pool {name}; see `thermo pool set --help`")));
            }
            let call = Call::SetPool { name: name.clone(), create, change };
            context.connect()?.ask::<()>(&call)?;
            context.out.line(format!("pool {name} is {}", if create { "made" } else { "changed" }))?;
            Ok(Exit::OK)
        }
    }
}

fn format_rule(text: &str) -> Result<FormatRule, String> {
    match text {
        "auto" => Ok(FormatRule::Auto),
        "ltfs" => Ok(FormatRule::Ltfs),
        "ansi-tar" => Ok(FormatRule::AnsiTar),
        _ => Err("auto, ltfs or ansi-tar".into()),
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
        "MOST>",
        "WAITING FILES>",
        "WAITING>",
        "TOGETHER",
        "MEDIA",
        "KEY",
        "LIBRARY",
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
            if pool.max_bytes == 0 { "-".into() } else { size(pool.max_bytes) },
            pool.backlog_files.to_string(),
            size(pool.backlog_bytes),
            collocate(pool.collocate),
            if pool.worm { "worm".into() } else { "-".into() },
            if pool.key.is_empty() { "-".into() } else { pool.key.clone() },
            or_dash(pool.library.as_deref()),
        ]);
    }
    table
}
