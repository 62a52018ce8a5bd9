//! `thermo drive`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::{drive_status, or_dash, rate_or_dash};
use crate::units::size;
use anyhow::Result;
use types::DriveView;
use wire::Call;

/// Tape drives
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List drives and what they do
    #[command(after_help = "Example:\n  thermo drive ls")]
    Ls,
}

/// Runs `thermo drive`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    let Command::Ls = args.command;
    let drives: Vec<DriveView> = context.connect()?.ask(&Call::Drives)?;
    if context.global.json {
        context.out.json(&drives)?;
    } else {
        context.out.table(&table(&drives))?;
    }
    Ok(Exit::OK)
}

/// Drives as a table.
pub fn table(drives: &[DriveView]) -> Table {
    let mut table = Table::new(&[
        "DRIVE>", "PRODUCT", "SERIAL", "VOLUME", "STATE", "MOVED>", "RATE>", "MOUNTS>", "ERRORS>", "ALERTS",
        "DOING",
    ]);
    for drive in drives {
        let alerts: Vec<_> = drive.alerts.iter().map(u8::to_string).collect();
        table.row(vec![
            drive.drive.to_string(),
            drive.product.clone(),
            drive.serial.clone(),
            or_dash(drive.volume.as_ref()),
            drive_status(&drive.status),
            size(drive.bytes),
            rate_or_dash(drive.rate),
            drive.mounts.to_string(),
            drive.errors.to_string(),
            if alerts.is_empty() { "-".into() } else { alerts.join(",") },
            drive.activity.clone(),
        ]);
    }
    table
}
