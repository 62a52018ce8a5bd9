//! `thermo drive`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::{drive_status, or_dash, rate_or_dash, word};
use crate::units::size;
use anyhow::Result;
use types::{DriveNo, DriveStatus, DriveView};
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
    /// Take a drive into use again after a repair; it must answer and give up the cartridge in it
    #[command(
        after_help = "Drives that failed are also tried again by themselves (tape.drive_retry_s).\n\nExample:\n  thermo drive up 1\n  thermo drive up 1 --preempt"
    )]
    Up {
        /// Number of the drive
        drive: u16,
        /// Take it from another host that has reserved it: only if that host no longer uses it
        #[arg(long)]
        preempt: bool,
    },
    /// Take a drive out of use: it finishes its present job and gives up its cartridge
    #[command(
        after_help = "Lasts until the drive is taken into use again, or until the node restarts.\n\nExample:\n  thermo drive down 1"
    )]
    Down {
        /// Number of the drive
        drive: u16,
    },
}

/// Runs `thermo drive`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    match args.command {
        Command::Ls => ls(context),
        Command::Up { drive, preempt: false } => set(context, drive, true, "is in use"),
        Command::Up { drive, preempt: true } => {
            context.connect()?.ask::<()>(&Call::TakeDrive { drive: DriveNo(drive) })?;
            context.out.line(format!("drive {drive} is in use"))?;
            Ok(Exit::OK)
        }
        Command::Down { drive } => {
            set(context, drive, false, "is out of use as soon as its present job has ended")
        }
    }
}

fn set(context: &mut Context, drive: u16, up: bool, what: &str) -> Result<Exit> {
    context.connect()?.ask::<()>(&Call::SetDrive { drive: DriveNo(drive), up })?;
    context.out.line(format!("drive {drive} {what}"))?;
    Ok(Exit::OK)
}

fn ls(context: &mut Context) -> Result<Exit> {
    let drives: Vec<DriveView> = context.connect()?.ask(&Call::Drives)?;
    context.print(&drives, |drives| table(drives))
}

/// What it does, or why it does nothing: the last column, because it is as long as it is.
fn doing(drive: &DriveView) -> String {
    match &drive.status {
        DriveStatus::Suspect(why) if drive.activity.is_empty() => why.clone(),
        _ => drive.activity.clone(),
    }
}

/// Drives as a table.
pub fn table(drives: &[DriveView]) -> Table {
    let mut table = Table::new(&[
        "DRIVE>", "LIBRARY", "PRODUCT", "SERIAL", "MEDIA", "VOLUME", "STATE", "MOVED>", "RATE>", "MOUNTS>",
        "ERRORS>", "ALERTS", "RESERVED", "DOING",
    ]);
    for drive in drives {
        let alerts: Vec<_> = drive.alerts.iter().map(u8::to_string).collect();
        table.row(vec![
            drive.drive.to_string(),
            drive.library.clone(),
            drive.product.clone(),
            drive.serial.clone(),
            or_dash(Some(&drive.media).filter(|media| !media.is_empty())),
            or_dash(drive.volume.as_ref()),
            drive_status(&drive.status),
            size(drive.bytes),
            rate_or_dash(drive.rate),
            drive.mounts.to_string(),
            drive.errors.to_string(),
            if alerts.is_empty() { "-".into() } else { alerts.join(",") },
            word(&drive.hold),
            doing(drive),
        ]);
    }
    table
}
