//! Medium auxiliary memory: attributes kept in the cartridge's chip (SPC-4 section 7.4, SSC-4, LTFS 2.4 annex).

use crate::bytes::{DecodeError, Fields};

/// Attribute ids.
pub mod id {
    #![allow(missing_docs)]
    pub const REMAINING_CAPACITY: u16 = 0x0000; // MiB, u64
    pub const MAXIMUM_CAPACITY: u16 = 0x0001; // MiB, u64
    pub const LOAD_COUNT: u16 = 0x0003; // u64
    pub const MAM_SPACE_REMAINING: u16 = 0x0004; // bytes, u64
    pub const ASSIGNING_ORGANIZATION: u16 = 0x0005;
    pub const FORMATTED_DENSITY: u16 = 0x0006;
    pub const INITIALIZATION_COUNT: u16 = 0x0007; // u16
    pub const VOLUME_CHANGE_REFERENCE: u16 = 0x0009; // u32
    pub const LAST_DEVICE: u16 = 0x020A; // vendor 8, serial 32
    pub const PREVIOUS_DEVICE: u16 = 0x020B;
    pub const TOTAL_WRITTEN: u16 = 0x0220; // MiB, u64
    pub const TOTAL_READ: u16 = 0x0221;
    pub const LAST_WRITTEN: u16 = 0x0222; // MiB in this load
    pub const LAST_READ: u16 = 0x0223;
    pub const MEDIUM_MANUFACTURER: u16 = 0x0400;
    pub const MEDIUM_SERIAL: u16 = 0x0401;
    pub const MEDIUM_LENGTH: u16 = 0x0402; // metres, u32
    pub const MEDIUM_WIDTH: u16 = 0x0403; // tenths of a millimetre, u32
    pub const MEDIUM_ORGANIZATION: u16 = 0x0404;
    pub const MEDIUM_DENSITY: u16 = 0x0405;
    pub const MANUFACTURE_DATE: u16 = 0x0406; // YYYYMMDD
    pub const MAM_CAPACITY: u16 = 0x0407; // bytes, u64
    pub const MEDIUM_TYPE: u16 = 0x0408; // u8: 0 data, 1 cleaning, 80h write once
    pub const MEDIUM_TYPE_INFORMATION: u16 = 0x0409;
    pub const APPLICATION_VENDOR: u16 = 0x0800;
    pub const APPLICATION_NAME: u16 = 0x0801;
    pub const APPLICATION_VERSION: u16 = 0x0802;
    pub const TEXT_LABEL: u16 = 0x0803;
    pub const DATE_LAST_WRITTEN: u16 = 0x0804;
    pub const TEXT_LOCALIZATION: u16 = 0x0805;
    pub const BARCODE: u16 = 0x0806;
    pub const OWNING_HOST: u16 = 0x0807;
    pub const MEDIA_POOL: u16 = 0x0808;
    pub const FORMAT_VERSION: u16 = 0x080B;
    pub const VOLUME_COHERENCY: u16 = 0x080C;
}

/// How a value is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Format {
    /// Bytes or a big-endian number.
    Binary = 0,
    /// ASCII, space padded.
    Ascii = 1,
    /// Text in the character set of attribute 0805h.
    Text = 2,
}

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Identifier, see [`id`].
    pub id: u16,
    /// Format of the value.
    pub format: Format,
    /// Written by the device only.
    pub read_only: bool,
    /// Value; empty means delete when written.
    pub value: Vec<u8>,
}

impl Attribute {
    /// A binary attribute.
    pub fn binary(id: u16, value: impl Into<Vec<u8>>) -> Self {
        Self { id, format: Format::Binary, read_only: false, value: value.into() }
    }

    /// An ASCII attribute, cut or padded with spaces to `width`.
    pub fn ascii(id: u16, value: &str, width: usize) -> Self {
        Self::padded(id, Format::Ascii, value, width)
    }

    /// A text attribute, cut (at a character boundary) or padded with spaces to `width`.
    pub fn text(id: u16, value: &str, width: usize) -> Self {
        Self::padded(id, Format::Text, value, width)
    }

    fn padded(id: u16, format: Format, value: &str, width: usize) -> Self {
        let fits = |end: &usize| value.is_char_boundary(*end);
        let end = (0..=width.min(value.len())).rev().find(fits).unwrap_or(0);
        let mut bytes = value.as_bytes()[..end].to_vec();
        bytes.resize(width, b' ');
        Self { id, format, read_only: false, value: bytes }
    }

    /// The value as a big-endian number; None when it has no bytes or more than eight.
    pub fn number(&self) -> Option<u64> {
        (1..=8).contains(&self.value.len()).then(|| crate::bytes::uint(&self.value))
    }

    /// The attribute with its 5-byte header: id, format (bit 7: read only), length, value.
    ///
    /// A value longer than 65535 bytes cannot be expressed and is cut.
    pub fn encode(&self) -> Vec<u8> {
        let length = self.value.len().min(usize::from(u16::MAX));
        let mut raw = Vec::with_capacity(5 + length);
        raw.extend_from_slice(&self.id.to_be_bytes());
        raw.push(self.format as u8 | (u8::from(self.read_only) << 7));
        raw.extend_from_slice(&(length as u16).to_be_bytes());
        raw.extend_from_slice(&self.value[..length]);
        raw
    }

    /// Decodes one attribute at the start of `raw`; returns it and its length in bytes.
    pub fn decode(raw: &[u8]) -> Result<(Self, usize), DecodeError> {
        let f = Fields::new("MAM attribute", raw);
        let flags = f.u8(2)?;
        let format = match flags & 0x03 {
            0 => Format::Binary,
            1 => Format::Ascii,
            2 => Format::Text,
            _ => return Err(f.bad(2)),
        };
        let length = usize::from(f.u16(3)?);
        let value = f.slice(5, length)?.to_vec();
        Ok((Self { id: f.u16(0)?, format, read_only: flags & 0x80 != 0, value }, 5 + length))
    }
}

/// Decodes the reply of READ ATTRIBUTE (attribute values): 4-byte length, attributes.
pub fn decode_list(raw: &[u8]) -> Result<Vec<Attribute>, DecodeError> {
    let f = Fields::new("READ ATTRIBUTE data", raw);
    let mut rest = f.slice(4, f.u32(0)? as usize)?;
    let mut list = Vec::new();
    while !rest.is_empty() {
        let (attribute, n) = Attribute::decode(rest)?;
        list.push(attribute);
        rest = &rest[n..];
    }
    Ok(list)
}

/// The attributes that are wholly in a reply which the allocation length may have cut.
pub fn decode_prefix(raw: &[u8]) -> Result<Vec<Attribute>, DecodeError> {
    let f = Fields::new("READ ATTRIBUTE data", raw);
    let length = (f.u32(0)? as usize).min(raw.len().saturating_sub(4));
    let mut rest = f.slice(4, length)?;
    let mut list = Vec::new();
    while let Ok((attribute, n)) = Attribute::decode(rest) {
        list.push(attribute);
        rest = &rest[n..];
    }
    Ok(list)
}

/// Encodes the parameter list of WRITE ATTRIBUTE (the same form as the reply of READ ATTRIBUTE).
pub fn encode_list(attributes: &[Attribute]) -> Vec<u8> {
    let body: Vec<u8> = attributes.iter().flat_map(Attribute::encode).collect();
    let mut raw = (body.len() as u32).to_be_bytes().to_vec();
    raw.extend(body);
    raw
}
