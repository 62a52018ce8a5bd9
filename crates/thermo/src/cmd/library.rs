//! `thermo library`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::{or_dash, word};
use anyhow::Result;
use types::LibraryView;
use wire::Call;

/// The tape library
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show slots, drives and the cartridges in them
    #[command(after_help = "Example:\n  thermo library show")]
    Show,
    /// Find tape libraries and their drives, and write them into the configuration
    ///
    /// Looks at the SCSI devices of this machine and at the addresses given, asks each who it is, and each robot which drives
    /// it has. Nothing is moved, loaded or written but the configuration file.
    #[command(
        after_help = "Example:\n  thermo library discover\n  thermo library discover iscsi://10.0.0.7 --write\n  thermo library discover --only unix:/run/vtl"
    )]
    Discover(super::discover::Args),
}

/// Runs `thermo library`.
pub fn run(context: &mut Context, args: Args) -> Result<Exit> {
    if let Command::Discover(args) = &args.command {
        return super::discover::run(context, args);
    }
    let library: LibraryView = context.connect()?.ask(&Call::Library)?;
    if context.global.json {
        context.out.json(&library)?;
        return Ok(Exit::OK);
    }
    context.out.line(format!("{} ({})", library.name, library.product))?;
    let mut table = Table::new(&["ADDRESS>", "KIND", "CARTRIDGE", "FROM SLOT>", "EXCEPTION"]);
    for element in &library.elements {
        let cartridge = match (&element.barcode, element.full) {
            (Some(barcode), _) => barcode.to_string(),
            (None, true) => "without barcode".into(),
            (None, false) => "empty".into(),
        };
        table.row(vec![
            element.address.to_string(),
            word(&element.kind),
            cartridge,
            or_dash(element.source),
            or_dash(element.exception.map(|(asc, ascq)| format!("{asc:02X}h/{ascq:02X}h"))),
        ]);
    }
    context.out.table(&table)?;
    Ok(Exit::OK)
}
