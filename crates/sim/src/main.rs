//! Runs worlds: `cargo run --release -p sim -- --minutes 10 --seed 1`.

use clap::Parser;
use sim::many::{self, Many};
use sim::world::Outcome;
use std::process::ExitCode;
use std::time::Duration;

/// Simulated worlds, as many at once as there are processors, until one fails or the time is over.
#[derive(Parser)]
struct Options {
    /// First seed; the next world has the next one. Default: from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Real time to go on for.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Worlds at most.
    #[arg(long, default_value_t = u64::MAX)]
    worlds: u64,
    /// Worlds that run at once. Default: one for each processor, with --trace one.
    #[arg(long)]
    side_by_side: Option<usize>,
    /// Fails if fewer faults a minute happen.
    #[arg(long, value_name = "FAULTS", default_value_t = 0.0)]
    at_least: f64,
    /// Prints everything that happens.
    #[arg(long)]
    trace: bool,
    /// Prints the log of the node, as far as RUST_LOG says (default: warnings).
    #[arg(long)]
    log: bool,
    /// Goes on after a failure.
    #[arg(long)]
    keep_going: bool,
}

fn ended(outcome: &Outcome, trace: bool) {
    let seed = outcome.seed;
    if trace {
        outcome.lines.iter().for_each(|line| println!("{line}"));
        println!("seed {seed}: trace of {} lines, sum {:016x}", outcome.trace.0, outcome.trace.1);
    }
    if let Some(why) = &outcome.failed {
        println!("seed {seed} FAILED after {:?}: {why}", outcome.time);
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if options.log {
        let filter = tracing_subscriber::EnvFilter::try_from_default_env();
        let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_ansi(false).init();
    }
    let clock =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_secs());
    let one_for_each = if options.trace { 1 } else { many::processors() };
    let many = Many {
        first: options.seed.unwrap_or_else(clock),
        worlds: options.worlds,
        time: Duration::from_secs_f64(options.minutes * 60.0),
        side_by_side: options.side_by_side.unwrap_or(one_for_each),
        keep_going: options.keep_going,
        whole_trace: options.trace,
    };
    let done = many::run(&many, &|outcome| ended(outcome, options.trace))?;
    println!(
        "{} worlds from seed {}, {} at once: {} faults, {} kills, {} jobs, {:.1} simulated days in {:.1} s: {:.0} faults a minute; {} \
         failed",
        done.worlds,
        many.first,
        many.side_by_side,
        done.faults,
        done.kills,
        done.jobs,
        done.time.as_secs_f64() / 86_400.0,
        done.took.as_secs_f64(),
        done.faults_a_minute(),
        done.failed.len()
    );
    let fast = done.faults_a_minute() >= options.at_least;
    if !fast {
        println!("FAILED: fewer than {:.0} faults a minute", options.at_least);
    }
    Ok(if done.failed.is_empty() && fast { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
