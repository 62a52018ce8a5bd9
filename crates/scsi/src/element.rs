//! Elements of a changer: READ ELEMENT STATUS data and the element address assignment page (SMC-3 sections 6.11, 7.3.4).

use crate::bytes::{DecodeError, Fields, text};
use crate::inquiry::decode_designators;

/// Element type code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ElementType {
    /// Robot hand.
    Transport = 1,
    /// Slot.
    Storage = 2,
    /// Mail slot.
    ImportExport = 3,
    /// Drive.
    DataTransfer = 4,
}

impl ElementType {
    /// All types in order of code.
    pub const ALL: [ElementType; 4] =
        [ElementType::Transport, ElementType::Storage, ElementType::ImportExport, ElementType::DataTransfer];

    /// From its code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|t| *t as u8 == code)
    }
}

/// A run of element addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub first: u16,
    /// Number of elements.
    pub count: u16,
}

/// Element address assignment page 1Dh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElementAssignment {
    /// Robot hands.
    pub transport: Range,
    /// Slots.
    pub storage: Range,
    /// Mail slots.
    pub import_export: Range,
    /// Drives.
    pub data_transfer: Range,
}

impl ElementAssignment {
    /// Addresses of one type.
    pub fn range(&self, kind: ElementType) -> Range {
        match kind {
            ElementType::Transport => self.transport,
            ElementType::Storage => self.storage,
            ElementType::ImportExport => self.import_export,
            ElementType::DataTransfer => self.data_transfer,
        }
    }

    /// Decodes the page, header included.
    pub fn decode(page: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::new("element address assignment page", page);
        if f.u8(0)? & 0x3F != crate::mode::PAGE_ELEMENTS {
            return Err(f.bad(0));
        }
        let range = |at| Ok(Range { first: f.u16(at)?, count: f.u16(at + 2)? });
        Ok(Self {
            transport: range(2)?,
            storage: range(6)?,
            import_export: range(10)?,
            data_transfer: range(14)?,
        })
    }
}

/// One element as the changer reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Type.
    pub kind: ElementType,
    /// Address.
    pub address: u16,
    /// Holds a cartridge.
    pub full: bool,
    /// The robot can reach it; for a drive: the cartridge can be taken out.
    pub access: bool,
    /// Mail slot: placed by an operator, not by the robot.
    pub placed_by_operator: bool,
    /// Additional sense code and qualifier, if the element is in an exceptional state.
    pub exception: Option<(u8, u8)>,
    /// Slot the cartridge was last moved from, where known.
    pub source: Option<u16>,
    /// Barcode, where asked for and readable.
    pub barcode: Option<String>,
    /// Identifier of the device (drives; usually its serial number, maybe with vendor and product), where asked for.
    pub device: Option<String>,
}

/// Decodes READ ELEMENT STATUS data. Pages whose descriptors the reply cuts off are decoded as far as they are whole,
/// so that a caller can go on behind the last address.
pub fn decode(raw: &[u8]) -> Result<Vec<Element>, DecodeError> {
    let f = Fields::new("READ ELEMENT STATUS data", raw);
    let report = f.uint(5, 3)? as usize;
    let mut rest = f.slice(8, report.min(raw.len().saturating_sub(8)))?;
    let mut list = Vec::new();
    while rest.len() >= 8 {
        let p = Fields::new("element status page", rest);
        let kind = ElementType::from_code(p.u8(0)?).ok_or_else(|| p.bad(0))?;
        let flags = p.u8(1)?;
        let width = usize::from(p.u16(2)?);
        let length = (p.uint(5, 3)? as usize).min(rest.len() - 8);
        if width < 12 {
            return Err(p.bad(2));
        }
        for descriptor in p.slice(8, length)?.chunks_exact(width) {
            list.push(decode_descriptor(kind, flags, descriptor)?);
        }
        rest = &rest[8 + length..];
    }
    Ok(list)
}

/// Some changers (tgt 1.0) leave out the page header when they count how much they send: then the last eight bytes of the
/// last descriptor are missing. Gives them back as zeros if they lie behind the barcode, and takes out a device identifier
/// that reaches into them, so that nothing is read that was not sent. Call it only with a reply that is shorter than the
/// room for it.
pub fn complete(raw: &mut Vec<u8>) {
    const MISSING: usize = 8;
    let f = Fields::new("READ ELEMENT STATUS data", raw);
    let head = || Some((f.u8(9).ok()?, usize::from(f.u16(10).ok()?), f.uint(13, 3).ok()? as usize));
    let Some((flags, width, length)) = head() else { return };
    let tags = usize::from(flags & 0x80 != 0) + usize::from(flags & 0x40 != 0);
    // Offset of the identifier, and how much of the descriptor was sent. A tag ends in four bytes without text.
    let (identifier, sent) = (12 + 36 * tags, width.saturating_sub(MISSING));
    let text_sent = sent + if tags > 0 { 4 } else { 0 } >= identifier;
    if raw.len() + MISSING != 16 + length || length < width || width < identifier + 4 || !text_sent {
        return;
    }
    raw.resize(16 + length, 0);
    raw[5..8].copy_from_slice(&((8 + length) as u32).to_be_bytes()[1..]);
    let last = 16 + length - width;
    if identifier + 4 + usize::from(raw[last + identifier + 3]) > sent {
        raw[last + identifier..].fill(0);
    }
}

fn decode_descriptor(kind: ElementType, page_flags: u8, raw: &[u8]) -> Result<Element, DecodeError> {
    let f = Fields::new("element descriptor", raw);
    let flags = f.u8(2)?;
    let mut at = 12;
    let mut barcode = None;
    if page_flags & 0x80 != 0 {
        barcode = Some(text(f.slice(at, 32)?)).filter(|b| !b.is_empty());
        at += 36;
    }
    if page_flags & 0x40 != 0 {
        at += 36; // alternate volume tag
    }
    Ok(Element {
        kind,
        address: f.u16(0)?,
        full: flags & 0x01 != 0,
        access: flags & 0x08 != 0,
        placed_by_operator: kind == ElementType::ImportExport && flags & 0x02 != 0,
        exception: if flags & 0x04 != 0 { Some((f.u8(4)?, f.u8(5)?)) } else { None },
        source: if f.u8(9)? & 0x80 != 0 { Some(f.u16(10)?) } else { None },
        barcode,
        device: raw.get(at..).and_then(decode_device),
    })
}

/// The device identifier: designation descriptor header (code set, type, reserved, length) and identifier.
fn decode_device(raw: &[u8]) -> Option<String> {
    let length = usize::from(*raw.get(3)?);
    let one = raw.get(..4 + length)?;
    let designator = decode_designators(one).ok()?.into_iter().next()?;
    Some(text(&designator.value)).filter(|s| !s.is_empty())
}
