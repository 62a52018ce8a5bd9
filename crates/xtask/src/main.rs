//! Checks of the repository itself, `cargo xtask layers`, `licences` and `tidy`, all tests, `test`, and the guided fuzzer, `fuzz`.
#![forbid(unsafe_code)]

mod functions;
mod fuzz;
mod layers;
mod licences;
mod links;
mod modules;
mod proofs;
mod suite;
mod tidy;

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "usage: cargo xtask <layers | licences | tidy | test | fuzz [TARGET] [--seconds N] [--seed N] [--merge]>
  layers  dependencies between the crates of the workspace go from higher floors to lower ones
  licences  every dependency may be used under a licence that deny.toml allows, and comes from the registry
  tidy    lengths of files and functions, leftovers, files that are not compiled, links in the documentation, tests that it names as proof
  test    every test, its programs beside each other; what fails is repeated alone
  fuzz    searches for inputs that break a decoder (60 seconds for all targets, or N); --merge keeps what was found
Prints one line per problem; exit code 1 if there is any, 2 if the check itself could not run.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            problems.iter().for_each(|problem| println!("{problem}"));
            eprintln!("{} problems", problems.len());
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

/// What cargo knows of the workspace.
fn metadata(root: &Path, options: &[&str]) -> Result<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = std::process::Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .args(options)
        .current_dir(root)
        .output()
        .context("cargo metadata could not be started")?;
    anyhow::ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("output of cargo metadata")
}

fn run(words: &[&str]) -> Result<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match words {
        ["layers"] => layers::check(&root),
        ["licences"] => licences::check(&root),
        ["tidy"] => tidy::check(&root),
        ["test"] => suite::run(&root),
        ["fuzz", words @ ..] => fuzz::run(&root, words),
        _ => bail!(HELP),
    }
}
