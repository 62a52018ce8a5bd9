//! What hosts keep a spare of until it is at the targets.

use super::Catalog;
use crate::ops::spares;
use crate::{Result, Spared};
use types::Ino;

impl Catalog {
    /// A session keeps what it writes to a file through the node, in an epoch that no other one has. Durable: the node that serves next waits for it.
    pub fn keep_spare(&self, ino: Ino, epoch: u64, session: u64) -> Result<()> {
        self.durable(|tx| spares::keep(tx, ino, epoch, session))
    }

    /// What was kept of a file in these epochs is at its targets, and what is written there from now on is newer. Durable.
    pub fn forget_spares(&self, ino: Ino, epochs: &[u64]) -> Result<()> {
        self.durable(|tx| spares::forget(tx, ino, epochs))
    }

    /// Whoever kept it did not return it, and others use the file from now on. Durable: it is refused, whenever it comes.
    pub fn lose_spare(&self, ino: Ino, epoch: u64) -> Result<()> {
        self.durable(|tx| spares::lose(tx, ino, epoch))
    }

    /// The greatest epoch that was ever given, as far as this catalogue knows: one from before it was restored may have given others.
    pub fn last_spare(&self) -> Result<u64> {
        self.read(spares::last)
    }

    /// All that is on record.
    pub fn spares(&self) -> Result<Vec<Spared>> {
        self.read(spares::all)
    }
}
