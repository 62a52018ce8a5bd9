//! Which cartridge is in which element, on disk as the text file `elements`: a head line, then one line per full element
//! `<address> <barcode> <source address or -> <operator or robot>`. Replaced as a whole.

use crate::config::VtlConfig;
use crate::durable;
use crate::error::{Result, VtlError, damaged, io};
use scsi::{ElementAssignment, ElementType, Range};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const HEAD: &str = "thermocline virtual library 1";

/// A cartridge in an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    pub(crate) barcode: String,
    /// Storage element it was moved from.
    pub(crate) source: Option<u16>,
    /// An operator put it here, not the robot.
    pub(crate) by_operator: bool,
}

/// All elements.
#[derive(Clone, Debug)]
pub(crate) struct Elements {
    path: PathBuf,
    pub(crate) addresses: ElementAssignment,
    pub(crate) full: BTreeMap<u16, Occupant>,
}

/// The addresses that a configuration gives: hand 0, drives from 1, mail slots from 101, slots from 1001.
fn addresses(config: &VtlConfig) -> Result<ElementAssignment> {
    let check = |what: &str, n: u16, min: u16, max: u16| match n {
        n if (min..=max).contains(&n) => Ok(n),
        n => Err(VtlError::Refused(format!("a virtual library can have {min} to {max} {what}, not {n}"))),
    };
    let range = |first, count| Range { first, count };
    Ok(ElementAssignment {
        transport: range(0, 1),
        data_transfer: range(1, check("drives", config.drives, 1, 99)?),
        import_export: range(101, check("import/export slots", config.import_export, 0, 899)?),
        storage: range(1001, check("slots", config.slots, 1, 60_000)?),
    })
}

/// Barcodes become names of directories and are shown by tools: capital letters and digits, 1 to 32.
pub(crate) fn check_barcode(barcode: &str) -> Result<()> {
    let good = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit();
    if (1..=32).contains(&barcode.len()) && barcode.bytes().all(good) {
        return Ok(());
    }
    Err(VtlError::Refused(format!("`{barcode}` cannot be a barcode: use 1 to 32 capital letters and digits")))
}

impl Elements {
    /// Loads the table; Ok(None): the library is new.
    pub(crate) fn load(config: &VtlConfig) -> Result<(Self, bool)> {
        let path = config.dir.join("elements");
        let mut elements = Self { path, addresses: addresses(config)?, full: BTreeMap::new() };
        let text = match std::fs::read_to_string(&elements.path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok((elements, true)),
            Err(e) => return Err(io(&elements.path, "read")(e)),
        };
        elements.parse(&text)?;
        Ok((elements, false))
    }

    fn parse(&mut self, text: &str) -> Result<()> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(damaged(&self.path, "does not begin as a table of elements of this version"));
        }
        for line in lines {
            let (address, occupant) =
                parse_line(line).ok_or_else(|| damaged(&self.path, format!("cannot understand `{line}`")))?;
            if self.kind(address).is_none() {
                let what = format!(
                    "cartridge {} is in element {address}, which the configuration no longer has; \
                     configure at least as many drives and slots as before",
                    occupant.barcode
                );
                return Err(VtlError::Refused(what));
            }
            if self.find(&occupant.barcode).is_some() || self.full.insert(address, occupant).is_some() {
                return Err(damaged(&self.path, format!("`{line}` contradicts an earlier line")));
            }
        }
        Ok(())
    }

    /// Writes the table durably.
    pub(crate) fn store(&self) -> Result<()> {
        let mut text = format!("{HEAD}\n");
        for (address, o) in &self.full {
            let source = o.source.map_or("-".to_string(), |s| s.to_string());
            let by = if o.by_operator { "operator" } else { "robot" };
            let _ = writeln!(text, "{address} {} {source} {by}", o.barcode);
        }
        durable::replace(&self.path, text.as_bytes())
    }

    /// Type of the element at `address`, if there is one.
    pub(crate) fn kind(&self, address: u16) -> Option<ElementType> {
        ElementType::ALL.into_iter().find(|kind| {
            let range = self.addresses.range(*kind);
            address.checked_sub(range.first).is_some_and(|n| n < range.count)
        })
    }

    /// Number of the drive at `address`.
    pub(crate) fn drive(&self, address: u16) -> Option<usize> {
        (self.kind(address)? == ElementType::DataTransfer)
            .then(|| usize::from(address - self.addresses.data_transfer.first))
    }

    /// Element that holds a cartridge.
    pub(crate) fn find(&self, barcode: &str) -> Option<u16> {
        self.full.iter().find(|(_, o)| o.barcode == barcode).map(|(address, _)| *address)
    }

    /// First empty element of a type.
    pub(crate) fn empty(&self, kind: ElementType) -> Option<u16> {
        let range = self.addresses.range(kind);
        (range.first..range.first + range.count).find(|a| !self.full.contains_key(a))
    }

    /// Table after a move.
    pub(crate) fn moved(&self, from: u16, to: u16) -> Self {
        let mut next = self.clone();
        if let Some(mut occupant) = next.full.remove(&from) {
            if self.kind(from) == Some(ElementType::Storage) {
                occupant.source = Some(from);
            }
            occupant.by_operator = false;
            next.full.insert(to, occupant);
        }
        next
    }

    /// Where the cartridges are kept.
    pub(crate) fn cartridge_dir(library: &Path, barcode: &str) -> PathBuf {
        library.join("cartridges").join(barcode)
    }
}

fn parse_line(line: &str) -> Option<(u16, Occupant)> {
    let mut words = line.split(' ');
    let address = words.next()?.parse().ok()?;
    let barcode = words.next().filter(|b| check_barcode(b).is_ok())?.to_string();
    let source = match words.next()? {
        "-" => None,
        n => Some(n.parse().ok()?),
    };
    let by_operator = match words.next()? {
        "operator" => true,
        "robot" => false,
        _ => return None,
    };
    words.next().is_none().then_some((address, Occupant { barcode, source, by_operator }))
}
