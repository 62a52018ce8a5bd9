//! Checks of the repository itself, `cargo xtask layers`, `licences` and `tidy`, all tests, `test`, and the guided fuzzer, `fuzz`.
#![forbid(unsafe_code)]

mod functions;
mod fuzz;
mod layers;
mod licences;
mod links;
mod modules;
mod proofs;
mod room;
mod suite;
mod tidy;

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::process::{Command, Stdio};

const HELP: &str = "usage: cargo xtask <layers | licences | tidy | test [--features FEATURES] | fuzz [TARGET] [--seconds N] [--seed N] [--merge]>
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

/// Cargo in the root of the workspace, without what the cargo that runs this program says of it: build scripts that look at that
/// would run again, and what depends on them be compiled again.
fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_this = |name: &OsString| {
        name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_"))
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_this(name)) {
        cargo.env_remove(name);
    }
    cargo.current_dir(root).stdin(Stdio::null());
    cargo
}

/// Where cargo builds.
fn target_directory(root: &Path) -> Result<PathBuf> {
    let root = root.canonicalize().with_context(|| root.display().to_string())?;
    Ok(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from))
}

/// What cargo knows of the workspace.
fn metadata(root: &Path, options: &[&str]) -> Result<serde_json::Value> {
    let output = cargo(root)
        .args(["metadata", "--format-version", "1"])
        .args(options)
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
        ["test", features @ ..] if matches!(features, [] | ["--features", _]) => suite::run(&root, features),
        ["fuzz", words @ ..] => fuzz::run(&root, words),
        _ => bail!(HELP),
    }
}
