//! What a member of a cluster keeps in its state directory: `authority.der`, `certificate.der`, `key.der`, `addresses` (nodes to ask, one per line), and on the host
//! of the authority `authority-key.der`. Keys have mode 0600. The directory appears as a whole or not at all. `removed` is the signed list of removed
//! members, if there are such, `places` the one last brought of where the namespace is, `roster` on the host of the authority what it knows of the members. While a certificate is replaced, the new key lies in `key-next.der` until the new certificate is in its place.

use crate::{
    Authority, IdentError, Identity, Key, Role, Validity, Withdrawn, read_places, read_withdrawn, verify,
};
use rustls::pki_types::CertificateDer;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const AUTHORITY: &str = "authority.der";
const AUTHORITY_KEY: &str = "authority-key.der";
const CERTIFICATE: &str = "certificate.der";
const KEY: &str = "key.der";
const NEXT_KEY: &str = "key-next.der";
const ADDRESSES: &str = "addresses";
const REMOVED: &str = "removed";
const ROSTER: &str = "roster";
const PLACES: &str = "places";

/// How a member proves who it is.
#[derive(Debug)]
pub struct Credentials {
    /// Who it is.
    pub identity: Identity,
    /// Its certificate (DER).
    pub certificate: Vec<u8>,
    /// From when until when that is good.
    pub valid: Validity,
    /// Its key.
    pub key: Key,
    /// Certificate of the authority (DER).
    pub authority: Vec<u8>,
    /// Key of the authority, on the one host that signs.
    pub authority_key: Option<Key>,
    /// Nodes of the cluster to ask (`host:port`).
    pub addresses: Vec<String>,
    /// Who was removed from the cluster, as far as this member has heard.
    pub removed: Withdrawn,
}

impl Credentials {
    /// Of parts that belong together.
    ///
    /// # Errors
    /// The certificate names nobody, or is for another key.
    pub fn new(certificate: Vec<u8>, key: Key, authority: Vec<u8>) -> Result<Self, IdentError> {
        let identity = verify::identity_of(&CertificateDer::from(certificate.as_slice()))?;
        if !key.is_of(&certificate) {
            return Err(IdentError::Nameless("it is for another key".into()));
        }
        let valid = Validity::of_certificate(&certificate)?;
        let (authority_key, addresses, removed) = (None, Vec::new(), Withdrawn::default());
        Ok(Self { identity, certificate, valid, key, authority, authority_key, addresses, removed })
    }

    /// The authority, where its key is.
    ///
    /// # Errors
    /// Its certificate cannot be read.
    pub fn signer(&self) -> Result<Option<Authority>, IdentError> {
        let Some(key) = &self.authority_key else { return Ok(None) };
        Authority::load(self.identity.cluster, &self.authority, Key::from_der(&key.to_der())?).map(Some)
    }

    /// Prepares directory `dir`: everything is durable beside it, under another name, until [`Credentials::commit`].
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn prepare(&self, dir: &Path) -> Result<(), IdentError> {
        let new = prepared(dir);
        let fail = |e: std::io::Error| {
            file(&new, format!("cannot be written: {e}; check owner, mode and free space"))
        };
        forget(dir)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&new).map_err(fail)?;
        let write = |name: &str, bytes: &[u8], mode: u32| -> std::io::Result<()> {
            let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(new.join(name))?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write(AUTHORITY, &self.authority, 0o644).map_err(fail)?;
        write(CERTIFICATE, &self.certificate, 0o644).map_err(fail)?;
        write(ADDRESSES, self.addresses.join("\n").as_bytes(), 0o644).map_err(fail)?;
        write(KEY, &self.key.to_der(), 0o600).map_err(fail)?;
        if let Some(key) = &self.authority_key {
            write(AUTHORITY_KEY, &key.to_der(), 0o600).map_err(fail)?;
        }
        sync_dir(&new).and_then(|()| sync_parent(dir)).map_err(fail)
    }

    /// Puts the prepared directory in its place. Nothing is replaced: a member stays who it is.
    ///
    /// # Errors
    /// There is one already, or the file system.
    pub fn commit(dir: &Path) -> Result<(), IdentError> {
        let fail = |e: std::io::Error| file(dir, format!("cannot be made: {e}; check owner and mode"));
        if dir.exists() {
            return Err(file(dir, "exists: this state directory belongs to a cluster already".into()));
        }
        fs::rename(prepared(dir), dir).and_then(|()| sync_parent(dir)).map_err(fail)
    }

    /// Puts another certificate of the same member, and its key, in the place of the old ones. Whenever power fails, the directory holds a certificate with its key.
    ///
    /// # Errors
    /// They do not belong together, or the file system.
    pub fn replace(dir: &Path, certificate: &[u8], key: &Key) -> Result<(), IdentError> {
        if !key.is_of(certificate) {
            return Err(IdentError::Nameless("it is for another key".into()));
        }
        put(dir, NEXT_KEY, &key.to_der(), 0o600)?;
        put(dir, CERTIFICATE, certificate, 0o644)?;
        finish_replacing(dir)
    }

    /// Keeps a signed list of removed members, if it names all that are known to be.
    ///
    /// # Errors
    /// The list is not to be believed, or the file system.
    pub fn keep_removed(&self, dir: &Path, list: &[u8]) -> Result<Vec<Role>, IdentError> {
        let named = read_withdrawn(list, self.identity.cluster, &self.authority)?;
        if named.is_superset(&self.removed.all()) && named != self.removed.all() {
            put(dir, REMOVED, list, 0o644)?;
        }
        Ok(self.removed.add(named))
    }

    /// The signed list of removed members that is kept there; empty if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn kept_removed(dir: &Path) -> Result<Vec<u8>, IdentError> {
        read_if_there(&dir.join(REMOVED))
    }

    /// Keeps where the cluster is asked (`host:port`).
    ///
    /// # Errors
    /// The file system.
    pub fn keep_addresses(dir: &Path, addresses: &[String]) -> Result<(), IdentError> {
        put(dir, ADDRESSES, addresses.join("\n").as_bytes(), 0o644)
    }

    /// Keeps a signed list of where the namespace is to be had, unless one of a later turn is kept; gives what it says, and whether it is the latest.
    ///
    /// # Errors
    /// The list is not to be believed, or the file system.
    pub fn keep_places(&self, dir: &Path, list: &[u8]) -> Result<(Vec<String>, bool), IdentError> {
        let read = |list: &[u8]| read_places(list, self.identity.cluster, &self.authority);
        let (new, before) = (read(list)?, read_if_there(&dir.join(PLACES))?);
        // What is damaged there is replaced.
        let latest = read(&before).map_or(true, |before| before.turn <= new.turn);
        if latest && list != before {
            put(dir, PLACES, list, 0o644)?;
        }
        Ok((new.addresses, latest))
    }

    /// Keeps the roster: what the node with the authority's key knows of the members, for it alone to understand.
    ///
    /// # Errors
    /// The file system.
    pub fn keep_roster(dir: &Path, roster: &[u8]) -> Result<(), IdentError> {
        if Self::kept_roster(dir)? == roster { Ok(()) } else { put(dir, ROSTER, roster, 0o600) }
    }

    /// The roster; empty if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn kept_roster(dir: &Path) -> Result<Vec<u8>, IdentError> {
        read_if_there(&dir.join(ROSTER))
    }

    /// What was prepared and not put in its place; None if there is none, or no more than a part.
    pub fn prepared(dir: &Path) -> Option<Self> {
        Self::load(&prepared(dir)).ok().flatten()
    }

    /// Reads a directory; None if there is none.
    ///
    /// # Errors
    /// Files are missing, damaged, or others may read the key.
    pub fn load(dir: &Path) -> Result<Option<Self>, IdentError> {
        match fs::symlink_metadata(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(file(dir, format!("cannot be read: {e}"))),
            Ok(_) => {}
        }
        let authority = read(&dir.join(AUTHORITY))?;
        let signing = dir.join(AUTHORITY_KEY);
        let authority_key = if signing.exists() { Some(read_key(&signing)?) } else { None };
        let certificate = read(&dir.join(CERTIFICATE))?;
        let addresses =
            String::from_utf8_lossy(&read(&dir.join(ADDRESSES))?).lines().map(str::to_owned).collect();
        let key = key_of(dir, &certificate)?;
        let read = Self { authority_key, addresses, ..Self::new(certificate, key, authority)? };
        let list = Self::kept_removed(dir)?;
        if !list.is_empty() {
            let told = |e: IdentError| {
                file(&dir.join(REMOVED), format!("{e}; bring it back from a backup or another node"))
            };
            read.removed.add(read_withdrawn(&list, read.identity.cluster, &read.authority).map_err(told)?);
        }
        Ok(Some(read))
    }
}

/// The key of a certificate: in its place, or, where power failed while both were replaced, beside it.
fn key_of(dir: &Path, certificate: &[u8]) -> Result<Key, IdentError> {
    let path = dir.join(KEY);
    let key = read_key(&path)?;
    if key.is_of(certificate) {
        return Ok(key);
    }
    let next = dir.join(NEXT_KEY);
    match next.exists().then(|| read_key(&next)).transpose()? {
        Some(key) if key.is_of(certificate) => {
            finish_replacing(dir)?;
            Ok(key)
        }
        _ => Err(file(
            &path,
            format!("is not the key of {CERTIFICATE}; bring both back from a backup, or join again"),
        )),
    }
}

fn finish_replacing(dir: &Path) -> Result<(), IdentError> {
    let (next, key) = (dir.join(NEXT_KEY), dir.join(KEY));
    let moved = fs::rename(next, &key).and_then(|()| sync_dir(dir));
    moved.map_err(|e| file(&key, format!("cannot be written: {e}; check owner and mode")))
}

/// Replaces a file as a whole, durably.
fn put(dir: &Path, name: &str, bytes: &[u8], mode: u32) -> Result<(), IdentError> {
    let (path, new) = (dir.join(name), dir.join(format!("{name}.new")));
    let written = || -> std::io::Result<()> {
        match fs::remove_file(&new) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        sync_dir(dir)
    };
    written().map_err(|e| file(&path, format!("cannot be written: {e}; check owner, mode and free space")))
}

/// Removes what was prepared and not put in its place.
fn forget(dir: &Path) -> Result<(), IdentError> {
    let new = prepared(dir);
    match fs::remove_dir_all(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(file(&new, format!("cannot be removed: {e}"))),
        _ => Ok(()),
    }
}

fn prepared(dir: &Path) -> PathBuf {
    dir.with_extension("new")
}

fn read(path: &Path) -> Result<Vec<u8>, IdentError> {
    fs::read(path)
        .map_err(|e| file(path, format!("cannot be read: {e}; bring it back from a backup, or join again")))
}

fn read_if_there(path: &Path) -> Result<Vec<u8>, IdentError> {
    match fs::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|e| file(path, format!("cannot be read: {e}"))),
    }
}

fn read_key(path: &Path) -> Result<Key, IdentError> {
    // A file that is not there is named by `read`.
    let mode = fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        return Err(file(path, format!("others may read this key (mode {mode:o}); set it to 0600")));
    }
    Key::from_der(&read(path)?).map_err(|e| file(path, format!("is no key: {e}")))
}

fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

fn sync_parent(dir: &Path) -> std::io::Result<()> {
    dir.parent().map_or(Ok(()), sync_dir)
}

fn file(path: &Path, problem: String) -> IdentError {
    IdentError::File { path: path.to_owned(), problem }
}
