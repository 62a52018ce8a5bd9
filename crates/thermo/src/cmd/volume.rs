//! `thermo volume`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::out::Table;
use crate::progress::follow;
use crate::render::{or_dash, percent, request_line, time, time_or_dash, word};
use crate::units::size;
use anyhow::Result;
use client::Connection;
use types::{Barcode, PoolName, RequestView, VolumeFileView, VolumeView};
use wire::Call;

/// Files asked for at a time.
const PAGE: u32 = 500;

/// Tape volumes
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List volumes
    #[command(after_help = "Example:\n  thermo volume ls\n  thermo volume ls --pool primary")]
    Ls {
        /// Only volumes of this pool
        #[arg(long)]
        pool: Option<String>,
    },
    /// Show one volume
    #[command(after_help = "Example:\n  thermo volume show TC0001L9")]
    Show {
        /// Barcode
        volume: String,
    },
    /// List the files on a volume
    #[command(after_help = "Example:\n  thermo volume files TC0001L9")]
    Files {
        /// Barcode
        volume: String,
        /// Also files that no current version needs
        #[arg(long)]
        dead: bool,
    },
    Label(LabelArgs),
}

/// Write labels and give volumes to a pool
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo volume label TC0005L9 TC0006L9 --pool second --wait\n  thermo volume label --all-blank\n\n\
                        A volume with live files is never labelled. One with a foreign label needs --force, and all that is on \
                        it is lost."
)]
struct LabelArgs {
    /// Barcodes
    #[arg(required_unless_present = "all_blank", conflicts_with = "all_blank")]
    volumes: Vec<String>,
    /// All blank volumes in the library
    #[arg(long)]
    all_blank: bool,
    /// Pool that gets them [default: scratch, for any pool]
    #[arg(long)]
    pool: Option<String>,
    /// Overwrite foreign or damaged labels
    #[arg(long)]
    force: bool,
    /// Wait until it is done
    #[arg(short, long)]
    wait: bool,
}

/// Runs `thermo volume`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut node = context.connect_patiently()?;
    match args.command {
        Command::Ls { pool } => list(context, &mut node, pool),
        Command::Show { volume } => show(context, &mut node, Barcode(volume)),
        Command::Files { volume, dead } => files(context, &mut node, Barcode(volume), dead),
        Command::Label(args) => label(context, &mut node, args),
    }
}

fn list(context: &mut Context, node: &mut Connection, pool: Option<String>) -> Result<Exit> {
    let mut views: Vec<VolumeView> = node.ask(&Call::Volumes)?;
    if let Some(pool) = pool {
        views.retain(|v| v.volume.pool.as_ref().is_some_and(|p| p.as_str() == pool));
    }
    context.print(&views, |views| table(views))
}

fn table(views: &[VolumeView]) -> Table {
    let heading = [
        "VOLUME",
        "POOL",
        "STATE",
        "WHERE",
        "CAPACITY>",
        "WRITTEN>",
        "FULL>",
        "LIVE>",
        "FILES>",
        "MOUNTS>",
        "ERRORS>",
    ];
    let mut table = Table::new(&heading);
    for view in views {
        let v = &view.volume;
        table.row(vec![
            v.barcode.to_string(),
            or_dash(v.pool.as_ref()),
            word(&v.state),
            view.location.clone(),
            size(v.capacity),
            size(v.written),
            percent(v.written, v.capacity),
            size(v.live),
            v.live_files.to_string(),
            v.mounts.to_string(),
            v.errors.to_string(),
        ]);
    }
    table
}

fn show(context: &mut Context, node: &mut Connection, barcode: Barcode) -> Result<Exit> {
    let view: VolumeView = node.ask(&Call::Volume(barcode))?;
    if context.global.json {
        context.out.json(&view)?;
        return Ok(Exit::OK);
    }
    let (v, utc) = (&view.volume, context.global.utc);
    let reason = if v.reason.is_empty() { String::new() } else { format!(" ({})", v.reason) };
    let lines = [
        ("pool", or_dash(v.pool.as_ref())),
        ("state", format!("{}{reason} since {}", word(&v.state), time(v.since, utc))),
        ("where", view.location.clone()),
        ("uuid", if v.uuid.is_empty() { "-".into() } else { v.uuid.clone() }),
        ("labelled", time_or_dash(v.labelled, utc)),
        ("capacity", format!("{}, records of {}", size(v.capacity), size(v.block_size.into()))),
        ("written", format!("{} in {} files ({})", size(v.written), v.files, percent(v.written, v.capacity))),
        ("live", format!("{} in {} files", size(v.live), v.live_files)),
        ("append at", format!("block {}, indexed up to block {}", v.append_block, v.indexed_to)),
        ("index", format!("generation {} at block {}", v.generation, v.index_block)),
        ("change ref", v.vcr.to_string()),
        ("last written", time_or_dash(v.last_written, utc)),
        ("last read", time_or_dash(v.last_read, utc)),
        ("mounts", format!("{}, {} errors", v.mounts, v.errors)),
    ];
    context.out.line(&v.barcode)?;
    lines.iter().try_for_each(|(name, value)| context.out.line(format!("  {name:<12} {value}")))?;
    Ok(Exit::OK)
}

fn files(context: &mut Context, node: &mut Connection, volume: Barcode, dead: bool) -> Result<Exit> {
    let mut skip = 0;
    loop {
        let call = Call::VolumeFiles { volume: volume.clone(), skip, limit: PAGE };
        let page: Vec<VolumeFileView> = node.ask(&call)?;
        if page.is_empty() {
            return Ok(Exit::OK);
        }
        skip += page.len() as u64;
        let wanted: Vec<_> = page.into_iter().filter(|f| dead || f.file.live).collect();
        if context.global.json {
            // One document per line of files would not be one document: each file is a document of its own.
            wanted.iter().try_for_each(|file| context.out.json(file))?;
            continue;
        }
        for view in &wanted {
            let f = &view.file;
            context.out.line(format!(
                "{:>10} block {:<8} {} copy {} v{} {}{}",
                size(f.segment_length),
                f.extents.first().map_or(0, |e| e.start_block),
                time(f.written, context.global.utc),
                f.copy,
                f.version,
                client::escape(view.tape_path.as_bytes()),
                if f.live { "" } else { " (dead)" }
            ))?;
        }
    }
}

fn label(context: &mut Context, node: &mut Connection, args: LabelArgs) -> Result<Exit> {
    if args.force && args.all_blank {
        return Err(usage("--force needs the barcodes of the volumes to be overwritten"));
    }
    let call = Call::Label {
        volumes: args.volumes.into_iter().map(Barcode).collect(),
        pool: args.pool.map(PoolName),
        force: args.force,
    };
    let view: RequestView = node.ask(&call)?;
    if args.wait {
        return follow(context, node, vec![view]);
    }
    if context.global.json {
        context.out.json(&view)?;
    } else {
        context.out.line(request_line(&view))?;
    }
    Ok(Exit::OK)
}
