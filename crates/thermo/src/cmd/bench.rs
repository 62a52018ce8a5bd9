//! `thermo bench`.

use crate::context::Context;
use crate::exit::Exit;
use anyhow::Result;
use bench::{Group, Mounted, Plan};
use fuse::MountOptions;
use node::Node;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Measure this build on this machine, with a private node in a new directory
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  thermo bench --quick\n  thermo bench --only catalogue --files 5000000\n\n\
                        Looks at free space first and removes everything in the end. The mount group needs root, and drops the \
                        kernel's caches of names and inodes, which slows others down for a moment."
)]
pub struct Args {
    /// Smaller amounts: seconds instead of minutes, values scatter more
    #[arg(long)]
    quick: bool,
    /// Only this group (may be given again)
    #[arg(long, value_enum, value_name = "GROUP")]
    only: Vec<Group>,
    /// Measure in a new directory in this one; it decides which disk is measured
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Values per figure
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Files in the catalogue when its memory is looked at [default: 1000000, with --quick 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=5_000_000))]
    files: Option<u64>,
}

/// Runs `thermo bench`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let all = vec![Group::Mount, Group::Catalogue, Group::Memory, Group::Tape];
    let plan = Plan {
        groups: if args.only.is_empty() { all } else { args.only },
        dir: std::path::absolute(args.dir)?,
        rounds: args.rounds.into(),
        quick: args.quick,
        files: args.files.unwrap_or(if args.quick { 100_000 } else { 1_000_000 }),
    };
    let figures = bench::run(&plan, &mount, &|text| eprintln!("{text}"))?;
    if context.global.json {
        context.out.json(&figures)?;
    } else {
        context.out.line(bench::table(&figures).trim_end())?;
    }
    Ok(Exit::OK)
}

fn mount(node: Arc<Node>, path: &Path) -> Result<Mounted> {
    Ok(Box::new(fuse::mount(node, path, MountOptions::default())?))
}
