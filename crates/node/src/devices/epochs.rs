//! Who may have a device of a node and its standby, or of nodes that take turns: in `<state_dir>/devices` is, by name, the highest epoch that it was opened in. Each take-over, and each turn, raises that
//! ([`crate::standby`]), so a node that was taken over from and does not know it yet, cut off from the other, is refused here.

use crate::error::failure;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use types::ErrorClass;
use wire::Failure;

const NAME: &str = "devices";
/// It is written here first.
const NEW: &str = "devices.new";

pub(super) struct Epochs {
    state: PathBuf,
    one_at_a_time: Mutex<()>,
}

impl Epochs {
    /// Of the node with this state directory.
    pub(super) fn of(state: &Path) -> Self {
        Self { state: state.to_owned(), one_at_a_time: Mutex::new(()) }
    }

    /// Opens a device for somebody of an epoch: a higher one than before is on stable storage when that happens.
    ///
    /// # Errors
    /// `Denied`: one of a higher epoch has had it. Others: the file.
    pub(super) fn admit<T>(&self, device: &str, epoch: u64, open: impl FnOnce() -> T) -> Result<T, Failure> {
        let _one_at_a_time = self.one_at_a_time.lock();
        let mut known = self.read()?;
        let before = known.get(device).copied().unwrap_or(0);
        if epoch < before {
            let message = format!(
                "another node has taken over from the one that asks (it is of epoch {epoch}, and one of epoch {before} has had device {device}): use it from that one; if \
                 there is none any more, remove {} on this host",
                self.state.join(NAME).display()
            );
            return Err(failure(ErrorClass::Denied, message));
        }
        if epoch > before {
            known.insert(device.to_owned(), epoch);
            self.write(&known).map_err(|e| crate::startup::io(&self.state, &e))?;
        }
        Ok(open())
    }

    fn read(&self) -> Result<BTreeMap<String, u64>, Failure> {
        let path = self.state.join(NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(e) => return Err(crate::startup::io(&self.state, &e)),
        };
        toml::from_str(&text).map_err(|e| {
            let path = path.display();
            let message = format!(
                "{path}: {e}; it says who may have the devices of this host. Remove it once the node that was taken over from is off or knows it"
            );
            failure(ErrorClass::Corrupt, message)
        })
    }

    fn write(&self, known: &BTreeMap<String, u64>) -> std::io::Result<()> {
        let text = toml::to_string(known).map_err(std::io::Error::other)?;
        let new = self.state.join(NEW);
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, self.state.join(NAME))?;
        File::open(&self.state)?.sync_all()
    }
}
