//! Directories that lead to subsystems.

use crate::Node;
use crate::error::{failure, refused};
use types::{Cx, ErrorClass, Junction, JunctionView, escape};
use wire::{Call, Failure};

impl Node {
    pub(super) fn junction_views(&self) -> Result<Vec<JunctionView>, Failure> {
        self.catalog.junctions().map_err(|e| refused("junctions", &e))
    }

    /// Makes or removes one.
    pub(super) fn set_junction(&self, cx: &Cx, call: Call) -> Result<(), Failure> {
        match call {
            Call::JunctionMake { path, subsystem, addresses } => {
                self.make_junction(cx, &path, subsystem, addresses)
            }
            Call::JunctionRemove { path } => self.remove_junction(cx, &path),
            other => Err(failure(ErrorClass::Bug, format!("{other:?} is not about junctions"))),
        }
    }

    fn make_junction(
        &self,
        cx: &Cx,
        path: &[u8],
        subsystem: String,
        addresses: Vec<String>,
    ) -> Result<(), Failure> {
        let to = Junction { subsystem, addresses, made: cx.now };
        to.validate().map_err(|why| failure(ErrorClass::Invalid, why))?;
        let made = self.seen_by_all(self.catalog.make_junction(cx, path, &to));
        let made = made.map_err(|e| refused(&escape(path), &e))?;
        tracing::info!("{} leads to subsystem {} from now on", made.path, to.subsystem);
        Ok(())
    }

    fn remove_junction(&self, cx: &Cx, path: &[u8]) -> Result<(), Failure> {
        let shown = escape(path);
        let was = self.seen_by_all(self.catalog.remove_junction(cx, path));
        let was = was.map_err(|e| refused(&shown, &e))?;
        tracing::info!("{shown} leads to subsystem {} no more", was.subsystem);
        Ok(())
    }
}
