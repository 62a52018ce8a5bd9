//! Encrypted records: AES-256-GCM, one file `<P>_<B>_X` per record.
//!
//! `TCX1`, length of the U-KAD, length of the A-KAD, nonce (12), U-KAD (32), A-KAD (12), two zeros; then the record,
//! encrypted, and its tag (16). Everything before, and where the record lies, is authenticated with it.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Key as AesKey, Nonce};
use std::io;

const MAGIC: &[u8; 4] = b"TCX1";
const NONCE_AT: usize = 6;
const U_KAD_AT: usize = 18;
const A_KAD_AT: usize = 50;
/// Bytes before the encrypted record.
const HEAD: usize = 64;
/// Bytes that a file has more than its record.
pub(crate) const OVERHEAD: u64 = HEAD as u64 + 16;
/// Longest key-associated data that go with a record.
pub(crate) const U_KAD: usize = 32;
pub(crate) const A_KAD: usize = 12;

/// A key and what is stored with each record to tell which it is.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) bytes: [u8; 32],
    pub(crate) kad: Kad,
}

/// Key-associated data, unauthenticated and authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kad {
    pub(crate) user: Vec<u8>,
    pub(crate) authenticated: Vec<u8>,
}

/// Where a record lies, as it is authenticated.
fn bound(head: &[u8], partition: u8, block: u64) -> Vec<u8> {
    [head, &[partition], &block.to_be_bytes()].concat()
}

fn cipher(key: &Key) -> Aes256Gcm {
    Aes256Gcm::new(&AesKey::<Aes256Gcm>::from(key.bytes))
}

/// The file of a record.
pub(crate) fn seal(key: &Key, partition: u8, block: u64, record: &[u8]) -> io::Result<Vec<u8>> {
    let mut raw = vec![0; HEAD];
    raw[..4].copy_from_slice(MAGIC);
    (raw[4], raw[5]) = (key.kad.user.len() as u8, key.kad.authenticated.len() as u8);
    let nonce = &mut raw[NONCE_AT..NONCE_AT + 12];
    if rustix::rand::getrandom(&mut *nonce, rustix::rand::GetRandomFlags::empty())? < nonce.len() {
        return Err(io::Error::other("the system gives no random numbers"));
    }
    let nonce: [u8; 12] = nonce.try_into().map_err(io::Error::other)?;
    raw[U_KAD_AT..U_KAD_AT + key.kad.user.len()].copy_from_slice(&key.kad.user);
    raw[A_KAD_AT..A_KAD_AT + key.kad.authenticated.len()].copy_from_slice(&key.kad.authenticated);
    let aad = bound(&raw, partition, block);
    let sealed = cipher(key).encrypt(&Nonce::from(nonce), Payload { msg: record, aad: &aad });
    raw.extend(sealed.map_err(|_| io::Error::other("a record cannot be encrypted"))?);
    Ok(raw)
}

/// Key-associated data of a record by its file, None if it is no such file.
pub(crate) fn kad(raw: &[u8]) -> Option<Kad> {
    let head = raw.get(..HEAD).filter(|h| h.starts_with(MAGIC))?;
    Some(Kad {
        user: head[U_KAD_AT..A_KAD_AT].get(..usize::from(head[4]))?.to_vec(),
        authenticated: head[A_KAD_AT..].get(..usize::from(head[5]))?.to_vec(),
    })
}

/// The record of a file; None: another key, or the file is not what was written.
pub(crate) fn open(key: &Key, partition: u8, block: u64, raw: &[u8]) -> Option<Vec<u8>> {
    let (head, sealed) = raw.split_at_checked(HEAD)?;
    let nonce: [u8; 12] = head.get(NONCE_AT..NONCE_AT + 12)?.try_into().ok()?;
    let aad = bound(head, partition, block);
    cipher(key).decrypt(&Nonce::from(nonce), Payload { msg: sealed, aad: &aad }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_and_the_place_open_a_record() {
        let kad = Kad { user: b"k-2026".to_vec(), authenticated: vec![7; A_KAD] };
        let key = Key { bytes: [1; 32], kad: kad.clone() };
        let raw = seal(&key, 1, 9, b"a secret").unwrap();
        assert_eq!(raw.len() as u64, 8 + OVERHEAD);
        assert!(!raw.windows(6).any(|w| w == b"secret"));
        assert_eq!(super::kad(&raw), Some(kad.clone()));
        assert_eq!(open(&key, 1, 9, &raw).as_deref(), Some(&b"a secret"[..]));
        assert_eq!(open(&key, 1, 8, &raw), None);
        assert_eq!(open(&Key { bytes: [2; 32], kad }, 1, 9, &raw), None);
        for at in 0..raw.len() {
            let mut wrong = raw.clone();
            wrong[at] ^= 1;
            assert_eq!(open(&key, 1, 9, &wrong), None, "byte {at}");
        }
        assert_ne!(seal(&key, 1, 9, b"a secret").unwrap(), raw, "never the same nonce twice");
        assert_eq!(super::kad(b"TCX1"), None);
    }
}
