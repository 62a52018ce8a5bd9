//! `thermo bench`.

use crate::context::Context;
use crate::exit::Exit;
use anyhow::{Context as _, Result};
use bench::{Group, Mounted, Plan, Results};
use fuse::MountOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::api::FileApi;

/// Measure this build on this machine, with private nodes in a new directory
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example:\n  thermo bench --quick\n  thermo bench --only mount --rounds 5 --save mount.json\n  \
                        thermo bench --only catalogue --files 5000000\n  thermo bench --only catalogue --database postgres://thermo@db.example/bench\n  thermo bench report mount.json --pictures .\n\n\
                        Looks at free space first and removes everything in the end. What goes through a mount needs root, \
                        syncs all disks and drops the kernel's caches, which slows others down for a moment."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Smaller amounts: seconds instead of minutes, values scatter more
    #[arg(long)]
    quick: bool,
    /// Only these figures (may be given again)
    #[arg(long, value_enum, value_name = "GROUP")]
    only: Vec<Only>,
    /// Measure in a new directory in this one; it decides which disk is measured
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Values per figure
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Files in the catalogue when memory is looked at [default: 1000000, with --quick 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=5_000_000))]
    files: Option<u64>,
    /// Measure the catalogue in this database too (may be given again); it must be empty, and what is made stays there [with catalogue or metadata]
    #[arg(long, value_name = "ADDRESS")]
    database: Vec<String>,
    /// Keep all values of all rounds in this file (JSON)
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Kept with the results, for instance which revision was built
    #[arg(long, value_name = "TEXT", default_value = "")]
    remark: String,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show saved results as Markdown tables; several files are put together
    #[command(after_help = "Example:\n  thermo bench report run.json\n  \
                            thermo bench report docs/performance/*.json --into docs/PERFORMANCE.md --pictures docs/pictures")]
    Report(Report),
}

#[derive(Debug, clap::Args)]
struct Report {
    /// What `--save` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Replace the tables between the marks of this document instead of printing them
    #[arg(long, value_name = "DOCUMENT")]
    into: Option<PathBuf>,
    /// Draw SVG pictures in this directory
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
}

/// What can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// data, create and list
    Mount,
    /// Reading and writing one large file through the mount
    Data,
    /// Making small files through the mount
    Create,
    /// Listing a large directory through the mount, and stat of its files
    List,
    /// The catalogue in process
    Catalogue,
    /// The whole node with a large catalogue
    Memory,
    /// Migration and recall with virtual drives
    Tape,
    /// The scheduler in simulated time, and what it costs
    Schedule,
    /// A half-dead cartridge is emptied
    Repack,
    /// Both copies of files go to tape with 1, 2, 4 and 8 drives
    Migrate,
    /// The catalogue is rebuilt from a full LTO-9 cartridge, in simulated time
    Rebuild,
    /// Bytes of objects between a client and a mover, over the loopback interface
    Movers,
    /// Files over 1, 2, 4 and 8 targets of limited rate
    Stripes,
    /// The same calls through GlusterFS and through a mount over as many targets
    Peer,
    /// The native library and the preload library
    Library,
    /// Durable creates of 32 clients over the network, and how long clients wait for a node that died
    Metadata,
}

impl Only {
    fn groups(self) -> &'static [Group] {
        match self {
            Self::Mount => &[Group::Data, Group::Create, Group::List],
            Self::Data => &[Group::Data],
            Self::Create => &[Group::Create],
            Self::List => &[Group::List],
            Self::Catalogue => &[Group::Catalogue],
            Self::Memory => &[Group::Memory],
            Self::Tape => &[Group::Tape],
            Self::Schedule => &[Group::Schedule],
            Self::Repack => &[Group::Repack],
            Self::Migrate => &[Group::Migrate],
            Self::Rebuild => &[Group::Rebuild],
            Self::Movers => &[Group::Movers],
            Self::Stripes => &[Group::Stripes],
            Self::Peer => &[Group::Peer],
            Self::Library => &[Group::Library],
            Self::Metadata => &[Group::Metadata],
        }
    }
}

/// Runs `thermo bench`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    if let Some(Command::Report(report)) = args.command {
        return show(context, &report);
    }
    let mut groups: Vec<Group> = args.only.iter().flat_map(|only| only.groups()).copied().collect();
    if groups.is_empty() {
        groups = Group::ALL.to_vec();
    }
    groups.sort_unstable();
    groups.dedup();
    let plan = Plan {
        groups,
        dir: std::path::absolute(args.dir)?,
        rounds: args.rounds.into(),
        quick: args.quick,
        files: args.files.unwrap_or(if args.quick { 10_000 } else { 1_000_000 }),
        databases: args.database,
        remark: args.remark,
    };
    let results = bench::run(&plan, &mount, &|text| eprintln!("{text}"))?;
    if let Some(path) = &args.save {
        results.save(path)?;
    }
    if context.global.json {
        context.out.json(&results)?;
    } else {
        context.out.line(bench::markdown(&[results]).trim_end())?;
    }
    Ok(Exit::OK)
}

fn show(context: &mut Context, report: &Report) -> Result<Exit> {
    let runs = report.files.iter().map(|file| Results::load(file)).collect::<Result<Vec<_>>>()?;
    if let Some(path) = &report.into {
        let document = read(path)?;
        write(path, &bench::rewrite(&document, &runs)?)?;
    } else {
        context.out.line(bench::markdown(&runs).trim_end())?;
    }
    if let Some(dir) = &report.pictures {
        bench::pictures(&runs).iter().try_for_each(|(name, drawn)| write(&dir.join(name), drawn))?;
    }
    Ok(Exit::OK)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// A mount that has let go of everything when it is dropped, so that what is below it can be unmounted too.
struct Whole(fuse::Mount);

impl Drop for Whole {
    fn drop(&mut self) {
        if let Err(error) = self.0.unmount() {
            eprintln!("{error}");
        }
    }
}

fn mount(api: Arc<dyn FileApi>, path: &Path, passthrough: bool) -> Result<Mounted> {
    let options = MountOptions { passthrough, ..MountOptions::default() };
    Ok(Box::new(Whole(fuse::mount(api, path, options)?)))
}
