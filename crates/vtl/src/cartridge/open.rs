//! Making and opening cartridge directories.

use super::{Cartridge, Index, Meta, Partition, Unsynced, end_name};
use crate::durable;
use crate::error::{Result, damaged, io};
use crate::fault::Faults;
use rustix::fs::{AtFlags, Mode, OFlags, open, statat, unlinkat};
use scsi::Attribute;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use types::{Barcode, Generation};

/// One file of a cartridge directory by its name.
enum Name {
    Record(u8, u64),
    Sealed(u8, u64),
    Mark(u8, u64),
    End(u8, u64),
    Attribute(u8, u16),
    Temporary,
    Foreign,
}

/// A number as the layout writes it: no sign, no padding.
fn plain<T: std::str::FromStr + std::fmt::Display>(s: &str) -> Option<T> {
    s.parse::<T>().ok().filter(|n| n.to_string() == s)
}

fn parse(name: &str) -> Name {
    if name.ends_with(".tmp") {
        return Name::Temporary;
    }
    let fields: Vec<&str> = name.split('_').collect();
    let parsed = match fields[..] {
        ["attr", p, id] => {
            plain(p).zip(u16::from_str_radix(id, 16).ok()).map(|(p, id)| Name::Attribute(p, id))
        }
        [p, b, kind] => plain::<u8>(p).filter(|p| *p < 2).zip(plain(b)).and_then(|(p, b)| match kind {
            "R" => Some(Name::Record(p, b)),
            "X" => Some(Name::Sealed(p, b)),
            "F" => Some(Name::Mark(p, b)),
            "E" => Some(Name::End(p, b)),
            _ => None,
        }),
        _ => None,
    };
    parsed.unwrap_or(Name::Foreign)
}

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Record,
    Sealed,
    Mark,
}

impl Kind {
    fn name(self, partition: u8, block: u64) -> String {
        match self {
            Kind::Record => super::record_name(partition, block),
            Kind::Sealed => super::sealed_name(partition, block),
            Kind::Mark => super::mark_name(partition, block),
        }
    }
}

/// What one reading of the directory found.
#[derive(Default)]
struct Found {
    /// By object number.
    objects: [BTreeMap<u64, Kind>; 2],
    ends: [Option<u64>; 2],
    attributes: Vec<(u8, u16)>,
}

fn scan(dir: &Path, fd: &OwnedFd) -> Result<Found> {
    let mut found = Found::default();
    for entry in fs::read_dir(dir).map_err(io(dir, "list"))? {
        let name = entry.map_err(io(dir, "list"))?.file_name();
        let name = name.to_string_lossy();
        match parse(&name) {
            Name::Record(p, b) => _ = found.objects[usize::from(p)].insert(b, Kind::Record),
            Name::Sealed(p, b) => _ = found.objects[usize::from(p)].insert(b, Kind::Sealed),
            Name::Mark(p, b) => _ = found.objects[usize::from(p)].insert(b, Kind::Mark),
            Name::End(p, b) => {
                if found.ends[usize::from(p)].replace(b).is_some() {
                    return Err(damaged(dir, format!("partition {p} has two end-of-data files")));
                }
            }
            Name::Attribute(p, id) => found.attributes.push((p, id)),
            Name::Temporary => {
                unlinkat(fd, name.as_ref(), AtFlags::empty()).map_err(|e| io(dir, "remove")(e.into()))?;
            }
            Name::Foreign => {}
        }
    }
    Ok(found)
}

impl Cartridge {
    /// Makes an empty cartridge with this description in `dir`, which must not exist.
    pub(crate) fn create(dir: &Path, meta: &Meta) -> Result<()> {
        fs::create_dir(dir).map_err(io(dir, "create"))?;
        let end = dir.join(end_name(0, 0));
        File::create(&end).and_then(|f| f.sync_all()).map_err(io(&end, "create"))?;
        durable::sync_parent(&end)?;
        // The description comes last: a directory without one was not finished.
        meta.store(dir)
    }

    /// Opens the cartridge in `dir`: one reading of the directory; objects behind the end of data are removed.
    pub(crate) fn open(dir: &Path, barcode: &str, faults: Arc<Faults>) -> Result<Self> {
        let mut meta = Meta::load(dir)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(dir, flags, Mode::empty()).map_err(|e| io(dir, "open")(e.into()))?;
        let mut found = scan(dir, &fd)?;
        let Some(end) = found.ends[0] else {
            return Err(damaged(dir, "partition 0 has no end-of-data file"));
        };
        let mut partitions = vec![partition(dir, &fd, 0, end, &mut found.objects[0])?];
        if let Some(end) = found.ends[1] {
            partitions.push(partition(dir, &fd, 1, end, &mut found.objects[1])?);
        }
        // A power failure during FORMAT MEDIUM, or another program, may have left another number of partitions.
        meta.partitions.resize(partitions.len(), meta.capacity);
        let mut attributes = BTreeMap::new();
        for (p, id) in found.attributes {
            attributes.insert((p, id), attribute(&dir.join(super::mam::file_name(p, id)))?);
        }
        let generation = Generation::of(&Barcode::from(barcode));
        let (barcode, dir) = (barcode.to_string(), dir.to_path_buf());
        Ok(Self {
            generation,
            barcode,
            meta,
            dir,
            fd,
            partitions,
            attributes,
            unsynced: Unsynced::default(),
            faults,
            stock: Arc::default(),
        })
    }
}

fn partition(
    dir: &Path,
    fd: &OwnedFd,
    number: u8,
    end: u64,
    objects: &mut BTreeMap<u64, Kind>,
) -> Result<Partition> {
    for (block, kind) in objects.split_off(&end) {
        unlinkat(fd, kind.name(number, block), AtFlags::empty())
            .map_err(|e| io(dir, "remove unflushed objects")(e.into()))?;
    }
    let mut index = Index::default();
    let mut sealed = BTreeSet::new();
    for (block, kind) in &*objects {
        if *block != index.end() {
            break;
        }
        let mut length = 0;
        if *kind != Kind::Mark {
            let name = kind.name(number, *block);
            let stat = statat(fd, &name, AtFlags::empty()).map_err(|e| io(dir, "examine")(e.into()))?;
            let more = if *kind == Kind::Sealed { super::seal::OVERHEAD as i64 } else { 0 };
            length = u32::try_from(stat.st_size - more).ok().filter(|n| *n > 0).ok_or_else(|| {
                damaged(dir.join(&name), format!("a record cannot have {} bytes", stat.st_size))
            })?;
        }
        if *kind == Kind::Sealed {
            sealed.insert(*block);
        }
        index.push(length);
    }
    if index.end() != end {
        return Err(damaged(dir, format!("object {} of partition {number} is missing", index.end())));
    }
    Ok(Partition { index, flushed: end, sealed })
}

fn attribute(path: &Path) -> Result<Attribute> {
    let raw = fs::read(path).map_err(io(path, "read"))?;
    match Attribute::decode(&raw) {
        Ok((attribute, length)) if length == raw.len() => Ok(attribute),
        _ => Err(damaged(path, "is not a cartridge memory attribute")),
    }
}
