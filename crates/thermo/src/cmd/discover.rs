//! `thermo library discover`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::out::Table;
use anyhow::{Context as _, Result};
use client::Connection;
use node::attached::{AttachedDrive, AttachedLibrary, Device, write_library};
use scsi::Address;
use scsi::address::Portal;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tape::discover::{Discovery, Found, FoundLibrary, discover};
use types::{ErrorClass, LibraryView};
use wire::{Call, Failure};

/// See the module.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to look besides: iscsi://HOST[:PORT][/TARGET[/LUN]], thermo://HOST:PORT[/NAME] (what another
    /// node of the cluster gives to this one), unix:/SOCKET-OR-DIRECTORY, sg:/dev/sgN
    #[arg(value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// Look only there, not at the SCSI devices of this machine
    #[arg(long)]
    only: bool,
    /// Write what was found into the configuration file
    #[arg(long)]
    write: bool,
    /// Configuration file [default: config.toml in the state directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs `thermo library discover`.
pub fn run(context: &mut Context, args: &Args) -> Result<Exit> {
    leave_a_running_node_alone(context)?;
    let mut failed = Vec::new();
    let mut addresses = Vec::new();
    if !args.only {
        let found = scsi::sg::find(Path::new("/sys")).context("/sys/class/scsi_generic")?;
        addresses.extend(found.into_iter().map(|d| Address::Sg(d.path)));
    }
    let state = context.global.state_dir();
    for text in &args.addresses {
        match look(&state, text)? {
            Ok(found) => addresses.extend(found),
            Err(e) => failed.push((text.clone(), e)),
        }
    }
    addresses.sort();
    addresses.dedup();
    let found = discover(&addresses, &node::NodePeers::of(&state), || Box::new(std::thread::sleep));
    failed.extend(found.failed.iter().map(|(a, why)| (a.to_string(), why.clone())));
    let written = if args.write { write(context, args, &found)? } else { Vec::new() };
    print(context, &found, &failed, &written)?;
    let known = |l: &FoundLibrary| l.unmatched.is_empty() && l.reserved.is_none();
    let whole = failed.is_empty() && found.libraries.iter().all(known);
    Ok(match (found.libraries.is_empty(), whole) {
        (true, _) => crate::exit::of_class(ErrorClass::NotFound),
        (false, true) => Exit::OK,
        (false, false) => Exit::SOME_FAILED,
    })
}

/// A robot tells only one program of this host that its inventory has changed: not us, when a node uses it.
fn leave_a_running_node_alone(context: &Context) -> Result<()> {
    let Ok(mut node) = Connection::open(&context.global.socket()) else { return Ok(()) };
    let libraries: Vec<LibraryView> = node.ask(&Call::Library)?;
    let attached = libraries.into_iter().find(|library| !node::attached::is_virtual(&library.name));
    let Some(library) = attached else { return Ok(()) };
    let message = format!("the node uses library {}: stop it first with `thermo down`", library.name);
    Err(Failure { class: ErrorClass::Busy, fs: None, message }.into())
}

/// Devices behind one argument; the inner error is that of a portal.
fn look(state: &Path, text: &str) -> Result<Result<Vec<Address>, String>> {
    let wrong = |e: scsi::address::AddressError| usage(e.to_string());
    if let Ok(Address::Unix(path)) = text.parse()
        && path.is_dir()
    {
        let entries = path.read_dir().and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let entries = entries.with_context(|| path.display().to_string())?;
        let sockets = entries.into_iter().map(|e| e.path());
        let sockets = sockets.filter(|p| p.extension().is_some_and(|e| e == "sock"));
        return Ok(Ok(sockets.map(Address::Unix).collect()));
    }
    if let Ok(address) = text.parse::<Address>() {
        return Ok(Ok(vec![address]));
    }
    if let Some(peer) =
        text.strip_prefix("thermo://").filter(|rest| !rest.trim_end_matches('/').contains('/'))
    {
        let devices = node::devices_at(state, peer.trim_end_matches('/'));
        return Ok(devices.map(|all| all.into_iter().map(Address::Node).collect()).map_err(|e| e.message));
    }
    if !text.starts_with("iscsi://") {
        return text.parse::<Address>().map(|a| Ok(vec![a])).map_err(wrong);
    }
    let portal: Portal = text.parse().map_err(wrong)?;
    let units = scsi::iscsi::find(&portal.host, portal.port, portal.target.as_deref());
    Ok(units.map(|u| u.into_iter().map(Address::Iscsi).collect()).map_err(|e| e.to_string()))
}

/// Puts every library that has a drive into the configuration; gives a line for each.
fn write(context: &Context, args: &Args, found: &Discovery) -> Result<Vec<String>> {
    let path = args.config.clone().unwrap_or_else(|| context.global.state_dir().join("config.toml"));
    let mut lines = Vec::new();
    for library in &found.libraries {
        let at = &library.changer.address;
        if library.reserved.is_some() {
            lines.push(format!(
                "the library at {at} is not written: another host has reserved it, and its drives are not known until that one \
                 gives it back"
            ));
            continue;
        }
        if library.drives.is_empty() {
            lines.push(format!("the library at {at} is not written: none of its drives was found"));
            continue;
        }
        write_library(&path, &section(library)).map_err(|e| usage(e.to_string()))?;
        lines.push(format!("the library at {at} is written into {}", path.display()));
    }
    Ok(lines)
}

fn serial(found: &Found) -> Option<String> {
    Some(found.serial.clone()).filter(|s| !s.is_empty())
}

fn section(library: &FoundLibrary) -> AttachedLibrary {
    let drive = |(element, drive): &(u16, Found)| AttachedDrive {
        device: Device(drive.address.clone()),
        serial: serial(drive),
        element: Some(*element),
        path: None,
    };
    AttachedLibrary {
        name: serial(&library.changer).unwrap_or_else(|| "library".into()),
        changer: Device(library.changer.address.clone()),
        serial: serial(&library.changer),
        drives: library.drives.iter().map(drive).collect(),
    }
}

fn print(
    context: &mut Context,
    found: &Discovery,
    failed: &[(String, String)],
    written: &[String],
) -> Result<()> {
    if context.global.json {
        return context.out.json(&as_json(found, failed, written));
    }
    if found.libraries.is_empty() {
        context.out.line("no tape library was found")?;
    }
    for library in &found.libraries {
        let c = &library.changer;
        context.out.line(format!("{} with serial number {} at {}", c.product, c.serial, c.address))?;
        if let Some(who) = &library.reserved {
            context.out.line(format!(
                "  {who}: it does not say which drives it has; look again when it is given back"
            ))?;
            continue;
        }
        let mut table = Table::new(&["ELEMENT>", "DRIVE", "SERIAL", "DEVICE"]);
        for (element, d) in &library.drives {
            table.row(vec![element.to_string(), d.product.clone(), d.serial.clone(), d.address.to_string()]);
        }
        for (element, why) in &library.unmatched {
            table.row(vec![element.to_string(), "-".into(), "-".into(), format!("none: {why}")]);
        }
        context.out.table(&table)?;
    }
    let left = found.left.iter().map(|(d, why)| format!("{} ({}) is not used: {why}", d.address, d.product));
    let failed = failed.iter().map(|(at, why)| format!("{at} is not used: {why}"));
    for line in left.chain(failed).chain(written.iter().cloned()) {
        context.out.line(line)?;
    }
    Ok(())
}

fn as_json(found: &Discovery, failed: &[(String, String)], written: &[String]) -> Value {
    let device =
        |d: &Found| json!({"device": d.address.to_string(), "product": d.product, "serial": d.serial});
    let libraries = found.libraries.iter().map(|l| {
        let drives = l.drives.iter().map(|(element, d)| {
            let mut drive = device(d);
            drive["element"] = json!(element);
            drive
        });
        let missing = l.unmatched.iter().map(|(element, why)| json!({"element": element, "reason": why}));
        json!({
            "changer": device(&l.changer),
            "drives": drives.collect::<Vec<_>>(),
            "unmatched": missing.collect::<Vec<_>>(),
            "reserved": l.reserved,
        })
    });
    let left = found.left.iter().map(|(d, why)| json!({"device": d.address.to_string(), "reason": why}));
    let failed = failed.iter().map(|(at, why)| json!({"device": at, "reason": why}));
    json!({
        "libraries": libraries.collect::<Vec<_>>(),
        "unused": left.chain(failed).collect::<Vec<_>>(),
        "written": written,
    })
}
