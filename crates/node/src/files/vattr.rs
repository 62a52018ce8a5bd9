//! Virtual extended attributes `user.thermo.*`: what the archive knows of a file, for any program that can read xattrs.

use crate::Node;
use types::api::FsResult;
use types::*;

const PREFIX: &[u8] = b"user.thermo.";

/// The virtual attributes; they are not listed, so that copying tools do not copy them.
pub const NAMES: [&str; 9] =
    ["residency", "copies", "volumes", "request", "percent", "eta", "class", "digest", "node"];

impl Node {
    /// Value of a virtual attribute; None if `name` is not one.
    pub(crate) fn virtual_xattr(&self, ino: Ino, name: &[u8]) -> Option<FsResult<Vec<u8>>> {
        let name = name.strip_prefix(PREFIX)?;
        let name = NAMES.iter().find(|n| n.as_bytes() == name);
        Some(match name {
            Some(name) => self.virtual_value(ino, name).map(String::into_bytes),
            None => Err(FsError::NoAttribute),
        })
    }

    pub(crate) fn refuse_virtual(&self, name: &[u8]) -> FsResult<()> {
        if name.starts_with(PREFIX) { Err(FsError::NotPermitted) } else { Ok(()) }
    }

    fn virtual_value(&self, ino: Ino, name: &str) -> FsResult<String> {
        let inode = self.catalog.inode(ino).map_err(|e| e.fs())?;
        let Some(file) = &inode.file else { return Err(FsError::NoAttribute) };
        let staging = || self.staging.get(ino).ok_or(FsError::NoAttribute);
        match name {
            "residency" => Ok(residency_text(self.residency(&inode)).into()),
            "copies" => Ok(format!("{}/{}", file.copies.len(), self.copies_required(&file.class))),
            "class" => Ok(file.class.0.clone()),
            "node" => Ok(self.name_for_programs()),
            "digest" => file.digest.map(|d| format!("sha256:{d}")).ok_or(FsError::NoAttribute),
            "volumes" => self.volumes_of(&inode),
            "percent" => staging().map(|s| percent(s.arrived_bytes(), s.size).to_string()),
            "request" => {
                let ids = self.catalog.requests_for(ino).map_err(|e| e.fs())?;
                ids.first().map(|id| id.to_string()).ok_or(FsError::NoAttribute)
            }
            "eta" => {
                staging()?;
                self.eta_s(ino).map(|s| format!("{s} s")).ok_or(FsError::NoAttribute)
            }
            _ => Err(FsError::NoAttribute),
        }
    }

    fn volumes_of(&self, inode: &Inode) -> FsResult<String> {
        let version = inode.file.as_ref().map(|f| f.version).unwrap_or_default();
        let copies = self.catalog.version_copies(inode.attr.ino, version).map_err(|e| e.fs())?;
        let names = copies.iter().flat_map(|c| c.segments.iter().map(|s| s.volume.to_string()));
        Ok(names.collect::<Vec<_>>().join(","))
    }

    /// Where a regular file's bytes are.
    pub(crate) fn residency(&self, inode: &Inode) -> Residency {
        let Some(file) = &inode.file else { return Residency::Resident };
        match (file.object, self.staging.get(inode.attr.ino)) {
            (None, Some(_)) => Residency::Staging,
            (None, None) => Residency::Offline,
            (Some(_), _) => {
                let required = self.copies_required(&file.class);
                let dual = required > 0 && file.copies.len() >= required;
                if dual { Residency::Dual } else { Residency::Resident }
            }
        }
    }

    pub(crate) fn copies_required(&self, class: &ClassName) -> usize {
        self.catalog.class(class).ok().flatten().map_or(0, |c| c.copies.len())
    }
}

/// The word that users see.
pub fn residency_text(residency: Residency) -> &'static str {
    match residency {
        Residency::Resident => "resident",
        Residency::Dual => "dual",
        Residency::Offline => "offline",
        Residency::Staging => "staging",
    }
}

/// Per cent of `total`, 100 only when all is done.
pub fn percent(done: u64, total: u64) -> u8 {
    if total == 0 || done >= total { 100 } else { (done as u128 * 100 / total as u128).min(99) as u8 }
}
