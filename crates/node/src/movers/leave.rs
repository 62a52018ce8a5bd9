//! Files of the node's own disk tier go to targets: a site that grows from one machine to a cluster has all its files there.

use super::mend::Whose;
use super::requested::Stop;
use crate::Node;
use crate::archive::FileHash;
use crate::files::{FarFile, Fresh, Leaving, Unfinished};
use std::sync::Arc;
use types::*;

impl Node {
    /// Gives a file that lies in the disk tier objects on targets.
    pub(super) fn leave_tier(
        &self,
        request: RequestId,
        ino: Ino,
        object: ObjectId,
        rule: &LayoutRule,
    ) -> Result<(), Stop> {
        let leaving = Leaving::begin(self, ino, object)?;
        let copy = |to: Arc<FarFile>, new| self.copy_near(request, &leaving, to, new);
        self.with_new_objects(ino, rule, copy)?;
        drop(leaving);
        self.attributes_changed(ino);
        Ok(())
    }

    fn copy_near(
        &self,
        request: RequestId,
        leaving: &Leaving<'_>,
        to: Arc<FarFile>,
        new: ObjectId,
    ) -> Result<(), Unfinished> {
        let ino = to.ino();
        let to = Fresh::begin(to, leaving.length())?;
        let mut hash = FileHash::new();
        for piece in leaving.pieces() {
            let piece = piece?;
            let (bytes, at) = (piece.end - piece.start, piece.end);
            self.at_pace(Whose { claim: None, request: Some(request) }, bytes, || {
                leaving.copy(piece, &to, &mut hash)?;
                Ok::<_, Unfinished>(((), bytes))
            })?;
            self.movers.note_copied(request, ino, at);
            leaving.is_left_alone()?;
            leaving.is_there()?;
            self.is_wanted_still(request)?;
        }
        leaving.finish(&to, new, hash)
    }
}
