//! The cartridge's chip: attributes kept as files `attr_<partition>_<hexid>`, and those that follow from the state.

use super::Cartridge;
use crate::durable;
use crate::error::{Result, io};
use crate::fault::HostOp;
use scsi::Attribute;
use scsi::mam::{Format, id};
use std::io::ErrorKind;
use types::Generation;

pub(super) fn file_name(partition: u8, id: u16) -> String {
    format!("attr_{partition}_{id:x}")
}

fn fixed(id: u16, format: Format, value: impl Into<Vec<u8>>) -> Attribute {
    Attribute { id, format, read_only: true, value: value.into() }
}

fn padded(id: u16, value: &str, width: usize) -> Attribute {
    Attribute { read_only: true, ..Attribute::ascii(id, value, width) }
}

const MIB: u64 = 1 << 20;

impl Cartridge {
    /// Volume change reference: kept by the drive, one for the whole volume.
    pub(crate) fn change_reference(&self) -> u32 {
        let stored = self.attributes.get(&(0, id::VOLUME_CHANGE_REFERENCE));
        stored.and_then(Attribute::number).map_or(0, |n| n as u32)
    }

    /// Counts the volume change reference up, durably, before the first change to the medium since it was loaded.
    pub(crate) fn bump_change_reference(&mut self) -> Result<()> {
        let next = self.change_reference().wrapping_add(1).max(1);
        let attribute = fixed(id::VOLUME_CHANGE_REFERENCE, Format::Binary, next.to_be_bytes());
        self.store_attribute(0, attribute)
    }

    /// Stores (or, when its value is empty, deletes) an attribute durably.
    pub(crate) fn store_attribute(&mut self, partition: u8, attribute: Attribute) -> Result<()> {
        let path = self.dir.join(file_name(partition, attribute.id));
        let key = (partition, attribute.id);
        self.host(HostOp::Chip).map_err(io(&path, "write"))?;
        if attribute.value.is_empty() {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(io(path, "remove")(e)),
                _ => self.attributes.remove(&key),
            };
            return durable::sync_parent(&path);
        }
        durable::replace(&path, &attribute.encode())?;
        self.attributes.insert(key, attribute);
        Ok(())
    }

    /// Records a load: counts it, and remembers the last two drives.
    pub(crate) fn record_load(&mut self, drive: &str) -> Result<()> {
        self.meta.loads += 1;
        self.meta.store(&self.dir)?;
        let last = self.attributes.get(&(0, id::LAST_DEVICE)).cloned();
        if let Some(last) = last {
            self.store_attribute(0, Attribute { id: id::PREVIOUS_DEVICE, ..last })?;
        }
        self.store_attribute(0, padded(id::LAST_DEVICE, &format!("{:8}{drive}", "IBM"), 40))
    }

    /// All attributes of a partition in order of id; the chip has them only as far as the partition exists.
    pub(crate) fn attributes(&self, partition: u8, mount: Moved) -> Vec<Attribute> {
        let mut all = self.derived(partition, mount);
        for ((p, id), a) in &self.attributes {
            let of_volume = *id < 0x0800;
            if (*p == partition || (of_volume && *p == 0)) && !all.iter().any(|d| d.id == *id) {
                all.push(a.clone());
            }
        }
        all.sort_by_key(|a| a.id);
        all
    }

    fn derived(&self, partition: u8, mount: Moved) -> Vec<Attribute> {
        let binary = |id, value: u64| fixed(id, Format::Binary, value.to_be_bytes());
        let capacity = self.capacity(partition);
        let density = crate::drive::density::code(self.generation().unwrap_or(Generation::Lto9));
        let chip: u64 = 16352;
        let taken: u64 = self.attributes.values().map(|a| 5 + a.value.len() as u64).sum();
        vec![
            binary(id::REMAINING_CAPACITY, capacity.saturating_sub(self.index(partition).used()) / MIB),
            binary(id::MAXIMUM_CAPACITY, capacity / MIB),
            binary(id::LOAD_COUNT, self.meta.loads),
            binary(id::MAM_SPACE_REMAINING, chip.saturating_sub(taken)),
            padded(id::ASSIGNING_ORGANIZATION, "LTO-CVE", 8),
            fixed(id::FORMATTED_DENSITY, Format::Binary, [density]),
            fixed(id::INITIALIZATION_COUNT, Format::Binary, 1u16.to_be_bytes()),
            binary(id::TOTAL_WRITTEN, self.meta.written / MIB),
            binary(id::TOTAL_READ, self.meta.read / MIB),
            binary(id::LAST_WRITTEN, mount.written / MIB),
            binary(id::LAST_READ, mount.read / MIB),
            padded(id::MEDIUM_MANUFACTURER, "THERMOCL", 8),
            padded(id::MEDIUM_SERIAL, &self.meta.serial, 32),
            fixed(id::MEDIUM_LENGTH, Format::Binary, 1035u32.to_be_bytes()),
            fixed(id::MEDIUM_WIDTH, Format::Binary, 127u32.to_be_bytes()),
            padded(id::MEDIUM_ORGANIZATION, "LTO-CVE", 8),
            fixed(id::MEDIUM_DENSITY, Format::Binary, [density]),
            padded(id::MANUFACTURE_DATE, "20260101", 8),
            binary(id::MAM_CAPACITY, chip),
            fixed(id::MEDIUM_TYPE, Format::Binary, [if self.meta.worm { 0x80 } else { 0 }]),
            fixed(id::MEDIUM_TYPE_INFORMATION, Format::Binary, [0, 0]),
            fixed(id::VOLUME_CHANGE_REFERENCE, Format::Binary, self.change_reference().to_be_bytes()),
        ]
    }
}

/// Bytes moved since the cartridge was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) written: u64,
    pub(crate) read: u64,
}
