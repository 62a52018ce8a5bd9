//! Crash trials: `cargo run --release -p e2e --bin torture -- --trials 200 --seed 1`, with `--power` for power failures
//! (`--xfs`: on XFS instead of ext4). The first problem ends the run; its directory is left for a look.

use e2e::torture::disk::FileSystem;
use e2e::torture::{kill, power};
use std::process::ExitCode;

const HELP: &str = "torture [--trials N] [--seed N] [--load-ms N] [--fresh N] [--power [--xfs]]";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(passed) => {
            println!("passed: {passed}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("FAILED: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<String, String> {
    let known = ["--trials", "--seed", "--load-ms", "--fresh", "--power", "--xfs"];
    if let Some(unknown) = arguments.iter().find(|a| a.starts_with('-') && !known.contains(&a.as_str())) {
        return Err(format!("{unknown}? {HELP}"));
    }
    let has = |name: &str| arguments.iter().any(|a| a == name);
    let number = |name: &str, default: u64| match arguments.iter().position(|a| a == name) {
        None => Ok(default),
        Some(at) => {
            arguments.get(at + 1).and_then(|v| v.parse().ok()).ok_or(format!("{name} wants a number. {HELP}"))
        }
    };
    let (trials, seed) = (number("--trials", 20)?, number("--seed", 1)?);
    let dir = std::env::temp_dir().join(format!("torture-{seed}-{}", std::process::id()));
    let told = |line: &str| println!("{line}");
    let passed = if has("--power") {
        let file_system = if has("--xfs") { FileSystem::Xfs } else { FileSystem::Ext4 };
        let plan = power::Plan {
            images: trials,
            seed,
            load_ms: number("--load-ms", 8000)?,
            file_system,
            lies: false,
        };
        format!("{:?}", power::run(&dir, plan, told)?)
    } else {
        let plan = kill::Plan {
            trials,
            seed,
            fresh: number("--fresh", 20)?.max(1),
            load_ms: number("--load-ms", 1500)?,
        };
        format!("{:?}", kill::run(&dir, plan, told)?)
    };
    let _ = std::fs::remove_dir_all(&dir);
    Ok(passed)
}
