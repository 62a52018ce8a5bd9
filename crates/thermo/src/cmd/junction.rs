//! `thermo junction`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::time;
use anyhow::Result;
use std::ffi::OsString;
use types::{JunctionState, JunctionView, escape};
use wire::Call;

/// Directories that lead to subsystems: namespaces of the cluster that other nodes hold
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Have an empty directory lead to a subsystem
    #[command(
        after_help = "Hosts that mount the namespace mount that of the subsystem there. Nothing is made in the directory itself, and \
                      it is neither removed nor renamed, as long as it leads there; directories above it may be renamed.\n\n\
                      Example:\n  thermo junction make tc:/scratch scratch --at mds2.example:7430\n  \
                      thermo junction make /mnt/tc/projects projects --at mds3:7430,mds4:7430"
    )]
    Make {
        /// The directory
        path: OsString,
        /// Name of the subsystem, as `[cluster] subsystem` of its node has it
        subsystem: String,
        /// Where the subsystem is asked, the likeliest first
        #[arg(long, value_name = "HOST:PORT", required = true, value_delimiter = ',')]
        at: Vec<String>,
    },
    /// Have a directory lead nowhere any more: it is an empty one then
    #[command(
        after_help = "What is in the subsystem stays as it is.\n\nExample:\n  thermo junction rm tc:/scratch"
    )]
    Rm {
        /// The directory
        path: OsString,
    },
    /// List the directories that lead to subsystems
    #[command(after_help = "Example:\n  thermo junction ls")]
    Ls,
}

/// Runs `thermo junction`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let mut node = context.connect()?;
    match args.command {
        Command::Make { path, subsystem, at } => {
            let path = context.path(&mut node, &path)?;
            let shown = escape(&path);
            let done = format!("{shown} leads to subsystem {subsystem}");
            node.ask::<()>(&Call::JunctionMake { path, subsystem, addresses: at })?;
            context.out.line(done)?;
        }
        Command::Rm { path } => {
            let path = context.path(&mut node, &path)?;
            let done = format!("{} is an empty directory", escape(&path));
            node.ask::<()>(&Call::JunctionRemove { path })?;
            context.out.line(done)?;
        }
        Command::Ls => {
            let utc = context.global.utc;
            let junctions: Vec<JunctionView> = node.ask(&Call::Junctions)?;
            return context.print(&junctions, |junctions| table(junctions, utc));
        }
    }
    Ok(Exit::OK)
}

fn table(junctions: &[JunctionView], utc: bool) -> Table {
    let mut table = Table::new(&["DIRECTORY", "SUBSYSTEM", "AT", "MADE", "STATE"]);
    for JunctionView { path, junction, state, .. } in junctions {
        let state = match state {
            JunctionState::Unasked => "-".into(),
            JunctionState::Answers => "answers".into(),
            JunctionState::Silent(why) => format!("does not answer: {why}"),
        };
        table.row(vec![
            path.to_string(),
            junction.subsystem.clone(),
            junction.addresses.join(" "),
            time(junction.made, utc),
            state,
        ]);
    }
    table
}
