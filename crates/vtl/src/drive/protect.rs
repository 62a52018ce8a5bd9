//! Logical block protection: four bytes of CRC-32C behind each record between host and drive (SSC-4 section 4.2.27).
//!
//! The sum is checked when a record arrives and made anew when one leaves: it guards the way between host and drive. What
//! the host's file system keeps of a record is not covered by it.

use super::State;
use crate::unit::{BAD_FIELD, BAD_PARAMETER, Done, Outcome};
use scsi::mode::DataProtection;
use scsi::{Sense, SenseKey};

/// Bytes of the sum.
const SUM: usize = 4;
/// Logical block guard check failed; real LTO drives say it with this key.
const GUARD_CHECK: Sense = Sense::new(SenseKey::HardwareError, 0x10, 0x01);

/// The settings that MODE SELECT asks for: none, or CRC-32C.
pub(super) fn selected(page: &[u8]) -> Result<DataProtection, Sense> {
    let asked = DataProtection::decode(page).map_err(|_| BAD_PARAMETER)?;
    let known = match asked.method {
        0 => !asked.on_write && !asked.on_read,
        2 => usize::from(asked.length) == SUM,
        _ => false,
    };
    known.then_some(asked).ok_or(BAD_PARAMETER)
}

/// The record of what came from the host: what is before the sum, which must be right. Empty records are refused.
pub(super) fn arrived(bytes: &[u8]) -> Result<&[u8], Sense> {
    let (record, sum) = bytes.split_last_chunk::<SUM>().ok_or(BAD_FIELD)?;
    if record.is_empty() {
        return Err(BAD_FIELD);
    }
    if crc32c::crc32c(record).to_le_bytes() != *sum {
        return Err(Sense { information: Some(bytes.len() as i64), ..GUARD_CHECK });
    }
    Ok(record)
}

impl State {
    /// Reads one record into `buf` with its sum behind it; `wanted` counts both.
    pub(super) fn read_protected(&mut self, buf: &mut [u8], wanted: u64, sili: bool) -> Outcome {
        let room = (wanted as usize).min(buf.len());
        let payload = room.checked_sub(SUM).filter(|n| *n > 0).ok_or(BAD_FIELD)?;
        let done = self.read_one(&mut buf[..payload], payload as u64, sili, wanted)?;
        let cut = done.sense.is_some_and(|s| s.information.is_some_and(|n| n < 0));
        if done.transferred == 0 || cut {
            return Ok(done); // a filemark, or a record whose end is not given
        }
        let (record, rest) = buf.split_at_mut(done.transferred);
        rest[..SUM].copy_from_slice(&crc32c::crc32c(record).to_le_bytes());
        Ok(Done { transferred: done.transferred + SUM, ..done })
    }
}
