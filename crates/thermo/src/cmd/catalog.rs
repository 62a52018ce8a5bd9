//! `thermo catalog`.

use crate::context::Context;
use crate::exit::Exit;
use crate::progress::follow;
use crate::render::request_line;
use anyhow::Result;
use types::RequestView;
use wire::Call;

/// The catalogue itself
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Enter what is on tape: for when the catalogue was lost
    #[command(after_help = "Example:\n  thermo catalog rebuild --wait\n\n\
                      Every cartridge in the library is mounted and its newest index read. Files, owners, times, digests, \
                      versions, classes and pools come back; volumes that the catalogue knows are left as they are. What was \
                      never on tape (files not yet migrated, symlinks, empty directories) cannot come back this way. The \
                      request names the report that says what is missing. To be run again after more cartridges were put in.")]
    Rebuild {
        /// Wait until it is done
        #[arg(short, long)]
        wait: bool,
    },
}

/// Runs `thermo catalog`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut node = context.connect_patiently()?;
    let Command::Rebuild { wait } = args.command;
    let view: RequestView = node.ask(&Call::Rebuild)?;
    if wait {
        return follow(context, &mut node, vec![view]);
    }
    if context.global.json {
        context.out.json(&view)?;
    } else {
        context.out.line(request_line(&view))?;
    }
    Ok(Exit::OK)
}
