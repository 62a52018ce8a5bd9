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
        Command::Export { volumes } => {
            return move_cartridges(context, &Call::ExportCartridges(barcodes(volumes)));
        }
        Command::Import { volumes } => {
            return move_cartridges(context, &Call::ImportCartridges(barcodes(volumes)));
        }
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

/// Has cartridges moved, and tells which ones were and where they are now.
fn move_cartridges(context: &mut Context, call: &Call) -> Result<Exit> {
    let mut node = context.connect()?;
    let before: Vec<LibraryView> = node.ask(&Call::Library)?;
    let after: Vec<LibraryView> = node.ask(call)?;
    if context.global.json {
        context.out.json(&after)?;
        return Ok(Exit::OK);
    }
    let lines = moved(&before, &after);
    lines.into_iter().try_for_each(|line| context.out.line(line))?;
    Ok(Exit::OK)
}

/// A line for each cartridge that is elsewhere now.
fn moved(before: &[LibraryView], after: &[LibraryView]) -> Vec<String> {
    let was_at = |library: &LibraryView, barcode: &Barcode| {
        let was = before.iter().find(|one| one.name == library.name)?;
        was.elements.iter().find(|e| e.barcode.as_ref() == Some(barcode)).map(|e| e.address)
    };
    let mut lines = Vec::new();
    for library in after {
        for element in &library.elements {
            let Some(barcode) = &element.barcode else { continue };
            let from = was_at(library, barcode);
            if from == Some(element.address) {
                continue;
            }
            let place = match element.kind {
                ElementKind::Transport => "the robot's hand",
                ElementKind::Slot => "slot",
                ElementKind::ImportExport => "import/export slot",
                ElementKind::Drive => "drive element",
            };
            let take = if element.outgoing { ": take it out" } else { "" };
            let from = from.map_or_else(String::new, |from| format!(" from {from}"));
            let (name, at) = (&library.name, element.address);
            lines.push(format!("{barcode} was moved{from} to {place} {at} of library {name}{take}"));
        }
    }
    if lines.is_empty() {
        lines.push("nothing was moved: no cartridge was elsewhere; see `thermo library show`".into());
    }
    lines
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

#[cfg(test)]
mod tests {
    use super::*;
    use types::ElementView;

    fn library(elements: &[(ElementKind, u16, Option<&str>, bool)]) -> Vec<LibraryView> {
        let view =
            |(kind, address, barcode, outgoing): &(ElementKind, u16, Option<&str>, bool)| ElementView {
                kind: *kind,
                address: *address,
                full: barcode.is_some(),
                barcode: barcode.map(Into::into),
                source: None,
                exception: None,
                outgoing: *outgoing,
            };
        let elements = elements.iter().map(view).collect();
        vec![LibraryView { name: "hall-a".into(), product: String::new(), elements, out: None }]
    }

    #[test]
    fn what_was_moved_is_told() {
        use ElementKind::{ImportExport, Slot};
        let (a, b) = (Some("TC0001L9"), Some("TC0002L9"));
        let in_slots =
            library(&[(Slot, 1001, a, false), (Slot, 1002, b, false), (ImportExport, 10, None, false)]);
        let outside =
            library(&[(Slot, 1001, None, false), (Slot, 1002, b, false), (ImportExport, 10, a, true)]);
        let told = moved(&in_slots, &outside);
        assert_eq!(
            told,
            ["TC0001L9 was moved from 1001 to import/export slot 10 of library hall-a: take it out"]
        );
        let told = moved(&outside, &in_slots);
        assert_eq!(told, ["TC0001L9 was moved from 10 to slot 1001 of library hall-a"]);
        let told = moved(&in_slots, &in_slots);
        assert!(told.len() == 1 && told[0].starts_with("nothing was moved"), "{told:?}");
    }
}
