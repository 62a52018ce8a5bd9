//! Logical block protection: a CRC-32C behind each record on its way to and from the drive.
//!
//! The drive checks it before a record counts as written, and we check it before a byte of a record is used. It is switched
//! on at each mount, because a drive forgets it when it is reset, and off before a volume leaves, because other programs
//! would take the sum for data. A drive may also keep it from a program that ended without unloading: so it is set at mount
//! in either case. While it is on, a change of the drive's settings by somebody else ends the session: the sums would be
//! recorded as data.

use crate::head::{Head, Wrote};
use crate::{Blame, Fault, Result, TapeError};
use scsi::mode::DataProtection;
use scsi::{ReadOutcome, ScsiError, Sense, Ssc, There, TransportError};

const DOING: &str = "setting logical block protection";
/// Bytes of the sum behind a record (CRC-32C, least significant byte first).
pub(crate) const SUM: usize = 4;

/// Puts the sum behind the record that `room` holds before its last bytes; returns what was there.
fn seal(room: &mut [u8]) -> Option<[u8; SUM]> {
    let (record, place) = room.split_last_chunk_mut::<SUM>()?;
    Some(std::mem::replace(place, crc32c::crc32c(record).to_le_bytes()))
}

/// The record before its sum; None if that is wrong or missing.
fn open(sealed: &[u8]) -> Option<&[u8]> {
    let (record, sum) = sealed.split_last_chunk::<SUM>()?;
    (crc32c::crc32c(record).to_le_bytes() == *sum).then_some(record)
}

impl Head {
    /// Switches protection on, where the drive has it, or off.
    pub fn protect(&mut self, wanted: bool) -> Result<()> {
        self.guarded = false;
        let Some(before) = self.attempt(DOING, Ssc::data_protection)? else { return Ok(()) };
        let target = if wanted { DataProtection::CRC32C } else { DataProtection::OFF };
        if before != target {
            match self.attempt(DOING, |ssc| ssc.set_data_protection(target)) {
                // Drives that know another sum only.
                Err(e) if wanted && e.fault == Fault::Refused => {}
                done => done?,
            }
        }
        match self.attempt(DOING, Ssc::data_protection)? {
            Some(now) if now == target => self.guarded = wanted,
            Some(DataProtection { on_write: false, on_read: false, .. }) => {}
            now => {
                let what = format!("the drive has set {now:?} where {target:?} was asked for");
                let advice =
                    "see whether another program uses the drive; set tape.block_protection to \"off\"";
                return Err(self.error(Fault::HardwareError, Blame::Drive, DOING, what, advice));
            }
        }
        Ok(())
    }

    /// READ into `buffer`; with protection the sum is checked and taken off.
    pub fn read_record(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome> {
        if !self.guarded {
            return self.attempt("reading", |ssc| ssc.read(buffer));
        }
        let mut sealed = std::mem::take(&mut self.sealed);
        sealed.resize(buffer.len() + SUM, 0);
        let found = self.attempt("reading", |ssc| ssc.read(&mut sealed));
        let found = match found {
            Ok(ReadOutcome::Record { bytes }) => match sealed.get(..bytes).and_then(open) {
                Some(record) => {
                    buffer[..record.len()].copy_from_slice(record);
                    Ok(ReadOutcome::Record { bytes: record.len() })
                }
                None => Err(self.garbled()),
            },
            Ok(ReadOutcome::TooLong { length }) => {
                Ok(ReadOutcome::TooLong { length: length.map(|n| n.saturating_sub(SUM as u64)) })
            }
            other => other,
        };
        self.sealed = sealed;
        found
    }

    /// READ into memory at the drive's host; with protection the sum is checked and taken off there.
    pub fn read_record_there(&mut self, place: There) -> Result<ReadOutcome> {
        let place = There { sealed: self.guarded, ..place };
        let found = self.attempt("reading", |ssc| match ssc.read_there(place) {
            Err(ScsiError::Transport(TransportError::Garbled { .. })) => Ok(None),
            found => found.map(Some),
        });
        found?.ok_or_else(|| self.garbled())
    }

    /// WRITE of a record; with protection the sum is put behind it.
    pub fn write(&mut self, record: &[u8]) -> Result<Wrote> {
        let mut buffer = std::mem::take(&mut self.sealed);
        buffer.clear();
        buffer.extend_from_slice(record);
        let wrote = self.write_buffer(&mut buffer);
        self.sealed = buffer;
        wrote
    }

    /// The same for a record in a buffer of its own, without a copy of it.
    pub fn write_buffer(&mut self, buffer: &mut Vec<u8>) -> Result<Wrote> {
        let length = buffer.len();
        buffer.extend_from_slice(&[0; SUM]);
        let wrote = self.write_in_place(buffer);
        buffer.truncate(length);
        wrote
    }

    /// The same for a record with [`SUM`] bytes behind it in which its sum may stand for the time of the command: a copy of
    /// each record would cost as much as its sum. What was there is there again afterwards, whatever happens.
    pub fn write_in_place(&mut self, room: &mut [u8]) -> Result<Wrote> {
        let end = room.len().saturating_sub(SUM);
        if !self.guarded {
            return self.put("writing", 1, |ssc| ssc.write(&room[..end]));
        }
        let before = seal(room);
        let wrote = self.put("writing", 1, |ssc| ssc.write(room));
        if let (Some(before), Some((_, place))) = (before, room.split_last_chunk_mut()) {
            *place = before;
        }
        wrote
    }

    /// WRITE of a record that lies at the drive's host; with protection its sum is made there.
    pub fn write_there(&mut self, record: There) -> Result<Wrote> {
        let record = There { sealed: self.guarded, ..record };
        self.put("writing", 1, |ssc| ssc.write_there(record))
    }

    /// Somebody else changed the drive's settings: whether records carry sums, or are encrypted, is no longer known.
    pub fn settings_changed(&mut self, doing: &str, what: &str, sense: Sense) -> TapeError {
        let doing = self.doing(doing);
        self.forget_position();
        let advice = "mount the volume again; keep other programs away from the drive";
        let error = self.error(Fault::PositionLost, Blame::Drive, doing, what, advice);
        let error = TapeError { sense: Some(sense), ..error };
        self.lost = Some(error.clone());
        error
    }

    fn garbled(&mut self) -> TapeError {
        let doing = self.doing("reading");
        self.forget_position();
        let what = "the record does not have its sum (CRC-32C): it was changed between medium and memory";
        let advice =
            "nothing of it was used; check cable, host adapter and drive; it is read again elsewhere";
        self.error(Fault::Garbled, Blame::Path, doing, what, advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sum_is_that_of_the_standard() {
        // CRC-32C of "123456789" is E3069283h; on the wire its low byte comes first.
        let mut room = *b"123456789next";
        assert_eq!(seal(&mut room), Some(*b"next"));
        assert_eq!(&room, b"123456789\x83\x92\x06\xE3");
    }

    proptest! {
        #[test]
        fn records_come_back_and_no_changed_bit_passes(record in proptest::collection::vec(any::<u8>(), 1..500), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut sealed = [&record[..], &[0; SUM]].concat();
            seal(&mut sealed);
            prop_assert_eq!(open(&sealed), Some(&record[..]));
            let at = at.index(sealed.len());
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(open(&sealed), None);
            prop_assert_eq!(open(&sealed[..at.min(3)]), None);
        }
    }
}
