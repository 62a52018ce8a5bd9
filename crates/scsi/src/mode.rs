//! Mode parameters (SPC-4 section 7.5, SSC-4 section 8.3).

use crate::bytes::{DecodeError, Fields};

/// Page: control.
pub const PAGE_CONTROL: u8 = 0x0A;
/// Subpage of the control page: control data protection.
pub const SUBPAGE_DATA_PROTECTION: u8 = 0xF0;
/// Page: data compression.
pub const PAGE_COMPRESSION: u8 = 0x0F;
/// Page: device configuration.
pub const PAGE_DEVICE_CONFIGURATION: u8 = 0x10;
/// Subpage of the device configuration page: extension.
pub const SUBPAGE_CONFIGURATION_EXTENSION: u8 = 0x01;
/// Page: medium partitions.
pub const PAGE_PARTITIONS: u8 = 0x11;
/// Page: medium configuration (drives).
pub const PAGE_MEDIUM_CONFIGURATION: u8 = 0x1D;
/// Page: element address assignment (changers).
pub const PAGE_ELEMENTS: u8 = 0x1D;

/// Block descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockDescriptor {
    /// Density code.
    pub density: u8,
    /// Number of blocks (24 bits; 0: all).
    pub blocks: u32,
    /// Block length in bytes (24 bits; 0: variable).
    pub block_length: u32,
}

/// Header, first block descriptor and first page of a mode parameter list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModeData {
    /// Medium type.
    pub medium_type: u8,
    /// Medium is write protected (reply only).
    pub write_protected: bool,
    /// Buffered mode: 1 means that writes end when in the buffer.
    pub buffered_mode: u8,
    /// Speed code.
    pub speed: u8,
    /// First block descriptor.
    pub block: Option<BlockDescriptor>,
    /// All pages, with their headers (page code and length), as they came.
    pub pages: Vec<u8>,
}

impl ModeData {
    /// The parameter list for MODE SELECT(10): mode data length 0, write protection 0, PS bit of the page cleared.
    pub fn encode_for_select(&self) -> Vec<u8> {
        let mut raw =
            vec![0, 0, self.medium_type, (self.buffered_mode << 4) | (self.speed & 0x0F), 0, 0, 0, 0];
        if let Some(b) = &self.block {
            raw[7] = 8;
            raw.push(b.density);
            raw.extend_from_slice(&b.blocks.to_be_bytes()[1..]);
            raw.push(0);
            raw.extend_from_slice(&b.block_length.to_be_bytes()[1..]);
        }
        let page_at = raw.len();
        raw.extend_from_slice(&self.pages);
        if let Some(code) = raw.get_mut(page_at) {
            *code &= 0x7F;
        }
        raw
    }
}

/// Decodes the reply of MODE SENSE(10).
pub fn decode(raw: &[u8]) -> Result<ModeData, DecodeError> {
    let f = Fields::new("mode parameters", raw);
    let end = usize::from(f.u16(0)?) + 2;
    if end > raw.len() {
        return Err(f.bad(raw.len()));
    }
    let flags = f.u8(3)?;
    let descriptors = usize::from(f.u16(6)?);
    let block = match descriptors {
        0 => None,
        _ => Some(BlockDescriptor {
            density: f.u8(8)?,
            blocks: f.uint(9, 3)? as u32,
            block_length: f.uint(13, 3)? as u32,
        }),
    };
    let pages_at = 8 + descriptors;
    let pages = f.slice(pages_at, end.checked_sub(pages_at).ok_or_else(|| f.bad(6))?)?.to_vec();
    Ok(ModeData {
        medium_type: f.u8(2)?,
        write_protected: flags & 0x80 != 0,
        buffered_mode: (flags >> 4) & 0x07,
        speed: flags & 0x0F,
        block,
        pages,
    })
}

/// Control data protection, page 0Ah subpage F0h (SSC-4 section 8.3.9): whether each record is followed by a sum on its way
/// to and from the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataProtection {
    /// How the sum is made: 0 none, 1 Reed-Solomon CRC, 2 CRC-32C.
    pub method: u8,
    /// Bytes that it takes behind a record.
    pub length: u8,
    /// Records written carry it, and the drive checks it.
    pub on_write: bool,
    /// Records read carry it.
    pub on_read: bool,
}

impl DataProtection {
    /// None.
    pub const OFF: Self = Self { method: 0, length: 0, on_write: false, on_read: false };
    /// CRC-32C both ways.
    pub const CRC32C: Self = Self { method: 2, length: 4, on_write: true, on_read: true };

    /// Decodes the page, header included.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::new("control data protection page", raw);
        if f.u8(0)? & 0x7F != 0x40 | PAGE_CONTROL || f.u8(1)? != SUBPAGE_DATA_PROTECTION {
            return Err(f.bad(0));
        }
        let flags = f.u8(6)?;
        Ok(Self {
            method: f.u8(4)?,
            length: f.u8(5)? & 0x3F,
            on_write: flags & 0x80 != 0,
            on_read: flags & 0x40 != 0,
        })
    }

    /// Puts it into a page as a drive gave it; all else in the page stays.
    pub fn put(&self, page: &mut [u8]) -> Result<(), DecodeError> {
        Self::decode(page)?;
        page[4] = self.method;
        page[5] = (page[5] & 0xC0) | (self.length & 0x3F);
        page[6] = (page[6] & 0x3F) | (u8::from(self.on_write) << 7) | (u8::from(self.on_read) << 6);
        Ok(())
    }

    /// Encodes the page, header included, as a drive does.
    pub fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; 32];
        page[..4].copy_from_slice(&[0x40 | PAGE_CONTROL, SUBPAGE_DATA_PROTECTION, 0, 28]);
        // Cannot fail: the header is that of the page.
        let _ = self.put(&mut page);
        page
    }
}

/// Medium partition page 11h (SSC-4 section 8.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionPage {
    /// How many partitions beyond the first the drive can make.
    pub max_additional: u8,
    /// How many partitions beyond the first the medium has (reply) or shall get (select).
    pub additional: u8,
    /// Flags: FDP 80h, SDP 40h, IDP 20h, PSUM 18h (0 bytes, 1 kilobytes, 2 megabytes, 3 ten to the power of units),
    /// POFM 04h (change only at FORMAT MEDIUM), CLEAR 02h, ADDP 01h.
    pub flags: u8,
    /// Medium format recognition.
    pub recognition: u8,
    /// Power of ten of a size unit when PSUM is 3.
    pub units: u8,
    /// Sizes in units, in order of partition; FFFFh takes the rest.
    pub sizes: Vec<u16>,
}

impl PartitionPage {
    /// Flag: the initiator defines the partitions.
    pub const IDP: u8 = 0x20;
    /// Flags: units are ten to the power of `units` bytes.
    pub const PSUM_POWER: u8 = 0x18;
    /// Flag: takes effect at FORMAT MEDIUM.
    pub const POFM: u8 = 0x04;

    /// Decodes the page, header included.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::new("medium partition page", raw);
        if f.u8(0)? & 0x3F != PAGE_PARTITIONS {
            return Err(f.bad(0));
        }
        let end = 2 + usize::from(f.u8(1)?);
        let body = f.slice(8.min(end), end.saturating_sub(8))?;
        Ok(Self {
            max_additional: f.u8(2)?,
            additional: f.u8(3)?,
            flags: f.u8(4)?,
            recognition: f.u8(5)?,
            units: f.u8(6)? & 0x0F,
            sizes: body.chunks_exact(2).map(|c| u16::from_be_bytes([c[0], c[1]])).collect(),
        })
    }

    /// Encodes the page, header included (at most 123 sizes).
    pub fn encode(&self) -> Vec<u8> {
        let sizes = &self.sizes[..self.sizes.len().min(123)];
        let length = (6 + 2 * sizes.len()) as u8;
        let mut raw = vec![
            PAGE_PARTITIONS,
            length,
            self.max_additional,
            self.additional,
            self.flags,
            self.recognition,
            self.units & 0x0F,
            0,
        ];
        raw.extend(sizes.iter().flat_map(|s| s.to_be_bytes()));
        raw
    }
}
