//! Checks of the repository itself: `cargo xtask layers` and `cargo xtask tidy`.
#![forbid(unsafe_code)]

mod functions;
mod layers;
mod links;
mod tidy;

use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "usage: cargo xtask <layers | tidy>
  layers  dependencies between the crates of the workspace go from higher floors to lower ones
  tidy    lengths of files and functions, leftovers, links in the documentation
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

fn run(words: &[&str]) -> Result<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match words {
        ["layers"] => layers::check(&root),
        ["tidy"] => tidy::check(&root),
        _ => bail!(HELP),
    }
}
