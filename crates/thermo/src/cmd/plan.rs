//! `thermo plan`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use anyhow::{Context as _, Result};
use sim::plan::{self, Line, Planned, Spec};
use std::path::{Path, PathBuf};

/// What if: simulate a system of any size under a workload for weeks to years, with the node's own scheduler and policy
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo plan docs/plan/archive.toml\n  \
                        thermo plan docs/plan/archive.toml --vary drives=2,4,8 --html plan.html\n  \
                        thermo plan docs/plan/archive.toml --trace arrivals.jsonl --days 30\n\n\
                        Nothing is asked of a node, and nothing is changed. FILE and the trace are described in docs/PLANNING.md. The \
                        same FILE and seed give the same answer.")]
pub struct Args {
    /// The system and its users (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Data sets that are written, read and deleted, a JSON object a line; besides what the users of FILE do
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// Compare variants: drives, generation, disk, days, seed, idle, recall, growth or load, with its values
    #[arg(long, value_name = "KEY=VALUE,...")]
    vary: Option<String>,
    /// Simulated time, instead of what FILE says
    #[arg(long, value_name = "DAYS")]
    days: Option<f64>,
    /// Seed of all chance, instead of what FILE says
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write a page with table and pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write one picture with waits, backlog and disk tier
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Runs `thermo plan`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let in_file = |e: String| usage(format!("{}: {e}", args.file.display()));
    let mut spec = Spec::parse(&read(&args.file)?).map_err(in_file)?;
    spec.days = args.days.unwrap_or(spec.days);
    spec.seed = args.seed.unwrap_or(spec.seed);
    let trace: Vec<Line> = match &args.trace {
        Some(path) => {
            plan::parse_trace(&read(path)?).map_err(|e| usage(format!("{}: {e}", path.display())))?
        }
        None => Vec::new(),
    };
    if spec.users.is_empty() && trace.is_empty() {
        return Err(usage(format!(
            "{}: nobody writes or reads: add [[users]], or --trace",
            args.file.display()
        )));
    }
    let planned: Vec<Planned> = variants(&spec, args.vary.as_deref())?
        .iter()
        .map(|(name, spec)| plan::run(name, spec, &trace).map_err(usage))
        .collect::<Result<_>>()?;
    if let Some(path) = &args.html {
        write(path, &plan::html(&spec.title, &planned))?;
    }
    if let Some(path) = &args.svg {
        write(path, &plan::picture(&planned))?;
    }
    if context.global.json {
        let all: Vec<_> = planned.iter().map(plan::summary).collect();
        context.out.json(&all)?;
    } else {
        context.out.line(format!("{}: {} days, seed {}", spec.title, spec.days, spec.seed))?;
        context.out.line(plan::table(&planned).trim_end())?;
    }
    Ok(Exit::OK)
}

/// The systems to compare, each with its name.
fn variants(spec: &Spec, vary: Option<&str>) -> Result<Vec<(String, Spec)>> {
    let Some(vary) = vary else {
        spec.check().map_err(usage)?;
        return Ok(vec![(String::new(), spec.clone())]);
    };
    let (key, values) = vary
        .split_once('=')
        .ok_or_else(|| usage(format!("--vary {vary}: write a key and its values, such as drives=2,4,8")))?;
    let one = |value: &str| Ok((format!("{key}={value}"), spec.vary(key, value).map_err(usage)?));
    values.split(',').map(one).collect()
}
