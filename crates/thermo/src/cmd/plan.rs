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
                        thermo plan docs/plan/archive.toml --trace arrivals.jsonl --days 30\n  \
                        thermo plan arrivals.jsonl --vary libraries=1,2\n\n\
                        Nothing is asked of a node, and nothing is changed. FILE and the trace are described in docs/PLANNING.md. The \
                        same FILE and seed give the same answer.")]
pub struct Args {
    /// The system and its users (TOML); or a trace alone, which is then done by a system of default size
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Data sets that are written, read and deleted, a JSON object a line; besides what the users of FILE do
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// Compare variants: one key with its values; docs/PLANNING.md and the refusal of an unknown key list them
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
    let (mut spec, trace) = system(&args)?;
    spec.days = args.days.unwrap_or(spec.days);
    spec.seed = args.seed.unwrap_or(spec.seed);
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

/// What is simulated: a system, with a trace or without; or a trace, done by a system of default size.
fn system(args: &Args) -> Result<(Spec, Vec<Line>)> {
    let parse = |path: &Path, text: &str| {
        plan::parse_trace(text).map_err(|e| usage(format!("{}: {e}", path.display())))
    };
    let text = read(&args.file)?;
    match &args.trace {
        None if plan::is_trace(&text) => {
            let trace = parse(&args.file, &text)?;
            let title = args.file.display().to_string();
            Ok((Spec { title, days: plan::length_days(&trace), ..Spec::default() }, trace))
        }
        Some(_) if plan::is_trace(&text) => Err(usage(format!(
            "{}: this is a trace already: give one, or a system (TOML) and --trace",
            args.file.display()
        ))),
        other => {
            let spec = Spec::parse(&text).map_err(|e| usage(format!("{}: {e}", args.file.display())))?;
            let trace = other.as_ref().map(|path| parse(path, &read(path)?)).transpose()?;
            Ok((spec, trace.unwrap_or_default()))
        }
    }
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
