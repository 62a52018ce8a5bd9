//! Versions that were deleted or overwritten can be restored for a while: their volumes are not emptied by rule before that.

use crate::Node;
use crate::clock::Moment;
use catalog::TapeNode;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;
use types::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Volumes that are kept, and until when.
#[derive(Default)]
pub struct Undeletable(BTreeMap<Barcode, Moment>);

impl Undeletable {
    /// Whether the volume was found to be kept.
    pub fn contains(&mut self, volume: &Barcode) -> bool {
        if self.0.get(volume).is_some_and(|until| Moment::now() >= *until) {
            self.0.remove(volume);
        }
        self.0.contains_key(volume)
    }

    /// Looks through a volume; true if it is kept for now.
    pub fn look(&mut self, node: &Node, volume: &Barcode) -> catalog::Result<bool> {
        let days = node.settings().undelete.keep_days;
        if days == 0 {
            return Ok(false);
        }
        let Some(last) = last_ended(node, volume)? else { return Ok(false) };
        let passed = crate::now().since(last);
        let Some(left) = (DAY * days).checked_sub(passed).filter(|left| !left.is_zero()) else {
            return Ok(false);
        };
        let words = left.as_secs().div_ceil(3600);
        tracing::info!(
            "volume {volume} is not emptied for {words} hours: what was deleted can be restored so long"
        );
        self.0.insert(volume.clone(), Moment::now() + left);
        Ok(true)
    }
}

/// When the last version on a volume ended that can be restored; one of which that is not known, when it was written.
fn last_ended(node: &Node, volume: &Barcode) -> catalog::Result<Option<Time>> {
    let (mut last, mut failed) = (None, None);
    node.catalog.walk_volume(volume, &mut |tape| {
        let TapeNode::File { file, .. } = tape else { return ControlFlow::Continue(()) };
        if file.live {
            return ControlFlow::Continue(());
        }
        match node.catalog.ended_at(file.ino, file.version) {
            Ok(None) => {}
            Ok(Some(at)) => last = last.max(Some(at.unwrap_or(file.written))),
            Err(e) => {
                failed = Some(e);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    failed.map_or(Ok(last), Err)
}

#[cfg(test)]
mod tests {
    use super::super::repack::Repack;
    use super::*;
    use crate::Config;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Instant;
    use types::api::{FileApi, OpenFlags};

    fn node(state: &Path, keep_days: u32) -> Arc<Node> {
        let mut config = Config { state_dir: state.to_owned(), ..Config::default() };
        config.classes[0].copies = vec!["primary".into()];
        config.classes[0].migrate_after_s = 0;
        config.reclaim.dead_percent = 50;
        config.undelete.keep_days = keep_days;
        Node::start(config).unwrap()
    }

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_volume_is_not_emptied_by_rule_while_what_was_deleted_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let keeps = node(dir.path(), 30);
        let cx = Cx::admin(crate::now());
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let opened = keeps.create(&cx, Ino::ROOT, b"file", 0o644, flags).unwrap();
        keeps.write(opened.handle, 0, b"content").unwrap();
        keeps.release(opened.handle);
        let ino = opened.attr.ino;
        until("no copy was made", || !keeps.catalog.inode(ino).unwrap().file.unwrap().copies.is_empty());
        let volumes = || keeps.catalog.volumes().unwrap();
        let volume = volumes().into_iter().find(|v| v.files > 0).unwrap().barcode;
        let read_only = |v: &mut Volume| {
            v.becomes(VolumeState::ReadOnly, "by order", crate::now());
            v.by = Some(0);
        };
        keeps.catalog.update_volume(&volume, &mut |v| read_only(v)).unwrap();
        assert_eq!(last_ended(&keeps, &volume).unwrap(), None);
        let before = crate::now();
        keeps.unlink(&Cx::admin(crate::now()), Ino::ROOT, b"file").unwrap();
        assert!(last_ended(&keeps, &volume).unwrap().is_some_and(|at| at >= before));
        let mut repack = Repack::default();
        repack.look(&keeps, &volumes()).unwrap();
        assert!(repack.kept.contains(&volume));
        assert_eq!(keeps.catalog.volume(&volume).unwrap().unwrap().state, VolumeState::ReadOnly);
        keeps.stop(true);
        drop(keeps);
        // The same without days.
        let empties = node(dir.path(), 0);
        let state = || empties.catalog.volume(&volume).unwrap().unwrap().state;
        until("it is not emptied", || !matches!(state(), VolumeState::ReadOnly | VolumeState::Repacking));
        empties.stop(true);
    }
}
