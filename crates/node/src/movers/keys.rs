//! Secrets that the metadata service and a target share. All follow from one key, which is kept in the state directory and never leaves
//! it: nothing else has to be kept, and there is nothing of it in a backup of the catalogue.

use crate::error::failure;
use data::CapabilityKey;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use types::{ErrorClass, TargetId, Time};
use wire::Failure;

/// File of the state directory.
const NAME: &str = "targets.key";
/// An epoch of a turn (seconds). A target knows three: capabilities live for less than one, and clocks differ by less than one.
const EPOCH_S: i64 = 24 * 3600;
/// What is digested before a target and an epoch.
const SECRET_OF: &[u8] = b"thermocline target secret 1\0";

/// The key.
pub(crate) struct MasterKey(CapabilityKey);

impl MasterKey {
    /// Reads it, or makes it, durably, where there is none.
    pub(crate) fn open(state: &Path) -> Result<Self, Failure> {
        let path = state.join(NAME);
        let fail = |e: std::io::Error| failure(ErrorClass::Corrupt, format!("{}: {e}", path.display()));
        let mut bytes = [0; 32];
        match File::open(&path) {
            Ok(mut file) => file.read_exact(&mut bytes).map_err(fail)?,
            Err(e) if e.kind() == ErrorKind::NotFound => bytes = make(state).map_err(fail)?,
            Err(e) => return Err(fail(e)),
        }
        Ok(Self(CapabilityKey::from_secret(bytes)))
    }

    /// Secret of a target in an epoch.
    pub(crate) fn secret(&self, target: TargetId, epoch: u32) -> [u8; 32] {
        self.0.sign(&[SECRET_OF, &target.0.to_le_bytes(), &epoch.to_le_bytes()])
    }

    /// What a target has to know in an epoch.
    pub(crate) fn secrets(&self, target: TargetId, epoch: u32) -> Vec<(u32, [u8; 32])> {
        let around = epoch.saturating_sub(1)..=epoch.saturating_add(1);
        around.map(|epoch| (epoch, self.secret(target, epoch))).collect()
    }
}

/// The epoch of capabilities that are given out at `now` in a turn.
pub(crate) fn epoch(now: Time, turn: u64) -> u32 {
    data::epoch::of(turn, u32::try_from(now.secs.div_euclid(EPOCH_S)).unwrap_or_default())
}

fn make(state: &Path) -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let new = state.join("targets.key.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, state.join(NAME))?;
    File::open(state)?.sync_all()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_outlive_a_restart_and_differ_by_target_and_epoch() {
        let dir = tempfile::tempdir().unwrap();
        let first = MasterKey::open(dir.path()).unwrap();
        let again = MasterKey::open(dir.path()).unwrap();
        let now = Time::new(20_000 * EPOCH_S + 7, 0);
        assert_eq!(epoch(now, 0), 20_000);
        let secrets = first.secrets(TargetId(1), 20_000);
        assert_eq!(secrets, again.secrets(TargetId(1), 20_000));
        let of = |turn| first.secrets(TargetId(1), epoch(now, turn));
        assert!(of(3).iter().all(|(epoch, _)| of(4).iter().chain(&secrets).all(|(other, _)| other != epoch)));
        let epochs: Vec<u32> = secrets.iter().map(|(epoch, _)| *epoch).collect();
        assert_eq!(epochs, [19_999, 20_000, 20_001]);
        let mut all: Vec<[u8; 32]> = secrets.into_iter().map(|(_, secret)| secret).collect();
        all.extend(first.secrets(TargetId(2), 20_000).into_iter().map(|(_, secret)| secret));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
        // A damaged key is not replaced: capabilities that were given out would end.
        fs::write(dir.path().join(NAME), b"short").unwrap();
        assert!(MasterKey::open(dir.path()).is_err());
    }
}
