//! `thermo quota`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::out::Table;
use crate::render::percent;
use crate::units::{parse_size, size};
use anyhow::Result;
use types::QuotaView;
use wire::{Call, QuotaChange};

/// How much owners may hold
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List limits, and what is used of them
    #[command(after_help = "Example:\n  thermo quota ls")]
    Ls,
    /// Set limits of an owner, or of everybody who has none of his own
    #[command(
        after_help = "Whoever holds as much as he may makes no files (EDQUOT) and writes to none that he does not have open \
                      already. Reading, removing and making files shorter always work. The administrator is not limited.\n\n\
                      What lies on disk (--disk) is what `thermo du` shows there: on the node's own disk, and on disk targets without \
                      what copies and parity take. It becomes less when files that are on tape leave the disk (`thermo purge`).\n\n\
                      A limit of volumes refuses nothing: in pools that keep owners apart (collocate owner), copies of who has as \
                      many volumes of his own go to volumes that such owners share.\n\n\
                      Example:\n  thermo quota set --owner 1000 --bytes 20TiB --tape 40TiB\n  thermo quota set --default --files 1000000\n  \
                      thermo quota set --owner 1000 --volumes 4\n  thermo quota set --owner 1000 --disk 2TiB"
    )]
    Set {
        #[command(flatten)]
        whose: Whose,
        /// Most files, directories and other nodes, 0 for no limit
        #[arg(long)]
        files: Option<u64>,
        /// Most bytes of files, 0 for no limit
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        bytes: Option<u64>,
        /// Most bytes on disk, the node's own and targets together, 0 for no limit
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        disk: Option<u64>,
        /// Most bytes on tape, every copy counted, 0 for no limit
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        tape: Option<u64>,
        /// Most volumes of his own in each pool that keeps owners apart, 0 for no limit
        #[arg(long, value_name = "N")]
        volumes: Option<u32>,
    },
    /// Take limits away
    #[command(after_help = "Example:\n  thermo quota clear --owner 1000")]
    Clear {
        #[command(flatten)]
        whose: Whose,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Whose {
    /// Owner (uid)
    #[arg(long, value_name = "UID")]
    owner: Option<u32>,
    /// Everybody who has no limits of his own
    #[arg(long)]
    default: bool,
}

/// Runs `thermo quota`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Ls => {
            let quotas: Vec<QuotaView> = context.connect()?.ask(&Call::Quotas)?;
            context.print(&quotas, |quotas| table(quotas))
        }
        Command::Set { whose, files, bytes, disk, tape, volumes } => {
            let change = QuotaChange { files, bytes, tape_bytes: tape, volumes, disk_bytes: disk };
            if change == QuotaChange::default() {
                return Err(usage(
                    "say which limit: --files, --bytes, --disk, --tape or --volumes; nothing was changed",
                ));
            }
            set(context, &whose, Some(change), "set")
        }
        Command::Clear { whose } => set(context, &whose, None, "cleared"),
    }
}

fn set(context: &mut Context, whose: &Whose, change: Option<QuotaChange>, done: &str) -> Result<Exit> {
    context.connect()?.ask::<()>(&Call::SetQuota { uid: whose.owner, change })?;
    let name = whose.owner.map_or("everybody else".to_owned(), |uid| format!("uid {uid}"));
    context.out.line(format!("quota of {name} is {done}"))?;
    Ok(Exit::OK)
}

fn table(quotas: &[QuotaView]) -> Table {
    let heading = [
        "OWNER>", "FILES>", "OF>", "LENGTH>", "OF>", "FULL>", "ON DISK>", "OF>", "FULL>", "ON TAPE>", "OF>",
        "FULL>", "VOLUMES>", "OF>",
    ];
    let mut table = Table::new(&heading);
    for QuotaView { quota, usage, volumes } in quotas {
        let held = |f: fn(&types::UsageView) -> u64| usage.as_ref().map_or(0, f);
        let (files, bytes) = (held(|u| u.files), held(|u| u.bytes));
        let (disk, tape) = (held(|u| u.disk_bytes), held(|u| u.tape_bytes));
        let limit = |n: u64, shown: String| if n == 0 { "-".into() } else { shown };
        table.row(vec![
            quota.uid.map_or("others".into(), |uid| uid.to_string()),
            if usage.is_some() { files.to_string() } else { "-".into() },
            limit(quota.files, quota.files.to_string()),
            if usage.is_some() { size(bytes) } else { "-".into() },
            limit(quota.bytes, size(quota.bytes)),
            limit(quota.bytes, percent(bytes, quota.bytes)),
            if usage.is_some() { size(disk) } else { "-".into() },
            limit(quota.disk_bytes, size(quota.disk_bytes)),
            limit(quota.disk_bytes, percent(disk, quota.disk_bytes)),
            if usage.is_some() { size(tape) } else { "-".into() },
            limit(quota.tape_bytes, size(quota.tape_bytes)),
            limit(quota.tape_bytes, percent(tape, quota.tape_bytes)),
            if usage.is_some() { volumes.to_string() } else { "-".into() },
            limit(u64::from(quota.volumes), quota.volumes.to_string()),
        ]);
    }
    table
}
