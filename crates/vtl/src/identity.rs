//! INQUIRY data, vital product data and mode parameter framing of the devices.

use crate::unit::{BAD_FIELD, Outcome, field, give};
use scsi::Data;
use types::Generation;

/// Who a device says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Peripheral device type.
    pub(crate) kind: u8,
    pub(crate) product: String,
    pub(crate) revision: &'static str,
    pub(crate) serial: String,
    /// Further VPD pages: code and body.
    pub(crate) pages: Vec<(u8, Vec<u8>)>,
}

/// Vendor of all devices.
pub(crate) const VENDOR: &str = "IBM";

fn pad(text: &str, width: usize) -> Vec<u8> {
    let mut raw = text.as_bytes().to_vec();
    raw.resize(width, b' ');
    raw
}

impl Identity {
    /// A drive. Applications look up the product name and insist on a plausible revision, so it is that of a full-height
    /// drive of its generation.
    pub(crate) fn drive(serial: String, generation: Generation) -> Self {
        // B0h: no WORM; B1h: manufacturer-assigned serial number; B3h: automation serial number.
        let pages = vec![(0xB0, vec![0, 0]), (0xB1, pad(&serial, 12)), (0xB3, pad(&serial, 12))];
        // LTO-10 drives call themselves TDA.
        let product = format!("ULT3580-TD{:X}", generation.number());
        Self { kind: 1, product, revision: "S2H0", serial, pages }
    }

    /// A changer.
    pub(crate) fn changer(serial: String) -> Self {
        Self { kind: 8, product: "3573-TL".into(), revision: "1.90", serial, pages: Vec::new() }
    }

    /// T10 vendor identification designator: vendor, product, serial.
    pub(crate) fn designator(&self) -> Vec<u8> {
        let id = [pad(VENDOR, 8), pad(&self.product, 16), self.serial.as_bytes().to_vec()].concat();
        let mut raw = vec![0x02, 0x01, 0, id.len() as u8];
        raw.extend(id);
        raw
    }

    /// INQUIRY.
    pub(crate) fn inquiry(&self, cdb: &[u8], data: Data<'_>) -> Outcome {
        let alloc = field(cdb, 3, 2);
        if cdb[1] & 1 == 0 {
            return if cdb[2] != 0 { Err(BAD_FIELD) } else { give(data, &self.standard(), alloc) };
        }
        let body = self.page(cdb[2]).ok_or(BAD_FIELD)?;
        let mut raw = vec![self.kind, cdb[2]];
        raw.extend((body.len() as u16).to_be_bytes());
        raw.extend(body);
        give(data, &raw, alloc)
    }

    fn standard(&self) -> Vec<u8> {
        // removable; SPC-4; response format 2; 91 more bytes; changers have no further flags
        let mut raw = vec![self.kind, 0x80, 0x06, 0x02, 91, 0, 0, 0x02];
        raw.extend(pad(VENDOR, 8));
        raw.extend(pad(&self.product, 16));
        raw.extend(pad(self.revision, 4));
        raw.resize(58, 0);
        let standard = if self.kind == 1 { 0x0520u16 } else { 0x0480 }; // SSC-4, SMC-3
        raw.extend(0x0460u16.to_be_bytes()); // SPC-4
        raw.extend(standard.to_be_bytes());
        raw.resize(96, 0);
        raw
    }

    fn page(&self, code: u8) -> Option<Vec<u8>> {
        match code {
            0x00 => {
                let mut codes = vec![0x00, 0x80, 0x83];
                codes.extend(self.pages.iter().map(|p| p.0));
                Some(codes)
            }
            0x80 => Some(self.serial.clone().into_bytes()),
            0x83 => {
                let mut raw = self.designator();
                raw.extend([0x01, 0x03, 0, 8]);
                raw.extend(self.name().to_be_bytes());
                Some(raw)
            }
            _ => self.pages.iter().find(|p| p.0 == code).map(|p| p.1.clone()),
        }
    }

    /// NAA name of type 3 (locally assigned), from the serial number.
    fn name(&self) -> u64 {
        let hash = self
            .serial
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3));
        (3 << 60) | (hash >> 4)
    }
}

/// REPORT LUNS: only logical unit 0.
pub(crate) fn report_luns(cdb: &[u8], data: Data<'_>) -> Outcome {
    let mut raw = vec![0u8; 16];
    raw[3] = 8;
    give(data, &raw, field(cdb, 6, 4))
}

/// Parameter header in front of mode pages.
pub(crate) struct ModeHead {
    pub(crate) medium_type: u8,
    /// Write protection (80h), buffered mode, speed.
    pub(crate) device_specific: u8,
    pub(crate) block_descriptor: Option<[u8; 8]>,
}

/// Answers MODE SENSE(6) or (10) with the pages picked from `all` by page and subpage code.
pub(crate) fn mode_sense(cdb: &[u8], data: Data<'_>, head: &ModeHead, all: &[Vec<u8>]) -> Outcome {
    let ten = cdb[0] == scsi::opcode::MODE_SENSE_10;
    let (page, subpage) = (cdb[2] & 0x3F, cdb[3]);
    if cdb[2] >> 6 == 3 {
        return Err(crate::unit::illegal(0x39, 0x00));
    }
    let wanted = |p: &&Vec<u8>| {
        let code = (p[0] & 0x3F, if p[0] & 0x40 != 0 { p[1] } else { 0 });
        (page == 0x3F && (subpage == 0xFF || code.1 == 0)) || code == (page, subpage)
    };
    let mut pages: Vec<u8> = all.iter().filter(wanted).flatten().copied().collect();
    if pages.is_empty() && (page, subpage) != (0, 0) {
        return Err(BAD_FIELD);
    }
    if cdb[2] >> 6 == 1 {
        changeable_mask(&mut pages);
    }
    let block = head.block_descriptor.filter(|_| cdb[1] & 0x08 == 0);
    let block = block.as_ref().map_or(&[][..], |b| &b[..]);
    let mut raw;
    if ten {
        let length = 6 + block.len() + pages.len();
        raw = (length as u16).to_be_bytes().to_vec();
        raw.extend([head.medium_type, head.device_specific, 0, 0, 0, block.len() as u8]);
    } else {
        let length = 3 + block.len() + pages.len();
        raw = vec![
            u8::try_from(length).unwrap_or(u8::MAX),
            head.medium_type,
            head.device_specific,
            block.len() as u8,
        ];
    }
    raw.extend_from_slice(block);
    raw.extend(pages);
    give(data, &raw, if ten { field(cdb, 7, 2) } else { field(cdb, 4, 1) })
}

/// Changeable values: only the compression switch is reported as changeable; everything else reads 0.
fn changeable_mask(pages: &mut [u8]) {
    let mut at = 0;
    while at + 2 <= pages.len() {
        let sub = pages[at] & 0x40 != 0 && at + 4 <= pages.len();
        let (head, length) = if sub {
            (4, usize::from(pages[at + 2]) << 8 | usize::from(pages[at + 3]))
        } else {
            (2, pages[at + 1].into())
        };
        let end = (at + head + length).min(pages.len());
        pages[at + head..end].fill(0);
        if pages[at] & 0x3F == 0x0F && at + 2 < end {
            pages[at + 2] = 0x80;
        }
        at = end;
    }
}
