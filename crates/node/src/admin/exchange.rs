//! Volumes go to other sites and come from there.

use crate::Node;
use crate::archive::import::Import;
use crate::error::{failure, refused};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::*;
use wire::{Failure, ImportOrder, Reply};

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
    pub(super) fn site(&self) -> Result<String, Failure> {
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
        let mut back = Vec::new();
        for barcode in &volumes {
            let v = self.volume_view(barcode)?.volume;
            if v.state == VolumeState::Exported {
                back.push(barcode.clone());
            }
        }
        for barcode in back {
            let now = crate::now();
            let looked_at = self.catalog.update_volume(&barcode, &mut |v| {
                v.becomes(VolumeState::Unverified, "it was exported and is back; it is being looked at", now);
                v.by = Some(cx.uid);
            });
            looked_at.map_err(|e| refused(&format!("volume {barcode}"), &e))?;
        }
        let below = into.as_ref().map_or_else(String::new, |path| {
            format!(" below {}", if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path) })
        });
        let subject = format!("import of {} volumes{below}", volumes.len());
        let by = (cx.uid, cx.gid);
        let map = |pairs: Vec<(u32, u32)>| pairs.into_iter().collect::<BTreeMap<_, _>>();
        let was = was.into_iter().collect();
        let import = Import { into, pool, uids: map(uids), gids: map(gids), by, was };
        self.take_in(cx, subject, volumes, Some(Arc::new(import)), false)
    }
}
