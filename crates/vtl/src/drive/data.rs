//! READ, WRITE, WRITE FILEMARKS, ERASE, FORMAT MEDIUM, and the flush behind them.

use super::medium::Medium;
use super::{MAX_RECORD, State, alert, alert_bit, encrypt, protect};
use crate::cartridge::Unread;
use crate::unit::{self, BAD_FIELD, Done, OK, Outcome, field};
use scsi::{Data, Sense, SenseKey};
use std::time::Duration;
use types::Access;

/// Sense with the end-of-medium bit.
fn at_end(key: SenseKey, asc: u8, ascq: u8) -> Sense {
    Sense { eom: true, ..Sense::new(key, asc, ascq) }
}

/// The way between host and drive changes a bit of what it carries.
fn garble(bytes: &mut [u8]) {
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x10;
    }
}

/// WORM medium, overwrite attempted.
const WORM_OVERWRITE: Sense = Sense::new(SenseKey::DataProtect, 0x30, 0x0C);

fn residual(sense: Sense, left: u64) -> Sense {
    Sense { information: Some(left as i64), ..sense }
}

impl State {
    // ---- reading ----

    pub(super) fn read(&mut self, cdb: &[u8], mut data: Data<'_>) -> Outcome {
        self.ready()?;
        let (fixed, sili, length) = (cdb[1] & 1 != 0, cdb[1] & 2 != 0, field(cdb, 2, 3));
        if fixed && (sili || self.settings.block_length == 0) {
            return Err(BAD_FIELD);
        }
        if length == 0 {
            return OK;
        }
        let Data::In(buf) = &mut data else { return Err(BAD_FIELD) };
        if !fixed {
            let protected = self.settings.protection.on_read;
            let done = match protected {
                true => self.read_protected(buf, length, sili),
                false => self.read_one(buf, length, sili, 0),
            };
            if self.faults.garbled(self.number) {
                garble(buf);
            }
            return done;
        }
        if self.settings.protection.on_read {
            return Err(BAD_FIELD); // records of fixed length go without
        }
        let size = u64::from(self.settings.block_length);
        let mut done = 0;
        for n in 0..length {
            let room = buf.get_mut(done..).unwrap_or(&mut []);
            let one = self.read_one(room, size, false, length - n);
            match one {
                Ok(Done { transferred, sense: None }) => done += transferred,
                Ok(Done { transferred, sense: Some(s) }) => {
                    return Ok(Done {
                        transferred: done + transferred,
                        sense: Some(residual(s, length - n)),
                    });
                }
                Err(sense) => {
                    return Ok(Done { transferred: done, sense: Some(residual(sense, length - n)) });
                }
            }
        }
        Ok(Done { transferred: done, sense: None })
    }

    /// Reads one record of at most `wanted` bytes. `left` is the residue to report in fixed mode (0: variable mode).
    pub(super) fn read_one(&mut self, buf: &mut [u8], wanted: u64, sili: bool, left: u64) -> Outcome {
        self.flush()?;
        let faults = self.faults.clone();
        let m = self.ready()?;
        let left = if left == 0 { wanted } else { left };
        let length = match m.cartridge.index(m.partition).length(m.block) {
            None => return Err(residual(Sense::new(SenseKey::BlankCheck, 0x00, 0x05), left)),
            Some(0) => {
                m.block += 1;
                let mark = Sense { filemark: true, ..Sense::new(SenseKey::NoSense, 0x00, 0x01) };
                return Ok(Done { transferred: 0, sense: Some(residual(mark, left)) });
            }
            Some(length) => u64::from(length),
        };
        if faults.read_error(&m.cartridge.barcode, (m.partition, m.block)) {
            m.read_errors += 1;
            self.alerts |=
                alert_bit(alert::READ_FAILURE) | alert_bit(alert::MEDIA) | alert_bit(alert::HARD_ERROR);
            return Err(residual(Sense::new(SenseKey::MediumError, 0x11, 0x00), left));
        }
        let room = buf.len().min(wanted as usize);
        let sealed = m.cartridge.sealed(m.partition, m.block);
        let key = self.encryption.reads(sealed).map_err(|sense| residual(sense, left))?;
        let m = self.ready()?;
        let read = m.cartridge.read_record(m.partition, m.block, &mut buf[..room], key.as_ref());
        let n = read.map_err(|e| match e {
            Unread::Host(e) => residual(self.unreadable(&e), left),
            Unread::Sealed => residual(encrypt::NO_KEY, left),
            Unread::WrongKey => residual(encrypt::WRONG_KEY, left),
        })?;
        self.count_read(length);
        if length == wanted || (sili && (length < wanted || self.settings.block_length == 0)) {
            return Ok(Done { transferred: n, sense: None });
        }
        let ili = Sense { ili: true, ..Sense::new(SenseKey::NoSense, 0, 0) };
        let information = Some(wanted as i64 - length as i64);
        Ok(Done { transferred: n, sense: Some(Sense { information, ..ili }) })
    }

    /// A record's file that the host cannot read is a spot of the medium that the drive cannot read.
    fn unreadable(&mut self, e: &std::io::Error) -> Sense {
        self.note_host_error(e);
        if let Some(m) = &mut self.medium {
            m.read_errors += 1;
        }
        self.alerts |=
            alert_bit(alert::READ_FAILURE) | alert_bit(alert::MEDIA) | alert_bit(alert::HARD_ERROR);
        Sense::new(SenseKey::MediumError, 0x11, 0x00)
    }

    fn count_read(&mut self, bytes: u64) {
        if let Some(m) = &mut self.medium {
            m.block += 1;
            m.moved.read += bytes;
            m.cartridge.meta.read += bytes;
        }
        self.pace.read(bytes, &*self.clock, &mut self.stats);
        self.stats.bytes_read += bytes;
        self.stats.records_read += 1;
    }

    // ---- writing ----

    pub(super) fn write(&mut self, cdb: &[u8], data: Data<'_>) -> Outcome {
        self.ready()?;
        let (fixed, length) = (cdb[1] & 1 != 0, field(cdb, 2, 3));
        let size = u64::from(self.settings.block_length);
        if fixed && size == 0 {
            return Err(BAD_FIELD);
        }
        let bytes = unit::parameters(&data, if fixed { length * size } else { length })?;
        if length == 0 {
            return self.writable().map(|_| Done::default());
        }
        let transferred = bytes.len();
        let mut changed = Vec::new();
        let bytes = match self.faults.garbled(self.number) {
            true => {
                changed.extend_from_slice(bytes);
                garble(&mut changed);
                &changed
            }
            false => bytes,
        };
        let bytes = match self.settings.protection.on_write {
            true if fixed => return Err(BAD_FIELD), // records of fixed length go without
            true => protect::arrived(bytes)?,
            false => bytes,
        };
        let mut warning = None;
        for (n, record) in bytes.chunks(if fixed { size as usize } else { bytes.len() }).enumerate() {
            let left = if fixed { length - n as u64 } else { length };
            match self.write_one(record) {
                Ok(None) => {}
                Ok(Some(sense)) => warning = Some(residual(sense, 0)),
                Err(sense) if sense.deferred => return Err(sense),
                Err(sense) => return Err(residual(sense, left)),
            }
        }
        if !self.settings.buffered {
            self.flush()?;
        }
        Ok(Done { transferred, sense: warning })
    }

    /// Writes one record; Ok(Some): written, but the end is near.
    fn write_one(&mut self, record: &[u8]) -> Result<Option<Sense>, Sense> {
        let length = record.len() as u64;
        if length > MAX_RECORD {
            return Err(BAD_FIELD);
        }
        let faults = self.faults.clone();
        let buffered = self.settings.buffered;
        let m = self.changeable()?;
        let (barcode, at) = (&m.cartridge.barcode, (m.partition, m.block));
        if m.bytes_before() + length > room(m, faults.early_end(barcode)) {
            return Err(at_end(SenseKey::VolumeOverflow, 0x00, 0x02));
        }
        if faults.write_error(barcode, at) {
            return self.write_failure(buffered).map(|_| None);
        }
        self.first_change()?;
        let key = self.encryption.writes();
        let m = self.ready()?;
        let written = m.cartridge.write_record(at.0, at.1, record, key.as_ref());
        if let Err(e) = written {
            return Err(self.host_failure(&e));
        }
        m.block += 1;
        m.moved.written += length;
        m.cartridge.meta.written += length;
        self.stats.bytes_written += length;
        self.stats.records_written += 1;
        self.pace.write(length, &*self.clock, &mut self.stats);
        Ok(self.end_is_near())
    }

    fn write_failure(&mut self, buffered: bool) -> Result<(), Sense> {
        if let Some(m) = &mut self.medium {
            m.write_errors += 1;
        }
        self.alerts |=
            alert_bit(alert::WRITE_FAILURE) | alert_bit(alert::MEDIA) | alert_bit(alert::HARD_ERROR);
        let sense = Sense::new(SenseKey::MediumError, 0x0C, 0x00);
        if !buffered {
            return Err(sense);
        }
        self.deferred = Some(Sense { deferred: true, ..sense });
        Ok(())
    }

    /// The medium, if it may be written on.
    fn writable(&mut self) -> Result<&mut Medium, Sense> {
        if self.ready()?.cartridge.meta.protected {
            self.alerts |= alert_bit(alert::WRITE_PROTECT);
            return Err(Sense::new(SenseKey::DataProtect, 0x27, 0x00));
        }
        self.suits(Access::Write)?;
        self.ready()
    }

    /// The medium, if it may be written on here: WORM medium only where nothing but filemarks is replaced, and not the first of
    /// them.
    fn changeable(&mut self) -> Result<&mut Medium, Sense> {
        let m = self.writable()?;
        if m.cartridge.meta.worm && !m.only_marks_follow() {
            return Err(self.worm_overwrite());
        }
        self.may_overwrite()?;
        self.ready()
    }

    fn worm_overwrite(&mut self) -> Sense {
        self.alerts |= alert_bit(alert::WORM_OVERWRITE);
        WORM_OVERWRITE
    }

    /// Before the first change since the load the volume change reference goes up.
    fn first_change(&mut self) -> Result<(), Sense> {
        let m = self.ready()?;
        if m.changed {
            return Ok(());
        }
        match m.cartridge.bump_change_reference() {
            Ok(()) => m.changed = true,
            Err(e) => return Err(self.host_failure(&std::io::Error::other(e))),
        }
        Ok(())
    }

    /// Early warning (on every write behind it) or programmable early warning (once).
    fn end_is_near(&mut self) -> Option<Sense> {
        let (early, programmable) = self.warning_points()?;
        let m = self.medium.as_mut()?;
        let at = m.bytes_before();
        if at >= early {
            return Some(at_end(SenseKey::NoSense, 0x00, 0x02));
        }
        if at < programmable || m.warned {
            return None;
        }
        m.warned = true;
        Some(Sense::new(SenseKey::NoSense, 0x00, 0x07))
    }

    /// Bytes in the current partition at which early warning and programmable early warning come (the latter is at the
    /// former when switched off).
    pub(super) fn warning_points(&self) -> Option<(u64, u64)> {
        let m = self.medium.as_ref()?;
        let room = room(m, self.faults.early_end(&m.cartridge.barcode));
        let usual = (room / 20).clamp(1 << 20, 5_000_000_000).min(room / 2);
        let zone = self.config.early_warning_bytes.unwrap_or(usual);
        let early = room.saturating_sub(zone);
        Some((early, early.saturating_sub(self.settings.early_warning_mb * 1_000_000)))
    }

    pub(super) fn write_filemarks(&mut self, cdb: &[u8]) -> Outcome {
        let (immediate, count) = (cdb[1] & 1 != 0, field(cdb, 2, 3));
        self.writable()?;
        if count > 0 {
            self.changeable()?;
        }
        for _ in 0..count {
            self.first_change()?;
            let m = self.ready()?;
            let written = m.cartridge.write_mark(m.partition, m.block);
            if let Err(e) = written {
                return Err(self.host_failure(&e));
            }
            m.block += 1;
            self.stats.filemarks += 1;
        }
        if !immediate || !self.settings.buffered {
            self.flush()?;
        }
        let sense = if count > 0 { self.end_is_near() } else { None };
        Ok(Done { transferred: 0, sense })
    }

    /// Brings the buffer to the medium. What failed is a deferred error, and the position is where the data end now.
    pub(super) fn flush(&mut self) -> Result<(), Sense> {
        let Some(m) = self.medium.as_mut().filter(|m| m.cartridge.dirty()) else { return Ok(()) };
        let start = self.clock.now();
        if let Err(e) = m.cartridge.flush() {
            m.block = m.block.min(m.end());
            m.write_errors += 1;
            return Err(Sense { deferred: true, ..self.host_failure(&e) });
        }
        self.pace.drain(&*self.clock);
        self.stats.flushes += 1;
        self.stats.flush_time += self.clock.now().saturating_sub(start);
        Ok(())
    }

    // ---- the medium as a whole ----

    pub(super) fn erase(&mut self) -> Outcome {
        self.flush()?;
        self.changeable()?;
        self.first_change()?;
        let m = self.ready()?;
        let erased = m.cartridge.truncate(m.partition, m.block);
        erased.map_err(|e| self.host_failure(&e))?;
        OK
    }

    pub(super) fn format_medium(&mut self, cdb: &[u8]) -> Outcome {
        let m = self.writable()?;
        if (m.partition, m.block) != (0, 0) {
            return Err(unit::illegal(0x3B, 0x0C));
        }
        let capacity = m.cartridge.meta.capacity;
        let takes_partitions = m.cartridge.takes_partitions();
        let capacities = match cdb[2] & 0x0F {
            0 => vec![capacity],
            1 | 2 if !takes_partitions => return Err(BAD_FIELD),
            1 | 2 => self.settings.partition_capacities(capacity),
            _ => return Err(BAD_FIELD),
        };
        self.format(capacities)
    }

    pub(super) fn set_capacity(&mut self, cdb: &[u8]) -> Outcome {
        let m = self.writable()?;
        if (m.partition, m.block) != (0, 0) {
            return Err(unit::illegal(0x3B, 0x0C));
        }
        let share = field(cdb, 3, 2);
        let capacity = (u128::from(m.cartridge.meta.capacity) * u128::from(share.max(1)) / 0xFFFF) as u64;
        self.format(vec![capacity])
    }

    fn format(&mut self, capacities: Vec<u64>) -> Outcome {
        let m = self.writable()?;
        if m.cartridge.meta.worm && (0..m.cartridge.partitions()).any(|p| m.cartridge.index(p).end() > 0) {
            return Err(self.worm_overwrite());
        }
        self.may_format()?;
        self.first_change()?;
        self.pace.stop();
        let m = self.ready()?;
        let formatted = m.cartridge.format(capacities);
        (m.partition, m.block, m.warned) = (0, 0, false);
        formatted.map_err(|e| self.host_failure(&e))?;
        OK
    }

    /// Waits for something mechanical.
    pub(super) fn wait(&mut self, time: Duration) {
        let until = self.clock.now() + time;
        self.pace.stop();
        self.clock.sleep_until(until);
    }
}

/// Bytes that fit into the current partition; an early end shortens the data partition.
pub(super) fn room(m: &Medium, early_end: Option<u64>) -> u64 {
    let capacity = m.cartridge.capacity(m.partition);
    let is_data = m.partition + 1 == m.cartridge.partitions();
    early_end.filter(|_| is_data).map_or(capacity, |e| e.min(capacity))
}
