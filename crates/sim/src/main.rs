//! Runs worlds: `cargo run --release -p sim -- --minutes 10 --seed 1`.

use clap::Parser;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Simulated worlds, one after the other, until one fails or the time is over.
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

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if options.log {
        let filter = tracing_subscriber::EnvFilter::try_from_default_env();
        let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_ansi(false).init();
    }
    let clock =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_secs());
    let first = options.seed.unwrap_or_else(clock);
    let (begun, end) = (Instant::now(), Duration::from_secs_f64(options.minutes * 60.0));
    let (mut faults, mut kills, mut jobs, mut worlds, mut failed) = (0, 0, 0, 0, 0);
    let mut time = Duration::ZERO;
    for seed in (first..).take_while(|_| begun.elapsed() < end).take(options.worlds as usize) {
        let outcome = sim::world::run(seed, options.trace)?;
        worlds += 1;
        (faults, kills, jobs) = (faults + outcome.faults, kills + outcome.kills, jobs + outcome.jobs);
        time += outcome.time;
        if options.trace {
            outcome.lines.iter().for_each(|line| println!("{line}"));
            println!("seed {seed}: trace of {} lines, sum {:016x}", outcome.trace.0, outcome.trace.1);
        }
        if let Some(why) = outcome.failed {
            failed += 1;
            println!("seed {seed} FAILED after {:?}: {why}", outcome.time);
            if !options.keep_going {
                break;
            }
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{worlds} worlds from seed {first}: {faults} faults, {kills} kills, {jobs} jobs, {:.1} simulated days in {took:.1} s: \
         {:.0} faults a minute; {failed} failed",
        time.as_secs_f64() / 86_400.0,
        faults as f64 * 60.0 / took
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
