//! Encryption by the drive: SECURITY PROTOCOL IN and OUT, protocol 20h (SSC-4 section 8.5). One algorithm, AES-256-GCM;
//! a key is given by the host in plain, for all hosts, and goes with the medium if the host says so (CKOD).

use super::State;
use crate::cartridge::seal::{A_KAD, Kad, Key, U_KAD};
use crate::unit::{BAD_FIELD, BAD_LENGTH, BAD_PARAMETER, Done, Host, Outcome, field, give, parameters};
use scsi::{Data, Sense, SenseKey};

/// Unable to decrypt data; unencrypted data encountered while decrypting; incorrect data encryption key.
pub(super) const NO_KEY: Sense = Sense::new(SenseKey::DataProtect, 0x74, 0x01);
const PLAIN: Sense = Sense::new(SenseKey::DataProtect, 0x74, 0x02);
pub(super) const WRONG_KEY: Sense = Sense::new(SenseKey::DataProtect, 0x74, 0x03);

/// Security protocol: tape data encryption.
const TAPE: u8 = 0x20;
/// Index of the only algorithm, and its code (AES-256-GCM with a tag of 16 bytes).
const ALGORITHM: u8 = 1;
const AES_256_GCM: u32 = 0x0001_0014;

/// How records are written and read.
#[derive(Default)]
pub(super) struct Encryption {
    encrypts: bool,
    /// 0 not at all, 2 encrypted records only, 3 both kinds.
    decryption: u8,
    key: Option<Key>,
    with_medium: bool,
    instance: u32,
}

impl Encryption {
    /// Key for records to be written.
    pub(super) fn writes(&self) -> Option<Key> {
        self.key.clone().filter(|_| self.encrypts)
    }

    /// Key for a record to be read, or why it is not read.
    pub(super) fn reads(&self, sealed: bool) -> Result<Option<Key>, Sense> {
        match (sealed, self.decryption) {
            (true, 0) => Err(NO_KEY),
            (false, 2) => Err(PLAIN),
            _ => Ok(self.key.clone()),
        }
    }

    /// The medium has left.
    pub(super) fn demounted(&mut self) {
        if self.with_medium {
            *self = Self { instance: self.instance.wrapping_add(1), ..Self::default() };
        }
    }

    fn modes(&self) -> [u8; 2] {
        [if self.encrypts { 2 } else { 0 }, self.decryption]
    }
}

fn page(code: u16, body: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// Descriptors of key-associated data.
fn descriptors(kad: &Kad) -> Vec<u8> {
    let mut raw = Vec::new();
    for (kind, value) in [(0u8, &kad.user), (1, &kad.authenticated)] {
        if !value.is_empty() {
            raw.extend([kind, 1]);
            raw.extend((value.len() as u16).to_be_bytes());
            raw.extend(value);
        }
    }
    raw
}

impl State {
    pub(super) fn security_in(&mut self, cdb: &[u8], data: Data<'_>) -> Outcome {
        let (protocol, specific, alloc) = (cdb[1], field(cdb, 2, 2), field(cdb, 6, 4));
        if cdb[4] & 0x80 != 0 {
            return Err(BAD_FIELD); // no lengths in units of 512 bytes
        }
        let raw = match (protocol, specific) {
            (0, 0) => vec![0, 0, 0, 0, 0, 0, 0, 2, 0x00, TAPE],
            (TAPE, 0x00) => page(0x00, &[0, 0, 0, 1, 0, 0x10, 0, 0x11, 0, 0x20, 0, 0x21]),
            (TAPE, 0x01) => page(0x01, &[0, 0x10]),
            (TAPE, 0x10) => page(0x10, &capabilities()),
            (TAPE, 0x11) => page(0x11, &[0]),
            (TAPE, 0x20) => self.encryption_status(),
            (TAPE, 0x21) => self.next_block()?,
            _ => return Err(BAD_FIELD),
        };
        give(data, &raw, alloc)
    }

    fn encryption_status(&self) -> Vec<u8> {
        let e = &self.encryption;
        let shared = if e.key.is_some() { 0x42 } else { 0 }; // scope of the nexus and of the key: all
        let mut body = vec![shared];
        body.extend(e.modes());
        body.push(if e.key.is_some() { ALGORITHM } else { 0 });
        body.extend(e.instance.to_be_bytes());
        body.extend([0; 12]);
        body.extend(e.key.as_ref().map(|k| descriptors(&k.kad)).unwrap_or_default());
        page(0x20, &body)
    }

    fn next_block(&mut self) -> Result<Vec<u8>, Sense> {
        let m = self.ready()?;
        let (partition, block) = (m.partition, m.block);
        let kad = match m.cartridge.index(partition).length(block) {
            None | Some(0) => return Ok(next(block, 2, &Kad::default())),
            Some(_) => m.cartridge.kad(partition, block),
        };
        let kad = kad.map_err(|e| self.host_failure(&e))?;
        let ours = self.encryption.decryption != 0
            && self.encryption.key.as_ref().is_some_and(|k| Some(&k.kad) == kad.as_ref());
        Ok(match kad {
            None => next(block, 3, &Kad::default()),
            Some(kad) => next(block, if ours { 5 } else { 6 }, &kad),
        })
    }

    pub(super) fn security_out(&mut self, host: Host, cdb: &[u8], data: Data<'_>) -> Outcome {
        if (cdb[1], field(cdb, 2, 2)) != (TAPE, 0x10) || cdb[4] & 0x80 != 0 {
            return Err(BAD_FIELD);
        }
        let list = parameters(&data, field(cdb, 6, 4))?;
        let new = selected(list)?;
        self.flush()?;
        let instance = self.encryption.instance.wrapping_add(1);
        self.encryption = Encryption { instance, ..new };
        self.hosts.tell_others(host, 0x2A, 0x11);
        Ok(Done { transferred: list.len(), sense: None })
    }
}

/// Data encryption capabilities: one algorithm.
fn capabilities() -> Vec<u8> {
    let mut raw = vec![0x09];
    raw.resize(16, 0);
    raw.extend([ALGORITHM, 0, 0, 20]);
    // told apart from plain records; decrypts and encrypts; U-KAD and A-KAD of any length up to the longest
    raw.extend([0x1A, 0x20]);
    raw.extend((U_KAD as u16).to_be_bytes());
    raw.extend((A_KAD as u16).to_be_bytes());
    raw.extend(32u16.to_be_bytes());
    raw.extend([0; 8]);
    raw.extend(AES_256_GCM.to_be_bytes());
    raw
}

fn next(block: u64, status: u8, kad: &Kad) -> Vec<u8> {
    let mut body = block.to_be_bytes().to_vec();
    let algorithm = if status > 3 { ALGORITHM } else { 0 };
    body.extend([status, algorithm, 0, 0]);
    body.extend(descriptors(kad));
    page(0x21, &body)
}

/// Set Data Encryption page.
fn selected(raw: &[u8]) -> Result<Encryption, Sense> {
    let length = raw.get(2..4).ok_or(BAD_LENGTH)?;
    if field(raw, 0, 2) != 0x10 || raw.len() < 20 || field(length, 0, 2) as usize + 4 != raw.len() {
        return Err(BAD_LENGTH);
    }
    let (encryption, decryption) = (raw[6], raw[7]);
    let known = matches!(encryption, 0 | 2) && matches!(decryption, 0 | 2 | 3) && raw[4] >> 5 == 2;
    if !known {
        return Err(BAD_PARAMETER);
    }
    if (encryption, decryption) == (0, 0) {
        return Ok(Encryption::default());
    }
    let size = field(raw, 18, 2) as usize;
    let key = raw.get(20..20 + size).and_then(|k| <[u8; 32]>::try_from(k).ok()).ok_or(BAD_PARAMETER)?;
    if raw[8] != ALGORITHM || raw[9] != 0 {
        return Err(BAD_PARAMETER);
    }
    let mut kad = Kad::default();
    let mut rest = &raw[20 + size..];
    while let [kind, _, high, low, tail @ ..] = rest {
        let (value, behind) =
            tail.split_at_checked(usize::from(*high) << 8 | usize::from(*low)).ok_or(BAD_LENGTH)?;
        match kind {
            0 if value.len() <= U_KAD => kad.user = value.to_vec(),
            1 if value.len() <= A_KAD => kad.authenticated = value.to_vec(),
            _ => return Err(BAD_PARAMETER),
        }
        rest = behind;
    }
    let with_medium = raw[5] & 0x04 != 0;
    let key = Some(Key { bytes: key, kad });
    Ok(Encryption { encrypts: encryption == 2, decryption, key, with_medium, instance: 0 })
}
