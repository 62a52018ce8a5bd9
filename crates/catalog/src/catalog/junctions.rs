//! Directories that lead to subsystems.

use super::Catalog;
use crate::ops::junction;
use crate::{CatalogError, Result};
use types::{Cx, Ino, Junction, JunctionView};

impl Catalog {
    /// Has the empty directory at `path` lead to a subsystem. Durable. Refused for the root, for one that leads somewhere already, and if
    /// another one leads to the same subsystem. What the junction says is not checked ([`Junction::validate`]).
    pub fn make_junction(&self, cx: &Cx, path: &[u8], to: &Junction) -> Result<JunctionView> {
        self.durable(|tx| junction::make(tx, cx, path, to))
    }

    /// The directory at `path` leads nowhere from now on: it is an empty one. Where it led. Durable.
    pub fn remove_junction(&self, cx: &Cx, path: &[u8]) -> Result<Junction> {
        self.durable(|tx| junction::unmake(tx, cx, path))
    }

    /// Where a directory leads; None: nowhere.
    pub fn junction(&self, dir: Ino) -> Result<Option<Junction>> {
        self.read(|v| junction::find(v, dir))
    }

    /// Why nothing of a name is in a directory that leads to a subsystem, and nothing is made in it; None: it leads nowhere.
    pub fn elsewhere(&self, dir: Ino) -> Result<Option<CatalogError>> {
        if !self.leading.may(dir) {
            return Ok(None);
        }
        self.read(|v| junction::why_absent(v, dir))
    }

    /// All junctions with the paths that their directories have now, in order of these.
    pub fn junctions(&self) -> Result<Vec<JunctionView>> {
        self.read(junction::all)
    }
}
