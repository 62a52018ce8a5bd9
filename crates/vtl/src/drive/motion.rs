//! REWIND, SPACE, LOCATE, READ POSITION, LOAD and UNLOAD.

use super::medium::Stage;
use super::{NO_MEDIUM, State};
use crate::unit::{self, BAD_FIELD, Done, OK, Outcome, field, give};
use scsi::{Data, Sense, SenseKey, opcode as op};

fn stopped(sense: Sense, left: u64) -> Outcome {
    Ok(Done { transferred: 0, sense: Some(Sense { information: Some(left as i64), ..sense }) })
}

const END_OF_DATA: Sense = Sense::new(SenseKey::BlankCheck, 0x00, 0x05);
const BEGINNING: Sense = Sense { eom: true, ..Sense::new(SenseKey::NoSense, 0x00, 0x04) };
const MARK: Sense = Sense { filemark: true, ..Sense::new(SenseKey::NoSense, 0x00, 0x01) };

impl State {
    pub(super) fn rewind(&mut self) -> Outcome {
        self.flush()?;
        let m = self.ready()?;
        let partition = m.partition;
        if m.block > 0 {
            let share = m.share(m.partition, m.block);
            let time = self.config.mechanics.rewind(share);
            self.stats.repositions += 1;
            self.stats.backward += 1;
            self.stats.positioning += time;
            self.wait(time);
        }
        self.stand_at(partition, 0)
    }

    /// Moves the tape, taking the time that this takes.
    fn go(&mut self, partition: u8, block: u64) -> Outcome {
        let m = self.ready()?;
        if (m.partition, m.block) == (partition, block) {
            return OK;
        }
        let (from, to) = (m.share(m.partition, m.block), m.share(partition, block));
        let bytes = m.cartridge.index(partition).bytes_before(block).abs_diff(m.bytes_before());
        let time = self.config.mechanics.locate(from, to, bytes);
        self.stats.repositions += 1;
        self.stats.backward += u64::from(to < from);
        self.stats.positioning += time;
        self.wait(time);
        self.stand_at(partition, block)
    }

    fn stand_at(&mut self, partition: u8, block: u64) -> Outcome {
        let m = self.ready()?;
        (m.partition, m.block) = (partition, block);
        let programmable = self.warning_points().map_or(0, |w| w.1);
        if let Some(m) = &mut self.medium {
            m.warned = m.warned && m.bytes_before() >= programmable;
        }
        OK
    }

    pub(super) fn space(&mut self, code: u8, count: i64) -> Outcome {
        self.flush()?;
        let m = self.ready()?;
        let (partition, block, end) = (m.partition, m.block, m.end());
        match code {
            0 => self.space_blocks(count),
            1 => self.space_marks(count),
            3 => self.go(partition, end.max(block)),
            _ => Err(BAD_FIELD),
        }
    }

    fn space_blocks(&mut self, count: i64) -> Outcome {
        let m = self.ready()?;
        let (partition, block, end) = (m.partition, m.block, m.end());
        let index = m.cartridge.index(partition);
        let marks = index.marks_before(block);
        let wanted = count.unsigned_abs();
        // Where a filemark or an end stops the motion, and how that is told.
        let (limit, position, sense) = if count >= 0 {
            match index.mark(marks) {
                Some(mark) => (mark - block, mark + 1, MARK),
                None => (end - block, end, END_OF_DATA),
            }
        } else {
            match marks.checked_sub(1).and_then(|n| index.mark(n)) {
                Some(mark) => (block - mark - 1, mark, MARK),
                None => (block, 0, BEGINNING),
            }
        };
        if wanted <= limit {
            return self.go(partition, if count >= 0 { block + wanted } else { block - wanted });
        }
        self.go(partition, position)?;
        stopped(sense, wanted - limit)
    }

    fn space_marks(&mut self, count: i64) -> Outcome {
        let m = self.ready()?;
        let (partition, end) = (m.partition, m.end());
        let index = m.cartridge.index(partition);
        let before = index.marks_before(m.block);
        let wanted = count.unsigned_abs();
        if wanted == 0 {
            return OK;
        }
        if count > 0 {
            let last = before.checked_add(wanted - 1).and_then(|n| index.mark(n));
            let passed = index.marks_before(end) - before;
            return match last {
                Some(mark) => self.go(partition, mark + 1),
                None => self.go(partition, end).and_then(|_| stopped(END_OF_DATA, wanted - passed)),
            };
        }
        match before.checked_sub(wanted).and_then(|n| index.mark(n)) {
            Some(mark) => self.go(partition, mark),
            None => self.go(partition, 0).and_then(|_| stopped(BEGINNING, wanted - before)),
        }
    }

    pub(super) fn locate(&mut self, cdb: &[u8]) -> Outcome {
        let long = cdb[0] == op::LOCATE_16;
        let (kind, change) = (if long { (cdb[1] >> 3) & 7 } else { 0 }, cdb[1] & 2 != 0);
        let (target, partition) = if long { (field(cdb, 4, 8), cdb[3]) } else { (field(cdb, 3, 4), cdb[8]) };
        self.flush()?;
        let m = self.ready()?;
        let partition = if change { partition } else { m.partition };
        if partition >= m.cartridge.partitions() {
            return Err(BAD_FIELD);
        }
        let index = m.cartridge.index(partition);
        let (end, block) = match kind {
            0 => (index.end(), Some(target).filter(|t| *t <= index.end())),
            1 if target == 0 => (index.end(), Some(0)),
            1 => (index.end(), index.mark(target - 1).map(|mark| mark + 1)),
            3 => (index.end(), Some(index.end())),
            _ => return Err(BAD_FIELD),
        };
        match block {
            Some(block) => self.go(partition, block),
            None => self.go(partition, end).and(Err(END_OF_DATA)),
        }
    }

    pub(super) fn read_position(&mut self, cdb: &[u8], data: Data<'_>) -> Outcome {
        let (early, programmable) = self.warning_points().unwrap_or((u64::MAX, u64::MAX));
        let off = self.settings.early_warning_mb == 0;
        let m = self.ready()?;
        let at = m.bytes_before();
        let bit = |set: bool, bit: u8| u8::from(set) * bit;
        let flags = bit(m.block == 0, 0x80) | bit(at >= early, 0x40) | bit(!off && at >= programmable, 0x01);
        let marks = m.cartridge.index(m.partition).marks_before(m.block);
        let narrow = u32::try_from(m.block);
        let mut raw = vec![0u8; 32];
        match cdb[1] & 0x1F {
            0x00 | 0x01 => {
                raw.truncate(20);
                let block = narrow.unwrap_or(0).to_be_bytes();
                raw[0] = flags | bit(narrow.is_err(), 0x02);
                raw[1] = m.partition;
                raw[4..8].copy_from_slice(&block);
                raw[8..12].copy_from_slice(&block);
            }
            0x06 => {
                raw[0] = flags;
                raw[4..8].copy_from_slice(&u32::from(m.partition).to_be_bytes());
                raw[8..16].copy_from_slice(&m.block.to_be_bytes());
                raw[16..24].copy_from_slice(&marks.to_be_bytes());
            }
            0x08 => {
                raw[0] = flags;
                raw[1] = m.partition;
                raw[3] = 0x1C;
                raw[8..16].copy_from_slice(&m.block.to_be_bytes());
                raw[16..24].copy_from_slice(&m.block.to_be_bytes());
            }
            _ => return Err(BAD_FIELD),
        }
        give(data, &raw, raw.len() as u64)
    }

    pub(super) fn load_unload(&mut self, cdb: &[u8]) -> Outcome {
        if cdb[4] & 0x04 != 0 {
            return Err(BAD_FIELD); // no end-of-tape positioning
        }
        match cdb[4] & 1 {
            1 => self.load(),
            _ => self.unload(),
        }
    }

    fn load(&mut self) -> Outcome {
        let now = self.clock.now();
        let m = self.medium.as_mut().ok_or(NO_MEDIUM)?;
        let until = match m.stage {
            Stage::Ready => return self.rewind(),
            Stage::Cleaning { .. } => return Err(Sense::new(SenseKey::NotReady, 0x30, 0x03)),
            Stage::Loading { until } | Stage::Calibrating { until, .. } => until,
            Stage::Ejected => now + self.config.mechanics.load,
        };
        if m.stage == Stage::Ejected {
            (m.partition, m.block, m.changed, m.warned) = (0, 0, false, false);
            m.moved = Default::default();
            self.alerts = 0;
        }
        m.stage = Stage::Loading { until };
        self.clock.sleep_until(until);
        self.settle();
        OK
    }

    fn unload(&mut self) -> Outcome {
        if self.medium.is_none() {
            return Err(NO_MEDIUM);
        }
        if self.hosts.removal_prevented() {
            return Err(unit::illegal(0x53, 0x02));
        }
        if self.ready().is_err() {
            self.alerts &= !super::alert_bit(super::alert::UNSUPPORTED);
            if let Some(m) = &mut self.medium {
                m.stage = Stage::Ejected;
            }
            return OK;
        }
        self.flush()?;
        self.wait(self.config.mechanics.unload);
        self.hosts.allow_removal();
        self.encryption.demounted();
        let m = self.ready()?;
        (m.partition, m.block, m.stage) = (0, 0, Stage::Ejected);
        let stored = m.cartridge.meta.store(m.cartridge.dir());
        stored.map_err(|e| self.host_failure(&std::io::Error::other(e)))?;
        OK
    }
}
