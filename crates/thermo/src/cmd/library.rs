//! `thermo library`.

use crate::context::Context;
use crate::exit::Exit;
use crate::out::Table;
use crate::render::{or_dash, word};
use anyhow::Result;
use types::{Barcode, ElementKind, ErrorClass, LibraryView};
use wire::{Call, Failure};

/// The tape libraries
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the libraries
    #[command(after_help = "Example:\n  thermo library ls")]
    Ls,
    /// Show slots, drives and the cartridges in them
    #[command(after_help = "Example:\n  thermo library show\n  thermo library show hall-b")]
    Show {
        /// Name of a library; none: all
        library: Option<String>,
    },
    /// Ask the libraries where everything is now
    ///
    /// An opened door or a cartridge in an import/export slot is noticed within seconds by itself; a library that says nothing
    /// of it, or a cartridge that lies where nobody thinks, is found so.
    #[command(after_help = "Example:\n  thermo library inventory\n  thermo library inventory hall-b --audit")]
    Inventory {
        /// Name of a library; none: all
        library: Option<String>,
        /// The robot looks at every slot: may take hours in a large library
        #[arg(long)]
        audit: bool,
    },
    /// Lay cartridges into import/export slots of their libraries, for an operator to take
    ///
    /// They are not used from there. A volume in a drive is put away first by itself, or see `volume state`.
    #[command(after_help = "Example:\n  thermo library export TC0001L9 TC0002L9")]
    Export {
        /// Barcodes
        #[arg(required = true)]
        volumes: Vec<String>,
    },
    /// Move cartridges from import/export slots into the libraries
    ///
    /// What an operator lays there is used from there, too; this makes room for more.
    #[command(after_help = "Example:\n  thermo library import\n  thermo library import TC0001L9")]
    Import {
        /// Barcodes; none: all that lie there
        volumes: Vec<String>,
    },
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
    let barcodes = |list: Vec<String>| list.into_iter().map(Barcode::from).collect();
    let (call, only) = match args.command {
        Command::Inventory { library, audit } => {
            (Call::Inventory { library: library.clone(), audit }, library)
        }
        Command::Export { volumes } => (Call::ExportCartridges(barcodes(volumes)), None),
        Command::Import { volumes } => (Call::ImportCartridges(barcodes(volumes)), None),
        Command::Ls => {
            let libraries: Vec<LibraryView> = context.connect()?.ask(&Call::Library)?;
            return context.print(&libraries, |libraries| list(libraries));
        }
        Command::Show { library } => (Call::Library, library),
        Command::Discover(_) => (Call::Library, None),
    };
    let mut libraries: Vec<LibraryView> = context.connect()?.ask(&call)?;
    libraries.retain(|library| only.as_ref().is_none_or(|only| *only == library.name));
    if let Some(name) = only.filter(|_| libraries.is_empty()) {
        let message = format!("there is no library `{name}`; see `thermo library ls`");
        return Err(Failure { class: ErrorClass::NotFound, fs: None, message }.into());
    }
    if context.global.json {
        context.out.json(&libraries)?;
        return Ok(Exit::OK);
    }
    for library in &libraries {
        show(context, library)?;
    }
    Ok(Exit::OK)
}

/// Libraries as a table.
fn list(libraries: &[LibraryView]) -> Table {
    let mut table = Table::new(&["LIBRARY", "PRODUCT", "DRIVES>", "SLOTS>", "CARTRIDGES>", "DOOR>", "STATE"]);
    for library in libraries {
        let count = |kind: ElementKind, full: bool| {
            library.elements.iter().filter(|e| e.kind == kind && (e.full || !full)).count()
        };
        let cartridges = library.elements.iter().filter(|e| e.full).count();
        table.row(vec![
            library.name.clone(),
            or_dash(Some(library.product.as_str()).filter(|p| !p.is_empty())),
            count(ElementKind::Drive, false).to_string(),
            count(ElementKind::Slot, false).to_string(),
            cartridges.to_string(),
            count(ElementKind::ImportExport, true).to_string(),
            match &library.out {
                None => "in use".into(),
                Some(why) if library.elements.is_empty() => format!("out of use: {why}"),
                Some(why) => format!("in use, but {why}"),
            },
        ]);
    }
    table
}

fn show(context: &mut Context, library: &LibraryView) -> Result<()> {
    if let Some(why) = &library.out {
        let now = if library.elements.is_empty() { "" } else { " now" };
        context.out.line(format!("{} cannot be used{now}: {why}", library.name))?;
        if library.elements.is_empty() {
            return Ok(());
        }
    }
    context.out.line(format!("{} ({})", library.name, library.product))?;
    let mut table = Table::new(&["ADDRESS>", "KIND", "CARTRIDGE", "FROM SLOT>", "EXCEPTION"]);
    for element in &library.elements {
        let cartridge = match (&element.barcode, element.full) {
            (Some(barcode), _) if element.outgoing => format!("{barcode}, to be taken out"),
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
    Ok(())
}
