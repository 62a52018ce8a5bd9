//! Which directories may lead to a subsystem, in memory: whoever makes something in another one need not ask the engine for that, which
//! with a database is a way over the network for each name.

use parking_lot::RwLock;
use std::collections::BTreeSet;
use types::Ino;

/// All directories that lead to a subsystem, and maybe some that do no more, or never came to. A directory is entered before the transaction
/// commits that has it lead there. One that makes something in it and has not seen it here has read the record of the directory, which
/// that one writes: one of them is begun again, or refused.
#[derive(Default)]
pub struct Leading(RwLock<BTreeSet<Ino>>);

impl Leading {
    /// Whether the table of junctions is to be asked.
    pub fn may(&self, dir: Ino) -> bool {
        self.0.read().contains(&dir)
    }

    /// From now on it may.
    pub fn enter(&self, dir: Ino) {
        self.0.write().insert(dir);
    }
}
