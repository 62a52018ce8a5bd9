//! Directories that lead to subsystems.

use crate::Node;
use crate::error::{failure, fs_failure, refused};
use types::{Cx, ErrorClass, FsError, Ino, Junction, JunctionView, escape};
use wire::{Call, Failure, FileCall};

/// What a call on names is about, as far as that may lead elsewhere.
pub(super) enum Place {
    Path(Vec<u8>),
    In(Ino),
    /// Nothing that could.
    Other,
}

/// Where a call looks for something, or makes something.
pub(super) fn place(call: &FileCall) -> Place {
    match call {
        FileCall::Resolve { path } | FileCall::Follow { path } => Place::Path(path.clone()),
        FileCall::Mkdir { parent, .. }
        | FileCall::Symlink { parent, .. }
        | FileCall::Link { parent, .. }
        | FileCall::Mknod { parent, .. }
        | FileCall::Create { parent, .. }
        | FileCall::CreateAs { parent, .. } => Place::In(*parent),
        FileCall::Rename { to, .. } => Place::In(to.0),
        _ => Place::Other,
    }
}

impl Node {
    /// A refusal in words; of what lies in a subsystem they say in which, and where that is asked.
    pub(super) fn told(&self, cx: &Cx, what: &str, place: Place, refusal: FsError) -> Failure {
        let error = match place {
            _ if refusal != FsError::Elsewhere => None,
            Place::Path(path) => self.catalog.resolve(cx, &path, true).err(),
            Place::In(dir) => self.catalog.elsewhere(dir).unwrap_or_else(Some),
            Place::Other => None,
        };
        // By now it may lead nowhere any more.
        match error.filter(|e| e.fs() == FsError::Elsewhere) {
            Some(error) => refused(what, &error),
            None => fs_failure(what, refusal),
        }
    }

    pub(crate) fn junction_views(&self) -> Result<Vec<JunctionView>, Failure> {
        let mut views = self.catalog.junctions().map_err(|e| refused("junctions", &e))?;
        views.iter_mut().for_each(|view| view.state = self.seen_of(&view.junction.subsystem));
        Ok(views)
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
        self.may_lead(&to)?;
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
