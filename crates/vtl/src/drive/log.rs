//! Log pages of a drive (SSC-4 section 8.2; page 31h as LTO drives have it).

use super::data::room;
use super::{State, medium::Medium};
use crate::unit::{BAD_FIELD, Outcome, field, give};
use scsi::Data;
use scsi::log::{PAGE_CAPACITY, PAGE_TAPE_ALERT, PAGE_VOLUME_STATISTICS};

const PAGE_SEQUENTIAL: u8 = 0x0C;

/// Appends one parameter.
fn parameter(raw: &mut Vec<u8>, code: u16, value: &[u8]) {
    raw.extend(code.to_be_bytes());
    raw.extend([0x03, value.len() as u8]); // binary list
    raw.extend_from_slice(value);
}

fn number(raw: &mut Vec<u8>, code: u16, value: u64, width: usize) {
    parameter(raw, code, &value.to_be_bytes()[8 - width..]);
}

fn text(raw: &mut Vec<u8>, code: u16, value: &str, width: usize) {
    parameter(raw, code, format!("{value:width$.width$}").as_bytes());
}

/// One record per partition: length 7, reserved, partition, value.
fn partitions(raw: &mut Vec<u8>, code: u16, m: &Medium, value: impl Fn(u8) -> u64) {
    let mut records = Vec::new();
    for p in 0..m.cartridge.partitions() {
        records.extend([7, 0, 0, p]);
        records.extend((value(p).min(u64::from(u32::MAX)) as u32).to_be_bytes());
    }
    parameter(raw, code, &records);
}

impl State {
    pub(super) fn log_sense(&mut self, cdb: &[u8], data: Data<'_>) -> Outcome {
        if cdb[3] != 0 {
            return Err(BAD_FIELD);
        }
        let page = cdb[2] & 0x3F;
        let body = match page {
            0x00 => vec![0x00, PAGE_SEQUENTIAL, PAGE_VOLUME_STATISTICS, PAGE_TAPE_ALERT, PAGE_CAPACITY],
            PAGE_SEQUENTIAL => self.sequential_page(),
            PAGE_VOLUME_STATISTICS => self.statistics_page(),
            PAGE_TAPE_ALERT => self.alert_page(),
            PAGE_CAPACITY => self.capacity_page(),
            _ => return Err(BAD_FIELD),
        };
        let mut raw = vec![page, 0];
        raw.extend((body.len() as u16).to_be_bytes());
        raw.extend(body);
        give(data, &raw, field(cdb, 7, 2))
    }

    fn sequential_page(&self) -> Vec<u8> {
        let mut raw = Vec::new();
        number(&mut raw, 0, self.stats.bytes_written, 8); // from the host
        number(&mut raw, 1, self.stats.bytes_written, 8); // to the medium
        number(&mut raw, 2, self.stats.bytes_read, 8);
        number(&mut raw, 3, self.stats.bytes_read, 8);
        raw
    }

    /// All 64 flags; reading the page clears them.
    fn alert_page(&mut self) -> Vec<u8> {
        let mut raw = Vec::new();
        if self.soiled.load(std::sync::atomic::Ordering::Acquire) {
            self.alerts |= super::alert_bit(super::alert::CLEAN_NOW);
        }
        for flag in 1..=64u16 {
            number(&mut raw, flag, (self.alerts >> (flag - 1)) & 1, 1);
        }
        self.alerts = 0;
        raw
    }

    fn capacity_page(&mut self) -> Vec<u8> {
        let mut raw = Vec::new();
        let faults = self.faults.clone();
        let Ok(m) = self.ready() else { return raw };
        let early = faults.early_end(&m.cartridge.barcode);
        let whole = |p| match p {
            _ if p >= m.cartridge.partitions() => 0,
            _ if p == m.partition => room(m, early),
            _ => m.cartridge.capacity(p),
        };
        let used = |p| if p < m.cartridge.partitions() { m.cartridge.index(p).used() } else { 0 };
        for p in 0..2 {
            number(&mut raw, 1 + u16::from(p), whole(p).saturating_sub(used(p)) >> 20, 4);
        }
        for p in 0..2 {
            number(&mut raw, 3 + u16::from(p), whole(p) >> 20, 4);
        }
        raw
    }

    fn statistics_page(&mut self) -> Vec<u8> {
        const MB: u64 = 1_000_000;
        let mut raw = Vec::new();
        let Ok(m) = self.ready() else {
            number(&mut raw, 0x00, 0, 1); // page not valid without a medium
            return raw;
        };
        let meta = &m.cartridge.meta;
        number(&mut raw, 0x00, 1, 1);
        number(&mut raw, 0x01, meta.loads, 4);
        number(&mut raw, 0x04, m.write_errors, 2);
        number(&mut raw, 0x09, m.read_errors, 2);
        number(&mut raw, 0x0C, m.write_errors, 2);
        number(&mut raw, 0x0D, m.read_errors, 2);
        number(&mut raw, 0x0E, m.moved.written / MB, 4);
        number(&mut raw, 0x0F, m.moved.read / MB, 4);
        number(&mut raw, 0x10, meta.written / MB, 8);
        number(&mut raw, 0x11, meta.read / MB, 8);
        number(&mut raw, 0x16, meta.capacity / MB, 4);
        let used: u64 = (0..m.cartridge.partitions()).map(|p| m.cartridge.index(p).used()).sum();
        number(&mut raw, 0x17, used / MB, 4);
        text(&mut raw, 0x40, &meta.serial, 32);
        text(&mut raw, 0x42, &m.cartridge.barcode, 32);
        text(&mut raw, 0x43, "THERMOCL", 8);
        text(&mut raw, 0x45, "Ultrium-9", 9);
        number(&mut raw, 0x80, u64::from(meta.protected), 1);
        number(&mut raw, 0x81, 0, 1);
        number(&mut raw, 0x101, meta.loads, 4);
        number(&mut raw, 0x102, meta.loads, 4);
        let capacity = |p| m.cartridge.capacity(p) / MB;
        let used = |p| m.cartridge.index(p).used() / MB;
        partitions(&mut raw, 0x202, m, capacity);
        partitions(&mut raw, 0x203, m, used);
        partitions(&mut raw, 0x204, m, |p| capacity(p).saturating_sub(used(p)));
        raw
    }
}
