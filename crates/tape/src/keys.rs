//! Volumes encrypted by the drive. As LTFS implementations do, all of a volume is encrypted, labels included, with one
//! key from its first block on: so a drive or library that manages keys by itself reads it too. The name of the key lies
//! beside every record (U-KAD), where it is read without the key.

use crate::head::{Head, Place};
use crate::{Blame, Fault, Result};
use scsi::Ssc;
use scsi::encrypt::{MAX_KEY_NAME, NextBlock};
use std::fmt;
use std::sync::Arc;

/// A key of 256 bits and its name. What is printed of it is the name only.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    name: String,
    bytes: [u8; 32],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.name)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.bytes.fill(0);
    }
}

impl Key {
    /// A key; None if its name is empty, longer than 32 bytes or not printable ASCII without spaces.
    pub fn new(name: &str, bytes: [u8; 32]) -> Option<Self> {
        let fits = (1..=MAX_KEY_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        fits.then(|| Self { name: name.to_owned(), bytes })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Where keys come from.
pub trait Keys: Send + Sync {
    /// The key of this name.
    ///
    /// # Errors
    /// There is none, or the source does not answer; the text says what to do.
    fn key(&self, name: &str) -> std::result::Result<Key, String>;
}

/// A source of keys.
pub type KeySource = Arc<dyn Keys>;

const DOING: &str = "unlocking the volume";

/// Before anything is read: if the medium is encrypted, its key goes to the drive; returns its name. Else none stays there.
pub(crate) fn unlock(head: &mut Head, keys: Option<&KeySource>) -> Result<Option<String>> {
    head.locate(Place { partition: 0, block: 0 })?;
    let Some(next) = head.attempt("asking whether the volume is encrypted", Ssc::next_block)? else {
        return Ok(None);
    };
    let NextBlock::Encrypted { key } = next else {
        head.attempt("forgetting keys", Ssc::clear_key)?;
        head.keyed = true;
        return Ok(None);
    };
    let name = String::from_utf8_lossy(&key).into_owned();
    let found = match keys {
        Some(keys) => keys.key(&name),
        None => Err("no source of keys is configured".to_owned()),
    };
    let key = found.map_err(|why| {
        let what = format!("the volume is encrypted with key `{name}`, which cannot be had: {why}");
        let advice = "see [encryption] in the configuration; nothing on the volume was touched";
        head.error(Fault::Key, Blame::Us, DOING, what, advice)
    })?;
    lock(head, Some(&key))?;
    Ok(Some(name))
}

/// From here on records are encrypted with `key`, or plain.
pub(crate) fn lock(head: &mut Head, key: Option<&Key>) -> Result<()> {
    let algorithm = head.attempt("asking how the drive encrypts", Ssc::encryption_algorithm)?;
    match (key, algorithm) {
        (None, None) => {}
        (None, Some(_)) => head.attempt("forgetting keys", Ssc::clear_key)?,
        (Some(key), Some(algorithm)) => {
            head.attempt("giving the key to the drive", |ssc| {
                ssc.set_key(algorithm, &key.bytes, key.name.as_bytes())
            })?;
        }
        (Some(key), None) => {
            let what = format!("key `{}` is needed, and the drive does not encrypt (AES-256-GCM)", key.name);
            let advice = "use a drive that encrypts, or enable its encryption (application-managed)";
            return Err(head.error(Fault::Key, Blame::Drive, DOING, what, advice));
        }
    }
    (head.key, head.keyed) = (key.map(|key| key.name.clone()), true);
    Ok(())
}
