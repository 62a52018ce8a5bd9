//! `thermo completions`.

use crate::cli::Cli;
use crate::context::Context;
use crate::exit::Exit;
use anyhow::{Context as _, Result};
use clap::CommandFactory;
use std::io::Write;

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  thermo completions bash > /etc/bash_completion.d/thermo")]
pub struct Args {
    /// Shell
    shell: clap_complete::Shell,
}

/// Runs `thermo completions`.
pub fn run(_context: &mut Context, args: Args) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "thermo", &mut script);
    std::io::stdout().write_all(&script).context("printing")?;
    Ok(Exit::OK)
}
