//! `thermo engine`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::progress::begun;
use crate::units::size;
use anyhow::Result;
use client::ClientError;
use node::{MoveStep, Moved};
use std::path::{Path, PathBuf};
use types::RequestView;
use wire::Call;

/// What `--to` says for the engine in the state directory.
const EMBEDDED: &str = "embedded";

/// The engine that holds the catalogue
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Move the catalogue to another engine, while the node runs or not
    #[command(
        after_help = "Example:\n  thermo engine move --to postgres://thermo@db.example/thermo?sslmode=require\n  \
                      thermo engine move --to tikv://pd1.example:2379,pd2.example:2379/NAME\n  \
                      thermo engine move --to embedded\n\n\
                      Everything is copied, read again at the other end and compared; then `catalog.engine` in the configuration is \
                      changed. Whenever this is interrupted, the engine that the configuration names is whole and the only one that \
                      opens; run the command again. The old one is kept, and refused, until you remove it. A password belongs into a \
                      file (setting passwordfile of the address), not on the command line.\n\n\
                      If the node runs, it goes on meanwhile, and makes this a request: changes are held back for a moment at its end \
                      only, and until then it can be withdrawn."
    )]
    Move {
        /// Address of an empty database, of an engine that a TiKV cluster does not have yet, or `embedded`: the state directory
        #[arg(long, value_name = "ADDRESS")]
        to: String,
        /// Configuration file of a node that does not run
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Wait until the catalogue is there
        #[arg(short, long)]
        wait: bool,
    },
    /// Remove what a move has left in a database; the node must not run
    #[command(
        after_help = "Example:\n  thermo engine clear --at tikv://pd1.example:2379,pd2.example:2379/NAME\n\n\
                      Only an engine that this node has moved its catalogue out of, or a copy that was not finished. One that counts is \
                      refused. A catalogue can be moved there again afterwards."
    )]
    Clear {
        /// Address of the database
        #[arg(long, value_name = "ADDRESS")]
        at: String,
        /// Configuration file of the node
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// Runs `thermo engine`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let (to, config, wait) = match args.command {
        Command::Move { to, config, wait } => (to, config, wait),
        Command::Clear { at, config } => return clear(context, &at, config.as_deref()),
    };
    let to = match to.as_str() {
        EMBEDDED => None,
        address if address.contains("://") => Some(address),
        other => {
            return Err(usage(format!(
                "--to {other}: write `embedded`, postgres://USER@HOST/DATABASE or tikv://HOST:PORT/NAME"
            )));
        }
    };
    match context.connect() {
        Ok(mut node) => {
            let view: RequestView = node.ask(&Call::MoveEngine { to: to.map(Into::into) })?;
            begun(context, &mut node, view, wait)
        }
        // That of this machine does not run; of another one nothing is known.
        Err(e)
            if context.global.node.is_none()
                && matches!(e.downcast_ref(), Some(ClientError::Unreachable { .. })) =>
        {
            let moved = node::move_engine(&context.config(config.as_deref())?, to, &mut tell)?;
            report(context, &moved)
        }
        Err(e) => Err(e),
    }
}

fn clear(context: &mut Context, at: &str, config: Option<&Path>) -> Result<Exit> {
    node::clear_engine(&context.config(config)?, at)?;
    match context.global.json {
        true => context.out.json(&serde_json::json!({ "cleared": at }))?,
        false => context.out.line("cleared: a catalogue can be moved there")?,
    }
    Ok(Exit::OK)
}

/// One line for each step, at once: whoever waits sees how far it is.
fn tell(step: MoveStep) {
    match step {
        MoveStep::Copied { pairs, bytes } => eprintln!("{pairs} keys copied ({})", size(bytes)),
        MoveStep::Compares { pairs: 0 } => eprintln!("comparing"),
        MoveStep::Compares { .. } | MoveStep::Follows => {} // nothing changes meanwhile
        MoveStep::Marks => eprintln!("the copy is the same; setting the old engine aside"),
        MoveStep::Switched => eprintln!("the configuration names the new engine"),
    }
}

fn report(context: &mut Context, moved: &Moved) -> Result<Exit> {
    if context.global.json {
        context.out.json(&serde_json::json!({
            "from": moved.from, "to": moved.to, "keys": moved.pairs, "bytes": moved.bytes, "sha256": moved.digest,
        }))?;
        return Ok(Exit::OK);
    }
    context.out.line(format!(
        "moved: {} keys, {}, sha256 {}",
        moved.pairs,
        size(moved.bytes),
        moved.digest
    ))?;
    context.out.line(format!("the catalogue is in {} now: start with `thermo up`", moved.to))?;
    context
        .out
        .line(format!("{} is kept and does not open any more; remove it when you like", moved.from))?;
    Ok(Exit::OK)
}
