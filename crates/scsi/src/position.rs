//! READ POSITION (SSC-4 section 7.7).

use crate::bytes::{DecodeError, Fields};

/// Where a drive stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Partition.
    pub partition: u32,
    /// Number of the next logical object; filemarks count.
    pub block: u64,
    /// Filemarks between the beginning of the partition and here; None where the drive does not know.
    pub filemarks: Option<u64>,
    /// At the beginning of the partition.
    pub bop: bool,
    /// Between early warning and end of partition.
    pub eop: bool,
    /// Beyond the programmable early warning.
    pub bpew: bool,
}

/// Decodes the long form (32 bytes). Ok(None): the drive does not know its logical position (LONU).
pub fn decode_long(raw: &[u8]) -> Result<Option<Position>, DecodeError> {
    let f = Fields::new("READ POSITION data", raw);
    let flags = f.u8(0)?;
    let position = Position {
        partition: f.u32(4)?,
        block: f.u64(8)?,
        filemarks: Some(f.u64(16)?).filter(|_| flags & 0x08 == 0),
        bop: flags & 0x80 != 0,
        eop: flags & 0x40 != 0,
        bpew: flags & 0x01 != 0,
    };
    Ok((flags & 0x04 == 0).then_some(position))
}

/// Decodes the short form (20 bytes; block numbers below 2^32). Ok(None): position unknown or too large for the form.
pub fn decode_short(raw: &[u8]) -> Result<Option<Position>, DecodeError> {
    let f = Fields::new("READ POSITION data", raw);
    let flags = f.u8(0)?;
    let position = Position {
        partition: u32::from(f.u8(1)?),
        block: u64::from(f.u32(4)?),
        filemarks: None,
        bop: flags & 0x80 != 0,
        eop: flags & 0x40 != 0,
        bpew: flags & 0x01 != 0,
    };
    Ok((flags & 0x06 == 0).then_some(position))
}
