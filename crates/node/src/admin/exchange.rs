//! Volumes go to other sites and come from there.

use crate::Node;
use crate::archive::import::Import;
use crate::error::{failure, refused};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::*;
use wire::{Failure, ImportOrder, Reply};

/// In the reason of an exported volume: between why it was exported, and what came of its last import.
const NOT_BACK: &str = "; its import failed: ";

impl Node {
    /// Begins to export: volumes are closed, get their index, and are neither read nor written from then on.
    pub(super) fn export_volumes(
        &self,
        cx: &Cx,
        volumes: &[Barcode],
        reason: String,
    ) -> Result<Request, Failure> {
        let (mut items, mut to_close) = (Vec::new(), Vec::new());
        for barcode in volumes {
            let v = self.volume_view(barcode)?.volume;
            let fit = matches!(
                v.state,
                VolumeState::Filling
                    | VolumeState::Full
                    | VolumeState::ReadOnly
                    | VolumeState::Suspect
                    | VolumeState::Exported
            );
            if !fit || v.uuid.is_empty() {
                let message = format!(
                    "volume {barcode} is {}: only volumes that hold files are exported; nothing was changed",
                    v.state
                );
                return Err(failure(ErrorClass::Invalid, message));
            }
            if v.may_hold_more() && v.indexed_to < v.append_block {
                let message = format!(
                    "volume {barcode}: its index does not list all that the catalogue has on it, and no index is written to it, as its tape may \
                     hold more than the catalogue lists: `thermo volume repack {barcode}` moves its files; nothing was changed"
                );
                return Err(failure(ErrorClass::Invalid, message));
            }
            if v.state != VolumeState::Exported {
                to_close.push(barcode.clone());
            }
            items.push((barcode.clone(), v.live));
        }
        if !to_close.is_empty() {
            self.set_volume_state(cx, &to_close, (VolumeState::ReadOnly, true), reason)?;
        }
        let subject = crate::keep::subject(volumes.iter());
        let request = Request::new(RequestKind::Export, cx.uid, subject, crate::now());
        let made = self.catalog.create_volume_request(&request, &items, None);
        self.keeper.wake();
        made.map_err(|e| refused("export", &e))
    }

    /// Uuid of this namespace.
    pub(crate) fn site(&self) -> Result<String, Failure> {
        let site = self.catalog.site().map_err(|e| refused("this namespace", &e))?;
        Ok(site.unwrap_or_default())
    }

    /// What volumes were before they were exported.
    pub(super) fn exported_as(&self, volumes: &[Barcode]) -> Result<Vec<Option<Before>>, Failure> {
        let before = |barcode: &Barcode| {
            self.catalog.before_export(barcode).map_err(|e| refused(&format!("volume {barcode}"), &e))
        };
        volumes.iter().map(before).collect()
    }

    /// [`Node::import_volumes`], for who asked.
    pub(super) fn import_reply(
        self: &Arc<Self>,
        cx: &Cx,
        order: ImportOrder,
        was: Vec<(Barcode, Before)>,
    ) -> Result<Reply, Failure> {
        Ok(self.request_reply(self.import_volumes(cx, order, was)?))
    }

    /// Begins to import; the request tells how far it is. `was`: what volumes of others were before they were exported.
    fn import_volumes(
        self: &Arc<Self>,
        cx: &Cx,
        order: ImportOrder,
        was: Vec<(Barcode, Before)>,
    ) -> Result<Request, Failure> {
        let ImportOrder { volumes, into, pool, uids, gids } = order;
        let into = into.map(|path| path.strip_suffix(b"/").map_or(path.clone(), <[u8]>::to_vec));
        if into.as_ref().is_some_and(|path| !path.is_empty() && path[0] != b'/') {
            return Err(failure(
                ErrorClass::Invalid,
                "the directory must be an absolute path of the namespace",
            ));
        }
        if let Some(into) = &into {
            self.may_go_into(into)?;
        }
        let mut back = BTreeMap::new();
        for barcode in &volumes {
            let v = self.volume_view(barcode)?.volume;
            if v.state == VolumeState::Exported {
                back.insert(barcode.clone(), Before { state: v.state, reason: v.reason, by: v.by });
            }
        }
        for barcode in back.keys() {
            let now = crate::now();
            let why = "it was exported and is back; `thermo volume import` looks at it";
            let looked_at = self.catalog.update_volume(barcode, &mut |v| {
                v.becomes(VolumeState::Unverified, why, now);
                v.by = Some(cx.uid);
            });
            looked_at.map_err(|e| refused(&format!("volume {barcode}"), &e))?;
        }
        let below = into.as_ref().map_or_else(String::new, |path| {
            format!(" below {}", if path.is_empty() { "/".into() } else { escape(path) })
        });
        let subject = format!("import of {}{below}", plural(volumes.len(), "volume"));
        let by = (cx.uid, cx.gid);
        let map = |pairs: Vec<(u32, u32)>| pairs.into_iter().collect::<BTreeMap<_, _>>();
        let was = was.into_iter().collect();
        let import = Import { into, pool, uids: map(uids), gids: map(gids), by, was, back };
        self.take_in(cx, subject, volumes, Some(Arc::new(import)), false)
    }

    /// Refuses what is there and no directory.
    fn may_go_into(&self, into: &[u8]) -> Result<(), Failure> {
        let at = if into.is_empty() { b"/" } else { into };
        let shown = String::from_utf8_lossy(at);
        let is_no_directory = match self.catalog.resolve(&Cx::admin(crate::now()), at, true) {
            Ok(here) => match self.catalog.elsewhere(here.attr.ino).unwrap_or_else(Some) {
                Some(e) => return Err(refused(&shown, &e)),
                None => here.attr.kind != FileKind::Directory,
            },
            Err(e) if e.fs() == FsError::NotFound => false,
            Err(e) if e.fs() == FsError::NotADirectory => true,
            Err(e) => return Err(refused(&shown, &e)),
        };
        if is_no_directory {
            let why =
                format!("{shown} is not a directory, or leads through a file; give another with --into");
            return Err(failure(ErrorClass::Invalid, why));
        }
        Ok(())
    }

    /// The import of a volume that was exported has ended: if nothing came of it, it is still away.
    pub(super) fn stays_exported(&self, barcode: &Barcode, before: &Before, why: &str) {
        // What earlier imports came to is over; why it was exported is kept.
        let exported = before.reason.split_once(NOT_BACK).map_or(before.reason.as_str(), |(first, _)| first);
        let (reason, now) = (format!("{exported}{NOT_BACK}{why}"), crate::now());
        let told = self.catalog.update_volume(barcode, &mut |v| {
            if v.state == VolumeState::Unverified {
                v.becomes(before.state, reason.clone(), now);
                v.by = before.by;
            }
        });
        if let Err(e) = told {
            tracing::error!("volume {barcode} cannot be recorded as exported again: {e}");
        }
    }
}
