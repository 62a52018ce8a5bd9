//! Encryption by a tape drive: security protocol 20h (SSC-4 section 8.5).

use crate::bytes::{DecodeError, Fields};
use crate::{Data, Result, SenseKey, Ssc, opcode, timeout};

/// Security protocol: tape data encryption.
const TAPE: u8 = 0x20;
/// Pages.
const CAPABILITIES: u16 = 0x10;
const NEXT_BLOCK: u16 = 0x21;
const SET: u16 = 0x10;
/// Algorithm: AES-256-GCM with a tag of 16 bytes.
const AES_256_GCM: u32 = 0x0001_0014;
/// Longest name of a key that is stored with each record (LTO drives: U-KAD).
pub const MAX_KEY_NAME: usize = 32;

/// What the next block is, as far as encryption goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextBlock {
    /// Not encrypted, no record, or the drive cannot say.
    Plain,
    /// Encrypted.
    Encrypted {
        /// Name of its key, as it was given with the key (U-KAD).
        key: Vec<u8>,
    },
}

impl Ssc {
    fn security_in(&mut self, page: u16) -> Result<Vec<u8>> {
        const ALLOC: usize = 0x1000;
        let (p, n) = (page.to_be_bytes(), (ALLOC as u32).to_be_bytes());
        let cdb = [opcode::SECURITY_PROTOCOL_IN, TAPE, p[0], p[1], 0, 0, n[0], n[1], n[2], n[3], 0, 0];
        self.fetch("SECURITY PROTOCOL IN", &cdb, ALLOC, timeout::SHORT)
    }

    fn security_out(&mut self, page: &[u8]) -> Result<()> {
        let (p, n) = (SET.to_be_bytes(), (page.len() as u32).to_be_bytes());
        let cdb = [opcode::SECURITY_PROTOCOL_OUT, TAPE, p[0], p[1], 0, 0, n[0], n[1], n[2], n[3], 0, 0];
        self.must("SECURITY PROTOCOL OUT", &cdb, Data::Out(page), timeout::SHORT).map(drop)
    }

    /// Index of AES-256-GCM in the drive; None where it cannot encrypt so.
    pub fn encryption_algorithm(&mut self) -> Result<Option<u8>> {
        let raw = match self.security_in(CAPABILITIES) {
            Err(e) if e.sense().is_some_and(|s| s.key == SenseKey::IllegalRequest) => return Ok(None),
            other => other?,
        };
        let found = decode_algorithms(&raw);
        Ok(self.decoded("SECURITY PROTOCOL IN", found)?.into_iter().find(|a| a.1 == AES_256_GCM).map(|a| a.0))
    }

    /// What the block at the present position is; None where the drive does not encrypt.
    pub fn next_block(&mut self) -> Result<Option<NextBlock>> {
        match self.security_in(NEXT_BLOCK) {
            Ok(raw) => self.decoded("SECURITY PROTOCOL IN", decode_next_block(&raw)).map(Some),
            Err(e) if e.sense().is_some_and(|s| s.key == SenseKey::IllegalRequest) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Encrypts what is written and decrypts what is read (nothing else is read) with `key`, which the drive forgets when
    /// the cartridge is unloaded. `name` (at most [`MAX_KEY_NAME`] bytes) is stored with each record.
    pub fn set_key(&mut self, algorithm: u8, key: &[u8; 32], name: &[u8]) -> Result<()> {
        let mut page = head(0x04, [2, 2], algorithm); // CKOD; encrypt; decrypt
        page[18..20].copy_from_slice(&32u16.to_be_bytes());
        page.extend_from_slice(key);
        let name = &name[..name.len().min(MAX_KEY_NAME)];
        page.extend([0, 0, 0, name.len() as u8]);
        page.extend_from_slice(name);
        let sent = self.security_out(&finish(page.clone()));
        page.fill(0); // the key stays nowhere
        sent
    }

    /// Records go and come as they are.
    pub fn clear_key(&mut self) -> Result<()> {
        self.security_out(&finish(head(0, [0, 0], 0)))
    }
}

/// Set Data Encryption page without key; for all hosts, so that it is that of the drive.
fn head(flags: u8, modes: [u8; 2], algorithm: u8) -> Vec<u8> {
    let mut page = vec![0; 20];
    page[..2].copy_from_slice(&SET.to_be_bytes());
    page[4] = 2 << 5;
    (page[5], page[6], page[7], page[8]) = (flags, modes[0], modes[1], algorithm);
    page
}

fn finish(mut page: Vec<u8>) -> Vec<u8> {
    let length = (page.len() - 4) as u16;
    page[2..4].copy_from_slice(&length.to_be_bytes());
    page
}

/// Decodes Data Encryption Capabilities: index and code of each algorithm.
pub fn decode_algorithms(raw: &[u8]) -> std::result::Result<Vec<(u8, u32)>, DecodeError> {
    let f = Fields::new("data encryption capabilities", raw);
    let body = f.slice(4, f.u16(2)?.into())?;
    let mut rest = body.get(16..).ok_or_else(|| f.bad(20))?;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let one = Fields::new("encryption algorithm", rest);
        let length = usize::from(one.u16(2)?);
        one.slice(4, length)?;
        all.push((one.u8(0)?, one.u32(20)?));
        rest = &rest[4 + length..];
    }
    Ok(all)
}

/// Decodes Next Block Encryption Status.
pub fn decode_next_block(raw: &[u8]) -> std::result::Result<NextBlock, DecodeError> {
    let f = Fields::new("next block encryption status", raw);
    if f.u16(0)? != NEXT_BLOCK {
        return Err(f.bad(0));
    }
    let body = Fields::new("next block encryption status", f.slice(4, f.u16(2)?.into())?);
    if !matches!(body.u8(8)? & 0x0F, 4..=6) {
        return Ok(NextBlock::Plain);
    }
    let mut at = 12;
    while let Ok(kind) = body.u8(at) {
        let length = usize::from(body.u16(at + 2)?);
        let value = body.slice(at + 4, length)?;
        if kind == 0 {
            return Ok(NextBlock::Encrypted { key: value.to_vec() });
        }
        at += 4 + length;
    }
    Ok(NextBlock::Encrypted { key: Vec::new() })
}
