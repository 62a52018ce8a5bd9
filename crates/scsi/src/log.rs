//! Log pages (SPC-4 section 7.3, SSC-4 section 8.2).

use crate::bytes::{DecodeError, Fields, uint};

/// Page: volume statistics.
pub const PAGE_VOLUME_STATISTICS: u8 = 0x17;
/// Page: TapeAlert.
pub const PAGE_TAPE_ALERT: u8 = 0x2E;
/// Page: tape capacity (LTO).
pub const PAGE_CAPACITY: u8 = 0x31;

/// One parameter of a log page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogParameter {
    /// Parameter code.
    pub code: u16,
    /// Parameter control byte.
    pub control: u8,
    /// Value.
    pub value: Vec<u8>,
}

impl LogParameter {
    /// The value as a big-endian number; None when it has no bytes or more than eight.
    pub fn number(&self) -> Option<u64> {
        (1..=8).contains(&self.value.len()).then(|| uint(&self.value))
    }
}

/// Decodes the reply of LOG SENSE for `page`.
pub fn decode(raw: &[u8], page: u8, subpage: u8) -> Result<Vec<LogParameter>, DecodeError> {
    let f = Fields::new("log page", raw);
    if f.u8(0)? & 0x3F != page & 0x3F || (subpage != 0 && f.u8(1)? != subpage) {
        return Err(f.bad(0));
    }
    let mut rest = f.slice(4, usize::from(f.u16(2)?))?;
    let mut list = Vec::new();
    while !rest.is_empty() {
        let p = Fields::new("log parameter", rest);
        let length = usize::from(p.u8(3)?);
        list.push(LogParameter { code: p.u16(0)?, control: p.u8(2)?, value: p.slice(4, length)?.to_vec() });
        rest = &rest[4 + length..];
    }
    Ok(list)
}

/// Numbers of the TapeAlert flags that are set (1 to 64).
pub fn tape_alerts(parameters: &[LogParameter]) -> Vec<u8> {
    parameters
        .iter()
        .filter(|p| (1..=64).contains(&p.code) && p.value.first().is_some_and(|v| v & 1 == 1))
        .map(|p| p.code as u8)
        .collect()
}

/// Volume statistics page 17h (SSC-4 section 8.2.9). Megabytes are 10^6 bytes. None: not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStatistics {
    /// Times the volume was threaded.
    pub thread_count: Option<u64>,
    /// Write errors that could not be recovered, over life.
    pub unrecovered_write_errors: Option<u64>,
    /// Read errors that could not be recovered, over life.
    pub unrecovered_read_errors: Option<u64>,
    /// Write errors that could not be recovered, since this mount.
    pub mount_unrecovered_write_errors: Option<u64>,
    /// Read errors that could not be recovered, since this mount.
    pub mount_unrecovered_read_errors: Option<u64>,
    /// Megabytes written since this mount.
    pub mount_megabytes_written: Option<u64>,
    /// Megabytes read since this mount.
    pub mount_megabytes_read: Option<u64>,
    /// Megabytes written over life.
    pub megabytes_written: Option<u64>,
    /// Megabytes read over life.
    pub megabytes_read: Option<u64>,
    /// Volume serial number.
    pub serial: Option<String>,
    /// Barcode.
    pub barcode: Option<String>,
    /// Passes over the beginning of the medium.
    pub beginning_passes: Option<u64>,
    /// Passes over the middle of the tape.
    pub middle_passes: Option<u64>,
}

impl VolumeStatistics {
    /// Picks the known parameters.
    pub fn from_parameters(parameters: &[LogParameter]) -> Self {
        let find = |code| parameters.iter().find(|p| p.code == code);
        let number = |code| find(code).and_then(LogParameter::number);
        let text = |code| find(code).map(|p| crate::bytes::text(&p.value));
        Self {
            thread_count: number(0x01),
            unrecovered_write_errors: number(0x04),
            unrecovered_read_errors: number(0x09),
            mount_unrecovered_write_errors: number(0x0C),
            mount_unrecovered_read_errors: number(0x0D),
            mount_megabytes_written: number(0x0E),
            mount_megabytes_read: number(0x0F),
            megabytes_written: number(0x10),
            megabytes_read: number(0x11),
            serial: text(0x40),
            barcode: text(0x42),
            beginning_passes: number(0x101),
            middle_passes: number(0x102),
        }
    }
}

/// Capacity of one partition from log page 31h, in bytes (the drive counts in MiB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapeCapacity {
    /// Room left before early warning.
    pub remaining: u64,
    /// Whole capacity.
    pub maximum: u64,
}

/// Capacities of partitions 0 and 1 from page 31h; a partition that is not reported is None.
pub fn tape_capacity(parameters: &[LogParameter]) -> [Option<TapeCapacity>; 2] {
    let bytes = |code| {
        let p = parameters.iter().find(|p| p.code == code)?;
        p.number()?.checked_mul(1 << 20)
    };
    let of = |n: u16| {
        let maximum = bytes(3 + n)?;
        Some(TapeCapacity { remaining: bytes(1 + n)?, maximum })
    };
    [of(0), of(1).filter(|c| c.maximum > 0)]
}
