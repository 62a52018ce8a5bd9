//! `thermo standby`.

use crate::context::Context;
use crate::exit::Exit;
use anyhow::{Result, bail};
use std::time::{Duration, Instant};
use types::StatusView;
use wire::{Call, StandbyView};

/// The standby of a node's catalogue
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show how far the standby is, as this end knows it
    #[command(after_help = "Example:\n  thermo standby status\n  thermo standby status --json")]
    Status,
    /// Let this standby take the place of the node that it follows
    #[command(
        after_help = "Refused while that node may be alive, while it acknowledges changes without this standby, and while the copy is not \
                            complete. Library and drives are taken from it if it has reserved them. It does not serve again by itself.\n\n\
                            Example:\n  thermo standby take-over\n  thermo standby take-over --force"
    )]
    TakeOver {
        /// Although the other node may be alive or changes may be missing: what it acknowledged and this standby lacks is lost, and volumes are not written before they were looked at
        #[arg(long)]
        force: bool,
        /// Longest wait until the node answers here (seconds)
        #[arg(long, default_value_t = 300, value_name = "SECONDS")]
        timeout: u64,
    },
}

/// Runs `thermo standby`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Status => {
            let view: StandbyView = context.connect()?.ask(&Call::Standby)?;
            if context.global.json {
                context.out.json(&view)?;
                return Ok(Exit::OK);
            }
            for line in lines(&view) {
                context.out.line(line)?;
            }
            Ok(Exit::OK)
        }
        Command::TakeOver { force, timeout } => take_over(context, force, Duration::from_secs(timeout)),
    }
}

fn take_over(context: &mut Context, force: bool, longest: Duration) -> Result<Exit> {
    context.connect()?.call(&Call::StandbyTakeOver { force })?;
    context.out.line("taken over; the node starts here")?;
    let end = Instant::now() + longest;
    loop {
        // Until the node listens, the standby still refuses, or nobody is there.
        let asked = context.connect().and_then(|mut node| Ok(node.ask::<StatusView>(&Call::Status)?));
        match asked {
            Ok(_) => {
                context.out.line("the node is up")?;
                return Ok(Exit::OK);
            }
            Err(e) if Instant::now() > end => {
                bail!(
                    "the node does not answer yet ({e}); its log says why, `thermo up` starts it again if it has ended"
                )
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// How it is, in three or four lines.
pub(super) fn lines(view: &StandbyView) -> Vec<String> {
    let StandbyView { other, epoch, last, number, .. } = view;
    let heard = view
        .heard_ms
        .map_or("not heard of yet".into(), |ms| format!("heard of {:.1} s ago", ms as f64 / 1000.0));
    let what = if view.standby {
        format!("standby of {other}")
    } else {
        format!("followed by the standby at {other}")
    };
    let copy = match (view.complete, view.behind_ms) {
        (false, _) => "the copy is not complete: it cannot take over".into(),
        (true, _) if number >= last => {
            format!("the standby has everything that is known of (batch {number})")
        }
        (true, ms) => format!("the standby has batch {number} of {last}, {:.1} s behind", ms as f64 / 1000.0),
    };
    let promise = if view.promised {
        "nothing is acknowledged without the standby"
    } else {
        "changes are acknowledged without the standby: a take-over may miss the last ones"
    };
    let mut lines = vec![format!("{what}, {heard} (epoch {epoch})"), copy, promise.into()];
    lines.extend(view.replaced_by.as_ref().map(|by| format!("{by} has taken over: nothing is served here")));
    lines
}
