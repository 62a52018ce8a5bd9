//! A tape drive in memory whose power can fail at any command: what was not flushed is then lost from some point on.
#![allow(dead_code)]

pub mod catalogue;
pub mod rig;

use scsi::{CHECK_CONDITION, Data, GOOD, Reply, Sense, SenseKey, Transport, TransportError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    Record(Vec<u8>),
    Filemark,
}

#[derive(Clone, Debug, Default)]
pub struct Medium {
    pub partitions: Vec<Vec<Object>>,
    pub memory: BTreeMap<(u8, u16), (u8, Vec<u8>)>,
    pub vcr: u32,
    pub capacity: u64,
    pub early_warning: u64,
    pub write_protected: bool,
}

/// State of the drive and the cartridge in it.
pub struct State {
    /// As the initiator sees it, buffer included.
    pub live: Medium,
    /// Partitions as on the medium: the buffer is a journal of objects on top.
    durable: Vec<Vec<Object>>,
    journal: Vec<(usize, usize, Object)>,
    pub at: (usize, usize),
    loaded: bool,
    written: bool,
    pub attentions: Vec<(u8, u8)>,
    pub alerts: Vec<u8>,
    pub commands: usize,
    pub opcodes: Vec<u8>,
    /// Power fails at this command (before it has any effect).
    pub power_fails_at: Option<usize>,
    pub off: bool,
    /// Sense given when this object is read or written.
    pub faults: BTreeMap<(usize, usize), Sense>,
    /// Sense given at a flush.
    pub flush_fault: Option<Sense>,
}

#[derive(Clone)]
pub struct Fake(pub Arc<Mutex<State>>);

impl Fake {
    pub fn new(capacity: u64) -> Self {
        let live = Medium {
            partitions: vec![Vec::new()],
            capacity,
            early_warning: capacity / 20,
            vcr: 1,
            ..Medium::default()
        };
        Self(Arc::new(Mutex::new(State {
            durable: live.partitions.clone(),
            live,
            journal: Vec::new(),
            at: (0, 0),
            loaded: false,
            written: false,
            attentions: vec![(0x29, 0)],
            alerts: Vec::new(),
            commands: 0,
            opcodes: Vec::new(),
            power_fails_at: None,
            off: false,
            faults: BTreeMap::new(),
            flush_fault: None,
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn drive(&self) -> tape::Drive {
        tape::Drive::open(Box::new(self.clone()), Box::new(|_| {})).unwrap()
    }

    /// Power comes back; `survivors` of the unflushed objects reached the medium.
    pub fn power_cycle(&self, survivors: usize) -> usize {
        let mut s = self.state();
        let lost = s.journal.len();
        let journal = std::mem::take(&mut s.journal);
        for (p, block, object) in journal.into_iter().take(survivors) {
            s.durable[p].truncate(block);
            s.durable[p].push(object);
        }
        s.live.partitions = s.durable.clone();
        (s.off, s.loaded, s.at, s.power_fails_at) = (false, false, (0, 0), None);
        s.attentions = vec![(0x29, 0)];
        lost
    }
}

fn fill(data: Data<'_>, raw: &[u8]) -> Outcome {
    let Data::In(buffer) = data else { return no(SenseKey::IllegalRequest, 0x24, 0) };
    let n = raw.len().min(buffer.len());
    buffer[..n].copy_from_slice(&raw[..n]);
    Ok(n)
}

type Outcome = Result<usize, Sense>;

fn no(key: SenseKey, asc: u8, ascq: u8) -> Outcome {
    Err(Sense::new(key, asc, ascq))
}

impl State {
    /// Objects in the buffer that are not on the medium.
    pub fn buffered(&self) -> usize {
        self.journal.len()
    }

    fn used(&self, partition: usize) -> u64 {
        let before = self.live.partitions[partition].iter().take(self.at.1);
        before.map(|o| if let Object::Record(r) = o { r.len() as u64 } else { 0 }).sum()
    }

    fn put(&mut self, object: Object) -> Outcome {
        let (p, block) = self.at;
        if self.live.write_protected {
            return no(SenseKey::DataProtect, 0x27, 0);
        }
        if let Some(sense) = self.faults.get(&(p, block)) {
            return Err(*sense);
        }
        if let Object::Record(r) = &object
            && p == 1
            && self.used(p) + r.len() as u64 > self.live.capacity
        {
            let sense = Sense { eom: true, ..Sense::new(SenseKey::VolumeOverflow, 0, 2) };
            return Err(sense);
        }
        if !self.written {
            (self.written, self.live.vcr) = (true, self.live.vcr + 1);
        }
        self.live.partitions[p].truncate(block);
        self.live.partitions[p].push(object.clone());
        self.journal.push((p, block, object));
        self.at.1 += 1;
        if p == 1 && self.used(p) + self.live.early_warning > self.live.capacity {
            return Err(Sense { eom: true, ..Sense::new(SenseKey::NoSense, 0, 2) });
        }
        Ok(0)
    }

    fn flush(&mut self) -> Outcome {
        if let Some(sense) = self.flush_fault.take() {
            return Err(sense);
        }
        for (p, block, object) in std::mem::take(&mut self.journal) {
            self.durable[p].truncate(block);
            self.durable[p].push(object);
        }
        Ok(0)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Outcome {
        let (p, block) = self.at;
        if let Some(sense) = self.faults.get(&(p, block)) {
            return Err(*sense);
        }
        match self.live.partitions[p].get(block) {
            None => no(SenseKey::BlankCheck, 0, 5),
            Some(Object::Filemark) => {
                self.at.1 += 1;
                Err(Sense { filemark: true, ..Sense::new(SenseKey::NoSense, 0, 1) })
            }
            Some(Object::Record(r)) => {
                let n = r.len().min(buffer.len());
                buffer[..n].copy_from_slice(&r[..n]);
                self.at.1 += 1;
                if r.len() == buffer.len() {
                    return Ok(n);
                }
                let information = Some(buffer.len() as i64 - r.len() as i64);
                Err(Sense { ili: true, information, ..Sense::new(SenseKey::NoSense, 0, 0) })
            }
        }
    }

    fn space(&mut self, cdb: &[u8]) -> Outcome {
        self.flush()?;
        let objects = &self.live.partitions[self.at.0];
        let count = i64::from_be_bytes(cdb[4..12].try_into().unwrap());
        match (cdb[1], count) {
            (3, _) => self.at.1 = objects.len(),
            (1, 1) => match objects[self.at.1..].iter().position(|o| *o == Object::Filemark) {
                Some(n) => self.at.1 += n + 1,
                None => {
                    self.at.1 = objects.len();
                    return no(SenseKey::BlankCheck, 0, 5);
                }
            },
            (1, -1) => match objects[..self.at.1].iter().rposition(|o| *o == Object::Filemark) {
                Some(n) => self.at.1 = n,
                None => {
                    self.at.1 = 0;
                    return Err(Sense { eom: true, ..Sense::new(SenseKey::NoSense, 0, 4) });
                }
            },
            _ => return no(SenseKey::IllegalRequest, 0x24, 0),
        }
        Ok(0)
    }

    fn locate(&mut self, p: usize, block: usize) -> Outcome {
        self.flush()?;
        let Some(objects) = self.live.partitions.get(p) else { return no(SenseKey::IllegalRequest, 0x24, 0) };
        self.at = (p, block.min(objects.len()));
        if block > objects.len() { no(SenseKey::BlankCheck, 0, 5) } else { Ok(0) }
    }

    fn mode_sense(&self, page: u8) -> Vec<u8> {
        let mut raw = vec![0, 0, 0, if self.live.write_protected { 0x90 } else { 0x10 }, 0, 0, 0, 8];
        raw.extend([0x5c, 0, 0, 0, 0, 0, 0, 0]);
        if page == 0x11 {
            let additional = (self.live.partitions.len() - 1) as u8;
            raw.extend([0x11, 10, 3, additional, 0x3c, 3, 9, 0, 0, 1, 0xff, 0xff]);
        }
        let n = (raw.len() - 2) as u16;
        raw[..2].copy_from_slice(&n.to_be_bytes());
        raw
    }

    fn log_sense(&self, page: u8) -> Vec<u8> {
        let mut body = Vec::new();
        match page {
            0x2e => {
                for flag in 1..=64u8 {
                    body.extend([0, flag, 3, 1, u8::from(self.alerts.contains(&flag))]);
                }
            }
            _ => {
                let left = self.live.capacity.saturating_sub(self.used(self.live.partitions.len() - 1));
                for (code, bytes) in [(1, 1 << 30), (2, left), (3, 1 << 30), (4, self.live.capacity)] {
                    body.extend([0, code, 3, 4]);
                    body.extend(((bytes >> 20) as u32).to_be_bytes());
                }
            }
        }
        let mut raw = vec![page, 0];
        raw.extend((body.len() as u16).to_be_bytes());
        raw.extend(body);
        raw
    }

    fn attributes(&self, p: u8, first: u16) -> Result<Vec<u8>, Sense> {
        let mut body = Vec::new();
        if first <= 9 {
            body.extend([0, 9, 0x80, 0, 4]);
            body.extend(self.live.vcr.to_be_bytes());
        }
        for ((_, id), (format, value)) in self.live.memory.range((p, first)..=(p, u16::MAX)) {
            body.extend(id.to_be_bytes());
            body.push(*format);
            body.extend((value.len() as u16).to_be_bytes());
            body.extend(value);
        }
        if body.is_empty() {
            return Err(Sense::new(SenseKey::IllegalRequest, 0x24, 0));
        }
        let mut raw = (body.len() as u32).to_be_bytes().to_vec();
        raw.extend(body);
        Ok(raw)
    }

    fn write_attributes(&mut self, p: u8, list: &[u8]) -> Outcome {
        let mut rest = &list[4..];
        while let [a, b, format, c, d, tail @ ..] = rest {
            let n = usize::from(u16::from_be_bytes([*c, *d]));
            let id = u16::from_be_bytes([*a, *b]);
            self.live.memory.insert((p, id), (*format, tail[..n].to_vec()));
            rest = &tail[n..];
        }
        Ok(0)
    }

    fn run(&mut self, cdb: &[u8], data: Data<'_>) -> Outcome {
        if !matches!(cdb[0], 0x12 | 0x03) {
            if let Some((asc, ascq)) = self.attentions.pop() {
                return no(SenseKey::UnitAttention, asc, ascq);
            }
            if !self.loaded && !matches!(cdb[0], 0x1b | 0x1e | 0x4d) {
                return no(SenseKey::NotReady, 0x3a, 3);
            }
        }
        match cdb[0] {
            0x00 => Ok(0),
            0x01 => self.locate(self.at.0, 0),
            0x04 => {
                self.flush()?;
                self.live.partitions = vec![Vec::new(), Vec::new()];
                self.durable = self.live.partitions.clone();
                self.at = (0, 0);
                Ok(0)
            }
            0x08 => match data {
                Data::In(buffer) => self.read(buffer),
                _ => no(SenseKey::IllegalRequest, 0x24, 0),
            },
            0x0a => match data {
                Data::Out(record) => self.put(Object::Record(record.to_vec())),
                _ => no(SenseKey::IllegalRequest, 0x24, 0),
            },
            0x10 => {
                let mut outcome = Ok(0);
                for _ in 0..u32::from_be_bytes([0, cdb[2], cdb[3], cdb[4]]) {
                    outcome = self.put(Object::Filemark);
                }
                if cdb[1] & 1 == 0 {
                    self.flush()?;
                }
                outcome
            }
            0x12 if cdb[1] & 1 == 1 => fill(data, b"\x01\x80\x00\x08FAKE0001"),
            0x12 => {
                let mut raw = vec![1, 0x80, 6, 2, 31, 0, 0, 0];
                raw.extend(b"FAKE    MEMORY TAPE     1.0 ");
                fill(data, &raw)
            }
            0x1b => {
                self.flush()?;
                self.loaded = cdb[4] & 1 == 1;
                (self.at, self.written) = ((0, 0), false);
                Ok(0)
            }
            0x1e | 0x55 => Ok(0),
            0x34 => {
                let mut raw = [0; 32];
                raw[7] = self.at.0 as u8;
                raw[8..16].copy_from_slice(&(self.at.1 as u64).to_be_bytes());
                fill(data, &raw)
            }
            0x4d => fill(data, &self.log_sense(cdb[2] & 0x3f)),
            0x5a => fill(data, &self.mode_sense(cdb[2] & 0x3f)),
            0x8c => {
                let raw = self.attributes(cdb[7], u16::from_be_bytes([cdb[8], cdb[9]]))?;
                fill(data, &raw)
            }
            0x8d => match data {
                Data::Out(list) => self.write_attributes(cdb[7], list),
                _ => no(SenseKey::IllegalRequest, 0x24, 0),
            },
            0x91 => self.space(cdb),
            0x92 => {
                let block = u64::from_be_bytes(cdb[4..12].try_into().unwrap());
                self.locate(usize::from(cdb[3]), block as usize)
            }
            _ => no(SenseKey::IllegalRequest, 0x20, 0),
        }
    }
}

impl Transport for Fake {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, _: Duration) -> Result<Reply, TransportError> {
        let mut s = self.state();
        s.commands += 1;
        s.opcodes.push(cdb[0]);
        s.off |= s.power_fails_at.is_some_and(|n| s.commands > n);
        if s.off {
            return Err(TransportError::Lost { device: "fake0".into(), detail: "power is off".into() });
        }
        let asked = if let Data::In(b) = &data { b.len() } else { 0 };
        Ok(match s.run(cdb, data) {
            Ok(transferred) => Reply { status: GOOD, transferred, sense: Vec::new() },
            Err(sense) => {
                let short = sense.information.filter(|_| sense.ili).unwrap_or(0).max(0) as usize;
                Reply {
                    status: CHECK_CONDITION,
                    transferred: asked - short.min(asked),
                    sense: sense.encode(),
                }
            }
        })
    }

    fn name(&self) -> &str {
        "fake0"
    }
}
