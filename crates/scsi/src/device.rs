//! What drives and changers have in common: running a command, inquiry, mode and log pages, attributes, sense.

use crate::inquiry::{self, Designator, Inquiry};
use crate::log::{self, LogParameter};
use crate::mam::{self, Attribute};
use crate::mode::{self, ModeData};
use crate::{Data, DecodeError, GOOD, Result, ScsiError, Sense, SenseKey, Transport, opcode, timeout};
use std::time::Duration;

/// Room for all attributes of a cartridge memory (32 KiB at most, as of LTO-9); host adapters may not carry much more.
const ATTRIBUTES_BYTES: u32 = 128 << 10;

/// One logical unit behind a transport. Methods here exist for drives and changers alike.
pub struct Device {
    transport: Box<dyn Transport>,
    /// Some command ended with "cleaning requested".
    cleaning_requested: bool,
}

/// A command that came back with GOOD, or with sense that the caller has to look at.
pub(crate) struct Completed {
    pub(crate) transferred: usize,
    pub(crate) sense: Option<Sense>,
}

/// Additional sense: cleaning requested. The command was carried out.
const CLEANING_REQUESTED: (u8, u8) = (0x00, 0x17);

impl Device {
    /// Takes over a transport.
    pub fn new(transport: Box<dyn Transport>) -> Self {
        Self { transport, cleaning_requested: false }
    }

    /// Name of the device for messages.
    pub fn name(&self) -> &str {
        self.transport.name()
    }

    /// Whether the device has asked to be cleaned (sense 0/00/17, with whatever command) since this was asked last.
    pub fn take_cleaning_request(&mut self) -> bool {
        std::mem::take(&mut self.cleaning_requested)
    }

    /// The transport, for commands that have no method here.
    pub fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    /// Runs a command; sense comes back as data.
    pub(crate) fn run(
        &mut self,
        command: &'static str,
        cdb: &[u8],
        data: Data<'_>,
        timeout: Duration,
    ) -> Result<Completed> {
        let reply = self.transport.execute(cdb, data, timeout)?;
        let transferred = reply.transferred;
        match reply.status {
            GOOD => Ok(Completed { transferred, sense: None }),
            crate::CHECK_CONDITION => match Sense::decode(&reply.sense) {
                Some(sense) => {
                    self.cleaning_requested |= (sense.asc, sense.ascq) == CLEANING_REQUESTED;
                    Ok(Completed { transferred, sense: Some(sense) })
                }
                None => {
                    let detail = DecodeError { what: "sense data", at: 0, len: reply.sense.len() };
                    Err(self.malformed(command, detail))
                }
            },
            status => Err(ScsiError::Status { device: self.name().to_string(), command, status }),
        }
    }

    /// Runs a command that either works (recovered errors included) or does not; returns the bytes transferred.
    pub(crate) fn must(
        &mut self,
        command: &'static str,
        cdb: &[u8],
        data: Data<'_>,
        timeout: Duration,
    ) -> Result<usize> {
        let done = self.run(command, cdb, data, timeout)?;
        match done.sense {
            None => Ok(done.transferred),
            Some(s) if !s.deferred && matches!(s.key, SenseKey::RecoveredError | SenseKey::NoSense) => {
                Ok(done.transferred)
            }
            Some(sense) => Err(self.check(command, sense)),
        }
    }

    /// Runs a data-in command with a buffer of `alloc` bytes; returns the bytes that arrived.
    pub(crate) fn fetch(
        &mut self,
        command: &'static str,
        cdb: &[u8],
        alloc: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>> {
        let mut buf = vec![0; alloc];
        let n = self.must(command, cdb, Data::In(&mut buf), timeout)?;
        buf.truncate(n);
        Ok(buf)
    }

    pub(crate) fn check(&self, command: &'static str, sense: Sense) -> ScsiError {
        ScsiError::Check { device: self.name().to_string(), command, sense }
    }

    pub(crate) fn malformed(&self, command: &'static str, detail: DecodeError) -> ScsiError {
        ScsiError::Malformed { device: self.name().to_string(), command, detail }
    }

    pub(crate) fn decoded<T>(
        &self,
        command: &'static str,
        result: std::result::Result<T, DecodeError>,
    ) -> Result<T> {
        result.map_err(|detail| self.malformed(command, detail))
    }

    /// TEST UNIT READY: Ok when ready; otherwise the sense says why (unit attentions are consumed by being reported).
    pub fn test_unit_ready(&mut self) -> Result<()> {
        self.must("TEST UNIT READY", &[opcode::TEST_UNIT_READY, 0, 0, 0, 0, 0], Data::None, timeout::SHORT)?;
        Ok(())
    }

    /// REQUEST SENSE: pending sense, `NoSense 00/00` if there is none.
    pub fn request_sense(&mut self) -> Result<Sense> {
        let raw =
            self.fetch("REQUEST SENSE", &[opcode::REQUEST_SENSE, 0, 0, 0, 252, 0], 252, timeout::SHORT)?;
        let bad = DecodeError { what: "sense data", at: 0, len: raw.len() };
        self.decoded("REQUEST SENSE", Sense::decode(&raw).ok_or(bad))
    }

    /// Standard INQUIRY data.
    pub fn inquiry(&mut self) -> Result<Inquiry> {
        let raw = self.fetch("INQUIRY", &[opcode::INQUIRY, 0, 0, 0, 96, 0], 96, timeout::SHORT)?;
        self.decoded("INQUIRY", inquiry::decode(&raw))
    }

    /// A vital product data page, without its 4-byte header.
    pub fn vital_product_data(&mut self, page: u8) -> Result<Vec<u8>> {
        let cdb = [opcode::INQUIRY, 1, page, 0x10, 0, 0];
        let raw = self.fetch("INQUIRY", &cdb, 0x1000, timeout::SHORT)?;
        self.decoded("INQUIRY", inquiry::decode_page(&raw, page).map(<[u8]>::to_vec))
    }

    /// Unit serial number (VPD page 80h).
    pub fn unit_serial(&mut self) -> Result<String> {
        Ok(crate::bytes::text(&self.vital_product_data(inquiry::PAGE_SERIAL)?))
    }

    /// Designators of the device (VPD page 83h).
    pub fn designators(&mut self) -> Result<Vec<Designator>> {
        let raw = self.vital_product_data(inquiry::PAGE_DEVICE_ID)?;
        self.decoded("INQUIRY", inquiry::decode_designators(&raw))
    }

    /// PREVENT ALLOW MEDIUM REMOVAL.
    pub fn prevent_removal(&mut self, prevent: bool) -> Result<()> {
        let cdb = [opcode::PREVENT_ALLOW, 0, 0, 0, u8::from(prevent), 0];
        self.must("PREVENT ALLOW MEDIUM REMOVAL", &cdb, Data::None, timeout::SHORT)?;
        Ok(())
    }

    /// MODE SENSE(10), current values, with block descriptor where the device has one. Page 0 asks for no page.
    pub fn mode_sense(&mut self, page: u8, subpage: u8) -> Result<ModeData> {
        let cdb = [opcode::MODE_SENSE_10, 0, page & 0x3F, subpage, 0, 0, 0, 0x10, 0, 0];
        let raw = self.fetch("MODE SENSE", &cdb, 0x1000, timeout::SHORT)?;
        self.decoded("MODE SENSE", mode::decode(&raw))
    }

    /// MODE SELECT(10) with page format, values not saved.
    pub fn mode_select(&mut self, data: &ModeData) -> Result<()> {
        let list = data.encode_for_select();
        let length = (list.len() as u16).to_be_bytes();
        let cdb = [opcode::MODE_SELECT_10, 0x10, 0, 0, 0, 0, 0, length[0], length[1], 0];
        self.must("MODE SELECT", &cdb, Data::Out(&list), timeout::SHORT)?;
        Ok(())
    }

    /// LOG SENSE of cumulative values: all parameters of a page.
    pub fn log_sense(&mut self, page: u8, subpage: u8) -> Result<Vec<LogParameter>> {
        let cdb = [opcode::LOG_SENSE, 0, 0x40 | (page & 0x3F), subpage, 0, 0, 0, 0xFF, 0xFF, 0];
        let raw = self.fetch("LOG SENSE", &cdb, 0xFFFF, timeout::SHORT)?;
        self.decoded("LOG SENSE", log::decode(&raw, page, subpage))
    }

    /// READ ATTRIBUTE: all attributes of a partition's cartridge memory.
    pub fn read_attributes(&mut self, partition: u8) -> Result<Vec<Attribute>> {
        let raw = self.attributes_from(partition, 0, ATTRIBUTES_BYTES)?;
        self.decoded("READ ATTRIBUTE", mam::decode_list(&raw))
    }

    /// READ ATTRIBUTE: one attribute, None where the cartridge does not have it.
    pub fn read_attribute(&mut self, partition: u8, id: u16) -> Result<Option<Attribute>> {
        let raw = match self.attributes_from(partition, id, 0x1_0000) {
            Ok(raw) => raw,
            Err(ScsiError::Check { sense, .. }) if sense.is(SenseKey::IllegalRequest, 0x24, 0) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let list = self.decoded("READ ATTRIBUTE", mam::decode_prefix(&raw))?;
        Ok(list.into_iter().find(|a| a.id == id))
    }

    fn attributes_from(&mut self, partition: u8, first: u16, alloc: u32) -> Result<Vec<u8>> {
        let mut cdb = [0u8; 16];
        cdb[0] = opcode::READ_ATTRIBUTE;
        cdb[7] = partition;
        cdb[8..10].copy_from_slice(&first.to_be_bytes());
        cdb[10..14].copy_from_slice(&alloc.to_be_bytes());
        self.fetch("READ ATTRIBUTE", &cdb, alloc as usize, timeout::SHORT)
    }

    /// WRITE ATTRIBUTE, written through to the cartridge. An attribute with an empty value is deleted.
    pub fn write_attributes(&mut self, partition: u8, attributes: &[Attribute]) -> Result<()> {
        let list = mam::encode_list(attributes);
        let mut cdb = [0u8; 16];
        cdb[0] = opcode::WRITE_ATTRIBUTE;
        cdb[1] = 0x01;
        cdb[7] = partition;
        cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
        self.must("WRITE ATTRIBUTE", &cdb, Data::Out(&list), timeout::SHORT)?;
        Ok(())
    }
}
