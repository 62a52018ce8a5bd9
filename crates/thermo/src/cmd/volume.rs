//! `thermo volume`.

use crate::context::Context;
use crate::exit::{Exit, not_found, usage};
use crate::out::Table;
use crate::progress::begun;
use crate::render::{or_dash, percent, time, time_or_dash, word};
use crate::units::size;
use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use client::{Connection, VolumeFilesPage};
use types::{
    Barcode, Class, ClassName, HoldingView, PoolName, PoolView, RequestView, Volume, VolumeFileView,
    VolumeFormat, VolumeState, VolumeView, plural,
};
use wire::{Call, FilesOrder};

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
    #[command(
        after_help = "Example:\n  thermo volume ls --pool primary\n  thermo volume ls --state suspect --long\n  thermo volume ls --state full --short\n  thermo volume ls --owner 1000"
    )]
    Ls(LsArgs),
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
    State(StateArgs),
    Export(super::exchange::ExportArgs),
    Import(super::exchange::ImportArgs),
    Verify(super::keep::VerifyArgs),
    Repack(super::keep::RepackArgs),
}

#[derive(Debug, clap::Args)]
struct LsArgs {
    /// Only volumes of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only volumes in this state
    #[arg(long, value_parser = parser_of(&STATES))]
    state: Option<VolumeState>,
    /// Barcodes only, one per line
    #[arg(long, conflicts_with = "long")]
    short: bool,
    /// Also dead bytes, dates, and who set the state and why
    #[arg(short, long)]
    long: bool,
    /// Only volumes that hold files of this owner, and how much of them
    #[arg(long, value_name = "UID")]
    owner: Option<u32>,
    /// Only volumes that hold files of this class, and how much of them
    #[arg(long)]
    class: Option<String>,
}

/// Set the state of volumes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "States:\n  filling    takes data (again)\n  full       takes no more data\n  read-only  read, not written\n  \
                  suspect    read if no other copy is to be had, not written\n  broken     neither read nor written\n  \
                  exported   out of the library: neither read nor written\n  retired    out of use for good; refused while a \
                  file needs it\n\nThe states of all volumes named are set, or of none.\n\nExample:\n  thermo volume state \
                  TC0001L9 TC0002L9 exported --reason vault-12\n  thermo volume state TC0001L9 filling"
)]
struct StateArgs {
    /// Barcodes
    #[arg(required = true)]
    volumes: Vec<String>,
    /// State from now on
    #[arg(value_parser = parser_of(&SET))]
    state: VolumeState,
    /// Why, for the volume's record
    #[arg(long, default_value = "")]
    reason: String,
}

/// States that an operator can set; the others the node finds out, or a command of its own makes them.
const SET: [(&str, VolumeState); 7] = [
    ("filling", VolumeState::Filling),
    ("full", VolumeState::Full),
    ("read-only", VolumeState::ReadOnly),
    ("suspect", VolumeState::Suspect),
    ("broken", VolumeState::Broken),
    ("exported", VolumeState::Exported),
    ("retired", VolumeState::Retired),
];

/// All states.
const STATES: [(&str, VolumeState); 13] = [
    ("unknown", VolumeState::Unknown),
    ("blank", VolumeState::Blank),
    ("scratch", VolumeState::Scratch),
    ("filling", VolumeState::Filling),
    ("full", VolumeState::Full),
    ("read-only", VolumeState::ReadOnly),
    ("suspect", VolumeState::Suspect),
    ("foreign", VolumeState::Foreign),
    ("broken", VolumeState::Broken),
    ("unverified", VolumeState::Unverified),
    ("exported", VolumeState::Exported),
    ("retired", VolumeState::Retired),
    ("repacking", VolumeState::Repacking),
];

fn parser_of(states: &'static [(&str, VolumeState)]) -> impl TypedValueParser<Value = VolumeState> {
    PossibleValuesParser::new(states.iter().map(|(name, _)| *name)).try_map(|name| {
        let found = states.iter().copied().find(|(known, _)| *known == name);
        found.map(|(_, state)| state).ok_or("no such state")
    })
}

/// Write labels and give volumes to a pool
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo volume label TC0005L9 TC0006L9 --pool second --wait\n  thermo volume label --all-blank\n  \
                        thermo volume label TC0007L9 --pool second --key k2026\n\n\
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
    /// Encrypt with the key of this name [default: as the pool has it]
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Wait until it is done
    #[arg(short, long)]
    wait: bool,
}

/// Runs `thermo volume`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut node = context.connect_patiently()?;
    match args.command {
        Command::Ls(args) => list(context, &mut node, &args),
        Command::Show { volume } => show(context, &mut node, Barcode::from(volume)),
        Command::Files { volume, dead } => files(context, &mut node, Barcode::from(volume), dead),
        Command::Label(args) => label(context, &mut node, args),
        Command::State(args) => set_state(context, &mut node, args),
        Command::Export(args) => super::exchange::export(context, &mut node, args),
        Command::Import(args) => super::exchange::import(context, &mut node, args),
        Command::Verify(args) => super::keep::verify(context, &mut node, args),
        Command::Repack(args) => super::keep::repack(context, &mut node, args),
    }
}

fn list(context: &mut Context, node: &mut Connection, args: &LsArgs) -> Result<Exit> {
    exists(node, args)?;
    let mut views: Vec<VolumeView> = node.ask(&Call::Volumes)?;
    let mut holdings: Option<Vec<HoldingView>> = None;
    if args.owner.is_some() || args.class.is_some() {
        let class = args.class.clone().map(ClassName);
        let held: Vec<HoldingView> = node.ask(&Call::Holdings { owner: args.owner, class })?;
        views.retain(|v| held.iter().any(|h| h.volume == v.volume.barcode));
        holdings = Some(held);
    }
    if let Some(pool) = &args.pool {
        views.retain(|v| v.volume.pool.as_ref().is_some_and(|p| p.as_str() == pool));
    }
    if let Some(state) = args.state {
        views.retain(|v| v.volume.state == state);
    }
    if args.short && !context.global.json {
        views.iter().try_for_each(|v| context.out.line(&v.volume.barcode))?;
        return Ok(Exit::OK);
    }
    if let (Some(mut held), false) = (holdings, args.long) {
        held.retain(|h| views.iter().any(|v| v.volume.barcode == h.volume));
        return context.print(&held, |held| holdings_table(held));
    }
    let utc = context.global.utc;
    context.print(&views, |views| table(views, args.long, utc))
}

/// Fails unless there is a pool of this name.
pub fn known_pool(node: &mut Connection, pool: &str) -> Result<()> {
    let pools: Vec<PoolView> = node.ask(&Call::Pools)?;
    if pools.iter().any(|p| p.name.as_str() == pool) {
        return Ok(());
    }
    Err(not_found(format!("there is no pool `{pool}`; see `thermo pool ls`")))
}

/// An empty list would be taken for an answer where a name is mistyped.
fn exists(node: &mut Connection, args: &LsArgs) -> Result<()> {
    if let Some(pool) = &args.pool {
        known_pool(node, pool)?;
    }
    if let Some(class) = &args.class {
        let classes: Vec<Class> = node.ask(&Call::Classes)?;
        if !classes.iter().any(|c| c.name.as_str() == class) {
            return Err(not_found(format!("there is no class `{class}`; see `thermo class ls`")));
        }
    }
    Ok(())
}

fn holdings_table(held: &[HoldingView]) -> Table {
    let mut table = Table::new(&["VOLUME", "POOL", "WHERE", "FILES>", "BYTES>"]);
    for h in held {
        table.row(vec![
            h.volume.to_string(),
            or_dash(h.pool.as_ref()),
            h.location.clone(),
            h.files.to_string(),
            size(h.bytes),
        ]);
    }
    table
}

/// Heading of a column, and what it says of a volume; times are shown in UTC if asked for.
type Column = (&'static str, fn(&VolumeView, bool) -> String);

/// Columns of both lists.
const IDENTITY: [Column; 7] = [
    ("VOLUME", |v, _| v.volume.barcode.to_string()),
    ("POOL", |v, _| or_dash(v.volume.pool.as_ref())),
    ("STATE", |v, _| word(&v.volume.state)),
    ("WHERE", |v, _| v.location.clone()),
    ("CAPACITY>", |v, _| size(v.volume.capacity)),
    ("WRITTEN>", |v, _| size(v.volume.written)),
    ("FULL>", |v, _| percent(v.volume.written, v.volume.capacity)),
];
const LIVE: Column = ("LIVE>", |v, _| size(v.volume.live));
const DEAD: Column =
    ("DEAD>", |v, _| percent(v.volume.written.saturating_sub(v.volume.live), v.volume.written));
const COUNTS: [Column; 3] = [
    ("FILES>", |v, _| v.volume.live_files.to_string()),
    ("MOUNTS>", |v, _| v.volume.mounts.to_string()),
    ("ERRORS>", |v, _| v.volume.errors.to_string()),
];
/// Columns of the long list only.
const HISTORY: [Column; 8] = [
    ("LABELLED", |v, utc| time_or_dash(v.volume.labelled, utc)),
    ("LAST WRITTEN", |v, utc| time_or_dash(v.volume.last_written, utc)),
    ("LAST READ", |v, utc| time_or_dash(v.volume.last_read, utc)),
    ("VERIFIED", |v, utc| time_or_dash(v.volume.last_verified, utc)),
    ("FAMILY", |v, _| or_dash(v.volume.family.as_ref())),
    ("SINCE", |v, utc| time(v.volume.since, utc)),
    ("BY", |v, _| v.volume.by.map_or_else(|| "node".into(), |uid| format!("uid {uid}"))),
    ("REASON", |v, _| if v.volume.reason.is_empty() { "-".into() } else { v.volume.reason.clone() }),
];

fn table(views: &[VolumeView], long: bool, utc: bool) -> Table {
    let history: &[Column] = if long { &HISTORY } else { &[] };
    let columns = [&IDENTITY[..], &[if long { DEAD } else { LIVE }], &COUNTS, history].concat();
    let mut table = Table::new(&columns.iter().map(|column| column.0).collect::<Vec<_>>());
    for view in views {
        table.row(columns.iter().map(|column| (column.1)(view, utc)).collect());
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
    let by = v.by.map_or(String::new(), |uid| format!(", set by uid {uid}"));
    let dead = v.written.saturating_sub(v.live);
    let lines = [
        ("pool", or_dash(v.pool.as_ref())),
        ("together", v.family.clone().unwrap_or_else(|| "not kept for any".into())),
        ("state", format!("{}{reason} since {}{by}", word(&v.state), time(v.since, utc))),
        ("where", view.location.clone()),
        ("uuid", if v.uuid.is_empty() { "-".into() } else { v.uuid.clone() }),
        ("labelled", time_or_dash(v.labelled, utc)),
        ("imported", if v.imported { "yes: only read".into() } else { "no".into() }),
        ("holds more", holds_more(v).into()),
        ("format", format_of(v.format).into()),
        ("medium", if v.worm { "WORM: written once".into() } else { "can be rewritten".into() }),
        ("key", if v.key.is_empty() { "not encrypted".into() } else { v.key.clone() }),
        ("capacity", format!("{}, records of {}", size(v.capacity), size(v.block_size.into()))),
        (
            "written",
            format!(
                "{} in {} ({})",
                size(v.written),
                plural(v.files, "file"),
                percent(v.written, v.capacity)
            ),
        ),
        ("live", format!("{} in {}", size(v.live), plural(v.live_files, "file"))),
        ("dead", format!("{} ({})", size(dead), percent(dead, v.written))),
        ("append at", format!("block {}, indexed up to block {}", v.append_block, v.indexed_to)),
        ("index", format!("generation {} at block {}", v.generation, v.index_block)),
        ("change ref", v.vcr.to_string()),
        ("last written", time_or_dash(v.last_written, utc)),
        ("last read", time_or_dash(v.last_read, utc)),
        ("verified", time_or_dash(v.last_verified, utc)),
        ("mounts", format!("{}, {}", v.mounts, plural(v.errors, "error"))),
    ];
    context.out.line(&v.barcode)?;
    lines.iter().try_for_each(|(name, value)| context.out.line(format!("  {name:<12} {value}")))?;
    Ok(Exit::OK)
}

/// Than the catalogue lists.
fn holds_more(v: &Volume) -> &'static str {
    if v.may_hold_more() { "yes, or it may: nothing is written to it" } else { "no" }
}

fn format_of(format: VolumeFormat) -> &'static str {
    match format {
        VolumeFormat::Ltfs => "LTFS",
        VolumeFormat::AnsiTar => "ANSI labels and tar",
        VolumeFormat::Tar => "tar of another program",
    }
}

fn files(context: &mut Context, node: &mut Connection, volume: Barcode, dead: bool) -> Result<Exit> {
    let mut next = Some(Vec::new());
    while let Some(from) = next {
        let call = Call::VolumeFilesFrom(FilesOrder { volume: volume.clone(), from, limit: PAGE });
        let (page, further): VolumeFilesPage = node.ask(&call)?;
        next = further;
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
                shown(view),
                if f.live { "" } else { " (dead)" }
            ))?;
        }
    }
    Ok(Exit::OK)
}

/// Where a file lies on the volume; of what has no data, which lies in the index or in a header, what it is.
fn shown(view: &VolumeFileView) -> String {
    let f = &view.file;
    match f.kind() {
        _ if f.has_data() => client::escape(view.tape_path.as_bytes()),
        Some(kind) if !f.node.gone => format!("{} ({})", client::escape(&f.path), word(&kind)),
        _ => format!("{} (removed)", client::escape(&f.path)),
    }
}

fn label(context: &mut Context, node: &mut Connection, args: LabelArgs) -> Result<Exit> {
    if args.force && args.all_blank {
        return Err(usage("--force needs the barcodes of the volumes to be overwritten"));
    }
    let call = Call::Label {
        volumes: args.volumes.into_iter().map(Barcode::from).collect(),
        pool: args.pool.map(PoolName),
        force: args.force,
        key: args.key,
    };
    let view: RequestView = node.ask(&call)?;
    begun(context, node, view, args.wait)
}

fn set_state(context: &mut Context, node: &mut Connection, args: StateArgs) -> Result<Exit> {
    let volumes: Vec<Barcode> = args.volumes.into_iter().map(Barcode::from).collect();
    let call = Call::SetVolume { volumes: volumes.clone(), state: args.state, reason: args.reason };
    node.ask::<()>(&call)?;
    volumes.iter().try_for_each(|v| context.out.line(format!("volume {v} is {}", word(&args.state))))?;
    Ok(Exit::OK)
}
