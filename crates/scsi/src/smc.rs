//! A medium changer: robot of a tape library (SMC-3).

use crate::element::{self, Element, ElementAssignment, ElementType, Range};
use crate::{Data, Device, Result, ScsiError, SenseKey, Transport, mode, opcode, timeout};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A medium changer. Commands common to all devices come from [`Device`].
pub struct Smc {
    device: Device,
    /// What READ ELEMENT STATUS may ask for at once; some libraries refuse VOLTAG together with DVCID.
    tags_with_devices: bool,
}

/// Elements fetched per READ ELEMENT STATUS; real libraries report up to 10,000 slots.
const CHUNK: u16 = 256;

impl Deref for Smc {
    type Target = Device;
    fn deref(&self) -> &Device {
        &self.device
    }
}

impl DerefMut for Smc {
    fn deref_mut(&mut self) -> &mut Device {
        &mut self.device
    }
}

impl Smc {
    /// Takes over a transport to a changer.
    pub fn new(transport: Box<dyn Transport>) -> Self {
        Self { device: Device::new(transport), tags_with_devices: true }
    }

    fn simple(&mut self, command: &'static str, cdb: &[u8], timeout: Duration) -> Result<()> {
        self.must(command, cdb, Data::None, timeout).map(|_| ())
    }

    /// INITIALIZE ELEMENT STATUS: the library looks at all its elements itself.
    pub fn initialize_element_status(&mut self) -> Result<()> {
        let cdb = [opcode::INITIALIZE_ELEMENT_STATUS, 0, 0, 0, 0, 0];
        self.simple("INITIALIZE ELEMENT STATUS", &cdb, timeout::AUDIT)
    }

    /// Addresses of all elements (mode page 1Dh).
    pub fn element_addresses(&mut self) -> Result<ElementAssignment> {
        let data = self.mode_sense(mode::PAGE_ELEMENTS, 0)?;
        self.decoded("MODE SENSE", ElementAssignment::decode(&data.pages))
    }

    /// Status of all elements of all types, with barcodes, and identifiers of the drives; in order of address.
    pub fn read_all_elements(&mut self) -> Result<Vec<Element>> {
        let addresses = self.element_addresses()?;
        let mut all = Vec::new();
        for kind in ElementType::ALL {
            all.extend(self.read_elements(kind, addresses.range(kind))?);
        }
        all.sort_by_key(|e| e.address);
        Ok(all)
    }

    /// READ ELEMENT STATUS of a run of elements of one type, in chunks.
    pub fn read_elements(&mut self, kind: ElementType, range: Range) -> Result<Vec<Element>> {
        let end = u32::from(range.first) + u32::from(range.count);
        let mut next = u32::from(range.first);
        let mut list = Vec::new();
        while next < end {
            let count = (end - next).min(u32::from(CHUNK)) as u16;
            let part = self.read_chunk(kind, Range { first: next as u16, count })?;
            let last = part.iter().filter(|e| e.kind == kind).map(|e| u32::from(e.address)).max();
            list.extend(part.into_iter().filter(|e| e.kind == kind && u32::from(e.address) < end));
            // Addresses may have gaps, so a chunk can reach beyond its own length; an empty one ends the type.
            match last {
                Some(last) if last >= next => next = last + 1,
                _ => break,
            }
        }
        Ok(list)
    }

    fn read_chunk(&mut self, kind: ElementType, range: Range) -> Result<Vec<Element>> {
        let devices = kind == ElementType::DataTransfer;
        if !devices || self.tags_with_devices {
            match self.read_status(kind, range, true, devices) {
                Err(e) if devices && refused(&e) => self.tags_with_devices = false,
                done => return done,
            }
        }
        let mut list = self.read_status(kind, range, true, false)?;
        match self.read_status(kind, range, false, true) {
            Ok(identified) => {
                for e in &mut list {
                    e.device =
                        identified.iter().find(|i| i.address == e.address).and_then(|i| i.device.clone());
                }
            }
            Err(e) if refused(&e) => {} // the library cannot identify its drives
            Err(e) => return Err(e),
        }
        Ok(list)
    }

    fn read_status(
        &mut self,
        kind: ElementType,
        range: Range,
        tags: bool,
        devices: bool,
    ) -> Result<Vec<Element>> {
        const NAME: &str = "READ ELEMENT STATUS";
        let alloc = 16 + 128 * usize::from(range.count) + 64;
        let (a, n, l) = (range.first.to_be_bytes(), range.count.to_be_bytes(), (alloc as u32).to_be_bytes());
        let mut cdb = [0u8; 12];
        cdb[0] = opcode::READ_ELEMENT_STATUS;
        cdb[1] = kind as u8 | (u8::from(tags) << 4);
        cdb[2..4].copy_from_slice(&a);
        cdb[4..6].copy_from_slice(&n);
        cdb[6] = 0x02 | u8::from(devices); // CURDATA: do not move the robot for this
        cdb[7..10].copy_from_slice(&l[1..]);
        let mut raw = self.fetch(NAME, &cdb, alloc, timeout::SHORT)?;
        if raw.len() < alloc {
            element::complete(&mut raw);
        }
        self.decoded(NAME, element::decode(&raw))
    }

    /// MOVE MEDIUM from one element to another with the default robot hand.
    pub fn move_medium(&mut self, from: u16, to: u16) -> Result<()> {
        let (f, t) = (from.to_be_bytes(), to.to_be_bytes());
        let cdb = [opcode::MOVE_MEDIUM, 0, 0, 0, f[0], f[1], t[0], t[1], 0, 0, 0, 0];
        self.simple("MOVE MEDIUM", &cdb, timeout::MOVE)
    }

    /// EXCHANGE MEDIUM: `from` goes to `to`, and what was in `to` goes to `second` (which may equal `from`).
    pub fn exchange_medium(&mut self, from: u16, to: u16, second: u16) -> Result<()> {
        let (f, t, s) = (from.to_be_bytes(), to.to_be_bytes(), second.to_be_bytes());
        let cdb = [opcode::EXCHANGE_MEDIUM, 0, 0, 0, f[0], f[1], t[0], t[1], s[0], s[1], 0, 0];
        self.simple("EXCHANGE MEDIUM", &cdb, timeout::MOVE)
    }

    /// POSITION TO ELEMENT: moves the empty hand to an element.
    pub fn position_to_element(&mut self, to: u16) -> Result<()> {
        let t = to.to_be_bytes();
        let cdb = [opcode::POSITION_TO_ELEMENT, 0, 0, 0, t[0], t[1], 0, 0, 0, 0];
        self.simple("POSITION TO ELEMENT", &cdb, timeout::MOVE)
    }
}

fn refused(e: &ScsiError) -> bool {
    e.sense().is_some_and(|s| s.key == SenseKey::IllegalRequest)
}
