//! Sense data: why a command did not simply succeed (SPC-4 section 4.5).

use crate::{asc::describe, bytes::uint};
use std::fmt;

/// Sense key (SPC-4 table 49).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum SenseKey {
    NoSense = 0,
    RecoveredError = 1,
    NotReady = 2,
    MediumError = 3,
    HardwareError = 4,
    IllegalRequest = 5,
    UnitAttention = 6,
    DataProtect = 7,
    BlankCheck = 8,
    VendorSpecific = 9,
    CopyAborted = 10,
    AbortedCommand = 11,
    Reserved = 12,
    VolumeOverflow = 13,
    Miscompare = 14,
    Completed = 15,
}

impl SenseKey {
    /// From the low four bits.
    pub fn from_bits(bits: u8) -> Self {
        use SenseKey::*;
        const ALL: [SenseKey; 16] = [
            NoSense,
            RecoveredError,
            NotReady,
            MediumError,
            HardwareError,
            IllegalRequest,
            UnitAttention,
            DataProtect,
            BlankCheck,
            VendorSpecific,
            CopyAborted,
            AbortedCommand,
            Reserved,
            VolumeOverflow,
            Miscompare,
            Completed,
        ];
        ALL[usize::from(bits & 0x0F)]
    }

    /// Name for people.
    pub fn name(self) -> &'static str {
        use SenseKey::*;
        match self {
            NoSense => "no sense",
            RecoveredError => "recovered error",
            NotReady => "not ready",
            MediumError => "medium error",
            HardwareError => "hardware error",
            IllegalRequest => "illegal request",
            UnitAttention => "unit attention",
            DataProtect => "data protect",
            BlankCheck => "blank check",
            VendorSpecific => "vendor specific",
            CopyAborted => "copy aborted",
            AbortedCommand => "aborted command",
            Reserved => "reserved sense key",
            VolumeOverflow => "volume overflow",
            Miscompare => "miscompare",
            Completed => "completed",
        }
    }
}

/// Decoded sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Sense key.
    pub key: SenseKey,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// A filemark was met.
    pub filemark: bool,
    /// End (or beginning, or early warning) of medium or partition.
    pub eom: bool,
    /// The record's length differs from the one asked for.
    pub ili: bool,
    /// The error belongs to an earlier command (response codes 71h and 73h).
    pub deferred: bool,
    /// INFORMATION field, where valid. For READ: length asked for minus length found, as a signed 32-bit number in
    /// fixed format (sign-extended here).
    pub information: Option<i64>,
    /// How much of what goes on is done (256ths), where a device that is not ready says so; 0: nothing, or it does not say.
    pub progress: u8,
}

impl Sense {
    /// New sense without flags.
    pub const fn new(key: SenseKey, asc: u8, ascq: u8) -> Self {
        Self {
            key,
            asc,
            ascq,
            filemark: false,
            eom: false,
            ili: false,
            deferred: false,
            information: None,
            progress: 0,
        }
    }

    /// True for this combination.
    pub fn is(&self, key: SenseKey, asc: u8, ascq: u8) -> bool {
        (self.key, self.asc, self.ascq) == (key, asc, ascq)
    }

    /// Decodes fixed (70h, 71h) and descriptor (72h, 73h) format; None when it is neither or too short to have a key.
    pub fn decode(raw: &[u8]) -> Option<Self> {
        let code = raw.first()? & 0x7F;
        match code {
            0x70 | 0x71 => Self::decode_fixed(raw, code == 0x71),
            0x72 | 0x73 => Self::decode_descriptors(raw, code == 0x73),
            _ => None,
        }
    }

    fn decode_fixed(raw: &[u8], deferred: bool) -> Option<Self> {
        let flags = *raw.get(2)?;
        let at = |i: usize| raw.get(i).copied().unwrap_or(0);
        let information = (raw[0] & 0x80 != 0)
            .then(|| raw.get(3..7))
            .flatten()
            .map(|b| i64::from(i32::from_be_bytes([b[0], b[1], b[2], b[3]])));
        let key = SenseKey::from_bits(flags);
        Some(Self {
            key,
            asc: at(12),
            ascq: at(13),
            filemark: flags & 0x80 != 0,
            eom: flags & 0x40 != 0,
            ili: flags & 0x20 != 0,
            deferred,
            information,
            progress: raw.get(15..18).map_or(0, |specific| progress(key, specific)),
        })
    }

    fn decode_descriptors(raw: &[u8], deferred: bool) -> Option<Self> {
        let mut sense = Self::new(SenseKey::from_bits(*raw.get(1)?), *raw.get(2)?, *raw.get(3)?);
        sense.deferred = deferred;
        let mut rest = raw.get(8..).unwrap_or(&[]);
        while let [kind, length, ..] = *rest {
            let end = (2 + usize::from(length)).min(rest.len());
            let (descriptor, tail) = rest.split_at(end);
            match kind {
                0x00 if descriptor.len() >= 12 && descriptor[2] & 0x80 != 0 => {
                    sense.information = Some(uint(&descriptor[4..12]) as i64);
                }
                0x02 if descriptor.len() >= 7 => sense.progress = progress(sense.key, &descriptor[4..7]),
                0x04 if descriptor.len() >= 4 => {
                    sense.filemark = descriptor[3] & 0x80 != 0;
                    sense.eom = descriptor[3] & 0x40 != 0;
                    sense.ili = descriptor[3] & 0x20 != 0;
                }
                _ => {}
            }
            rest = tail;
        }
        Some(sense)
    }

    /// Encodes in fixed format (18 bytes), as a device server does. An `information` that does not fit into 32 bits is
    /// left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = vec![0u8; 18];
        raw[0] = if self.deferred { 0x71 } else { 0x70 };
        raw[2] = self.key as u8
            | (u8::from(self.filemark) << 7)
            | (u8::from(self.eom) << 6)
            | (u8::from(self.ili) << 5);
        if let Some(n) = self.information.and_then(|n| i32::try_from(n).ok()) {
            raw[0] |= 0x80;
            raw[3..7].copy_from_slice(&n.to_be_bytes());
        }
        raw[7] = 10;
        raw[12] = self.asc;
        raw[13] = self.ascq;
        if self.progress > 0 {
            (raw[15], raw[16]) = (0x80, self.progress);
        }
        raw
    }
}

/// The progress indication among the bytes that are specific to a sense key (SPC-4 section 4.5.2.4.4).
fn progress(key: SenseKey, specific: &[u8]) -> u8 {
    match (key, specific) {
        (SenseKey::NotReady | SenseKey::NoSense, [flags, high, _low]) if flags & 0x80 != 0 => *high,
        _ => 0,
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.deferred {
            f.write_str("deferred ")?;
        }
        write!(f, "{} {:X}/{:02X}/{:02X}", self.key.name(), self.key as u8, self.asc, self.ascq)?;
        if let Some(text) = describe(self.asc, self.ascq) {
            write!(f, " ({text})")?;
        }
        for (set, name) in [(self.filemark, " filemark"), (self.eom, " eom"), (self.ili, " ili")] {
            if set {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}
