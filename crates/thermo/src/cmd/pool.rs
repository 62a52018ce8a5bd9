//! `thermo pool`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::out::Table;
use crate::render::{or_dash, percent};
use crate::units::size;
use anyhow::Result;
use serde_json::Value;
use types::{Collocate, FormatRule, PoolKeyView, PoolName, PoolView};
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
    #[command(
        after_help = "FILLING: volumes that take data now; AWAY: volumes that are in no library. KEY: what new volumes are encrypted \
                      with, by command or as `[encryption] pools` says (configured).\n\nExample:\n  thermo pool ls"
    )]
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
            let mut node = context.connect()?;
            let pools: Vec<PoolView> = node.ask(&Call::Pools)?;
            let keys: Vec<PoolKeyView> = node.ask(&Call::PoolKeys)?;
            list(context, &pools, &keys)
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

/// What is known of the key of a pool.
fn key_of<'k>(keys: &'k [PoolKeyView], pool: &PoolView) -> Option<&'k PoolKeyView> {
    keys.iter().find(|key| key.name == pool.name)
}

fn list(context: &mut Context, pools: &[PoolView], keys: &[PoolKeyView]) -> Result<Exit> {
    if context.global.json {
        context.out.json(&json(pools, keys)?)?;
        return Ok(Exit::OK);
    }
    context.out.table(&table(pools, keys))?;
    for key in keys {
        if let Some(why) = &key.problem {
            context.out.line(format!(
                "pool {}: its volumes are to be encrypted, and there is no key: {why}",
                key.name
            ))?;
        }
    }
    Ok(Exit::OK)
}

/// Pools, each with what is known of its key.
fn json(pools: &[PoolView], keys: &[PoolKeyView]) -> Result<Value> {
    let mut all = serde_json::to_value(pools)?;
    for (shown, pool) in all.as_array_mut().into_iter().flatten().zip(pools) {
        let Some(key) = key_of(keys, pool) else { continue };
        shown["writes_with_key"] = serde_json::to_value(&key.key)?;
        shown["key_by_configuration"] = key.by_configuration.into();
        shown["key_problem"] = serde_json::to_value(&key.problem)?;
        shown["absent"] = key.absent.into();
    }
    Ok(all)
}

/// The key that a pool writes with; one that cannot be had is marked.
fn key_shown(pool: &PoolView, key: Option<&PoolKeyView>) -> String {
    match key {
        None => or_dash(Some(&pool.key).filter(|key| !key.is_empty())),
        Some(PoolKeyView { problem: Some(_), key, .. }) => format!("{} (missing)", or_dash(key.as_ref())),
        Some(PoolKeyView { key: Some(name), by_configuration: true, .. }) => format!("{name} (configured)"),
        Some(PoolKeyView { key: Some(name), .. }) => name.clone(),
        Some(PoolKeyView { key: None, .. }) => "-".into(),
    }
}

/// Pools as a table, with what is known of their keys.
pub fn table(pools: &[PoolView], keys: &[PoolKeyView]) -> Table {
    let heading = [
        "POOL",
        "VOLUMES>",
        "LIMIT>",
        "FILLING>",
        "AWAY>",
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
            key_of(keys, pool).map_or_else(|| "-".into(), |key| key.absent.to_string()),
            size(pool.capacity),
            size(pool.written),
            percent(pool.written, pool.capacity),
            size(pool.live),
            if pool.max_bytes == 0 { "-".into() } else { size(pool.max_bytes) },
            pool.backlog_files.to_string(),
            size(pool.backlog_bytes),
            collocate(pool.collocate),
            if pool.worm { "worm".into() } else { "-".into() },
            key_shown(pool, key_of(keys, pool)),
            or_dash(pool.library.as_deref()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str) -> PoolView {
        PoolView {
            name: name.into(),
            volumes: 3,
            filling: 1,
            capacity: 0,
            written: 0,
            live: 0,
            backlog_files: 0,
            backlog_bytes: 0,
            max_volumes: 0,
            max_bytes: 0,
            format: FormatRule::Auto,
            collocate: Collocate::Off,
            worm: false,
            key: String::new(),
            library: None,
        }
    }

    #[test]
    fn the_key_is_shown_whoever_named_it_and_absent_volumes_are_counted() {
        let pools = ["a", "b", "c", "d"].map(pool);
        let key = |name: &str, key: Option<&str>, by_configuration, problem: Option<&str>| PoolKeyView {
            name: name.into(),
            key: key.map(Into::into),
            by_configuration,
            problem: problem.map(Into::into),
            absent: 2,
        };
        let keys = [
            key("a", Some("k1"), true, None),
            key("b", Some("k2"), false, None),
            key("c", None, true, Some("keys: No such file")),
            key("d", None, false, None),
        ];
        let lines = table(&pools, &keys).lines();
        let words = |n: usize| lines[n].split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(0)[3..5], ["FILLING", "AWAY"]);
        assert_eq!(words(1)[3..5], ["1", "2"]);
        assert!(
            lines[1].contains("k1 (configured)")
                && lines[2].contains(" k2 ")
                && lines[3].contains("- (missing)"),
            "{lines:?}"
        );
        let json = json(&pools, &keys).unwrap();
        assert_eq!((&json[0]["writes_with_key"], &json[0]["absent"]), (&"k1".into(), &2.into()));
        assert_eq!(json[2]["key_problem"], "keys: No such file");
    }
}
