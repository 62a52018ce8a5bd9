//! INQUIRY data and vital product data pages (SPC-4 sections 6.4 and 7.8).

use crate::bytes::{DecodeError, Fields, text};

/// VPD page: unit serial number.
pub const PAGE_SERIAL: u8 = 0x80;
/// VPD page: device identification.
pub const PAGE_DEVICE_ID: u8 = 0x83;

/// Standard INQUIRY data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// Peripheral device type: 01h tape drive, 08h medium changer.
    pub device_type: u8,
    /// Medium is removable.
    pub removable: bool,
    /// Vendor, without padding.
    pub vendor: String,
    /// Product, without padding.
    pub product: String,
    /// Product revision, without padding.
    pub revision: String,
}

/// Decodes standard INQUIRY data.
pub fn decode(raw: &[u8]) -> Result<Inquiry, DecodeError> {
    let f = Fields::new("INQUIRY data", raw);
    Ok(Inquiry {
        device_type: f.u8(0)? & 0x1F,
        removable: f.u8(1)? & 0x80 != 0,
        vendor: text(f.slice(8, 8)?),
        product: text(f.slice(16, 16)?),
        revision: text(f.slice(32, 4)?),
    })
}

/// Checks the header of VPD page `page` and returns what follows it.
pub fn decode_page(raw: &[u8], page: u8) -> Result<&[u8], DecodeError> {
    let f = Fields::new("vital product data", raw);
    if f.u8(1)? != page {
        return Err(f.bad(1));
    }
    f.slice(4, usize::from(f.u16(2)?))
}

/// One designator of VPD page 83h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Designator {
    /// Code set: 1 binary, 2 ASCII, 3 UTF-8.
    pub code_set: u8,
    /// Association: 0 logical unit, 1 target port, 2 target device.
    pub association: u8,
    /// Designator type: 1 T10 vendor id, 3 NAA ...
    pub kind: u8,
    /// The identifier.
    pub value: Vec<u8>,
}

/// Decodes the designators in the body of VPD page 83h (also the list inside a changer's DVCID field).
pub fn decode_designators(mut raw: &[u8]) -> Result<Vec<Designator>, DecodeError> {
    let mut list = Vec::new();
    while !raw.is_empty() {
        let f = Fields::new("designation descriptor", raw);
        let length = usize::from(f.u8(3)?);
        list.push(Designator {
            code_set: f.u8(0)? & 0x0F,
            association: (f.u8(1)? >> 4) & 3,
            kind: f.u8(1)? & 0x0F,
            value: f.slice(4, length)?.to_vec(),
        });
        raw = &raw[4 + length..];
    }
    Ok(list)
}
